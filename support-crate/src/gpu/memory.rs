//! The device's memory, in the pool's three numbers.

use super::Gpu;
use crate::cuda::driver_error;
use crate::error::{Error, Result, bytes};
use std::fmt;

/// The pool's figures and the device's, in bytes.
///
/// Buffers come from a pool that sits between them and the driver. `used` is what buffers hold. `reserved` is what the
/// pool has taken from the driver, used or not. `free` is what the driver could still give, to anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryStats {
    /// Held by buffers.
    pub used: u64,
    /// Held by the pool: what buffers hold, and what freed buffers left behind.
    pub reserved: u64,
    /// The highest `used` since [`Gpu::reset_high_water`].
    pub used_high: u64,
    /// The highest `reserved` since [`Gpu::reset_high_water`].
    pub reserved_high: u64,
    /// What the driver still has, for this and every other program.
    pub free: u64,
    /// All memory of the device.
    pub total: u64,
}

impl fmt::Display for MemoryStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "used {} (highest {}), reserved {} (highest {}), free {} of {}",
            bytes(self.used),
            bytes(self.used_high),
            bytes(self.reserved),
            bytes(self.reserved_high),
            bytes(self.free),
            bytes(self.total)
        )
    }
}

impl Gpu {
    /// The pool's figures now, in bytes. Waits first: a free takes effect when the GPU reaches it.
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
        }
    }
}
