//! Instructions whose operands and result are 32-bit rows (16-bit values keep their upper half zero).

use super::divide::{quotient32, remainder32};
use super::float::{canon, fma_half, fma32, fn_half, fn32, op_half, op32};
use super::lanes::{Row, binary, ternary, unary};
use crate::op::{Bin, Slot, Tri, Un};

/// One operand.
#[inline(always)]
pub fn un(file: &mut [Row<u32>], mask: u32, f: Un, d: Slot, a: Slot) {
    macro_rules! go {
        ($f:expr) => {
            unary(file, mask, d, a, $f)
        };
    }
    match f {
        Un::NegInt => go!(|x| x.wrapping_neg()),
        Un::AbsInt => go!(|x| (x as i32).unsigned_abs()),
        Un::Not => go!(|x| !x),
        Un::Popc => go!(|x| x.count_ones()),
        Un::Clz => go!(|x| x.leading_zeros()),
        Un::Brev => go!(|x| x.reverse_bits()),
        Un::Find { signed, shift } => go!(|x| {
            let bits = if signed && (x as i32) < 0 { !x } else { x };
            find(bits.leading_zeros(), 32, shift)
        }),
        Un::NegF32 => go!(|x| x ^ 0x8000_0000),
        Un::AbsF32 => go!(|x| x & 0x7fff_ffff),
        Un::NegHalf { sign } => go!(|x| x ^ sign),
        Un::AbsHalf { sign } => go!(|x| x & !sign),
        Un::F32(f, mode) => go!(|x| fn32(f, mode, f32::from_bits(x)).to_bits()),
        Un::Half(f, mode, kind) => go!(|x| fn_half(f, mode, kind, x)),
        Un::NegF64 | Un::AbsF64 | Un::F64(..) => unreachable!("decoded to the 64-bit file"),
    }
}

/// `bfind`: the position from the bottom, or the shift that brings the bit to the top; all ones if there is none.
#[inline(always)]
pub fn find(leading: u32, width: u32, shift: bool) -> u32 {
    match (leading == width, shift) {
        (true, _) => u32::MAX,
        (false, true) => leading,
        (false, false) => width - 1 - leading,
    }
}

#[inline(always)]
fn short(x: u32) -> i32 {
    i32::from(x as i16)
}

/// Two operands.
#[inline(always)]
pub fn bin(file: &mut [Row<u32>], mask: u32, f: Bin, d: Slot, a: Slot, b: Slot) {
    macro_rules! go {
        ($f:expr) => {
            binary(file, mask, d, a, b, $f)
        };
    }
    macro_rules! float {
        ($f:expr) => {
            binary(file, mask, d, a, b, |x, y| canon($f(f32::from_bits(x), f32::from_bits(y))).to_bits())
        };
    }
    match f {
        Bin::Add => go!(|x, y| x.wrapping_add(y)),
        Bin::Sub => go!(|x, y| x.wrapping_sub(y)),
        Bin::Mul => go!(|x, y| x.wrapping_mul(y)),
        Bin::And => go!(|x, y| x & y),
        Bin::Or => go!(|x, y| x | y),
        Bin::Xor => go!(|x, y| x ^ y),
        // Amounts from the width on clamp to it (PTX ISA, "shl", "shr").
        Bin::Shl => go!(|x, y| if y > 31 { 0 } else { x << (y & 31) }),
        Bin::Shr { signed: false } => go!(|x, y| if y > 31 { 0 } else { x >> (y & 31) }),
        Bin::Shr { signed: true } => go!(|x, y| (x as i32 >> y.min(31)) as u32),
        Bin::AddF => float!(|x: f32, y: f32| x + y),
        Bin::SubF => float!(|x: f32, y: f32| x - y),
        Bin::MulF => float!(|x: f32, y: f32| x * y),
        Bin::DivF => float!(|x: f32, y: f32| x / y),
        Bin::Min { signed: false } => go!(|x, y| x.min(y)),
        Bin::Max { signed: false } => go!(|x, y| x.max(y)),
        Bin::Min { signed: true } => go!(|x, y| (x as i32).min(y as i32) as u32),
        Bin::Max { signed: true } => go!(|x, y| (x as i32).max(y as i32) as u32),
        Bin::MulHi { signed: false } => go!(|x, y| ((u64::from(x) * u64::from(y)) >> 32) as u32),
        Bin::MulHi { signed: true } => go!(|x, y| ((i64::from(x as i32) * i64::from(y as i32)) >> 32) as u32),
        _ => rare(file, mask, f, d, a, b),
    }
}

