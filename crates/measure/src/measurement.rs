//! Plain data: what ran, on what, how large, and the figure with its spread.
//!
//! Nothing here knows a device or a plot; `results` stores these rows, `plot` draws them.

use crate::error::bytes;
use crate::table::{Cell, Table};
use std::fmt;

/// The middle of several samples and their spread. All values are in one unit, which the holder states.
///
/// # Examples
/// ```
/// use gpulab_measure::measurement::Summary;
/// let ms = Summary::of(&[2.0, 1.0, 4.0]);
/// assert_eq!((ms.median, ms.samples), (2.0, 3));
/// // 8 MB in 2 ms are 4 GB/s; the slow end of the times is the low end of the rates.
/// let rate = ms.gb_per_s(8_000_000);
/// assert_eq!(rate.median, 4.0);
/// assert!(rate.p10 < rate.median && rate.median < rate.p90);
/// ```
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
}

impl fmt::Display for Summary {
    /// `1.23 (p10 1.20, p90 1.31, 21 samples)`; the unit stands where the caller puts it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { median, p10, p90, samples } = self;
        write!(f, "{} (p10 {}, p90 {}, {samples} samples)", figures(*median), figures(*p10), figures(*p90))
    }
}

/// Three significant figures, without an exponent between 0.001 and a trillion.
///
/// # Examples
/// ```
/// use gpulab_measure::measurement::figures;
/// assert_eq!([0.012345, 1.2345, 123.45, 123456.0].map(figures), ["0.0123", "1.23", "123", "123456"]);
/// ```
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

/// A prediction for a sentence: its figures, or that there is none yet.
///
/// # Examples
/// ```
/// use gpulab_measure::measurement::predicted;
/// let my_factor: Option<f64> = None;
/// assert_eq!(format!("your prediction: {}", predicted(my_factor)), "your prediction: none yet");
/// assert_eq!(predicted(12.5), "12.5");
/// ```
pub fn predicted(value: impl Into<Option<f64>>) -> String {
    value.into().map_or_else(|| "none yet".to_string(), figures)
}

/// What did the work.
///
/// # Examples
/// ```
/// use gpulab_measure::measurement::Backend;
/// assert_eq!(Backend::Cuda.name(), "cuda");
/// assert_eq!(Backend::from_name("cpu-1"), Some(Backend::CpuOneCore));
/// ```
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
    /// The simulator (warpsim), which counts as a GPU does, and whose times say nothing of one.
    Simulator,
    /// A practice model of a device, such as its queue or its memory pool, with times that are made up.
    Model,
    /// Nothing ran: arithmetic, from sizes or from other figures.
    Derived,
}

impl Backend {
    /// Every backend, in the order of legends.
    pub const ALL: [Backend; 7] = [
        Backend::CpuOneCore,
        Backend::Cpu,
        Backend::Cuda,
        Backend::Metal,
        Backend::Simulator,
        Backend::Model,
        Backend::Derived,
    ];

    /// The word that stands in `metrics.csv`. In rows of before November 2026, `model` stands for the last three.
    pub fn name(self) -> &'static str {
        match self {
            Backend::CpuOneCore => "cpu-1",
            Backend::Cpu => "cpu",
            Backend::Cuda => "cuda",
            Backend::Metal => "metal",
            Backend::Simulator => "simulator",
            Backend::Model => "model",
            Backend::Derived => "derived",
        }
    }

    /// The backend of that word.
    pub fn from_name(name: &str) -> Option<Backend> {
        Backend::ALL.into_iter().find(|backend| backend.name() == name)
    }
}

