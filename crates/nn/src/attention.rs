//! Attention on candle, an operator for each line of the formula, to be compared with the course's own kernels.

use candle_core::{DType, Device, Tensor};
use candle_nn::ops::softmax_last_dim;
use gpulab::bench::Bench;
use gpulab::cpu::{self, AttentionMask, AttentionShape};
use gpulab::error::{Error, Result, same_length};
use gpulab::measurement::{Backend, Measurement};
use gpulab_kernels::topics::AttentionStep;

/// The tensors of one attention on a device. Grouped heads of k and v are repeated for each head of q, as candle's product
/// wants them. A query to which every key is hidden gets NaN, as a softmax of nothing but −∞ is.
#[derive(Debug, Clone)]
pub struct CandleAttention {
    shape: AttentionShape,
    device: Device,
    /// q, k and v by tokens: `[batch, length, heads, width]`.
    tokens: [Tensor; 3],
    /// 0, or −∞ where a key is hidden: `[batch, 1, length, length]`, with a batch of 1 where no sequence is padded.
    hidden: Tensor,
}

impl CandleAttention {
    /// Copies `q`, `[batch, q_heads, length, width]`, and `k` and `v`, `[batch, kv_heads, length, width]`, to the device, as
    /// that dtype.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] for an array of another length than its shape, [`Error::Invalid`] for a shape or a mask
    /// that is none, and for what candle says.
    pub fn new(
        device: &Device,
        dtype: DType,
        [q, k, v]: [&[f32]; 3],
        shape: AttentionShape,
        mask: &AttentionMask,
    ) -> Result<CandleAttention> {
        shape.check()?;
        mask.check(shape)?;
        let AttentionShape { batch, length, width, q_heads, kv_heads } = shape;
        let tensor = |what: &str, x: &[f32], heads: usize| -> Result<Tensor> {
            same_length(format!("attention's `{what}`"), batch * heads * length * width, x.len())?;
            let x = Tensor::from_slice(x, (batch, heads, length, width), device)?;
            Ok(x.transpose(1, 2)?.contiguous()?.to_dtype(dtype)?)
        };
        let tokens = [tensor("q", q, q_heads)?, tensor("k", k, kv_heads)?, tensor("v", v, kv_heads)?];
        let sequences = if mask.lengths.is_some() { batch } else { 1 };
        let row = |at: usize| {
            let seen = mask.seen(at / length, at % length, length);
            (0..length).map(move |key| if key < seen { 0.0 } else { f32::NEG_INFINITY })
        };
        let hidden: Vec<f32> = (0..sequences * length).flat_map(row).collect();
        let hidden = Tensor::from_vec(hidden, (sequences, 1, length, length), device)?.to_dtype(dtype)?;
        Ok(CandleAttention { shape, device: device.clone(), tokens, hidden })
    }

    /// q, k and v by tokens, `[batch, length, heads, width]`, and what is added to the scores: 0, or −∞ where a key is hidden,
    /// `[batch, 1, length, length]` (a batch of 1 where no sequence is padded).
    pub fn tensors(&self) -> (&[Tensor; 3], &Tensor) {
        (&self.tokens, &self.hidden)
    }

    /// The result, `[batch, q_heads, length, width]`.
    ///
    /// # Errors
    /// [`Error::Invalid`] with what candle says.
    pub fn attend(&self) -> Result<Vec<f32>> {
        let mut at = At::default();
        AttentionStep::CHAIN.iter().try_for_each(|&step| self.step(step, &mut at).map(|_| ()))?;
        let merged = at.scores()?;
        Ok(merged.transpose(1, 2)?.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?)
    }