/// The less frequent ones, out of the fast path.
fn rare(file: &mut [Row<u32>], mask: u32, f: Bin, d: Slot, a: Slot, b: Slot) {
    let f = |x: u32, y: u32| -> u32 {
        let (i, j) = (x as i32, y as i32);
        match f {
            Bin::Add16 => x.wrapping_add(y) & 0xffff,
            Bin::Sub16 => x.wrapping_sub(y) & 0xffff,
            Bin::Mul16 => x.wrapping_mul(y) & 0xffff,
            Bin::MulHi16 { signed: false } => ((x & 0xffff) * (y & 0xffff)) >> 16,
            Bin::MulHi16 { signed: true } => ((short(x) * short(y)) >> 16) as u32 & 0xffff,
            Bin::Div { signed } => quotient32(x, y, signed),
            Bin::Rem { signed } => remainder32(x, y, signed),
            Bin::Div16 { signed: false } => (x & 0xffff).checked_div(y & 0xffff).unwrap_or(0xffff),
            Bin::Div16 { signed: true } => short(x).checked_div(short(y)).unwrap_or(-1) as u32 & 0xffff,
            Bin::Rem16 { signed: false } => (x & 0xffff).checked_rem(y & 0xffff).unwrap_or(x & 0xffff),
            Bin::Rem16 { signed: true } => short(x).checked_rem(short(y)).unwrap_or(short(x)) as u32 & 0xffff,
            Bin::Min16 { signed: false } => (x & 0xffff).min(y & 0xffff),
            Bin::Max16 { signed: false } => (x & 0xffff).max(y & 0xffff),
            Bin::Min16 { signed: true } => short(x).min(short(y)) as u32 & 0xffff,
            Bin::Max16 { signed: true } => short(x).max(short(y)) as u32 & 0xffff,
            Bin::AddSat => i.saturating_add(j) as u32,
            Bin::SubSat => i.saturating_sub(j) as u32,
            Bin::Shl16 => {
                if y > 15 {
                    0
                } else {
                    (x << y) & 0xffff
                }
            }
            Bin::Shr16 { signed: false } => {
                if y > 15 {
                    0
                } else {
                    (x & 0xffff) >> y
                }
            }
            Bin::Shr16 { signed: true } => (short(x) >> y.min(15)) as u32 & 0xffff,
            Bin::Mul24 { signed, high } => mul24(x, y, signed, high),
            Bin::Float(op, mode) => op32(op, mode, f32::from_bits(x), f32::from_bits(y)).to_bits(),
            Bin::Half(op, mode, kind) => op_half(op, mode, kind, x, y),
            _ => unreachable!("handled in the fast path"),
        }
    };
    binary(file, mask, d, a, b, f);
}

/// Product of the low 24 bits: its low 32 bits, or bits 16 to 47 (PTX ISA, "mul24").
fn mul24(x: u32, y: u32, signed: bool, high: bool) -> u32 {
    let cut = |x: u32| if signed { i64::from((x << 8) as i32 >> 8) } else { i64::from(x & 0xff_ffff) };
    let product = cut(x) * cut(y);
    (if high { product >> 16 } else { product }) as u32
}

/// Three operands.
#[inline(always)]
pub fn tri(file: &mut [Row<u32>], mask: u32, f: Tri, d: Slot, abc: [Slot; 3]) {
    match f {
        Tri::Mad => ternary(file, mask, d, abc, |x, y, z| x.wrapping_mul(y).wrapping_add(z)),
        Tri::FmaF => ternary(file, mask, d, abc, |x, y, z| {
            canon(f32::from_bits(x).mul_add(f32::from_bits(y), f32::from_bits(z))).to_bits()
        }),
        _ => rare_tri(file, mask, f, d, abc),
    }
}

