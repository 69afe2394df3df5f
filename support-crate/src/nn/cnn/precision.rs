//! In which numbers the network computes.

use crate::error::{Error, Result};
use candle_core::{DType, Tensor};

/// The numbers that layers compute in. Parameters and the optimiser's moments are f32 with each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// 32 bits: 24 of precision, up to 10³⁸.
    F32,
    /// 16 bits: 8 of precision, up to 10³⁸ as f32.
    Bf16,
    /// 16 bits: 11 of precision, up to 65,504, and nothing below 6 · 10⁻⁸: gradients need a loss scale.
    F16,
}

impl Precision {
    /// `f32`, `bf16` or `f16`.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the ones there are.
    pub fn from_name(name: &str) -> Result<Precision> {
        let all = [Precision::F32, Precision::Bf16, Precision::F16];
        all.into_iter().find(|precision| precision.name() == name).ok_or_else(|| Error::Invalid {
            what: format!("`{name}` is no kind of number that the network is trained in"),
            fix: "name f32, bf16 or f16".to_string(),
        })
    }

    /// `f32`, `bf16`, `f16`.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
            Precision::F16 => "f16",
        }
    }

    /// What a run's loss is multiplied by at first. bf16 reaches as low as f32, so it needs none.
    pub fn first_loss_scale(self) -> f32 {
        if self == Precision::F16 { 65536.0 } else { 1.0 }
    }

    pub(super) fn dtype(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::BF16,
            Precision::F16 => DType::F16,
        }
    }

    /// The tensor in these numbers. On the CPU it is rounded to them and stays f32: CPUs mostly compute in f32 alone, so
    /// there the rounding of 16 bits can be seen, and not their speed.
    pub(super) fn apply(self, tensor: &Tensor) -> candle_core::Result<Tensor> {
        match self {
            Precision::F32 => Ok(tensor.clone()),
            _ if tensor.device().is_cpu() => tensor.to_dtype(self.dtype())?.to_dtype(DType::F32),
            _ => tensor.to_dtype(self.dtype()),
        }
    }
}
