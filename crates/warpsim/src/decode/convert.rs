//! `cvt` (PTX ISA, "cvt").

use super::fail::Fail;
use super::modifiers::Modifiers;
use super::operands::{count, fit, unary};
use super::slots::Slots;
use crate::op::{Convert, Element, FloatFn, FloatMode, Op, Round, ToInt, Un};
use crate::ptx::ast::Operand;
use crate::ptx::types::Type;

/// Decodes a conversion.
pub fn decode(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    if let Some(small) = m.choice(&[("e4m3x2", Element::E4m3), ("e5m2x2", Element::E5m2)]) {
        return small_pair(slots, m, operands, small);
    }
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
        let to = if to == Type::Bf16x2 { Element::Bf16 } else { Element::F16 };
        return pack(slots, operands, (Element::F32, to), mode.relu);
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

/// To two floats of 8 bits, or from them to f16.
fn small_pair(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand], small: Element) -> Result<Op, Fail> {
    let (narrows, other, mode) = (m.take("satfinite"), m.ty()?, m.float_mode());
    let types = match (narrows, other) {
        (true, Type::F32) => (Element::F32, small),
        (true, Type::F16x2) => (Element::F16, small),
        (false, Type::F16x2) => (small, Element::F16),
        _ => return Err(Fail::new("this packed conversion")),
    };
    if mode.round != Round::Nearest || mode.sat || mode.ftz {
        return Err(Fail::new("this packed conversion"));
    }
    pack(slots, operands, types, mode.relu)
}

/// Two numbers to a pair: each f32 has a register, pairs share one.
fn pack(slots: &mut Slots, operands: &[Operand], (from, to): (Element, Element), relu: bool) -> Result<Op, Fail> {
    let (d, high, low) = match (operands, from) {
        ([d, high, low], Element::F32) => (d, high, low),
        ([d, pair], Element::F16 | Element::E4m3 | Element::E5m2) => (d, pair, pair),
        _ => return Err(count(if from == Element::F32 { 3 } else { 2 })),
    };
    let d = slots.row(d)?;
    if d.wide {
        return Err(Fail::new("the result has at most 32 bits"));
    }
    let (high, low) = (slots.source(high, false)?, slots.source(low, false)?);
    Ok(Op::PackFloats { from, to, relu, d: d.slot, high, low })
}
