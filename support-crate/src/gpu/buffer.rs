//! Device memory.

use super::{Gpu, Pinned, Stream};
use crate::cuda::{CudaGpu, CudaMemory, driver_error};
use crate::error::{Error, Result};
use crate::launch::{Element, as_bytes, as_bytes_mut, bytes_of};
use crate::metal::MetalMemory;
use crate::sim::{SimMemory, needs_hardware};
use std::fmt;
use std::marker::PhantomData;

/// `len` numbers in a device's memory. Dropping it frees them.
pub struct Buffer<T: Element> {
    pub(crate) memory: Memory,
    pub(crate) gpu: Gpu,
    len: usize,
    element: PhantomData<T>,
}

/// Where the bytes are.
pub(crate) enum Memory {
    Cuda(CudaMemory),
    Metal(MetalMemory),
    Simulated(SimMemory),
}

impl Memory {
    /// True when these bytes lie in that GPU's memory; `index` is the number of the GPU that they lie on.
    pub(super) fn is_of(&self, gpu: &Gpu, index: usize) -> bool {
        match (self, gpu) {
            (Memory::Cuda(_), Gpu::Cuda(_)) | (Memory::Metal(_), Gpu::Metal(_)) => index == gpu.index(),
            (Memory::Simulated(memory), Gpu::Simulated(gpu)) => memory.is_of(gpu),
            _ => false,
        }
    }
}

impl Gpu {
    /// Step 1, allocate: `len` elements whose contents are whatever the memory held before.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with the sizes; nothing else is lost by it.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        let bytes = bytes_of::<T>(len)?;
        Ok(Buffer { memory: self.alloc_bytes(bytes)?, gpu: self.clone(), len, element: PhantomData })
    }

    fn alloc_bytes(&self, bytes: usize) -> Result<Memory> {
        Ok(match self {
            Gpu::Cuda(gpu) => Memory::Cuda(gpu.alloc(bytes)?),
            Gpu::Metal(gpu) => Memory::Metal(gpu.alloc(bytes)?),
            Gpu::Simulated(gpu) => Memory::Simulated(gpu.alloc(bytes)?),
        })
    }

    /// Allocates `len` elements and sets them to zero.
    ///
    /// # Errors
    /// As [`Gpu::alloc`].
    pub fn zeros<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        let mut buffer = self.alloc(len)?;
        buffer.fill_bytes(0)?;
        Ok(buffer)
    }

    /// Allocates `len` elements and sets every byte to `0xFF`: NaN for floats, -1 for signed integers. A result that
    /// a kernel forgot to write then shows itself. To a simulated GPU it still counts as memory that nothing has written.
    ///
    /// # Errors
    /// As [`Gpu::alloc`].
    pub fn poison<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        let mut buffer = self.alloc(len)?;
        match &mut buffer.memory {
            Memory::Simulated(memory) => memory.poison(0xFF)?,
            _ => buffer.fill_bytes(0xFF)?,
        }
        Ok(buffer)
    }

    /// Steps 1 and 2: allocates, and copies `host` to the device.
    ///
    /// # Errors
    /// As [`Gpu::alloc`].
    pub fn to_device<T: Element>(&self, host: &[T]) -> Result<Buffer<T>> {
        let mut buffer = self.alloc(host.len())?;
        buffer.copy_from(host)?;
        Ok(buffer)
    }
}

