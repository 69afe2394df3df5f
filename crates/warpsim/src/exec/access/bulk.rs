//! The TMA: runs of bytes and boxes of tensors, between global and shared memory, and to other blocks of a
//! cluster.

use super::cluster::visit;
use super::memory::{addresses, find};
use crate::exec::blocks::state::{Env, Warp};
use crate::exec::checks::engines::Channel;
use crate::exec::checks::{check, past, report};
use crate::exec::values::lanes::{LANES, each};
use crate::exec::warps::mbarrier;
use crate::finding::Kind;
use crate::memory::{Bytes, from_generic, of_block};
use crate::op::{Bulk, Route};
use crate::ptx::types::Space;
use crate::tensor_map::TmaDescriptor;

/// An aligned element of at most 8 bytes on its way.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// In global memory, or in shared memory that is read; `None` beyond the tensor.
    outside: Option<u64>,
    /// In shared memory.
    inside: u64,
    len: u8,
    value: u64,
}

/// Runs the copies of the lanes of the mask, mostly of one.
pub fn run(env: &mut Env, warp: &mut Warp, pc: u32, b: &Bulk, mask: u32) {
    each(mask, |lane| {
        let who = (warp.first + lane as u32, pc);
        let (target, inside) = of_block(addresses(warp, &b.shared)[lane]);
        let pieces = match b.bytes {
            Some(bytes) => {
                run_of_bytes(env, warp, who, b, (lane, inside), u64::from(warp.narrow[bytes as usize][lane]))
            }
            None => a_box(env, warp, who, b, (lane, inside)),
        };
        let Some(mut pieces) = pieces else { return };
        let Some(barrier) = &b.barrier else {
            for piece in &pieces {
                if store(env, warp, who, (lane, piece)).is_none() {
                    return;
                }
            }
            return;
        };
        for piece in &mut pieces {
            if fetch(env, warp, who, b.route, (lane, piece)).is_none() {
                return;
            }
        }
        let (_, barrier) = of_block(addresses(warp, barrier)[lane]);
        let own = env.block.0 % env.machine.cluster_size();
        match b.multicast {
            None => visit(env, who, target, |env| deposit(env, who, barrier, &pieces)),
            // To the same place of each block whose bit is set.
            Some(blocks) => each(warp.narrow[blocks as usize][lane] & 0xffff, |rank| {
                let there = (rank as u64 != own).then_some(rank as u64);
                visit(env, who, there, |env| deposit(env, who, barrier, &pieces));
            }),
        }
    });
}

/// The pieces of a plain run.
fn run_of_bytes(
    env: &mut Env,
    warp: &Warp,
    (thread, pc): (u32, u32),
    b: &Bulk,
    (lane, inside): (usize, u64),
    bytes: u64,
) -> Option<Vec<Piece>> {
    let outside = addresses(warp, &b.other)[lane];
    if (inside | outside | bytes) & 15 != 0 {
        let message = format!(
            "moves {bytes} bytes between {inside:#x} of shared memory and {outside:#x}; next: make both addresses and the \
             size multiples of 16"
        );
        env.note(Kind::Misaligned, pc, thread, None, message);
        return None;
    }
    let piece = |step| Piece { outside: Some(outside + step), inside: inside + step, len: 8, value: 0 };
    count(env, pc, bytes.div_ceil(32));
    // What is beyond all memory is told of its first piece.
    Some((0..bytes.min(1 << 24)).step_by(8).map(piece).collect())
}

fn count(env: &mut Env, pc: u32, sectors: u64) {
    if env.machine.counters {
        let tally = &mut env.tally[pc as usize];
        tally.requests += 1;
        tally.sectors += sectors;
    }
}

/// The map that a copy names.
fn map_of(env: &mut Env, warp: &Warp, b: &Bulk, lane: usize) -> Option<TmaDescriptor> {
    let (space, at) = from_generic(addresses(warp, &b.other)[lane]);
    let words = (0..16).map(|word| {
        let nothing = Bytes::default();
        find(env, &warp.local, &nothing, space, (lane, at + 8 * word), 8).map(|(bytes, at)| bytes.load(at, 8))
    });
    let words: Option<Vec<u64>> = if at.is_multiple_of(64) { words.collect() } else { None };
    TmaDescriptor::read(&words?.try_into().ok()?).filter(|map| map.sizes.len() == b.coordinates.len())
}

