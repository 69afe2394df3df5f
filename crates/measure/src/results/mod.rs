//! The file of results: rows go in whole or not at all, and come back as they went in.
//!
//! Yours are appended to `results/metrics.csv`; the recorded reference run lies in `results/h200/metrics.csv`.

mod append;
mod read;
mod stamp;

pub use append::{append, append_to};
pub use read::read;
pub use stamp::{commit, now_utc};

use crate::measurement::Measurement;
use crate::Error;
use crate::Result;
use crate::repository;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The first line of every `metrics.csv`.
pub const HEADER: &str = "time,commit,lesson,experiment,backend,machine,dtype,size,metric,value,unit,samples,p10,p90";

/// The folder of the reference run within `results/`.
pub const REFERENCE: &str = "h200";

/// The folder that rows are appended in: `GPULAB_RESULTS`, or `results/` of this repository.
pub fn dir() -> PathBuf {
    match std::env::var_os("GPULAB_RESULTS") {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => repository().join("results"),
    }
}

/// The file that rows are appended to: `metrics.csv` in [`dir()`].
pub fn file() -> PathBuf {
    dir().join("metrics.csv")
}

/// The recorded rows of one experiment of one lesson, from the reference run: those of its newest run only,
/// each with [`recorded`](Measurement::recorded) set.
///
/// They lie in this repository, wherever `GPULAB_RESULTS` points.
///
/// # Errors
/// [`Error::File`] when there is no recorded run, [`Error::Damaged`] when its file is not sound, and
/// [`Error::Invalid`] when it holds no such lesson or experiment: the message lists those that it has.
pub fn recorded(lesson: &str, experiment: &str) -> Result<Vec<Measurement>> {
    recorded_in(REFERENCE, lesson, experiment)
}

/// As [`recorded`], from the run in `results/<folder>/` instead of the reference run.
///
/// # Errors
/// As [`recorded`].
pub fn recorded_in(folder: &str, lesson: &str, experiment: &str) -> Result<Vec<Measurement>> {
    let rows = recorded_lesson(folder, lesson)?;
    let mut names: Vec<String> = rows.iter().map(|row| format!("`{}`", row.experiment)).collect();
    names.sort();
    names.dedup();
    let rows: Vec<Measurement> = rows.into_iter().filter(|row| row.experiment == experiment).collect();
    if rows.is_empty() {
        return Err(Error::Invalid {
            what: format!("the recorded run `{folder}` has no experiment `{experiment}` of the lesson `{lesson}`"),
            fix: format!("use one of: {}", names.join(", ")),
        });
    }
    Ok(rows)
}

/// All recorded rows of a lesson from the run in `results/<folder>/` of this repository: of each experiment (on one
/// backend and machine, of one element type and metric) those with the newest time.
///
/// # Errors
/// As [`recorded`].
pub fn recorded_lesson(folder: &str, lesson: &str) -> Result<Vec<Measurement>> {
    let run = read(&recorded_file(folder))?;
    let mut lessons: Vec<String> = run.iter().map(|row| format!("`{}`", row.lesson)).collect();
    let run = newest(run.into_iter().filter(|row| row.lesson == lesson).collect());
    let rows = with(run, recorded_by_programs(folder, lesson)?);
    if rows.is_empty() {
        lessons.sort();
        lessons.dedup();
        return Err(Error::Invalid {
            what: format!("the recorded run `{folder}` has no rows of the lesson `{lesson}`"),
            fix: match lessons.len() {
                0 => "run the lesson on a machine with a GPU, or get the repository's files again".to_string(),
                _ => format!("use one of: {}", lessons.join(", ")),
            },
        });
    }
    Ok(rows)
}

/// The rows of a lesson that programs of their own recorded beside the run in `results/<folder>/`, in `recorders.csv`: a run of
/// the notebooks leaves that file alone.
///
/// # Errors
/// [`Error::Damaged`] when the file is not sound, [`Error::File`] when it cannot be read; none where it is not there.
pub fn recorded_by_programs(folder: &str, lesson: &str) -> Result<Vec<Measurement>> {
    let all = beside(&recorded_file(folder))?;
    Ok(newest(all.into_iter().filter(|row| row.lesson == lesson).collect()))
}

/// All rows of a file of measurements, and those that programs recorded beside it.
///
/// # Errors
/// As [`read`].
pub fn read_all(file: &Path) -> Result<Vec<Measurement>> {
    Ok(with(read(file)?, beside(file)?))
}

fn beside(file: &Path) -> Result<Vec<Measurement>> {
    let file = file.with_file_name("recorders.csv");
    if file.exists() { read(&file) } else { Ok(Vec::new()) }
}

/// What the notebooks' run measured, too, is its own.
fn with(mut run: Vec<Measurement>, programs: Vec<Measurement>) -> Vec<Measurement> {
    let same = |a: &Measurement, b: &Measurement| {
        (&a.lesson, &a.experiment, a.backend, &a.dtype, a.size, &a.metric)
            == (&b.lesson, &b.experiment, b.backend, &b.dtype, b.size, &b.metric)
    };
    let more: Vec<Measurement> =
        programs.into_iter().filter(|program| !run.iter().any(|row| same(row, program))).collect();
    run.extend(more);
    run
}

/// Where the recorded run of a machine lies: always in this repository.
pub fn recorded_file(folder: &str) -> PathBuf {
    repository().join("results").join(folder).join("metrics.csv")
}

/// Of each curve, the rows with the newest time; rows of one run are stored with one time.
fn newest(rows: Vec<Measurement>) -> Vec<Measurement> {
    let mut newest: BTreeMap<_, String> = BTreeMap::new();
    let curve = |row: &Measurement| {
        (row.experiment.clone(), row.backend, row.machine.clone(), row.dtype.clone(), row.metric.clone())
    };
    for row in &rows {
        let time = newest.entry(curve(row)).or_default();
        // RFC 3339 in UTC with whole seconds sorts as text.
        if row.time > *time {
            time.clone_from(&row.time);
        }
    }
    let rows = rows.into_iter().filter(|row| newest.get(&curve(row)) == Some(&row.time));
    rows.map(|row| Measurement { recorded: true, ..row }).collect()
}

#[cfg(test)]
mod tests;
