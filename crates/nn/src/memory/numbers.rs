//! The type of a network's numbers.

use candle_core::DType;

/// The type of parameters, and of all that follows from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// 4 bytes.
    F32,
    /// 2 bytes, with the exponents of f32.
    Bf16,
    /// 2 bytes, with a short exponent.
    F16,
}

impl Numbers {
    /// Bytes of one.
    pub fn size(self) -> u64 {
        match self {
            Numbers::F32 => 4,
            Numbers::Bf16 | Numbers::F16 => 2,
        }
    }

    /// `f32`, `bf16`, `f16`.
    pub fn name(self) -> &'static str {
        self.dtype().as_str()
    }

    /// The same for candle.
    pub(super) fn dtype(self) -> DType {
        match self {
            Numbers::F32 => DType::F32,
            Numbers::Bf16 => DType::BF16,
            Numbers::F16 => DType::F16,
        }
    }
}
