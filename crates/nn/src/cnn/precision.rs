//! In which numbers the network computes.

use gpulab::error::{Error, Result};
use candle_core::{DType, Tensor};

/// The numbers that layers compute in. Parameters and the optimiser's moments are f32 with each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// 32 bits: 24 of precision, up to 10³⁸. On tensor cores, which do not take them, each product is three of TF32 parts,
    /// off by about 2⁻²¹ of it.
    F32,
    /// TF32: the factors of a product are rounded to 11 bits of precision; sums and all else are f32. On tensor cores
    /// alone: what PyTorch does where TF32 is allowed.
    Tf32,
    /// 16 bits: 8 of precision, up to 10³⁸ as f32.
    Bf16,
    /// 16 bits: 11 of precision, up to 65,504, and nothing below 6 · 10⁻⁸: gradients need a loss scale.
    F16,
}

impl Precision {
    /// All of them, in the order in which the kernels of [`super::CnnEngine`] number them.
    pub const ALL: [Precision; 4] = [Precision::F32, Precision::Tf32, Precision::Bf16, Precision::F16];

    /// `f32`, `tf32`, `bf16` or `f16`.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the ones there are.
    pub fn from_name(name: &str) -> Result<Precision> {
        Precision::ALL.into_iter().find(|precision| precision.name() == name).ok_or_else(|| Error::Invalid {
            what: format!("`{name}` is no kind of number that the network is trained in"),
            fix: "name f32, tf32, bf16 or f16".to_string(),
        })
    }

    /// `f32`, `tf32`, `bf16`, `f16`.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Tf32 => "tf32",
            Precision::Bf16 => "bf16",
            Precision::F16 => "f16",
        }
    }

    /// What the loss of a run is multiplied by that was kept with the scale `kept`: 1 where nothing needs it. bf16
    /// reaches as low as f32; f16 begins with 65,536, as PyTorch's GradScaler does.
    pub fn loss_scale(self, kept: f32) -> f32 {
        match self {
            Precision::F16 if kept > 1.0 => kept,
            Precision::F16 => 65536.0,
            _ => 1.0,
        }
    }

    /// What candle calls them.
    pub(super) fn dtype(self) -> DType {
        match self {
            Precision::F32 | Precision::Tf32 => DType::F32,
            Precision::Bf16 => DType::BF16,
            Precision::F16 => DType::F16,
        }
    }

    /// The tensor in these numbers. On the CPU it is rounded to them and stays f32: CPUs mostly compute in f32 alone, so
    /// there the rounding of 16 bits can be seen, and not their speed.
    pub(super) fn apply(self, tensor: &Tensor) -> candle_core::Result<Tensor> {
        match self.dtype() {
            DType::F32 => Ok(tensor.clone()),
            dtype if tensor.device().is_cpu() => tensor.to_dtype(dtype)?.to_dtype(DType::F32),
            dtype => tensor.to_dtype(dtype),
        }
    }
}
