//! Fewer bits for a weight: number formats, how weights share a scale, and methods that look at the inputs, too.
//!
//! A [`Format`] rounds a matrix to the values that so many bits can hold. [`quantize`] does that with a whole Llama, by a
//! [`Method`], and says for each matrix how far off it is. What candle multiplies in few bits itself (GGUF's kinds) stays in these
//! bits; all other formats are arithmetic: their values, unpacked to f32.

mod awq;
mod block_scale;
mod calibration;
mod ggml;
mod gptq;
mod integer;
mod matrix;
mod minifloat;
mod nf4;
mod whole;

pub use awq::awq;
pub use calibration::Calibration;
pub use ggml::{ggml_round, ggml_stored};
pub use gptq::gptq;
pub use integer::IntGrid;
pub use matrix::{Rounded, Share, WeightMatrix};
pub use minifloat::MiniFloat;
pub use nf4::{NF4, Nf4Matrix, nf4_decode, nf4_encode};
pub use whole::{MatrixError, Method, QuantizedLlama, quantize, token_ms};

use candle_core::quantized::GgmlDType;
use gpulab::error::Result;

/// What weights are rounded to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Format {
    /// Whole numbers of so many bits (2 to 8), times a scale in f16. With a zero point, which is such a number itself, they begin at
    /// the least weight; without (absmax) they are symmetric around 0.
    Int {
        /// Of each weight.
        bits: u32,
        /// Whether the grid begins at the least weight.
        zero_point: bool,
        /// Who shares a scale.
        share: Share,
    },
    /// The 16 values of NF4, times the largest weight of each block of so many, in f32.
    Nf4 {
        /// Weights in a block: 64 in QLoRA.
        block: usize,
    },
    /// A small floating-point number, times a scale in f32 that takes the largest weight to the format's largest number.
    Float {
        /// Which one.
        kind: MiniFloat,
        /// Who shares a scale.
        share: Share,
    },
    /// The same with a power of 2 (8 bits) for each 32 weights: MXFP8, MXFP4.
    Mx(MiniFloat),
    /// FP4 with a scale in FP8 (E4M3) for each 16 weights, and one in f32 for the matrix.
    Nvfp4,
    /// One of GGUF's kinds, by candle.
    Ggml(GgmlDType),
}

impl Format {
    /// Its name, such as `int4, zero point, groups of 64`.
    pub fn name(&self) -> String {
        let shared = |share: Share| match share {
            Share::Tensor => "one scale".to_string(),
            Share::Row => "a scale a row".to_string(),
            Share::Group(size) => format!("groups of {size}"),
        };
        match *self {
            Format::Int { bits, zero_point, share } => {
                format!("int{bits}, {}, {}", if zero_point { "zero point" } else { "absmax" }, shared(share))
            }
            Format::Nf4 { block } => format!("NF4, blocks of {block}"),
            Format::Float { kind, share } => format!("{}, {}", kind.name(), shared(share)),
            Format::Mx(kind) => format!("MX {}", kind.name()),
            Format::Nvfp4 => "NVFP4".to_string(),
            Format::Ggml(kind) => format!("GGUF {kind:?}"),
        }
    }

