//! bf16: the upper half of an f32, as a number that ranks exchange.

use std::cmp::Ordering;

/// A number of 16 bits: sign, exponent and the first 7 bits of the fraction of an f32.
///
/// Arithmetic is f32's: what is computed with it is unpacked first, and rounded at the end.
/// ```
/// use gpulab_ranks::BFloat16;
/// let x = BFloat16::from_f32(1.01);
/// assert_eq!((x.to_f32(), size_of::<BFloat16>()), (1.0078125, 2));
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[repr(transparent)]
pub struct BFloat16(
    /// Its bits.
    pub u16,
);

impl BFloat16 {
    /// The nearest one, ties to even. NaN stays NaN.
    pub fn from_f32(x: f32) -> BFloat16 {
        let bits = x.to_bits();
        match x.is_nan() {
            // Rounding could carry a NaN's low bits over into infinity.
            true => BFloat16((bits >> 16) as u16 | 0x40),
            false => BFloat16((bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16) as u16),
        }
    }

    /// The same number, exactly.
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// Each of these numbers, rounded.
    ///
    /// # Examples
    /// ```
    /// use gpulab_ranks::BFloat16;
    /// assert_eq!(BFloat16::round(&[0.5, 3.0]).len(), 2);
    /// ```
    pub fn round(numbers: &[f32]) -> Vec<BFloat16> {
        numbers.iter().map(|x| BFloat16::from_f32(*x)).collect()
    }
}

impl PartialEq for BFloat16 {
    fn eq(&self, other: &BFloat16) -> bool {
        self.to_f32() == other.to_f32()
    }
}

impl PartialOrd for BFloat16 {
    fn partial_cmp(&self, other: &BFloat16) -> Option<Ordering> {
        self.to_f32().partial_cmp(&other.to_f32())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bf16_comes_back_and_rounding_goes_to_the_nearest() {
        for bits in 0..=u16::MAX {
            let x = BFloat16(bits).to_f32();
            assert!(
                x.is_nan() && BFloat16::from_f32(x).to_f32().is_nan() || BFloat16::from_f32(x).0 == bits,
                "{bits:#x}"
            );
        }
        // One and a half units in the last place, ties to even, just above a tie; the largest f32 rounds up to infinity.
        let cases = [(1.0, 0x3F80), (1.003_906_2, 0x3F80), (1.011_718_8, 0x3F82), (1.003_906_4, 0x3F81)];
        cases.iter().for_each(|&(x, bits)| assert_eq!(BFloat16::from_f32(x).0, bits, "{x}"));
        assert_eq!([f32::MAX, -f32::MAX, -0.0].map(|x| BFloat16::from_f32(x).0), [0x7F80, 0xFF80, 0x8000]);
        assert!(BFloat16::from_f32(f32::from_bits(0x7F80_0001)).to_f32().is_nan());
        assert!(
            BFloat16(0) == BFloat16(0x8000)
                && BFloat16(0x7FC0) != BFloat16(0x7FC0)
                && BFloat16::from_f32(-1.0) < BFloat16(0)
        );
    }
}
