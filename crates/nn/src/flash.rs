//! Flash attention as an operator of candle's: both passes are the course's kernels.

use crate::operator::{Memory, Operator, Pass, before_forward, given, lent};
use candle_core::{D, Layout, Shape, Tensor};
use gpulab::cpu::AttentionShape;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu};
use gpulab_kernels::topics::{BackwardInputs, FlashBackward};
use half::bf16;
use std::sync::{Arc, Mutex, PoisonError};

/// `softmax(q · kᵀ / √width) · v` of tensors in bf16 with a gradient, in one pass forward and one backward: no weight is ever stored, only
/// the log-sum-exp of each query is kept for the backward pass.
///
/// On an NVIDIA GPU it works on candle's memory (open the GPU with [`gpu_of`](crate::gpu_of)). With `Gpu::simulated()?` it
/// works on tensors on the CPU, slowly: to try a model. [`plain_attention`] computes the same with candle's own operators.
///
/// ```
/// # fn main() -> gpulab::Result<()> {
/// use gpulab::prelude::*;
/// use gpulab_nn::{DType, Device, FlashOp, Tensor, candle_core::Var};
/// # if gpulab::cuda::nvrtc_version().is_err() { return Ok(()) }
/// let flash = FlashOp::new(&Gpu::simulated()?, "flash_backward/01_row_a_warp", 64, true)?;
/// let x = Var::from_tensor(&Tensor::ones((1, 2, 3, 64), DType::BF16, &Device::Cpu)?)?;
/// let y = flash.attend(&x, &x, &x)?;
/// let gradients = y.to_dtype(DType::F32)?.sum_all()?.backward()?;
/// assert_eq!(gradients.get(&x).expect("x has one").dims(), [1, 2, 3, 64]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct FlashOp {
    kernels: Arc<FlashBackward>,
}

impl FlashOp {
    /// The rung of that path takes the backward pass, such as `flash_backward/04_async_copies`, of heads of `width` numbers; it is
    /// checked against f64. With `causal` no query sees a key behind it.
    ///
    /// # Errors
    /// As [`FlashBackward::with`].
    pub fn new(gpu: &Gpu, rung: &str, width: usize, causal: bool) -> Result<FlashOp> {
        Ok(FlashOp { kernels: Arc::new(FlashBackward::with(gpu, rung, causal, width, &[])?) })
    }

    /// Both passes, for an operator that has q, k and v in another order.
    pub(crate) fn kernels(&self) -> &Arc<FlashBackward> {
        &self.kernels
    }

    /// The result, `[batch, q_heads, length, width]` as `q`; `k` and `v` are `[batch, kv_heads, length, width]`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for shapes that do not fit together, [`Error::TensorType`] for other numbers than bf16,
    /// [`Error::DeviceMismatch`], and what candle says.
    pub fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let shape = shape_of(q, k, v)?;
        let call = Call { kernels: self.kernels.clone(), shape, lse: Mutex::new(None) };
        Ok(q.contiguous()?.apply_op3(&k.contiguous()?, &v.contiguous()?, Operator(call))?)
    }
}

/// The same by candle's own operators, in whatever numbers the tensors hold: it stores all weights, for its backward pass too.
///
/// # Errors
/// [`Error::Invalid`] for shapes that do not fit together, and what candle says.
pub fn plain_attention(q: &Tensor, k: &Tensor, v: &Tensor, causal: bool) -> Result<Tensor> {
    let AttentionShape { batch, q_heads, kv_heads, length, width } = shape_of(q, k, v)?;
    let shared = |x: &Tensor| -> Result<Tensor> {
        let grouped = x.unsqueeze(2)?.broadcast_as((batch, kv_heads, q_heads / kv_heads, length, width))?;
        Ok(grouped.contiguous()?.reshape((batch, q_heads, length, width))?)
    };
    let scores = (q.contiguous()?.matmul(&shared(k)?.transpose(2, 3)?.contiguous()?)? / (width as f64).sqrt())?;
    let scores = match causal {
        false => scores,
        true => {
            let hidden = (0..length * length).map(|at| if at % length > at / length { f32::NEG_INFINITY } else { 0.0 });
            let hidden = Tensor::from_iter(hidden, q.device())?.reshape((length, length))?.to_dtype(q.dtype())?;
            scores.broadcast_add(&hidden)?
        }
    };
    // Of its operations each has a backward pass; `softmax_last_dim` has none.
    Ok(candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&shared(v)?)?)
}

