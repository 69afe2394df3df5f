//! The door between candle and gpulab, on an NVIDIA GPU: a tensor goes into a launch, a buffer becomes a tensor, and a kernel
//! becomes an operator of candle's. Nothing is copied.
//!
//! Both sides stand on the same cudarc, and memory is shared within one context: [`gpu_of`] opens the `Gpu` of candle's.
//!
//! candle allocates and launches on a stream of its own (CUDA's per-thread default stream). Here each side waits for what the
//! other has queued, as long as one host thread calls both.

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp1, CustomOp2, DType, Device, DeviceLocation, Layout, Shape, StorageRef, Tensor};
use gpulab::error::{Error, Result, same_length};
use gpulab::gpu::{Buffer, Gpu, Kernel, Stream};
use gpulab::launch::{Element, LaunchConfig, Source};
use half::{bf16, f16};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

/// The GPU on which candle computes, in candle's own context: `Gpu::from_cuda` on `CudaDevice::cuda_stream().context()`.
///
/// # Errors
/// [`Error::Unsupported`] for another device than an NVIDIA GPU, [`Error::Driver`].
pub fn gpu_of(device: &Device) -> Result<Gpu> {
    #[cfg(gpulab_cuda)]
    if let Device::Cuda(device) = device {
        return Gpu::from_cuda(device.cuda_stream().context().clone());
    }
    Err(Error::unsupported(
        format!("{} has no CUDA context that candle and gpulab could share", name(device)),
        "open candle's device with `DeviceKind::Cuda.open()?`; a kernel in a model runs without a GPU, too: \
              `KernelOp::new(&Gpu::simulated()?, …)`",
    ))
}

/// The stream on which candle launches, to record events there: `CudaDevice::cuda_stream()`.
///
/// # Errors
/// [`Error::Unsupported`] for another device than an NVIDIA GPU.
pub fn stream_of(device: &Device) -> Result<Stream> {
    #[cfg(gpulab_cuda)]
    if let Device::Cuda(device) = device {
        return Ok(Stream::from(device.cuda_stream()));
    }
    Err(Error::unsupported(
        format!("{} has no CUDA stream", name(device)),
        "open candle's device with `DeviceKind::Cuda.open()?`, or time with the host's clock",
    ))
}

#[cfg(gpulab_cuda)]
use candle_core::{Storage, cuda_backend::CudaDType as OnCuda, op::BackpropOp};

/// Where candle is built without CUDA, its tensors ask for nothing more.
#[cfg(not(gpulab_cuda))]
pub trait OnCuda {}
#[cfg(not(gpulab_cuda))]
impl<T: candle_core::WithDType> OnCuda for T {}

/// A type of number that both a tensor of candle's and a buffer hold.
pub trait TensorElement: candle_core::WithDType + OnCuda {
    /// The buffer's type: 16-bit floats lie in a `Buffer<u16>`.
    type Stored: Element;

    /// The number as the buffer holds it: of a 16-bit float its bits.
    fn stored(self) -> Self::Stored;

    /// The inverse of [`TensorElement::stored`].
    fn loaded(stored: Self::Stored) -> Self;
}

macro_rules! elements {
    ($($in_candle:ty),*) => {
        $(impl TensorElement for $in_candle {
            type Stored = $in_candle;

            fn stored(self) -> $in_candle {
                self
            }

            fn loaded(stored: $in_candle) -> $in_candle {
                stored
            }
        })*
    };
}
elements!(f32, f64, u8, u32, i16, i32, i64);

macro_rules! halves {
    ($($in_candle:ty),*) => {
        $(impl TensorElement for $in_candle {
            type Stored = u16;

            fn stored(self) -> u16 {
                self.to_bits()
            }

            fn loaded(stored: u16) -> $in_candle {
                <$in_candle>::from_bits(stored)
            }
        })*
    };
}
halves!(bf16, f16);

