//! The GPU as a reader holds it. The four steps stay visible: allocate, copy to the device, launch, copy back.
//!
//! [`Gpu`] is a closed enum: each `match` on it shows one place where a new kind of machine must be taught.

mod buffer;
mod cublas;
mod cublas_lt;
mod kernel;
mod open;
mod stream;
mod tensor_map;

pub use crate::cuda::{LtAlgorithm, LtEpilogue, LtShape};
pub use crate::measurement::KernelResources;
pub use buffer::{Buffer, Pinned};
pub use cublas::Cublas;
pub use cublas_lt::{CublasLt, LtExtra, LtProduct, Within, WithinMut};
pub use kernel::{Args, Kernel, KernelArg, Module};
pub use open::Gpu;
pub use stream::{Event, Graph, Stream, TimedWork};
pub use tensor_map::TensorMap;
