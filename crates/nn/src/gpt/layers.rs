//! GPT-2's layers on candle tensors, the same code for training and for inference.

use gpulab::error::Result;
use candle_core::{D, DType, Tensor};

/// GPT-2's, for all its layer norms.
const EPSILON: f64 = 1e-5;

/// `x · weight + bias`, with the weight as GPT-2 keeps it: `[inputs, outputs]`.
#[derive(Debug, Clone)]
pub(super) struct Linear {
    pub weight: Tensor,
    pub bias: Tensor,
}

impl Linear {
    /// The last axis of `x` is the inputs.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // One product for all rows: candle would make one for each text.
        let mut shape = x.dims().to_vec();
        let rows: usize = shape.iter().rev().skip(1).product();
        let (inputs, outputs) = self.weight.dims2()?;
        let y = x.reshape((rows, inputs))?.matmul(&self.weight)?.broadcast_add(&self.bias)?;
        *shape.last_mut().expect("a tensor of rows has axes") = outputs;
        Ok(y.reshape(shape)?)
    }
}

/// Layer norm over the last axis.
#[derive(Debug, Clone)]
pub(super) struct LayerNorm {
    pub weight: Tensor,
    pub bias: Tensor,
}

impl LayerNorm {
    /// `train`: from single operations, which candle can differentiate. Its fused kernel has no backward pass.
    pub fn forward(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        if !train {
            return Ok(candle_nn::ops::layer_norm(&x.contiguous()?, &self.weight, &self.bias, EPSILON as f32)?);
        }
        let away = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
        let variance = away.sqr()?.mean_keepdim(D::Minus1)?;
        let unit = away.broadcast_div(&(variance + EPSILON)?.sqrt()?)?;
        Ok(unit.broadcast_mul(&self.weight)?.broadcast_add(&self.bias)?)
    }
}

/// softmax(q · kᵀ / √d + mask) · v for `[texts, heads, length, d]`; the sum of a softmax is taken in f32.
pub(super) fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, train: bool) -> Result<Tensor> {
    let scale = 1.0 / (q.dim(D::Minus1)? as f64).sqrt();
    let mut scores = (q * scale)?.matmul(&k.transpose(2, 3)?)?.to_dtype(DType::F32)?;
    if let Some(mask) = mask {
        scores = scores.broadcast_add(mask)?;
    }
    let weights = match train {
        true => candle_nn::ops::softmax(&scores, D::Minus1)?,
        false => candle_nn::ops::softmax_last_dim(&scores)?,
    };
    Ok(weights.to_dtype(v.dtype())?.matmul(v)?)
}

/// `[texts, length, heads · d]` as `[texts, heads, length, d]`.
pub(super) fn split_heads(x: &Tensor, heads: usize) -> Result<Tensor> {
    let (texts, length, width) = x.dims3()?;
    Ok(x.reshape((texts, length, heads, width / heads))?.transpose(1, 2)?.contiguous()?)
}

/// The way back.
pub(super) fn join_heads(x: &Tensor) -> Result<Tensor> {
    let (texts, heads, length, d) = x.dims4()?;
    Ok(x.transpose(1, 2)?.reshape((texts, length, heads * d))?)
}
