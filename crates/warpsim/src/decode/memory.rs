//! Moves, loads, stores, atomics, addresses.

use super::fail::Fail;
use super::flow::ANYWHERE;
use super::modifiers::Modifiers;
use super::operands::{count, fit};
use super::slots::Slots;
use crate::op::{Address, Measured, Op, Row, Transfer};
use crate::ptx::ast::Operand;
use crate::ptx::types::{Space, Type};

/// Scopes, orders and cache hints: the simulator's memory is always coherent.
pub(super) const HINTS: &[&str] = &[
    "relaxed",
    "acquire",
    "release",
    "acq_rel",
    "volatile",
    "weak",
    "mmio",
    "cta",
    "cluster",
    "gpu",
    "sys",
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "nc",
    "L2::64B",
    "L2::128B",
    "L2::256B",
    "L1::evict_last",
    "L1::evict_first",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::no_allocate",
    "L2::evict_last",
    "L2::evict_first",
    "L2::evict_normal",
];
pub(super) const SPACES: &[(&str, Space)] = &[
    ("global", Space::Global),
    ("shared", Space::Shared),
    ("shared::cta", Space::Shared),
    ("shared::cluster", Space::Shared),
    ("local", Space::Local),
    ("const", Space::Const),
    ("param", Space::Param),
];

/// Decodes an instruction of this group.
pub fn decode(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    match m.base {
        "mov" => mov(slots, m, operands),
        "ld" | "ldu" => transfer(slots, m, operands, true),
        "st" => transfer(slots, m, operands, false),
        "cvta" => {
            let ty = m.ty()?;
            let to_generic = !m.take("to");
            let space = m.choice(SPACES).ok_or_else(|| Fail::new("its space is unknown"))?;
            let [d, a] = operands else { return Err(count(2)) };
            let d = slots.row(d)?;
            let a = slots.any_source(a, d.wide)?;
            if ty.bytes() != 8 || !d.wide || !a.wide {
                return Err(Fail::new("addresses have 64 bits"));
            }
            Ok(Op::AddressOf { space, to_generic, d, a })
        }
        "isspacep" => {
            let space = m.choice(SPACES).ok_or_else(|| Fail::new("its space is unknown"))?;
            let [d, a] = operands else { return Err(count(2)) };
            let d = slots.pred_out(d)?.ok_or_else(|| Fail::new("a result is needed"))?;
            Ok(Op::IsSpace { space, d, a: slots.source(a, true)? })
        }
        "mapa" | "getctarank" => rank(slots, m, operands),
        "prefetch" | "prefetchu" => {
            m.ignore(&["global", "local", "tensormap", "L1", "L2", "L2::evict_last", "L2::evict_normal"]);
            Ok(Op::Nop)
        }
        // Hints about caches. What a discarded line holds is open: here it stays.
        "discard" | "applypriority" => {
            m.ignore(&["global", "L2", "L2::evict_normal"]);
            Ok(Op::Nop)
        }
        // A policy (`createpolicy`) is a value that nobody looks into.
        _ => {
            m.ty()?;
            let kept = ["fractional", "range", "cvt", "L2", "global", "L2::evict_last", "L2::evict_first"];
            m.ignore(&kept);
            m.ignore(&["L2::evict_normal", "L2::evict_unchanged"]);
            let [d, ..] = operands else { return Err(count(2)) };
            Ok(Op::Mov64 { d: super::operands::out(slots, d, true)?, a: slots.source(&Operand::Int(0), true)? })
        }
    }
}

/// Where an address lies in another block of the cluster (`mapa`), and which block's it is (`getctarank`).
fn rank(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    let shared = m.take("shared::cluster");
    let ty = m.ty()?;
    let wide = ty.bytes() == 8;
    if !shared && !wide {
        return Err(Fail::new("generic addresses have 64 bits"));
    }
    // 64-bit registers may hold an address of the space, too: they are told apart by their values.
    let maps = m.base == "mapa";
    let (d, a, rank) = match operands {
        [d, a, rank] if maps => (d, a, Some(slots.source(rank, false)?)),
        [d, a] if !maps => (d, a, None),
        _ => return Err(Fail::new("the number of operands does not fit")),
    };
    let (d, a) = (super::operands::out(slots, d, wide && maps)?, slots.source(&fit(a, ty), wide)?);
    Ok(match rank {
        Some(rank) => Op::Map { wide, d, a, rank },
        None => Op::RankOf { wide, d, a },
    })
}

