//! Apple GPUs, through objc2-metal. Thin on purpose: buffers, Metal kernels compiled at run time, launch, timing.
//!
//! Off macOS there is no such GPU, and its types have no values: nothing can be called, and nothing needs a stub.

#[cfg(target_os = "macos")]
mod apple;
#[cfg(target_os = "macos")]
pub use apple::MetalGpu;
#[cfg(target_os = "macos")]
pub(crate) use apple::{MetalArg, MetalKernel, MetalLibrary, MetalMemory};

#[cfg(not(target_os = "macos"))]
mod absent;
#[cfg(not(target_os = "macos"))]
pub use absent::MetalGpu;
#[cfg(not(target_os = "macos"))]
pub(crate) use absent::{MetalArg, MetalKernel, MetalLibrary, MetalMemory};
