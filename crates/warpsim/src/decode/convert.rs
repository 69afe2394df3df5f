//! `cvt` (PTX ISA, "cvt").

use super::Fail;
use super::arithmetic::{count, fit, unary};
use super::modifiers::Modifiers;
use super::slots::Slots;
use crate::op::{Convert, FloatFn, FloatMode, Op, Round, ToInt, Un};
use crate::ptx::ast::Operand;
use crate::ptx::types::Type;

/// Decodes a conversion.
pub fn decode(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    let from = m.ty()?;
    if from == Type::F32 && m.take("tf32") {
        if !m.take("rna") {
            return Err(Fail::new("this rounding of a conversion"));
        }
        return unary(slots, operands, from, Un::F32(FloatFn::Tf32, FloatMode::default()));
    }
    let to = m.ty()?;
    let integral = m.choice(&[("rni", ToInt::Nearest), ("rzi", ToInt::Zero), ("rmi", ToInt::Down), ("rpi", ToInt::Up)]);
    let mode = m.float_mode();
    let bits = |ty: Type| matches!(ty, Type::B8 | Type::B16 | Type::B32 | Type::B64 | Type::Pred);
    if bits(from) || bits(to) || matches!(from, Type::F16x2 | Type::Bf16x2) {
        return Err(Fail::new("these types have no conversion"));
    }
    if matches!(to, Type::F16x2 | Type::Bf16x2) {
        if from != Type::F32 || mode.round != Round::Nearest || mode.sat {
            return Err(Fail::new("this packed conversion"));
        }
        let [d, high, low] = operands else { return Err(count(3)) };
        return pack(slots, d, high, low, to == Type::Bf16x2, mode.relu);
    }
    if mode.relu
        || mode.round != Round::Nearest && from == Type::F64 && !matches!(to, Type::F32 | Type::F16 | Type::Bf16)
    {
        return Err(Fail::new("this rounding of a conversion"));
    }
    let [d, a] = operands else { return Err(count(2)) };
    let d = slots.row(d)?;
    let a = slots.any_source(&fit(a, from), from.bytes() == 8)?;
    if d.wide && to.float() && to.bytes() != 8 || a.wide && from.float() && from.bytes() != 8 {
        return Err(Fail::new("a float in a register of another size"));
    }
    if !d.wide && to.bytes() == 8 || !a.wide && from.bytes() == 8 {
        return Err(Fail::new("a register too small for the type"));
    }
    Ok(Op::Convert(Convert { to, from, integral, mode, d, a }))
}

fn pack(slots: &mut Slots, d: &Operand, high: &Operand, low: &Operand, brain: bool, relu: bool) -> Result<Op, Fail> {
    let d = slots.row(d)?;
    if d.wide {
        return Err(Fail::new("the result has 32 bits"));
    }
    let (high, low) = (slots.source(high, false)?, slots.source(low, false)?);
    Ok(Op::PackHalves { brain, relu, d: d.slot, high, low })
}