impl<T: Element> Buffer<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when it holds no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Step 2: copies `host`, of the same length, to the device. Ordinary (pageable) memory goes through the driver's
    /// own pinned buffer; when this returns, `host` may be changed again.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::Driver`].
    pub fn copy_from(&mut self, host: &[T]) -> Result<()> {
        same_length("a copy from the host", self.len, host.len())?;
        self.write_bytes(as_bytes(host))
    }

    /// Step 4: copies the elements back. Waits for the kernels before it.
    ///
    /// # Errors
    /// [`Error::Driver`], also for work launched earlier.
    pub fn to_host(&self) -> Result<Vec<T>> {
        let mut host = vec![T::default(); self.len];
        self.copy_to(&mut host)?;
        Ok(host)
    }

    /// Step 4 into memory that is there already, of the same length.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::Driver`].
    pub fn copy_to(&self, host: &mut [T]) -> Result<()> {
        same_length("a copy to the host", self.len, host.len())?;
        self.read_bytes(as_bytes_mut(host))
    }

    /// Copies another buffer of the same length, from device memory to device memory.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::DeviceMismatch`], [`Error::Driver`].
    pub fn copy_from_buffer(&mut self, other: &Buffer<T>) -> Result<()> {
        same_length("a copy between buffers", self.len, other.len)?;
        match (&mut self.memory, &other.memory, &self.gpu) {
            (Memory::Cuda(to), Memory::Cuda(from), Gpu::Cuda(gpu)) => {
                gpu.uses([to, from]);
                gpu.queue()
                    .memcpy_dtod(&**from, &mut **to)
                    .map_err(|error| driver_error("a copy between buffers", error))
            }
            (Memory::Metal(to), Memory::Metal(from), _) => to.copy_from(from),
            (Memory::Simulated(to), Memory::Simulated(from), Gpu::Simulated(gpu)) if from.is_of(gpu) => {
                to.copy_from(from)
            }
            _ => Err(Error::DeviceMismatch { expected: self.gpu.to_string(), found: other.gpu.to_string() }),
        }
    }

    /// Queues a copy from pinned memory on `stream` and returns at once. The crate keeps `host` and this buffer from
    /// being used before the copy has ended.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::Driver`], [`Error::Unsupported`] on a simulated GPU.
    pub fn copy_from_on(&mut self, stream: &Stream, host: &Pinned<T>) -> Result<()> {
        same_length("a copy from pinned memory", self.len, host.len())?;
        match &mut self.memory {
            Memory::Cuda(memory) if self.len > 0 => stream
                .0
                .memcpy_htod(&host.memory, &mut **memory)
                .map_err(|error| driver_error("a copy to the device", error)),
            Memory::Cuda(_) | Memory::Metal(_) => Ok(()),
            Memory::Simulated(_) => Err(no_queue()),
        }
    }

    /// Queues a copy into pinned memory on `stream` and returns at once; reading `host` waits for it.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::Driver`], [`Error::Unsupported`] on a simulated GPU.
    pub fn copy_to_on(&self, stream: &Stream, host: &mut Pinned<T>) -> Result<()> {
        same_length("a copy to pinned memory", self.len, host.len())?;
        match &self.memory {
            Memory::Cuda(memory) if self.len > 0 => stream
                .0
                .memcpy_dtoh(&**memory, &mut host.memory)
                .map_err(|error| driver_error("a copy to the host", error)),
            Memory::Cuda(_) | Memory::Metal(_) => Ok(()),
            Memory::Simulated(_) => Err(no_queue()),
        }
    }

    /// Sets every byte, in the order of launches.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn fill_bytes(&mut self, value: u8) -> Result<()> {
        match (&mut self.memory, &self.gpu) {
            (Memory::Cuda(memory), Gpu::Cuda(gpu)) => {
                gpu.uses([&*memory]);
                gpu.fill(memory, value)
            }
            (Memory::Metal(memory), _) => memory.fill(value),
            (Memory::Simulated(memory), _) => memory.fill(value),
            (Memory::Cuda(_), _) => unreachable!("a buffer's memory is of its own GPU"),
        }
    }

    fn write_bytes(&mut self, host: &[u8]) -> Result<()> {
        match (&mut self.memory, &self.gpu) {
            (_, _) if host.is_empty() => Ok(()),
            (Memory::Cuda(memory), Gpu::Cuda(gpu)) => {
                no_host_copy(gpu)?;
                gpu.stream.memcpy_htod(host, &mut **memory).map_err(|error| driver_error("a copy to the device", error))
            }
            (Memory::Metal(memory), _) => memory.write(host),
            (Memory::Simulated(memory), _) => memory.write(host),
            (Memory::Cuda(_), _) => unreachable!("a buffer's memory is of its own GPU"),
        }
    }

    fn read_bytes(&self, host: &mut [u8]) -> Result<()> {
        match (&self.memory, &self.gpu) {
            (_, _) if host.is_empty() => Ok(()),
            (Memory::Cuda(memory), Gpu::Cuda(gpu)) => {
                no_host_copy(gpu)?;
                gpu.stream.memcpy_dtoh(&**memory, host).map_err(|error| driver_error("a copy to the host", error))
            }
            (Memory::Metal(memory), _) => memory.read(host),
            (Memory::Simulated(memory), _) => memory.read(host),
            (Memory::Cuda(_), _) => unreachable!("a buffer's memory is of its own GPU"),
        }
    }
}

impl<T: Element> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer<{}>({} elements on {})", T::TYPE, self.len, self.gpu)
    }
}

fn no_host_copy(gpu: &CudaGpu) -> Result<()> {
    gpu.outside_capture("a copy to or from the host", "copy before `gpu.capture`, or after `graph.launch`")
}

fn no_queue() -> Error {
    needs_hardware("a copy cannot be queued on a stream", "use `copy_from` and `copy_to`")
}

fn same_length(what: &str, expected: usize, given: usize) -> Result<()> {
    match expected == given {
        true => Ok(()),
        false => Err(Error::LengthMismatch { what: what.to_string(), expected, given }),
    }
}
