//! How a training run computes: batch, precision, AdamW's numbers.

use crate::cnn::Precision;

/// What an engine is made with.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineSettings {
    /// Images of a step; the last step of an epoch takes those that are left.
    pub batch: usize,
    /// What the tensor cores are given. Parameters, moments, sums and everything between kernels are f32 in each.
    pub precision: Precision,
    /// Whether a step's kernels are launched as one CUDA graph; on a simulated GPU they never are.
    pub graph: bool,
    /// AdamW's learning rate.
    pub rate: f32,
    /// AdamW's β₁ and β₂.
    pub betas: (f64, f64),
    /// AdamW's ε.
    pub epsilon: f32,
    /// AdamW's weight decay.
    pub decay: f32,
    /// fp16: steps without an overflow after which the loss scale doubles.
    pub growth: u32,
}

impl Default for EngineSettings {
    fn default() -> EngineSettings {
        EngineSettings {
            batch: 128,
            precision: Precision::Tf32,
            graph: true,
            rate: 1e-3,
            betas: (0.9, 0.999),
            epsilon: 1e-8,
            decay: 0.01,
            growth: 2000,
        }
    }
}

impl EngineSettings {
    /// As `update.cu` reads them.
    pub(super) fn on_device(&self) -> [f32; 9] {
        let (beta1, beta2) = self.betas;
        // 1 − β from f64: the difference of two f32 near 1 would be off in the fifth digit.
        let of_beta = |beta: f64| [beta.ln(), beta, 1.0 - beta].map(|x| x as f32);
        let [[log1, beta1, rest1], [log2, beta2, rest2]] = [of_beta(beta1), of_beta(beta2)];
        [self.rate, log1, log2, beta1, rest1, beta2, rest2, self.epsilon, self.decay]
    }
}
