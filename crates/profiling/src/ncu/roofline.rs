//! The roofline by what really crossed the memory's pins.

use super::Counted;
use gpulab::plot::{self, Reached, Roofline};

/// TFLOP/s that the multiprocessors' f32 lanes reach at most, as `gpulab demo ladder` prints it.
pub(super) const PEAK: &str = "fp32 peak";

impl Counted {
    /// Each with the additions and multiplications of its call: operations for each byte that was read from or written to
    /// device memory, against operations a second. The memory's roof is what the hardware's own percentage makes of the
    /// busiest one's bytes and time.
    pub fn roofline(counted: &[(Counted, f64)]) -> Roofline {
        let bytes = |one: &Counted| (one.get("read") + one.get("written")) * 1e6;
        let seconds = |one: &Counted| one.get("time") * 1e-6;
        let point = |(one, operations): &(Counted, f64)| Reached {
            name: one.rung.rsplit('/').next().unwrap_or_default().to_string(),
            flop_per_byte: operations / bytes(one),
            tflop_per_s: operations / seconds(one) / 1e12,
            recorded: !one.recorded_on.is_empty(),
        };
        let mut chart = plot::roofline(&counted.iter().map(point).collect::<Vec<_>>());
        let percent = |one: &Counted| one.get("device memory");
        let busiest = counted.iter().map(|one| &one.0).filter(|one| percent(one) > 0.0);
        if let Some(one) = busiest.max_by(|a, b| percent(a).total_cmp(&percent(b))) {
            let roof = bytes(one) / seconds(one) / 1e9 / (percent(one) / 100.0);
            chart = chart.memory_roof("device memory, by ncu's percentage", roof);
        }
        if let Some(peak) = counted.iter().find_map(|one| one.0.metrics.get(PEAK)) {
            chart = chart.compute_roof("f32: multiprocessors × lanes × 2 × clock", *peak);
        }
        let place = match counted.iter().map(|one| &one.0.recorded_on).find(|machine| !machine.is_empty()) {
            Some(machine) => format!("Recorded on {machine}."),
            None => "Measured on this machine.".to_string(),
        };
        chart.note("Bytes: those that crossed the pins of device memory, as Nsight Compute counted them.").note(&place)
    }
}
