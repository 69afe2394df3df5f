//! What can go wrong before or around a launch. Mistakes of the kernel itself are [`crate::Finding`]s.

use std::fmt;

/// The result of a call into the simulator.
pub(crate) type Result<T> = std::result::Result<T, SimulatorError>;

/// Why the simulator could not do as asked; the text ends with the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SimulatorError {
    /// The text is not PTX as this crate knows it.
    Syntax {
        /// Line of the PTX text, from 1.
        line: u32,
        /// What was met.
        message: String,
    },
    /// An instruction, modifier or directive that the simulator does not run.
    Unsupported {
        /// Line of the PTX text, from 1.
        line: u32,
        /// Where in the CUDA source, when the PTX says it (`.loc`).
        source: Option<SourceLine>,
        /// The instruction and what of it is unknown.
        message: String,
    },
    /// A wrong call: kernel name, arguments, shape of the launch, address.
    Call(String),
}

/// A line of the source that the PTX was compiled from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceLine {
    /// File as the PTX names it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl fmt::Display for SimulatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { line, message } => {
                write!(f, "PTX line {line}: {message}\nnext: load the PTX as NVRTC printed it")
            }
            Self::Unsupported { line, source, message } => {
                write!(f, "PTX line {line}")?;
                if let Some(source) = source {
                    write!(f, " ({source})")?;
                }
                write!(f, ": {message}\nnext: write this line without it, or run the kernel on a GPU")
            }
            Self::Call(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for SimulatorError {}