/// One row of `metrics.csv`: one figure, with all that is needed to read it later.
///
/// # Examples
/// ```
/// use gpulab_measure::measurement::{Backend, Measurement, Summary};
/// let ms = Summary::of(&[0.50, 0.52, 0.51]);
/// let row = Measurement::time_ms("add", Backend::Cpu, 1 << 20, ms);
/// assert_eq!((row.median(), row.unit.as_str()), (0.51, "ms"));
/// // Any other figure names its metric and unit.
/// let rate = Measurement::new("add", Backend::Cpu, 1 << 20, "rate", "GB/s", ms.gb_per_s(12 << 20));
/// assert_eq!(rate.metric, "rate");
/// ```
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

    /// The median, in the row's unit.
    pub fn median(&self) -> f64 {
        self.summary.median
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
            Backend::Simulator => "simulator".to_string(),
            Backend::Derived => "derived".to_string(),
            _ => "this machine".to_string(),
        }
    }

    /// Where the row comes from: `recorded on NVIDIA H200, 2026-11-21`, or `derived` where nothing ran.
    pub fn source(&self) -> String {
        let machine = self.machine_name();
        if self.backend == Backend::Derived {
            return machine;
        }
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

/// What a cell asks of rows, by the name of what was done. For `Vec<Measurement>` and slices.
///
/// # Examples
/// ```
/// use gpulab_measure::measurement::{Backend, Measurement, Rows, Summary};
/// let row = |name: &str, ms: f64| Measurement::time_ms(name, Backend::Cpu, 1024, Summary::of(&[ms]));
/// let rows = vec![row("one core", 12.0), row("all cores", 3.0)];
/// assert_eq!(rows.ratio("one core", "all cores"), 4.0);
/// assert_eq!(rows.median_at("all cores", 1024), 3.0);
/// assert!(rows.median("GPU").is_nan());
/// ```
pub trait Rows {
    /// The rows of that experiment, of every size.
    fn of(&self, experiment: &str) -> Vec<Measurement>;

    /// The first row of that experiment.
    fn row(&self, experiment: &str) -> Option<&Measurement>;

    /// The median of that experiment's row of one size; NaN where there is none, as on a GPU that cannot run it.
    fn median_at(&self, experiment: &str, size: usize) -> f64;

    /// The median of that experiment's first row; NaN where there is none.
    fn median(&self, experiment: &str) -> f64 {
        self.row(experiment).map_or(f64::NAN, Measurement::median)
    }

    /// The median of one experiment divided by that of another, of their first rows.
    fn ratio(&self, experiment: &str, other: &str) -> f64 {
        self.median(experiment) / self.median(other)
    }
}

impl Rows for [Measurement] {
    fn of(&self, experiment: &str) -> Vec<Measurement> {
        self.iter().filter(|row| row.experiment == experiment).cloned().collect()
    }

    fn row(&self, experiment: &str) -> Option<&Measurement> {
        self.iter().find(|row| row.experiment == experiment)
    }

    fn median_at(&self, experiment: &str, size: usize) -> f64 {
        let found = self.iter().find(|row| row.experiment == experiment && row.size == size as u64);
        found.map_or(f64::NAN, Measurement::median)
    }
}

/// The pool's figures and the device's, in bytes.
///
/// Buffers come from a pool that sits between them and the driver. `used` is what buffers hold. `reserved` is what the
/// pool has taken from the driver, used or not. `free` is what the driver could still give, to anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryStats {
    /// Held by buffers.
    pub used: u64,
    /// Held by the pool: what buffers hold, and what freed buffers left behind.
    pub reserved: u64,
    /// The highest `used` since `Gpu::reset_high_water`.
    pub used_high: u64,
    /// The highest `reserved` since `Gpu::reset_high_water`.
    pub reserved_high: u64,
    /// What the driver still has, for this and every other program.
    pub free: u64,
    /// All memory of the device.
    pub total: u64,
}

impl fmt::Display for MemoryStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "used {} (highest {}), reserved {} (highest {}), free {} of {}",
            bytes(self.used),
            bytes(self.used_high),
            bytes(self.reserved),
            bytes(self.reserved_high),
            bytes(self.free),
            bytes(self.total)
        )
    }
}

/// A memory pool after one step, in bytes.
///
/// # Examples
/// ```
/// use gpulab_measure::measurement::{MemoryPoint, MemoryStats};
/// // On a device: `gpu.memory()?`.
/// let stats = MemoryStats { used: 400, reserved: 1024, used_high: 400, reserved_high: 1024, free: 2976, total: 4000 };
/// let point = MemoryPoint::of("allocate", stats);
/// assert_eq!((point.step.as_str(), point.used, point.reserved, point.free), ("allocate", 400, 1024, 2976));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPoint {
    /// What was just done, such as `drop the buffer`.
    pub step: String,
    /// Bytes that live buffers hold.
    pub used: u64,
    /// Bytes that the pool holds, used or not.
    pub reserved: u64,
    /// Bytes of the whole device that nobody holds.
    pub free: u64,
}

