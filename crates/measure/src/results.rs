//! The file of results: rows go in whole or not at all, and come back as they went in.
//!
//! Yours are appended to `results/metrics.csv`; the recorded reference run lies in `results/h200/metrics.csv`.

use crate::measurement::{Backend, Measurement, Summary};
use crate::{Error, Result, repository};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The first line of every `metrics.csv`.
pub const HEADER: &str = "time,commit,lesson,experiment,backend,machine,dtype,size,metric,value,unit,samples,p10,p90";

/// The folder of the reference run within `results/`.
pub const REFERENCE: &str = "h200";

/// The folder within `results/` whose run is laid over a lesson's plots and stands in for a GPU that is not there: the one that
/// `GPULAB_REFERENCE` names, where that machine has a run of the lesson, else [`REFERENCE`]'s.
///
/// ```
/// use gpulab_measure::results;
/// assert_eq!(results::reference("11_reduction"), "h200");
/// ```
pub fn reference(lesson: &str) -> String {
    chosen_reference(std::env::var("GPULAB_REFERENCE").ok(), lesson)
}

fn chosen_reference(named: Option<String>, lesson: &str) -> String {
    // A name, no path. Rows that are damaged are said to be so, by whoever reads them.
    let is_there = |name: &String| {
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !matches!(recorded_lesson(name, lesson), Err(Error::File { .. } | Error::Invalid { .. }))
    };
    named.filter(is_there).unwrap_or_else(|| REFERENCE.to_string())
}

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
    recorded_in(&reference(lesson), lesson, experiment)
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
        return Err(Error::invalid(
            format!("the recorded run `{folder}` has no experiment `{experiment}` of the lesson `{lesson}`"),
            format!("use one of: {}", names.join(", ")),
        ));
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
    // A notebook stores the rows of one run with one time.
    let run = newest(run.into_iter().filter(|row| row.lesson == lesson).collect(), curve);
    let rows = with(run, recorded_by_programs(folder, lesson)?);
    if rows.is_empty() {
        lessons.sort();
        lessons.dedup();
        return Err(Error::invalid(
            format!("the recorded run `{folder}` has no rows of the lesson `{lesson}`"),
            match lessons.len() {
                0 => "run the lesson on a machine with a GPU, or get the repository's files again".to_string(),
                _ => format!("use one of: {}", lessons.join(", ")),
            },
        ));
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
    // A program gives each row the time at which it was taken.
    Ok(newest(all.into_iter().filter(|row| row.lesson == lesson).collect(), |row| (curve(row), row.size)))
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

/// What rows of one curve have in common.
fn curve(row: &Measurement) -> impl Ord + use<> {
    (row.experiment.clone(), row.backend, row.machine.clone(), row.dtype.clone(), row.metric.clone())
}

/// Of those rows for which `of` gives the same, the ones with the newest time.
fn newest<K: Ord>(rows: Vec<Measurement>, of: impl Fn(&Measurement) -> K) -> Vec<Measurement> {
    let mut newest: BTreeMap<K, String> = BTreeMap::new();
    for row in &rows {
        let time = newest.entry(of(row)).or_default();
        // RFC 3339 in UTC with whole seconds sorts as text.
        if row.time > *time {
            time.clone_from(&row.time);
        }
    }
    let rows = rows.into_iter().filter(|row| newest.get(&of(row)) == Some(&row.time));
    rows.map(|row| Measurement { recorded: true, ..row }).collect()
}

/// Another writer holds the lock for milliseconds; one that holds it longer has been stopped.
const PATIENCE: Duration = Duration::from_secs(30);

/// Appends rows to [`file()`]; a new file gets the header first. Nothing is written for no rows.
///
/// All rows go in with one write, under the operating system's file lock, so two notebooks at once lose none.
///
/// # Errors
/// [`Error::Damaged`] when the file's header or last line is not what this crate writes, [`Error::File`] when it
/// cannot be written (read-only, full disk), [`Error::Invalid`] when a row's value is no finite number. In all three
/// cases the file stays as it was.
pub fn append(rows: &[Measurement]) -> Result<()> {
    append_to(&file(), rows)
}

/// As [`append`], to any file.
///
/// # Errors
/// As [`append`].
pub fn append_to(path: &Path, rows: &[Measurement]) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let text = lines(rows)?;
    let failed = |error: std::io::Error| fail(path, &error);
    if let Some(folder) = path.parent() {
        if folder.is_file() {
            return Err(fail(folder, &std::io::Error::other("this is a file, where a folder belongs")));
        }
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
    lock(&file, path)?;
    let before = file.metadata().map_err(failed)?.len();
    let text = if before == 0 {
        format!("{HEADER}\n{text}")
    } else {
        check(&mut file, path, before)?;
        text
    };
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
    // The lock goes with the file, after the repair.
    written.map_err(|error| match file.set_len(before) {
        Ok(()) => fail(path, &error),
        Err(worse) => fail(path, &std::io::Error::other(format!("{error}; and half a row may be left: {worse}"))),
    })
}

fn lock(file: &File, path: &Path) -> Result<()> {
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(Error::File {
                    path: path.to_path_buf(),
                    during: "lock".to_string(),
                    text: format!("another program has held it for {} s", PATIENCE.as_secs()),
                    fix: "shut down the other notebook that is writing, then run the cell again".to_string(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(fail(path, &error)),
        }
    }
}

/// Refuses to append to a file whose header or last line is not sound: the damage would move into the middle.
fn check(file: &mut File, path: &Path, length: u64) -> Result<()> {
    const TAIL: u64 = 16 << 10;
    let failed = |error: std::io::Error| fail(path, &error);
    let mut head = Vec::new();
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    (&*file).take(4 << 10).read_to_end(&mut head).map_err(failed)?;
    check_header(path, head.split(|byte| *byte == b'\n').next().unwrap_or_default())?;

    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).map_err(failed)?;
    (&*file).take(TAIL).read_to_end(&mut tail).map_err(failed)?;
    let last = match tail.strip_suffix(b"\n") {
        None => Err("the last line is cut off".to_string()),
        Some(tail) => match tail.rsplit(|byte| *byte == b'\n').next().unwrap_or_default() {
            line if line.len() == tail.len() && length > TAIL => Err("the last line is far too long".to_string()),
            // A file of the header alone is sound.
            line if line.len() as u64 == length - 1 => Ok(()),
            line => parse(line).map(|_| ()),
        },
    };
    last.map_err(|text| damaged(path, line_count(file), &text))
}

/// How many lines a file has, an unfinished one included; only for messages.
fn line_count(file: &mut File) -> u64 {
    let mut all = Vec::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut all));
    let ends = all.iter().filter(|byte| **byte == b'\n').count() as u64;
    if read.is_ok() && all.last() != Some(&b'\n') { ends + 1 } else { ends }
}

