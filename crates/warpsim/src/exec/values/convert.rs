//! `cvt` (PTX ISA, "cvt").

use super::float::{NAN32, flush, round32};
use super::half::{finish as to_half, widen};
use crate::op::{Convert, Round, ToInt};
use crate::ptx::types::Type;

/// Converts one value; the result is extended to 64 bits as its type says.
#[inline(always)]
pub fn value(c: &Convert, bits: u64) -> u64 {
    match (c.from.float(), c.to.float()) {
        (false, false) => integer(c, bits),
        (false, true) => from_integer(c, bits),
        (true, false) => to_integer(c, bits),
        (true, true) => float(c, bits),
    }
}

/// Sign- or zero-extends the low bits of a value.
#[inline(always)]
fn extend(bits: u64, ty: Type) -> u64 {
    let spare = 64 - 8 * ty.bytes();
    if ty.signed() { ((bits << spare) as i64 >> spare) as u64 } else { bits << spare >> spare }
}

#[inline(always)]
fn integer(c: &Convert, bits: u64) -> u64 {
    let x = extend(bits, c.from);
    if !c.mode.sat {
        return extend(x, c.to);
    }
    let x = if c.from.signed() { i128::from(x as i64) } else { i128::from(x) };
    clamp(x, c.to)
}

fn clamp(x: i128, ty: Type) -> u64 {
    let bits = 8 * ty.bytes();
    let (least, most) = if ty.signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    x.clamp(least, most) as u64
}

fn from_integer(c: &Convert, bits: u64) -> u64 {
    let x = extend(bits, c.from);
    let exact = if c.from.signed() { i128::from(x as i64) } else { i128::from(x) };
    match c.to {
        Type::F64 => super::soft::whole(exact, c.mode.round).to_bits(),
        Type::F32 => {
            let near = exact as f32;
            let over = near as i128 - exact;
            let rounded = match c.mode.round {
                Round::Down if over > 0 => near.next_down(),
                Round::Up if over < 0 => near.next_up(),
                Round::Zero if over > 0 && exact > 0 => near.next_down(),
                Round::Zero if over < 0 && exact < 0 => near.next_up(),
                _ => near,
            };
            let rounded = if c.mode.sat { rounded.clamp(0.0, 1.0) } else { rounded };
            u64::from(rounded.to_bits())
        }
        // Past 2^53 a half is infinite, and a bfloat16 needs the odd bit of what was cut.
        _ => {
            let high = exact as f64;
            let odd = super::float::odd(high, (exact - high as i128) as f64);
            u64::from(to_half(odd, c.to == Type::Bf16, c.mode))
        }
    }
}

/// The operand as a double, which holds every value of the narrower types.
fn operand(c: &Convert, bits: u64) -> f64 {
    match c.from {
        Type::F64 => f64::from_bits(bits),
        Type::F32 => flush(f32::from_bits(bits as u32), c.mode.ftz).into(),
        from => widen(bits as u16, from == Type::Bf16, false),
    }
}

fn integral(x: f64, how: ToInt) -> f64 {
    match how {
        ToInt::Nearest => x.round_ties_even(),
        ToInt::Zero => x.trunc(),
        ToInt::Down => x.floor(),
        ToInt::Up => x.ceil(),
    }
}

/// Out of range gives the nearest end of the range, NaN gives 0.
fn to_integer(c: &Convert, bits: u64) -> u64 {
    let x = integral(operand(c, bits), c.integral.unwrap_or(ToInt::Zero));
    clamp(x as i128, c.to)
}

fn float(c: &Convert, bits: u64) -> u64 {
    let x = operand(c, bits);
    let x = c.integral.map_or(x, |how| integral(x, how));
    match c.to {
        Type::F64 => {
            let x = if c.mode.sat { [0.0, x.min(1.0)][usize::from(x > 0.0)] } else { x };
            x.to_bits()
        }
        Type::F32 => {
            let x = flush(round32(x, c.mode.round), c.mode.ftz);
            let x = match (c.mode.sat, x.is_nan()) {
                (true, _) => [0.0, x.min(1.0)][usize::from(x > 0.0)],
                (false, true) => NAN32,
                (false, false) => x,
            };
            u64::from(x.to_bits())
        }
        _ => u64::from(to_half(x, c.to == Type::Bf16, c.mode)),
    }
}
