//! Loading a module and launching its kernels.

use super::{CudaGpu, CudaTensorMap, driver_error};
use crate::error::{Error, Result};
use crate::launch::{LaunchConfig, LaunchExtras};
use crate::measurement::KernelResources;
use cudarc::driver::sys::{CUdevice_attribute as Attribute, CUfunction_attribute_enum, CUresult};
use cudarc::driver::{CudaFunction, CudaModule, CudaSlice, CudaStream, PushKernelArg};
use cudarc::nvrtc::Ptx;
use std::sync::Arc;

/// A loaded module.
#[derive(Debug, Clone)]
pub(crate) struct CudaLibrary(Arc<CudaModule>);

/// A loaded kernel.
#[derive(Debug, Clone)]
pub(crate) struct CudaKernel(pub(super) CudaFunction);

/// One argument as CUDA takes it. Buffers go as bytes: their types were checked against the kernel's before.
pub(crate) enum CudaArg<'a> {
    Read(&'a CudaSlice<u8>),
    Write(&'a mut CudaSlice<u8>),
    Bytes1(u8),
    Bytes2(u16),
    Bytes4(u32),
    Bytes8(u64),
    Map(CudaTensorMap),
}

impl CudaGpu {
    /// Loads PTX: the driver compiles it to this GPU's machine code.
    pub(crate) fn load(&self, ptx: &str) -> Result<CudaLibrary> {
        self.context.load_module(Ptx::from_src(ptx)).map(CudaLibrary).map_err(|error| match error.0 {
            CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
                Error::DriverTooOld { driver: driver_version(), ptx: ptx_version(ptx).to_string() }
            }
            _ => driver_error("loading the compiled kernel", error),
        })
    }
}

/// The version of the PTX language, such as `9.0`, from its first directive.
fn ptx_version(ptx: &str) -> &str {
    ptx.lines().find_map(|line| line.trim().strip_prefix(".version")).map_or("of an unknown version", str::trim)
}

/// The newest CUDA version that the driver supports, such as `13.0`.
fn driver_version() -> String {
    let mut version = 0;
    // SAFETY: the pointer is valid for the call; a context exists, so the library is loaded.
    match unsafe { cudarc::driver::sys::cuDriverGetVersion(&mut version) } {
        CUresult::CUDA_SUCCESS => format!("{}.{}", version / 1000, version % 1000 / 10),
        _ => "unknown".to_string(),
    }
}

impl CudaLibrary {
    pub(crate) fn kernel(&self, name: &str) -> Result<CudaKernel> {
        self.0.load_function(name).map(CudaKernel).map_err(|error| driver_error("looking up the kernel", error))
    }
}

impl CudaKernel {
    pub(crate) fn launch(
        &self,
        stream: &CudaStream,
        config: LaunchConfig,
        extras: LaunchExtras,
        args: &mut [CudaArg<'_>],
    ) -> Result<()> {
        if extras != LaunchExtras::NONE {
            return self.launch_with(stream, config, extras, args);
        }
        let mut builder = stream.launch_builder(&self.0);
        for arg in args {
            match arg {
                CudaArg::Read(memory) => builder.arg(&**memory),
                CudaArg::Write(memory) => builder.arg(&mut **memory),
                CudaArg::Bytes1(value) => builder.arg(&*value),
                CudaArg::Bytes2(value) => builder.arg(&*value),
                CudaArg::Bytes4(value) => builder.arg(&*value),
                CudaArg::Bytes8(value) => builder.arg(&*value),
                CudaArg::Map(map) => builder.arg(&map.0.opaque),
            };
        }
        let config = cudarc::driver::LaunchConfig {
            grid_dim: config.grid,
            block_dim: config.block,
            shared_mem_bytes: config.shared_bytes,
        };
        // SAFETY: count, sizes and mutability of the arguments were checked against the kernel's declaration. What the
        // kernel does with its pointers is the reader's code: it can spoil the contents of device buffers, whose
        // elements are plain numbers for which every bit pattern is valid, and it cannot name host memory.
        unsafe { builder.launch(config) }.map_err(|error| driver_error("the launch", error))?;
        Ok(())
    }

    /// Above 48 KiB a kernel must opt in to dynamic shared memory.
    pub(crate) fn allow_shared_bytes(&self, bytes: u32) -> Result<()> {
        let attribute = CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        self.0
            .set_attribute(attribute, bytes as i32)
            .map_err(|error| driver_error("asking for more shared memory", error))
    }

    /// What the kernel needs, and how many blocks of that launch one multiprocessor of this GPU holds at a time.
    pub(crate) fn residency(&self, gpu: &CudaGpu, config: LaunchConfig) -> Result<KernelResources> {
        let [registers, shared_bytes, local_bytes, largest_block] = self.resources()?.map(|n| n.max(0) as u32);
        let (threads, dynamic) = (config.threads_per_block() as u32, config.shared_bytes);
        if dynamic > 48 << 10 {
            self.allow_shared_bytes(dynamic)?;
        }
        let blocks = self
            .0
            .occupancy_max_active_blocks_per_multiprocessor(threads, dynamic as usize, None)
            .map_err(|error| driver_error("asking how many blocks a multiprocessor holds", error))?;
        let figure = |which| gpu.attribute(which).max(0) as u32;
        let reserved = figure(Attribute::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
        let shared = figure(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
        Ok(KernelResources {
            registers,
            shared_bytes,
            dynamic_shared_bytes: dynamic,
            local_bytes,
            largest_block,
            threads,
            blocks,
            most_threads: figure(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR),
            most_blocks: figure(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR),
            blocks_by_shared: shared / (shared_bytes + dynamic + reserved).max(1),
        })
    }

    /// Registers a thread, static shared bytes a block, local (spill) bytes a thread, largest block.
    pub(crate) fn resources(&self) -> Result<[i32; 4]> {
        let get =
            |value: std::result::Result<i32, _>| value.map_err(|e| driver_error("reading the kernel's resources", e));
        Ok([
            get(self.0.num_regs())?,
            get(self.0.shared_size_bytes())?,
            get(self.0.local_size_bytes())?,
            get(self.0.max_threads_per_block())?,
        ])
    }
}
