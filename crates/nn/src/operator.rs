//! Operators of candle's whose passes launch kernels: written once, for candle's memory on a GPU, where nothing is copied, and for
//! tensors on the CPU, whose numbers go into a simulated GPU and back.

use crate::buffers::{TensorBuffer, TensorElement, as_buffer, contiguous, elsewhere, in_candle, into_tensor};
use candle_core::backend::{BackendDevice, BackendStorage};
use candle_core::op::BackpropOp;
use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, CustomOp3, DType, Device, DeviceLocation, Layout, Shape, Storage, Tensor,
};
use gpulab::error::{Error, Result, same_length};
use gpulab::gpu::{Buffer, Gpu};
use std::ops::Deref;

/// What an operator of N inputs computes.
pub(crate) trait Pass<const N: usize>: Send + Sync + 'static {
    /// Its name in candle's errors.
    const NAME: &'static str;

    /// The result.
    fn forward<M: Memory>(&self, inputs: [(&M, &Layout); N]) -> Result<(M, Shape)>;

    /// The gradients of the inputs, where they have one, from the inputs, the result, and its gradient, which is contiguous.
    fn backward(&self, inputs: [&Tensor; N], y: &Tensor, dy: &Tensor) -> Result<[Option<Tensor>; N]>;
}

/// A [`Pass`] as candle takes it.
pub(crate) struct Operator<P>(pub P);

macro_rules! operator {
    ($operator:ident, $n:literal, $gradients:ty, $($input:ident $layout:ident),*) => {
        impl<P: Pass<$n>> $operator for Operator<P> {
            fn name(&self) -> &'static str {
                P::NAME
            }

            fn cpu_fwd(&self, $($input: &CpuStorage, $layout: &Layout),*) -> candle_core::Result<(CpuStorage, Shape)> {
                self.0.forward([$(($input, $layout)),*]).map_err(in_candle)
            }

            #[cfg(gpulab_cuda)]
            fn cuda_fwd(
                &self,
                $($input: &candle_core::CudaStorage, $layout: &Layout),*
            ) -> candle_core::Result<(candle_core::CudaStorage, Shape)> {
                self.0.forward([$(($input, $layout)),*]).map_err(in_candle)
            }

            fn bwd(&self, $($input: &Tensor,)* y: &Tensor, dy: &Tensor) -> candle_core::Result<$gradients> {
                let [$($input),*] = self.0.backward([$($input),*], y, &dy.contiguous()?).map_err(in_candle)?;
                Ok(($($input),*))
            }
        }
    };
}
type Gradient = Option<Tensor>;
operator!(CustomOp1, 1, Gradient, a a_layout);
operator!(CustomOp2, 2, (Gradient, Gradient), a a_layout, b b_layout);
operator!(CustomOp3, 3, (Gradient, Gradient, Gradient), a a_layout, b b_layout, c c_layout);

/// What to say where the forward pass has left nothing.
pub(crate) fn before_forward() -> Error {
    Error::invalid("a backward pass of an operator before its forward pass", "take the gradient of its result")
}

// ----------------------------------------------------------------------
// Memory.

/// Numbers on the kernels' GPU, to read: candle's own memory, or a copy of it in the simulator.
pub(crate) enum Lent<'a, T: TensorElement> {
    Tensor(TensorBuffer<'a, T>),
    Copy(Buffer<T::Stored>),
}

impl<T: TensorElement> Deref for Lent<'_, T> {
    type Target = Buffer<T::Stored>;

    fn deref(&self) -> &Buffer<T::Stored> {
        match self {
            Lent::Tensor(buffer) => buffer,
            Lent::Copy(buffer) => buffer,
        }
    }
}

/// The memory of candle's tensors on one of its devices.
pub(crate) trait Memory: BackendStorage {
    /// To read, until the operator returns. Errors are those of [`as_buffer`].
    fn lend<T: TensorElement>(&self, gpu: &Gpu, layout: &Layout) -> Result<Lent<'static, T>>;

    /// A buffer as candle's own memory. Errors are those of [`into_tensor`].
    fn give<T: TensorElement>(buffer: Buffer<T::Stored>, device: &Self::Device) -> Result<Self>;

    /// Lets kernels write into memory that is nobody else's yet, all of it.
    fn changed<T: TensorElement>(
        self,
        gpu: &Gpu,
        len: usize,
        kernels: impl FnOnce(&mut Buffer<T::Stored>) -> Result<()>,
    ) -> Result<Self>;

    /// As a tensor without a gradient.
    fn tensor(self, shape: impl Into<Shape>) -> Tensor;
}

