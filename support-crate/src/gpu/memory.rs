//! The device's memory, in the pool's three numbers.

use super::Gpu;
use crate::cuda::driver_error;
use crate::error::{Error, Result};
use crate::measurement::MemoryStats;
use crate::sim::needs_hardware;

impl Gpu {
    /// The pool's figures now, in bytes. Waits first: a free takes effect when the GPU reaches it. A simulated GPU has
    /// no pool: it reserves what buffers hold.
    ///
    /// # Errors
    /// [`Error::Driver`], also for work launched earlier.
    pub fn memory(&self) -> Result<MemoryStats> {
        match self {
            Gpu::Cuda(gpu) => {
                self.synchronize()?;
                let [used, reserved, used_high, reserved_high] = gpu.pool_figures()?;
                let info = gpu.context.mem_get_info();
                let (free, total) = info.map_err(|error| driver_error("reading the free memory", error))?;
                Ok(MemoryStats { used, reserved, used_high, reserved_high, free: free as u64, total: total as u64 })
            }
            Gpu::Metal(gpu) => Ok(gpu.memory()),
            Gpu::Simulated(gpu) => Ok(gpu.memory()),
        }
    }

    /// How many bytes the pool keeps when buffers are dropped: 0 is the driver's default (all unused memory goes back
    /// at the next synchronisation), `u64::MAX` keeps everything for the next allocation.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no pool.
    pub fn set_release_threshold(&self, bytes: u64) -> Result<()> {
        self.pool("set_release_threshold")?.set_release_threshold(bytes)
    }

    /// Gives unused memory back to the driver until at most `keep` bytes stay reserved.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no pool.
    pub fn trim(&self, keep: usize) -> Result<()> {
        self.pool("trim")?.trim(keep)
    }

    /// Begins the two highest figures anew.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no pool.
    pub fn reset_high_water(&self) -> Result<()> {
        self.pool("reset_high_water")?.reset_high_water()
    }

    fn pool(&self, call: &str) -> Result<&crate::cuda::CudaGpu> {
        match self {
            Gpu::Cuda(gpu) => Ok(gpu),
            Gpu::Metal(_) => Err(Error::Unsupported {
                what: format!("`{call}`: Metal allocates without a pool"),
                fix: "run this on an NVIDIA GPU, or read the recorded run".to_string(),
            }),
            Gpu::Simulated(_) => Err(needs_hardware(
                &format!("`{call}` changes the driver's memory pool"),
                "practise on `Pool`, the model of one, or run this on an NVIDIA GPU",
            )),
        }
    }
}
