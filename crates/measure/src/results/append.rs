//! Appending: whole rows or nothing, however many notebooks write at once.

use super::read::{check_header, damaged, parse};
use super::{HEADER, file};
use crate::measurement::Measurement;
use crate::Error;
use crate::Result;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

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
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        let summary = row.summary;
        let values = [summary.median, summary.p10, summary.p90];
        if !values.iter().all(|value| value.is_finite()) {
            return Err(Error::Invalid {
                what: format!("`{}` at size {} measured {values:?}, which is no result", row.experiment, row.size),
                fix: "nothing was stored; see why the measurement gives no finite number, and run it again".to_string(),
            });
        }
        // A line is a row: a line break within a field would make the file hard to check and to mend.
        let word = |text: &str| text.replace(['\n', '\r'], " ");
        let record = [
            word(&row.time),
            word(&row.commit),
            word(&row.lesson),
            word(&row.experiment),
            row.backend.name().to_string(),
            word(&row.machine),
            word(&row.dtype),
            row.size.to_string(),
            word(&row.metric),
            summary.median.to_string(),
            word(&row.unit),
            summary.samples.to_string(),
            summary.p10.to_string(),
            summary.p90.to_string(),
        ];
        writer.write_record(&record).expect("writing to memory does not fail");
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
