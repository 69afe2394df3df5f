//! Operands, comparisons and forms that instructions of several groups read alike.

use super::fail::Fail;
use super::modifiers::Modifiers;
use super::slots::{self, Slots};
use crate::op::{Bin, Cmp, Op, Slot, Tri, Un, View};
use crate::ptx::ast::Operand;
use crate::ptx::types::Type;

pub(super) fn count(wanted: usize) -> Fail {
    Fail::new(format!("{wanted} operands are expected"))
}

/// Cuts an immediate to the width of a 16-bit operand.
pub(super) fn fit(operand: &Operand, ty: Type) -> Operand {
    match operand {
        Operand::Int(value) if ty.bytes() < 4 => Operand::Int(value & ((1 << (8 * ty.bytes())) - 1)),
        other => other.clone(),
    }
}

/// Row of a result of this width.
pub(super) fn out(slots: &Slots, operand: &Operand, wide: bool) -> Result<u32, Fail> {
    let row = slots.row(operand)?;
    if row.wide == wide {
        Ok(row.slot)
    } else {
        Err(Fail::new(format!("the result {} is of another size than the instruction", slots::text(operand))))
    }
}

pub(super) fn unary(slots: &mut Slots, operands: &[Operand], ty: Type, f: Un) -> Result<Op, Fail> {
    let [d, a] = operands else { return Err(count(2)) };
    let wide = ty.bytes() == 8;
    let (d, a) = (out(slots, d, wide)?, slots.source(&fit(a, ty), wide)?);
    Ok(if wide { Op::Un64 { f, d, a } } else { Op::Un32 { f, d, a } })
}

pub(super) fn binary(slots: &mut Slots, operands: &[Operand], ty: Type, f: Bin) -> Result<Op, Fail> {
    let [d, a, b] = operands else { return Err(count(3)) };
    let wide = ty.bytes() == 8;
    let shift = matches!(f, Bin::Shl | Bin::Shl16 | Bin::Shr { .. } | Bin::Shr16 { .. });
    let d = out(slots, d, wide)?;
    let a = slots.source(&fit(a, ty), wide)?;
    let b = if shift { slots.source(b, false)? } else { slots.source(&fit(b, ty), wide)? };
    Ok(if wide { Op::Bin64 { f, d, a, b } } else { Op::Bin32 { f, d, a, b } })
}

pub(super) fn ternary(slots: &mut Slots, operands: &[Operand], ty: Type, f: Tri) -> Result<Op, Fail> {
    let [d, a, b, c] = operands else { return Err(count(4)) };
    let wide = ty.bytes() == 8;
    let d = out(slots, d, wide)?;
    let mut source = |o: &Operand| slots.source(&fit(o, ty), wide);
    let (a, b, c) = (source(a)?, source(b)?, source(c)?);
    Ok(if wide { Op::Tri64 { f, d, a, b, c } } else { Op::Tri32 { f, d, a, b, c } })
}

/// Takes the name of a comparison.
pub(super) fn comparison(m: &mut Modifiers) -> Result<Cmp, Fail> {
    let names = [
        ("eq", Cmp::Eq),
        ("ne", Cmp::Ne),
        ("lt", Cmp::Lt),
        ("le", Cmp::Le),
        ("gt", Cmp::Gt),
        ("ge", Cmp::Ge),
        // Unsigned names of the integer comparisons.
        ("lo", Cmp::Lt),
        ("ls", Cmp::Le),
        ("hi", Cmp::Gt),
        ("hs", Cmp::Ge),
        ("equ", Cmp::Equ),
        ("neu", Cmp::Neu),
        ("ltu", Cmp::Ltu),
        ("leu", Cmp::Leu),
        ("gtu", Cmp::Gtu),
        ("geu", Cmp::Geu),
        ("num", Cmp::Num),
        ("nan", Cmp::Nan),
    ];
    m.choice(&names).ok_or_else(|| Fail::new("its comparison is unknown"))
}

/// How a comparison reads operands of a type.
pub(super) fn view(ty: Type, cmp: Cmp, ftz: bool) -> Result<View, Fail> {
    let view = match ty {
        Type::F32 | Type::F64 => View::Float { ftz },
        Type::F16 => View::Half { brain: false },
        Type::Bf16 => View::Half { brain: true },
        Type::F16x2 | Type::Bf16x2 => return Err(Fail::new("packed comparisons")),
        Type::S16 => View::Signed16,
        _ if ty.signed() => View::Signed,
        _ => View::Unsigned,
    };
    let float_only = !matches!(cmp, Cmp::Eq | Cmp::Ne | Cmp::Lt | Cmp::Le | Cmp::Gt | Cmp::Ge);
    if ftz && matches!(view, View::Half { .. }) || float_only && !ty.float() {
        return Err(Fail::new("the comparison does not fit the type"));
    }
    Ok(view)
}

pub(super) fn wanted(m: &mut Modifiers, names: &[&str]) -> Result<(), Fail> {
    match names.iter().find(|name| !m.take(name)) {
        None => Ok(()),
        Some(name) => Err(Fail::new(format!("the form without `.{name}`"))),
    }
}

/// How many groups may be unfinished.
pub(super) fn pending(operands: &[Operand]) -> Result<u32, Fail> {
    match operands {
        [Operand::Int(count)] => u32::try_from(*count).map_err(|_| Fail::new("so many groups")),
        _ => Err(Fail::new("the number of groups is a constant")),
    }
}

/// The registers of a fragment, 64-bit ones if `wide`.
pub(super) fn file_registers(
    slots: &mut Slots,
    operand: &Operand,
    (wanted, wide): (usize, bool),
    written: bool,
) -> Result<Vec<Slot>, Fail> {
    let parts = match operand {
        Operand::Vector(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    if parts.len() != wanted {
        return Err(Fail::new(format!("a fragment has {wanted} registers here")));
    }
    let slot = |part: &Operand| match written {
        true => out(slots, part, wide),
        false => slots.source(part, wide),
    };
    parts.iter().map(slot).collect()
}
