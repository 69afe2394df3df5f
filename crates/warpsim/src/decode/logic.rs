//! Bits, comparisons, selections.

use super::fail::Fail;
use super::modifiers::Modifiers;
use super::operands::{binary, comparison, count, fit, out, ternary, unary, view};
use super::rare;
use super::slots::Slots;
use crate::op::{Bin, Compare, Logic, Op, Tri, Un};
use crate::ptx::ast::Operand;
use crate::ptx::types::Type;

/// Decodes an instruction of this group.
pub fn decode(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    match m.base {
        "setp" => return compare(slots, m, operands),
        "lop3" => return lop3(slots, m, operands),
        "set" => return rare::set(slots, m, operands),
        _ => {}
    }
    let ty = m.ty()?;
    let (short, signed) = (ty.bytes() == 2, ty.signed());
    match m.base {
        "and" | "or" | "xor" => {
            let f = m.base;
            if ty == Type::Pred {
                return predicate_logic(slots, f, operands);
            }
            let f = match f {
                "and" => Bin::And,
                "or" => Bin::Or,
                _ => Bin::Xor,
            };
            binary(slots, operands, ty, f)
        }
        "not" if ty == Type::Pred => {
            let [d, Operand::Name(a)] = operands else { return Err(count(2)) };
            let d = slots.pred_out(d)?.ok_or_else(|| Fail::new("a result is needed"))?;
            Ok(Op::PredMov { d, a: slots.pred(&Operand::Not(a.clone()))? })
        }
        "not" if short => {
            let [d, a] = operands else { return Err(count(2)) };
            binary(slots, &[d.clone(), a.clone(), Operand::Int(0xffff)], ty, Bin::Xor)
        }
        "not" => unary(slots, operands, ty, Un::Not),
        "shl" => binary(slots, operands, ty, if short { Bin::Shl16 } else { Bin::Shl }),
        "shr" => binary(slots, operands, ty, if short { Bin::Shr16 { signed } } else { Bin::Shr { signed } }),
        "shf" if ty.bytes() == 4 => {
            let left = m.choice(&[("l", true), ("r", false)]).ok_or_else(|| Fail::new("neither `.l` nor `.r`"))?;
            let clamp = m.choice(&[("clamp", true), ("wrap", false)]);
            let clamp = clamp.ok_or_else(|| Fail::new("neither `.clamp` nor `.wrap`"))?;
            ternary(slots, operands, ty, Tri::Shf { left, clamp })
        }
        "prmt" if ty.bytes() == 4 => ternary(slots, operands, ty, Tri::Prmt),
        "popc" | "clz" | "bfind" => {
            let f = match m.base {
                "popc" => Un::Popc,
                "clz" => Un::Clz,
                _ => Un::Find { signed, shift: m.take("shiftamt") },
            };
            let [d, a] = operands else { return Err(count(2)) };
            let d = out(slots, d, false)?;
            match ty.bytes() {
                8 => Ok(Op::Count64 { f, d, a: slots.source(a, true)? }),
                4 => Ok(Op::Un32 { f, d, a: slots.source(a, false)? }),
                _ => Err(Fail::new("the type is of 32 or 64 bits")),
            }
        }
        "brev" if !short => unary(slots, operands, ty, Un::Brev),
        "bfe" => {
            let [d, a, position, length] = operands else { return Err(count(4)) };
            if ty.bytes() == 4 {
                return ternary(slots, operands, ty, Tri::Bfe { signed });
            }
            let (d, a) = (out(slots, d, true)?, slots.source(a, true)?);
            let (position, length) = (slots.source(position, false)?, slots.source(length, false)?);
            Ok(Op::Bfe64 { signed, d, a, position, length })
        }
        "bfi" => {
            let [d, a, b, position, length] = operands else { return Err(count(5)) };
            let wide = ty.bytes() == 8;
            let (d, a, b) = (out(slots, d, wide)?, slots.source(a, wide)?, slots.source(b, wide)?);
            let (position, length) = (slots.source(position, false)?, slots.source(length, false)?);
            Ok(match wide {
                true => Op::Bfi64 { d, a, b, position, length },
                false => Op::Bfi32 { d, a, b, position, length },
            })
        }
        "cnot" if !short => rare::cnot(slots, ty, operands),
        "slct" => rare::choose(slots, m, operands, ty),
        "fns" if ty.bytes() == 4 => rare::find_nth(slots, operands),
        "selp" => {
            let [d, a, b, p] = operands else { return Err(count(4)) };
            let wide = ty.bytes() == 8;
            let d = out(slots, d, wide)?;
            let (a, b) = (slots.source(&fit(a, ty), wide)?, slots.source(&fit(b, ty), wide)?);
            let p = slots.pred(p)?;
            Ok(if wide { Op::Select64 { d, a, b, p } } else { Op::Select32 { d, a, b, p } })
        }
        _ => Err(Fail::new("the simulator does not know this instruction")),
    }
}

fn predicate_logic(slots: &mut Slots, f: &str, operands: &[Operand]) -> Result<Op, Fail> {
    let [d, a, b] = operands else { return Err(count(3)) };
    let d = slots.pred_out(d)?.ok_or_else(|| Fail::new("a result is needed"))?;
    let f = match f {
        "and" => Logic::And,
        "or" => Logic::Or,
        _ => Logic::Xor,
    };
    Ok(Op::PredLogic { f, d, a: slots.pred(a)?, b: slots.pred(b)? })
}

fn lop3(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    let ty = m.ty()?;
    let [d, a, b, c, Operand::Int(table)] = operands else { return Err(count(5)) };
    if ty.bytes() != 4 || *table > 255 {
        return Err(Fail::new("`.b32` and a table of 8 bits are expected"));
    }
    ternary(slots, &[d.clone(), a.clone(), b.clone(), c.clone()], ty, Tri::Lop3(*table as u8))
}

fn compare(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    let ty = m.ty()?;
    let ftz = m.take("ftz");
    if let Some(kind) = rare::packed(ty) {
        return rare::test_halves(slots, m, operands, kind);
    }
    let [d, a, b, rest @ ..] = operands else { return Err(count(3)) };
    let with = rare::combined(slots, m, rest)?;
    let cmp = comparison(m)?;
    let view = view(ty, cmp, ftz)?;
    let (d, not_d) = match d {
        Operand::Pair(d, not_d) => (slots.pred_out(d)?, slots.pred_out(not_d)?),
        d => (slots.pred_out(d)?, None),
    };
    let d = d.ok_or_else(|| Fail::new("a result is needed"))?;
    let wide = ty.bytes() == 8;
    let (a, b) = (slots.source(&fit(a, ty), wide)?, slots.source(&fit(b, ty), wide)?);
    let compare = Compare { cmp, view, d, not_d, a, b, with };
    Ok(if wide { Op::Compare64(compare) } else { Op::Compare32(compare) })
}
