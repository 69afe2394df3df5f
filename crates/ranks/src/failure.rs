//! What ended a world: which rank, in which call, and what to do.

use crate::log::Log;
use gpulab_measure::Error;
use std::fmt;

/// Why a world ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureCause {
    /// A rank makes another call than the rest: another collective, length, element type, root or order.
    Mismatch,
    /// Each rank that is left waits for another one.
    Deadlock,
    /// A rank's code panicked.
    Panicked,
    /// A rank vanished without a word, as a killed process does.
    Died,
    /// A rank's code returned an error.
    Failed,
    /// A rank did not come within the time limit.
    Late,
}

/// A world that ended early. It names the ranks whose fault it is, and its text ends with what to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// What happened.
    pub cause: FailureCause,
    /// The ranks that it happened to, in order; of a deadlock, those that wait.
    pub ranks: Vec<usize>,
    /// What happened, with rank, call, file and line.
    pub what: String,
    /// The next step.
    pub fix: String,
    /// Milliseconds from the failure to the end of the last rank.
    pub ended_ms: f64,
    /// What was sent until then.
    pub log: Box<Log>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nnext: {}", self.what, self.fix)
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::invalid(failure.what, failure.fix)
    }
}
