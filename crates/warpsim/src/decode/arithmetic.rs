//! Integer arithmetic; float arithmetic is next door.

use super::fail::Fail;
use super::float;
use super::modifiers::Modifiers;
use super::operands::{binary, count, fit, out, ternary, unary};
use super::slots::Slots;
use crate::op::{Bin, Op, Tri, Un};
use crate::ptx::ast::Operand;
use crate::ptx::types::Type;

/// Decodes an arithmetic instruction; `None` when the opcode is none.
pub fn decode(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Option<Op>, Fail> {
    if let Some(op) = super::rare::parts(slots, m, operands)? {
        return Ok(Some(op));
    }
    if matches!(m.base, "add" | "addc" | "sub" | "subc" | "mad" | "madc")
        && let Some(op) = super::rare::carry(slots, m, operands)?
    {
        return Ok(Some(op));
    }
    if matches!(m.base, "dp4a" | "dp2a") {
        return dot(slots, m, operands).map(Some);
    }
    let ty = match m.base {
        "add" | "sub" | "mul" | "mad" | "div" | "rem" | "min" | "max" | "abs" | "neg" | "mul24" | "mad24" | "sad"
        | "fma" | "sqrt" | "rcp" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" | "copysign" => m.ty()?,
        _ => return Ok(None),
    };
    if ty.float() {
        return float::decode(slots, m, operands, ty);
    }
    let signed = ty.signed();
    let short = ty.bytes() == 2;
    let bin = |plain: Bin, shorter: Bin| if short { shorter } else { plain };
    let op = match m.base {
        "add" | "sub" => {
            let sat = m.take("sat");
            if sat && ty != Type::S32 {
                return Err(Fail::new("`.sat` is for `.s32` alone"));
            }
            let add = m.base == "add";
            let f = match (add, sat) {
                (true, false) => bin(Bin::Add, Bin::Add16),
                (false, false) => bin(Bin::Sub, Bin::Sub16),
                (true, true) => Bin::AddSat,
                (false, true) => Bin::SubSat,
            };
            binary(slots, operands, ty, f)?
        }
        "mul" | "mad" => multiply(slots, m, operands, ty)?,
        "div" => binary(slots, operands, ty, bin(Bin::Div { signed }, Bin::Div16 { signed }))?,
        "rem" => binary(slots, operands, ty, bin(Bin::Rem { signed }, Bin::Rem16 { signed }))?,
        "min" => binary(slots, operands, ty, bin(Bin::Min { signed }, Bin::Min16 { signed }))?,
        "max" => binary(slots, operands, ty, bin(Bin::Max { signed }, Bin::Max16 { signed }))?,
        "abs" | "neg" if !short => unary(slots, operands, ty, if m.base == "abs" { Un::AbsInt } else { Un::NegInt })?,
        "neg" => {
            // 0 - x, in 16 bits.
            let [d, a] = operands else { return Err(count(2)) };
            binary(slots, &[d.clone(), Operand::Int(0), a.clone()], ty, Bin::Sub16)?
        }
        "mul24" | "mad24" if ty.bytes() == 4 => {
            let high = m.choice(&[("hi", true), ("lo", false)]).ok_or_else(|| Fail::new("neither `.hi` nor `.lo`"))?;
            match (m.base, high) {
                ("mul24", _) => binary(slots, operands, ty, Bin::Mul24 { signed, high })?,
                (_, false) => ternary(slots, operands, ty, Tri::Mad24 { signed })?,
                _ => return Err(Fail::new("`.hi` of mad24")),
            }
        }
        "sad" if ty.bytes() >= 4 => ternary(slots, operands, ty, Tri::Sad { signed })?,
        _ => return Err(Fail::new("the type does not fit the instruction")),
    };
    Ok(Some(op))
}

fn multiply(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand], ty: Type) -> Result<Op, Fail> {
    #[derive(Clone, Copy, PartialEq)]
    enum Part {
        Low,
        High,
        Wide,
    }
    let part = m.choice(&[("lo", Part::Low), ("hi", Part::High), ("wide", Part::Wide)]);
    let part = part.ok_or_else(|| Fail::new("neither `.lo`, `.hi` nor `.wide`"))?;
    let (signed, short, mad) = (ty.signed(), ty.bytes() == 2, m.base == "mad");
    if part == Part::Wide {
        if ty.bytes() == 8 {
            return Err(Fail::new("there is no 128-bit product"));
        }
        let wanted = if mad { 4 } else { 3 };
        let [d, a, b, rest @ ..] = operands else { return Err(count(wanted)) };
        if rest.len() + 3 != wanted {
            return Err(count(wanted));
        }
        let d = out(slots, d, !short)?;
        let (a, b) = (slots.source(&fit(a, ty), false)?, slots.source(&fit(b, ty), false)?);
        let c = rest.first().map(|c| slots.source(c, !short)).transpose()?;
        return Ok(Op::MulWide { signed, narrow: short, d, a, b, c });
    }
    match (mad, part, short) {
        (false, Part::Low, false) => binary(slots, operands, ty, Bin::Mul),
        (false, Part::Low, true) => binary(slots, operands, ty, Bin::Mul16),
        (false, _, false) => binary(slots, operands, ty, Bin::MulHi { signed }),
        (false, _, true) => binary(slots, operands, ty, Bin::MulHi16 { signed }),
        (true, Part::Low, false) => ternary(slots, operands, ty, Tri::Mad),
        (true, Part::Low, true) => ternary(slots, operands, ty, Tri::Mad16),
        (true, _, false) => ternary(slots, operands, ty, Tri::MadHi { signed }),
        (true, _, true) => Err(Fail::new("16-bit `mad.hi`")),
    }
}

fn dot(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    let high = m.base == "dp2a" && m.choice(&[("hi", true), ("lo", false)]).unwrap_or(false);
    let (b, a) = (m.ty()?, m.ty()?);
    if a.bytes() != 4 || b.bytes() != 4 || a.float() || b.float() {
        return Err(Fail::new("the types are `.u32` or `.s32`"));
    }
    let (a_signed, b_signed) = (a.signed(), b.signed());
    let f = if m.base == "dp4a" { Tri::Dp4a { a_signed, b_signed } } else { Tri::Dp2a { a_signed, b_signed, high } };
    ternary(slots, operands, Type::U32, f)
}
