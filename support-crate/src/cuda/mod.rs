//! NVIDIA GPUs, through cudarc: the driver is loaded at run time, when it is there.
//!
//! cudarc's own types stay inside this room and `gpu`; everything that a reader holds is in [`gpu`](crate::gpu).

mod compile;
mod cublas;
mod cudnn;
mod error;
mod graph;
mod headers;
mod kernel;
mod launch_ex;
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
pub(crate) use kernel::{CudaArg, CudaKernel, CudaLibrary};
pub use open::CudaGpu;
pub(crate) use pinned::CudaPinned;
pub(crate) use tensor_map::{BOX_ROW, CudaTensorMap};