/// The rows as lines, each with its end.
fn lines(rows: &[Measurement]) -> Result<String> {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    for row in rows {
        let summary = row.summary;
        let values = [summary.median, summary.p10, summary.p90];
        if !values.iter().all(|value| value.is_finite()) {
            return Err(Error::invalid(
                format!("`{}` at size {} measured {values:?}, which is no result", row.experiment, row.size),
                "nothing was stored; see why the measurement gives no finite number, and run it again",
            ));
        }
        // A line is a row: a line break within a field would make the file hard to check and to repair.
        let word = |text: &str| text.replace(['\n', '\r'], " ");
        let texts =
            [&row.time, &row.commit, &row.lesson, &row.experiment, &row.machine, &row.dtype, &row.metric, &row.unit];
        let [time, commit, lesson, experiment, machine, dtype, metric, unit] = texts.map(|text| word(text));
        let Summary { median, p10, p90, samples } = summary;
        let columns: Columns<'_> = (
            &time,
            &commit,
            &lesson,
            &experiment,
            row.backend.name(),
            &machine,
            &dtype,
            row.size,
            &metric,
            median,
            &unit,
            samples,
            p10,
            p90,
        );
        writer.serialize(columns).expect("writing to memory does not fail");
    }
    let bytes = writer.into_inner().expect("writing to memory does not fail");
    Ok(String::from_utf8(bytes).expect("made of strings"))
}

fn fail(path: &Path, error: &std::io::Error) -> Error {
    Error::File {
        path: path.to_path_buf(),
        during: "append rows to".to_string(),
        text: error.to_string(),
        fix: "nothing was stored; make room or make the folder writable, or set GPULAB_RESULTS to another folder \
              before the kernel starts, then run the cell again"
            .to_string(),
    }
}

