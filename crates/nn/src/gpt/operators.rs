//! What candle's own operators cost most in a training step of GPT-2, as operators of candle's on the course's kernels.

use crate::flash::FlashOp;
use crate::operator::{Memory, Operator, Pass, before_forward, given, lent, product, product_of};
use candle_core::op::ReduceOp;
use candle_core::{Layout, Shape, Tensor};
use gpulab::cpu::AttentionShape;
use gpulab::error::{Error, Result, same_length};
use gpulab::gpu::{Buffer, Gpu};
use gpulab_kernels::gpt_step::{GptOperators, GptShape};
use gpulab_kernels::topics::{BackwardInputs, FlashBackward};
use half::bf16;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Layer norm, linear layers, attention and cross-entropy with both passes, for models of one shape: activations and matrices are bf16,
/// rows of a token each, scales, shifts and biases f32. Their gradients come in the same numbers. Products are candle's.
///
/// On an NVIDIA GPU from Ampere on they work on candle's memory (open the GPU with [`gpu_of`](crate::gpu_of)), with
/// `Gpu::simulated()?` on tensors on the CPU, slowly: to try a model.
///
/// ```
/// # fn main() -> gpulab::Result<()> {
/// use gpulab::prelude::*;
/// use gpulab_kernels::gpt_step::GptShape;
/// use gpulab_nn::{DType, Device, Tensor, candle_core::Var, gpt::CandleOperators};
/// # if gpulab::cuda::nvrtc_version().is_err() { return Ok(()) }
/// let shape = GptShape { layers: 1, heads: 1, vocabulary: 9, context: 5 };
/// let operators = CandleOperators::new(&Gpu::simulated()?, shape)?;
/// let x = Var::randn(0.0_f32, 1.0, (3, shape.width()), &Device::Cpu)?;
/// let factors = Var::from_tensor(&Tensor::ones((2, shape.width()), DType::F32, &Device::Cpu)?)?; // scales, then shifts
/// let y = operators.norm(&x.to_dtype(DType::BF16)?, &factors)?;
/// let gradients = y.to_dtype(DType::F32)?.sum_all()?.backward()?;
/// assert_eq!(gradients.get(&factors).expect("it has one").to_vec2::<f32>()?[1], vec![3.0; shape.width()]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct CandleOperators {
    kernels: Arc<GptOperators>,
    flash: FlashOp,
}

impl CandleOperators {
    /// Compiles the kernels, and checks attention's against f64.
    ///
    /// # Errors
    /// Those of [`GptOperators::new`] and [`FlashOp::new`].
    pub fn new(gpu: &Gpu, shape: GptShape) -> Result<CandleOperators> {
        let rung = match (gpu, gpu.compute_capability()?) {
            (Gpu::Simulated(_), _) => "flash_backward/01_row_a_warp",
            (_, (9, 0)) => "flash_backward/06_warp_specialised",
            _ => "flash_backward/04_async_copies",
        };
        Ok(CandleOperators {
            kernels: Arc::new(GptOperators::new(gpu, shape)?),
            flash: FlashOp::new(gpu, rung, GptShape::HEAD, true)?,
        })
    }

    /// The kernels.
    pub fn kernels(&self) -> &Arc<GptOperators> {
        &self.kernels
    }

    /// Layer norm of `x`, `[rows, width]`; `factors`, `[2, width]`, are the scales, then the shifts.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] for other shapes, [`Error::TensorType`] for other numbers, [`Error::DeviceMismatch`], and what
    /// candle says: these are the errors of all operators here.
    pub fn norm(&self, x: &Tensor, factors: &Tensor) -> Result<Tensor> {
        let norm = Norm { kernels: self.kernels.clone(), stats: Mutex::default() };
        Ok(x.contiguous()?.apply_op2(&factors.contiguous()?, Operator(norm))?)
    }

    /// `x · weightᵀ + bias` of `x`, `[rows, inputs]`, with a weight of `[outputs, inputs]`.
    ///
    /// # Errors
    /// As [`CandleOperators::norm`].
    pub fn linear(&self, x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
        self.linear_with(x, weight, bias, None)
    }