/// The pieces of a box; what lies beyond the tensor is zero, or not written.
fn a_box(
    env: &mut Env,
    warp: &Warp,
    (thread, pc): (u32, u32),
    b: &Bulk,
    (lane, start): (usize, u64),
) -> Option<Vec<Piece>> {
    let Some(map) = map_of(env, warp, b, lane) else {
        let message = format!(
            "there is no tensor map of {} dimensions; next: pass the map by value, as `const __grid_constant__`, \
             aligned to 64 bytes",
            b.coordinates.len()
        );
        env.note(Kind::OutOfBounds, pc, thread, None, message);
        return None;
    };
    let from: Vec<i64> = b.coordinates.iter().map(|&c| i64::from(warp.narrow[c as usize][lane] as i32)).collect();
    // "The shared memory address has to be 128-byte aligned"; the pattern of a swizzle is one of absolute addresses.
    if start & 127 != 0 {
        report::access(env, thread, pc, (Space::Shared, start), 128, b.barrier.is_none());
        return None;
    }
    let element = u64::from(map.element);
    let row_bytes = u64::from(map.box_sizes[0]) * element;
    let rows: u64 = map.box_sizes[1..].iter().map(|&side| u64::from(side)).product();
    if start + rows * row_bytes > env.shared.len() as u64 {
        let (size, sides) = (env.shared.len(), &map.box_sizes);
        let message = format!(
            "a box of {sides:?} elements has {} bytes, and {} bytes of shared memory are left from {start:#x} on: a block \
             of this launch has {size}; next: launch with more shared memory, or move smaller boxes",
            rows * row_bytes,
            (size as u64).saturating_sub(start),
        );
        env.note(Kind::OutOfBounds, pc, thread, None, message);
        return None;
    }
    let load = b.barrier.is_some();
    let mut pieces = Vec::with_capacity((rows * row_bytes / 8) as usize);
    for row in 0..rows {
        let (mut rest, mut base, mut exists) = (row, map.base, true);
        let slower = map.box_sizes.iter().zip(&map.sizes).zip(&from).skip(1).zip(&map.strides);
        for (((&side, &size), &from), &stride) in slower {
            let index = from + (rest % u64::from(side)) as i64;
            rest /= u64::from(side);
            exists &= index >= 0 && (index as u64) < size;
            base = base.wrapping_add((index as u64).wrapping_mul(stride));
        }
        let mut byte = 0;
        while byte < row_bytes {
            let index = from[0] + (byte / element) as i64;
            let address = base.wrapping_add((index as u64).wrapping_mul(element));
            // Eight bytes where all of them exist and are aligned.
            let fits = |bytes: u64| {
                exists && index >= 0 && index as u64 + bytes / element <= map.sizes[0] && address.is_multiple_of(bytes)
            };
            let len = [8, 4].into_iter().find(|&len| len >= element && fits(len) && byte.is_multiple_of(len));
            let len = len.unwrap_or(element);
            let here = exists && index >= 0 && (index as u64) < map.sizes[0];
            let inside = map.swizzle.place(start + row * row_bytes + byte);
            if here || load {
                pieces.push(Piece { outside: here.then_some(address), inside, len: len as u8, value: 0 });
            }
            byte += len;
        }
    }
    count(env, pc, rows * row_bytes.div_ceil(32));
    Some(pieces)
}

/// Reads a piece of a load.
fn fetch(env: &mut Env, warp: &Warp, who: (u32, u32), route: Route, (lane, piece): (usize, &mut Piece)) -> Option<()> {
    let (thread, pc) = who;
    let Some(address) = piece.outside else { return Some(()) };
    let len = piece.len;
    let space = if route == Route::FromShared { Space::Shared } else { Space::Global };
    let shared = std::mem::take(&mut env.shared);
    let value = find(env, &warp.local, &shared, space, (lane, address), len.into()).map(|(b, at)| b.load(at, len));
    env.shared = shared;
    let Some(value) = value else {
        report::access(env, thread, pc, (space, address), len.into(), true);
        return None;
    };
    piece.value = value;
    if env.machine.checks {
        let (write, strong, same) = (false, false, false);
        check::element(env, past::Element { thread, pc, space, address, len, read: true, write, strong, same });
    }
    Some(())
}

/// Writes what was fetched, and tells the barrier.
fn deposit(env: &mut Env, (thread, pc): (u32, u32), barrier: u64, pieces: &[Piece]) {
    for piece in pieces {
        let (address, len) = (piece.inside, piece.len);
        if address + u64::from(len) > env.shared.len() as u64 {
            return report::access(env, thread, pc, (Space::Shared, address), len.into(), false);
        }
        env.shared.store(address as usize, len, piece.value);
        if env.machine.checks {
            let (space, read, strong, same) = (Space::Shared, false, false, false);
            let element = past::Element { thread, pc, space, address, len, read, write: true, strong, same };
            check::asynchronous(env, element, Channel::Phases(barrier));
        }
    }
    let bytes = pieces.iter().map(|piece| u64::from(piece.len)).sum();
    mbarrier::complete(env, thread, pc, barrier, bytes);
}

/// Moves a piece to global memory.
fn store(env: &mut Env, warp: &Warp, (thread, pc): (u32, u32), (lane, piece): (usize, &Piece)) -> Option<()> {
    let (Some(address), len) = (piece.outside, piece.len) else { return Some(()) };
    if piece.inside + u64::from(len) > env.shared.len() as u64 {
        report::access(env, thread, pc, (Space::Shared, piece.inside), len.into(), true);
        return None;
    }
    let value = env.shared.load(piece.inside as usize, len);
    let nothing = Bytes::default();
    let Some((bytes, at)) = find(env, &warp.local, &nothing, Space::Global, (lane, address), len.into()) else {
        report::access(env, thread, pc, (Space::Global, address), len.into(), false);
        return None;
    };
    if env.machine.checks {
        let (strong, same) = (false, false);
        let element = |space, address, write: bool| past::Element {
            thread,
            pc,
            space,
            address,
            len,
            read: !write,
            write,
            strong,
            same,
        };
        check::element(env, element(Space::Global, address, true));
        check::asynchronous(env, element(Space::Shared, piece.inside, false), Channel::Stores(thread as usize / LANES));
    }
    bytes.store(at, len, value);
    Some(())
}
