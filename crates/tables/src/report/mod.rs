//! `make report`: `results/metrics.csv` summarised with polars, CPU against GPU by experiment, as tables and a chart.

mod show;
mod summary;

use gpulab::error::{Error, Result};
use gpulab::measurement::{Backend, Measurement};
use gpulab::plot::Figure;
use gpulab::results;
use std::path::{Path, PathBuf};

/// What a file of results says.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a report shows itself as the last expression of a cell, without a semicolon"]
pub struct Report {
    /// Where the rows come from.
    pub source: String,
    /// The CPUs that were measured on, by name.
    pub cpus: Vec<String>,
    /// The GPUs that were measured on, by name.
    pub gpus: Vec<String>,
    /// The lessons that have rows, by name.
    pub lessons: Vec<LessonRows>,
    /// What was done on the CPU and on a GPU.
    pub pairs: Vec<Pair>,
    /// Rows of speed on one side alone.
    pub alone: usize,
}

/// How much of a lesson there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LessonRows {
    /// Its name, such as `12_matmul`.
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
pub struct Pair {
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
    pub points: Vec<Point>,
}

/// One size of an experiment. Of several values of a side (one core and all cores, two machines) it is the fastest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
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
pub fn report() -> Result<Report> {
    report_on(&results::file(), &results::recorded_file(results::REFERENCE))
}

fn report_on(own: &Path, reference: &Path) -> Result<Report> {
    if !own.exists() {
        let report = of_file(reference)?;
        let why = format!("There is no {}: nothing was measured here yet", own.display());
        return Ok(Report { source: format!("{why}. This is the recorded run: {}", report.source), ..report });
    }
    let mut rows = rows_of(own)?;
    let mut source = format!("{} rows of {}", rows.len(), own.display());
    if !rows.iter().any(of_gpu) && reference.exists() {
        rows.extend(rows_of(reference)?.into_iter().filter(of_gpu));
        source += ". No GPU was measured there: the GPU's figures are the recorded run's";
    }
    of_rows(&rows, &source)
}

/// Whether a row is a figure of a real GPU.
fn of_gpu(row: &Measurement) -> bool {
    matches!(row.backend, Backend::Cuda | Backend::Metal)
}

/// The report on the recorded run.
///
/// # Errors
/// As [`of_file`].
pub fn recorded() -> Result<Report> {
    let report = of_file(&results::recorded_file(results::REFERENCE))?;
    Ok(Report { source: format!("This is the recorded run: {}", report.source), ..report })
}

/// The report on a file of results.
///
/// # Errors
/// [`Error::File`] when it cannot be read, [`Error::Damaged`] with the line when it is not sound, [`Error::Invalid`] when it
/// has no rows.
pub fn of_file(path: &Path) -> Result<Report> {
    let rows = rows_of(path)?;
    of_rows(&rows, &format!("{} rows of {}", rows.len(), path.display()))
}

/// The rows of a file that has some.
fn rows_of(path: &Path) -> Result<Vec<Measurement>> {
    let rows = results::read_all(path)?;
    if rows.is_empty() {
        return Err(Error::Invalid {
            what: format!("{} has no rows: there is nothing to report", path.display()),
            fix: "run a lesson (`make run NB=10_vector_add`), which adds its rows; or remove the file, and the report is \
                  on the recorded run"
                .to_string(),
        });
    }
    Ok(rows)
}

fn of_rows(rows: &[Measurement], source: &str) -> Result<Report> {
    let made = summary::summary(rows).map_err(|error| super::polars_error("the report", &error))?;
    Ok(Report { source: source.to_string(), ..made })
}

impl Report {
    /// Writes `report.txt`, `report.html` and, where anything was measured on both sides, `report.svg` to a folder; gives
    /// the files.
    ///
    /// # Errors
    /// [`Error::File`] when they cannot be written.
    pub fn save(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let write = |name: &str, text: &str| -> Result<PathBuf> {
            let path = folder.join(name);
            let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text));
            written.map(|()| path.clone()).map_err(|error| Error::File {
                path,
                during: "write the report to".to_string(),
                text: error.to_string(),
                fix: "choose a folder where you may write, on a disk with room".to_string(),
            })
        };
        let mut files = vec![write("report.txt", &self.text())?, write("report.html", &self.page())?];
        if let Some(figure) = self.figure() {
            files.push(write("report.svg", &figure.svg())?);
        }
        Ok(files)
    }

    /// The GPU's speed-up of each experiment, at the largest size; `None` when nothing was measured on both sides.
    pub fn figure(&self) -> Option<Figure> {
        (!self.pairs.is_empty()).then(|| show::figure(self))
    }
}

#[cfg(test)]
mod tests;