/// All rows of a file of results, in its order. `recorded` is false: a single file does not say.
///
/// # Errors
/// [`Error::File`] when it cannot be read, [`Error::Damaged`] with the line when it is not what this crate writes.
pub fn read(path: &Path) -> Result<Vec<Measurement>> {
    let fix = "run the lesson first, which writes it; a recorded run comes with the repository (`git status` shows a \
               file that is missing)";
    let fail = Error::io(path, "read", fix);
    let mut file = std::fs::File::open(path).map_err(&fail)?;
    // Waits for a row that is being written. Some network disks have no locks: a half row then shows as damage.
    let _ = file.lock_shared();
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut file, &mut text).map_err(fail)?;
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut lines = text.split(|byte| *byte == b'\n');
    check_header(path, lines.next().unwrap_or_default())?;
    let mut rows = Vec::new();
    let lines: Vec<&[u8]> = lines.collect();
    for (n, line) in lines.iter().enumerate() {
        let number = n as u64 + 2;
        if n + 1 == lines.len() {
            // After the last line's end nothing follows.
            return if line.is_empty() { Ok(rows) } else { Err(damaged(path, number, "the last line is cut off")) };
        }
        rows.push(parse(line).map_err(|text| damaged(path, number, &text))?);
    }
    Err(damaged(path, 1, "the header is cut off"))
}

fn damaged(path: &Path, line: u64, text: &str) -> Error {
    Error::Damaged { path: path.to_path_buf(), line, text: text.to_string() }
}

fn check_header(path: &Path, line: &[u8]) -> Result<()> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line == HEADER.as_bytes() {
        return Ok(());
    }
    let start: String = String::from_utf8_lossy(line).chars().take(60).collect();
    Err(damaged(path, 1, &format!("the header should be `{HEADER}`, and begins with `{start}`")))
}

/// The columns of a line, in their order: csv writes and reads them through serde.
type Columns<'a> = (
    &'a str, // time
    &'a str, // commit
    &'a str, // lesson
    &'a str, // experiment
    &'a str, // backend
    &'a str, // machine
    &'a str, // dtype
    u64,     // size
    &'a str, // metric
    f64,     // value
    &'a str, // unit
    usize,   // samples
    f64,     // p10
    f64,     // p90
);

/// One line, without its end.
fn parse(line: &[u8]) -> std::result::Result<Measurement, String> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(line);
    let record = match reader.records().next() {
        Some(Ok(record)) => record,
        Some(Err(_)) => return Err("the line is not UTF-8 text".to_string()),
        None => return Err("the line is empty".to_string()),
    };
    let columns = HEADER.split(',').count();
    if record.len() != columns {
        return Err(format!("{} fields, where {columns} belong", record.len()));
    }
    let wrong = |column: usize| {
        let name = HEADER.split(',').nth(column).unwrap_or_default();
        format!("`{}` is no {name}", &record[column])
    };
    let row: Columns<'_> = record.deserialize(None).map_err(|error| match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => err.field().map_or(err.to_string(), |field| wrong(field as usize)),
        _ => error.to_string(),
    })?;
    let (time, commit, lesson, experiment, backend, machine, dtype, size, metric, median, unit, samples, p10, p90) =
        row;
    if let Some((column, _)) = [(9, median), (12, p10), (13, p90)].iter().find(|(_, value)| !value.is_finite()) {
        return Err(wrong(*column));
    }
    Ok(Measurement {
        time: time.into(),
        commit: commit.into(),
        lesson: lesson.into(),
        experiment: experiment.into(),
        backend: Backend::from_name(backend).ok_or_else(|| wrong(4))?,
        machine: machine.into(),
        dtype: dtype.into(),
        size,
        metric: metric.into(),
        unit: unit.into(),
        summary: Summary { median, samples, p10, p90 },
        recorded: false,
    })
}

/// Now: RFC 3339, UTC, whole seconds, such as `2026-11-20T23:05:00Z`.
pub fn now_utc() -> String {
    // A clock set before 1970 gives 1970: a wrong time stamp is no reason to lose a measurement.
    utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// The repository's commit, short, with a `+` when tracked files differ from it: `GPULAB_COMMIT` where that is set,
/// else what git says, else `unknown`.
pub fn commit() -> String {
    if let Ok(commit) = std::env::var("GPULAB_COMMIT")
        && !commit.trim().is_empty()
    {
        return commit.trim().to_string();
    }
    let repository = repository();
    // Named outright: unpacked into a folder of some other repository, git would answer with that one's commit.
    let (git_dir, tree) = (repository.join(".git").display().to_string(), repository.display().to_string());
    let git = |arguments: &[&str]| {
        let all = [&["--git-dir", git_dir.as_str(), "--work-tree", tree.as_str()], arguments].concat();
        crate::command::output_of("git", &all, Duration::from_secs(3)).ok()
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".to_string() };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.trim().is_empty());
    format!("{}{}", commit.trim(), if changed { "+" } else { "" })
}

/// Seconds since 1970 as a date and a time in the Gregorian calendar.
fn utc(seconds: u64) -> String {
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let leap = |year: u64| (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", month + 1, days + 1)
}

#[cfg(test)]
mod tests;
