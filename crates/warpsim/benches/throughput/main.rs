//! Thread instructions a second, and memory: `cargo bench -p warpsim`; `-- --speed` without the memory, `-- --wgmma` for
//! products of a warpgroup alone,
//! `-- --block-order reverse` (or `random:SEED`) with blocks that start in another order,
//! `-- --ask` to answer the questions of [`measure::answer`] on the standard input.

mod cases;
#[path = "../../tests/common/course.rs"]
mod course;
mod measure;
mod memory;
mod wgmma;

use std::io::Write;

use cases::{Case, Mode};
use measure::Times;
use warpsim::BlockOrder;

/// Where the kernels lie.
const FOLDER: &str = env!("CARGO_MANIFEST_DIR");
/// Runs of each line of the table.
const RUNS: usize = 7;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let asked = |flag: &str| arguments.iter().position(|a| a == flag);
    if let Some(at) = asked(memory::CHILD) {
        return memory::child(&arguments[at + 1]);
    }
    if asked("--ask").is_some() {
        for question in std::io::stdin().lines().map_while(Result::ok) {
            println!("{}", measure::answer(&question, FOLDER).unwrap_or_else(|| format!("what is `{question}`?")));
            std::io::stdout().flush().expect("somebody listens");
        }
        return;
    }
    let order = asked("--block-order").map_or(Ok(BlockOrder::Forward), |at| {
        arguments.get(at + 1).map_or("", String::as_str).parse().map_err(|error| format!("--block-order: {error}"))
    });
    let order = order.unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(2)
    });
    println!("On {}; median of {RUNS} launches, and the fastest and slowest; blocks {order}.", machine());
    println!("A thread instruction is a PTX instruction in an active lane, as the counters count it; an operation is");
    println!("one that the algorithm needs. Bounds and alignment are looked at in each mode; `checks` adds races and");
    println!("reads of what nobody wrote to the counters.\n");
    println!(
        "| kernel | looked at | cores | ms | from | to | million thread instructions/s | million operations/s |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    );
    if asked("--wgmma").is_some() {
        return products();
    }
    for case in [Case::Matmul(256), Case::VectorAdd(1 << 20), Case::Reduce(1 << 20)] {
        for mode in Mode::ALL {
            [1, 2].into_iter().for_each(|cores| line(case, mode, cores, order));
        }
    }
    line(Case::Matmul(512), Mode::Counters, 1, order);
    line(Case::Matmul(512), Mode::Counters, 2, order);
    products();
    if asked("--speed").is_none() {
        memory::table();
    }
}

/// Times a case and prints its line.
fn line(case: Case, mode: Mode, cores: usize, order: BlockOrder) {
    print(&case.name(), (mode, cores), case.operations(), &measure::measure(case, mode, (cores, order), RUNS, FOLDER));
}

/// Times products of a warpgroup and prints their lines.
fn products() {
    const SIDE: u32 = 512;
    for (mode, cores) in [Mode::Counters, Mode::Checks].into_iter().flat_map(|mode| [(mode, 1), (mode, 2)]) {
        let times = wgmma::measure(SIDE, mode, cores, RUNS);
        print(&format!("matmul by wgmma, bf16, {SIDE}³"), (mode, cores), (f64::from(SIDE).powi(3), "fma"), &times);
    }
}

/// Prints a line of the table.
fn print(name: &str, (mode, cores): (Mode, usize), (operations, kind): (f64, &str), times: &Times) {
    println!(
        "| {name} | {} | {cores} | {:.1} | {:.1} | {:.1} | {:.0} | {:.0} {kind} |",
        mode.name(),
        times.median() * 1e3,
        times.seconds[0] * 1e3,
        times.seconds[RUNS - 1] * 1e3,
        times.instructions / times.median() / 1e6,
        operations / times.median() / 1e6,
    );
}

/// The processor's name, where the system tells it.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split(": ").nth(1));
    model.unwrap_or("unknown processor").to_owned()
}
