//! How long a step takes: what a simulation asks.

use super::scheduler::Step;

/// Says how long a step takes.
pub trait StepPrice {
    /// Seconds of that step.
    fn seconds_of(&self, step: &Step) -> f64;
}

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

impl StepPrice for StepCost {
    fn seconds_of(&self, step: &Step) -> f64 {
        self.of(step)
    }
}

/// A model of a step's time whose parts overlap: products of few rows take as long as their weights need to be read, and those of many
/// rows as long as their operations. What is not a product, attention to the cache above all, comes on top.
///
/// ```
/// use gpulab_serve::RooflineCost;
/// // Weights of 1 ms; 3 µs per row, and 0.7 ms besides; 8 ns for each token of the cache that an answer reads, and 1 µs for each answer.
/// let cost = RooflineCost { weights_s: 1e-3, large_s: 0.7e-3, row_s: 3e-6, cached_s: 8e-9, answer_s: 1e-6, block_rows: 128 };
/// // 64 answers of 500 tokens each: their rows hide behind the weights.
/// assert!((cost.seconds(64, 64, 64 * 500) - 1.32e-3).abs() < 1e-9);
/// // With 192 tokens of a prompt beside them, half of the 768 µs of their rows does.
/// assert!((cost.seconds(256, 64, 64 * 500) - 1.788e-3).abs() < 1e-9);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RooflineCost {
    /// Seconds of a step of few rows, whatever it computes.
    pub weights_s: f64,
    /// Seconds of a step of many rows, besides what each adds.
    pub large_s: f64,
    /// Seconds that each row of a step of many rows adds. A row is a token that is computed.
    pub row_s: f64,
    /// Seconds of each token of the cache that an answer reads.
    pub cached_s: f64,
    /// Seconds that each answer adds besides.
    pub answer_s: f64,
    /// Steps of more than twice as many rows are filled up to a multiple of these.
    pub block_rows: usize,
}

impl RooflineCost {
    /// Seconds of a step of so many rows, of which `answers` are single tokens of answers, with `cached` tokens of the cache before them
    /// in all.
    pub fn seconds(&self, rows: usize, answers: usize, cached: usize) -> f64 {
        let filled = match rows > 2 * self.block_rows {
            true => rows.next_multiple_of(self.block_rows),
            false => rows,
        };
        let products = self.weights_s.max(self.large_s + self.row_s * filled as f64);
        products + self.cached_s * cached as f64 + self.answer_s * answers as f64
    }
}

impl StepPrice for RooflineCost {
    fn seconds_of(&self, step: &Step) -> f64 {
        let answers = || step.pieces.iter().filter(|piece| piece.tokens.len() == 1);
        self.seconds(step.tokens(), answers().count(), answers().map(|piece| piece.first + 1).sum())
    }
}
