//! Loads and stores of a whole warp at once, wherever one check for all lanes is enough.

use super::memory::at_home;
use crate::exec::blocks::state::{Env, Warp};
use crate::exec::checks::check;
use crate::exec::checks::shadow::Shadow;
use crate::exec::values::lanes::{LANES, Row, each};
use crate::memory::{Lanes, PIECE, Piece, Span, from_generic};
use crate::op::{SPANS, Slot, Transfer};
use crate::ptx::types::Space;
use crate::traffic::{sectors, wavefronts};

/// A load (`LOAD`) or a store; false, and nothing done, if single lanes must be looked at: in local memory, when a lane's
/// address is outside or misaligned, and where checks need a closer look.
#[inline(always)]
pub fn transfer<const LOAD: bool, const COUNT: bool>(
    env: &mut Env,
    warp: &mut Warp,
    pc: u32,
    t: &Transfer,
    mask: u32,
) -> bool {
    let (lanes, span) = &mut warp.spans[t.span.number as usize % SPANS];
    // Lanes that go their own ways for a while share the spans.
    if t.span.stale || *lanes != mask {
        let (slot, whole) = (t.address.base.slot as usize, *lanes & mask == u32::MAX);
        *lanes = mask;
        match t.address.base.wide {
            true => span.follow(&warp.wide[slot], (mask, whole), |x| x),
            false => span.follow(&warp.narrow[slot], (mask, whole), u64::from),
        }
    }
    match t.shared_word {
        Some(row) if mask == u32::MAX && env.shadow.is_none() => shared_word::<LOAD, COUNT>(env, warp, pc, t, row),
        _ => spanned::<LOAD, COUNT>(env, warp, pc, t, mask),
    }
}

/// A word for each lane of a whole warp, in shared memory without checks: most accesses of inner loops are such.
#[inline(always)]
fn shared_word<const LOAD: bool, const COUNT: bool>(
    env: &mut Env,
    warp: &mut Warp,
    pc: u32,
    t: &Transfer,
    row: Slot,
) -> bool {
    let span = &warp.spans[t.span.number as usize % SPANS].1;
    let lowest = span.lowest().wrapping_add_signed(t.address.offset);
    let Some(words) = Lanes::alone(&mut env.shared, span, lowest, 4) else { return false };
    if !at_home(Space::Shared, t.home, lowest, span.width() + 4) {
        return false;
    }
    let row = &mut warp.narrow[row as usize];
    match LOAD {
        true => words.load_words(0, u32::MAX, row),
        false => words.store_words(0, u32::MAX, row),
    }
    if COUNT {
        count::<LOAD>(env, pc, (Space::Shared, Space::Shared), (span, lowest), u32::MAX, 4);
    }
    true
}

/// Any access, once its span is known.
#[inline(always)]
fn spanned<const LOAD: bool, const COUNT: bool>(
    env: &mut Env,
    warp: &mut Warp,
    pc: u32,
    t: &Transfer,
    mask: u32,
) -> bool {
    let named = t.address.space;
    let span = &warp.spans[t.span.number as usize % SPANS].1;
    let size = u64::from(t.bytes) * u64::from(t.count);
    let (space, lowest) = match (named, span.lowest().wrapping_add_signed(t.address.offset)) {
        (Space::Generic, lowest) => {
            let (space, at) = from_generic(lowest);
            if span.width() == u64::MAX || from_generic(lowest.wrapping_add(span.width())).0 != space {
                return false;
            }
            (space, at)
        }
        (Space::Const, lowest) => (Space::Global, lowest),
        other => other,
    };
    let checks = env.machine.checks && named != Space::Const && matches!(space, Space::Shared | Space::Global);
    if checks && (t.strong || t.release) {
        return false;
    }
    let rows = (&mut warp.narrow[..], &mut warp.wide[..]);
    // No closures around `serve`: one that is left a call would lack the caller's vector instructions.
    match space {
        Space::Shared => {
            if !at_home(space, t.home, lowest, span.width().saturating_add(size)) {
                return false;
            }
            let Some(lanes) = Lanes::alone(&mut env.shared, span, lowest, size) else { return false };
            if let Some(shadow) = &mut env.shadow
                && !noted::<LOAD>(shadow, t, (span, lowest), (warp.first, mask), pc)
            {
                return false;
            }
            serve::<LOAD, true>(&lanes, rows, t, mask);
        }
        Space::Param if LOAD => {
            let Some(lanes) = Lanes::shared(&env.machine.params, span, lowest, size) else { return false };
            serve::<LOAD, false>(&lanes, rows, t, mask);
        }
        Space::Global => {
            let memory = env.machine.memory;
            let near = &mut env.near[pc as usize % 16];
            let inside = |a: &&crate::memory::Allocation| lowest.wrapping_sub(a.base) < a.bytes.len() as u64;
            let found = match memory.get(*near as usize).filter(inside) {
                None => memory.below(lowest).and_then(|number| {
                    *near = number as u32;
                    memory.get(number)
                }),
                found => found,
            };
            let Some(allocation) = found else { return false };
            let number = *near as usize;
            let at = lowest.wrapping_sub(allocation.base);
            let Some(lanes) = Lanes::shared(&allocation.bytes, span, at, size) else { return false };
            if checks && !check::plain::<LOAD>(env, number, (span, at as usize), t, (warp.first, mask)) {
                return false;
            }
            serve::<LOAD, false>(&lanes, rows, t, mask);
        }
        _ => return false,
    }
    if COUNT {
        count::<LOAD>(env, pc, (space, named), (span, lowest), mask, size as u32);
    }
    true
}