impl MemoryPoint {
    /// A point after `step`; all three numbers are bytes.
    pub fn new(step: &str, used: u64, reserved: u64, free: u64) -> MemoryPoint {
        MemoryPoint { step: step.to_string(), used, reserved, free }
    }

    /// The point that the pool's statistics make.
    pub fn of(step: &str, stats: MemoryStats) -> MemoryPoint {
        MemoryPoint::new(step, stats.used, stats.reserved, stats.free)
    }

    /// Three rows a point, in bytes; `size` is the step's number, so that the order is kept.
    pub fn to_rows(points: &[MemoryPoint], backend: Backend) -> Vec<Measurement> {
        let row = |(at, point): (usize, &MemoryPoint)| {
            [("used", point.used), ("reserved", point.reserved), ("free", point.free)].map(|(metric, bytes)| {
                let once = Summary::of(&[bytes as f64]);
                Measurement::new(&point.step, backend, at, metric, "bytes", once).dtype("")
            })
        };
        points.iter().enumerate().flat_map(row).collect()
    }

    /// The points of such rows; other rows are passed over.
    pub fn from_rows(rows: &[Measurement]) -> Vec<MemoryPoint> {
        let mut points: Vec<(u64, MemoryPoint)> = Vec::new();
        for row in rows {
            if !matches!(row.metric.as_str(), "used" | "reserved" | "free") {
                continue;
            }
            let at = points.iter().position(|(size, point)| *size == row.size && point.step == row.experiment);
            let at = at.unwrap_or_else(|| {
                points.push((row.size, MemoryPoint::new(&row.experiment, 0, 0, 0)));
                points.len() - 1
            });
            let bytes = row.summary.median as u64;
            match row.metric.as_str() {
                "used" => points[at].1.used = bytes,
                "reserved" => points[at].1.reserved = bytes,
                _ => points[at].1.free = bytes,
            }
        }
        points.sort_by_key(|(size, _)| *size);
        points.into_iter().map(|(_, point)| point).collect()
    }
}

/// What one kernel needs of the GPU, and what that leaves room for, as the driver tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KernelResources {
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory a block, in bytes.
    pub shared_bytes: u32,
    /// Dynamic shared memory a block, in bytes: the launch asks for it.
    pub dynamic_shared_bytes: u32,
    /// Local memory a thread, in bytes: registers that did not fit (spills) and arrays indexed at run time.
    pub local_bytes: u32,
    /// The largest block that these registers allow, in threads.
    pub max_threads_per_block: u32,
    /// Threads of the launch's block.
    pub threads: u32,
    /// Blocks that one multiprocessor holds at a time.
    pub blocks: u32,
    /// Threads that one multiprocessor can hold at a time, of any kernel.
    pub max_threads_per_multiprocessor: u32,
    /// Blocks that one multiprocessor can hold at a time, of any kernel.
    pub max_blocks_per_multiprocessor: u32,
    /// Blocks for which a multiprocessor's shared memory would be enough.
    pub blocks_by_shared: u32,
}

impl KernelResources {
    /// Warps that one multiprocessor holds at a time.
    pub fn warps(&self) -> u32 {
        self.blocks * self.threads.div_ceil(32)
    }

    /// Warps at a time in percent of the most that a multiprocessor can hold.
    pub fn occupancy(&self) -> f64 {
        f64::from(self.warps() * 32) * 100.0 / f64::from(self.max_threads_per_multiprocessor.max(1))
    }

    /// What keeps one more block out: `threads`, `shared memory`, `blocks` (their number itself) or `registers`.
    pub fn limited_by(&self) -> &'static str {
        let by_threads = self.max_threads_per_multiprocessor / self.threads.next_multiple_of(32).max(32);
        match self.blocks {
            blocks if blocks >= by_threads => "threads",
            blocks if blocks >= self.blocks_by_shared => "shared memory",
            blocks if blocks >= self.max_blocks_per_multiprocessor => "blocks",
            _ => "registers",
        }
    }
}

