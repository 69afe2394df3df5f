//! The loss on words that were never trained on.

use super::Trainer;
use gpulab::error::Result;
use crate::gpt::Gpt;
use candle_core::{D, Tensor};

/// Pieces that go through the model at once.
const AT_ONCE: usize = 16;

impl Trainer {
    /// [`Gpt::loss`] of the held-out part.
    ///
    /// # Errors
    /// What candle says.
    pub fn held_out_loss(&self) -> Result<f64> {
        // Over plain tensors nothing is kept for a backward pass.
        let tensor = |name: &str| Ok(self.parameters[name].as_tensor().detach());
        Gpt::build(self.plan.config, &tensor, false)?.loss(&self.text.held_out)
    }
}

impl Gpt {
    /// Nats a byte of a text that the model reads byte by byte: -ln of the probability that it gave to what came, in the mean. Each byte but
    /// those at the very beginning has half a context of bytes before it.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] when the text is not longer than the context; what candle says.
    pub fn loss(&self, text: &[u8]) -> Result<f64> {
        let (length, half) = (self.config().n_ctx, self.config().n_ctx / 2);
        if text.len() <= length {
            self.fits(length + 1)?;
        }
        // Windows overlap by half; the last one ends where the text does.
        let last = text.len() - length - 1;
        let starts: Vec<usize> = (0..last).step_by(half.max(1)).chain([last]).collect();
        let (mut sum, mut done) = (0.0, 0);
        for some in starts.chunks(AT_ONCE) {
            let tokens = some.iter().flat_map(|start| text[*start..start + length].iter().map(|byte| u32::from(*byte)));
            let tokens = Tensor::from_vec(tokens.collect::<Vec<u32>>(), (some.len(), length), self.device())?;
            let logs = candle_nn::ops::log_softmax(&self.logits(&tokens)?, D::Minus1)?;
            let targets = some.iter().flat_map(|start| text[start + 1..=start + length].iter().map(|b| u32::from(*b)));
            let targets = Tensor::from_vec(targets.collect::<Vec<u32>>(), (some.len(), length, 1), self.device())?;
            let costs = logs.gather(&targets, 2)?.squeeze(2)?.to_vec2::<f32>()?;
            for (start, costs) in some.iter().zip(costs) {
                // Bytes that an earlier window has told already are left out.
                let new = done.max(*start) - start;
                sum -= costs[new..].iter().map(|cost| f64::from(*cost)).sum::<f64>();
                done = start + length;
            }
        }
        Ok(sum / (text.len() - 1) as f64)
    }
}
