//! Errors that topics share.

use gpulab::error::{Error, Result, same_length};

/// An error that names the first of a topic's arrays (name, length, expected length) that is of another length.
pub(super) fn lengths(topic: &str, arrays: &[(&str, usize, usize)]) -> Result<()> {
    arrays.iter().try_for_each(|&(what, given, expected)| same_length(format!("{topic}'s `{what}`"), expected, given))
}

/// The error of a kernel whose result is wrong.
pub(crate) fn wrong(path: &str, what: String) -> Error {
    Error::invalid(
        format!("`{path}`: {what}"),
        "look for a missing bounds guard or barrier in that kernel; do not trust its times",
    )
}

/// The error of a matrix whose rows are no whole groups, or too many.
pub(super) fn wrong_size(rows: usize, columns: usize, group: usize) -> Error {
    Error::invalid(
        format!("a matrix of {rows} × {columns} in groups of {group}: rows are whole groups, counted in `int`"),
        "fill up the last group with zeros, or split the matrix and launch once for each part",
    )
}