/// A field's name in `metrics.csv`, its unit, and how it is read and written.
type Field = (&'static str, &'static str, fn(&mut KernelResources) -> &mut u32);

const FIELDS: [Field; 10] = [
    ("registers", "", |it| &mut it.registers),
    ("static shared memory", "bytes", |it| &mut it.shared_bytes),
    ("dynamic shared memory", "bytes", |it| &mut it.dynamic_shared_bytes),
    ("local memory", "bytes", |it| &mut it.local_bytes),
    ("largest block", "threads", |it| &mut it.max_threads_per_block),
    ("block", "threads", |it| &mut it.threads),
    ("blocks a multiprocessor", "", |it| &mut it.blocks),
    ("most threads", "threads", |it| &mut it.max_threads_per_multiprocessor),
    ("most blocks", "", |it| &mut it.max_blocks_per_multiprocessor),
    ("blocks by shared memory", "", |it| &mut it.blocks_by_shared),
];

/// What each rung of a ladder needs. As the last expression of a cell it shows itself as a table.
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use = "resources show themselves as the last expression of a cell, without a semicolon"]
pub struct Resources {
    /// Each rung's name with what it needs.
    pub rungs: Vec<(String, KernelResources)>,
    /// Rungs that are not in the table, each with the reason.
    pub left_out: Vec<(String, String)>,
    /// Where the figures come from, such as `recorded on NVIDIA H200, 2026-11-21`.
    pub source: String,
}

impl Resources {
    /// What that rung needs; `None` where the table has no such rung. Its number is enough: `03`.
    pub fn get(&self, rung: &str) -> Option<KernelResources> {
        let is = |name: &str| name == rung || name.split('_').next() == Some(rung);
        self.rungs.iter().find(|(name, _)| is(name)).map(|(_, it)| *it)
    }

    /// Ten rows a rung; `size` is the rung's place, so that the order is kept.
    pub fn to_rows(&self, backend: Backend) -> Vec<Measurement> {
        let row = |(at, (name, it)): (usize, &(String, KernelResources))| {
            let mut it = *it;
            FIELDS.map(|(metric, unit, field)| {
                let once = Summary::of(&[f64::from(*field(&mut it))]);
                Measurement::new(name, backend, at, metric, unit, once).dtype("")
            })
        };
        self.rungs.iter().enumerate().flat_map(row).collect()
    }

    /// The resources of such rows; other rows are passed over.
    pub fn from_rows(rows: &[Measurement]) -> Resources {
        let mut rungs: Vec<(u64, String, KernelResources)> = Vec::new();
        let mut source = String::new();
        for row in rows {
            let Some((.., field)) = FIELDS.iter().find(|field| field.0 == row.metric) else { continue };
            let own = rungs.iter().position(|(size, name, _)| *size == row.size && *name == row.experiment);
            let own = own.unwrap_or_else(|| {
                rungs.push((row.size, row.experiment.clone(), KernelResources::default()));
                rungs.len() - 1
            });
            *field(&mut rungs[own].2) = row.summary.median as u32;
            source = row.source();
        }
        rungs.sort_by_key(|(size, ..)| *size);
        let rungs = rungs.into_iter().map(|(_, name, it)| (name, it)).collect();
        Resources { rungs, left_out: Vec::new(), source }
    }

