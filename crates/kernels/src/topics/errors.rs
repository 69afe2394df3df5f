//! Errors that topics share.

use gpulab::error::{Error, Result};

/// An error that names the first of a topic's arrays (name, length, expected length) that is of another length.
pub(super) fn lengths(topic: &str, arrays: &[(&str, usize, usize)]) -> Result<()> {
    match arrays.iter().find(|(_, given, expected)| given != expected) {
        None => Ok(()),
        Some(&(what, given, expected)) => {
            Err(Error::LengthMismatch { what: format!("{topic}'s `{what}`"), expected, given })
        }
    }
}

/// The error of a kernel whose result is wrong.
pub(crate) fn wrong(path: &str, what: String) -> Error {
    Error::Invalid {
        what: format!("`{path}`: {what}"),
        fix: "look for a missing bounds guard or barrier in that kernel; do not trust its times".to_string(),
    }
}

/// The error of a matrix whose rows are no whole groups, or too many.
pub(super) fn wrong_size(rows: usize, columns: usize, group: usize) -> Error {
    Error::Invalid {
        what: format!("a matrix of {rows} × {columns} in groups of {group}: rows are whole groups, counted in `int`"),
        fix: "fill up the last group with zeros, or split the matrix and launch once for each part".to_string(),
    }
}
