//! Flash attention as an operator of candle's: both passes are the course's kernels.

use crate::buffers::{TensorBuffer, as_buffer, in_candle, into_tensor};
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp3, D, DType, Device, Layout, Shape, Tensor};
use gpulab::cpu::AttentionShape;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu};
use gpulab_kernels::topics::{BackwardInputs, FlashBackward};
use half::bf16;
use std::ops::Deref;
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

    /// The result, `[batch, q_heads, length, width]` as `q`; `k` and `v` are `[batch, kv_heads, length, width]`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for shapes that do not fit together, [`Error::TensorType`] for other numbers than bf16,
    /// [`Error::DeviceMismatch`], and what candle says.
    pub fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let shape = shape_of(q, k, v)?;
        let call = Call { kernels: self.kernels.clone(), shape, lse: Mutex::new(None) };
        Ok(q.contiguous()?.apply_op3(&k.contiguous()?, &v.contiguous()?, call)?)
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
        return Err(Error::Invalid {
            what: format!("attention of q {:?}, k {:?} and v {:?}", q.dims(), k.dims(), v.dims()),
            fix: "give all three as [batch, heads, length, width], k and v alike".to_string(),
        });
    }
    AttentionShape { batch, q_heads, kv_heads, length, width }.check()
}

/// One call, which keeps what its backward pass needs.
struct Call {
    kernels: Arc<FlashBackward>,
    shape: AttentionShape,
    lse: Mutex<Option<Buffer<f32>>>,
}

/// A tensor's numbers on the kernels' GPU.
enum Lent<'a> {
    Tensor(TensorBuffer<'a, bf16>),
    Copy(Buffer<u16>),
}

impl Deref for Lent<'_> {
    type Target = Buffer<u16>;

    fn deref(&self) -> &Buffer<u16> {
        match self {
            Lent::Tensor(buffer) => buffer,
            Lent::Copy(buffer) => buffer,
        }
    }
}

impl Call {
    fn forward(&self, inputs: [&Buffer<u16>; 3]) -> Result<Buffer<u16>> {
        let (o, lse) = self.kernels.forward(inputs, self.shape)?;
        *self.lse.lock().unwrap_or_else(PoisonError::into_inner) = Some(lse);
        Ok(o)
    }

    fn gradients(&self, tensors: [&Tensor; 5]) -> Result<[Tensor; 3]> {
        let gpu = self.kernels.gpu();
        let lent = tensors.map(|tensor| lent(gpu, tensor));
        let [q, k, v, o, d_o] = lent;
        let (q, k, v, o, d_o) = (q?, k?, v?, o?, d_o?);
        let lse = self.lse.lock().unwrap_or_else(PoisonError::into_inner);
        let lse = lse.as_ref().ok_or_else(|| {
            Error::invalid("a backward pass of attention before its forward pass", "call `attend` first")
        })?;
        let inputs = BackwardInputs { q: &q, k: &k, v: &v, o: &o, d_o: &d_o, lse };
        let [dq, dk, dv] = self.kernels.gradients(inputs, self.shape)?;
        let tensor = |buffer: Buffer<u16>, of: &Tensor| match of.device() {
            Device::Cpu => Ok(Tensor::from_vec(numbers(&buffer)?, of.shape(), &Device::Cpu)?),
            device => into_tensor::<bf16>(buffer, of.shape(), device),
        };
        Ok([tensor(dq, tensors[0])?, tensor(dk, tensors[1])?, tensor(dv, tensors[2])?])
    }
}

/// The tensor itself, or for a simulated GPU a copy of it.
fn lent<'a>(gpu: &Gpu, tensor: &'a Tensor) -> Result<Lent<'a>> {
    if !matches!((gpu, tensor.device()), (Gpu::Simulated(_), Device::Cpu)) {
        return Ok(Lent::Tensor(as_buffer(gpu, tensor)?));
    }
    if tensor.dtype() != DType::BF16 {
        return Err(other_type(tensor.dtype()));
    }
    let numbers: Vec<bf16> = tensor.flatten_all()?.to_vec1()?;
    Ok(Lent::Copy(gpu.to_device(&numbers.into_iter().map(bf16::to_bits).collect::<Vec<u16>>())?))
}

fn numbers(buffer: &Buffer<u16>) -> Result<Vec<bf16>> {
    Ok(buffer.to_host()?.into_iter().map(bf16::from_bits).collect())
}

fn other_type(given: DType) -> Error {
    Error::TensorType { expected: DType::BF16.as_str().to_string(), given: given.as_str().to_string() }
}

impl CustomOp3 for Call {
    fn name(&self) -> &'static str {
        "flash attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        q_layout: &Layout,
        k: &CpuStorage,
        k_layout: &Layout,
        v: &CpuStorage,
        v_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let gpu = self.kernels.gpu();
        let copy = |storage: &CpuStorage, layout: &Layout| -> Result<Buffer<u16>> {
            if !matches!(gpu, Gpu::Simulated(_)) {
                let found = "the CPU, as candle's tensor".to_string();
                return Err(Error::DeviceMismatch { expected: gpu.to_string(), found });
            }
            let CpuStorage::BF16(numbers) = storage else { return Err(other_type(storage.dtype())) };
            let (start, end) = layout.contiguous_offsets().ok_or_else(|| Error::NotContiguous {
                shape: layout.dims().to_vec(),
                strides: layout.stride().to_vec(),
            })?;
            gpu.to_device(&numbers[start..end].iter().map(|x| x.to_bits()).collect::<Vec<u16>>())
        };
        let run = || -> Result<Vec<bf16>> {
            let (q, k, v) = (copy(q, q_layout)?, copy(k, k_layout)?, copy(v, v_layout)?);
            numbers(&self.forward([&q, &k, &v])?)
        };
        Ok((CpuStorage::BF16(run().map_err(in_candle)?), q_layout.shape().clone()))
    }

    #[cfg(gpulab_cuda)]
    fn cuda_fwd(
        &self,
        q: &candle_core::CudaStorage,
        q_layout: &Layout,
        k: &candle_core::CudaStorage,
        k_layout: &Layout,
        v: &candle_core::CudaStorage,
        v_layout: &Layout,
    ) -> candle_core::Result<(candle_core::CudaStorage, Shape)> {
        let lend = |storage, layout| crate::buffers::lent_storage::<bf16>(self.kernels.gpu(), storage, layout);
        let run = || -> Result<candle_core::CudaStorage> {
            let (q_lent, k, v) = (lend(q, q_layout)?, lend(k, k_layout)?, lend(v, v_layout)?);
            crate::buffers::given_storage::<bf16>(self.forward([&q_lent, &k, &v])?, &q.device)
        };
        Ok((run().map_err(in_candle)?, q_layout.shape().clone()))
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        o: &Tensor,
        d_o: &Tensor,
    ) -> candle_core::Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let d_o = d_o.contiguous()?;
        let [dq, dk, dv] = self.gradients([q, k, v, o, &d_o]).map_err(in_candle)?;
        Ok((Some(dq), Some(dk), Some(dv)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Var;
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