fn mov(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    let ty = m.ty()?;
    let [d, a] = operands else { return Err(count(2)) };
    if ty == Type::Pred {
        let d = slots.pred_out(d)?.ok_or_else(|| Fail::new("a result is needed"))?;
        return Ok(match a {
            Operand::Int(value) => Op::PredConst { d, value: *value != 0 },
            a => Op::PredMov { d, a: slots.pred(a)? },
        });
    }
    let bits = ty.bytes() as u8 * 8;
    let parts = |n: usize| match n {
        2 | 4 if bits as usize / n >= 8 => Ok((n as u8, bits / n as u8)),
        _ => Err(Fail::new("2 or 4 parts of at least 8 bits are packed")),
    };
    if let Operand::Vector(from) = a {
        let (count, part) = parts(from.len())?;
        let mut rows = [0; 4];
        for (row, operand) in rows.iter_mut().zip(from) {
            *row = slots.source(operand, false)?;
        }
        return Ok(Op::Pack { d: slots.row(d)?, parts: rows, count, part });
    }
    if let Operand::Vector(to) = d {
        let (count, part) = parts(to.len())?;
        let mut rows = [None; 4];
        for (row, operand) in rows.iter_mut().zip(to) {
            *row = sink(slots, operand)?;
        }
        let a = slots.any_source(a, bits == 64)?;
        return Ok(Op::Unpack { rows, count, part, a });
    }
    let row = slots.row(d)?;
    let wide = bits == 64;
    if row.wide != wide {
        return Err(Fail::new("the result is of another size than the instruction"));
    }
    if let Operand::Name(name) = a {
        match name.as_str() {
            "%clock" | "%clock64" | "%globaltimer" | "%globaltimer_lo" => {
                return Ok(Op::Clock { d: row });
            }
            _ => {}
        }
    }
    let a = slots.source(&fit(a, ty), wide)?;
    Ok(if wide { Op::Mov64 { d: row.slot, a } } else { Op::Mov32 { d: row.slot, a } })
}

/// `.L2::cache_hint` has a policy as its last operand, which changes nothing here.
pub(super) fn without_policy<'a>(m: &mut Modifiers, operands: &'a [Operand]) -> &'a [Operand] {
    match (m.take("L2::cache_hint"), operands) {
        (true, [rest @ .., _]) => rest,
        _ => operands,
    }
}

/// A register that is written, or `_`.
pub(super) fn sink(slots: &Slots, operand: &Operand) -> Result<Option<Row>, Fail> {
    match operand {
        Operand::Name(name) if name == "_" => Ok(None),
        other => slots.row(other).map(Some),
    }
}

pub(super) fn address(slots: &mut Slots, operand: &Operand, space: Space) -> Result<Address, Fail> {
    let Operand::Address(base, offset) = operand else { return Err(Fail::new("an address in brackets is expected")) };
    let mut base = base.as_ref().clone();
    let (mut offset, mut space) = (*offset, space);
    // A symbol with its offset becomes one constant.
    if let Operand::Name(name) = &base
        && let Some(&(_, home)) = slots.symbols.get(name)
    {
        // Parameters of a call, unlike those of the kernel.
        if space == Space::Param && home == Space::Local {
            space = home;
        }
        base = Operand::Address(Box::new(base), offset);
        offset = 0;
    }
    Ok(Address { space, base: slots.any_source(&base, true)?, offset })
}

fn transfer(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand], load: bool) -> Result<Op, Fail> {
    let ty = m.ty()?;
    let space = m.choice(SPACES).unwrap_or(Space::Generic);
    let lanes = m.choice(&[("v2", 2u8), ("v4", 4), ("v8", 8)]).unwrap_or(1);
    let release = m.take("release");
    let strong = ["volatile", "relaxed", "acquire", "mmio"].iter().any(|name| m.take(name)) || release;
    m.ignore(HINTS);
    let operands = without_policy(m, operands);
    let (place, data) = match (operands, load) {
        ([data, place], true) | ([place, data], false) => (place, data),
        _ => return Err(count(2)),
    };
    let parts = match data {
        Operand::Vector(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    if parts.len() != lanes as usize || ty == Type::Pred {
        return Err(Fail::new("the registers do not fit the vector"));
    }
    let mut rows = [None; 8];
    for (row, operand) in rows.iter_mut().zip(parts) {
        *row = if load { sink(slots, operand)? } else { Some(slots.any_source(&fit(operand, ty), ty.bytes() == 8)?) };
        if row.is_some_and(|r| !r.wide && ty.bytes() == 8) {
            return Err(Fail::new("a register too small for the type"));
        }
    }
    let address = address(slots, place, space)?;
    if !load && matches!(address.space, Space::Const | Space::Param) {
        return Err(Fail::new("this space is read-only here"));
    }
    let (bytes, count, signed) = (ty.bytes() as u8, lanes, ty.signed());
    let words = bytes == 4 && rows.iter().flatten().all(|row| !row.wide && !row.short);
    let span = Measured { number: 0, stale: true };
    let shared_word = rows[0].filter(|_| words && count == 1 && address.space == Space::Shared).map(|row| row.slot);
    let home = ANYWHERE;
    let transfer = Transfer { address, bytes, count, signed, strong, release, rows, words, home, span, shared_word };
    Ok(if load { Op::Load(Box::new(transfer)) } else { Op::Store(Box::new(transfer)) })
}