fn rare_tri(file: &mut [Row<u32>], mask: u32, f: Tri, d: Slot, abc: [Slot; 3]) {
    let f = |x: u32, y: u32, z: u32| -> u32 {
        match f {
            Tri::Mad16 => x.wrapping_mul(y).wrapping_add(z) & 0xffff,
            Tri::MadHi { signed: false } => (((u64::from(x) * u64::from(y)) >> 32) as u32).wrapping_add(z),
            Tri::MadHi { signed: true } => (((i64::from(x as i32) * i64::from(y as i32)) >> 32) as u32).wrapping_add(z),
            Tri::Mad24 { signed } => mul24(x, y, signed, false).wrapping_add(z),
            Tri::Sad { signed: false } => z.wrapping_add(x.abs_diff(y)),
            Tri::Sad { signed: true } => z.wrapping_add((x as i32).abs_diff(y as i32)),
            Tri::Fma(mode) => fma32(mode, f32::from_bits(x), f32::from_bits(y), f32::from_bits(z)).to_bits(),
            Tri::FmaHalf(mode, kind) => fma_half(mode, kind, x, y, z),
            Tri::Lop3(table) => lop3(x, y, z, table),
            Tri::Bfe { signed } => bfe(x, y, z, signed),
            Tri::Shf { left, clamp } => {
                let amount = if clamp { z.min(32) } else { z & 31 };
                let both = u64::from(y) << 32 | u64::from(x);
                if left { ((both << amount) >> 32) as u32 } else { (both >> amount) as u32 }
            }
            Tri::Prmt => prmt(x, y, z),
            Tri::Dp4a { a_signed, b_signed } => (0..4).fold(z, |sum, i| {
                let (p, q) = (part(x, 8 * i, 8, a_signed), part(y, 8 * i, 8, b_signed));
                sum.wrapping_add((p * q) as u32)
            }),
            Tri::Dp2a { a_signed, b_signed, high } => (0..2).fold(z, |sum, i| {
                let (p, q) = (part(x, 16 * i, 16, a_signed), part(y, 8 * i + 16 * u32::from(high), 8, b_signed));
                sum.wrapping_add((p * q) as u32)
            }),
            Tri::Mad | Tri::FmaF => unreachable!("handled in the fast path"),
        }
    };
    ternary(file, mask, d, abc, f);
}

fn part(x: u32, shift: u32, bits: u32, signed: bool) -> i64 {
    let x = x >> shift << (32 - bits);
    if signed { i64::from(x as i32 >> (32 - bits)) } else { i64::from(x >> (32 - bits)) }
}

fn lop3(x: u32, y: u32, z: u32, table: u8) -> u32 {
    (0..8).filter(|i| table >> i & 1 != 0).fold(0, |out, i| {
        let pick = |word: u32, bit: u32| if i >> bit & 1 != 0 { word } else { !word };
        out | pick(x, 2) & pick(y, 1) & pick(z, 0)
    })
}

/// Bit field extract (PTX ISA, "bfe"): position and length are 8 bits; the sign fills in from the field's top.
pub fn bfe(x: u32, position: u32, length: u32, signed: bool) -> u32 {
    let wide = if signed { i64::from(x as i32) as u64 } else { u64::from(x) };
    bfe64(wide, position, length, signed, 31) as u32
}

/// The same in 64 bits; `top` is the highest bit of the operand.
pub fn bfe64(x: u64, position: u32, length: u32, signed: bool, top: u32) -> u64 {
    let (position, length) = (position & 255, length & 255);
    if length == 0 {
        return 0;
    }
    let sign = signed && x >> (position + length - 1).min(top) & 1 != 0;
    let field = x.checked_shr(position).filter(|_| position <= top).unwrap_or(0);
    // Bits that come from the operand; above them stands the sign.
    let valid = length.min((top + 1).saturating_sub(position));
    let low = if valid >= 64 { u64::MAX } else { (1 << valid) - 1 };
    if sign { field & low | !low } else { field & low }
}

/// Bit field insert of `x` into `y` (PTX ISA, "bfi").
pub fn bfi64(x: u64, y: u64, position: u32, length: u32, width: u32) -> u64 {
    let (position, length) = (position & 255, length & 255);
    if position >= width || length == 0 {
        return y;
    }
    let ones = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
    let field = ones << position;
    y & !field | x << position & field
}

/// Byte permute (PTX ISA, "prmt"), the general form: each nibble picks a byte or its sign.
fn prmt(x: u32, y: u32, selector: u32) -> u32 {
    let both = u64::from(y) << 32 | u64::from(x);
    (0..4).fold(0, |out, i| {
        let pick = selector >> (4 * i) & 15;
        let byte = (both >> (8 * (pick & 7))) as u8;
        let byte = if pick & 8 == 0 { byte } else { (byte as i8 >> 7) as u8 };
        out | u32::from(byte) << (8 * i)
    })
}