/// Notes plain accesses to words of shared memory; false if one of them needs a closer look, which notes all again.
#[inline(always)]
fn noted<const LOAD: bool>(
    shadow: &mut Shadow,
    t: &Transfer,
    (span, lowest): (&Span, u64),
    (first, mask): (u32, u32),
    pc: u32,
) -> bool {
    if t.bytes >= 4 && t.rows[..t.count as usize].iter().all(Option::is_some) {
        let (size, lanes) = (usize::from(t.bytes) * usize::from(t.count), (first, mask));
        let plain = match LOAD {
            true => shadow.plain::<false>((span, lowest), size, lanes, pc),
            false => shadow.plain::<true>((span, lowest), size, lanes, pc),
        };
        if plain {
            return true;
        }
    }
    // Single words that are read are nearly all in order, too.
    LOAD && t.words && t.count == 1 && each_read(shadow, (span, lowest), (first, mask), pc)
}

/// The same, of each lane for itself.
#[inline(never)]
fn each_read(shadow: &mut Shadow, (span, lowest): (&Span, u64), (first, mask): (u32, u32), pc: u32) -> bool {
    let mut fine = true;
    for p in 0..LANES / PIECE {
        let members = mask >> (p * PIECE) & 0xff;
        // Of the readers of a word that nothing orders, the shadow keeps the first and the last.
        let members = if members == 0xff && span.piece(p) == Piece::Same { 0x81 } else { members };
        each(members, |i| {
            let lane = p * PIECE + i;
            let at = lowest as usize + span.distance()[lane] as usize;
            fine &= shadow.plain_read(at, first + lane as u32, pc);
        });
    }
    fine
}

/// Moves the elements between memory and rows.
#[inline(always)]
fn serve<const LOAD: bool, const ALONE: bool>(
    lanes: &Lanes<ALONE>,
    (narrow, wide): (&mut [Row<u32>], &mut [Row<u64>]),
    t: &Transfer,
    mask: u32,
) {
    for (k, row) in t.rows[..t.count as usize].iter().enumerate() {
        let Some(row) = row else { continue };
        let step = k * t.bytes as usize;
        if t.words {
            let row = &mut narrow[row.slot as usize];
            match LOAD {
                true => lanes.load_words(step, mask, row),
                false => lanes.store_words(step, mask, row),
            }
        } else if LOAD {
            let spare = 64 - 8 * u32::from(t.bytes);
            let load = |lane| {
                let value = lanes.load(lane, step, t.bytes);
                if t.signed { ((value << spare) as i64 >> spare) as u64 } else { value }
            };
            if lanes.is_point() && mask == u32::MAX {
                // One element for all, as parameters are.
                let value = load(0);
                match row.wide {
                    true => wide[row.slot as usize] = [value; LANES],
                    false => narrow[row.slot as usize] = [row.narrow(value); LANES],
                }
                continue;
            }
            each(mask, |lane| {
                let value = load(lane);
                match row.wide {
                    true => wide[row.slot as usize][lane] = value,
                    false => narrow[row.slot as usize][lane] = row.narrow(value),
                }
            });
        } else {
            each(mask, |lane| {
                let value = match row.wide {
                    true => wide[row.slot as usize][lane],
                    false => narrow[row.slot as usize][lane].into(),
                };
                lanes.store(lane, step, t.bytes, value);
            });
        }
    }
}

/// Counts the request, all of whose lanes were served.
#[inline(always)]
fn count<const LOAD: bool>(
    env: &mut Env,
    pc: u32,
    (space, named): (Space, Space),
    (span, lowest): (&Span, u64),
    mask: u32,
    size: u32,
) {
    let tally = &mut env.tally[pc as usize];
    let addresses = || span.distance().map(|d| lowest + u64::from(d));
    match space {
        Space::Global if named != Space::Const => {
            tally.requests += 1;
            tally.sectors += span.sectors(lowest).unwrap_or_else(|| sectors(&addresses(), mask));
        }
        Space::Shared => {
            tally.shared += 1;
            // Words less than 32 apart share a bank only with themselves.
            if size <= 4 && (lowest % 4 + span.width()) / 4 < 32 {
                tally.wavefronts += 1;
                return;
            }
            let (waves, least) = wavefronts::<LOAD>(&addresses(), mask, size);
            tally.wavefronts += waves;
            tally.conflicts += waves - least;
        }
        _ => {}
    }
}
