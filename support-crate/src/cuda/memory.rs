//! Allocation from the device's memory pool, and the pool's figures.

use super::{CudaGpu, CudaMemory, driver_error};
use crate::error::{Error, Result};
use cudarc::driver::result::mem_pool;
use cudarc::driver::sys::{CUmemPool_attribute as Attribute, CUmemoryPool, CUresult};
use cudarc::driver::{CudaSlice, DevicePtrMut, DriverError};

impl CudaGpu {
    /// Allocates `bytes` bytes without writing them.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<CudaMemory> {
        self.outside_capture("an allocation", "allocate before `gpu.capture`, and let the work use what is there")?;
        // An allocation of nothing is an error to the driver; an empty buffer is none to a reader.
        // SAFETY: bytes are valid whatever they hold.
        unsafe { self.stream.alloc::<u8>(bytes.max(1)) }
            .map(CudaMemory::from)
            .map_err(|error| self.allocation_error(bytes as u64, error))
    }

    /// Sets every byte to `value`, in the stream's order.
    pub(crate) fn fill(&self, memory: &mut CudaSlice<u8>, value: u8) -> Result<()> {
        let (bytes, queue) = (memory.len(), self.queue());
        let (pointer, _order) = memory.device_ptr_mut(&queue);
        // SAFETY: the pointer is valid for that many bytes, and the slice is borrowed until the call is queued.
        unsafe { cudarc::driver::result::memset_d8_async(pointer, value, bytes, queue.cu_stream()) }
            .map_err(|error| driver_error("filling a buffer", error))
    }

    fn allocation_error(&self, asked: u64, error: DriverError) -> Error {
        if error.0 != CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return driver_error("an allocation", error);
        }
        let (free, total) = self.context.mem_get_info().unwrap_or((0, 0));
        let unused = self.pool_figures().map_or(0, |[used, reserved, ..]| reserved.saturating_sub(used));
        Error::OutOfMemory { asked, free: free as u64, total: total as u64, reserved: unused }
    }

    /// Used, reserved, and the highest of each since the last reset, in bytes.
    pub(crate) fn pool_figures(&self) -> Result<[u64; 4]> {
        let pool = self.pool()?;
        let read = |attribute| {
            let mut value = 0_u64;
            // SAFETY: the pool is the device's own; these attributes are 64-bit numbers.
            unsafe { mem_pool::get_attribute(pool, attribute, (&raw mut value).cast()) }
                .map(|()| value)
                .map_err(|error| driver_error("reading the memory pool", error))
        };
        Ok([
            read(Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
            read(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?,
            read(Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?,
            read(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?,
        ])
    }

    /// How many bytes the pool keeps when everything is freed and the stream is waited for.
    pub(crate) fn set_release_threshold(&self, bytes: u64) -> Result<()> {
        self.set_pool(Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, bytes)
    }

    /// Forgets the high-water marks: they begin again at what is used and reserved now.
    pub(crate) fn reset_high_water(&self) -> Result<()> {
        self.set_pool(Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)?;
        self.set_pool(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0)
    }

    /// Gives unused memory back to the driver until at most `keep` bytes stay reserved.
    pub(crate) fn trim(&self, keep: usize) -> Result<()> {
        // Frees are ordered in the stream, so memory counts as used until the stream has reached them.
        self.stream.synchronize().map_err(|error| driver_error("waiting for the GPU", error))?;
        let pool = self.pool()?;
        // SAFETY: the pool is the device's own.
        unsafe { cudarc::driver::sys::cuMemPoolTrimTo(pool, keep) }
            .result()
            .map_err(|error| driver_error("trimming the memory pool", error))
    }

    fn set_pool(&self, attribute: Attribute, mut value: u64) -> Result<()> {
        let pool = self.pool()?;
        // SAFETY: the pool is the device's own; these attributes are 64-bit numbers.
        unsafe { mem_pool::set_attribute(pool, attribute, (&raw mut value).cast()) }
            .map_err(|error| driver_error("changing the memory pool", error))
    }

    fn pool(&self) -> Result<CUmemoryPool> {
        if !self.context.has_async_alloc() {
            return Err(Error::Unsupported {
                what: "this GPU has no memory pool (its driver allocates without one)".to_string(),
                fix: "use `gpu.memory()`'s free and total only".to_string(),
            });
        }
        // SAFETY: the context is open, so its device is valid.
        unsafe { cudarc::driver::result::device::get_default_mem_pool(self.context.cu_device()) }
            .map_err(|error| driver_error("finding the memory pool", error))
    }
}
