//! Thread instructions a second, and memory: `cargo bench -p warpsim`; `-- --speed` without the memory.

mod cases;
mod memory;

use std::time::Instant;

use cases::{Case, Mode};
use warpsim::Device;

/// Runs of each line of the table.
const RUNS: usize = 7;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|a| a == memory::CHILD) {
        return memory::child(&arguments[at + 1]);
    }
    println!("On {}; median of {RUNS} launches, and the fastest and slowest.", machine());
    println!("A thread instruction is a PTX instruction in an active lane, as the counters count it.\n");
    println!(
        "| kernel | looked at | cores | ms | from | to | million thread instructions/s | million operations/s |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    );
    for case in [Case::Matmul(256), Case::VectorAdd(1 << 20), Case::Reduce(1 << 20)] {
        for mode in Mode::ALL {
            [1, 2].into_iter().for_each(|cores| line(case, mode, cores));
        }
    }
    line(Case::Matmul(512), Mode::Counters, 1);
    line(Case::Matmul(512), Mode::Counters, 2);
    if !arguments.iter().any(|a| a == "--speed") {
        memory::table();
    }
}

/// Times a case and prints its line.
fn line(case: Case, mode: Mode, cores: usize) {
    let mut device = Device::new();
    let ready = case.ready(&mut device);
    device.set_cores(cores);
    // The same instructions run in each mode; only the counters know how many.
    device.set_checks(false);
    let mut run = || device.launch(&ready.module, ready.kernel, ready.launch, &ready.args).expect("it runs");
    let instructions = run().counters.thread_instructions as f64;
    mode.set(&mut device);
    let mut seconds: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            let report = device.launch(&ready.module, ready.kernel, ready.launch, &ready.args).expect("it runs");
            let seconds = start.elapsed().as_secs_f64();
            assert!(report.findings.is_empty(), "{}", report.findings[0]);
            seconds
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let median = seconds[RUNS / 2];
    let (operations, kind) = case.operations();
    println!(
        "| {} | {} | {cores} | {:.1} | {:.1} | {:.1} | {:.0} | {:.0} {kind} |",
        case.name(),
        mode.name(),
        median * 1e3,
        seconds[0] * 1e3,
        seconds[RUNS - 1] * 1e3,
        instructions / median / 1e6,
        operations / median / 1e6,
    );
}

/// The processor's name, where the system tells it.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split(": ").nth(1));
    model.unwrap_or("unknown processor").to_owned()
}
