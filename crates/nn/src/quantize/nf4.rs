//! NF4: sixteen values that are equally often the nearest one, when weights are normally distributed.
//!
//! The values are those of QLoRA (Dettmers and others, 2023, appendix E, <https://arxiv.org/abs/2305.14314>), as bitsandbytes has
//! them. 0 is one of them, and there is one more above it than below.

use super::MiniFloat;
use super::matrix::{Rounded, Share, WeightMatrix};
use gpulab::error::Result;
use rayon::prelude::*;
use std::ops::Range;

/// What the codes 0 to 15 stand for, before the scale.
pub const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// The code whose value is nearest to a weight that was divided by the block's largest.
pub fn nf4_encode(x: f32) -> u8 {
    // The values rise, so what lies above the middle of two belongs to the upper one.
    NF4.windows(2).filter(|two| x > (two[0] + two[1]) / 2.0).count() as u8
}

/// What a code stands for.
pub fn nf4_decode(code: u8) -> f32 {
    NF4[usize::from(code & 15)]
}

pub(super) fn round(weights: WeightMatrix, block: usize) -> Result<Rounded> {
    let size = weights.shared(Share::Group(block))?;
    let mut values = Vec::with_capacity(weights.values.len());
    for block in weights.values.chunks(size) {
        let most = block.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        let one = |x: &f32| if most == 0.0 { 0.0 } else { most * nf4_decode(nf4_encode(x / most)) };
        values.extend(block.iter().map(one));
    }
    let bits = values.len() as u64 * 4 + (values.len() / size) as u64 * 32;
    Ok(Rounded { values, bits })
}

// ----------------------------------------------------------------------
// A matrix that stays in four bits, and is unpacked piece by piece.

/// Weights that share a scale, and scales that share one of their own, as in QLoRA.
const BLOCK: usize = 64;
const SCALES: usize = 256;

/// A matrix in NF4, two codes in a byte; its scales in f32, or by **double quantization** in 8 bits themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct Nf4Matrix {
    rows: usize,
    columns: usize,
    /// The first of two weights in the high half, as bitsandbytes has them.
    codes: Vec<u8>,
    scales: Scales,
}

#[derive(Debug, Clone, PartialEq)]
enum Scales {
    Plain(Vec<f32>),
    /// Scale = mean + `of_group` · E4M3. The mean of all is taken away first, as scales are positive and the codes have a sign.
    Double {
        codes: Vec<u8>,
        of_group: Vec<f32>,
        mean: f32,
    },
}

/// Codes, their scales in 8 bits, the scales of those, and the mean that all scales are apart from.
pub(crate) struct DoubleQuantized<'a> {
    pub codes: &'a [u8],
    pub scales: &'a [u8],
    pub of_group: &'a [f32],
    pub mean: f32,
}

impl Nf4Matrix {
    /// Rounds a matrix. With `double`, the scales of 256 blocks of 64 share one in f32, and are FP8 (E4M3) themselves: 4.127 bits per
    /// weight in place of 4.5.
    ///
    /// # Errors
    /// [`Invalid`](gpulab::error::Error::Invalid) when 64 does not divide a row, or a weight is NaN or infinite.
    ///
    /// ```
    /// # use gpulab_nn::quantize::{Nf4Matrix, WeightMatrix};
    /// let values: Vec<f32> = (0..256 * 64).map(|i| ((i % 97) as f32 - 48.0) / 48.0).collect();
    /// let matrix = Nf4Matrix::new(WeightMatrix { values: &values, columns: 64 }, true)?;
    /// assert_eq!(matrix.bytes(), 256 * 64 / 2 + 256 + 4 + 4); // codes, scales, the group's scale, the mean
    /// # Ok::<(), gpulab::Error>(())
    /// ```
    pub fn new(weights: WeightMatrix, double: bool) -> Result<Nf4Matrix> {
        weights.check()?;
        weights.shared(Share::Group(BLOCK))?;
        let most = |block: &[f32]| block.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        let plain: Vec<f32> = weights.values.par_chunks(BLOCK).map(most).collect();
        let scales = if double { Scales::double(&plain) } else { Scales::Plain(plain) };
        let two = |block: usize, pair: &[f32]| {
            // By the scale that unpacking will find.
            let scale = scales.of(block);
            let code = |x: f32| if scale == 0.0 { 7 } else { nf4_encode(x / scale) };
            code(pair[0]) << 4 | code(pair[1])
        };
        let codes = weights.values.par_chunks(2).enumerate().map(|(at, pair)| two(at * 2 / BLOCK, pair)).collect();
        Ok(Nf4Matrix { rows: weights.rows(), columns: weights.columns, codes, scales })
    }