/// A tensor's memory as a buffer to read, for as long as this lives: `kernel.launch(config, (&*x, &mut y, n))`.
///
/// The tensor cannot be changed in place meanwhile (candle waits for its lock), and the memory stays candle's: its stream waits
/// for the launches before it uses or frees it.
pub struct TensorBuffer<'a, T: TensorElement> {
    /// Never dropped as a buffer: it would free the tensor's memory.
    buffer: ManuallyDrop<Buffer<T::Stored>>,
    _storage: Option<StorageRef<'a>>,
}

impl<T: TensorElement> Deref for TensorBuffer<'_, T> {
    type Target = Buffer<T::Stored>;

    fn deref(&self) -> &Buffer<T::Stored> {
        &self.buffer
    }
}

#[cfg(gpulab_cuda)]
impl<T: TensorElement> TensorBuffer<'_, T> {
    /// To be written by launches: for a storage that is nobody else's yet.
    pub(crate) fn buffer_mut(&mut self) -> &mut Buffer<T::Stored> {
        &mut self.buffer
    }
}

impl<T: TensorElement> Drop for TensorBuffer<'_, T> {
    fn drop(&mut self) {
        // SAFETY: taken out once, here.
        let buffer = unsafe { ManuallyDrop::take(&mut self.buffer) };
        if let Ok(slice) = buffer.into_cuda() {
            // candle's stream waits for the launches on other streams; the memory stays as it is.
            slice.leak();
        }
    }
}

impl<T: TensorElement> fmt::Debug for TensorBuffer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, of a tensor", *self.buffer)
    }
}

/// Lends a tensor to launches on `gpu`, without a copy (`CudaStorage::as_cuda_slice`). A tensor that `narrow` has cut out of
/// another begins where its first number lies, so a kernel that reads it as `float4` needs a multiple of four there.
///
/// # Errors
/// [`Error::TensorType`] for a tensor of other numbers than `T`, [`Error::NotContiguous`] for one whose numbers do not lie one
/// after the other, [`Error::DeviceMismatch`] for one on the CPU, on another GPU, or in another context than `gpu`'s.
pub fn as_buffer<'a, T: TensorElement>(gpu: &Gpu, tensor: &'a Tensor) -> Result<TensorBuffer<'a, T>> {
    let (storage, layout) = tensor.storage_and_layout();
    contiguous::<T>(tensor.dtype(), layout)?;
    #[cfg(gpulab_cuda)]
    if let Storage::Cuda(memory) = &*storage {
        let buffer = cuda::lend::<T>(gpu, memory, layout)?;
        return Ok(TensorBuffer { buffer, _storage: Some(storage) });
    }
    drop(storage);
    Err(elsewhere(gpu, tensor.device()))
}

/// The buffer's memory as a tensor on `device`, without a copy (`CudaStorage::wrap_cuda_slice`); candle frees it. It has no
/// gradient; a kernel inside a model that is trained is a [`KernelOp`].
///
/// # Errors
/// [`Error::LengthMismatch`] where the shape has another number of elements, [`Error::DeviceMismatch`] where the buffer is not
/// in the device's context ([`gpu_of`]). The buffer is dropped then.
pub fn into_tensor<T: TensorElement>(
    buffer: Buffer<T::Stored>,
    shape: impl Into<Shape>,
    device: &Device,
) -> Result<Tensor> {
    let shape = shape.into();
    same_length(format!("a buffer as a tensor of the shape {:?}", shape.dims()), shape.elem_count(), buffer.len())?;
    #[cfg(gpulab_cuda)]
    if let Device::Cuda(device) = device {
        let storage = Storage::Cuda(cuda::give::<T>(buffer, device)?);
        return Ok(Tensor::from_storage(storage, shape, BackpropOp::none(), false));
    }
    Err(Error::DeviceMismatch { expected: name(device), found: buffer.gpu().to_string() })
}

