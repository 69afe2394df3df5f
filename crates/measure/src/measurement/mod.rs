//! Plain data: what ran, on what, how large, and the figure with its spread.
//!
//! Nothing here knows a device or a plot; `results` stores these rows, `plot` draws them.

mod convolution;
mod memory;
mod resources;
mod span;

pub use convolution::{ConvAlgorithm, ConvAlgorithms, ConvElement, ConvPass, Convolution};
pub use memory::{MemoryPoint, MemoryStats};
pub use resources::{KernelResources, Resources};
pub use span::Span;

use std::fmt;

/// The middle of several samples and their spread. All values are in one unit, which the holder states.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// A tenth of the samples lie below.
    pub p10: f64,
    /// A tenth of the samples lie above.
    pub p90: f64,
    /// How many samples were taken.
    pub samples: usize,
}

impl Summary {
    /// Summarises samples, in any order. Quantiles are interpolated linearly between neighbours.
    ///
    /// # Panics
    /// When `samples` is empty or holds a NaN: both are mistakes of the measuring code, not of the reader.
    pub fn of(samples: &[f64]) -> Summary {
        assert!(!samples.is_empty(), "a summary needs at least one sample\nnext: measure at least once");
        assert!(
            samples.iter().all(|sample| !sample.is_nan()),
            "a sample is not a number\nnext: see why the measurement gives NaN"
        );
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let quantile = |q: f64| {
            let at = q * (sorted.len() - 1) as f64;
            let (low, high) = (at.floor() as usize, at.ceil() as usize);
            sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
        };
        Summary { median: quantile(0.5), p10: quantile(0.1), p90: quantile(0.9), samples: sorted.len() }
    }

    /// The same samples in another unit: every figure through `f`, which must be monotonic.
    /// A falling `f` (a time turned into a rate) swaps the two ends of the spread.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Summary {
        let (a, b) = (f(self.p10), f(self.p90));
        Summary { median: f(self.median), p10: a.min(b), p90: a.max(b), samples: self.samples }
    }

    /// Milliseconds for `bytes` moved, turned into GB/s (10⁹ bytes a second).
    pub fn gb_per_s(self, bytes: usize) -> Summary {
        self.map(|ms| bytes as f64 / (ms * 1e-3) / 1e9)
    }

    /// Milliseconds for `operations`, turned into GFLOP/s (10⁹ operations a second).
    pub fn gflop_per_s(self, operations: f64) -> Summary {
        self.map(|ms| operations / (ms * 1e-3) / 1e9)
    }
}

impl fmt::Display for Summary {
    /// `1.23 (p10 1.20, p90 1.31, 21 samples)`; the unit stands where the caller puts it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { median, p10, p90, samples } = self;
        write!(f, "{} (p10 {}, p90 {}, {samples} samples)", figures(*median), figures(*p10), figures(*p90))
    }
}

/// Three significant figures, without an exponent between 0.001 and a trillion.
pub fn figures(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let digits = 2 - value.abs().log10().floor() as i32;
    match digits {
        d if !(-9..=5).contains(&d) => format!("{value:.2e}"),
        d if d >= 0 => format!("{value:.*}", d as usize),
        _ => format!("{value:.0}"),
    }
}

/// What did the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Backend {
    /// One core of the CPU.
    CpuOneCore,
    /// All cores of the CPU.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// An Apple GPU.
    Metal,
    /// A model of a GPU: its figures are never times of a real one.
    Model,
}

impl Backend {
    /// Every backend, in the order of legends.
    pub const ALL: [Backend; 5] = [Backend::CpuOneCore, Backend::Cpu, Backend::Cuda, Backend::Metal, Backend::Model];

    /// The word that stands in `metrics.csv`.
    pub fn name(self) -> &'static str {
        match self {
            Backend::CpuOneCore => "cpu-1",
            Backend::Cpu => "cpu",
            Backend::Cuda => "cuda",
            Backend::Metal => "metal",
            Backend::Model => "model",
        }
    }

    /// The backend of that word.
    pub fn from_name(name: &str) -> Option<Backend> {
        Backend::ALL.into_iter().find(|backend| backend.name() == name)
    }
}

