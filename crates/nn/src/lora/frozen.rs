//! Frozen weights: a product with them passes the gradient on, and computes none for the weights.

use crate::buffers::in_candle;
use crate::quantize::{Nf4Matrix, WeightMatrix};
use candle_core::{CpuStorage, CudaStorage, CustomOp1, DType, Device, Layout, MetalStorage, Shape, Storage, Tensor};
use gpulab::error::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};

/// Outputs, or in the backward pass inputs, whose weights are unpacked at a time.
const PANEL: usize = 256;

/// A matrix `[outputs, inputs]` that no optimiser will change.
///
/// candle's `matmul` computes the gradients of both its arguments as soon as one of them has a history, and keeps them until the
/// backward pass has ended. [`FrozenWeight::product`] is an operator of its own: only the input's gradient is computed.
#[derive(Debug, Clone)]
pub enum FrozenWeight {
    /// F32, BF16 or F16; 16-bit weights are made f32 piece by piece when they are used.
    Dense(Tensor),
    /// Four bits, unpacked piece by piece when they are used: on the host, also for products on a GPU, the device named here.
    Nf4(Arc<Nf4Matrix>, Device),
}

/// How frozen weights are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// 4 bytes each.
    F32,
    /// 2 bytes each.
    Bf16,
    /// NF4 with double quantization: 4.127 bits each.
    Nf4,
}

impl Base {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Base::F32 => "f32",
            Base::Bf16 => "bf16",
            Base::Nf4 => "NF4",
        }
    }
}

impl FrozenWeight {
    /// Keeps a matrix `[outputs, inputs]` as `base` says; in F32 it is not copied.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is no matrix, or does not fit NF4 (rows of a multiple of 64); what candle says.
    pub fn new(weight: &Tensor, base: Base) -> Result<FrozenWeight> {
        let (_, inputs) = weight.dims2()?;
        // Without a history: a gradient would look for one.
        let weight = weight.detach();
        Ok(match base {
            Base::F32 => FrozenWeight::Dense(weight.to_dtype(DType::F32)?),
            Base::Bf16 => FrozenWeight::Dense(weight.to_dtype(DType::BF16)?),
            Base::Nf4 => {
                let values = weight.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
                let matrix = Nf4Matrix::new(WeightMatrix { values: &values, columns: inputs }, true)?;
                FrozenWeight::Nf4(Arc::new(matrix), weight.device().clone())
            }
        })
    }

    /// Outputs and inputs.
    pub fn shape(&self) -> [usize; 2] {
        match self {
            FrozenWeight::Dense(weight) => [weight.dims()[0], weight.dims()[1]],
            FrozenWeight::Nf4(matrix, _) => matrix.shape(),
        }
    }

    /// Bytes of the weights as kept.
    pub fn bytes(&self) -> usize {
        match self {
            FrozenWeight::Dense(weight) => weight.elem_count() * weight.dtype().size_in_bytes(),
            FrozenWeight::Nf4(matrix, _) => matrix.bytes(),
        }
    }

    /// All of it in f32, on `like`'s device.
    ///
    /// # Errors
    /// What candle says.
    pub fn dense(&self, like: &Tensor) -> Result<Tensor> {
        Ok(match self {
            FrozenWeight::Dense(weight) => weight.to_dtype(DType::F32)?,
            FrozenWeight::Nf4(matrix, _) => {
                let [outputs, inputs] = matrix.shape();
                Tensor::from_vec(matrix.unpack(0..outputs, 0..inputs), (outputs, inputs), like.device())?
            }
        })
    }

    /// x · weightᵀ over the last axis of `x`, with a backward pass: dx = dy · weight.
    ///
    /// # Errors
    /// What candle says, of shapes that do not fit above all.
    pub fn product(&self, x: &Tensor) -> Result<Tensor> {
        let [outputs, inputs] = self.shape();
        let mut shape = x.dims().to_vec();
        let last = shape.last_mut().filter(|last| **last == inputs).ok_or_else(|| {
            Error::invalid(
                format!("{:?} goes into a matrix with {inputs} inputs", x.dims()),
                "give a tensor whose last axis has as many",
            )
        })?;
        *last = outputs;
        let rows = x.reshape(((), inputs))?.contiguous()?;
        let y = self.forward(&rows.detach())?;
        let weight = self.clone();
        let y = with_backward(&rows, y, move |_, _, dy| weight.backward(dy))?;
        Ok(y.reshape(shape)?)
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [outputs, inputs] = self.shape();
        if let Some(weight) = self.as_f32() {
            return Ok(x.matmul(&weight.t()?)?);
        }
        let panel = |first: usize| -> Result<Tensor> {
            let count = PANEL.min(outputs - first);
            let weights = match self {
                FrozenWeight::Dense(weight) => weight.narrow(0, first, count)?.to_dtype(DType::F32)?,
                FrozenWeight::Nf4(matrix, _) => {
                    Tensor::from_vec(matrix.unpack(first..first + count, 0..inputs), (count, inputs), x.device())?
                }
            };
            Ok(x.matmul(&weights.t()?)?)
        };
        let parts = (0..outputs).step_by(PANEL).map(panel).collect::<Result<Vec<Tensor>>>()?;
        Ok(Tensor::cat(&parts, 1)?)
    }