    /// GELU, in its tanh form, of the same.
    ///
    /// # Errors
    /// As [`CandleOperators::norm`].
    pub fn linear_gelu(&self, x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
        self.linear_with(x, weight, bias, Some(Mutex::default()))
    }

    fn linear_with(&self, x: &Tensor, weight: &Tensor, bias: &Tensor, gelu: Option<Kept<Tensor>>) -> Result<Tensor> {
        let ((_, inputs), (outputs, expected)) = (x.dims2()?, weight.dims2()?);
        same_length("inputs of a linear layer", expected, inputs)?;
        same_length("its bias", outputs, bias.elem_count())?;
        let linear = Linear { kernels: self.kernels.clone(), gelu };
        Ok(x.contiguous()?.apply_op3(&weight.contiguous()?, &bias.contiguous()?, Operator(linear))?)
    }

    /// Causal attention of texts of `length` tokens, one behind the other: from rows of q, k and v, `[rows, 3 · width]`, each with its
    /// heads beside each other, to `[rows, width]`. It is [`FlashOp`] on another order.
    ///
    /// # Errors
    /// As [`CandleOperators::norm`]; [`Error::Invalid`] for texts that are longer than the context.
    pub fn attend(&self, qkv: &Tensor, length: usize) -> Result<Tensor> {
        qkv.dims2()?;
        let attention = Attention {
            kernels: self.kernels.clone(),
            flash: self.flash.kernels().clone(),
            length,
            kept: Mutex::default(),
        };
        Ok(qkv.contiguous()?.apply_op1(Operator(attention))?)
    }

    /// The loss of `x`, `[rows, width]`, by the logits `x · tableᵀ`: the sum over all rows of the cross-entropy in nats, times
    /// `share`, such as 1 ÷ rows; a number in f32. The table is `[`[`GptShape::rows`]`, width]`, and rows beyond the vocabulary count as
    /// no token; `targets`, `[rows]`, are i32; one that is none of the vocabulary's tokens makes the loss and its row's
    /// gradient NaN.
    ///
    /// The logits' gradient is computed beside the loss, in the logits' place, so nothing else of their size is stored. What comes
    /// into the backward pass is rounded to bf16, so let `share` be the weight, and the loss the end of the graph.
    ///
    /// # Errors
    /// As [`CandleOperators::norm`].
    pub fn cross_entropy(&self, x: &Tensor, table: &Tensor, targets: &Tensor, share: f32) -> Result<Tensor> {
        matrices(x, table)?;
        let end = CrossEntropy { kernels: self.kernels.clone(), share: Some(share), d_logits: Mutex::default() };
        Ok(x.contiguous()?.apply_op3(&table.contiguous()?, targets, Operator(end))?)
    }

    /// The cross-entropy of each row, `[rows]` in f32, without a gradient.
    ///
    /// # Errors
    /// As [`CandleOperators::norm`].
    pub fn losses(&self, x: &Tensor, table: &Tensor, targets: &Tensor) -> Result<Tensor> {
        matrices(x, table)?;
        let end = CrossEntropy { kernels: self.kernels.clone(), share: None, d_logits: Mutex::default() };
        Ok(x.contiguous()?.apply_op3_no_bwd(&table.contiguous()?, targets, &Operator(end))?)
    }
}

/// Rows, and a table of rows as wide.
fn matrices(x: &Tensor, table: &Tensor) -> Result<()> {
    let ((_, given), (_, expected)) = (x.dims2()?, table.dims2()?);
    same_length("rows of a cross-entropy", expected, given)
}

/// What a forward pass leaves for the backward pass.
type Kept<T> = Mutex<Option<T>>;

fn kept<T>(from: &Kept<T>) -> MutexGuard<'_, Option<T>> {
    from.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Norm {
    kernels: Arc<GptOperators>,
    stats: Kept<Buffer<f32>>,
}

impl Pass<2> for Norm {
    const NAME: &'static str = "layer norm";

