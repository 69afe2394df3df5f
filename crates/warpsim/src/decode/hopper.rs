//! Hopper's own instructions: the copy engine's bulk copies, and products of a warpgroup.

use super::Fail;
use super::arithmetic::count;
use super::matrix::{file_registers, pending, wanted};
use super::memory::address;
use super::modifiers::Modifiers;
use super::slots::Slots;
use crate::op::{Bulk, Described, Element, Engine, Left, Op, Route, Wgmma};
use crate::ptx::ast::Operand;
use crate::ptx::types::Space;

/// Decodes `wgmma` and `setmaxnreg`.
pub fn decode(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    if m.base == "setmaxnreg" {
        // How many registers a warp may have changes no result.
        m.ignore(&["inc", "dec", "sync", "aligned", "u32"]);
        return Ok(Op::Nop);
    }
    wanted(m, &["sync", "aligned"])?;
    if m.take("fence") {
        return Ok(Op::WarpgroupFence);
    }
    if m.take("commit_group") {
        return Ok(Op::Commit(Engine::Products));
    }
    if m.take("wait_group") {
        return Ok(Op::WarpgroupWait { pending: pending(operands)? });
    }
    if m.take("sp") || !m.take("mma_async") {
        return Err(Fail::new("this product of a warpgroup"));
    }
    let (rows, columns, depth) = m.matrix_shape()?;
    let (b, a, d) = (m.element()?, m.element()?, m.element()?);
    let known = a == b && matches!(a, Element::F16 | Element::Bf16) && d == Element::F32;
    if !known || rows != 64 || depth != 16 || !columns.is_multiple_of(8) || !(8..=256).contains(&columns) {
        return Err(Fail::new("this shape with these types"));
    }
    let [to, left, right, adds, scale_a, scale_b, transposed @ ..] = operands else { return Err(count(6)) };
    let flag = |operand: &Operand, no: i128, yes: i128| match operand {
        Operand::Int(value) if *value as i128 == no => Ok(false),
        Operand::Int(value) if *value as i128 == yes => Ok(true),
        _ => Err(Fail::new("a factor is 1 or -1, and a matrix is transposed (1) or not (0)")),
    };
    let (left, right_transposed) = match (left, transposed) {
        (Operand::Vector(_), [b]) => {
            let rows = file_registers(slots, left, (4, false), false)?;
            (Left::Registers([rows[0], rows[1], rows[2], rows[3]]), flag(b, 0, 1)?)
        }
        (_, [a, b]) => {
            let described = Described { descriptor: slots.source(left, true)?, transposed: flag(a, 0, 1)? };
            (Left::Shared(described), flag(b, 0, 1)?)
        }
        _ => return Err(Fail::new("the number of operands does not fit")),
    };
    let adds = match adds {
        Operand::Int(value) => Err(*value != 0),
        name => Ok(slots.pred(name)?),
    };
    Ok(Op::Wgmma(Box::new(Wgmma {
        brain: a == Element::Bf16,
        columns,
        // Sums are read, too.
        d: {
            file_registers(slots, to, (columns / 2, false), false)?;
            file_registers(slots, to, (columns / 2, false), true)?
        },
        a: left,
        b: Described { descriptor: slots.source(right, true)?, transposed: right_transposed },
        adds,
        negated: (flag(scale_a, 1, -1)?, flag(scale_b, 1, -1)?),
    })))
}

/// Decodes what follows `cp.async.bulk`. Copies are done at once, which is one of the orders that a right program allows.
pub fn bulk(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    if m.take("commit_group") {
        return Ok(Op::Commit(Engine::Stores));
    }
    if m.take("wait_group") {
        // Whether only the reads or also the writes are waited for: other blocks' reads of them are another launch's.
        m.take("read");
        return Ok(Op::Await { engine: Engine::Stores, pending: pending(operands)?, all: false });
    }
    if m.take("prefetch") {
        m.ignore(&["tensor", "1d", "2d", "3d", "4d", "5d", "L2", "global", "tile", "L2::cache_hint"]);
        return Ok(Op::Nop);
    }
    let dimensions = match m.take("tensor") {
        true => m.choice(&[("1d", 1usize), ("2d", 2), ("3d", 3), ("4d", 4), ("5d", 5)]),
        false => Some(0),
    };
    let dimensions = dimensions.ok_or_else(|| Fail::new("how many dimensions is unknown"))?;
    m.take("tile");
    let operands = super::memory::without_policy(m, operands);
    let counted = m.take("mbarrier::complete_tx::bytes");
    let grouped = m.take("bulk_group");
    let (cluster, block, global) = (m.take("shared::cluster"), m.take("shared::cta"), m.take("global"));
    let route = match (cluster, block, global) {
        (true, false, true) | (false, true, true) if counted && !grouped => Route::Load,
        (false, true, true) if grouped => Route::Store,
        (true, true, false) if counted && dimensions == 0 => Route::FromShared,
        _ => return Err(Fail::new("a copy between these spaces")),
    };
    let (operands, multicast) = match (m.take("multicast::cluster"), operands) {
        (true, [rest @ .., blocks]) if route == Route::Load => (rest, Some(slots.any_source(blocks, false)?.slot)),
        (false, all) => (all, None),
        _ => return Err(Fail::new("a copy to several blocks")),
    };
    let place = |slots: &mut Slots, operand: &Operand| -> Result<_, Fail> {
        if dimensions == 0 {
            let space = if route == Route::FromShared { Space::Shared } else { Space::Global };
            return Ok((address(slots, operand, space)?, Vec::new()));
        }
        let Operand::Address(inner, _) = operand else {
            return Err(Fail::new("a tensor map and a place are expected"));
        };
        let Operand::Pair(map, coordinates) = inner.as_ref() else {
            return Err(Fail::new("a tensor map and a place are expected"));
        };
        let coordinates = file_registers(slots, coordinates, (dimensions, false), false)?;
        Ok((address(slots, map, Space::Generic)?, coordinates))
    };
    let (to, from, bytes, barrier) = match (operands, dimensions == 0, counted) {
        ([to, from, bytes, barrier], true, true) => (to, from, Some(bytes), Some(barrier)),
        ([to, from, bytes], true, false) => (to, from, Some(bytes), None),
        ([to, from, barrier], false, true) => (to, from, None, Some(barrier)),
        ([to, from], false, false) => (to, from, None, None),
        _ => return Err(Fail::new("the number of operands does not fit")),
    };
    let (inside, outside) = if route == Route::Store { (from, to) } else { (to, from) };
    let (other, coordinates) = place(slots, outside)?;
    Ok(Op::Bulk(Box::new(Bulk {
        route,
        shared: address(slots, inside, Space::Shared)?,
        other,
        coordinates,
        bytes: bytes.map(|bytes| slots.source(bytes, false)).transpose()?,
        barrier: barrier.map(|barrier| address(slots, barrier, Space::Shared)).transpose()?,
        multicast,
    })))
}
