//! What a kernel takes and what a launch gives, whatever the machine: element types, the launch shape,
//! the kernel's parameters, and the check that holds the two together before anything runs.

mod arguments;
mod config;
mod rust_signature;
mod signature;

pub(crate) use arguments::Bytes;
pub use arguments::{ArgType, KernelParam, check_arguments};
/// Says that every byte of a value is initialised: [`KernelParam`] asks for it.
pub use bytemuck::NoUninit;
pub use config::{Element, ElementType, LaunchAttributes, LaunchConfig, LaunchLimits, Source, as_bytes};
pub(crate) use config::{as_bytes_mut, bytes_of};
pub use rust_signature::rust_signatures;
pub use signature::{Parameter, ParameterLayout, ParameterType, Signature, entry_points, signatures};
pub(crate) use signature::{Word, without_comments, words};
