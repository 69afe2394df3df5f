//! f16, bf16 and 8-bit floats to and from double precision.

use crate::op::{FloatMode, Round};

/// Fraction bits and smallest exponent of a format.
fn shape(brain: bool) -> (i32, i32) {
    if brain { (7, -126) } else { (10, -14) }
}

/// Bits of infinity.
fn infinity(brain: bool) -> u32 {
    if brain { 0x7f80 } else { 0x7c00 }
}

/// Value of a half; subnormals are zero under `.ftz`.
pub fn widen(bits: u16, brain: bool, ftz: bool) -> f64 {
    let (fraction, least) = shape(brain);
    let magnitude = u32::from(bits & 0x7fff);
    let (exponent, digits) = ((magnitude >> fraction) as i32, f64::from(magnitude & ((1 << fraction) - 1)));
    let value = if magnitude > infinity(brain) {
        f64::NAN
    } else if magnitude == infinity(brain) {
        f64::INFINITY
    } else if exponent == 0 {
        if ftz { 0.0 } else { digits * power(least - fraction) }
    } else {
        (digits + f64::from(1 << fraction)) * power(exponent - 1 + least - fraction)
    };
    if bits & 0x8000 != 0 { -value } else { value }
}

/// Value of an e4m3: the largest exponent has numbers, too, and one NaN of each sign.
pub fn widen_e4m3(bits: u8) -> f64 {
    let (exponent, digits) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    let value = match (exponent, bits & 7) {
        (15, 7) => f64::NAN,
        (0, _) => digits * power(-9),
        _ => (8.0 + digits) * power(exponent - 10),
    };
    if bits & 0x80 != 0 { -value } else { value }
}

/// Value of an e5m2: the upper byte of an f16.
pub fn widen_e5m2(bits: u8) -> f64 {
    widen(u16::from(bits) << 8, false, false)
}

/// A double (exact or odd-rounded) to the nearest half, ties to even.
pub fn narrow(x: f64, brain: bool) -> u32 {
    if x.is_nan() {
        return 0x7fff;
    }
    let (fraction, least) = shape(brain);
    let sign = (x.to_bits() >> 48) as u32 & 0x8000;
    let x = x.abs();
    if x == 0.0 || x.is_infinite() {
        return sign | if x == 0.0 { 0 } else { infinity(brain) };
    }
    let exponent = ((x.to_bits() >> 52) as i32 - 1023).max(least);
    if exponent > 128 {
        return sign | infinity(brain);
    }
    // Units of the last place; a carry runs into the exponent as it should.
    let units = (x * power(fraction - exponent)).round_ties_even() as u32;
    let bits = (((exponent - least) as u32) << fraction) + units;
    sign | bits.min(infinity(brain))
}

/// A double to the nearest e4m3 or e5m2 (`wide`), ties to even; the largest number stands for all that are larger.
pub fn narrow_small(x: f64, wide: bool) -> u32 {
    if x.is_nan() {
        return 0x7f;
    }
    let (fraction, least, most) = if wide { (2, -14, 0x7b) } else { (3, -6, 0x7e) };
    let sign = (x.to_bits() >> 56) as u32 & 0x80;
    let exponent = ((x.abs().to_bits() >> 52) as i32 - 1023).max(least);
    if exponent > 128 {
        return sign | most;
    }
    let units = (x.abs() * power(fraction - exponent)).round_ties_even() as u32;
    sign | ((((exponent - least) as u32) << fraction) + units).min(most)
}

/// A double (exact or odd-rounded) to a half, as the rounding says.
fn directed(x: f64, brain: bool, round: Round) -> u32 {
    let near = narrow(x, brain);
    let value = widen(near as u16, brain, false);
    let (magnitude, sign) = (near & 0x7fff, near & 0x8000);
    match round {
        _ if value == x || x.is_nan() => near,
        // One step down or up; zero's neighbour on the other side is never asked for.
        Round::Down if value > x => {
            if sign == 0 && magnitude > 0 {
                near - 1
            } else {
                near.max(0x8000) + 1
            }
        }
        Round::Up if value < x => {
            if sign != 0 && magnitude > 0 {
                near - 1
            } else {
                (near & 0x7fff) + 1
            }
        }
        Round::Zero if value.abs() > x.abs() => near - 1,
        _ => near,
    }
}

/// After a half instruction: `.ftz`, `.sat`, `.relu`.
pub fn finish(x: f64, brain: bool, mode: FloatMode) -> u32 {
    let x = match mode {
        FloatMode { sat: true, .. } => [0.0, x.min(1.0)][usize::from(x > 0.0)],
        FloatMode { relu: true, .. } => [0.0, x][usize::from(x > 0.0 || x.is_nan())],
        _ => x,
    };
    let bits = directed(x, brain, mode.round);
    let subnormal = bits & 0x7fff < 1 << shape(brain).0;
    if mode.ftz && subnormal { bits & 0x8000 } else { bits }
}

fn power(exponent: i32) -> f64 {
    // Exponents here stay far from the ends of double precision.
    f64::from_bits(((exponent + 1023) as u64) << 52)
}
