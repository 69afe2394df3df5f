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
pub use absent::MetalGpu;
#[cfg(not(target_os = "macos"))]
pub(crate) use absent::{MetalArg, MetalKernel, MetalLibrary, MetalMemory};

/// The same names as on a Mac, as types without values.
#[cfg(not(target_os = "macos"))]
mod absent {
    use crate::error::{Error, Result};
    use crate::launch::{LaunchConfig, LaunchLimits, Source};
    use crate::measurement::MemoryStats;

    /// An Apple GPU; on this operating system there can be none.
    #[derive(Debug, Clone)]
    pub enum MetalGpu {}

    #[derive(Debug, Clone)]
    pub(crate) enum MetalLibrary {}
    #[derive(Debug, Clone)]
    pub(crate) enum MetalKernel {}
    pub(crate) enum MetalMemory {}
    #[allow(dead_code)] // built by the launch, read by no one here
    pub(crate) enum MetalArg<'a> {
        Memory(&'a MetalMemory),
        Bytes(&'a [u8]),
    }

    impl MetalGpu {
        pub(crate) fn open() -> Result<MetalGpu> {
            Err(Error::unsupported(
                "an Apple GPU exists only on a Mac",
                "use `Gpu::open()`, which finds this machine's GPU",
            ))
        }
        pub(crate) fn name(&self) -> &str {
            match *self {}
        }
        pub(crate) fn limits(&self) -> LaunchLimits {
            match *self {}
        }
        pub(crate) fn synchronize(&self) -> Result<()> {
            match *self {}
        }
        pub(crate) fn memory(&self) -> MemoryStats {
            match *self {}
        }
        pub(crate) fn alloc(&self, _bytes: usize) -> Result<MetalMemory> {
            match *self {}
        }
        pub(crate) fn compile(&self, _source: &Source) -> Result<MetalLibrary> {
            match *self {}
        }
        pub(crate) fn launch(
            &self,
            _kernel: &MetalKernel,
            _config: LaunchConfig,
            _args: &[MetalArg<'_>],
        ) -> Result<()> {
            match *self {}
        }
        pub(crate) fn time(&self, _work: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
            match *self {}
        }
    }

    impl MetalLibrary {
        pub(crate) fn names(&self) -> Vec<String> {
            match *self {}
        }
        pub(crate) fn kernel(&self, _name: &str) -> Result<MetalKernel> {
            match *self {}
        }
    }

    impl MetalKernel {
        pub(crate) fn max_threads_per_block(&self) -> u32 {
            match *self {}
        }
    }

    impl MetalMemory {
        pub(crate) fn write(&mut self, _host: &[u8]) -> Result<()> {
            match *self {}
        }
        pub(crate) fn read(&self, _host: &mut [u8]) -> Result<()> {
            match *self {}
        }
        pub(crate) fn fill(&mut self, _value: u8) -> Result<()> {
            match *self {}
        }
        pub(crate) fn copy_from(&mut self, _other: &MetalMemory) -> Result<()> {
            match *self {}
        }
    }
}