    fn forward<M: Memory>(&self, [(x, layout), (factors, of_factors)]: [(&M, &Layout); 2]) -> Result<(M, Shape)> {
        let gpu = self.kernels.gpu();
        let (lent, factors) = (x.lend::<bf16>(gpu, layout)?, factors.lend::<f32>(gpu, of_factors)?);
        let (normed, stats) = self.kernels.norm(&lent, &factors)?;
        *kept(&self.stats) = Some(stats);
        Ok((M::give::<bf16>(normed, x.device())?, layout.shape().clone()))
    }

    fn backward(&self, [x, factors]: [&Tensor; 2], _y: &Tensor, dy: &Tensor) -> Result<[Option<Tensor>; 2]> {
        let gpu = self.kernels.gpu();
        let (dy, lent_x, lent_factors) = (lent::<bf16>(gpu, dy)?, lent::<bf16>(gpu, x)?, lent::<f32>(gpu, factors)?);
        let stats = kept(&self.stats);
        let stats = stats.as_ref().ok_or_else(before_forward)?;
        let (dx, d_factors) = self.kernels.norm_backward(&dy, &lent_x, stats, &lent_factors)?;
        let dx = given::<bf16>(dx, x.shape(), x.device())?;
        Ok([Some(dx), Some(given::<f32>(d_factors, factors.shape(), x.device())?)])
    }
}

struct Linear {
    kernels: Arc<GptOperators>,
    /// With GELU: the product before its bias, which the backward pass reads.
    gelu: Option<Kept<Tensor>>,
}

impl Pass<3> for Linear {
    const NAME: &'static str = "a linear layer";

    fn forward<M: Memory>(
        &self,
        [(x, of_x), (weight, of_weight), (bias, of_bias)]: [(&M, &Layout); 3],
    ) -> Result<(M, Shape)> {
        let gpu = self.kernels.gpu();
        let h = product_of((x, of_x), (weight, &of_weight.transpose(0, 1)?))?;
        let layout = Layout::contiguous((of_x.dims()[0], of_weight.dims()[0]));
        let bias = bias.lend::<f32>(gpu, of_bias)?;
        let y = match &self.gelu {
            None => h.changed::<bf16>(gpu, layout.shape().elem_count(), |y| self.kernels.add_bias(y, &bias))?,
            Some(keeps) => {
                let g = self.kernels.gelu(&*h.lend::<bf16>(gpu, &layout)?, &bias)?;
                *kept(keeps) = Some(h.tensor(layout.shape().clone()));
                M::give::<bf16>(g, x.device())?
            }
        };
        Ok((y, layout.shape().clone()))
    }

    fn backward(&self, [x, weight, bias]: [&Tensor; 3], _y: &Tensor, dy: &Tensor) -> Result<[Option<Tensor>; 3]> {
        let gpu = self.kernels.gpu();
        let lent_dy = lent::<bf16>(gpu, dy)?;
        let (d, d_bias) = match &self.gelu {
            None => (dy.clone(), self.kernels.column_sums(&lent_dy, bias.elem_count())?),
            Some(h) => {
                let h = kept(h);
                let h = h.as_ref().ok_or_else(before_forward)?;
                let (h, bias) = (lent::<bf16>(gpu, h)?, lent::<f32>(gpu, bias)?);
                let (d, d_bias) = self.kernels.gelu_backward(&lent_dy, &h, &bias)?;
                (given::<bf16>(d, dy.shape(), dy.device())?, d_bias)
            }
        };
        let d_bias = given::<f32>(d_bias, bias.shape(), dy.device())?;
        let (x, weight) = (x.detach(), weight.detach());
        Ok([Some(product(&d, &weight)?), Some(product(&d.t()?, &x)?), Some(d_bias)])
    }
}

struct Attention {
    kernels: Arc<GptOperators>,
    flash: Arc<FlashBackward>,
    length: usize,
    kept: Kept<Heads>,
}

/// q, k, v and the result in heads, and the log-sum-exp of each query.
struct Heads {
    qkv: [Buffer<u16>; 3],
    o: Buffer<u16>,
    lse: Buffer<f32>,
}

impl Attention {
    fn shape(&self, rows: usize) -> AttentionShape {
        let heads = self.kernels.shape().heads;
        let batch = rows / self.length;
        AttentionShape { batch, q_heads: heads, kv_heads: heads, length: self.length, width: GptShape::HEAD }
    }
}

