//! NVIDIA GPUs, through cudarc: the driver is loaded at run time, when it is there.
//!
//! What a reader holds is in [`gpu`](crate::gpu); each of its types gives cudarc's own and takes it back (`cuda_context`,
//! `cuda_stream`, `into_cuda`, `cuda_function` and their partners), and an error of cudarc's becomes one of this crate's by `?`.

mod compile;
mod cublas;
mod cublas_lt;
mod graph;
mod kernel;
mod memory;
mod open;

pub(crate) use compile::COMPILER_OPTIONS;
pub use compile::{compile_to_ptx, nvrtc_version, supported_architectures};
pub(crate) use cublas::CudaCublas;
pub(crate) use cublas_lt::{CudaCublasLt, CudaProduct};
pub use cublas_lt::{LtAlgorithm, LtEpilogue, LtShape};
pub(crate) use graph::CudaGraph;
pub(crate) use kernel::{CudaKernel, CudaLibrary, too_many_blocks};
pub(crate) use memory::{BOX_ROW, CudaMemory, CudaPinned, is_pinned};
pub use open::{CudaGpu, driver_error};
pub(crate) use open::{Library, another_context};