    /// Each step alone, in **ms per call**: a row named after it, and one for all of them; the size is the length.
    ///
    /// # Errors
    /// [`Error::Invalid`] with what candle says; those of [`cpu::time`].
    pub fn time_steps(&self, plan: &Bench) -> Result<Vec<Measurement>> {
        let backend = match &self.device {
            Device::Cpu => Backend::Cpu,
            Device::Cuda(_) => Backend::Cuda,
            Device::Metal(_) => Backend::Metal,
        };
        let dtype = self.hidden.dtype().as_str();
        let row = |name: &str, summary| Measurement::time_ms(name, backend, self.shape.length, summary).dtype(dtype);
        let mut before = At::default();
        let mut rows = Vec::new();
        for &step in AttentionStep::CHAIN {
            let once = || -> Result<()> {
                self.step(step, &mut before.clone())?;
                // Its launch has returned; what it launched has ended when this returns.
                Ok(self.device.synchronize()?)
            };
            rows.push(row(step.name(), cpu::time(plan, once)?));
            self.step(step, &mut before)?;
        }
        let whole = || -> Result<()> {
            let mut at = At::default();
            AttentionStep::CHAIN.iter().try_for_each(|&step| self.step(step, &mut at))?;
            Ok(self.device.synchronize()?)
        };
        rows.push(row("all steps", cpu::time(plan, whole)?));
        Ok(rows)
    }

    /// One line of the formula, on what the lines before have left.
    fn step(&self, step: AttentionStep, at: &mut At) -> Result<()> {
        let [q, k, v] = &self.tokens;
        let next = match step {
            AttentionStep::SplitHeads => {
                at.heads = Some([q.transpose(1, 2)?.contiguous()?, self.repeated(k)?, self.repeated(v)?]);
                return Ok(());
            }
            AttentionStep::Scores => {
                let [q, k, _] = at.heads()?;
                q.matmul(&k.transpose(2, 3)?)?
            }
            AttentionStep::Scale => at.scores()?.affine(1.0 / (self.shape.width as f64).sqrt(), 0.0)?,
            AttentionStep::Mask => at.scores()?.broadcast_add(&self.hidden)?,
            AttentionStep::Softmax => softmax_last_dim(at.scores()?)?,
            AttentionStep::MaskedSoftmax => {
                [AttentionStep::Scale, AttentionStep::Mask, AttentionStep::Softmax]
                    .into_iter()
                    .try_for_each(|step| self.step(step, at))?;
                return Ok(());
            }
            AttentionStep::WeightedSum => {
                let [_, _, v] = at.heads()?;
                at.scores()?.matmul(v)?
            }
            AttentionStep::MergeHeads => at.scores()?.transpose(1, 2)?.contiguous()?,
        };
        at.last = Some(next);
        Ok(())
    }

    /// By heads, repeated for each head of q that shares it.
    fn repeated(&self, x: &Tensor) -> Result<Tensor> {
        let AttentionShape { batch, q_heads, kv_heads, length, width } = self.shape;
        let x = x.transpose(1, 2)?;
        if q_heads == kv_heads {
            return Ok(x.contiguous()?);
        }
        let grouped = x.unsqueeze(2)?.broadcast_as((batch, kv_heads, q_heads / kv_heads, length, width))?;
        Ok(grouped.contiguous()?.reshape((batch, q_heads, length, width))?)
    }
}

/// What the steps so far have left; tensors are counted references.
#[derive(Debug, Clone, Default)]
struct At {
    heads: Option<[Tensor; 3]>,
    last: Option<Tensor>,
}

impl At {
    fn heads(&self) -> Result<&[Tensor; 3]> {
        self.heads.as_ref().ok_or_else(out_of_order)
    }

    fn scores(&self) -> Result<&Tensor> {
        self.last.as_ref().ok_or_else(out_of_order)
    }
}

fn out_of_order() -> Error {
    Error::invalid(
        "a step of attention before what it works on",
        "run the steps in the order of `AttentionStep::CHAIN`",
    )
}

// ----------------------------------------------------------------------
// What the models share.

/// What hides a key: exp of it is 0 in f32, and unlike -∞ it makes no NaN where a whole row is hidden.
pub(crate) const HIDDEN: f32 = -1e9;