    fn table(&self) -> Table {
        type Column = (&'static str, fn(&KernelResources) -> Cell);
        const COLUMNS: [Column; 9] = [
            ("registers per thread", |it| Cell::of(it.registers.to_string())),
            ("static shared", |it| Cell::of(shared(it.shared_bytes))),
            ("dynamic shared", |it| Cell::of(shared(it.dynamic_shared_bytes))),
            ("local bytes per thread", |it| Cell::of(it.local_bytes.to_string()).flagged(it.local_bytes > 0)),
            ("threads per block", |it| Cell::of(it.threads.to_string())),
            ("blocks per multiprocessor", |it| Cell::of(it.blocks.to_string())),
            ("warps per multiprocessor", |it| Cell::of(it.warps().to_string())),
            ("occupancy", |it| Cell::of(format!("{:.0} %", it.occupancy()))),
            ("limited by", |it| Cell::of(it.limited_by())),
        ];
        let row = |(name, it): &(String, KernelResources)| {
            std::iter::once(Cell::of(name)).chain(COLUMNS.iter().map(|(_, cell)| cell(it))).collect()
        };
        let mut notes = Vec::new();
        if self.rungs.iter().any(|(_, it)| it.local_bytes > 0) {
            let (marked, spilled) = ("local bytes on an orange ground (`!`)", "registers that did not fit");
            notes.push(format!("{marked}: {spilled}, or an array with a computed index, both in global memory"));
        }
        notes.extend(self.left_out.iter().map(|(name, why)| format!("not in the table: `{name}`: {why}")));
        let source = if self.source.is_empty() { "no figures" } else { &self.source };
        Table {
            title: format!("what each rung needs of a multiprocessor ({source})"),
            heads: std::iter::once("rung").chain(COLUMNS.map(|column| column.0)).map(str::to_string).collect(),
            rows: self.rungs.iter().map(row).collect(),
            notes,
            ..Table::default()
        }
    }

    /// The table as a piece of a page.
    pub fn html(&self) -> String {
        self.table().html()
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        self.table().show();
    }
}

/// Bytes of shared memory; a dash for none.
fn shared(bytes: u32) -> String {
    match bytes {
        0 => "–".to_string(),
        _ => crate::error::bytes(bytes.into()),
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table().text())
    }
}

/// Something that went on in one lane for a while. Times are milliseconds from any common start.
///
/// # Examples
/// ```
/// use gpulab_measure::{measurement::Span, plot};
/// let spans = [Span::new("copy engine", "copy 1", 0.0, 2.0), Span::new("stream 1", "kernel 1", 2.0, 3.5)];
/// assert!(plot::timeline(&spans).draw().svg().contains("copy engine"));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Who was busy: `host`, `copy engine`, `stream 1` …
    pub lane: String,
    /// With what. Spans whose labels differ only in a number at the end share a colour.
    pub label: String,
    /// When it began, in ms.
    pub start_ms: f64,
    /// When it ended, in ms.
    pub end_ms: f64,
}

impl Span {
    /// A span from `start_ms` to `end_ms`.
    pub fn new(lane: &str, label: &str, start_ms: f64, end_ms: f64) -> Span {
        Span { lane: lane.to_string(), label: label.to_string(), start_ms, end_ms }
    }

    /// Two rows a span, `start` and `end` in ms; `size` is the span's number, and the lane stands before a bar.
    pub fn to_rows(spans: &[Span], backend: Backend) -> Vec<Measurement> {
        let row = |(at, span): (usize, &Span)| {
            [("start", span.start_ms), ("end", span.end_ms)].map(|(metric, ms)| {
                let name = format!("{} | {}", span.lane, span.label);
                Measurement::new(&name, backend, at, metric, "ms", Summary::of(&[ms])).dtype("")
            })
        };
        spans.iter().enumerate().flat_map(row).collect()
    }

