//! Hopper's own instructions: the TMA's bulk copies, and products of a warpgroup.

use super::fail::Fail;
use super::memory::address;
use super::modifiers::Modifiers;
use super::operands::{count, file_registers, pending, wanted};
use super::slots::Slots;
use crate::op::{Bulk, Described, Element, Engine, Left, Op, Route, Sparse, Wgmma};
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
    let sparse = m.take("sp");
    if !m.take("mma_async") {
        return Err(Fail::new("this product of a warpgroup"));
    }
    let saturate = m.take("satfinite");
    let (rows, columns, depth) = m.matrix_shape()?;
    let (b, a, d) = (m.element()?, m.element()?, m.element()?);
    use Element::{Bf16, E4m3, E5m2, F16, F32, S8, S32, Tf32, U8};
    let known = match (a, b) {
        (F16, F16) | (E4m3 | E5m2, E4m3 | E5m2) => matches!(d, F16 | F32),
        (Bf16, Bf16) | (Tf32, Tf32) => d == F32,
        (S8 | U8, S8 | U8) => d == S32 && (columns <= 32 || columns.is_multiple_of(16)),
        _ => false,
    };
    let bytes = if sparse { 64 } else { 32 };
    let fits =
        rows == 64 && depth as u64 * a.bytes() == bytes && columns.is_multiple_of(8) && (8..=256).contains(&columns);
    if !known || !fits || saturate && !a.integer() {
        return Err(Fail::new("this shape with these types"));
    }
    let [to, left, right, rest @ ..] = operands else { return Err(count(4)) };
    let (sparse, rest) = match (sparse, rest) {
        (true, [places, pair, rest @ ..]) => {
            // Of numbers of 8 bits, all four threads hold places.
            let pair = match pair {
                Operand::Int(pair) if *pair == 0 || *pair == 1 && a.bytes() > 1 => *pair as usize,
                _ => return Err(Fail::new("another selector than 0 or (from 16 bits on) 1")),
            };
            (Some(Sparse { places: slots.source(places, false)?, pair }), rest)
        }
        (true, _) => return Err(count(6)),
        (false, rest) => (None, rest),
    };
    let [adds, rest @ ..] = rest else { return Err(count(4)) };
    let flag = |operand: &Operand, no: i64, yes: i64| match operand {
        Operand::Int(value) if *value as i64 == no => Ok(false),
        Operand::Int(value) if *value as i64 == yes => Ok(true),
        _ => Err(Fail::new("a factor is 1 or -1, and a matrix is transposed (1) or not (0)")),
    };
    // Only floats have signs to change, and only halves can be transposed.
    let in_registers = matches!(left, Operand::Vector(_));
    let (negated, transposed) = match (a, rest, in_registers) {
        (S8 | U8, [], _) => ((false, false), (false, false)),
        (Tf32 | E4m3 | E5m2, [x, y], _) => ((flag(x, 1, -1)?, flag(y, 1, -1)?), (false, false)),
        (F16 | Bf16, [x, y, b], true) => ((flag(x, 1, -1)?, flag(y, 1, -1)?), (false, flag(b, 0, 1)?)),
        (F16 | Bf16, [x, y, a, b], false) => ((flag(x, 1, -1)?, flag(y, 1, -1)?), (flag(a, 0, 1)?, flag(b, 0, 1)?)),
        _ => return Err(Fail::new("the number of operands does not fit")),
    };
    let left = match in_registers {
        true => {
            let rows = file_registers(slots, left, (4, false), false)?;
            Left::Registers([rows[0], rows[1], rows[2], rows[3]])
        }
        false => Left::Shared(Described { descriptor: slots.source(left, true)?, transposed: transposed.0 }),
    };
    let adds = match adds {
        Operand::Int(value) => Err(*value != 0),
        name => Ok(slots.pred(name)?),
    };
    Ok(Op::Wgmma(Box::new(Wgmma {
        factors: [a, b],
        sum: d,
        saturate,
        sparse,
        columns,
        // Sums are read, too.
        d: {
            let wanted = columns / 2 / d.per_register();
            file_registers(slots, to, (wanted, false), false)?;
            file_registers(slots, to, (wanted, false), true)?
        },
        a: left,
        b: Described { descriptor: slots.source(right, true)?, transposed: transposed.1 },
        adds,
        negated,
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
