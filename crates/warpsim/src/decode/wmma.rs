//! `wmma`: matrices whose place in the registers is the hardware's own business (PTX ISA, "wmma.load" and its kin).

use super::fail::Fail;
use super::memory::{SPACES, address};
use super::modifiers::Modifiers;
use super::operands::{count, file_registers};
use super::slots::Slots;
use crate::op::{Element, Fragment, Mma, Op, Role, Spread, Tile};
use crate::ptx::ast::Operand;
use crate::ptx::types::Space;

/// Decodes a `wmma.load`, `wmma.store` or `wmma.mma`.
pub fn decode(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    if !(m.take("sync") && m.take("aligned")) {
        return Err(Fail::new("the form without `.sync.aligned`"));
    }
    match m.choice(&[("load", Some(true)), ("store", Some(false)), ("mma", None)]) {
        Some(Some(load)) => tile(slots, m, operands, load),
        Some(None) => mma(slots, m, operands),
        None => Err(Fail::new("its form is unknown")),
    }
}

fn tile(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand], load: bool) -> Result<Op, Fail> {
    let roles: &[(&str, Role)] =
        if load { &[("a", Role::A), ("b", Role::B), ("c", Role::C)] } else { &[("d", Role::C)] };
    let role = m.choice(roles).ok_or_else(|| Fail::new("its matrix is unknown"))?;
    let columns_first = m.choice(&[("row", false), ("col", true)]).ok_or_else(|| Fail::new("its layout is unknown"))?;
    let shape = m.matrix_shape()?;
    let element = m.element()?;
    let space = m.choice(&SPACES[..3]).unwrap_or(Space::Generic);
    let (data, place, rest) = match (operands, load) {
        ([data, place, rest @ ..], true) | ([place, data, rest @ ..], false) => (data, place, rest),
        _ => return Err(count(2)),
    };
    let stride = match rest {
        [] => None,
        [stride] => Some(slots.source(stride, false)?),
        _ => return Err(count(3)),
    };
    let fragment = fragment(slots, data, (role, element, shape), load)?;
    let address = address(slots, place, space)?;
    Ok(Op::Tile(Box::new(Tile { load, role, address, stride, columns_first, fragment })))
}

fn mma(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    // The layouts say how a and b were loaded, which changes nothing about their registers here.
    for _ in 0..2 {
        m.choice(&[("row", ()), ("col", ())]).ok_or_else(|| Fail::new("its layouts are unknown"))?;
    }
    let saturate = m.take("satfinite");
    m.take("rn");
    let shape = m.matrix_shape()?;
    // Halves name the types of c and d alone.
    let (c, second) = (m.element()?, m.element()?);
    let (c, b, a, d) = match m.element() {
        Ok(a) => (c, second, a, m.element()?),
        Err(_) => (c, Element::F16, Element::F16, second),
    };
    if a != b || saturate && !a.integer() {
        return Err(Fail::new("these types"));
    }
    let [to, left, right, plus] = operands else { return Err(count(4)) };
    let d = fragment(slots, to, (Role::C, d, shape), true)?;
    let a = fragment(slots, left, (Role::A, a, shape), false)?;
    let b = fragment(slots, right, (Role::B, b, shape), false)?;
    let c = fragment(slots, plus, (Role::C, c, shape), false)?;
    let fits = match a.element {
        Element::F16 => matches!((c.element, d.element), (Element::F16 | Element::F32, Element::F16 | Element::F32)),
        Element::Bf16 | Element::Tf32 => (c.element, d.element) == (Element::F32, Element::F32),
        Element::F64 => (c.element, d.element) == (Element::F64, Element::F64),
        _ => (c.element, d.element) == (Element::S32, Element::S32),
    };
    if !fits {
        return Err(Fail::new("these types"));
    }
    Ok(Op::Mma(Box::new(Mma { d, a, b, sparse: None, c, saturate })))
}

/// A matrix with as many registers as the PTX ISA gives it ("Matrix Fragments for WMMA").
fn fragment(
    slots: &mut Slots,
    operand: &Operand,
    (role, element, (rows, columns, depth)): (Role, Element, (usize, usize, usize)),
    written: bool,
) -> Result<Fragment, Fail> {
    use Element::{Bf16, F16, F32, F64, S8, S32, Tf32, U8};
    let sixteen = matches!((rows, columns, depth), (16, 16, 16) | (8, 32, 16) | (32, 8, 16));
    let shape = match role {
        Role::A => (rows, depth),
        Role::B => (depth, columns),
        Role::C => (rows, columns),
    };
    let full = shape.0 * shape.1 / (32 * element.per_register());
    let wanted = match (role, element) {
        // Whatever the shape: hardware may keep each half more than once.
        (Role::A | Role::B, F16) if sixteen => 8,
        (Role::A | Role::B, Bf16 | S8 | U8) if sixteen => full,
        (Role::A | Role::B, Tf32) if (rows, columns, depth) == (16, 16, 8) => full,
        (Role::C, F16 | F32 | S32) if sixteen || (rows, columns, depth) == (16, 16, 8) => full,
        (_, F64) if (rows, columns, depth) == (8, 8, 4) => full,
        _ => return Err(Fail::new("this shape with these types")),
    };
    let registers = file_registers(slots, operand, (wanted, element == F64), written)?;
    Ok(Fragment { element, shape, spread: Spread::Wmma, registers })
}
