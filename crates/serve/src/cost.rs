//! How long a step takes, as a sum of three parts.

use super::scheduler::Step;

/// A model of a step's time. At a small batch the weights are read once for all, so the step's own part is what counts; then
/// each token computed adds its own, and each token of the cache that attention reads.
///
/// ```
/// use gpulab_serve::StepCost;
/// // 10 ms for the weights, 50 µs per token, 0.1 µs per token of the cache.
/// let cost = StepCost { step_s: 10e-3, token_s: 50e-6, cached_s: 0.1e-6 };
/// assert!((cost.seconds(8, 8 * 1000) - 11.2e-3).abs() < 1e-9);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepCost {
    /// Seconds of a step of any size: reading the weights, launches.
    pub step_s: f64,
    /// Seconds of each token that is computed.
    pub token_s: f64,
    /// Seconds of each token of the cache that is read: for a text of `n` tokens, `n` at each step.
    pub cached_s: f64,
}

impl StepCost {
    /// Seconds of a step that computes `tokens` and reads `cached` tokens of the cache.
    pub fn seconds(&self, tokens: usize, cached: usize) -> f64 {
        self.step_s + self.token_s * tokens as f64 + self.cached_s * cached as f64
    }

    /// Seconds of that step.
    pub fn of(&self, step: &Step) -> f64 {
        let cached = step.pieces.iter().map(|piece| piece.first + piece.tokens.len()).sum();
        self.seconds(step.tokens(), cached)
    }
}
