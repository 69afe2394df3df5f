//! Small floating-point numbers with scales: one in f32, or one of few bits for each block (MX, NVFP4).
//!
//! MX: the Open Compute Project's specification 1.0, section 6.3. NVFP4: NVIDIA, "Introducing NVFP4", 2025,
//! <https://developer.nvidia.com/blog/introducing-nvfp4-for-efficient-and-accurate-low-precision-inference/>.

use super::matrix::{Rounded, Share, WeightMatrix};
use super::minifloat::MiniFloat;
use gpulab::error::Result;

/// Weights in a block of MX.
const MX_BLOCK: usize = 32;
/// Weights in a block of NVFP4.
const NV_BLOCK: usize = 16;

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0_f32, |most, x| most.max(x.abs()))
}

fn scaled(values: &[f32], scale: f32, kind: MiniFloat) -> impl Iterator<Item = f32> {
    values.iter().map(move |x| if scale == 0.0 { 0.0 } else { kind.round(x / scale) * scale })
}

/// With a scale in f32 that takes the largest weight to the format's largest number.
pub(super) fn round_scaled(weights: WeightMatrix, kind: MiniFloat, share: Share) -> Result<Rounded> {
    let size = weights.shared(share)?;
    let blocks = weights.values.chunks(size);
    let bits = weights.values.len() as u64 * u64::from(kind.bits()) + blocks.len() as u64 * 32;
    let values = blocks.flat_map(|block| scaled(block, largest(block) / kind.most(), kind)).collect();
    Ok(Rounded { values, bits })
}

/// The scale of an MX block: the power of 2 that takes the largest weight's power of 2 to the format's largest one.
fn mx_scale(most: f32, kind: MiniFloat) -> f32 {
    match most > 0.0 {
        // E8M0 holds 2^−127 to 2^127.
        true => 2.0_f64.powi(((most.log2().floor() as i32) - kind.most_exponent()).clamp(-127, 127)) as f32,
        false => 0.0,
    }
}

/// With a power of 2 for each 32 weights. Weights between the format's largest number and the next power of 2 become the largest.
pub(super) fn round_mx(weights: WeightMatrix, kind: MiniFloat) -> Result<Rounded> {
    let size = weights.shared(Share::Group(MX_BLOCK))?;
    let blocks = weights.values.chunks(size);
    let bits = weights.values.len() as u64 * u64::from(kind.bits()) + blocks.len() as u64 * 8;
    let values = blocks.flat_map(|block| scaled(block, mx_scale(largest(block), kind), kind)).collect();
    Ok(Rounded { values, bits })
}

/// FP4 with a scale in FP8 (E4M3) for each 16 weights, and one in f32 that takes the largest of these scales to 448.
pub(super) fn round_nvfp4(weights: WeightMatrix) -> Result<Rounded> {
    let (fp4, fp8) = (MiniFloat::E2M1, MiniFloat::E4M3);
    let size = weights.shared(Share::Group(NV_BLOCK))?;
    let whole = largest(weights.values) / (fp4.most() * fp8.most());
    let scale = |block: &[f32]| match whole > 0.0 {
        true => fp8.round(largest(block) / fp4.most() / whole) * whole,
        false => 0.0,
    };
    let blocks = weights.values.chunks(size);
    let bits = weights.values.len() as u64 * 4 + blocks.len() as u64 * 8 + 32;
    let values = blocks.flat_map(|block| scaled(block, scale(block), fp4)).collect();
    Ok(Rounded { values, bits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mx_by_hand() {
        // The largest is 5, so its power of 2 is 4 = 2^2, that of FP4's largest number: the scale is 1.
        let mut values = vec![0.0; 32];
        values[..5].copy_from_slice(&[5.0, 2.4, -0.3, 0.2, 1.3]);
        let rounded = round_mx(WeightMatrix { values: &values, columns: 32 }, MiniFloat::E2M1).unwrap();
        assert_eq!(rounded.values[..5], [4.0, 2.0, -0.5, 0.0, 1.5]);
        assert_eq!(rounded.bits, 32 * 4 + 8);
        // 7.9 is below the next power of 2, and above FP4's largest number.
        values[0] = 7.9;
        assert_eq!(round_mx(WeightMatrix { values: &values, columns: 32 }, MiniFloat::E2M1).unwrap().values[0], 6.0);
        assert_eq!(mx_scale(448.0, MiniFloat::E4M3), 1.0);
        assert_eq!(mx_scale(0.75, MiniFloat::E4M3), 2.0_f32.powi(-9));
    }

    #[test]
    fn nvfp4_by_hand() {
        // The matrix' largest weight is 2688 = 6 · 448: the scale of the whole is 1. The second block's largest is 12: its scale is 2.
        let mut values = vec![0.0; 32];
        (values[0], values[16], values[17]) = (2688.0, 12.0, 2.9);
        let rounded = round_nvfp4(WeightMatrix { values: &values, columns: 32 }).unwrap();
        assert_eq!((rounded.values[0], rounded.values[16], rounded.values[17]), (2688.0, 12.0, 3.0));
        assert_eq!(rounded.bits, 32 * 4 + 2 * 8 + 32);
    }

    #[test]
    fn one_scale_takes_the_largest_weight_to_the_largest_number() {
        let values = [0.896, -0.1, 0.0, 0.002];
        let rounded = round_scaled(WeightMatrix { values: &values, columns: 4 }, MiniFloat::E4M3, Share::Row).unwrap();
        assert!((rounded.values[0] - 0.896).abs() < 1e-6 && (rounded.values[3] - 0.002).abs() < 1e-6);
        // −0.1 is −50 of these: between 48 and 52, 8 to 15 times 4.
        assert!((rounded.values[1] + 0.096).abs() < 1e-6 || (rounded.values[1] + 0.104).abs() < 1e-6, "{rounded:?}");
        assert_eq!(rounded.bits, 4 * 8 + 32);
    }
}