fn shape_of(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<AttentionShape> {
    let (batch, q_heads, length, width) = q.dims4()?;
    let (_, kv_heads, ..) = k.dims4()?;
    let expected = [batch, kv_heads, length, width];
    if k.dims() != expected || v.dims() != expected {
        return Err(Error::invalid(
            format!("attention of q {:?}, k {:?} and v {:?}", q.dims(), k.dims(), v.dims()),
            "give all three as [batch, heads, length, width], k and v alike",
        ));
    }
    AttentionShape { batch, q_heads, kv_heads, length, width }.check()
}

/// One call, which keeps what its backward pass needs.
struct Call {
    kernels: Arc<FlashBackward>,
    shape: AttentionShape,
    lse: Mutex<Option<Buffer<f32>>>,
}

impl Pass<3> for Call {
    const NAME: &'static str = "flash attention";

    fn forward<M: Memory>(&self, inputs: [(&M, &Layout); 3]) -> Result<(M, Shape)> {
        let [q, k, v] = inputs.map(|(memory, layout)| memory.lend::<bf16>(self.kernels.gpu(), layout));
        let (q, k, v) = (q?, k?, v?);
        let (o, lse) = self.kernels.forward([&q, &k, &v], self.shape)?;
        *self.lse.lock().unwrap_or_else(PoisonError::into_inner) = Some(lse);
        let (memory, layout) = inputs[0];
        Ok((M::give::<bf16>(o, memory.device())?, layout.shape().clone()))
    }

    fn backward(&self, inputs: [&Tensor; 3], o: &Tensor, d_o: &Tensor) -> Result<[Option<Tensor>; 3]> {
        let lend = |tensor| lent::<bf16>(self.kernels.gpu(), tensor);
        let [q, k, v] = inputs.map(lend);
        let (q, k, v, lent_o, d_o) = (q?, k?, v?, lend(o)?, lend(d_o)?);
        let lse = self.lse.lock().unwrap_or_else(PoisonError::into_inner);
        let lse = lse.as_ref().ok_or_else(before_forward)?;
        let arrays = BackwardInputs { q: &q, k: &k, v: &v, o: &lent_o, d_o: &d_o, lse };
        let [dq, dk, dv] = self.kernels.gradients(arrays, self.shape)?;
        let tensor = |buffer, of: &Tensor| given::<bf16>(buffer, of.shape(), of.device()).map(Some);
        Ok([tensor(dq, inputs[0])?, tensor(dk, inputs[1])?, tensor(dv, inputs[2])?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device, Var};
    use gpulab::cpu::{self, AttentionMask, attention_backward_f64};

    /// The gradients of q, k and v of the sum of result · weights.
    fn gradients(
        inputs: &[Var; 3],
        weights: &Tensor,
        attend: impl Fn(&Tensor, &Tensor, &Tensor) -> Tensor,
    ) -> [Vec<f32>; 3] {
        let o = attend(&inputs[0], &inputs[1], &inputs[2]).to_dtype(DType::F32).unwrap();
        let gradients = (o * weights).unwrap().sum_all().unwrap().backward().unwrap();
        let get = |x: &Var| {
            let gradient = gradients.get(x).expect("a gradient").to_dtype(DType::F32).unwrap();
            gradient.flatten_all().unwrap().to_vec1().unwrap()
        };
        [get(&inputs[0]), get(&inputs[1]), get(&inputs[2])]
    }

    fn off(given: &[f32], exact: &[f64]) -> f64 {
        let squares = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
        squares(&mut given.iter().zip(exact).map(|(a, b)| f64::from(*a) - b)) / squares(&mut exact.iter().copied())
    }

    #[test]
    fn gradients_of_both_ways_are_those_of_the_formula() {
        let gpu = Gpu::simulated().unwrap();
        for (shape, causal) in [
            (AttentionShape { batch: 1, q_heads: 2, kv_heads: 1, length: 33, width: 64 }, true),
            (AttentionShape { batch: 2, q_heads: 2, kv_heads: 2, length: 31, width: 64 }, false),
        ] {
            let round = |x: Vec<f32>| -> Vec<f32> { x.into_iter().map(|x| bf16::from_f32(x).to_f32()).collect() };
            let [q, k, v] = cpu::attention_inputs(shape, 2, 2.0).map(round);
            let d_o = round(cpu::random_f32(shape.q_numbers(), 9));
            let mask = if causal { AttentionMask::causal() } else { AttentionMask::none() };
            let exact = attention_backward_f64(&q, &k, &v, &d_o, shape, &mask).unwrap();
            let AttentionShape { batch, q_heads, kv_heads, length, width } = shape;
            let vars = |dtype: DType| {
                [(&q, q_heads), (&k, kv_heads), (&v, kv_heads)].map(|(x, heads)| {
                    let x = Tensor::from_slice(x, (batch, heads, length, width), &Device::Cpu).unwrap();
                    Var::from_tensor(&x.to_dtype(dtype).unwrap()).unwrap()
                })
            };
            let weights = Tensor::from_slice(&d_o, (batch, q_heads, length, width), &Device::Cpu).unwrap();
            let flash = FlashOp::new(&gpu, "flash_backward/01_row_a_warp", width, causal).unwrap();
            let by_kernels = gradients(&vars(DType::BF16), &weights, |q, k, v| flash.attend(q, k, v).unwrap());
            let by_candle = gradients(&vars(DType::F32), &weights, |q, k, v| plain_attention(q, k, v, causal).unwrap());
            for at in 0..3 {
                assert!(off(&by_candle[at], &exact[at]) < 1e-5, "candle, {at}: {}", off(&by_candle[at], &exact[at]));
                assert!(off(&by_kernels[at], &exact[at]) < 0.008, "{at}: {}", off(&by_kernels[at], &exact[at]));
            }
        }
    }

    #[test]
    fn misfits_are_named() {
        let flash = FlashOp::new(&Gpu::simulated().unwrap(), "flash_backward/01_row_a_warp", 64, false).unwrap();
        let tensor = |heads, width, dtype| Tensor::zeros((1, heads, 2, width), dtype, &Device::Cpu).unwrap();
        let refused = |q: &Tensor, k: &Tensor, v: &Tensor| {
            let text = flash.attend(q, k, v).unwrap_err().to_string();
            assert!(text.contains("next: "), "{text}");
            text
        };
        let (one, two) = (tensor(1, 64, DType::BF16), tensor(2, 64, DType::BF16));
        assert!(refused(&two, &one, &two).contains("k [1, 1, 2, 64]"));
        assert!(refused(&one, &two, &two).contains("1 heads of q"));
        let wide = tensor(1, 64, DType::F32);
        assert!(refused(&wide, &wide, &wide).contains("f32"));
        let other = tensor(1, 96, DType::BF16);
        assert!(refused(&other, &other, &other).contains("96"));
    }
}
