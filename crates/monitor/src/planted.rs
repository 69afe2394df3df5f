//! A trace that is made up, for tests and examples: phases with round figures and a little noise. Its origin says so, and no figure of it
//! is a measurement.

use crate::sample::{Job, Process, Sample};
use crate::source::GpuInfo;
use crate::trace::SampleTrace;
use jiff::{SignedDuration, Timestamp};

/// What a made-up trace says of itself.
pub const ORIGIN: &str = "generated from round figures by `gpulab_monitor::planted`: no GPU was measured";

/// Milliseconds from one sample to the next.
const STEP_MS: i64 = 250;

/// A phase: what the numbers are about.
#[derive(Debug, Clone, Copy)]
struct Phase {
    name: &'static str,
    seconds: f64,
    utilization: f64,
    memory: f64,
    used_gib: f64,
    watts: f64,
    mhz: f64,
    received: f64,
    /// The share of a step that waits for data; a phase with one has steps and a loss.
    wait: Option<f64>,
}

const IDLE: Phase = Phase {
    name: "idle",
    seconds: 5.0,
    utilization: 0.0,
    memory: 0.0,
    used_gib: 4.0,
    watts: 120.0,
    mhz: 1980.0,
    received: 1e6,
    wait: None,
};

/// The phases of `gpulab demo load`, with round figures.
fn phases() -> Vec<Phase> {
    vec![
        IDLE,
        Phase { name: "one block", seconds: 6.0, utilization: 100.0, watts: 140.0, ..IDLE },
        Phase { name: "matmul", seconds: 10.0, utilization: 100.0, memory: 40.0, watts: 690.0, mhz: 1500.0, ..IDLE },
        Phase { name: "copy", seconds: 6.0, utilization: 100.0, memory: 95.0, watts: 420.0, ..IDLE },
        Phase { name: "upload", seconds: 6.0, received: 5e10, watts: 150.0, ..IDLE },
        Phase { name: "hold", seconds: 3.0, used_gib: 44.0, ..IDLE },
        Phase { name: "dropped", seconds: 3.0, used_gib: 44.0, ..IDLE },
        Phase { name: "trimmed", seconds: 3.0, ..IDLE },
        Phase { name: "bursts", seconds: 6.0, utilization: 10.0, memory: 4.0, watts: 180.0, ..IDLE },
        Phase { name: "train", seconds: 8.0, utilization: 85.0, memory: 30.0, watts: 500.0, wait: Some(0.05), ..IDLE },
        Phase { name: "stall", seconds: 8.0, utilization: 10.0, memory: 4.0, watts: 180.0, wait: Some(0.9), ..IDLE },
        Phase { name: "nan", seconds: 3.0, utilization: 85.0, memory: 30.0, watts: 500.0, wait: Some(0.05), ..IDLE },
    ]
}

/// A trace with the phases of `gpulab demo load`.
pub fn course() -> SampleTrace {
    trace(&phases())
}

/// To so many digits as a driver gives: a trace keeps them.
fn round(value: f64, digit: f64) -> f64 {
    (value / digit).round() / (1.0 / digit).round()
}

fn trace(phases: &[Phase]) -> SampleTrace {
    const GIB: f64 = (1_u64 << 30) as f64;
    let begin: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let (mut samples, mut step, mut joules, mut celsius, mut seed) = (Vec::new(), 0.0, 0.0, 35.0, 1_u32);
    // Deterministic, within ± 1.
    let mut noise = move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(seed >> 8) / f64::from(1 << 23) - 1.0
    };
    for phase in phases {
        for _ in 0..(phase.seconds * 1e3) as i64 / STEP_MS {
            let time = begin + SignedDuration::from_millis(STEP_MS * samples.len() as i64);
            // Warms up and cools down by a time constant of some seconds.
            celsius += (30.0 + phase.watts / 18.0 - celsius) * 0.05;
            joules += phase.watts * STEP_MS as f64 / 1e3;
            step += if phase.wait.is_some() { 1.0 } else { 0.0 };
            let loss =
                if phase.name == "nan" { f64::NAN } else { 2.0 * (-step / 40.0_f64).exp() + 0.1 + 0.02 * noise() };
            let job = Job {
                phase: Some(phase.name.to_string()),
                step: phase.wait.map(|_| step),
                loss: phase.wait.map(|_| round(loss, 1e-4)),
                loader_wait: phase.wait,
            };
            let busy = phase.utilization > 0.0 && phase.utilization < 100.0;
            let capped = phase.watts > 650.0;
            let reasons: &[&str] = match (capped, phase.utilization == 0.0) {
                (true, _) => &["SW_POWER_CAP"],
                (_, true) => &["GPU_IDLE"],
                _ => &[],
            };
            samples.push(Sample {
                time,
                utilization_percent: Some((phase.utilization + if busy { 3.0 * noise() } else { 0.0 }).round()),
                memory_utilization_percent: Some(phase.memory),
                memory_used_bytes: Some(phase.used_gib * GIB),
                memory_total_bytes: Some(140.0 * GIB),
                power_w: Some(round(phase.watts * (1.0 + 0.01 * noise()), 0.1)),
                power_limit_w: Some(700.0),
                energy_j: Some(joules),
                temperature_c: Some(celsius.round()),
                sm_clock_mhz: Some(phase.mhz + if capped { (15.0 * noise()).round() } else { 0.0 }),
                memory_clock_mhz: Some(3200.0),
                pcie_rx_bytes_per_s: Some((phase.received * (1.0 + 0.05 * noise())).round()),
                pcie_tx_bytes_per_s: Some(1e6),
                ecc_corrected: Some(0.0),
                ecc_uncorrected: Some(0.0),
                throttle: Some(reasons.iter().map(ToString::to_string).collect()),
                processes: Some(vec![Process { pid: 4711, memory_bytes: Some((phase.used_gib - 0.5) * GIB) }]),
                job: Some(job),
                ..Sample::default()
            });
        }
    }
    SampleTrace {
        origin: ORIGIN.to_string(),
        gpus: vec![GpuInfo { index: 0, name: "a planted GPU".to_string() }],
        samples,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_that_it_is_made_up_and_is_the_same_each_time() {
        let made = course();
        assert!(made.origin.starts_with("generated") && made.machine() == "a planted GPU");
        assert_eq!(format!("{made:?}"), format!("{:?}", course()));
        assert_eq!(made.phases(), phases().iter().map(|phase| phase.name).collect::<Vec<_>>());
        assert!(made.phase("nan").iter().all(|sample| sample.job.as_ref().unwrap().loss.unwrap().is_nan()));
    }
}