/// `[length, before + length]`: hides from each token those after it, with `before` tokens in the cache.
pub(crate) fn causal_mask(length: usize, before: usize, device: &Device) -> Result<Tensor> {
    let row = |i: usize| (0..before + length).map(move |j| if j > before + i { HIDDEN } else { 0.0 });
    let mask: Vec<f32> = (0..length).flat_map(row).collect();
    Ok(Tensor::from_vec(mask, (length, before + length), device)?)
}

/// softmax(q · kᵀ / √d + mask) · v, where several heads of `q` share one of `k` and `v`: the heads of a group stand under each
/// other as more rows of one product, so nothing is copied for them.
pub(crate) fn grouped_attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
    let (texts, heads, length, d) = q.dims4()?;
    let (_, kv_heads, keys, _) = k.dims4()?;
    let rows = heads / kv_heads * length;
    let q = q.reshape((texts, kv_heads, rows, d))?;
    let scores = (q.matmul(&k.transpose(2, 3)?)?.to_dtype(DType::F32)? / (d as f64).sqrt())?;
    let mut scores = scores.reshape((texts, heads, length, keys))?;
    if let Some(mask) = mask {
        scores = scores.broadcast_add(mask)?;
    }
    let weights = candle_nn::ops::softmax_last_dim(&scores)?.to_dtype(v.dtype())?;
    let gathered = weights.reshape((texts, kv_heads, rows, keys))?.matmul(v)?;
    Ok(gathered.reshape((texts, heads, length, d))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpulab::cpu::{attention_f64, attention_inputs};

    #[test]
    fn candle_agrees_with_f64_with_masks_and_grouped_heads() {
        for (q_heads, kv_heads, length, width) in [(1, 1, 1, 16), (4, 2, 33, 16), (4, 1, 31, 80)] {
            let shape = AttentionShape { batch: 2, q_heads, kv_heads, length, width };
            let [q, k, v] = attention_inputs(shape, 3, 2.0);
            for mask in [AttentionMask::none(), AttentionMask::causal().padded(&[length, length.div_ceil(2)])] {
                let exact = attention_f64(&q, &k, &v, shape, &mask).unwrap();
                for (dtype, most) in [(DType::F32, 1e-5), (DType::BF16, 3e-2)] {
                    let inputs = [&q[..], &k, &v];
                    let attention = CandleAttention::new(&Device::Cpu, dtype, inputs, shape, &mask).unwrap();
                    let given = attention.attend().unwrap();
                    let off = given.iter().zip(&exact).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
                    assert!(given.len() == exact.len() && off < most, "{shape}: {off}");
                }
            }
        }
    }

    #[test]
    fn a_row_of_nothing_but_hidden_keys_is_nan_and_misfits_are_named() {
        let shape = AttentionShape { batch: 1, q_heads: 1, kv_heads: 1, length: 2, width: 2 };
        let x = [0.5; 4];
        let with = |q: &[f32], mask| CandleAttention::new(&Device::Cpu, DType::F32, [q, &x, &x], shape, &mask);
        let hidden = with(&x, AttentionMask::none().padded(&[0])).unwrap();
        assert!(hidden.attend().unwrap().iter().all(|x| x.is_nan()));
        let text = with(&x[1..], AttentionMask::none()).unwrap_err().to_string();
        assert!(text.contains("attention's `q`: 4 elements expected, 3 given"), "{text}");
    }

    #[test]
    fn each_step_has_a_time() {
        let shape = AttentionShape { batch: 1, q_heads: 2, kv_heads: 1, length: 16, width: 8 };
        let [q, k, v] = attention_inputs(shape, 3, 2.0);
        let mask = AttentionMask::causal();
        let attention = CandleAttention::new(&Device::Cpu, DType::F32, [&q, &k, &v], shape, &mask).unwrap();
        let rows = attention.time_steps(&Bench::default().samples(5).budget_ms(5.0)).unwrap();
        let names: Vec<&str> = rows.iter().map(|row| &*row.experiment).collect();
        assert_eq!(names[..7], AttentionStep::CHAIN.iter().map(|step| step.name()).collect::<Vec<_>>());
        assert!(names[7] == "all steps" && rows.iter().all(|row| row.summary.median > 0.0));
    }
}
