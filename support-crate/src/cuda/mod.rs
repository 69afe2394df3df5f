//! NVIDIA GPUs, through cudarc: the driver is loaded at run time, when it is there.
//!
//! What a reader holds is in [`gpu`](crate::gpu); each of its types gives cudarc's own and takes it back (`cuda_context`,
//! `cuda_stream`, `into_cuda`, `cuda_function` and their partners), and an error of cudarc's becomes one of this crate's by `?`.

mod compile;
mod cublas;
mod cudnn;
mod error;
mod graph;
mod headers;
mod kernel;
mod memory;
mod open;
mod pinned;
mod present;
mod tensor_map;

pub(crate) use compile::COMPILER_OPTIONS;
pub use compile::{compile_to_ptx, nvrtc_version, supported_architectures};
pub(crate) use cublas::CudaCublas;
pub(crate) use cudnn::{CudaCudnn, CudnnPass, Described};
pub use error::driver_error;
pub(crate) use graph::{CudaGraph, CudaMemory, Recording};
pub(crate) use kernel::{CudaKernel, CudaLibrary, too_many_blocks};
pub use open::CudaGpu;
pub(crate) use open::another_context;
pub(crate) use pinned::{CudaPinned, is_pinned};
pub(crate) use tensor_map::{BOX_ROW, CudaTensorMap};
