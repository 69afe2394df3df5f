//! `make report`: `results/metrics.csv` summarised, CPU against GPU by experiment, as tables and a chart.

use gpulab::error::{Error, Result};
use gpulab::html::escape;
use gpulab::measurement::{Backend, Measurement, Summary, figures};
use gpulab::plot::Figure;
use gpulab::table::{Cell, Table, show};
use gpulab::{plot, results};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What a file of results says.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a report shows itself as the last expression of a cell, without a semicolon"]
pub struct SpeedReport {
    /// Where the rows come from.
    pub source: String,
    /// The CPUs that were measured on, by name.
    pub cpus: Vec<String>,
    /// The GPUs that were measured on, by name.
    pub gpus: Vec<String>,
    /// The lessons that have rows, by name.
    pub lessons: Vec<LessonRows>,
    /// What was done on the CPU and on a GPU.
    pub pairs: Vec<SpeedPair>,
    /// Rows of speed on one side alone.
    pub alone: usize,
}

/// How much of a lesson there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LessonRows {
    /// Its name, such as `12a_matmul_tiles`.
    pub lesson: String,
    /// Rows measured on a CPU.
    pub cpu: usize,
    /// Rows measured on a GPU.
    pub gpu: usize,
    /// All other rows: counts and predictions of models.
    pub other: usize,
    /// When the newest was taken.
    pub newest: String,
}

/// One experiment on both sides.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeedPair {
    /// The lesson.
    pub lesson: String,
    /// What was done.
    pub experiment: String,
    /// The element type; may be empty.
    pub dtype: String,
    /// `time`, `rate` …
    pub metric: String,
    /// The unit of both values.
    pub unit: String,
    /// The sizes that both have, rising.
    pub points: Vec<SpeedPoint>,
}

/// One size of an experiment. Of several values of a side (one core and all cores, two machines) it is the fastest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpeedPoint {
    /// In the unit that the experiment states.
    pub size: u64,
    /// The CPU's value.
    pub cpu: f64,
    /// The GPU's value.
    pub gpu: f64,
    /// How many times as fast the GPU is.
    pub speedup: f64,
}

/// The report on `results/metrics.csv`. Where that has no figures of a GPU, the recorded run's stand beside the CPU's own; where
/// there is no such file, all of it is on the recorded run. The first line then says so.
///
/// # Errors
/// As [`of_file`].
pub fn report() -> Result<SpeedReport> {
    report_on(&results::file(), &results::recorded_file(results::REFERENCE))
}

fn report_on(own: &Path, reference: &Path) -> Result<SpeedReport> {
    if !own.exists() {
        let report = of_file(reference)?;
        let why = format!("There is no {}: nothing was measured here yet", own.display());
        return Ok(SpeedReport { source: format!("{why}. This is the recorded run: {}", report.source), ..report });
    }
    let mut rows = rows_of(own)?;
    let mut source = format!("{} rows of {}", rows.len(), own.display());
    if !rows.iter().any(of_gpu) && reference.exists() {
        rows.extend(rows_of(reference)?.into_iter().filter(of_gpu));
        source += ". No GPU was measured there: the GPU's figures are the recorded run's";
    }
    Ok(of_rows(&rows, &source))
}

/// Whether a row is a figure of a real GPU.
fn of_gpu(row: &Measurement) -> bool {
    matches!(row.backend, Backend::Cuda | Backend::Metal)
}

/// The report on the recorded run.
///
/// # Errors
/// As [`of_file`].
pub fn recorded() -> Result<SpeedReport> {
    let report = of_file(&results::recorded_file(results::REFERENCE))?;
    Ok(SpeedReport { source: format!("This is the recorded run: {}", report.source), ..report })
}

/// The report on a file of results.
///
/// # Errors
/// [`Error::File`] when it cannot be read, [`Error::Damaged`] with the line when it is not sound, [`Error::Invalid`] when it
/// has no rows.
pub fn of_file(path: &Path) -> Result<SpeedReport> {
    let rows = rows_of(path)?;
    Ok(of_rows(&rows, &format!("{} rows of {}", rows.len(), path.display())))
}