    /// The spans of such rows; other rows are passed over.
    pub fn from_rows(rows: &[Measurement]) -> Vec<Span> {
        let mut spans: Vec<(u64, Span)> = Vec::new();
        for start in rows.iter().filter(|row| row.metric == "start") {
            let end = rows
                .iter()
                .find(|row| row.metric == "end" && row.size == start.size && row.experiment == start.experiment);
            if let (Some(end), Some((lane, label))) = (end, start.experiment.split_once(" | ")) {
                spans.push((start.size, Span::new(lane, label, start.summary.median, end.summary.median)));
            }
        }
        spans.sort_by_key(|(size, _)| *size);
        spans.into_iter().map(|(_, span)| span).collect()
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
    fn rows_are_found_by_name_and_size() {
        let row = |name: &str, size, ms: f64| Measurement::time_ms(name, Backend::Cuda, size, Summary::of(&[ms]));
        let rows = [row("a", 1, 2.0), row("b", 1, 4.0), row("a", 8, 16.0)];
        assert_eq!((rows.of("a").len(), rows.median("a"), rows.median_at("a", 8)), (2, 2.0, 16.0));
        assert_eq!((rows.ratio("b", "a"), rows.row("c")), (2.0, None));
        assert!(rows.median("c").is_nan() && rows.median_at("b", 8).is_nan() && rows.of("c").is_empty());
    }

    #[test]
    fn backends_have_one_word_each() {
        for backend in Backend::ALL {
            assert_eq!(Backend::from_name(backend.name()), Some(backend));
        }
        assert_eq!(Backend::from_name("tpu"), None);
    }

    #[test]
    fn points_survive_the_way_through_rows() {
        let points = vec![MemoryPoint::new("begin", 0, 32, 900), MemoryPoint::new("drop, then wait", 7, 64, 868)];
        let mut rows = MemoryPoint::to_rows(&points, Backend::Cuda);
        assert_eq!(rows.len(), 6);
        rows.reverse();
        assert_eq!(MemoryPoint::from_rows(&rows), points);
    }

    fn spilling() -> KernelResources {
        KernelResources {
            registers: 255,
            shared_bytes: 1024,
            dynamic_shared_bytes: 98_304,
            local_bytes: 16,
            max_threads_per_block: 256,
            threads: 256,
            blocks: 1,
            max_threads_per_multiprocessor: 2048,
            max_blocks_per_multiprocessor: 32,
            blocks_by_shared: 2,
        }
    }

    #[test]
    fn resources_survive_the_way_through_rows_and_name_their_machine() {
        let plain = KernelResources {
            registers: 20,
            threads: 256,
            blocks: 8,
            max_threads_per_multiprocessor: 2048,
            ..Default::default()
        };
        let both = Resources {
            rungs: vec![("02_b".to_string(), spilling()), ("01_a".to_string(), plain)],
            left_out: Vec::new(),
            source: "recorded on NVIDIA H200, 2026-11-21".to_string(),
        };
        let mut rows = both.to_rows(Backend::Cuda);
        assert_eq!(rows.len(), 20);
        for row in &mut rows {
            (row.machine, row.recorded) = ("NVIDIA H200".to_string(), true);
            row.time = "2026-11-21T04:34:20Z".to_string();
        }
        rows.reverse();
        rows.push(Measurement::time_ms("01_a", Backend::Cuda, 0, Summary::of(&[1.0])));
        assert_eq!(Resources::from_rows(&rows), both);
        assert_eq!(both.get("02"), both.get("02_b"));
        assert!(both.get("0").is_none() && both.get("02").is_some());
    }

    #[test]
    fn the_table_says_what_limits_and_what_spills() {
        let few = KernelResources {
            blocks: 2,
            threads: 512,
            max_threads_per_multiprocessor: 2048,
            blocks_by_shared: 2,
            ..spilling()
        };
        assert_eq!((spilling().limited_by(), spilling().warps(), spilling().occupancy()), ("registers", 8, 12.5));
        assert_eq!((few.limited_by(), few.occupancy()), ("shared memory", 50.0));
        let full = KernelResources { blocks: 8, threads: 256, max_threads_per_multiprocessor: 2048, ..spilling() };
        assert_eq!((full.limited_by(), full.occupancy()), ("threads", 100.0));
        let tiny = KernelResources { blocks: 32, threads: 32, blocks_by_shared: 100, ..spilling() };
        assert_eq!(tiny.limited_by(), "blocks");
        assert_eq!(KernelResources { blocks: 25, ..tiny }.limited_by(), "registers");
        let it = Resources {
            rungs: vec![("08_wide_tile".to_string(), spilling())],
            left_out: vec![("05_wgmma".to_string(), "needs Hopper".to_string())],
            source: "measured on X".to_string(),
        };
        let text = it.to_string();
        for part in
            ["(measured on X)", "08_wide_tile", "96.0 KiB", "16!", "12 %", "not in the table: `05_wgmma`: needs"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            it.html().contains("registers<br>per<br>thread") && Resources::default().to_string().contains("no figures")
        );
    }

    #[test]
    fn spans_survive_the_way_through_rows() {
        let spans = vec![Span::new("host", "launch 0", 0.0, 0.004), Span::new("GPU", "kernel 0", 0.004, 1.5)];
        assert_eq!(Span::from_rows(&Span::to_rows(&spans, Backend::Cuda)), spans);
    }
}