impl Pass<1> for Attention {
    const NAME: &'static str = "flash attention of rows";

    fn forward<M: Memory>(&self, [(qkv, layout)]: [(&M, &Layout); 1]) -> Result<(M, Shape)> {
        let (kernels, rows) = (&self.kernels, layout.dims()[0]);
        let [q, k, v] = kernels.to_heads(&*qkv.lend::<bf16>(kernels.gpu(), layout)?, self.length)?;
        let (o, lse) = self.flash.forward([&q, &k, &v], self.shape(rows))?;
        let y = M::give::<bf16>(kernels.gather(&o, self.length)?, qkv.device())?;
        *kept(&self.kept) = Some(Heads { qkv: [q, k, v], o, lse });
        Ok((y, (rows, kernels.shape().width()).into()))
    }

    fn backward(&self, [qkv]: [&Tensor; 1], _y: &Tensor, dy: &Tensor) -> Result<[Option<Tensor>; 1]> {
        let kernels = &self.kernels;
        let heads = kept(&self.kept);
        let Heads { qkv: [q, k, v], o, lse } = heads.as_ref().ok_or_else(before_forward)?;
        let d_o = kernels.scatter(&*lent::<bf16>(kernels.gpu(), dy)?, self.length)?;
        let inputs = BackwardInputs { q, k, v, o, d_o: &d_o, lse };
        let [dq, dk, dv] = self.flash.gradients(inputs, self.shape(qkv.dim(0)?))?;
        let d_qkv = kernels.from_heads([&dq, &dk, &dv], self.length)?;
        Ok([Some(given::<bf16>(d_qkv, qkv.shape(), qkv.device())?)])
    }
}

struct CrossEntropy {
    kernels: Arc<GptOperators>,
    /// What a row's loss is multiplied by in the sum of all; else no sum is asked for.
    share: Option<f32>,
    d_logits: Kept<Tensor>,
}

impl Pass<3> for CrossEntropy {
    const NAME: &'static str = "cross-entropy";

    fn forward<M: Memory>(
        &self,
        [(x, of_x), (table, of_table), (targets, of_targets)]: [(&M, &Layout); 3],
    ) -> Result<(M, Shape)> {
        let gpu = self.kernels.gpu();
        let targets = targets.lend::<i32>(gpu, of_targets)?;
        let shape = Shape::from((of_x.dims()[0], of_table.dims()[0]));
        let (share, mut losses) = (self.share.unwrap_or(1.0), None);
        let logits = product_of((x, of_x), (table, &of_table.transpose(0, 1)?))?;
        let d_logits = logits.changed::<bf16>(gpu, shape.elem_count(), |logits| {
            losses = Some(self.kernels.cross_entropy(logits, &targets, share)?);
            Ok(())
        })?;
        let rows = Layout::contiguous(shape.dims()[0]);
        let losses = M::give::<f32>(losses.ok_or_else(before_forward)?, x.device())?;
        if self.share.is_none() {
            return Ok((losses, rows.shape().clone()));
        }
        *kept(&self.d_logits) = Some(d_logits.tensor(shape));
        let sum = losses.reduce_op(ReduceOp::Sum, &rows, &[0])?;
        Ok((sum.affine(&Layout::contiguous(()), f64::from(share), 0.0)?, Shape::from(())))
    }

    fn backward(&self, [x, table, _]: [&Tensor; 3], _y: &Tensor, dy: &Tensor) -> Result<[Option<Tensor>; 3]> {
        // Given away, so that the largest array of a step is free for the rest of the backward pass.
        let d_logits = kept(&self.d_logits).take().ok_or_else(|| {
            Error::invalid(
                "a second backward pass of a cross-entropy, whose first has given the logits' memory back",
                "compute the loss again",
            )
        })?;
        let dy = dy.to_dtype(x.dtype())?;
        let dx = product(&d_logits, &table.detach())?.broadcast_mul(&dy)?;
        let d_table = product(&d_logits.t()?, &x.detach().broadcast_mul(&dy)?)?;
        Ok([Some(dx), Some(d_table), None])
    }
}

#[cfg(test)]
mod tests;
