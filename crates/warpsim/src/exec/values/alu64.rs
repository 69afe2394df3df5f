//! Instructions whose operands and result are 64-bit rows.

use super::divide::{quotient64, remainder64};
use super::float::{fn64, op64};
use super::lanes::{Row, binary, ternary, unary};
use super::soft;
use crate::op::{Bin, FloatMode, Round, Slot, Tri, Un};

/// One operand.
#[inline(always)]
pub fn un(file: &mut [Row<u64>], mask: u32, f: Un, d: Slot, a: Slot) {
    let f = |x: u64| match f {
        Un::NegInt => x.wrapping_neg(),
        Un::AbsInt => (x as i64).unsigned_abs(),
        Un::Not => !x,
        Un::Brev => x.reverse_bits(),
        Un::NegF64 => x ^ 1 << 63,
        Un::AbsF64 => x & !(1 << 63),
        Un::F64(f, mode) => {
            let x = f64::from_bits(x);
            let value = match (mode.ftz, mode.round) {
                (true, _) => soft::rough(f, x),
                (false, Round::Nearest) => fn64(f, x),
                (false, round) => soft::function(f, x, round),
            };
            value.to_bits()
        }
        _ => unreachable!("decoded to the 32-bit file"),
    };
    unary(file, mask, d, a, f);
}

/// Two operands; shifts are apart.
#[inline(always)]
pub fn bin(file: &mut [Row<u64>], mask: u32, f: Bin, d: Slot, a: Slot, b: Slot) {
    macro_rules! go {
        ($f:expr) => {
            binary(file, mask, d, a, b, $f)
        };
    }
    macro_rules! float {
        ($f:expr) => {
            binary(file, mask, d, a, b, |x, y| f64::to_bits($f(f64::from_bits(x), f64::from_bits(y))))
        };
    }
    match f {
        Bin::Add => go!(|x, y| x.wrapping_add(y)),
        Bin::Sub => go!(|x, y| x.wrapping_sub(y)),
        Bin::Mul => go!(|x, y| x.wrapping_mul(y)),
        Bin::And => go!(|x, y| x & y),
        Bin::Or => go!(|x, y| x | y),
        Bin::Xor => go!(|x, y| x ^ y),
        Bin::AddF => float!(|x: f64, y: f64| x + y),
        Bin::SubF => float!(|x: f64, y: f64| x - y),
        Bin::MulF => float!(|x: f64, y: f64| x * y),
        Bin::DivF => float!(|x: f64, y: f64| x / y),
        _ => rare(file, mask, f, d, a, b),
    }
}

fn rare(file: &mut [Row<u64>], mask: u32, f: Bin, d: Slot, a: Slot, b: Slot) {
    let f = |x: u64, y: u64| -> u64 {
        let (i, j) = (x as i64, y as i64);
        match f {
            Bin::Min { signed: false } => x.min(y),
            Bin::Max { signed: false } => x.max(y),
            Bin::Min { signed: true } => i.min(j) as u64,
            Bin::Max { signed: true } => i.max(j) as u64,
            Bin::MulHi { signed: false } => ((u128::from(x) * u128::from(y)) >> 64) as u64,
            Bin::MulHi { signed: true } => ((i128::from(i) * i128::from(j)) >> 64) as u64,
            Bin::Div { signed } => quotient64(x, y, signed),
            Bin::Rem { signed } => remainder64(x, y, signed),
            Bin::Float(op, FloatMode { round: Round::Nearest, .. }) => {
                op64(op, f64::from_bits(x), f64::from_bits(y)).to_bits()
            }
            Bin::Float(op, mode) => soft::op(op, f64::from_bits(x), f64::from_bits(y), mode.round).to_bits(),
            _ => unreachable!("the type was checked when decoded"),
        }
    };
    binary(file, mask, d, a, b, f);
}

/// Shifts: the amount is a 32-bit row and clamps at 64.
#[inline(always)]
pub fn shift(file: &mut [Row<u64>], amounts: &Row<u32>, mask: u32, f: Bin, d: Slot, a: Slot) {
    let x = file[a as usize];
    let out = &mut file[d as usize];
    for i in 0..x.len() {
        let (x, by) = (x[i], amounts[i]);
        let value = match f {
            Bin::Shl => {
                if by > 63 {
                    0
                } else {
                    x << (by & 63)
                }
            }
            Bin::Shr { signed: true } => (x as i64 >> by.min(63)) as u64,
            _ => {
                if by > 63 {
                    0
                } else {
                    x >> (by & 63)
                }
            }
        };
        out[i] = if mask >> i & 1 != 0 { value } else { out[i] };
    }
}

/// Three operands.
#[inline(always)]
pub fn tri(file: &mut [Row<u64>], mask: u32, f: Tri, d: Slot, abc: [Slot; 3]) {
    let float = f64::from_bits;
    match f {
        Tri::Mad => ternary(file, mask, d, abc, |x, y, z| x.wrapping_mul(y).wrapping_add(z)),
        Tri::Fma(FloatMode { round: round @ (Round::Zero | Round::Down | Round::Up), .. }) => {
            ternary(file, mask, d, abc, |x, y, z| soft::fma(float(x), float(y), float(z), round).to_bits());
        }
        Tri::FmaF | Tri::Fma(_) => {
            ternary(file, mask, d, abc, |x, y, z| float(x).mul_add(float(y), float(z)).to_bits())
        }
        Tri::MadHi { signed: false } => {
            ternary(file, mask, d, abc, |x, y, z| (((u128::from(x) * u128::from(y)) >> 64) as u64).wrapping_add(z))
        }
        Tri::MadHi { signed: true } => ternary(file, mask, d, abc, |x, y, z| {
            (((i128::from(x as i64) * i128::from(y as i64)) >> 64) as u64).wrapping_add(z)
        }),
        Tri::Sad { signed: false } => ternary(file, mask, d, abc, |x, y, z| z.wrapping_add(x.abs_diff(y))),
        Tri::Sad { signed: true } => {
            ternary(file, mask, d, abc, |x, y, z| z.wrapping_add((x as i64).abs_diff(y as i64)));
        }
        _ => unreachable!("the type was checked when decoded"),
    }
}
