//! Pinned host memory.

use super::Gpu;
use crate::cuda::{CudaPinned, driver_error};
use crate::error::{Error, Result};
use crate::launch::{Element, bytes_of};
use crate::sim::needs_hardware;
use std::marker::PhantomData;

/// `len` numbers in host memory that the operating system may not move (page-locked), so that the GPU's copy engine
/// reads and writes them by itself. Fast for copies, slow to allocate: allocate once and use it again.
#[derive(Debug)]
pub struct Pinned<T: Element> {
    pub(super) memory: CudaPinned,
    len: usize,
    element: PhantomData<T>,
}

impl Gpu {
    /// Allocates `len` elements of pinned memory, all zero.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on an Apple GPU and a simulated one, [`Error::Invalid`] for more than any memory holds, [`Error::Driver`] when
    /// the host has too little memory.
    pub fn pinned<T: Element>(&self, len: usize) -> Result<Pinned<T>> {
        match self {
            Gpu::Cuda(gpu) => Ok(Pinned { memory: gpu.pinned(bytes_of::<T>(len)?)?, len, element: PhantomData }),
            Gpu::Metal(_) => Err(Error::Unsupported {
                what: "an Apple GPU shares its memory with the CPU: there is nothing to pin".to_string(),
                fix: "use `gpu.to_device` and `to_host`, which only copy within that memory".to_string(),
            }),
            Gpu::Simulated(_) => Err(needs_hardware(
                "there is no copy engine to pin memory for",
                "use `gpu.to_device` and `to_host`, or run this on an NVIDIA GPU",
            )),
        }
    }
}

impl<T: Element> Pinned<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when it holds no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements; waits for queued copies that use them.
    ///
    /// # Errors
    /// [`Error::Driver`] for work launched earlier.
    pub fn as_slice(&self) -> Result<&[T]> {
        let bytes = self.memory.as_slice().map_err(|error| driver_error("waiting for a copy", error))?;
        // SAFETY: the memory is page-aligned, holds `len` elements, and any bytes make valid numbers.
        Ok(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), self.len) })
    }

    /// The elements, to be changed; waits for queued copies that use them.
    ///
    /// # Errors
    /// [`Error::Driver`] for work launched earlier.
    pub fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        let bytes = self.memory.as_mut_slice().map_err(|error| driver_error("waiting for a copy", error))?;
        // SAFETY: as above; the borrow of `self` makes this the only reference.
        Ok(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), self.len) })
    }
}
