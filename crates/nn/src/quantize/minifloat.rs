//! Floating-point numbers of 8 and 4 bits: FP8 in its two kinds, and FP4.
//!
//! After the Open Compute Project's "OCP Microscaling Formats (MX) Specification", version 1.0, section 5.3, and "FP8 Formats for Deep
//! Learning" (Micikevicius and others, 2022, <https://arxiv.org/abs/2209.05433>), table 1.

/// A kind of small floating-point number: sign, exponent, mantissa.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MiniFloat {
    /// FP8 with 4 bits of exponent and 3 of mantissa: up to 448, no infinity.
    E4M3,
    /// FP8 with 5 bits of exponent and 2 of mantissa: up to 57344, with infinity.
    E5M2,
    /// FP4: 0, 0.5, 1, 1.5, 2, 3, 4 and 6, with either sign.
    E2M1,
}

impl MiniFloat {
    /// All of them.
    pub const ALL: [MiniFloat; 3] = [MiniFloat::E4M3, MiniFloat::E5M2, MiniFloat::E2M1];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            MiniFloat::E4M3 => "FP8 E4M3",
            MiniFloat::E5M2 => "FP8 E5M2",
            MiniFloat::E2M1 => "FP4 E2M1",
        }
    }

    /// Bits of a number.
    pub fn bits(self) -> u32 {
        1 + self.exponent() + self.mantissa()
    }

    /// The largest number.
    pub fn most(self) -> f32 {
        match self {
            MiniFloat::E4M3 => 448.0,
            MiniFloat::E5M2 => 57344.0,
            MiniFloat::E2M1 => 6.0,
        }
    }

    /// The exponent of the largest number: its power of 2.
    pub fn most_exponent(self) -> i32 {
        match self {
            MiniFloat::E4M3 => 8,
            MiniFloat::E5M2 => 15,
            MiniFloat::E2M1 => 2,
        }
    }

    fn exponent(self) -> u32 {
        match self {
            MiniFloat::E4M3 => 4,
            MiniFloat::E5M2 => 5,
            MiniFloat::E2M1 => 2,
        }
    }

    fn mantissa(self) -> u32 {
        match self {
            MiniFloat::E4M3 => 3,
            MiniFloat::E5M2 => 2,
            MiniFloat::E2M1 => 1,
        }
    }

    fn bias(self) -> i32 {
        (1 << (self.exponent() - 1)) - 1
    }

    /// What a code stands for. The codes of E2M1 are 0 to 15.
    pub fn decode(self, code: u8) -> f32 {
        let (mantissa, exponent) = (self.mantissa(), self.exponent());
        let fraction = u32::from(code) & ((1 << mantissa) - 1);
        let power = (u32::from(code) >> mantissa) & ((1 << exponent) - 1);
        let sign = if u32::from(code) >> (mantissa + exponent) & 1 == 1 { -1.0 } else { 1.0 };
        match (self, power, fraction) {
            (MiniFloat::E4M3, 15, 7) => return f32::NAN,
            (MiniFloat::E5M2, 31, 0) => return sign * f32::INFINITY,
            (MiniFloat::E5M2, 31, _) => return f32::NAN,
            _ => (),
        }
        let part = fraction as f32 / (1 << mantissa) as f32;
        match power {
            // Subnormal: no leading 1.
            0 => sign * part * 2.0_f32.powi(1 - self.bias()),
            _ => sign * (1.0 + part) * 2.0_f32.powi(power as i32 - self.bias()),
        }
    }

    /// The nearest number, of two equally near ones that with the even mantissa; what is too large becomes the largest.
    pub fn round(self, x: f32) -> f32 {
        if x.is_nan() || x == 0.0 {
            return x;
        }
        let magnitude = f64::from(x.abs());
        // The power of 2 that is not above x, and not below that of the smallest normal number.
        let power = (((magnitude as f32).to_bits() >> 23) as i32 - 127).max(1 - self.bias());
        let step = 2.0_f64.powi(power - self.mantissa() as i32);
        let rounded = ((magnitude / step).round_ties_even() * step) as f32;
        rounded.min(self.most()).copysign(x)
    }

    /// The code of the nearest number.
    pub fn encode(self, x: f32) -> u8 {
        let sign = 1 << (self.bits() - 1);
        if x.is_nan() {
            return sign - 1;
        }
        let rounded = self.round(x.abs());
        // Codes without a sign rise with their numbers.
        let code = (0..sign).find(|code| self.decode(*code) == rounded).unwrap_or(0);
        if x.is_sign_negative() { code | sign } else { code }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device, Tensor};

    #[test]
    fn the_codes_are_those_of_the_specification() {
        // MX specification 1.0, tables of section 5.3: largest, smallest normal, largest and smallest subnormal.
        let e4m3 =
            [(0x7E, 448.0), (0x08, 2.0_f32.powi(-6)), (0x07, 0.875 * 2.0_f32.powi(-6)), (0x01, 2.0_f32.powi(-9))];
        let e5m2 =
            [(0x7B, 57344.0), (0x04, 2.0_f32.powi(-14)), (0x03, 0.75 * 2.0_f32.powi(-14)), (0x01, 2.0_f32.powi(-16))];
        for (kind, table) in [(MiniFloat::E4M3, e4m3), (MiniFloat::E5M2, e5m2)] {
            for (code, value) in table {
                assert_eq!((kind.decode(code), kind.decode(code | 0x80)), (value, -value));
                assert_eq!((kind.encode(value), kind.encode(-value)), (code, code | 0x80));
            }
        }
        let fp4: Vec<f32> = (0..8).map(|code| MiniFloat::E2M1.decode(code)).collect();
        assert_eq!(fp4, [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        assert!(MiniFloat::E4M3.decode(0x7F).is_nan() && MiniFloat::E5M2.decode(0x7C).is_infinite());
        assert!(MiniFloat::E5M2.decode(0x7D).is_nan());
    }

    #[test]
    fn every_code_comes_back() {
        for kind in MiniFloat::ALL {
            for code in 0..=(1_u32 << kind.bits()).wrapping_sub(1) as u8 {
                let value = kind.decode(code);
                if value.is_finite() {
                    assert_eq!(kind.encode(value), code, "{} {code}", kind.name());
                    assert_eq!(kind.round(value), value);
                }
            }
        }
    }

    #[test]
    fn ties_go_to_the_even_mantissa_and_what_is_too_large_to_the_largest() {
        let fp4 = MiniFloat::E2M1;
        // Between 2 (mantissa 0) and 3 (mantissa 1); between 0.5 and 1, 3 and 4, 4 and 6.
        assert_eq!([2.5, 0.75, 3.5, 5.0, 0.25, 7.0, -9.0].map(|x| fp4.round(x)), [2.0, 1.0, 4.0, 4.0, 0.0, 6.0, -6.0]);
        assert_eq!([449.0, 1e9, f32::INFINITY].map(|x| MiniFloat::E4M3.round(x)), [448.0; 3]);
    }

    #[test]
    fn e4m3_is_candles() {
        let values: Vec<f32> =
            (-2000..2000).map(|i| i as f32 * 0.223).chain((-60..60).map(|i| i as f32 * 1e-4)).collect();
        let inside: Vec<f32> = values.into_iter().filter(|x| x.abs() <= 448.0).collect();
        let theirs = Tensor::from_slice(&inside, inside.len(), &Device::Cpu).unwrap();
        let theirs = theirs.to_dtype(DType::F8E4M3).unwrap().to_dtype(DType::F32).unwrap().to_vec1::<f32>().unwrap();
        for (x, theirs) in inside.iter().zip(theirs) {
            assert_eq!(MiniFloat::E4M3.round(*x), theirs, "{x}");
        }
    }
}
