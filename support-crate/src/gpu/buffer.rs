//! Device memory, and the host memory that copies to and from it can do without a detour (pinned).

use super::{Gpu, Stream};
use crate::cuda::{CudaGpu, CudaMemory, CudaPinned, another_context, driver_error, is_pinned};
use crate::error::{Error, Result, same_length};
use crate::launch::{Element, as_bytes, as_bytes_mut, bytes_of};
use crate::metal::MetalMemory;
use crate::sim::{SimMemory, needs_hardware};
use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// `len` numbers in a device's memory. Dropping it frees them.
///
/// # Examples
/// ```
/// use gpulab::prelude::*;
/// let gpu = Gpu::simulated()?;
/// let mut buffer = gpu.alloc::<f32>(3)?;
/// buffer.copy_from(&[1.0, 2.0, 3.0])?;
/// assert_eq!((buffer.len(), buffer.bytes()), (3, 12));
/// assert_eq!(buffer.to_host()?, [1.0, 2.0, 3.0]);
/// assert!(matches!(buffer.copy_from(&[1.0]), Err(Error::LengthMismatch { expected: 3, given: 1, .. })));
/// # Ok::<(), Error>(())
/// ```
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
    /// True when these bytes lie in that GPU's memory.
    pub(super) fn is_of(&self, gpu: &Gpu) -> bool {
        match (self, gpu) {
            (Memory::Cuda(memory), Gpu::Cuda(gpu)) => Arc::ptr_eq(memory.context(), &gpu.context),
            (Memory::Metal(_), Gpu::Metal(_)) => true,
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

    /// The GPU in whose memory it lies.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
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
            (Memory::Cuda(to), Memory::Cuda(from), Gpu::Cuda(gpu)) if other.memory.is_of(&self.gpu) => {
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

    /// A buffer of memory that cudarc, or candle, has allocated. Nothing is copied; the stream of the slice frees it when the
    /// buffer is dropped. (To lend a slice for one launch alone, pass `&slice` or `&mut slice` to it.)
    ///
    /// # Errors
    /// [`Error::Unsupported`] where `gpu` is none of NVIDIA's, [`Error::DeviceMismatch`] for memory of another context; the
    /// slice is dropped then.
    pub fn from_cuda(gpu: &Gpu, slice: CudaSlice<T>) -> Result<Buffer<T>> {
        if !Arc::ptr_eq(slice.context(), &gpu.cuda()?.context) {
            let found = another_context(slice.context());
            return Err(Error::DeviceMismatch { expected: gpu.to_string(), found });
        }
        let len = slice.len();
        let memory = Memory::Cuda(CudaMemory::from_slice(slice));
        Ok(Buffer { memory, gpu: gpu.clone(), len, element: PhantomData })
    }

    /// The memory as cudarc has it, for good. Nothing is copied.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a buffer on another GPU than NVIDIA's, which is dropped then.
    pub fn into_cuda(self) -> Result<CudaSlice<T>> {
        match self.memory {
            Memory::Cuda(memory) => Ok(memory.into_slice(self.len)),
            _ => Err(self.gpu.no_cuda()),
        }
    }

    /// The memory as cudarc has it, to be read, for `launch_builder.arg(&view)` and cudarc's copies.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a buffer on another GPU than NVIDIA's.
    pub fn as_cuda(&self) -> Result<CudaView<'_, T>> {
        match (&self.memory, &self.gpu) {
            (Memory::Cuda(memory), Gpu::Cuda(gpu)) => {
                gpu.uses([memory]);
                // SAFETY: an element is a plain number, for which every bit pattern is valid.
                Ok(unsafe { memory.transmute(self.len) }.expect("a buffer has its elements"))
            }
            _ => Err(self.gpu.no_cuda()),
        }
    }

    /// The memory as cudarc has it, to be written.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a buffer on another GPU than NVIDIA's.
    pub fn as_cuda_mut(&mut self) -> Result<CudaViewMut<'_, T>> {
        match (&mut self.memory, &self.gpu) {
            (Memory::Cuda(memory), Gpu::Cuda(gpu)) => {
                gpu.uses([&*memory]);
                // SAFETY: an element is a plain number, for which every bit pattern is valid.
                Ok(unsafe { memory.transmute_mut(self.len) }.expect("a buffer has its elements"))
            }
            _ => Err(self.gpu.no_cuda()),
        }
    }

    /// Queues a copy from pinned memory on `stream` and returns at once. The crate keeps `host` and this buffer from
    /// being used before the copy has ended.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::DeviceMismatch`] for a stream or memory of another GPU, [`Error::Invalid`] while a
    /// graph is captured, [`Error::Driver`], [`Error::Unsupported`] on a simulated GPU.
    pub fn copy_from_on(&mut self, stream: &Stream, host: &Pinned<T>) -> Result<()> {
        same_length("a copy from pinned memory", self.len, host.len())?;
        match (&mut self.memory, &self.gpu) {
            (Memory::Cuda(memory), Gpu::Cuda(gpu)) => {
                one_queue(gpu, stream, host)?;
                let copied = stream.0.memcpy_htod(&host.memory, &mut **memory);
                copied.map_err(|error| driver_error("a copy to the device", error))?;
                noted(&stream.0)
            }
            (Memory::Simulated(_), _) => Err(no_queue()),
            (Memory::Cuda(_) | Memory::Metal(_), _) => Ok(()),
        }
    }

    /// Queues a copy into pinned memory on `stream` and returns at once; reading `host` waits for it.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::DeviceMismatch`] for a stream or memory of another GPU, [`Error::Invalid`] while a
    /// graph is captured, [`Error::Driver`], [`Error::Unsupported`] on a simulated GPU.
    pub fn copy_to_on(&self, stream: &Stream, host: &mut Pinned<T>) -> Result<()> {
        same_length("a copy to pinned memory", self.len, host.len())?;
        match (&self.memory, &self.gpu) {
            (Memory::Cuda(memory), Gpu::Cuda(gpu)) => {
                one_queue(gpu, stream, host)?;
                let copied = stream.0.memcpy_dtoh(&**memory, &mut host.memory);
                copied.map_err(|error| driver_error("a copy to the host", error))?;
                noted(&stream.0)
            }
            (Memory::Simulated(_), _) => Err(no_queue()),
            (Memory::Cuda(_) | Memory::Metal(_), _) => Ok(()),
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
                let problem = |error| driver_error("a copy to the device", error);
                gpu.stream.memcpy_htod(host, &mut **memory).map_err(problem)?;
                // The driver has taken ordinary memory over by now. Of pinned memory (`pinned.as_slice()?`) it has not.
                if is_pinned(host) { gpu.stream.synchronize().map_err(problem) } else { Ok(()) }
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
                let problem = |error| driver_error("a copy to the host", error);
                gpu.stream.memcpy_dtoh(&**memory, host).map_err(problem)?;
                // Ordinary memory is written by now. Pinned memory (`pinned.as_mut_slice()?`) may still be waited for.
                gpu.stream.synchronize().map_err(problem)
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

/// A queued copy's stream, buffer and pinned memory are of one context: only then does cudarc note the copy where
/// `Pinned::as_slice` looks.
fn one_queue<T: Element>(gpu: &CudaGpu, stream: &Stream, host: &Pinned<T>) -> Result<()> {
    gpu.outside_capture("a queued copy from or to the host", "copy before `gpu.capture`, or after `graph.launch`")?;
    gpu.owns(&stream.0)?;
    if !Arc::ptr_eq(host.memory.context(), &gpu.context) {
        let (expected, found) = (Gpu::Cuda(gpu.clone()).to_string(), another_context(host.memory.context()));
        return Err(Error::DeviceMismatch { expected, found });
    }
    Ok(())
}

/// Where cudarc notes no copies (the default stream alone, or event tracking off), the copy is waited for.
fn noted(stream: &CudaStream) -> Result<()> {
    match stream.context().is_managing_stream_synchronization() {
        true => Ok(()),
        false => stream.synchronize().map_err(|error| driver_error("waiting for a copy", error)),
    }
}

fn no_queue() -> Error {
    needs_hardware("a copy cannot be queued on a stream", "use `copy_from` and `copy_to`")
}

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
            Gpu::Metal(_) => Err(Error::unsupported(
                "an Apple GPU shares its memory with the CPU: there is nothing to pin",
                "use `gpu.to_device` and `to_host`, which only copy within that memory",
            )),
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
