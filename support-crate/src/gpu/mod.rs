//! The GPU as a reader holds it. The four steps stay visible: allocate, copy to the device, launch, copy back.
//!
//! [`Gpu`] is a closed enum: each `match` on it shows one place where a new kind of machine must be taught.

mod args;
mod buffer;
mod cublas;
mod cudnn;
mod graph;
mod kernel;
mod memory;
mod module;
mod open;
mod peak;
mod pinned;
mod stream;
mod tensor_map;
mod time;

pub use crate::measurement::KernelResources;
pub use args::{Arg, Args};
pub use buffer::Buffer;
pub use cublas::Cublas;
pub use cudnn::{ConvElement, ConvPass, Convolution, Cudnn, CudnnAlgorithm, CudnnAlgorithms};
pub use graph::Graph;
pub use kernel::Kernel;
pub use module::Module;
pub use open::Gpu;
pub use pinned::Pinned;
pub use stream::{Event, Stream};
pub use tensor_map::TensorMap;
pub use time::Contestant;
