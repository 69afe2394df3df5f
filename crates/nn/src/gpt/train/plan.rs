//! What is trained, how long and how.

use crate::gpt::Config;
use candle_core::DType;

/// AdamW's β₁ and β₂.
pub(super) const BETAS: [f64; 2] = [0.9, 0.99];
/// AdamW's ε.
pub(super) const EPSILON: f64 = 1e-8;
/// AdamW's weight decay, of matrices; scales, biases are left alone.
pub(super) const DECAY: f64 = 0.1;

/// What is trained, how long and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GptTrainConfig {
    /// The model's shape; its vocabulary has room for all tokens of the tokenizer.
    pub config: Config,
    /// Whole contexts of text that go through the model at once; while pieces are short, four times as many pieces of a quarter.
    pub batch: usize,
    /// Batches whose gradients are added up for one step (gradient accumulation).
    pub accumulate: usize,
    /// Steps in all.
    pub steps: u64,
    /// The highest learning rate: it rises over the first steps, and falls along half a cosine to a tenth at the end.
    pub rate: f64,
    /// Steps over which the learning rate rises; at most a tenth of all.
    pub warm_up: u64,
    /// Gradients whose norm, over all parameters together, is larger are made this long.
    pub clip: f64,
    /// For this part of the run pieces are short: what attention costs for each token grows with the length, and most of what
    /// there is to learn stands within a few words.
    pub short: f64,
    /// What forward and backward pass compute in: F32, or BF16. Parameters, gradients and moments are F32 in either case.
    pub dtype: DType,
    /// What the first weights and the choice of pieces follow from.
    pub seed: u64,
    /// The same bits in each run on the course's kernels, for a few hundredths of its speed: see
    /// [`GptSettings::deterministic`](gpulab_kernels::gpt_step::GptSettings::deterministic).
    pub deterministic: bool,
}

impl Default for GptTrainConfig {
    /// How the course's own model was trained, which reads bytes: minutes on a laptop.
    fn default() -> GptTrainConfig {
        GptTrainConfig {
            config: Config::COURSE,
            batch: 4,
            accumulate: 1,
            steps: 3000,
            rate: 1.5e-3,
            warm_up: 100,
            clip: 1.0,
            short: 0.75,
            dtype: DType::F32,
            seed: 1,
            deterministic: false,
        }
    }
}

impl GptTrainConfig {
    /// GPT-2's smallest shape, 124 million parameters, for a GPU.
    pub const GPT2: GptTrainConfig = GptTrainConfig {
        config: Config::GPT2,
        batch: 8,
        accumulate: 4,
        steps: 2000,
        rate: 6e-4,
        warm_up: 200,
        clip: 1.0,
        short: 0.0,
        dtype: DType::BF16,
        seed: 1,
        deterministic: false,
    };

    /// The learning rate of a step, from 0: up in a line, then down along half a cosine.
    pub fn rate_at(&self, step: u64) -> f64 {
        let (step, steps) = (step as f64, self.steps as f64);
        let rise = (self.warm_up as f64).min(steps / 10.0).max(1.0);
        let way = ((step - rise) / (steps - rise).max(1.0)).clamp(0.0, 1.0);
        let fall = 0.1 + 0.9 * 0.5 * (1.0 + (std::f64::consts::PI * way).cos());
        self.rate * ((step + 1.0) / rise).min(1.0) * fall
    }

    /// Tokens that a step reads.
    pub fn tokens_a_step(&self) -> usize {
        self.accumulate * self.batch * self.config.n_ctx
    }
}
