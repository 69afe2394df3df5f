//! A ladder that was run: plain data, with the way to rows of `metrics.csv` and back.

use super::{Ladder, Size, Work};
use gpulab::gpu::Gpu;
use gpulab::measurement::{Backend, Measurement, Summary, figures};
use gpulab::plot::is_rung;
use std::fmt;

/// Every rung of a ladder at one size, beside its peers.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a run shows itself as the last expression of a cell, without a semicolon"]
pub struct LadderRun {
    /// The ladder.
    pub ladder: Ladder,
    /// The size.
    pub size: Size,
    /// The elements' type, `f32` or `bf16`.
    pub dtype: String,
    /// Bytes that a call must move at least.
    pub bytes: f64,
    /// Additions and multiplications of a call.
    pub operations: f64,
    /// What the GPU's f32 lanes can reach, in TFLOP/s, where its driver tells.
    pub fp32_peak: Option<f64>,
    /// The GPU's name.
    pub machine: String,
    /// The kind of machine.
    pub backend: Backend,
    /// Empty when it ran here, else what it was recorded on.
    pub recorded_on: String,
    /// The rungs in reading order, then the peers.
    pub lines: Vec<RunLine>,
    /// What was left out, and other things to know.
    pub notes: Vec<String>,
}

/// One rung or peer.
#[derive(Debug, Clone, PartialEq)]
pub struct RunLine {
    /// The rung's name, such as `03_whole_warps`, or a peer's, such as `device copy`.
    pub name: String,
    /// The unit of the rate: `GB/s` or `TFLOP/s`.
    pub unit: String,
    /// ms a call.
    pub time: Summary,
    /// By what the call must do at least.
    pub rate: Summary,
    /// ‖result − exact‖ ÷ ‖exact‖ over places spread over the result, in f64; `None` where nothing is computed.
    pub error: Option<f64>,
    /// For a rung, its speed as a multiple of each peer's, round by round.
    pub against: Vec<(String, Summary)>,
}

/// The rows of a call's bytes and operations.
const CALL: &str = "a call";
const AGAINST: &str = "against ";

impl RunLine {
    pub(super) fn rung(path: &str, error: f64, unit: &str) -> RunLine {
        RunLine::peer(path.rsplit('/').next().unwrap_or(path), Some(error), unit)
    }

    pub(super) fn peer(name: &str, error: Option<f64>, unit: &str) -> RunLine {
        let none = Summary { median: f64::NAN, p10: f64::NAN, p90: f64::NAN, samples: 0 };
        RunLine { name: name.into(), unit: unit.into(), time: none, rate: none, error, against: Vec::new() }
    }

    /// Whether it is a peer: rungs begin with their number.
    pub fn is_peer(&self) -> bool {
        !is_rung(&self.name)
    }

    /// Its speed as a multiple of that peer's.
    pub fn ratio(&self, peer: &str) -> Option<Summary> {
        self.against.iter().find(|(name, _)| name == peer).map(|(_, ratio)| *ratio)
    }
}