    /// dy · weight: the inputs' gradient, and no other.
    fn backward(&self, dy: &Tensor) -> Result<Tensor> {
        let [outputs, inputs] = self.shape();
        let dy = dy.contiguous()?;
        if let Some(weight) = self.as_f32() {
            return Ok(dy.matmul(weight)?);
        }
        let panel = |first: usize| -> Result<Tensor> {
            let count = PANEL.min(inputs - first);
            let weights = match self {
                FrozenWeight::Dense(weight) => weight.narrow(1, first, count)?.to_dtype(DType::F32)?.contiguous()?,
                FrozenWeight::Nf4(matrix, _) => {
                    Tensor::from_vec(matrix.unpack(0..outputs, first..first + count), (outputs, count), dy.device())?
                }
            };
            Ok(dy.matmul(&weights)?)
        };
        let parts = (0..inputs).step_by(PANEL).map(panel).collect::<Result<Vec<Tensor>>>()?;
        Ok(Tensor::cat(&parts, 1)?)
    }

    fn as_f32(&self) -> Option<&Tensor> {
        match self {
            FrozenWeight::Dense(weight) if weight.dtype() == DType::F32 => Some(weight),
            _ => None,
        }
    }

    /// The tensor that it is, where it is one.
    pub(super) fn tensor(&self) -> Option<&Tensor> {
        match self {
            FrozenWeight::Dense(weight) => Some(weight),
            FrozenWeight::Nf4(..) => None,
        }
    }

    /// Where products with it are made.
    pub fn device(&self) -> &Device {
        match self {
            FrozenWeight::Dense(weight) => weight.device(),
            FrozenWeight::Nf4(_, device) => device,
        }
    }
}

// ----------------------------------------------------------------------
// Operators with a backward pass of their own.

/// Gives `y`, which was computed from `x.detach()` by any means, a place in the graph behind `x`: `backward` makes the gradient of `x`
/// from x, y and the gradient of y.
///
/// So candle's fast operators can be trained through, which cut the gradient otherwise (`apply_op1_no_bwd` and its like: `QMatMul`,
/// `rms_norm`, `rope_i`, `softmax_last_dim`), and what needs no gradient gets none.
///
/// # Errors
/// What candle says.
///
/// ```
/// # use gpulab_nn::{lora::with_backward, Device, Tensor, candle_core::Var};
/// let x = Var::new(&[1.0_f32, 2.0], &Device::Cpu)?;
/// let y = x.as_detached_tensor().sqr()?;
/// let y = with_backward(x.as_tensor(), y, |x, _, dy| Ok(((x * 2.0)? * dy)?))?;
/// let gradients = y.sum_all()?.backward()?;
/// assert_eq!(gradients.get(&x).unwrap().to_vec1::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), gpulab::Error>(())
/// ```
pub fn with_backward(
    x: &Tensor,
    y: Tensor,
    backward: impl Fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Tensor> {
    let y = Mutex::new(Some(y.contiguous()?.detach()));
    Ok(x.apply_op1(Known { y, backward: Box::new(backward) })?)
}

type Backward = dyn Fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor> + Send + Sync;

/// Its forward pass hands out what is known already.
struct Known {
    /// Taken out by the forward pass: the graph keeps this operator, and would keep a second copy of the result with it.
    y: Mutex<Option<Tensor>>,
    backward: Box<Backward>,
}

impl Known {
    fn take(&self) -> candle_core::Result<(Storage, Shape)> {
        let y =
            self.y.lock().unwrap_or_else(PoisonError::into_inner).take().expect("candle calls the forward pass once");
        let (storage, layout) = y.storage_and_layout();
        Ok((storage.try_clone(layout)?, y.shape().clone()))
    }
}

const ON_ONE_DEVICE: &str = "a result lies where it was computed, and its argument as well";

impl CustomOp1 for Known {
    fn name(&self) -> &'static str {
        "an operator with a backward pass of its own"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let (Storage::Cpu(storage), shape) = self.take()? else { panic!("{ON_ONE_DEVICE}") };
        Ok((storage, shape))
    }

    fn cuda_fwd(&self, _: &CudaStorage, _: &Layout) -> candle_core::Result<(CudaStorage, Shape)> {
        let (Storage::Cuda(storage), shape) = self.take()? else { panic!("{ON_ONE_DEVICE}") };
        Ok((storage, shape))
    }

    fn metal_fwd(&self, _: &MetalStorage, _: &Layout) -> candle_core::Result<(MetalStorage, Shape)> {
        let (Storage::Metal(storage), shape) = self.take()? else { panic!("{ON_ONE_DEVICE}") };
        Ok((storage, shape))
    }

    fn bwd(&self, x: &Tensor, y: &Tensor, dy: &Tensor) -> candle_core::Result<Option<Tensor>> {
        // Without `detach` the gradient would get a history of its own, back to the parameters.
        (self.backward)(&x.detach(), &y.detach(), dy).map(Some).map_err(in_candle)
    }
}