/// The rows of a file that has some.
fn rows_of(path: &Path) -> Result<Vec<Measurement>> {
    let rows = results::read_all(path)?;
    if rows.is_empty() {
        return Err(Error::invalid(
            format!("{} has no rows: there is nothing to report", path.display()),
            "run a lesson (`make run NB=10_vector_add`), which adds its rows; or remove the file, and the report is \
                  on the recorded run",
        ));
    }
    Ok(rows)
}

fn of_rows(rows: &[Measurement], source: &str) -> SpeedReport {
    // The newest of each figure: times of RFC 3339 in UTC sort as text.
    let mut by_time: Vec<&Measurement> = rows.iter().collect();
    by_time.sort_by_key(|row| &row.time);
    let mut newest = BTreeMap::new();
    for row in by_time {
        let figure = (&row.experiment, row.backend.name(), &row.machine);
        newest.insert((figure, &row.lesson, &row.dtype, &row.metric, &row.unit, row.size), row);
    }
    // Of each experiment and size the fastest row of each side.
    let mut fastest: BTreeMap<_, [Option<&Measurement>; 2]> = BTreeMap::new();
    for row in newest.into_values().filter(|row| speed(row) > 0.0) {
        let Some(side) = ["cpu", "gpu"].iter().position(|name| *name == side(row.backend)) else { continue };
        // `pipeline over rows: filter` and `loops over rows: filter` are the same work. That polars' general `group` and the
        // kernels' are not shows where loops with the kernels' algorithm are the CPU's fastest row.
        let experiment = row.experiment.rsplit(": ").next().unwrap_or_default();
        let key = (&row.lesson, experiment, &row.dtype, &row.metric, &row.unit);
        let found = &mut fastest.entry((key, row.size)).or_default()[side];
        if found.is_none_or(|other| speed(row) > speed(other)) {
            *found = Some(row);
        }
    }
    let (mut pairs, mut alone) = (BTreeMap::new(), 0);
    for ((key, size), sides) in fastest {
        let [Some(cpu), Some(gpu)] = sides else {
            alone += 1;
            continue;
        };
        let (on_cpu, on_gpu) = (cpu.summary.median, gpu.summary.median);
        let point = SpeedPoint { size, cpu: on_cpu, gpu: on_gpu, speedup: speed(gpu) / speed(cpu) };
        pairs.entry(key).or_insert_with(Vec::new).push(point);
    }
    let pair =
        |((lesson, experiment, dtype, metric, unit), points): ((&String, &str, &String, &String, &String), _)| {
            let [lesson, dtype, metric, unit] = [lesson, dtype, metric, unit].map(String::clone);
            SpeedPair { lesson, experiment: experiment.to_string(), dtype, metric, unit, points }
        };
    let [cpus, gpus] = ["cpu", "gpu"].map(|side| machines(rows, side));
    let pairs = pairs.into_iter().map(pair).collect();
    SpeedReport { source: source.to_string(), cpus, gpus, lessons: lessons(rows), pairs, alone }
}

impl SpeedReport {
    /// Writes `report.txt`, `report.html` and, where anything was measured on both sides, `report.svg` to a folder; gives
    /// the files.
    ///
    /// # Errors
    /// [`Error::File`] when they cannot be written.
    pub fn save(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let write = |name: &str, text: &str| -> Result<PathBuf> {
            let path = folder.join(name);
            let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text));
            let fix = "choose a folder where you may write, on a disk with room";
            written.map_err(|error| Error::file(&path, "write the report to", error, fix))?;
            Ok(path)
        };
        let mut files = vec![write("report.txt", &self.text())?, write("report.html", &self.page())?];
        if let Some(figure) = self.figure() {
            files.push(write("report.svg", &figure.svg())?);
        }
        Ok(files)
    }

    /// The GPU's speed-up of each experiment, at the largest size; `None` when nothing was measured on both sides.
    pub fn figure(&self) -> Option<Figure> {
        (!self.pairs.is_empty()).then(|| figure(self))
    }
}

fn side(backend: Backend) -> &'static str {
    match backend {
        Backend::Cpu | Backend::CpuOneCore => "cpu",
        Backend::Cuda | Backend::Metal => "gpu",
        Backend::Simulator | Backend::Model | Backend::Derived => "other",
    }
}

/// The machines of a side, each once.
fn machines(rows: &[Measurement], of: &str) -> Vec<String> {
    let names = rows.iter().filter(|row| side(row.backend) == of).map(|row| row.machine.clone());
    names.collect::<BTreeSet<String>>().into_iter().collect()
}

