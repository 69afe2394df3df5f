//! NF4: sixteen values that are equally often the nearest one, when weights are normally distributed.
//!
//! The values are those of QLoRA (Dettmers and others, 2023, appendix E, <https://arxiv.org/abs/2305.14314>), as bitsandbytes has
//! them. 0 is one of them, and there is one more above it than below.

use super::matrix::{Rounded, Share, Weights};
use gpulab::error::Result;

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

pub(super) fn round(weights: Weights, block: usize) -> Result<Rounded> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let rounded = round(Weights { values: &values, columns: 64 }, 64).unwrap();
        assert_eq!((rounded.values[63], rounded.values[20], rounded.bits), (43.0, 0.0, 64 * 4 + 32));
    }
}
