//! Tensor-core instructions of a warp, and copies that a GPU does in the background.

use super::Fail;
use super::arithmetic::count;
use super::memory::address;
use super::modifiers::Modifiers;
use super::slots::Slots;
use crate::op::{Copy, LoadMatrix, Mma, MmaType, Op, Slot};
use crate::ptx::ast::Operand;
use crate::ptx::types::Space;

/// Decodes an instruction of this group.
pub fn decode(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    match m.base {
        "cp" => copy(slots, m, operands),
        "ldmatrix" => load(slots, m, operands),
        _ => mma(slots, m, operands),
    }
}

fn wanted(m: &mut Modifiers, names: &[&str]) -> Result<(), Fail> {
    match names.iter().find(|name| !m.take(name)) {
        None => Ok(()),
        Some(name) => Err(Fail::new(format!("the form without `.{name}`"))),
    }
}

/// `cp.async`: done at once, which is one of the orders that a right program allows.
fn copy(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    wanted(m, &["async"])?;
    if m.take("commit_group") || m.take("wait_all") || m.take("wait_group") {
        return Ok(Op::Nop);
    }
    m.ignore(&["ca", "cg", "L2::64B", "L2::128B", "L2::256B"]);
    if !(m.take("shared") || m.take("shared::cta")) || !m.take("global") {
        return Err(Fail::new("a copy from another space than global to shared"));
    }
    let [to, from, Operand::Int(bytes), rest @ ..] = operands else { return Err(count(3)) };
    let source = match rest {
        [] => None,
        [size] => Some(slots.source(size, false)?),
        _ => return Err(count(4)),
    };
    if !matches!(bytes, 4 | 8 | 16) {
        return Err(Fail::new("4, 8 or 16 bytes are copied"));
    }
    let (to, from) = (address(slots, to, Space::Shared)?, address(slots, from, Space::Global)?);
    Ok(Op::Copy(Box::new(Copy { to, from, bytes: *bytes as u8, source })))
}

fn load(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    wanted(m, &["sync", "aligned", "m8n8", "b16"])?;
    let matrices = m.choice(&[("x1", 1usize), ("x2", 2), ("x4", 4)]).ok_or_else(|| Fail::new("how many is unknown"))?;
    let transposed = m.take("trans");
    let space = if m.take("shared") || m.take("shared::cta") { Space::Shared } else { Space::Generic };
    let [d, from] = operands else { return Err(count(2)) };
    let rows = registers(slots, d, matrices, true)?;
    Ok(Op::LoadMatrix(Box::new(LoadMatrix { address: address(slots, from, space)?, rows, transposed })))
}

fn mma(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    wanted(m, &["sync", "aligned", "row", "col"])?;
    let shapes = [("m16n8k4", 4usize), ("m16n8k8", 8), ("m16n8k16", 16), ("m16n8k32", 32)];
    let depth = m.choice(&shapes).ok_or_else(|| Fail::new("this shape"))?;
    let (c, b, a, d) = (m.last()?, m.last()?, m.last()?, m.last()?);
    let ty = match (d, a, b, c) {
        ("f32", "f16", "f16", "f32") => MmaType::Half { brain: false },
        ("f32", "bf16", "bf16", "f32") => MmaType::Half { brain: true },
        ("f32", "tf32", "tf32", "f32") => MmaType::Tf32,
        ("s32", "s8", "s8", "s32") => MmaType::Int8,
        _ => return Err(Fail::new("these types")),
    };
    // Registers of a k-slice of 4 × elements a register.
    let slices = depth / (4 * ty.elements());
    if !(1..=2).contains(&slices) {
        return Err(Fail::new("this shape with these types"));
    }
    let [d, a, b, c] = operands else { return Err(count(4)) };
    let d = registers(slots, d, 4, true)?;
    let a = registers(slots, a, 2 * slices, false)?;
    let b = registers(slots, b, slices, false)?;
    Ok(Op::Mma(Box::new(Mma { ty, d, a, b, c: registers(slots, c, 4, false)? })))
}

/// The 32-bit registers of a fragment.
fn registers(slots: &mut Slots, operand: &Operand, wanted: usize, written: bool) -> Result<Vec<Slot>, Fail> {
    let parts = match operand {
        Operand::Vector(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    if parts.len() != wanted {
        return Err(Fail::new(format!("a fragment has {wanted} registers here")));
    }
    let slot = |part: &Operand| match written {
        true => super::arithmetic::out(slots, part, false),
        false => slots.source(part, false),
    };
    parts.iter().map(slot).collect()
}
