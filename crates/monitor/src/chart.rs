//! Samples as text for a terminal, and as a chart.

use crate::alerts::{Alerts, Change, State};
use crate::sample::{Job, Sample};
use crate::source::GpuInfo;
use crate::trace::SampleTrace;
use gpulab_measure::error::bytes;
use gpulab_measure::plot::{self, TimeChart, TimePanel};
use jiff::Timestamp;

/// Binary gigabytes.
const GIB: f64 = (1_u64 << 30) as f64;

/// What the newest samples say, one of each GPU, and the alerts: lines for a terminal.
pub fn lines(gpus: &[GpuInfo], samples: &[Sample], alerts: &Alerts) -> Vec<String> {
    let mut lines = Vec::new();
    for sample in samples {
        let name = gpus.iter().find(|gpu| gpu.index == sample.gpu).map_or("", |gpu| gpu.name.as_str());
        lines.push(format!("GPU {} {name}   {:.0}", sample.gpu, sample.time));
        lines.extend(of_gpu(sample).into_iter().map(|(name, text)| format!("  {name:<13}{text}")));
    }
    if let Some(job) = samples.iter().find_map(|sample| sample.job.as_ref()) {
        lines.push(format!("  {:<13}{}", "job", of_job(job)));
    }
    let states: Vec<String> = alerts
        .states()
        .filter_map(|(rule, gpu, state)| match state {
            State::Inactive => None,
            State::Pending { .. } => Some(format!("{rule} (GPU {gpu}) pending")),
            State::Firing { since, .. } => Some(format!("{rule} (GPU {gpu}) FIRING since {since:.0}")),
        })
        .collect();
    lines.push(format!("  {:<13}{}", "alerts", if states.is_empty() { "none".to_string() } else { states.join(", ") }));
    lines
}

/// The rows of one GPU; what is not known has none.
fn of_gpu(sample: &Sample) -> Vec<(&'static str, String)> {
    let (unit, percent) =
        (|value: f64, unit: &str| format!("{value:.0} {unit}"), |value: f64| format!("{value:>3.0} %"));
    let bar = |percent: f64| "█".repeat((percent / 5.0).round().clamp(0.0, 20.0) as usize);
    let rate = |value: f64| format!("{:.2} GB/s", value / 1e9);
    let size = |value: f64| bytes(value as u64);
    let row = |name, parts: Vec<Option<String>>| {
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| (name, parts.join("   ")))
    };
    let of_limit = |limit: f64| format!("limit {limit:.0} W");
    let labelled = |name: &str, text: Option<String>| text.map(|text| format!("{name} {text}"));
    let share = sample.memory_share().map(|share| percent(100.0 * share));
    let processes = sample.processes.as_ref().map(|all| match all.is_empty() {
        true => "none".to_string(),
        false => {
            let each = all.iter().map(|one| format!("{}: {}", one.pid, one.memory_bytes.map_or("?".to_string(), size)));
            each.collect::<Vec<String>>().join(", ")
        }
    });
    let throttle = sample.throttle.as_ref().map(|all| if all.is_empty() { "none".to_string() } else { all.join(", ") });
    let rows = [
        row(
            "utilisation",
            vec![
                sample.utilization_percent.map(|value| format!("{} {:<20}", percent(value), bar(value))),
                labelled("memory controller", sample.memory_utilization_percent.map(percent)),
            ],
        ),
        row(
            "memory",
            vec![share, sample.memory_used_bytes.map(size), labelled("of", sample.memory_total_bytes.map(size))],
        ),
        row("power", vec![sample.power_w.map(|value| unit(value, "W")), sample.power_limit_w.map(of_limit)]),
        row("temperature", vec![sample.temperature_c.map(|value| unit(value, "°C"))]),
        row(
            "clocks",
            vec![
                labelled("SM", sample.sm_clock_mhz.map(|value| unit(value, "MHz"))),
                labelled("memory", sample.memory_clock_mhz.map(|value| unit(value, "MHz"))),
            ],
        ),
        row("throttled by", vec![throttle]),
        row(
            "PCIe",
            vec![
                labelled("in", sample.pcie_rx_bytes_per_s.map(rate)),
                labelled("out", sample.pcie_tx_bytes_per_s.map(rate)),
            ],
        ),
        row(
            "NVLink",
            vec![
                labelled("received", sample.nvlink_rx_bytes.map(size)),
                labelled("sent", sample.nvlink_tx_bytes.map(size)),
            ],
        ),
        row(
            "ECC errors",
            vec![
                labelled("corrected", sample.ecc_corrected.map(|count| format!("{count:.0}"))),
                labelled("not corrected", sample.ecc_uncorrected.map(|count| format!("{count:.0}"))),
            ],
        ),
        row("processes", vec![processes]),
    ];
    rows.into_iter().flatten().collect()
}

fn of_job(job: &Job) -> String {
    let parts = [
        job.phase.clone(),
        job.step.map(|step| format!("step {step:.0}")),
        job.loss.map(|loss| format!("loss {loss:.4}")),
        job.loader_wait.map(|share| format!("waits for data {:.0} %", 100.0 * share)),
    ];
    parts.into_iter().flatten().collect::<Vec<String>>().join("   ")
}

/// A curve's name, and its value in a sample.
type Curve<'a> = (&'a str, &'a dyn Fn(&Sample) -> Option<f64>);

/// Times the usual distance of two samples: what lies further apart has a gap between.
const GAP: f64 = 4.0;

