//! How a training run computes: batch, precision, AdamW's numbers.

/// What the tensor cores are given. Parameters, moments, sums and everything between kernels are f32 in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operands {
    /// f32: three products of TF32 parts in place of one, off by about 2⁻²¹ of a product.
    F32,
    /// TF32: operands rounded to 10 bits of mantissa; what PyTorch does when TF32 is allowed.
    Tf32,
    /// bf16 operands.
    Bf16,
    /// fp16 operands, and a loss scale that follows what gradients allow.
    F16,
}

impl Operands {
    /// All of them.
    pub const ALL: [Operands; 4] = [Operands::F32, Operands::Tf32, Operands::Bf16, Operands::F16];

    /// `f32`, `tf32`, `bf16`, `f16`.
    pub fn name(self) -> &'static str {
        match self {
            Operands::F32 => "f32",
            Operands::Tf32 => "tf32",
            Operands::Bf16 => "bf16",
            Operands::F16 => "f16",
        }
    }

    /// The kernels' constant.
    pub(super) fn number(self) -> u32 {
        self as u32
    }
}

/// What an engine is made with.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineSettings {
    /// Images of a step; the last step of an epoch takes those that are left.
    pub batch: usize,
    /// What the tensor cores are given.
    pub operands: Operands,
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
            operands: Operands::Tf32,
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