impl Memory for CpuStorage {
    fn lend<T: TensorElement>(&self, gpu: &Gpu, layout: &Layout) -> Result<Lent<'static, T>> {
        let (start, end) = contiguous::<T>(self.dtype(), layout)?;
        if !matches!(gpu, Gpu::Simulated(_)) {
            return Err(elsewhere(gpu, &Device::Cpu));
        }
        let numbers = &self.as_slice::<T>()?[start..end];
        Ok(Lent::Copy(gpu.to_device(&numbers.iter().map(|x| x.stored()).collect::<Vec<_>>())?))
    }

    fn give<T: TensorElement>(buffer: Buffer<T::Stored>, _: &Self::Device) -> Result<CpuStorage> {
        Ok(T::to_cpu_storage_owned(numbers::<T>(&buffer)?))
    }

    fn changed<T: TensorElement>(
        self,
        gpu: &Gpu,
        len: usize,
        kernels: impl FnOnce(&mut Buffer<T::Stored>) -> Result<()>,
    ) -> Result<CpuStorage> {
        let Lent::Copy(mut copy) = self.lend::<T>(gpu, &Layout::contiguous(len))? else {
            unreachable!("a tensor on the CPU is copied into the simulator")
        };
        kernels(&mut copy)?;
        Self::give::<T>(copy, self.device())
    }

    fn tensor(self, shape: impl Into<Shape>) -> Tensor {
        Tensor::from_storage(Storage::Cpu(self), shape, BackpropOp::none(), false)
    }
}

#[cfg(gpulab_cuda)]
impl Memory for candle_core::CudaStorage {
    fn lend<T: TensorElement>(&self, gpu: &Gpu, layout: &Layout) -> Result<Lent<'static, T>> {
        Ok(Lent::Tensor(crate::buffers::lent_storage::<T>(gpu, self, layout)?))
    }

    fn give<T: TensorElement>(buffer: Buffer<T::Stored>, device: &Self::Device) -> Result<Self> {
        crate::buffers::given_storage::<T>(buffer, device)
    }

    fn changed<T: TensorElement>(
        self,
        gpu: &Gpu,
        len: usize,
        kernels: impl FnOnce(&mut Buffer<T::Stored>) -> Result<()>,
    ) -> Result<Self> {
        kernels(crate::buffers::lent_storage::<T>(gpu, &self, &Layout::contiguous(len))?.buffer_mut())?;
        Ok(self)
    }

    fn tensor(self, shape: impl Into<Shape>) -> Tensor {
        Tensor::from_storage(Storage::Cuda(self), shape, BackpropOp::none(), false)
    }
}

fn numbers<T: TensorElement>(buffer: &Buffer<T::Stored>) -> Result<Vec<T>> {
    Ok(buffer.to_host()?.into_iter().map(T::loaded).collect())
}

/// A tensor's numbers, to read: [`as_buffer`], or a copy of them in the simulator.
pub(crate) fn lent<'a, T: TensorElement>(gpu: &Gpu, tensor: &'a Tensor) -> Result<Lent<'a, T>> {
    let (storage, layout) = tensor.storage_and_layout();
    if let (Gpu::Simulated(_), Storage::Cpu(memory)) = (gpu, &*storage) {
        return memory.lend::<T>(gpu, layout);
    }
    drop(storage);
    Ok(Lent::Tensor(as_buffer(gpu, tensor)?))
}

/// A buffer as a tensor without a gradient: [`into_tensor`], and from the simulator to the CPU.
pub(crate) fn given<T: TensorElement>(
    buffer: Buffer<T::Stored>,
    shape: impl Into<Shape>,
    device: &Device,
) -> Result<Tensor> {
    match (device, buffer.gpu()) {
        (Device::Cpu, Gpu::Simulated(_)) => Ok(Tensor::from_vec(numbers::<T>(&buffer)?, shape.into(), device)?),
        _ => into_tensor::<T>(buffer, shape, device),
    }
}

// ----------------------------------------------------------------------
// Products.

/// `a · b` by candle. It has no product in bf16 on a CPU: it is computed in f32 and rounded, as a tensor core keeps its sums in f32.
pub(crate) fn product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.dtype() == DType::BF16 && a.device().is_cpu() {
        return Ok(a.to_dtype(DType::F32)?.matmul(&b.to_dtype(DType::F32)?)?.to_dtype(DType::BF16)?);
    }
    Ok(a.matmul(b)?)
}

/// The same of two matrices within an operator: `[m, k]` · `[k, n]`.
pub(crate) fn product_of<M: Memory>((a, a_layout): (&M, &Layout), (b, b_layout): (&M, &Layout)) -> Result<M> {
    let ([m, k], [inner, n]) = (a_layout.dims(), b_layout.dims()) else { unreachable!("two matrices were asked for") };
    same_length("a product's inner side", *k, *inner)?;
    let sides = (1, *m, *n, *k);
    if a.dtype() != DType::BF16 || a.device().location() != DeviceLocation::Cpu {
        return Ok(a.matmul(b, sides, a_layout, b_layout)?);
    }
    let (wide_a, wide_b) = (a.to_dtype(a_layout, DType::F32)?, b.to_dtype(b_layout, DType::F32)?);
    let [a_layout, b_layout] = [a_layout, b_layout].map(|layout| Layout::contiguous(layout.shape().clone()));
    Ok(wide_a.matmul(&wide_b, sides, &a_layout, &b_layout)?.to_dtype(&Layout::contiguous((*m, *n)), DType::BF16)?)
}
