//! Page-locked host memory.

use super::{CudaGpu, driver_error};
use crate::error::Result;
use cudarc::driver::{PinnedHostSlice, sys};

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

/// Whether this host memory is page-locked: an asynchronous copy from or to it then outlives the call.
pub(crate) fn is_pinned(host: &[u8]) -> bool {
    let mut kind = 0_u32;
    let which = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    // SAFETY: the attribute is a 32-bit number, and the address is only looked up, not followed.
    let known = unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast(), which, host.as_ptr() as u64) };
    // The driver does not know ordinary memory.
    known == sys::CUresult::CUDA_SUCCESS
}
