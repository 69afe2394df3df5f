//! Buffers of the simulated GPU.

use super::{SimGpu, lock, refused};
use crate::error::{Error, Result};

/// Bytes that live buffers hold, and the most that they ever held.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Used {
    pub now: u64,
    pub high: u64,
}

/// Bytes in the simulated GPU's memory. Dropping it frees them.
pub(crate) struct SimMemory {
    gpu: SimGpu,
    address: u64,
    bytes: usize,
}

impl SimGpu {
    /// Allocates; reading what nothing has written is a mistake of the kernel.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<SimMemory> {
        let stats = self.memory();
        let none = || Error::OutOfMemory { asked: bytes as u64, free: stats.free, total: stats.total, reserved: 0 };
        if bytes as u64 > stats.free {
            return Err(none());
        }
        // Empty buffers too have an address of their own.
        let address = self.device().alloc(bytes.max(1)).map_err(|_| none())?;
        let mut used = lock(&self.0.used);
        used.now += bytes as u64;
        used.high = used.high.max(used.now);
        Ok(SimMemory { gpu: self.clone(), address, bytes })
    }
}

impl SimMemory {
    pub(crate) fn is_of(&self, gpu: &SimGpu) -> bool {
        self.gpu.is(gpu)
    }

    /// As a kernel takes it.
    pub(crate) fn arg(&self) -> warpsim::Arg {
        warpsim::Arg::Pointer(self.address)
    }

    pub(crate) fn write(&mut self, host: &[u8]) -> Result<()> {
        self.gpu.device().write(self.address, host).map_err(|error| refused(&error))
    }

    pub(crate) fn read(&self, host: &mut [u8]) -> Result<()> {
        self.gpu.device().read(self.address, host).map_err(|error| refused(&error))
    }

    pub(crate) fn fill(&mut self, value: u8) -> Result<()> {
        self.write(&vec![value; self.bytes])
    }

    /// Fills it with bytes that still count as never written.
    pub(crate) fn poison(&mut self, value: u8) -> Result<()> {
        self.gpu.device().poison(self.address, self.bytes, value).map_err(|error| refused(&error))
    }

    pub(crate) fn copy_from(&mut self, other: &SimMemory) -> Result<()> {
        let mut bytes = vec![0; other.bytes];
        other.read(&mut bytes)?;
        self.write(&bytes)
    }
}

impl Drop for SimMemory {
    fn drop(&mut self) {
        // It was allocated here and is freed once, so there is nothing to report.
        if self.gpu.device().free(self.address).is_ok() {
            lock(&self.gpu.0.used).now -= self.bytes as u64;
        }
    }
}