/// What to call a device of candle's.
fn name(device: &Device) -> String {
    match device.location() {
        DeviceLocation::Cpu => "the CPU, as candle's tensor".to_string(),
        DeviceLocation::Cuda { gpu_id } => {
            format!("GPU {gpu_id}, in candle's own context (`gpu_of(&device)` opens it)")
        }
        DeviceLocation::Metal { gpu_id } => format!("Apple GPU {gpu_id}, as candle's tensor"),
    }
}

pub(crate) fn elsewhere(gpu: &Gpu, device: &Device) -> Error {
    Error::DeviceMismatch { expected: gpu.to_string(), found: name(device) }
}

/// From where to where the tensor's numbers lie in its storage.
pub(crate) fn contiguous<T: TensorElement>(dtype: DType, layout: &Layout) -> Result<(usize, usize)> {
    if dtype != T::DTYPE {
        let (expected, given) = (T::DTYPE.as_str().to_string(), dtype.as_str().to_string());
        return Err(Error::TensorType { expected, given });
    }
    layout
        .contiguous_offsets()
        .ok_or_else(|| Error::NotContiguous { shape: layout.dims().to_vec(), strides: layout.stride().to_vec() })
}

/// An operator's input, lent while candle holds its storage: until the operator returns.
#[cfg(gpulab_cuda)]
pub(crate) fn lent_storage<T: TensorElement>(
    gpu: &Gpu,
    memory: &candle_core::CudaStorage,
    layout: &Layout,
) -> Result<TensorBuffer<'static, T>> {
    Ok(TensorBuffer { buffer: cuda::lend::<T>(gpu, memory, layout)?, _storage: None })
}

/// An operator's output as candle's own.
#[cfg(gpulab_cuda)]
pub(crate) fn given_storage<T: TensorElement>(
    buffer: Buffer<T::Stored>,
    device: &candle_core::CudaDevice,
) -> Result<candle_core::CudaStorage> {
    cuda::give::<T>(buffer, device)
}

#[cfg(gpulab_cuda)]
mod cuda {
    use super::{Device, Gpu, Layout, TensorElement, contiguous, elsewhere, name};
    use candle_core::backend::BackendStorage;
    use candle_core::{CudaDevice, CudaStorage};
    use gpulab::cudarc::driver::{DevicePtr, DevicePtrMut};
    use gpulab::error::{Error, Result};
    use gpulab::gpu::Buffer;
    use std::mem::ManuallyDrop;
    use std::sync::Arc;

    /// The tensor's memory as a buffer that must not be dropped.
    pub(super) fn lend<T: TensorElement>(
        gpu: &Gpu,
        memory: &CudaStorage,
        layout: &Layout,
    ) -> Result<ManuallyDrop<Buffer<T::Stored>>> {
        let (start, end) = contiguous::<T>(memory.dtype(), layout)?;
        let slice = memory.as_cuda_slice::<T>()?;
        let stream = memory.device.cuda_stream();
        // A buffer of another context would be refused below, and then freed.
        if !matches!(gpu, Gpu::Cuda(own) if Arc::ptr_eq(own.context(), stream.context())) {
            return Err(elsewhere(gpu, &Device::Cuda(memory.device.clone())));
        }
        // candle's stream waits here for what others have written.
        let (address, order) = slice.device_ptr(&stream);
        drop(order);
        let address = address + (start * size_of::<T>()) as u64;
        // SAFETY: the numbers from `start` to `end` lie in the slice, and the storage is held until the buffer is given up
        // without being freed. `Stored` has the size of `T`, and any bits are valid for it.
        let lent = unsafe { stream.upgrade_device_ptr::<T::Stored>(address, end - start) };
        // candle marks what its kernels write as read. `from_cuda` notes a write of candle's stream at this point instead, so
        // that other streams wait for all of it.
        Ok(ManuallyDrop::new(Buffer::from_cuda(gpu, lent)?))
    }

