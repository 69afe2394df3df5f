//! Calls of functions that call themselves; all others are put in where they are called.

use std::ops::Range;

/// A call: the lanes run the function's code until all of them are at its end.
#[derive(Clone, Debug)]
pub struct Call {
    /// Number of the function among those that call themselves.
    pub function: usize,
    /// Its first instruction, and the place behind its last.
    pub code: Range<u32>,
    /// Arguments: local addresses from and to, bytes.
    pub arguments: Vec<(u64, u64, u64)>,
    /// What the caller keeps: nothing, if the caller does not call itself.
    pub kept: Kept,
}

/// What is a function's own: rows of the three files, and local memory.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// Rows of the 32-bit file.
    pub narrow: Range<usize>,
    /// Rows of the 64-bit file.
    pub wide: Range<usize>,
    /// Rows of predicates.
    pub preds: Range<usize>,
    /// Bytes of a thread's local memory: parameters, and those of its calls.
    pub local: Vec<Range<u64>>,
}

/// Back in the caller: what it kept is there again, and then the results: local addresses from and to, bytes.
#[derive(Clone, Debug)]
pub struct Return {
    /// Results.
    pub results: Vec<(u64, u64, u64)>,
}
