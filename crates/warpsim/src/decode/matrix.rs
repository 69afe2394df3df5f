//! Tensor-core instructions of a warp (`mma.sync`, `ldmatrix`), and copies that a GPU does in the background.

use super::fail::Fail;
use super::memory::address;
use super::modifiers::Modifiers;
use super::operands::{count, file_registers, pending, wanted};
use super::slots::Slots;
use crate::op::{Copy, Element, Engine, Fragment, LoadMatrix, Mma, Op, Slot, Sparse, Spread};
use crate::ptx::ast::Operand;
use crate::ptx::types::Space;

/// Decodes an instruction of this group.
pub fn decode(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    match m.base {
        "cp" => copy(slots, m, operands),
        "ldmatrix" => load(slots, m, operands),
        "stmatrix" => store(slots, m, operands),
        _ => mma(slots, m, operands),
    }
}

/// `cp.async`: done at once, which is one of the orders that a right program allows.
fn copy(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    wanted(m, &["async"])?;
    // Caches are not simulated.
    if m.take("bulk") {
        return super::hopper::bulk(slots, m, operands);
    }
    if m.take("mbarrier") {
        return super::mbarrier::copied(slots, m, operands);
    }
    if m.take("commit_group") {
        return Ok(Op::Commit(Engine::Copies));
    }
    if m.take("wait_all") {
        return Ok(Op::Await { engine: Engine::Copies, pending: 0, all: true });
    }
    if m.take("wait_group") {
        return Ok(Op::Await { engine: Engine::Copies, pending: pending(operands)?, all: false });
    }
    let bypass = m.take("cg");
    m.ignore(&["ca", "L2::64B", "L2::128B", "L2::256B"]);
    let operands = super::memory::without_policy(m, operands);
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
    Ok(Op::Copy(Box::new(Copy { to, from, bytes: *bytes as u8, bypass, source })))
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

fn store(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    wanted(m, &["sync", "aligned", "m8n8", "b16"])?;
    let matrices = m.choice(&[("x1", 1usize), ("x2", 2), ("x4", 4)]).ok_or_else(|| Fail::new("how many is unknown"))?;
    let transposed = m.take("trans");
    let space = if m.take("shared") || m.take("shared::cta") { Space::Shared } else { Space::Generic };
    let [to, from] = operands else { return Err(count(2)) };
    let rows = registers(slots, from, matrices, false)?;
    Ok(Op::StoreMatrix(Box::new(LoadMatrix { address: address(slots, to, space)?, rows, transposed })))
}

fn mma(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    wanted(m, &["sync", "aligned", "row", "col"])?;
    // An ordered metadata word is one of those that the other form takes.
    let sparse = m.take("sp") || m.take("sp::ordered_metadata");
    let saturate = m.take("satfinite");
    m.take("rn");
    let (rows, columns, depth) = m.matrix_shape()?;
    let types = [m.element()?, m.element()?, m.element()?, m.element()?];
    let [c, b, a, d] = types;
    use Element::{Bf16, E4m3, E5m2, F16, F32, F64, S4, S8, S32, Tf32, U4, U8};
    let stored = if sparse { depth / 2 } else { depth };
    let deep = |first: usize| rows == 16 && (stored == first || stored == 2 * first);
    let known = columns == 8
        && match (a, b) {
            (F16, F16) => deep(8) && c == d && matches!(c, F16 | F32),
            (Bf16, Bf16) => deep(8) && (c, d) == (F32, F32),
            (E4m3 | E5m2, E4m3 | E5m2) => deep(16) && c == d && matches!(c, F16 | F32),
            (Tf32, Tf32) => deep(4) && (c, d) == (F32, F32),
            (S8 | U8, S8 | U8) => (deep(16) || (rows, stored) == (8, 16)) && (c, d) == (S32, S32),
            (S4 | U4, S4 | U4) => (deep(32) || (rows, stored) == (8, 32)) && (c, d) == (S32, S32),
            (F64, F64) => (deep(4) || matches!((rows, stored), (8, 4) | (16, 16))) && (c, d) == (F64, F64),
            _ => false,
        };
    if !known || saturate && !a.integer() || sparse && !matches!((a, stored), (F16 | Bf16, 16)) {
        return Err(Fail::new("this shape with these types"));
    }
    let (operands, sparse) = match (sparse, operands) {
        (true, [four @ .., places, pair]) => {
            let pair = match pair {
                Operand::Int(pair @ (0 | 1)) => *pair as usize,
                _ => return Err(Fail::new("another selector than 0 or 1")),
            };
            (four, Some(Sparse { places: slots.source(places, false)?, pair }))
        }
        _ => (operands, None),
    };
    let [to, left, right, plus] = operands else { return Err(count(if sparse.is_some() { 6 } else { 4 })) };
    let d = fragment(slots, to, (d, Spread::C, (rows, columns)), true)?;
    let a = fragment(slots, left, (a, Spread::A, (rows, stored)), false)?;
    let b = fragment(slots, right, (b, Spread::B, (depth, columns)), false)?;
    let c = fragment(slots, plus, (c, Spread::C, (rows, columns)), false)?;
    Ok(Op::Mma(Box::new(Mma { d, a, b, sparse, c, saturate })))
}

/// The registers of a matrix that fills them.
fn fragment(
    slots: &mut Slots,
    operand: &Operand,
    (element, spread, shape): (Element, Spread, (usize, usize)),
    written: bool,
) -> Result<Fragment, Fail> {
    let wanted = shape.0 * shape.1 / (32 * element.per_register());
    let registers = file_registers(slots, operand, (wanted, element == Element::F64), written)?;
    Ok(Fragment { element, shape, spread, registers })
}

/// The 32-bit registers of a fragment.
fn registers(slots: &mut Slots, operand: &Operand, wanted: usize, written: bool) -> Result<Vec<Slot>, Fail> {
    file_registers(slots, operand, (wanted, false), written)
}
