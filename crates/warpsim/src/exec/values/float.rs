//! Float functions with the roundings of PTX, lane by lane.

use super::half;
use crate::op::{FloatFn, FloatMode, FloatOp, Halves, Round};

/// What f32 instructions give for NaN (PTX ISA, "Floating Point Instructions": single-precision results use the canonical NaN).
pub const NAN32: f32 = f32::from_bits(0x7fff_ffff);

/// The canonical NaN for any NaN.
#[inline(always)]
pub fn canon(x: f32) -> f32 {
    if x.is_nan() { NAN32 } else { x }
}

/// An exact result as a double whose last bit is odd when digits were cut: rounding it again is then exact.
#[inline(always)]
pub fn odd(high: f64, rest: f64) -> f64 {
    if rest == 0.0 || !high.is_finite() || rest.is_nan() {
        return high;
    }
    let truncated = if (rest > 0.0) != (high > 0.0) && high != 0.0 { high.to_bits() - 1 } else { high.to_bits() };
    f64::from_bits(truncated | 1)
}

/// Sum, odd-rounded.
pub fn sum(x: f64, y: f64) -> f64 {
    let high = x + y;
    let part = high - x;
    odd(high, (x - (high - part)) + (y - part))
}

/// A double (exact or odd-rounded) to single precision.
pub fn round32(x: f64, round: Round) -> f32 {
    let near = x as f32;
    let back = f64::from(near);
    if round == Round::Nearest || back == x || x.is_nan() || x.is_infinite() {
        return near;
    }
    match round {
        Round::Down if back > x => near.next_down(),
        Round::Up if back < x => near.next_up(),
        Round::Zero if back.abs() > x.abs() => f32::from_bits(near.to_bits() - 1),
        _ => near,
    }
}

/// Subnormals to zero of the same sign.
#[inline(always)]
pub fn flush(x: f32, ftz: bool) -> f32 {
    if ftz && x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}

/// `cvt.f32.bf16`: a bf16 is the upper half of the f32 of the same value.
#[inline(always)]
pub fn brain_to_single(bits: u32, ftz: bool) -> u32 {
    canon(flush(f32::from_bits(bits << 16), ftz)).to_bits()
}

/// `cvt.rn.bf16.f32`: to the nearest, ties to even; a carry runs into the exponent as it should.
#[inline(always)]
pub fn single_to_brain(bits: u32) -> u32 {
    let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if f32::from_bits(bits).is_nan() { 0x7fff } else { nearest }
}

/// After an f32 instruction: `.ftz`, `.sat`, the canonical NaN.
#[inline(always)]
fn finish(x: f32, mode: FloatMode) -> f32 {
    let x = flush(x, mode.ftz);
    match mode.sat {
        // Also for NaN; and -0 becomes +0.
        true if x > 0.0 => x.min(1.0),
        true => 0.0,
        false => canon(x),
    }
}

/// Two-operand f32 instructions.
pub fn op32(op: FloatOp, mode: FloatMode, x: f32, y: f32) -> f32 {
    let (x, y) = (flush(x, mode.ftz), flush(y, mode.ftz));
    let (a, b) = (f64::from(x), f64::from(y));
    let exact = match op {
        FloatOp::Add => sum(a, b),
        FloatOp::Sub => sum(a, -b),
        FloatOp::Mul => a * b,
        FloatOp::Div => {
            let q = a / b;
            odd(q, if q.is_finite() && q != 0.0 { (-q).mul_add(b, a) * b.signum() } else { 0.0 })
        }
        FloatOp::Min { nan } => return finish(least(x, y, nan), mode),
        FloatOp::Max { nan } => return finish(-least(-x, -y, nan), mode),
        FloatOp::Copysign => return x.copysign(y),
    };
    let rounded = round32(exact, mode.round);
    // An exact zero of opposite terms is -0 when rounding down.
    let zero = exact == 0.0 && matches!(op, FloatOp::Add | FloatOp::Sub) && mode.round == Round::Down;
    let y = if op == FloatOp::Sub { -y } else { y };
    let rounded = if zero && (x.is_sign_negative() || y.is_sign_negative()) { -0.0 } else { rounded };
    finish(rounded, mode)
}

/// Minimum: a number wins over NaN unless `.NaN`; -0 is less than +0.
fn least(x: f32, y: f32, nan: bool) -> f32 {
    match (x.is_nan(), y.is_nan()) {
        (true, true) => NAN32,
        (true, false) => [y, NAN32][usize::from(nan)],
        (false, true) => [x, NAN32][usize::from(nan)],
        _ if x == y => f32::from_bits(x.to_bits() | (y.to_bits() & 0x8000_0000)),
        _ => [y, x][usize::from(x < y)],
    }
}

