//! bf16 on the host: the upper half of an f32. Buffers hold it as `u16`, a kernel's `__nv_bfloat16`.

use rayon::prelude::*;

/// The nearest bf16, ties to even, as its bits. NaN stays NaN.
pub fn bf16_from_f32(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        // Rounding could carry a NaN's low bits over into infinity.
        return (bits >> 16) as u16 | 0x40;
    }
    (bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

/// The number that these bits stand for, exactly.
pub fn f32_from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// [`random_f32`](super::random_f32), each number rounded to bf16.
pub fn random_bf16(n: usize, seed: u64) -> Vec<u16> {
    super::random_f32(n, seed).into_par_iter().with_min_len(super::CHUNK).map(bf16_from_f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bf16_comes_back_and_rounding_goes_to_the_nearest() {
        for bits in 0..=u16::MAX {
            let x = f32_from_bf16(bits);
            assert!(x.is_nan() || bf16_from_f32(x) == bits, "{bits:#x}");
            assert_eq!(x.is_nan(), f32_from_bf16(bf16_from_f32(x)).is_nan());
        }
        // One and a half units in the last place, ties to even, just above a tie; the largest f32 rounds up to infinity.
        let cases = [(1.0, 0x3F80), (1.003_906_2, 0x3F80), (1.011_718_8, 0x3F82), (1.003_906_4, 0x3F81)];
        cases.iter().for_each(|&(x, bits)| assert_eq!(bf16_from_f32(x), bits, "{x}"));
        assert_eq!([f32::MAX, -f32::MAX, -0.0].map(bf16_from_f32), [0x7F80, 0xFF80, 0x8000]);
        assert!(f32_from_bf16(bf16_from_f32(f32::from_bits(0x7F80_0001))).is_nan());
    }
}