    /// Rounds a matrix.
    ///
    /// # Errors
    /// [`Invalid`](gpulab::error::Error::Invalid) when a group does not divide the row, a weight is NaN or infinite, or the format has no such bits.
    pub fn round(&self, weights: WeightMatrix) -> Result<Rounded> {
        weights.check()?;
        match *self {
            Format::Int { bits, zero_point, share } => integer::round(weights, bits, zero_point, share),
            Format::Nf4 { block } => nf4::round(weights, block),
            Format::Float { kind, share } => block_scale::round_scaled(weights, kind, share),
            Format::Mx(kind) => block_scale::round_mx(weights, kind),
            Format::Nvfp4 => block_scale::round_nvfp4(weights),
            Format::Ggml(kind) => ggml_round(weights, kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_format() -> Vec<Format> {
        let mut all = vec![Format::Nf4 { block: 64 }, Format::Nvfp4];
        for kind in MiniFloat::ALL {
            all.extend([Format::Mx(kind), Format::Float { kind, share: Share::Row }]);
        }
        for (bits, zero_point) in [(8, false), (8, true), (4, false), (4, true), (3, true), (2, true)] {
            all.extend([Share::Tensor, Share::Row, Share::Group(32)].map(|share| Format::Int {
                bits,
                zero_point,
                share,
            }));
        }
        use GgmlDType::{Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5K, Q6K, Q8_0};
        all.extend([Q4_0, Q4_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K].map(Format::Ggml));
        all
    }

    #[test]
    fn more_bits_are_closer_and_all_of_them_are_counted() {
        let mut random = crate::gpt::SplitMix64::new(5);
        // Roughly normal: the sum of uniform numbers.
        let values: Vec<f32> =
            (0..8 * 256).map(|_| (0..6).map(|_| random.unit() as f32 - 0.5).sum::<f32>() * 0.05).collect();
        let weights = WeightMatrix { values: &values, columns: 256 };
        let square: f64 = values.iter().map(|x| f64::from(*x).powi(2)).sum();
        for format in every_format() {
            let rounded = format.round(weights).unwrap();
            let off: f64 = values.iter().zip(&rounded.values).map(|(a, b)| f64::from(a - b).powi(2)).sum();
            let (error, bits) = ((off / square).sqrt(), rounded.bits as f64 / values.len() as f64);
            // A bit halves the error of a uniform grid. A grid wastes at most two and a half of them; a floating-point number's
            // exponent is wasted on weights that are all of one size.
            let wasted = match format.name() {
                name if name.contains("E4M3") => 3.5,
                name if name.contains("E5M2") => 4.5,
                _ => 2.6,
            };
            assert!(error < 2.0_f64.powf(wasted - bits), "{}: {error} with {bits} bits", format.name());
            assert!(error > 2.0_f64.powf(-1.0 - bits), "{}: {error} with {bits} bits", format.name());
            assert!((2.0..9.5).contains(&bits), "{}: {bits}", format.name());
            // What is rounded already stays as it is, where the scale is found again.
            assert_eq!(rounded.values.len(), values.len());
        }
    }

    #[test]
    fn nothing_but_zeros_stays_zero() {
        let zeros = vec![0.0; 512];
        for format in every_format() {
            let rounded = format.round(WeightMatrix { values: &zeros, columns: 256 }).unwrap();
            assert!(rounded.values.iter().all(|x| *x == 0.0), "{}", format.name());
        }
    }

    #[test]
    fn what_no_scale_fits_is_refused() {
        let mut values = vec![0.5; 192];
        let group = |size| Format::Int { bits: 4, zero_point: false, share: Share::Group(size) };
        let text = group(80).round(WeightMatrix { values: &values, columns: 96 }).unwrap_err().to_string();
        assert!(text.contains("groups of 80 do not divide a row of 96\nnext: use groups of 16, 32"), "{text}");
        assert!(group(0).round(WeightMatrix { values: &values, columns: 96 }).is_err());
        assert!(group(32).round(WeightMatrix { values: &values, columns: 100 }).is_err());
        let nine = Format::Int { bits: 9, zero_point: false, share: Share::Row };
        assert!(nine.round(WeightMatrix { values: &values, columns: 96 }).unwrap_err().to_string().contains("2 to 8"));
        for bad in [f32::NAN, f32::INFINITY] {
            values[100] = bad;
            for format in every_format() {
                let text = format.round(WeightMatrix { values: &values, columns: 96 }).unwrap_err().to_string();
                assert!(text.contains("row 1, column 4") && text.contains("\nnext: "), "{text}");
            }
        }
    }
}