/// One row of `metrics.csv`: one figure, with all that is needed to read it later.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// When it was taken: RFC 3339, UTC, whole seconds. Empty until a lesson stores it.
    pub time: String,
    /// The repository's commit (short), or `unknown`. Empty until a lesson stores it.
    pub commit: String,
    /// The notebook, such as `02_async_timing`. Empty until a lesson stores it.
    pub lesson: String,
    /// What was done; the name of one curve.
    pub experiment: String,
    /// What did it.
    pub backend: Backend,
    /// The machine's name, such as `NVIDIA H200`. Empty until a lesson stores it.
    pub machine: String,
    /// The element type, such as `f32`, or empty where none applies.
    pub dtype: String,
    /// The size on the horizontal axis, in the unit that the experiment states (elements, bytes, matrix side).
    pub size: u64,
    /// What the value is: `time`, `bandwidth`, `memory` …
    pub metric: String,
    /// The unit of `value`, `p10` and `p90`.
    pub unit: String,
    /// Median, spread and number of samples.
    pub summary: Summary,
    /// True for a row of the recorded reference run. Not a column: it follows from the file.
    pub recorded: bool,
}

impl Measurement {
    /// A row; who, when and where are filled in by the lesson that stores it.
    pub fn new(experiment: &str, backend: Backend, size: usize, metric: &str, unit: &str, summary: Summary) -> Self {
        Measurement {
            time: String::new(),
            commit: String::new(),
            lesson: String::new(),
            experiment: experiment.to_string(),
            backend,
            machine: String::new(),
            dtype: "f32".to_string(),
            size: size as u64,
            metric: metric.to_string(),
            unit: unit.to_string(),
            summary,
            recorded: false,
        }
    }

    /// A time in milliseconds.
    pub fn time_ms(experiment: &str, backend: Backend, size: usize, summary: Summary) -> Self {
        Measurement::new(experiment, backend, size, "time", "ms", summary)
    }

    /// The same row for another element type; `""` where none applies.
    pub fn dtype(mut self, dtype: &str) -> Self {
        self.dtype = dtype.to_string();
        self
    }

    /// The machine that these rows were recorded on; empty where they are live. For `recorded_on` of charts.
    pub fn recorded_on(rows: &[Measurement]) -> String {
        rows.iter().find(|row| row.recorded).map_or(String::new(), |row| row.machine.clone())
    }

    /// A row that names none was measured in this process: by this CPU, or a GPU that only its maker knows.
    fn machine_name(&self) -> String {
        match self.backend {
            _ if !self.machine.is_empty() => self.machine.clone(),
            Backend::Cpu | Backend::CpuOneCore => crate::cpu_info::info().short_name(),
            _ => "this machine".to_string(),
        }
    }

    /// Where the row comes from: `recorded on NVIDIA H200, 2026-11-21`.
    pub fn source(&self) -> String {
        let machine = self.machine_name();
        let date = self.time.get(..10).map_or(String::new(), |date| format!(", {date}"));
        let verb = if self.recorded { "recorded" } else { "measured" };
        format!("{verb} on {machine}{date}")
    }

    /// The legend of this row's curve: experiment, machine, and whether it was recorded.
    pub fn label(&self) -> String {
        let machine = self.machine_name();
        let cores = if self.backend == Backend::CpuOneCore { ", one core" } else { "" };
        let recorded = if self.recorded { ", recorded" } else { "" };
        format!("{} ({machine}{cores}{recorded})", self.experiment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_known_row() {
        let samples: Vec<f64> = (0..=10).rev().map(f64::from).collect();
        assert_eq!(Summary::of(&samples), Summary { median: 5.0, p10: 1.0, p90: 9.0, samples: 11 });
        assert_eq!(Summary::of(&[3.0]).p90, 3.0);
    }

    #[test]
    fn samples_that_are_none_or_no_number_are_refused() {
        for samples in [&[][..], &[f64::NAN], &[1.0, f64::NAN]] {
            let panic = std::panic::catch_unwind(|| Summary::of(samples)).unwrap_err();
            let text = panic.downcast_ref::<&str>().unwrap();
            assert!(text.contains("\nnext: "), "{text}");
        }
    }

    #[test]
    fn a_rate_keeps_its_spread_in_order() {
        let rate = Summary { median: 2.0, p10: 1.0, p90: 4.0, samples: 5 }.gb_per_s(4_000_000);
        assert_eq!((rate.p10, rate.median, rate.p90), (1.0, 2.0, 4.0));
    }

    #[test]
    fn three_figures() {
        let cases = [
            (0.0, "0"),
            (0.001234, "0.00123"),
            (0.5, "0.500"),
            (12.345, "12.3"),
            (98765.4, "98765"),
            (1e-7, "1.00e-7"),
            (999_999_999_999.0, "999999999999"),
            (1e300, "1.00e300"),
        ];
        for (value, text) in cases {
            assert_eq!(figures(value), text);
        }
    }

    #[test]
    fn backends_have_one_word_each() {
        for backend in Backend::ALL {
            assert_eq!(Backend::from_name(backend.name()), Some(backend));
        }
        assert_eq!(Backend::from_name("tpu"), None);
    }
}
