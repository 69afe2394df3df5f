//! Times one case. The benchmark and a notebook's cell (`env/baselines/bench_sim.py`) run this same code.

use std::time::Instant;

use warpsim::{BlockOrder, Device};

use super::cases::{Case, Mode, Ready};

/// What came of it.
pub struct Times {
    /// Of each launch, sorted.
    pub seconds: Vec<f64>,
    /// Thread instructions of one launch.
    pub instructions: f64,
}

impl Times {
    /// The median.
    pub fn median(&self) -> f64 {
        self.seconds[self.seconds.len() / 2]
    }
}

/// Launches a case `runs` times after a first launch that is not timed.
pub fn measure(case: Case, mode: Mode, (cores, order): (usize, BlockOrder), runs: usize, folder: &str) -> Times {
    let mut device = Device::new();
    device.set_block_order(order);
    let ready = case.ready(&mut device, folder);
    timed(&mut device, &ready, (mode, cores), runs)
}

/// The same, of what is ready on a device.
pub fn timed(device: &mut Device, ready: &Ready, (mode, cores): (Mode, usize), runs: usize) -> Times {
    device.set_cores(cores);
    // The same instructions run in each mode; only the counters know how many.
    Mode::Counters.set(device);
    let run =
        |device: &mut Device| device.launch(&ready.module, ready.kernel, ready.launch, &ready.args).expect("it runs");
    let instructions = run(device).counters.thread_instructions as f64;
    mode.set(device);
    let mut seconds: Vec<f64> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            let report = run(device);
            let seconds = start.elapsed().as_secs_f64();
            assert!(report.findings.is_empty(), "{}", report.findings[0]);
            seconds
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    Times { seconds, instructions }
}

/// Answers `matmul 256 counters 2 7` (kernel, size, mode, cores, launches) with `median fastest instructions`,
/// in seconds.
pub fn answer(question: &str, folder: &str) -> Option<String> {
    let words: Vec<&str> = question.split_whitespace().collect();
    let [name, n, mode, cores, runs] = words[..] else { return None };
    let case = Case::named(name, n.parse().ok()?)?;
    let mode = Mode::ALL.into_iter().find(|m| m.name() == mode)?;
    let times = measure(case, mode, (cores.parse().ok()?, BlockOrder::Forward), runs.parse().ok()?, folder);
    Some(format!("{} {} {}", times.median(), times.seconds[0], times.instructions))
}