fn is_time(metric: &str) -> bool {
    matches!(metric, "time" | "latency")
}

/// Higher for the faster one: in 1 ÷ unit for times; 0 for what is no speed.
fn speed(row: &Measurement) -> f64 {
    match row.summary.median {
        value if value <= 0.0 => 0.0,
        value if is_time(&row.metric) => 1.0 / value,
        value if row.unit.ends_with("/s") && !row.metric.ends_with("peak") => value,
        _ => 0.0,
    }
}

/// How many rows each lesson has of each side.
fn lessons(rows: &[Measurement]) -> Vec<LessonRows> {
    let mut lessons = BTreeMap::new();
    for row in rows {
        let none = LessonRows { lesson: row.lesson.clone(), cpu: 0, gpu: 0, other: 0, newest: String::new() };
        let lesson = lessons.entry(&row.lesson).or_insert(none);
        match side(row.backend) {
            "cpu" => lesson.cpu += 1,
            "gpu" => lesson.gpu += 1,
            _ => lesson.other += 1,
        }
        lesson.newest = row.time.clone().max(std::mem::take(&mut lesson.newest));
    }
    lessons.into_values().collect()
}

impl SpeedReport {
    /// Both tables as text, with where the rows come from.
    pub fn text(&self) -> String {
        let tables: Vec<String> = self.tables().iter().map(Table::text).collect();
        format!("{}\n\n{}", self.source, tables.join("\n"))
    }

    /// The report as a page of its own.
    pub fn page(&self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>gpulab: CPU and GPU</title>\n\
             <style>body{{font-family:sans-serif;max-width:60em;margin:2em auto;padding:0 1em}}</style>\n\
             <h1>CPU and GPU, by experiment</h1>\n{}</html>\n",
            self.html()
        )
    }

    fn html(&self) -> String {
        let tables: Vec<String> = self.tables().iter().map(Table::html).collect();
        let figure = self.figure().map_or(String::new(), |figure| figure.html());
        format!("<p>{}</p>\n{}{figure}", escape(&self.source), tables.join("\n"))
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        show(&self.text(), &self.html());
    }

    fn tables(&self) -> [Table; 2] {
        let head = |heads: &[&str]| heads.iter().map(|head| head.to_string()).collect();
        let lessons = Table {
            title: "Rows by lesson, measured on CPU and GPU".to_string(),
            heads: head(&["lesson", "CPU", "GPU", "other", "newest"]),
            rows: self
                .lessons
                .iter()
                .map(|lesson| {
                    let texts = [lesson.cpu.to_string(), lesson.gpu.to_string(), lesson.other.to_string()];
                    let day = lesson.newest.get(..10).unwrap_or(&lesson.newest).to_string();
                    let name = if lesson.lesson.is_empty() { "no lesson".to_string() } else { lesson.lesson.clone() };
                    [name].into_iter().chain(texts).chain([day]).map(Cell::of).collect()
                })
                .collect(),
            ..Table::default()
        };
        let mut notes = vec![
            "At the largest size that both have. Of several values of a side the fastest counts; of several runs, the newest."
                .to_string(),
        ];
        if self.pairs.is_empty() {
            notes.insert(0, "Nothing was measured on a CPU and on a GPU under one name.".to_string());
        }
        for (side, names) in [("CPU", &self.cpus), ("GPU", &self.gpus)] {
            if !names.is_empty() {
                notes.push(format!("{side}: {}.", names.join("; ")));
            }
        }
        notes.push(format!("{} other figures of speed are of one side alone.", self.alone));
        let pairs = Table {
            title: "CPU and GPU, by experiment".to_string(),
            heads: head(&["experiment", "lesson", "what", "size", "CPU", "GPU", "GPU faster", "over all sizes"]),
            rows: self.pairs.iter().map(row).collect(),
            text_columns: 2,
            notes,
        };
        [lessons, pairs]
    }
}

