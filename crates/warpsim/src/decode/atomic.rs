//! Atomics and reductions (PTX ISA, "atom", "red").

use super::fail::Fail;
use super::flow::ANYWHERE;
use super::memory::{HINTS, SPACES, address, sink, without_policy};
use super::modifiers::Modifiers;
use super::slots::Slots;
use crate::op::{Atomic, AtomicOp, Halves, Op, Slot};
use crate::ptx::ast::Operand;
use crate::ptx::types::{Space, Type};

/// Decodes an `atom` or a `red`.
pub fn decode(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    let returns = m.base == "atom";
    let ty = m.ty()?;
    let release = ["release", "acq_rel"].iter().any(|name| m.take(name));
    m.ignore(HINTS);
    let operands = without_policy(m, operands);
    m.take("noftz");
    let space = m.choice(&SPACES[..3]).unwrap_or(Space::Generic);
    let lanes = m.choice(&[("v2", 2u32), ("v4", 4), ("v8", 8)]).unwrap_or(1);
    let op = operation(m, ty)?;
    check(op, ty, lanes)?;
    let wide = ty.bytes() == 8;
    let (d, rest) = match (returns, operands) {
        (true, [d, rest @ ..]) => (Some(d), rest),
        (_, rest) => (None, rest),
    };
    let (place, a, b) = match (rest, op) {
        ([place, a, b], AtomicOp::CompareSwap) => (place, a, Some(b)),
        ([place, a], op) if op != AtomicOp::CompareSwap => (place, a, None),
        _ => return Err(Fail::new("the number of operands does not fit")),
    };
    let address = address(slots, place, space)?;
    let (olds, operands) = (d.map(parts), parts(a));
    if operands.len() != lanes as usize || olds.is_some_and(|o| o.len() != operands.len()) {
        return Err(Fail::new("the registers do not fit the vector"));
    }
    let mut rows = Vec::new();
    for (k, operand) in operands.iter().enumerate() {
        let old = match olds {
            Some(olds) => old(slots, &olds[k], wide)?,
            None => None,
        };
        rows.push((old, slots.source(operand, wide)?));
    }
    let counts = op == AtomicOp::Add && !wide && matches!(operands, [Operand::Int(1)]);
    let (d, a) = rows.remove(0);
    let b = b.map_or(Ok(a), |b| slots.source(b, wide))?;
    Ok(Op::Atomic(Box::new(Atomic {
        op,
        address,
        release,
        bytes: ty.bytes() as u8,
        wide,
        d,
        counts,
        a,
        more: rows,
        b,
        home: ANYWHERE,
    })))
}

fn operation(m: &mut Modifiers, ty: Type) -> Result<AtomicOp, Fail> {
    let signed = ty.signed();
    let halves = |brain, packed| AtomicOp::AddHalf(Halves { brain, packed });
    let add = match ty {
        Type::F16 => halves(false, false),
        Type::F16x2 => halves(false, true),
        Type::Bf16 => halves(true, false),
        Type::Bf16x2 => halves(true, true),
        Type::F32 | Type::F64 => AtomicOp::AddF,
        _ => AtomicOp::Add,
    };
    let ops = [
        ("add", add),
        ("min", AtomicOp::Min { signed }),
        ("max", AtomicOp::Max { signed }),
        ("and", AtomicOp::And),
        ("or", AtomicOp::Or),
        ("xor", AtomicOp::Xor),
        ("exch", AtomicOp::Exchange),
        ("cas", AtomicOp::CompareSwap),
        ("inc", AtomicOp::Inc),
        ("dec", AtomicOp::Dec),
    ];
    m.choice(&ops).ok_or_else(|| Fail::new("its operation is unknown"))
}

/// Which operations a type has, and which types a vector.
fn check(op: AtomicOp, ty: Type, lanes: u32) -> Result<(), Fail> {
    let sum = matches!(op, AtomicOp::AddF | AtomicOp::AddHalf(_));
    let fits = match ty {
        _ if ty.float() => sum,
        Type::B16 => op == AtomicOp::CompareSwap,
        _ => matches!(ty.bytes(), 4 | 8),
    };
    let vector = lanes == 1 || ty.float() && ty != Type::F64 && lanes * ty.bytes() <= 16;
    if fits && vector { Ok(()) } else { Err(Fail::new("atomics of this type")) }
}

fn parts(operand: &Operand) -> &[Operand] {
    match operand {
        Operand::Vector(parts) => parts,
        one => std::slice::from_ref(one),
    }
}

/// Row of an old value, unless it is `_`.
fn old(slots: &Slots, operand: &Operand, wide: bool) -> Result<Option<Slot>, Fail> {
    match sink(slots, operand)? {
        Some(row) if row.wide != wide => Err(Fail::new("the result is of another size than the instruction")),
        row => Ok(row.map(|r| r.slot)),
    }
}