/// One quantity of all samples of a GPU.
fn panel(name: &str, top: f64, curves: &[Curve<'_>], samples: &[&Sample], begin: Timestamp) -> TimePanel {
    let seconds = |sample: &Sample| sample.time.duration_since(begin).as_secs_f64();
    let mut apart: Vec<f64> = samples.windows(2).map(|pair| seconds(pair[1]) - seconds(pair[0])).collect();
    apart.sort_by(f64::total_cmp);
    let most = apart.get(apart.len() / 2).map_or(f64::INFINITY, |usual| GAP * usual);
    let points = |get: &dyn Fn(&Sample) -> Option<f64>| {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for sample in samples {
            let now = seconds(sample);
            if let Some((last, _)) = points.last().filter(|(last, _)| now - last > most) {
                points.push((last + most / GAP, f64::NAN));
            }
            points.push((now, get(sample).unwrap_or(f64::NAN)));
        }
        points
    };
    let known = curves.iter().filter(|(_, get)| samples.iter().any(|sample| get(sample).is_some()));
    let curves = known.map(|(name, get)| (name.to_string(), points(*get))).collect();
    TimePanel { name: name.to_string(), curves, top }
}

/// The samples of one GPU as a chart: utilisation, power, memory, clock, temperature, PCIe, and what the job says.
pub fn chart(samples: &[Sample], gpu: u32) -> TimeChart {
    let samples: Vec<&Sample> = samples.iter().filter(|sample| sample.gpu == gpu).collect();
    let begin = samples.first().map_or(Timestamp::UNIX_EPOCH, |sample| sample.time);
    let of = |name: &str, top, curves: &[Curve<'_>]| panel(name, top, curves, &samples, begin);
    let job = |get: fn(&Job) -> Option<f64>| move |sample: &Sample| sample.job.as_ref().and_then(get);
    let waits = job(|job| job.loader_wait.map(|share| 100.0 * share));
    let panels = [
        of(
            "utilisation (%)",
            100.0,
            &[("kernels", &|s| s.utilization_percent), ("memory controller", &|s| s.memory_utilization_percent)],
        ),
        of("power (W)", 0.0, &[("draw", &|s| s.power_w), ("limit", &|s| s.power_limit_w)]),
        of("SM clock (MHz)", 0.0, &[("", &|s| s.sm_clock_mhz)]),
        of("temperature (°C)", 0.0, &[("", &|s| s.temperature_c)]),
        of("memory (GiB)", 0.0, &[("", &|s| s.memory_used_bytes.map(|bytes| bytes / GIB))]),
        of(
            "PCIe (GB/s)",
            0.0,
            &[
                ("in", &|s| s.pcie_rx_bytes_per_s.map(|rate| rate / 1e9)),
                ("out", &|s| s.pcie_tx_bytes_per_s.map(|rate| rate / 1e9)),
            ],
        ),
        of("waits for data (%)", 100.0, &[("", &waits)]),
        of("loss", 0.0, &[("", &job(|job| job.loss))]),
    ];
    plot::over_time(&panels)
}

impl SampleTrace {
    /// The trace of one GPU as a chart, with a mark where each phase begins, and where it comes from.
    pub fn chart(&self, gpu: u32) -> TimeChart {
        let mut chart = chart(&self.samples, gpu);
        for name in self.phases() {
            if let Some(first) = self.phase(&name).first() {
                chart = chart.mark(&name, self.seconds(first));
            }
        }
        let from = match self.origin.as_str() {
            "recorded" => format!("Recorded on {}.", self.machine()),
            other => format!("Not measured: {other}."),
        };
        chart.note(&from)
    }

    /// The same with a bar for each alert, from when it fires to when it is over.
    pub fn chart_with(&self, gpu: u32, changes: &[Change]) -> TimeChart {
        let mut chart = self.chart(gpu);
        let last = self.samples.last().map_or(0.0, |sample| self.seconds(sample));
        let at = |change: &Change| self.seconds(&Sample { time: change.time, ..Sample::default() });
        for (number, change) in changes.iter().enumerate().filter(|(_, change)| change.firing && change.gpu == gpu) {
            let over = changes[number..]
                .iter()
                .find(|other| !other.firing && (&other.alert, other.gpu) == (&change.alert, gpu));
            chart = chart.bar(&change.alert, at(change), over.map_or(last, at));
        }
        chart
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::built_in;
    use crate::planted;

    #[test]
    fn a_terminal_shows_what_is_known_and_nothing_else() {
        let made = planted::course();
        let mut alerts = Alerts::new(built_in());
        made.samples.iter().for_each(|sample| drop(alerts.see(sample)));
        let last = made.samples.last().unwrap();
        let text = lines(&made.gpus, std::slice::from_ref(last), &alerts).join("\n");
        for part in [
            "GPU 0 a planted GPU",
            "utilisation",
            "W",
            "limit 700 W",
            "4711: ",
            "loss NaN",
            "loss-not-finite (GPU 0) FIRING",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let bare = lines(&[], &[Sample::default()], &Alerts::default());
        assert_eq!(bare.len(), 2, "{bare:?}");
    }

    #[test]
    fn a_chart_has_phases_alerts_and_its_origin() {
        let made = planted::course();
        let mut alerts = Alerts::new(built_in());
        let changes: Vec<Change> = made.samples.iter().flat_map(|sample| alerts.see(sample)).collect();
        let svg = made.chart_with(0, &changes).title("Phases").draw().svg();
        for text in
            ["one block", "matmul", "power (W)", "loader-stalled: from", "Not measured: generated", "PCIe (GB/s)"]
        {
            assert!(svg.contains(text), "{text}");
        }
        assert!(chart(&[Sample::default()], 0).draw().svg().contains("<svg"), "also of nothing");
    }
}