fn row(pair: &SpeedPair) -> Vec<Cell> {
    let last = pair.points.last().expect("a pair has a point");
    let speedups = || pair.points.iter().map(|point| point.speedup);
    let (least, most) = (speedups().fold(f64::INFINITY, f64::min), speedups().fold(0.0, f64::max));
    let over = match pair.points.len() {
        1 => "one size".to_string(),
        count => format!("{} to {} ({count})", times(least), times(most)),
    };
    let texts = [
        name(pair),
        pair.lesson.clone(),
        format!("{}, {}", pair.metric, pair.unit),
        last.size.to_string(),
        figures(last.cpu),
        figures(last.gpu),
        times(last.speedup),
        over,
    ];
    let mut cells: Vec<Cell> = texts.into_iter().map(Cell::of).collect();
    // A GPU that is slower than the CPU is the thing to look at.
    cells[6].flagged = last.speedup < 1.0;
    cells
}

fn name(pair: &SpeedPair) -> String {
    match pair.dtype.as_str() {
        "" | "f32" => pair.experiment.clone(),
        dtype => format!("{}, {dtype}", pair.experiment),
    }
}

fn times(speedup: f64) -> String {
    format!("{}×", figures(speedup))
}

pub(super) fn figure(report: &SpeedReport) -> Figure {
    let bar = |pair: &SpeedPair| {
        let last = pair.points.last()?;
        let label = format!("{} {}, size {}", pair.lesson.get(..2).unwrap_or(&pair.lesson), name(pair), last.size);
        let once = Summary::of(&[last.speedup]);
        let row = Measurement::new(&label, Backend::Cuda, 1, "speed", "times the CPU's", once);
        Some(Measurement { machine: report.gpus.join("; "), ..row })
    };
    let rows: Vec<Measurement> = report.pairs.iter().filter_map(bar).collect();
    plot::bars(&rows)
        .title("How many times as fast the GPU is, at the largest size")
        .log()
        .prediction("as fast as the CPU", 1.0)
        .draw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpulab::measurement::Summary;

    fn row(experiment: &str, backend: Backend, size: usize, ms: f64) -> Measurement {
        let mut row = Measurement::time_ms(experiment, backend, size, Summary::of(&[ms]));
        (row.lesson, row.machine) = ("15_arrays".to_string(), backend.name().to_string());
        row.time = "2026-01-01T00:00:00Z".to_string();
        row
    }

    /// A folder of this test alone, removed at its end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let folder = std::env::temp_dir().join(format!("gpulab-report-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            Folder(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_fastest_of_each_side_and_the_newest_of_each_machine() {
        let old = Measurement {
            time: "2025-01-01T00:00:00Z".to_string(),
            ..row("over rows: join", Backend::Cuda, 100, 0.001)
        };
        let rows = [
            row("over rows, polars: join", Backend::Cpu, 100, 8.0),
            row("over rows, polars: join", Backend::CpuOneCore, 100, 30.0),
            row("over rows: join", Backend::Cuda, 100, 2.0),
            old, // faster, and no longer true
            row("over rows, polars: join", Backend::Cpu, 10, 1.0),
            row("over rows: join", Backend::Cuda, 10, 2.0),
            row("over rows: join", Backend::Cuda, 1000, 3.0),
            row("over rows: join", Backend::Model, 100, 0.1),
        ];
        let report = of_rows(&rows, "here");
        let point = |size, cpu, gpu| SpeedPoint { size, cpu, gpu, speedup: cpu / gpu };
        assert_eq!(report.pairs.len(), 1);
        assert_eq!(report.pairs[0].points, [point(10, 1.0, 2.0), point(100, 8.0, 2.0)]);
        assert_eq!((report.alone, report.lessons[0].cpu, report.lessons[0].gpu, report.lessons[0].other), (1, 3, 4, 1));
        let text = report.text();
        assert!(text.starts_with("here\n") && text.contains("0.500× to 4.00× (2)"), "{text}");
        assert!(text.contains("CPU: cpu; cpu-1.") && text.contains("GPU: cuda."), "{text}");
        assert!(report.figure().unwrap().svg().contains("as fast as the CPU"));
    }

    #[test]
    fn rates_are_compared_the_other_way_round_and_other_figures_not_at_all() {
        let with = |metric: &str, unit: &str, backend, value: f64| {
            let once = Summary::of(&[value]);
            Measurement { lesson: "x".to_string(), ..Measurement::new("copy", backend, 1, metric, unit, once) }
        };
        let rows = [
            with("bandwidth", "GB/s", Backend::Cpu, 20.0),
            with("bandwidth", "GB/s", Backend::Metal, 100.0),
            with("bytes", "B", Backend::Cpu, 20.0),
            with("bytes", "B", Backend::Cuda, 20.0),
            with("fp32 peak", "TFLOP/s", Backend::Cuda, 67.0),
            // Of another unit: no pair.
            with("rate", "MB/s", Backend::Cuda, 5.0),
            with("rate", "GB/s", Backend::Cpu, 5.0),
            with("time", "ms", Backend::Cpu, 0.0),
            with("time", "ms", Backend::Cuda, 1.0),
        ];
        let report = of_rows(&rows, "");
        assert_eq!(report.pairs.len(), 1);
        assert_eq!(report.pairs[0].points, [SpeedPoint { size: 1, cpu: 20.0, gpu: 100.0, speedup: 5.0 }]);
        assert_eq!(report.alone, 3);
    }

    #[test]
    fn one_side_alone_is_said_and_needs_no_chart() {
        let report = of_rows(&[row("a < b", Backend::Cpu, 1, 1.0)], "s");
        assert!(report.figure().is_none());
        assert!(report.text().contains("Nothing was measured on a CPU and on a GPU"));
        let folder = Folder::new("alone");
        let files = report.save(&folder.0.join("deeper")).unwrap();
        assert_eq!(files.len(), 2);
        let error = report.save(Path::new("/proc/none")).unwrap_err().to_string();
        assert!(error.contains("/proc/none") && error.contains("\nnext: choose a folder"), "{error}");
    }

    #[test]
    fn figures_of_ones_own_come_first_and_the_recorded_ones_say_so() {
        let folder = Folder::new("own");
        let (own, reference) = (folder.0.join("own.csv"), folder.0.join("reference.csv"));
        results::append_to(&reference, &[row("a", Backend::Cuda, 1, 1.0), row("a", Backend::Cpu, 1, 4.0)]).unwrap();
        let speedup = |report: &SpeedReport| report.pairs[0].points[0].speedup;
        let report = report_on(&own, &reference).unwrap();
        assert!(report.source.contains("nothing was measured here yet") && speedup(&report) == 4.0, "{report:?}");
        // The recorded CPU is faster, and not this one.
        results::append_to(&own, &[row("a", Backend::Cpu, 1, 10.0)]).unwrap();
        let report = report_on(&own, &reference).unwrap();
        assert!(report.source.contains("the recorded run's") && speedup(&report) == 10.0, "{report:?}");
        results::append_to(&own, &[row("a", Backend::Cuda, 1, 5.0)]).unwrap();
        let report = report_on(&own, &reference).unwrap();
        assert!(!report.source.contains("recorded") && speedup(&report) == 2.0, "{report:?}");
    }

    #[test]
    fn damaged_and_empty_files_are_named_with_a_next_step() {
        let folder = Folder::new("damaged");
        let file = folder.0.join("metrics.csv");
        let missing = of_file(&file).unwrap_err().to_string();
        assert!(missing.contains("metrics.csv") && missing.contains("\nnext: "), "{missing}");
        results::append_to(&file, &[row("a", Backend::Cpu, 1, 1.0), row("a", Backend::Cuda, 1, 0.5)]).unwrap();
        let good = std::fs::read_to_string(&file).unwrap();
        assert_eq!(of_file(&file).unwrap().pairs.len(), 1);
        let cases = [
            (String::new(), "has no rows"),
            (format!("{}\n", results::HEADER), "has no rows"),
            (good.replacen("time,", "when,", 1), "line 1: the header should be"),
            (good.replacen("cuda", "tpu", 1), "line 3: `tpu` is no backend"),
            (good.trim_end().to_string(), "line 3: the last line is cut off"),
        ];
        for (text, what) in cases {
            std::fs::write(&file, text).unwrap();
            let error = of_file(&file).unwrap_err().to_string();
            assert!(
                error.contains(what) && error.contains("metrics.csv") && error.contains("\nnext: "),
                "{what}: {error}"
            );
        }
    }

    #[test]
    fn the_recorded_run_has_a_report() {
        let report = recorded().unwrap();
        assert!(
            report.pairs.iter().any(|pair| pair.lesson == "00_welcome" && pair.experiment == "matmul"),
            "{}",
            report.text()
        );
        let page = report.page();
        assert!(page.contains("<svg") && page.contains("00_welcome"));
    }
}
