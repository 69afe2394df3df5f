//! Page-locked host memory.

use super::{CudaGpu, driver_error};
use crate::error::Result;
use cudarc::driver::PinnedHostSlice;

/// Host memory that the GPU's copy engine reads and writes by itself, as bytes.
pub(crate) type CudaPinned = PinnedHostSlice<u8>;

impl CudaGpu {
    /// Allocates `bytes` bytes, all zero. Not write-combined: reading that is very slow.
    pub(crate) fn pinned(&self, bytes: usize) -> Result<CudaPinned> {
        let problem = |error| driver_error("allocating pinned memory (the host may have too little free)", error);
        // SAFETY: bytes are valid whatever they hold, and they are written right below.
        let mut pinned = unsafe { self.context.alloc_pinned_with_flags::<u8>(bytes.max(1), 0) }.map_err(problem)?;
        pinned.as_mut_slice().map_err(problem)?.fill(0);
        Ok(pinned)
    }
}
