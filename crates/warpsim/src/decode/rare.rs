//! Rare instructions: `set` and packed comparisons, carries, parts of words.

use super::fail::Fail;
use super::modifiers::Modifiers;
use super::operands::{comparison, count, fit, out, view};
use super::slots::Slots;
use crate::op::{Carry, CarryOp, Cmp, Halves, Logic, More, Op, Parts, PartsOp, Pred, Set, TwoHalves, View};
use crate::ptx::ast::Operand;
use crate::ptx::types::Type;

fn more(more: More) -> Op {
    Op::More(Box::new(more))
}

/// The halves of a packed type.
pub fn packed(ty: Type) -> Option<Halves> {
    match ty {
        Type::F16x2 => Some(Halves { brain: false, packed: true }),
        Type::Bf16x2 => Some(Halves { brain: true, packed: true }),
        _ => None,
    }
}

/// `.and`, `.or` or `.xor` with a predicate.
pub fn combined(slots: &Slots, m: &mut Modifiers, rest: &[Operand]) -> Result<Option<(Logic, Pred)>, Fail> {
    let logic = m.choice(&[("and", Logic::And), ("or", Logic::Or), ("xor", Logic::Xor)]);
    match (logic, rest) {
        (None, []) => Ok(None),
        (Some(logic), [c]) => Ok(Some((logic, slots.pred(c)?))),
        _ => Err(Fail::new("a combined comparison has one predicate more")),
    }
}

/// `set`.
pub fn set(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    let from = m.ty()?;
    let to = m.ty()?;
    let ftz = m.take("ftz");
    let [d, a, b, rest @ ..] = operands else { return Err(count(3)) };
    let with = combined(slots, m, rest)?;
    let cmp = comparison(m)?;
    let d = slots.row(d)?;
    if let Some(kind) = packed(from) {
        let yes = match to {
            Type::F16x2 => 0x3c00,
            Type::Bf16x2 => 0x3f80,
            Type::U32 | Type::S32 => 0xffff,
            _ => return Err(Fail::new("this type of the result")),
        };
        let ab = [slots.source(a, false)?, slots.source(b, false)?];
        return Ok(more(More::SetHalves(TwoHalves { cmp, kind, ab, with }, d.slot, yes)));
    }
    let yes = match to {
        Type::U32 | Type::S32 => u64::from(u32::MAX),
        Type::F32 => u64::from(1f32.to_bits()),
        Type::U16 | Type::S16 => 0xffff,
        Type::F16 => 0x3c00,
        Type::Bf16 => 0x3f80,
        _ => return Err(Fail::new("this type of the result")),
    };
    let view = view(from, cmp, ftz)?;
    let wide = from.bytes() == 8;
    let ab = [slots.source(&fit(a, from), wide)?, slots.source(&fit(b, from), wide)?];
    Ok(more(More::Set(Set { cmp, view, wide, d, yes, ab, with })))
}

/// `setp` of packed halves.
pub fn test_halves(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand], kind: Halves) -> Result<Op, Fail> {
    m.take("ftz");
    let [d, a, b, rest @ ..] = operands else { return Err(count(3)) };
    let with = combined(slots, m, rest)?;
    let cmp = comparison(m)?;
    let (low, high) = match d {
        Operand::Pair(low, high) => (slots.pred_out(low)?, slots.pred_out(high)?),
        low => (slots.pred_out(low)?, None),
    };
    let low = low.ok_or_else(|| Fail::new("a result is needed"))?;
    let ab = [slots.source(a, false)?, slots.source(b, false)?];
    Ok(more(More::TestHalves(TwoHalves { cmp, kind, ab, with }, low, high)))
}

/// `cnot`: 1 for 0, else 0.
pub fn cnot(slots: &mut Slots, ty: Type, operands: &[Operand]) -> Result<Op, Fail> {
    let [d, a] = operands else { return Err(count(2)) };
    let wide = ty.bytes() == 8;
    let ab = [slots.source(a, wide)?, slots.source(&Operand::Int(0), wide)?];
    let d = slots.row(d)?;
    if d.wide != wide {
        return Err(Fail::new("the result is of another size than the instruction"));
    }
    Ok(more(More::Set(Set { cmp: Cmp::Eq, view: View::Unsigned, wide, d, yes: 1, ab, with: None })))
}