/// Fused multiply-add in f32.
pub fn fma32(mode: FloatMode, x: f32, y: f32, z: f32) -> f32 {
    let (x, y, z) = (flush(x, mode.ftz), flush(y, mode.ftz), flush(z, mode.ftz));
    // The product of two singles is exact in double precision.
    let product = f64::from(x) * f64::from(y);
    let exact = sum(product, f64::from(z));
    let negative = product.is_sign_negative() || z.is_sign_negative();
    let zero = exact == 0.0 && mode.round == Round::Down && negative;
    finish(if zero { -0.0 } else { round32(exact, mode.round) }, mode)
}

/// Two-operand f64 instructions, rounding to nearest.
pub fn op64(op: FloatOp, x: f64, y: f64) -> f64 {
    match op {
        FloatOp::Add => x + y,
        FloatOp::Sub => x - y,
        FloatOp::Mul => x * y,
        FloatOp::Div => x / y,
        FloatOp::Min { .. } => least64(x, y),
        FloatOp::Max { .. } => -least64(-x, -y),
        FloatOp::Copysign => x.copysign(y),
    }
}

fn least64(x: f64, y: f64) -> f64 {
    match (x.is_nan(), y.is_nan()) {
        (true, _) => y,
        (_, true) => x,
        _ if x == y => f64::from_bits(x.to_bits() | (y.to_bits() & 1 << 63)),
        _ => [y, x][usize::from(x < y)],
    }
}

/// Functions of one f32; the approximate ones are rounded from double precision, well within the ISA's error.
pub fn fn32(f: FloatFn, mode: FloatMode, x: f32) -> f32 {
    let x = flush(x, mode.ftz);
    let wide = f64::from(x);
    let exact = match f {
        FloatFn::Neg => return flush(-x, mode.ftz),
        FloatFn::Abs => return flush(x.abs(), mode.ftz),
        FloatFn::Sqrt => {
            let root = wide.sqrt();
            odd(root, if root.is_finite() && root != 0.0 { (-root).mul_add(root, wide) } else { 0.0 })
        }
        FloatFn::Rcp => return op32(FloatOp::Div, mode, 1.0, x),
        FloatFn::Rsqrt => fn64(f, wide),
        FloatFn::Ex2 => wide.exp2(),
        FloatFn::Lg2 => wide.log2(),
        FloatFn::Sin => wide.sin(),
        FloatFn::Cos => wide.cos(),
        FloatFn::Tanh => wide.tanh(),
        FloatFn::Tf32 => return tf32(x),
    };
    finish(round32(exact, mode.round), mode)
}

/// Functions of one f64, rounding to nearest.
pub fn fn64(f: FloatFn, x: f64) -> f64 {
    match f {
        FloatFn::Neg => -x,
        FloatFn::Abs => x.abs(),
        FloatFn::Sqrt => x.sqrt(),
        FloatFn::Rcp => 1.0 / x,
        FloatFn::Rsqrt => 1.0 / x.sqrt(),
        FloatFn::Sin => x.sin(),
        FloatFn::Cos => x.cos(),
        FloatFn::Lg2 => x.log2(),
        FloatFn::Ex2 => x.exp2(),
        FloatFn::Tanh => x.tanh(),
        FloatFn::Tf32 => tf32(x as f32).into(),
    }
}

fn tf32(x: f32) -> f32 {
    match x.is_finite() {
        true => f32::from_bits((x.to_bits() + 0x1000) & !0x1fff),
        false => canon(x),
    }
}

/// Does a half instruction on each half of the words.
pub fn halves(kind: Halves, mode: FloatMode, words: [u32; 3], f: impl Fn([f64; 3]) -> f64) -> u32 {
    let one = |shift: u32| {
        let x = words.map(|w| half::widen((w >> shift) as u16, kind.brain, mode.ftz));
        half::finish(f(x), kind.brain, mode)
    };
    let low = one(0);
    if kind.packed { low | one(16) << 16 } else { low }
}

/// Two-operand half instructions.
pub fn op_half(op: FloatOp, mode: FloatMode, kind: Halves, x: u32, y: u32) -> u32 {
    halves(kind, mode, [x, y, 0], |[x, y, _]| match op {
        FloatOp::Add => sum(x, y),
        FloatOp::Sub => sum(x, -y),
        FloatOp::Min { nan } if nan && (x.is_nan() || y.is_nan()) => f64::NAN,
        FloatOp::Max { nan } if nan && (x.is_nan() || y.is_nan()) => f64::NAN,
        other => op64(other, x, y),
    })
}

/// Fused multiply-add of halves: the product is exact in double precision.
pub fn fma_half(mode: FloatMode, kind: Halves, x: u32, y: u32, z: u32) -> u32 {
    halves(kind, mode, [x, y, z], |[x, y, z]| sum(x * y, z))
}

/// Functions of one half.
pub fn fn_half(f: FloatFn, mode: FloatMode, kind: Halves, x: u32) -> u32 {
    halves(kind, mode, [x, 0, 0], |[x, ..]| fn64(f, x))
}
