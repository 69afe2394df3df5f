//! The copy engine (TMA): runs of bytes and boxes of tensors, between global and shared memory.

use super::memory::{addresses, find};
use crate::exec::blocks::state::{Env, Warp};
use crate::exec::checks::{check, report};
use crate::exec::values::lanes::each;
use crate::memory::from_generic;
use crate::op::Bulk;
use crate::ptx::types::Space;
use crate::tensor_map::TensorMap;

/// Runs the copies of the lanes of the mask, mostly of one.
pub fn run(env: &mut Env, warp: &mut Warp, pc: u32, b: &Bulk, mask: u32) {
    each(mask, |lane| {
        let moved = match b.bytes {
            Some(bytes) => run_of_bytes(env, warp, pc, b, lane, u64::from(warp.narrow[bytes as usize][lane])),
            None => a_box(env, warp, pc, b, lane),
        };
        if let (Some(bytes), Some(barrier)) = (moved, &b.barrier) {
            let at = addresses(warp, barrier)[lane];
            let thread = warp.first + lane as u32;
            crate::exec::warps::mbarrier::complete(env, thread, pc, at, bytes);
        }
    });
}

/// 16 bytes at a time; gives how many were moved.
fn run_of_bytes(env: &mut Env, warp: &Warp, pc: u32, b: &Bulk, lane: usize, bytes: u64) -> Option<u64> {
    let (inside, outside) = (addresses(warp, &b.shared)[lane], addresses(warp, &b.other)[lane]);
    let thread = warp.first + lane as u32;
    if (inside | outside | bytes) & 15 != 0 {
        report::access(env, thread, pc, (Space::Shared, inside | 1), 16, !b.load);
        return None;
    }
    for step in (0..bytes).step_by(8) {
        let place = (Some(outside + step), inside + step);
        move_piece(env, warp, (pc, lane), b.load, place, 8)?;
    }
    Some(bytes)
}

/// A box of a tensor; what lies beyond the tensor is zero, or not written. Gives the bytes of the box.
fn a_box(env: &mut Env, warp: &Warp, pc: u32, b: &Bulk, lane: usize) -> Option<u64> {
    let thread = warp.first + lane as u32;
    let (space, at) = from_generic(addresses(warp, &b.other)[lane]);
    let words = (0..16).map(|word| {
        let nothing = crate::memory::Bytes::default();
        find(env, &warp.local, &nothing, space, (lane, at + 8 * word), 8).map(|(bytes, at)| bytes.load(at, 8))
    });
    let words: Option<Vec<u64>> = words.collect();
    let map = words.and_then(|words| TensorMap::read(&words.try_into().ok()?));
    let Some(map) = map.filter(|map| map.sizes.len() == b.coordinates.len()) else {
        let message = format!(
            "{at:#x} is no tensor map of {} dimensions; next: pass the map by value, as `const __grid_constant__`",
            b.coordinates.len()
        );
        env.note(crate::finding::Kind::OutOfBounds, pc, thread, None, message);
        return None;
    };
    let start = addresses(warp, &b.shared)[lane];
    let from: Vec<i64> = b.coordinates.iter().map(|&c| i64::from(warp.narrow[c as usize][lane] as i32)).collect();
    // "The shared memory address has to be 128-byte aligned"; the pattern of a swizzle is one of absolute addresses.
    if start & 127 != 0 {
        report::access(env, thread, pc, (Space::Shared, start), 128, !b.load);
        return None;
    }
    let row_bytes = u64::from(map.box_sizes[0]) * u64::from(map.element);
    let element = u64::from(map.element);
    let rows: u64 = map.box_sizes[1..].iter().map(|&side| u64::from(side)).product();
    for row in 0..rows {
        let (mut rest, mut base, mut exists) = (row, Some(map.base), true);
        for dimension in 1..map.sizes.len() {
            let side = u64::from(map.box_sizes[dimension]);
            let index = from[dimension] + (rest % side) as i64;
            rest /= side;
            exists &= index >= 0 && (index as u64) < map.sizes[dimension];
            base = base.map(|base| base.wrapping_add((index as u64).wrapping_mul(map.strides[dimension - 1])));
        }
        let mut byte = 0;
        while byte < row_bytes {
            let index = from[0] + (byte / element) as i64;
            let address = base.unwrap_or(0).wrapping_add((index as u64).wrapping_mul(element));
            // Eight bytes where all of them exist and are aligned.
            let fits = |bytes: u64| {
                exists && index >= 0 && index as u64 + bytes / element <= map.sizes[0] && address.is_multiple_of(bytes)
            };
            let len = [8, 4].into_iter().find(|&len| len >= element && fits(len) && byte.is_multiple_of(len));
            let here = exists && index >= 0 && (index as u64) < map.sizes[0];
            let len = len.unwrap_or(element);
            let to = map.swizzle.place(start + row * row_bytes + byte);
            if here || b.load {
                move_piece(env, warp, (pc, lane), b.load, (here.then_some(address), to), len)?;
            }
            byte += len;
        }
    }
    if env.machine.counters {
        let tally = &mut env.tally[pc as usize];
        tally.requests += 1;
        tally.sectors += rows * row_bytes.div_ceil(32);
    }
    Some(rows * row_bytes)
}

/// Moves an element of at most 8 bytes, or writes zeros.
fn move_piece(
    env: &mut Env,
    warp: &Warp,
    (pc, lane): (u32, usize),
    load: bool,
    (outside, inside): (Option<u64>, u64),
    len: u64,
) -> Option<()> {
    let thread = warp.first + lane as u32;
    let shared = std::mem::take(&mut env.shared);
    let done = (|| {
        let global = match outside {
            Some(at) => match find(env, &warp.local, &shared, Space::Global, (lane, at), len) {
                Some(place) => Some(place),
                None => {
                    report::access(env, thread, pc, (Space::Global, at), len, load);
                    return None;
                }
            },
            None => None,
        };
        if inside + len > shared.len() as u64 {
            report::access(env, thread, pc, (Space::Shared, inside), len, !load);
            return None;
        }
        if load {
            let value = global.map_or(0, |(bytes, at)| bytes.load(at, len as u8));
            shared.store(inside as usize, len as u8, value);
        } else if let Some((bytes, at)) = global {
            bytes.store(at, len as u8, shared.load(inside as usize, len as u8));
        }
        Some(())
    })();
    env.shared = shared;
    done?;
    if env.machine.checks {
        let word = |space, address, write: bool| check::Element {
            thread,
            pc,
            space,
            address,
            len: len as u8,
            read: !write,
            write,
            strong: false,
            same: false,
        };
        if let Some(at) = outside {
            // The last access was to this allocation.
            check::element(env, word(Space::Global, at, !load));
        }
        check::element(env, word(Space::Shared, inside, load));
    }
    Some(())
}