    /// Rows, which are outputs, and columns, which are inputs.
    pub fn shape(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// Bytes of codes and scales.
    pub fn bytes(&self) -> usize {
        self.codes.len()
            + match &self.scales {
                Scales::Plain(scales) => 4 * scales.len(),
                Scales::Double { codes, of_group, .. } => codes.len() + 4 * of_group.len() + 4,
            }
    }

    /// What is stored of it; nothing without double quantization.
    pub(crate) fn double_quantized(&self) -> Option<DoubleQuantized<'_>> {
        match &self.scales {
            Scales::Plain(_) => None,
            Scales::Double { codes, of_group, mean } => {
                Some(DoubleQuantized { codes: &self.codes, scales: codes, of_group, mean: *mean })
            }
        }
    }

    /// A part of the matrix, row after row.
    ///
    /// # Panics
    /// When the part lies outside of the matrix, or begins or ends at an odd column.
    pub fn unpack(&self, rows: Range<usize>, columns: Range<usize>) -> Vec<f32> {
        assert!(rows.end <= self.rows && columns.end <= self.columns, "{rows:?} × {columns:?} of {:?}", self.shape());
        assert!(columns.start.is_multiple_of(2) && columns.end.is_multiple_of(2), "{columns:?}");
        let mut values = vec![0.0; rows.len() * columns.len()];
        values.par_chunks_mut(columns.len().max(1)).zip(rows).for_each(|(out, row)| {
            let first = row * self.columns + columns.start;
            let mut scale = self.scales.of(first / BLOCK);
            for (i, pair) in out.chunks_exact_mut(2).enumerate() {
                let at = first + 2 * i;
                if at.is_multiple_of(BLOCK) {
                    scale = self.scales.of(at / BLOCK);
                }
                let two = self.codes[at / 2];
                pair[0] = scale * nf4_decode(two >> 4);
                pair[1] = scale * nf4_decode(two);
            }
        });
        values
    }
}

impl Scales {
    fn double(plain: &[f32]) -> Scales {
        let mean = plain.iter().map(|x| f64::from(*x)).sum::<f64>() / plain.len() as f64;
        let mean = mean as f32;
        let of_group =
            |group: &[f32]| group.iter().fold(0.0_f32, |most, x| most.max((x - mean).abs())) / MiniFloat::E4M3.most();
        let of_group: Vec<f32> = plain.chunks(SCALES).map(of_group).collect();
        let code = |(at, x): (usize, &f32)| {
            let scale = of_group[at / SCALES];
            MiniFloat::E4M3.encode(if scale == 0.0 { 0.0 } else { (x - mean) / scale })
        };
        Scales::Double { codes: plain.iter().enumerate().map(code).collect(), of_group, mean }
    }

