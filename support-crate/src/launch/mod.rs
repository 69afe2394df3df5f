//! What a kernel takes and what a launch gives, whatever the machine: element types, the launch shape,
//! the kernel's parameters, and the check that holds the two together before anything runs.

mod check;
mod config;
mod element;
mod ptx;
mod signature;
mod source;
mod words;

pub use check::{ArgType, check_arguments};
pub use config::{LaunchConfig, LaunchExtras, Limits};
pub use element::as_bytes;
pub use element::{Element, ElementType};
pub(crate) use element::{as_bytes_mut, bytes_of};
pub use ptx::entry_points;
pub use signature::{Parameter, ParameterType, Signature, signatures};
pub use source::Source;
pub(crate) use words::{Word, without_comments, words};
