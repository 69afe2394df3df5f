//! Doubles rounded towards zero or an infinity, which the host's own arithmetic does not do: exact whole numbers,
//! rounded once. A last bit that is set stands for all digits below it.

use crate::op::{FloatFn, FloatOp, Round};

/// Fraction bits of a double, and the exponent of the last place of the smallest ones.
const FRACTION: i32 = 52;
const LEAST: i32 = -1074;

/// A finite number other than zero: its magnitude is digits × 2^exponent.
#[derive(Clone, Copy)]
struct Exact {
    negative: bool,
    digits: u128,
    exponent: i32,
}

fn take(x: f64) -> Exact {
    let bits = x.to_bits();
    let (power, digits) = ((bits >> FRACTION & 0x7ff) as i32, bits & ((1 << FRACTION) - 1));
    let digits = if power == 0 { digits } else { digits | 1 << FRACTION };
    let exponent = power.max(1) - 1 + LEAST;
    Exact { negative: x.is_sign_negative(), digits: digits.into(), exponent }
}

impl Exact {
    /// Digits moved up as far as `top` bits allow.
    fn high(self, top: u32) -> Self {
        let by = self.digits.leading_zeros() - (128 - top);
        Self { digits: self.digits << by, exponent: self.exponent - by as i32, ..self }
    }

    /// The number as a double.
    fn round(self, round: Round) -> f64 {
        let length = 128 - self.digits.leading_zeros() as i32;
        let place = (self.exponent + length - 1 - FRACTION).max(LEAST);
        let by = place - self.exponent;
        let (kept, rest) = match by {
            ..=0 => (self.digits << -by, 0),
            1..=127 => (self.digits >> by, self.digits & ((1 << by) - 1)),
            _ => (0, self.digits),
        };
        let half = if (1..=127).contains(&by) { 1u128 << (by - 1) } else { u128::MAX };
        let away = match round {
            Round::Nearest => rest > half || rest == half && kept & 1 == 1,
            Round::Zero => false,
            Round::Down => self.negative && rest != 0,
            Round::Up => !self.negative && rest != 0,
        };
        let kept = kept as u64 + u64::from(away);
        // A carry runs into the exponent as it should.
        let power = (place - LEAST) as u64;
        let bits = if kept >> FRACTION == 0 { kept } else { (power << FRACTION) + kept };
        let infinite = f64::INFINITY.to_bits();
        let bits = match round {
            _ if bits < infinite => bits,
            Round::Nearest => infinite,
            // Past the largest double, only a rounding away from zero gives an infinity.
            Round::Down if self.negative => infinite,
            Round::Up if !self.negative => infinite,
            _ => infinite - 1,
        };
        f64::from_bits(bits | u64::from(self.negative) << 63)
    }
}

/// Digits moved down; what falls out sets the last bit.
fn jam(digits: u128, by: u32) -> u128 {
    match by {
        0 => digits,
        1..=127 => digits >> by | u128::from(digits & ((1 << by) - 1) != 0),
        _ => u128::from(digits != 0),
    }
}

/// The sum; `None` is an exact zero.
fn sum(x: Exact, y: Exact) -> Option<Exact> {
    let (x, y) = (x.high(126), y.high(126));
    let (high, low) = if x.exponent >= y.exponent { (x, y) } else { (y, x) };
    let below = jam(low.digits, (high.exponent - low.exponent) as u32);
    let (digits, negative) = if high.negative == low.negative {
        (high.digits + below, high.negative)
    } else if high.digits >= below {
        (high.digits - below, high.negative)
    } else {
        (below - high.digits, low.negative)
    };
    (digits != 0).then_some(Exact { negative, digits, exponent: high.exponent })
}

fn zero(round: Round) -> f64 {
    if round == Round::Down { -0.0 } else { 0.0 }
}

fn ordinary(x: f64) -> bool {
    x.is_finite() && x != 0.0
}

/// x × y + z.
pub fn fma(x: f64, y: f64, z: f64, round: Round) -> f64 {
    if !ordinary(x) || !ordinary(y) || !z.is_finite() {
        let exact = x.mul_add(y, z);
        // Zeros of opposite signs.
        let opposite = exact == 0.0 && z == 0.0 && (x * y).is_sign_negative() != z.is_sign_negative();
        return if opposite { zero(round) } else { exact };
    }
    let (a, b) = (take(x), take(y));
    let negative = a.negative != b.negative;
    let product = Exact { negative, digits: a.digits * b.digits, exponent: a.exponent + b.exponent };
    if z == 0.0 {
        return product.round(round);
    }
    sum(product, take(z)).map_or(zero(round), |s| s.round(round))
}

/// Two-operand functions; those that are exact are not rounded.
pub fn op(f: FloatOp, x: f64, y: f64, round: Round) -> f64 {
    let y = if f == FloatOp::Sub { -y } else { y };
    match f {
        FloatOp::Add | FloatOp::Sub => fma(x, 1.0, y, round),
        FloatOp::Mul if ordinary(x) && ordinary(y) => {
            let (a, b) = (take(x), take(y));
            let negative = a.negative != b.negative;
            Exact { negative, digits: a.digits * b.digits, exponent: a.exponent + b.exponent }.round(round)
        }
        FloatOp::Div if ordinary(x) && ordinary(y) => {
            let (a, b) = (take(x).high(127), take(y));
            let digits = (a.digits / b.digits) << 1 | u128::from(a.digits % b.digits != 0);
            Exact { negative: a.negative != b.negative, digits, exponent: a.exponent - b.exponent - 1 }.round(round)
        }
        f => super::float::op64(f, x, y),
    }
}

/// Square root and reciprocal; other functions are not rounded so.
pub fn function(f: FloatFn, x: f64, round: Round) -> f64 {
    match f {
        FloatFn::Rcp => op(FloatOp::Div, 1.0, x, round),
        FloatFn::Sqrt if ordinary(x) && x > 0.0 => {
            let a = take(x).high(125);
            let (digits, exponent) =
                if a.exponent % 2 == 0 { (a.digits, a.exponent) } else { (a.digits << 1, a.exponent - 1) };
            let root = digits.isqrt();
            let digits = root << 1 | u128::from(root * root != digits);
            Exact { negative: false, digits, exponent: exponent / 2 - 1 }.round(round)
        }
        f => super::float::fn64(f, x),
    }
}

/// A whole number as a double.
pub fn whole(x: i128, round: Round) -> f64 {
    match x {
        0 => 0.0,
        _ => Exact { negative: x < 0, digits: x.unsigned_abs(), exponent: 0 }.round(round),
    }
}

/// `rcp.approx.ftz.f64`, `rsqrt.approx.ftz.f64`: of the upper half of the bits, and no more than those of the result;
/// subnormal numbers are zero.
pub fn rough(f: FloatFn, x: f64) -> f64 {
    let upper = |x: f64| f64::from_bits(x.to_bits() >> 32 << 32);
    let flush = |x: f64| if x.is_subnormal() { 0.0f64.copysign(x) } else { x };
    let x = flush(upper(x));
    if x.is_nan() || f == FloatFn::Rsqrt && x < 0.0 {
        return f64::from_bits(0x7fff_ffff << 32);
    }
    flush(upper(super::float::fn64(f, x)))
}