    fn of(&self, block: usize) -> f32 {
        match self {
            Scales::Plain(scales) => scales[block],
            // Never below 0: a rounded scale near 0 could fall on the other side, and turn its block around.
            Scales::Double { codes, of_group, mean } => {
                (mean + of_group[block / SCALES] * MiniFloat::E4M3.decode(codes[block])).max(0.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Roughly normal.
    fn normal(count: usize) -> Vec<f32> {
        let mut random = crate::gpt::SplitMix64::new(9);
        (0..count).map(|_| (0..6).map(|_| random.unit() as f32 - 0.5).sum::<f32>()).collect()
    }

    #[test]
    fn a_matrix_in_four_bits_is_what_the_format_says() {
        let values = normal(192 * 128);
        let weights = WeightMatrix { values: &values, columns: 128 };
        let plain = Nf4Matrix::new(weights, false).unwrap();
        assert_eq!(plain.unpack(0..192, 0..128), round(weights, 64).unwrap().values);
        assert_eq!(8 * plain.bytes(), 192 * 128 * 4 + 192 * 2 * 32);
        // Any part is the same as in the whole.
        let part: Vec<f32> = (5..9).flat_map(|row| values_of(&plain, row, 62..102)).collect();
        assert_eq!(plain.unpack(5..9, 62..102), part);
        assert!(plain.unpack(3..3, 0..128).is_empty());
    }

    fn values_of(matrix: &Nf4Matrix, row: usize, columns: Range<usize>) -> Vec<f32> {
        matrix.unpack(0..192, 0..128)[row * 128..][columns].to_vec()
    }

    #[test]
    fn double_quantization_saves_a_third_of_a_bit_and_costs_little() {
        let values = normal(512 * 128);
        let weights = WeightMatrix { values: &values, columns: 128 };
        let error = |matrix: &Nf4Matrix| {
            let off =
                matrix.unpack(0..512, 0..128).iter().zip(&values).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
            (off / values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>()).sqrt()
        };
        let [plain, double] = [false, true].map(|double| Nf4Matrix::new(weights, double).unwrap());
        let bits = |matrix: &Nf4Matrix| 8.0 * matrix.bytes() as f64 / values.len() as f64;
        assert!((bits(&plain) - 4.5).abs() < 1e-9 && (bits(&double) - 4.127).abs() < 1e-3, "{}", bits(&double));
        let (plain, double) = (error(&plain), error(&double));
        assert!(double > plain && double < 1.01 * plain, "{plain} {double}");
    }

    #[test]
    fn zeros_stay_zeros_and_what_does_not_fit_is_refused() {
        let zeros = vec![0.0; 256];
        for double in [false, true] {
            let matrix = Nf4Matrix::new(WeightMatrix { values: &zeros, columns: 64 }, double).unwrap();
            assert_eq!(matrix.unpack(0..4, 0..64), zeros);
            let text = Nf4Matrix::new(WeightMatrix { values: &zeros, columns: 32 }, double).unwrap_err().to_string();
            assert!(text.contains("groups of 64 do not divide a row of 32"), "{text}");
        }
        let mut bad = vec![0.5; 128];
        bad[70] = f32::NAN;
        assert!(Nf4Matrix::new(WeightMatrix { values: &bad, columns: 64 }, true).is_err());
    }

    #[test]
    fn the_table_is_qloras() {
        // Appendix E, to its last digit in f32.
        assert_eq!(NF4[1], -0.6961928009986877_f64 as f32);
        assert_eq!(NF4[8], 0.07958029955625534_f64 as f32);
        assert_eq!(NF4[14], 0.7229568362236023_f64 as f32);
        assert!(NF4.is_sorted());
    }

    #[test]
    fn each_value_has_its_code_and_between_two_the_nearer_one_wins() {
        for code in 0..16 {
            assert_eq!(nf4_encode(nf4_decode(code)), code);
        }
        assert_eq!([0.039, 0.04, -0.0455, -0.0456, 0.99, 0.86, -2.0].map(nf4_encode), [7, 8, 7, 6, 15, 14, 0]);
        let values: Vec<f32> = (0..64).map(|i| i as f32 - 20.0).collect();
        let rounded = round(WeightMatrix { values: &values, columns: 64 }, 64).unwrap();
        assert_eq!((rounded.values[63], rounded.values[20], rounded.bits), (43.0, 0.0, 64 * 4 + 32));
    }
}