    /// The buffer's memory as candle's, to be freed on its stream.
    pub(super) fn give<T: TensorElement>(buffer: Buffer<T::Stored>, device: &CudaDevice) -> Result<CudaStorage> {
        let stream = device.cuda_stream();
        if !matches!(buffer.gpu(), Gpu::Cuda(own) if Arc::ptr_eq(own.context(), stream.context())) {
            let expected = name(&Device::Cuda(device.clone()));
            return Err(Error::DeviceMismatch { expected, found: buffer.gpu().to_string() });
        }
        let len = buffer.len();
        let mut slice = buffer.into_cuda()?;
        // candle's stream waits for the launches that use the buffer.
        drop(slice.device_ptr_mut(&stream));
        let address = slice.leak();
        // SAFETY: the allocation is whole, of `len` numbers of `T`'s size, and nobody else's now; any bits are valid for `T`.
        let slice = unsafe { stream.upgrade_device_ptr::<T>(address, len) };
        Ok(CudaStorage::wrap_cuda_slice(slice, device.clone()))
    }
}

/// A kernel of yours as an operator of candle's, element by element: y\[i\] is computed from x\[i\], in f32.
///
/// On an NVIDIA GPU it works on candle's memory (open the GPU with [`gpu_of`]). With `Gpu::simulated()?` it works on tensors on
/// the CPU, so that a model with it can be tried on every machine.
///
/// It is a layer (`candle_core::Module`), and an operator: `x.apply_op1(op.clone())?`.
///
/// # Examples
/// ```
/// # fn main() -> gpulab::Result<()> {
/// use gpulab::prelude::*;
/// use gpulab_nn::{Device, KernelOp, Tensor};
/// # if gpulab::cuda::nvrtc_version().is_err() { return Ok(()) } // a kernel of one's own asks for a compiler
/// let square = r#"extern "C" __global__ void square(const float *x, float *y, int n) {
///     int i = blockIdx.x * blockDim.x + threadIdx.x;
///     if (i < n) { y[i] = x[i] * x[i]; }
/// }"#;
/// let square = KernelOp::new(&Gpu::simulated()?, square, "square")?;
/// let x = Tensor::new(&[1.0_f32, 2.0, 3.0], &Device::Cpu)?;
/// assert_eq!(x.apply(&square)?.to_vec1::<f32>()?, [1.0, 4.0, 9.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct KernelOp {
    gpu: Gpu,
    forward: Kernel,
    backward: Option<Kernel>,
}

const NAME: &str = "a kernel as an operator";
const THREADS: u32 = 256;

impl KernelOp {
    /// Compiles `extern "C" __global__ void name(const float *x, float *y, int n)`; it is launched with a thread for each of the
    /// n elements, in blocks of 256.
    ///
    /// # Errors
    /// Those of `Gpu::compile` and `Module::kernel`.
    pub fn new(gpu: &Gpu, source: impl Into<Source>, name: &str) -> Result<KernelOp> {
        Ok(KernelOp { gpu: gpu.clone(), forward: gpu.compile(source)?.kernel(name)?, backward: None })
    }

    /// Adds the backward pass, `extern "C" __global__ void name(const float *x, const float *dy, float *dx, int n)`: the gradient
    /// with respect to x, from x and the gradient with respect to y.
    ///
    /// # Errors
    /// As [`KernelOp::new`].
    pub fn with_backward(mut self, source: impl Into<Source>, name: &str) -> Result<KernelOp> {
        self.backward = Some(self.gpu.compile(source)?.kernel(name)?);
        Ok(self)
    }

    /// One element of `y` for each of the inputs'.
    fn launch(&self, kernel: &Kernel, inputs: &[&Buffer<f32>]) -> Result<Buffer<f32>> {
        let count = inputs[0].len();
        let n = i32::try_from(count).map_err(|_| {
            Error::invalid(format!("{count} elements do not fit into the kernel's `int n`"), "give it a smaller tensor")
        })?;
        let mut y = self.gpu.alloc::<f32>(count)?;
        let config = LaunchConfig::for_elements(count, THREADS);
        match inputs {
            [x] => kernel.launch(config, (*x, &mut y, n)),
            [x, dy] => kernel.launch(config, (*x, *dy, &mut y, n)),
            _ => unreachable!("an operator of one input, or its backward pass"),
        }?;
        Ok(y)
    }

