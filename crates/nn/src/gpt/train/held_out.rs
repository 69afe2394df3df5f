//! The loss on words that were never trained on.

use crate::gpt::Gpt;
use candle_core::{D, Tensor};
use gpulab::error::Result;

/// Pieces that go through the model at once.
const AT_ONCE: usize = 16;

/// Gets windows of a text, and gives what each of their tokens but the first costs, in nats, window by window.
type Costs<'a> = dyn FnMut(&[&[u32]]) -> Result<Vec<f32>> + 'a;

/// Nats a token of a text that is longer than `length`, in windows of length + 1 tokens which overlap by half, so many at once at most; the
/// last one ends where the text does.
pub(super) fn windowed_loss(text: &[u32], length: usize, at_once: usize, costs: &mut Costs<'_>) -> Result<f64> {
    let last = text.len() - length - 1;
    let starts: Vec<usize> = (0..last).step_by((length / 2).max(1)).chain([last]).collect();
    let (mut sum, mut done) = (0.0, 0);
    for some in starts.chunks(at_once) {
        let windows: Vec<&[u32]> = some.iter().map(|start| &text[*start..=start + length]).collect();
        for (start, costs) in some.iter().zip(costs(&windows)?.chunks_exact(length)) {
            // Tokens that an earlier window has told already are left out.
            let new = done.max(*start) - start;
            sum += costs[new..].iter().map(|cost| f64::from(*cost)).sum::<f64>();
            done = start + length;
        }
    }
    Ok(sum / (text.len() - 1) as f64)
}

impl Gpt {
    /// [`Gpt::token_loss`] of a model that reads bytes: nats a byte.
    ///
    /// # Errors
    /// As [`Gpt::token_loss`].
    pub fn loss(&self, text: &[u8]) -> Result<f64> {
        self.token_loss(&text.iter().copied().map(u32::from).collect::<Vec<u32>>())
    }

    /// Nats a token: -ln of the probability that the model gave to what came, in the mean. Each token but those at the very beginning
    /// has half a context before it.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] when there are not more tokens than the context has; what candle says.
    pub fn token_loss(&self, text: &[u32]) -> Result<f64> {
        let length = self.config().n_ctx;
        if text.len() <= length {
            self.fits(length + 1)?;
        }
        windowed_loss(text, length, AT_ONCE, &mut |windows| {
            let part = |from: usize| -> Vec<u32> {
                windows.iter().flat_map(|window| &window[from..from + length]).copied().collect()
            };
            let tokens = Tensor::from_vec(part(0), (windows.len(), length), self.device())?;
            let logs = candle_nn::ops::log_softmax(&self.logits(&tokens)?, D::Minus1)?;
            let targets = Tensor::from_vec(part(1), (windows.len(), length, 1), self.device())?;
            Ok(logs.gather(&targets, 2)?.neg()?.flatten_all()?.to_vec1::<f32>()?)
        })
    }
}