impl LadderRun {
    pub(super) fn empty(ladder: Ladder, size: Size, gpu: &Gpu) -> LadderRun {
        LadderRun {
            ladder,
            size,
            dtype: String::new(),
            bytes: 0.0,
            operations: 0.0,
            fp32_peak: gpu.fp32_peak(),
            machine: gpu.name().to_string(),
            backend: gpu.backend(),
            recorded_on: String::new(),
            lines: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(super) fn work(&mut self, work: &Work) {
        self.dtype = work.dtype.to_string();
        self.bytes = work.bytes as f64;
        self.operations = work.operations;
    }

    /// The rungs.
    pub fn rungs(&self) -> impl Iterator<Item = &RunLine> {
        self.lines.iter().filter(|line| !line.is_peer())
    }

    /// The peers; the device copy is the first.
    pub fn peers(&self) -> impl Iterator<Item = &RunLine> {
        self.lines.iter().filter(|line| line.is_peer())
    }

    /// The rung or peer of that name, or of a name that begins so: `03` finds `03_whole_warps`.
    pub fn find(&self, name: &str) -> Option<&RunLine> {
        let exact = self.lines.iter().find(|line| line.name == name);
        exact.or_else(|| self.lines.iter().find(|line| !name.is_empty() && line.name.starts_with(name)))
    }

    /// The median rate of a rung, in the unit of its line.
    ///
    /// # Panics
    /// When nothing of that name took part; the message lists what did. So do its siblings.
    pub fn rate(&self, rung: &str) -> f64 {
        self.line(rung).rate.median
    }

    /// The median rate of a peer, such as `device copy`.
    ///
    /// # Panics
    /// As [`LadderRun::rate`].
    pub fn peer(&self, name: &str) -> f64 {
        self.line(name).rate.median
    }

    /// The median time of a rung or peer, in µs a call.
    ///
    /// # Panics
    /// As [`LadderRun::rate`].
    pub fn time_us(&self, name: &str) -> f64 {
        self.line(name).time.median * 1e3
    }

    fn line(&self, name: &str) -> &RunLine {
        self.find(name).unwrap_or_else(|| {
            let names: Vec<&str> = self.lines.iter().map(|line| line.name.as_str()).collect();
            panic!("no `{name}` took part in this run\nnext: use one of: {}", names.join(", "))
        })
    }

    /// The rates, one row a rung or peer: `experiment` is its name, `metric` is `rate`.
    pub fn rows(&self) -> Vec<Measurement> {
        let mut rows = self.to_rows();
        rows.retain(|row| row.metric == "rate");
        for row in &mut rows {
            row.machine.clone_from(&self.machine);
            row.recorded = !self.recorded_on.is_empty();
        }
        rows
    }

    /// The name under which a lesson stores it.
    pub fn experiment(ladder: Ladder, size: Size) -> String {
        format!("ladder {} {}", ladder.topic(), size.name())
    }

    /// All of it but the notes, as rows.
    pub fn to_rows(&self) -> Vec<Measurement> {
        let row = |name: &str, metric: &str, unit: &str, summary| {
            let size = self.size.numbers()[0];
            Measurement::new(name, self.backend, size, metric, unit, summary).dtype(&self.dtype)
        };
        let once = |value: f64| Summary::of(&[value]);
        let mut rows =
            vec![row(CALL, "bytes", "B", once(self.bytes)), row(CALL, "operations", "FLOP", once(self.operations))];
        rows.extend(self.fp32_peak.map(|peak| row(CALL, "f32 peak", "TFLOP/s", once(peak))));
        for line in &self.lines {
            rows.push(row(&line.name, "rate", &line.unit, line.rate));
            rows.push(row(&line.name, "time", "ms", line.time));
            rows.extend(line.error.map(|error| row(&line.name, "error", "of the result", once(error))));
            let ratios = line.against.iter();
            rows.extend(ratios.map(|(peer, ratio)| row(&line.name, &format!("{AGAINST}{peer}"), "ratio", *ratio)));
        }
        rows
    }

    /// The run of such rows; other rows are passed over.
    pub fn from_rows(ladder: Ladder, size: Size, rows: &[Measurement]) -> LadderRun {
        let first = rows.first();
        let call = |metric: &str| {
            rows.iter().find(|row| row.experiment == CALL && row.metric == metric).map_or(0.0, |row| row.summary.median)
        };
        let mut run = LadderRun {
            ladder,
            size,
            dtype: first.map_or(String::new(), |row| row.dtype.clone()),
            bytes: call("bytes"),
            operations: call("operations"),
            fp32_peak: Some(call("f32 peak")).filter(|peak| *peak > 0.0),
            machine: first.map_or(String::new(), |row| row.machine.clone()),
            backend: first.map_or(Backend::Cuda, |row| row.backend),
            recorded_on: first.filter(|row| row.recorded).map_or(String::new(), |row| row.machine.clone()),
            lines: Vec::new(),
            notes: Vec::new(),
        };
        for row in rows.iter().filter(|row| row.experiment != CALL) {
            if row.metric == "rate" {
                let line = RunLine::peer(&row.experiment, None, &row.unit);
                run.lines.push(RunLine { rate: row.summary, ..line });
            }
            let Some(line) = run.lines.iter_mut().find(|line| line.name == row.experiment) else { continue };
            match row.metric.as_str() {
                "time" => line.time = row.summary,
                "error" => line.error = Some(row.summary.median),
                metric => {
                    let peer = metric.strip_prefix(AGAINST).map(|peer| (peer.to_string(), row.summary));
                    line.against.extend(peer);
                }
            }
        }
        run
    }
}

impl fmt::Display for LadderRun {
    /// A table: µs a call, rate, % of each peer, error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.recorded_on.is_empty() { "on" } else { "recorded on" };
        writeln!(f, "{} {} of {}, {place} {}", self.ladder.topic(), self.dtype, self.size, self.machine)?;
        for line in &self.lines {
            let us = figures(line.time.median * 1e3);
            write!(f, "{:24} {us:>9} µs {:>9} {:7}", line.name, figures(line.rate.median), line.unit)?;
            for (peer, ratio) in &line.against {
                write!(f, "  {:5.1} % of {peer}", 100.0 * ratio.median)?;
            }
            match line.error {
                Some(error) => writeln!(f, "  off by {error:.1e}")?,
                None => writeln!(f)?,
            }
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_survives_the_way_through_rows() {
        let summary = |median| Summary { median, p10: median / 2.0, p90: median * 2.0, samples: 21 };
        let mut rung = RunLine::rung("matmul/01_naive", 1e-7, "TFLOP/s");
        (rung.time, rung.rate) = (summary(2.0), summary(5.0));
        rung.against = vec![("cuBLAS".to_string(), summary(0.5))];
        let mut peer = RunLine::peer("device copy", None, "GB/s");
        (peer.time, peer.rate) = (summary(0.1), summary(4000.0));
        let run = LadderRun {
            dtype: "f32".to_string(),
            bytes: 12.0,
            operations: 16.0,
            fp32_peak: Some(66.9),
            lines: vec![rung, peer],
            ..LadderRun::empty(Ladder::Matmul, Size::Three(2, 3, 4), &Gpu::simulated().unwrap())
        };
        let mut rows = run.to_rows();
        rows.iter_mut().for_each(|row| row.machine.clone_from(&run.machine));
        assert_eq!(LadderRun::from_rows(run.ladder, run.size, &rows), run);
        assert_eq!((run.rate("01"), run.peer("device copy"), run.time_us("01_naive")), (5.0, 4000.0, 2000.0));
        assert_eq!(
            run.rows().iter().map(|row| row.experiment.as_str()).collect::<Vec<_>>(),
            ["01_naive", "device copy"]
        );
        let text = run.to_string();
        assert!(text.contains("2 × 3 × 4") && text.contains(" 50.0 % of cuBLAS"), "{text}");
        let panic = std::panic::catch_unwind(|| run.rate("99")).unwrap_err();
        assert!(panic.downcast_ref::<String>().unwrap().contains("next: use one of: 01_naive, device copy"));
    }
}
