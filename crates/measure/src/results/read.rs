//! Reading a file of results, and what counts as damage.

use super::HEADER;
use crate::measurement::{Backend, Measurement, Summary};
use crate::Error;
use crate::Result;
use std::path::Path;

/// All rows of a file of results, in its order. `recorded` is false: a single file does not say.
///
/// # Errors
/// [`Error::File`] when it cannot be read, [`Error::Damaged`] with the line when it is not what this crate writes.
pub fn read(path: &Path) -> Result<Vec<Measurement>> {
    let fail = |error: std::io::Error| Error::File {
        path: path.to_path_buf(),
        during: "read".to_string(),
        text: error.to_string(),
        fix: "run the lesson first, which writes it; a recorded run comes with the repository (`git status` shows a \
              file that is missing)"
            .to_string(),
    };
    let mut file = std::fs::File::open(path).map_err(fail)?;
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

pub(super) fn damaged(path: &Path, line: u64, text: &str) -> Error {
    Error::Damaged { path: path.to_path_buf(), line, text: text.to_string() }
}

pub(super) fn check_header(path: &Path, line: &[u8]) -> Result<()> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line == HEADER.as_bytes() {
        return Ok(());
    }
    let start: String = String::from_utf8_lossy(line).chars().take(60).collect();
    Err(damaged(path, 1, &format!("the header should be `{HEADER}`, and begins with `{start}`")))
}

/// One line, without its end.
pub(super) fn parse(line: &[u8]) -> std::result::Result<Measurement, String> {
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
    let number = |column: usize| {
        record[column].parse::<f64>().ok().filter(|value| value.is_finite()).ok_or_else(|| wrong(column))
    };
    let text = |column: usize| record[column].to_string();
    Ok(Measurement {
        time: text(0),
        commit: text(1),
        lesson: text(2),
        experiment: text(3),
        backend: Backend::from_name(&record[4]).ok_or_else(|| wrong(4))?,
        machine: text(5),
        dtype: text(6),
        size: record[7].parse().map_err(|_| wrong(7))?,
        metric: text(8),
        unit: text(10),
        summary: Summary {
            median: number(9)?,
            samples: record[11].parse().map_err(|_| wrong(11))?,
            p10: number(12)?,
            p90: number(13)?,
        },
        recorded: false,
    })
}