/// `slct`; its last type is that of the third operand.
pub fn choose(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand], last: Type) -> Result<Op, Fail> {
    let ty = m.ty()?;
    m.take("ftz");
    let [d, a, b, c] = operands else { return Err(count(4)) };
    let float = match last {
        Type::S32 => false,
        Type::F32 => true,
        _ => return Err(Fail::new("the type of the third operand is `.s32` or `.f32`")),
    };
    let wide = ty.bytes() == 8;
    let d = out(slots, d, wide)?;
    let abc = [slots.source(&fit(a, ty), wide)?, slots.source(&fit(b, ty), wide)?, slots.source(c, false)?];
    Ok(more(More::Choose { float, wide, d, abc }))
}

/// `fns`.
pub fn find_nth(slots: &mut Slots, operands: &[Operand]) -> Result<Op, Fail> {
    let [d, mask, base, nth] = operands else { return Err(count(4)) };
    let d = out(slots, d, false)?;
    let mut source = |o| slots.source(o, false);
    Ok(more(More::FindNth([d, source(mask)?, source(base)?, source(nth)?])))
}

/// `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`; `None` when there is no carry.
pub fn carry(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Option<Op>, Fail> {
    let takes = matches!(m.base, "addc" | "subc" | "madc");
    let gives = m.take("cc");
    if !takes && !gives {
        return Ok(None);
    }
    let ty = m.ty()?;
    if ty.float() || ty.bytes() < 4 {
        return Err(Fail::new("carries are for integers of 32 and 64 bits"));
    }
    let f = match m.base {
        "add" | "addc" => CarryOp::Add,
        "sub" | "subc" => CarryOp::Sub,
        _ => {
            let signed = ty.signed();
            let parts = [("lo", CarryOp::MadLow), ("hi", CarryOp::MadHigh { signed })];
            m.choice(&parts).ok_or_else(|| Fail::new("neither `.lo` nor `.hi`"))?
        }
    };
    let (d, rest) = operands.split_first().ok_or_else(|| count(3))?;
    let wide = ty.bytes() == 8;
    let d = out(slots, d, wide)?;
    let wanted = if matches!(f, CarryOp::Add | CarryOp::Sub) { 2 } else { 3 };
    if rest.len() != wanted {
        return Err(count(wanted + 1));
    }
    let mut abc = [0; 3];
    for (slot, operand) in abc.iter_mut().zip(rest) {
        *slot = slots.source(operand, wide)?;
    }
    let flag = slots.carry();
    Ok(Some(more(More::Carry(Carry { f, wide, d, abc, takes, gives, flag }))))
}

/// `vadd2`, `vabsdiff4` and their kin, without masks.
pub fn parts(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Option<Op>, Fail> {
    let names = [
        ("vadd", PartsOp::Add),
        ("vsub", PartsOp::Sub),
        ("vabsdiff", PartsOp::Difference),
        ("vmin", PartsOp::Min),
        ("vmax", PartsOp::Max),
    ];
    let kind = |name: &str| match m.base.strip_prefix(name) {
        Some("2") => Some(16),
        Some("4") => Some(8),
        _ => None,
    };
    let Some((f, bits)) = names.iter().find_map(|(name, f)| Some((*f, kind(name)?))) else { return Ok(None) };
    let sum = m.take("add");
    let types = [m.ty()?, m.ty()?, m.ty()?];
    if types.iter().any(|ty| *ty != types[0] || !matches!(ty, Type::U32 | Type::S32)) {
        return Err(Fail::new("parts of different types"));
    }
    let [d, a, b, c] = operands else { return Err(count(4)) };
    let d = out(slots, d, false)?;
    let abc = [slots.source(a, false)?, slots.source(b, false)?, slots.source(c, false)?];
    Ok(Some(more(More::Parts(Parts { f, bits, signed: types[0].signed(), sum, d, abc }))))
}