    fn on_cpu(&self, kernel: &Kernel, inputs: &[(&CpuStorage, &Layout)]) -> Result<(CpuStorage, Shape)> {
        let mut lent = Vec::new();
        for (storage, layout) in inputs {
            let (start, end) = contiguous::<f32>(storage.dtype(), layout)?;
            if !matches!(self.gpu, Gpu::Simulated(_)) {
                return Err(elsewhere(&self.gpu, &Device::Cpu));
            }
            lent.push(self.gpu.to_device(&storage.as_slice::<f32>()?[start..end])?);
        }
        let y = self.launch(kernel, &lent.iter().collect::<Vec<_>>())?;
        Ok((CpuStorage::F32(y.to_host()?), inputs[0].1.shape().clone()))
    }

    #[cfg(gpulab_cuda)]
    fn on_cuda(
        &self,
        kernel: &Kernel,
        inputs: &[(&candle_core::CudaStorage, &Layout)],
    ) -> Result<(candle_core::CudaStorage, Shape)> {
        let lend =
            |(memory, layout): &(&candle_core::CudaStorage, &Layout)| lent_storage::<f32>(&self.gpu, memory, layout);
        let lent = inputs.iter().map(lend).collect::<Result<Vec<_>>>()?;
        let y = self.launch(kernel, &lent.iter().map(|buffer| &**buffer).collect::<Vec<_>>())?;
        let (memory, layout) = inputs[0];
        Ok((cuda::give::<f32>(y, &memory.device)?, layout.shape().clone()))
    }
}

/// candle hands back what it is given: of its variants this one keeps the error itself, and `?` gives it back.
pub(crate) fn in_candle(error: Error) -> candle_core::Error {
    candle_core::Error::Cuda(Box::new(error))
}

impl candle_core::Module for KernelOp {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        x.contiguous()?.apply_op1(self.clone())
    }
}

impl CustomOp1 for KernelOp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        self.on_cpu(&self.forward, &[(x, layout)]).map_err(in_candle)
    }

    #[cfg(gpulab_cuda)]
    fn cuda_fwd(
        &self,
        x: &candle_core::CudaStorage,
        layout: &Layout,
    ) -> candle_core::Result<(candle_core::CudaStorage, Shape)> {
        self.on_cuda(&self.forward, &[(x, layout)]).map_err(in_candle)
    }

    fn bwd(&self, x: &Tensor, _y: &Tensor, dy: &Tensor) -> candle_core::Result<Option<Tensor>> {
        let Some(kernel) = &self.backward else {
            return Err(in_candle(Error::unsupported(
                "this kernel has no backward pass, and a gradient through it is asked for",
                "give it one: `KernelOp::with_backward`",
            )));
        };
        x.apply_op2_no_bwd(&dy.contiguous()?, &Backward(self, kernel)).map(Some)
    }
}

struct Backward<'a>(&'a KernelOp, &'a Kernel);

impl CustomOp2 for Backward<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        dy: &CpuStorage,
        dy_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        self.0.on_cpu(self.1, &[(x, x_layout), (dy, dy_layout)]).map_err(in_candle)
    }

    #[cfg(gpulab_cuda)]
    fn cuda_fwd(
        &self,
        x: &candle_core::CudaStorage,
        x_layout: &Layout,
        dy: &candle_core::CudaStorage,
        dy_layout: &Layout,
    ) -> candle_core::Result<(candle_core::CudaStorage, Shape)> {
        self.0.on_cuda(self.1, &[(x, x_layout), (dy, dy_layout)]).map_err(in_candle)
    }
}

#[cfg(test)]
mod tests;
