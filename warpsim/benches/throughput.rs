//! Thread instructions a second, on one core and on all: `cargo bench -p warpsim`.

use std::time::Instant;

use warpsim::{Arg, Device, Launch, Module, Report};

fn main() {
    println!("{}", machine());
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    for (checks, words) in [(false, "counters"), (true, "counters and checks")] {
        for (name, kernel, n) in [("matmul_tiled", "matmul", 256usize), ("vector_add", "vector_add", 1 << 20)] {
            for cores in [1, all] {
                let (seconds, report) = measure(name, kernel, n, cores, checks);
                let instructions = report.counters.thread_instructions;
                let rate = instructions as f64 / seconds / 1e6;
                println!(
                    "{kernel}, n = {n}, {cores} cores, {words}: {seconds:.3} s, {rate:.0} million thread instructions/s"
                );
            }
        }
    }
}

/// Median of five runs.
fn measure(name: &str, kernel: &str, n: usize, cores: usize, checks: bool) -> (f64, Report) {
    let path = format!("{}/tests/ptx/{name}.ptx", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the fixture is there");
    let module = Module::load(&text).expect("it loads");
    let mut device = Device::new();
    device.set_cores(cores);
    device.set_checks(checks);
    let square = name == "matmul_tiled";
    let bytes = if square { n * n * 4 } else { n * 4 };
    let buffers: Vec<u64> = (0..3).map(|_| device.alloc(bytes).expect("memory")).collect();
    for &buffer in &buffers {
        device.write(buffer, &vec![0; bytes]).expect("inside");
    }
    let side = n as u32 / 16;
    let launch = match square {
        true => Launch { grid: [side, side, 1], block: [16, 16, 1], shared_bytes: 0 },
        false => Launch::linear(n as u32 / 256, 256),
    };
    let mut args: Vec<Arg> = buffers.into_iter().map(Arg::Pointer).collect();
    args.push(Arg::I32(n as i32));
    let mut run = || {
        let start = Instant::now();
        let report = device.launch(&module, kernel, launch, &args).expect("it runs");
        (start.elapsed().as_secs_f64(), report)
    };
    let mut runs: Vec<(f64, Report)> = (0..5).map(|_| run()).collect();
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    runs.swap_remove(2)
}

/// The processor's name, where the system tells it.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split(": ").nth(1));
    model.unwrap_or("unknown processor").to_owned()
}
