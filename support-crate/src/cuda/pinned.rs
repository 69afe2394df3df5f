//! Page-locked host memory.

use super::{CudaGpu, driver_error};
use crate::error::Result;
use crate::launch::Element;
use cudarc::driver::PinnedHostSlice;

/// Host memory that the GPU's copy engine reads and writes by itself. Not write-combined: reading that is very slow.
pub(crate) type CudaPinned<T> = PinnedHostSlice<T>;

impl CudaGpu {
    /// Allocates `len` elements, all zero.
    pub fn pinned<T: Element>(&self, len: usize) -> Result<CudaPinned<T>> {
        let problem = |error| driver_error("allocating pinned memory (the host may have too little free)", error);
        // SAFETY: the memory comes unset; elements are plain numbers, and it is written right below.
        let mut pinned = unsafe { self.context.alloc_pinned_with_flags::<T>(len, 0) }.map_err(problem)?;
        pinned.as_mut_slice().map_err(problem)?.fill(T::default());
        Ok(pinned)
    }
}
