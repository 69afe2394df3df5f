//! Checks of each access, when they are asked for.

use super::engines::Channel;
use super::past::{Access, Element, Past};
use super::races;
use super::report::describe;
use super::updates;
use crate::exec::blocks::state::{Env, Machine};
use crate::exec::values::lanes::{LANES, each};
use crate::finding::{Kind, Other};
use crate::memory::{Bytes, PIECE, Piece, Span, window};
use crate::op::{Engine, Transfer};
use crate::ptx::types::Space;

/// Checks an element that was found inside memory.
pub fn element(env: &mut Env, e: Element) {
    if let Some(other) = if env.visited { None } else { updates::lost(env, e) } {
        twice(env, e, other);
    }
    match e.space {
        Space::Shared => shared(env, e),
        Space::Global => {
            let Some(allocation) = env.machine.memory.get(env.recent) else { return };
            let at = (e.address - allocation.base) as usize;
            global(env, e, at);
            let Some(written) = &allocation.written else { return };
            if e.read && !is_written(written, at, e.len) {
                unwritten(env, e);
            }
            if e.write {
                mark(written, at, e.len);
            }
        }
        _ => {}
    }
}

/// A warp passes a proxy fence.
pub fn proxy_fence(env: &mut Env, first: u32) {
    if let Some(shadow) = &mut env.shadow {
        shadow.clocks_mut().fence_proxy(first as usize / 32);
    }
}

/// What a warp began until now is a group.
pub fn commit(env: &mut Env, first: u32, engine: Engine) {
    if let Some(engines) = env.shadow.as_mut().and_then(|shadow| shadow.clocks_mut().engines.as_mut()) {
        engines.next(Channel::of(engine, first as usize / 32));
    }
}

/// A warp has waited until at most so many groups are unfinished; `all`: and nothing that is in no group.
pub fn waited(env: &mut Env, first: u32, engine: Engine, (pending, all): (u32, bool)) {
    if let Some(engines) = env.shadow.as_mut().and_then(|shadow| shadow.clocks_mut().engines.as_mut()) {
        let channel = Channel::of(engine, first as usize / 32);
        if all {
            engines.next(channel);
        }
        engines.wait(first as usize / 32, channel, pending);
    }
}

/// The reads of an asynchronous operation that begins, where they are checked.
pub fn begun(env: &mut Env, channel: Channel, (thread, pc): (u32, u32)) -> Option<Access> {
    let shadow = env.shadow.as_mut().filter(|_| env.machine.checks && !env.visited)?;
    let (channel, epoch) = shadow.clocks_mut().engines.as_mut()?.begin(channel);
    let began = shadow.clocks().of(thread as usize / 32)[thread as usize / 32];
    Some(Access { channel, epoch, began, ..Access::new(thread, pc, false, false) })
}

/// An access to shared memory that goes on until somebody has waited for it.
pub fn asynchronous(env: &mut Env, e: Element, channel: Channel) {
    let Some(shadow) = env.shadow.as_mut().filter(|_| env.machine.checks) else { return };
    let Some(engines) = shadow.clocks_mut().engines.as_mut() else { return element(env, e) };
    let (id, number) = engines.begin(channel);
    let mut access = Access::new(e.thread, e.pc, false, e.write);
    (access.channel, access.epoch) = (id, number);
    access.began = shadow.clocks().of(e.thread as usize / 32)[e.thread as usize / 32];
    let (at, len) = (e.address as usize, usize::from(e.len));
    if env.visited {
        shadow.deposit(at, len, access);
        return;
    }
    if e.read && len.is_multiple_of(4) && (at..at + len).step_by(4).all(|at| shadow.engine_read(at, access)) {
        return;
    }
    let (race, missing) = shadow.access(at, len, access, false);
    let unfenced = match channel {
        Channel::Copies(_) | Channel::Phases(_) => None,
        _ if race.is_some() || missing => None,
        _ => shadow.unfenced(at, len, e.thread),
    };
    if missing {
        unwritten(env, e);
    }
    if let Some(access) = race {
        raced(env, e, Past { access, block: env.block.0 });
    }
    if let Some(access) = unfenced {
        no_fence(env, e, Past { access, block: env.block.0 });
    }
}

/// A warp passes a fence, for the whole GPU (`far`) or for its block.
pub fn fence(env: &mut Env, first: u32, far: bool) {
    if let Some(shadow) = &mut env.shadow {
        shadow.clocks_mut().fence(first as usize / 32, far);
    }
}

/// One bit a byte; an aligned element of at most 8 bytes lies in one byte of bits.
fn bits(at: usize, len: u8) -> u64 {
    ((1u64 << len) - 1) << (at % 8)
}

fn is_written(written: &Bytes, at: usize, len: u8) -> bool {
    written.load(at / 8, 1) & bits(at, len) == bits(at, len)
}

/// Notes that an element was written, whoever else does so beside it.
fn mark(written: &Bytes, at: usize, len: u8) {
    if !is_written(written, at, len) {
        let word = at / 8 / 4 * 4;
        let shift = (at / 8 % 4 * 8) as u32;
        written.update(word, 4, |old| old | bits(at, len) << shift);
    }
}

/// The words of bits of a run of at most 32 bytes: where they begin, and the bits in both.
fn run(at: usize, len: usize) -> (usize, [u64; 2]) {
    let bits = ((1u64 << len) - 1) << (at % 32);
    (at / 32 * 4, [bits & u64::from(u32::MAX), bits >> 32])
}

#[inline(always)]
fn run_is_written(written: &Bytes, at: usize, len: usize) -> bool {
    let (word, [low, high]) = run(at, len);
    written.load(word, 4) & low == low && (high == 0 || written.load(word + 4, 4) & high == high)
}

#[inline(always)]
fn mark_run(written: &Bytes, at: usize, len: usize) {
    let (word, bits) = run(at, len);
    for (word, bits) in [word, word + 4].into_iter().zip(bits) {
        if bits != 0 && written.load(word, 4) & bits != bits {
            written.update(word, 4, |old| old | bits);
        }
    }
}

/// Calls `f` with the bytes that lanes touch, from `at` and their distances on: lane by lane, or of eight lanes whose words
/// follow each other.
#[inline(always)]
fn runs((span, at): (&Span, usize), size: usize, mask: u32, mut f: impl FnMut(usize, usize)) {
    for p in 0..LANES / PIECE {
        let members = mask >> (p * PIECE) & 0xff;
        let first = at + span.distance()[p * PIECE] as usize;
        match (span.piece(p), size) {
            (Piece::Step, 4) if members == 0xff => f(first, 4 * PIECE),
            (Piece::Same, _) if members == 0xff => f(first, size),
            _ => each(members, |i| f(at + span.distance()[p * PIECE + i] as usize, size)),
        }
    }
}

/// Notes plain accesses of a warp's lanes to an allocation, where nothing can be wrong with them as far as a first look can
/// tell; false, and nothing noted, if that needs a closer look.
#[inline(always)]
pub fn plain<const LOAD: bool>(
    env: &mut Env,
    number: usize,
    place: (&Span, usize),
    t: &Transfer,
    (first, mask): (u32, u32),
) -> bool {
    let (Some(races), None, Some(allocation)) = (env.races, &env.exact, env.machine.memory.get(number)) else {
        return false;
    };
    let size = usize::from(t.bytes) * usize::from(t.count);
    if t.rows[..t.count as usize].iter().any(Option::is_none) {
        return false;
    }
    if let (true, Some(written)) = (LOAD, &allocation.written) {
        let mut fine = true;
        runs(place, size, mask, |at, len| fine &= run_is_written(written, at, len));
        if !fine {
            return false;
        }
    }
    let how = if LOAD { races::READ } else { races::WRITE };
    if !LOAD {
        runs(place, size, mask, |at, len| races.save_run(number, at, len));
    }
    races.touch_lanes(number, place, size, (env.block.0, first, mask), how);
    if let (false, Some(written)) = (LOAD, &allocation.written) {
        runs(place, size, mask, |at, len| mark_run(written, at, len));
    }
    true
}

/// Who shares global memory: the first look, or the exact one in a launch that is repeated for it.
#[inline(always)]
fn global(env: &mut Env, e: Element, at: usize) {
    let Some(races) = env.races else { return };
    if env.exact.is_some() {
        return exact(env, e, at);
    }
    if e.write {
        races.save(env.recent, at);
    }
    let how = match (e.read, e.write) {
        // An exchange that writes back what was made of an earlier read wants a closer look.
        (true, true) if env.machine.kernel.updates.writes.contains_key(&e.pc) => races::ATOMIC | races::WRITE,
        (true, true) => races::ATOMIC,
        (true, false) => races::READ,
        _ => races::WRITE,
    };
    races.touch(env.recent, at, e.len, (env.block.0, e.thread), how);
}

#[inline(never)]
fn exact(env: &mut Env, e: Element, at: usize) {
    let (Some(races), Some(exact), Some(shadow)) = (env.races, &mut env.exact, &mut env.shadow) else { return };
    let (block, warp) = (env.block.0, e.thread as usize / 32);
    if e.strong && e.read {
        shadow.listen(warp, e.address);
    }
    let clocks = shadow.clocks();
    let (mut race, start) = (None, e.address - at as u64);
    for word in at / 4..(at + usize::from(e.len)).div_ceil(4) {
        let Some(across) = races.suspects(env.recent, word) else { continue };
        let (from, to) = (at.max(word * 4) - word * 4, (at + usize::from(e.len)).min(word * 4 + 4) - word * 4);
        let mut access = Access::new(e.thread, e.pc, e.strong, false);
        (access.bytes, access.epoch) = (((1u16 << to) - (1u16 << from)) as u8, clocks.of(warp)[warp]);
        let mut look = |write, same| {
            let now = Past { access: Access { write, ..access }, block };
            exact.access(clocks, start + 4 * word as u64, across, now, same)
        };
        // An atomic is one access: a write that needs a value.
        race = race.or(if e.read { look(false, false) } else { None });
        race = race.or(if e.write { look(true, e.same) } else { None });
    }
    if e.strong && e.write {
        shadow.tell(warp, e.address, block);
    }
    if let Some(other) = race {
        weigh(env, e, other);
    }
}

fn shared(env: &mut Env, e: Element) {
    let Some(shadow) = env.shadow.as_mut() else { return };
    if env.visited {
        // Threads of other blocks have no clock here: what they write has a value, and races with them are not seen.
        if e.write {
            shadow.mark(e.address as usize, e.len.into());
        }
        return;
    }
    let (at, len) = (e.address as usize, usize::from(e.len));
    // Nearly all reads of whole words are in order.
    let whole = e.read && !e.write && !e.strong && at.is_multiple_of(4) && len.is_multiple_of(4);
    if whole && (at..at + len).step_by(4).all(|at| shadow.plain_read(at, e.thread, e.pc)) {
        return;
    }
    let (warp, word) = (e.thread as usize / 32, e.address + window(Space::Shared));
    if e.strong && e.read {
        shadow.listen(warp, word);
    }
    let (mut race, mut missing) = (None, false);
    // An atomic is one access: a write that needs a value.
    if e.read {
        (race, missing) = shadow.access(at, len, Access::new(e.thread, e.pc, e.strong, false), false);
    }
    if e.write {
        race = race.or(shadow.access(at, len, Access::new(e.thread, e.pc, e.strong, true), e.same).0);
    }
    if e.strong && e.write {
        shadow.tell(warp, word, env.block.0);
    }
    if missing {
        unwritten(env, e);
    }
    if let Some(access) = race {
        weigh(env, e, Past { access, block: env.block.0 });
    }
}

/// A race is one, unless it is between a plain read and an atomic, and the read is a guess that a compare-and-swap
/// checks: so starts the loop around `atomicCAS` in NVIDIA's own guide, and in some of them threads leave without one.
fn weigh(env: &mut Env, e: Element, other: Past) {
    let reader = match (e.write, other.access.write) {
        (false, true) if other.access.strong => (e.thread, e.pc),
        (true, false) if e.strong && other.block != env.block.0 => return doubt(env, other.access.pc, e, other),
        (true, false) if e.strong => (other.access.thread - 1, other.access.pc),
        _ => return raced(env, e, other),
    };
    let word = (e.address + window(e.space)) & !3;
    if let Some(shadow) = &mut env.shadow {
        shadow.pending.entry((word, reader.0)).or_insert((reader.1, e, other));
    }
}

/// A thread's compare-and-swap is done: what it read there before was a guess.
pub fn swapped(env: &mut Env, thread: u32, (space, address): (Space, u64), len: u64) {
    if env.visited {
        return;
    }
    let Some(shadow) = &mut env.shadow else { return };
    let block = env.block.0;
    for at in (address & !3..address + len).step_by(4) {
        let pending = shadow.pending.remove(&(at + window(space), thread));
        let read = match (space, &mut env.exact) {
            (Space::Global, Some(exact)) => exact.excuse(at, block, thread),
            (Space::Shared, _) => shadow.excuse(at as usize, thread),
            _ => Vec::new(),
        };
        env.guesses.extend(pending.map(|(pc, ..)| pc).into_iter().chain(read));
    }
}

/// After a block: its threads check no guess any more.
pub fn settle(env: &mut Env) {
    let pending = env.shadow.as_mut().map(|shadow| std::mem::take(&mut shadow.pending));
    for (_, (reader, e, other)) in pending.into_iter().flatten() {
        doubt(env, reader, e, other);
    }
}

/// Notes a race apart, by the instruction of its reader.
fn doubt(env: &mut Env, reader: u32, e: Element, other: Past) {
    let swap = |env: &mut Env| {
        let (found, raced) = env.doubts.entry(reader).or_default();
        std::mem::swap(found, &mut env.found);
        std::mem::swap(raced, &mut env.raced);
    };
    swap(env);
    raced(env, e, other);
    swap(env);
}

#[cold]
#[inline(never)]
fn unwritten(env: &mut Env, e: Element) {
    if env.again(Kind::UninitialisedRead, e.pc) {
        return;
    }
    let (variable, place) = describe(env.machine, e.space, e.address);
    let message = format!("reads {} bytes that nothing has written ({place}); next: write them first", e.len);
    env.note(Kind::UninitialisedRead, e.pc, e.thread, Some((e.address + window(e.space), variable)), message);
}

/// The other access of a race, and words for its line.
fn second(machine: &Machine, other: Past) -> (Other, String) {
    let Past { access: then, block } = other;
    let instruction = &machine.kernel.code[then.pc as usize];
    let other = Other {
        source: crate::module::source_line(machine.files, instruction.loc),
        ptx_line: instruction.ptx_line,
        block: machine.coordinates(block),
        thread: Machine::split(u64::from(then.thread - 1), machine.block),
        writes: then.write,
    };
    let line = match &other.source {
        Some(source) => format!("line {}", source.line),
        None => format!("PTX line {}", other.ptx_line),
    };
    (other, line)
}

/// Two threads update a word in two steps each.
#[cold]
#[inline(never)]
fn twice(env: &mut Env, e: Element, other: Past) {
    env.raced.extend([e.pc, other.access.pc]);
    if env.again(Kind::LostUpdate, e.pc) {
        return;
    }
    let machine = env.machine;
    let (variable, place) = describe(machine, e.space, e.address);
    let (other, line) = second(machine, other);
    let ([x, y, z], [bx, by, bz]) = (other.thread, other.block);
    let message = format!(
        "writes {} bytes back that it changed after reading them; block ({bx}, {by}, {bz}), thread ({x}, {y}, {z}) does \
         the same at {line}, and whatever one of them writes between the two steps of the other is lost ({place}); next: \
         update in one step (atomicAdd, or a loop around atomicCAS), or give each thread a place of its own",
        e.len,
    );
    env.note(Kind::LostUpdate, e.pc, e.thread, Some((e.address + window(e.space), variable)), message);
    if let Some((_, finding)) = env.found.get_mut(&(e.pc, Kind::LostUpdate)) {
        finding.other = Some(Box::new(other));
    }
}

#[cold]
#[inline(never)]
fn raced(env: &mut Env, e: Element, other: Past) {
    let Past { access: then, block } = other;
    env.raced.extend([e.pc, then.pc]);
    if then.channel != 0 && began(env, e, then) {
        return too_early(env, e, other);
    }
    let kind = if e.space == Space::Shared { Kind::SharedRace } else { Kind::GlobalRace };
    if env.again(kind, e.pc) {
        return;
    }
    let machine = env.machine;
    let (variable, place) = describe(machine, e.space, e.address);
    let (other, line) = second(machine, other);
    let verbs = |write| if write { ["writes", "wrote"] } else { ["reads", "read"] };
    let ([x, y, z], [bx, by, bz]) = (other.thread, other.block);
    let (who, why, next) = match block == env.block.0 {
        true => (
            format!("thread ({x}, {y}, {z})"),
            "with no barrier between",
            match kind {
                Kind::GlobalRace => {
                    "give each thread an element of its own, put __syncthreads() between the two, or use atomics"
                }
                _ if e.write && then.write => {
                    "let one of them write, give each a place of its own, or put __syncthreads() between the two"
                }
                _ => "put __syncthreads() between the two, or __syncwarp() within a warp; or use atomics",
            },
        ),
        false => (
            format!("block ({bx}, {by}, {bz}), thread ({x}, {y}, {z})"),
            "and nothing orders the blocks",
            "give each block its own place (blockIdx.x * blockDim.x + threadIdx.x), use atomics, or split the kernel in two",
        ),
    };
    let message = format!(
        "{} {} bytes that {who} {} at {line}, {why} ({place}); next: {next}",
        verbs(e.write)[0],
        e.len,
        verbs(then.write)[1],
    );
    env.note(kind, e.pc, e.thread, Some((e.address + window(e.space), variable)), message);
    if let Some((_, finding)) = env.found.get_mut(&(e.pc, kind)) {
        finding.other = Some(Box::new(other));
    }
}

/// Notes a finding about two accesses, the later one and the one before it.
fn pair(env: &mut Env, kind: Kind, e: Element, other: Past, words: impl FnOnce(&str, &str) -> String) {
    if env.again(kind, e.pc) {
        return;
    }
    let machine = env.machine;
    let (variable, place) = describe(machine, e.space, e.address);
    let (other, line) = second(machine, other);
    let [x, y, z] = other.thread;
    let message = words(&format!("thread ({x}, {y}, {z}) at {line}"), &place);
    env.note(kind, e.pc, e.thread, Some((e.address + window(e.space), variable)), message);
    if let Some((_, finding)) = env.found.get_mut(&(e.pc, kind)) {
        finding.other = Some(Box::new(other));
    }
}

/// Whether a thread comes after the begin of an asynchronous operation, and nothing tells it of the end; else nothing orders
/// the two at all. What the TMA brings is told of by its barrier alone.
fn began(env: &Env, e: Element, then: Access) -> bool {
    let Some(shadow) = &env.shadow else { return false };
    let channel = shadow.clocks().engines.as_ref().and_then(|engines| engines.channel(then.channel));
    let warp = e.thread as usize / 32;
    let phases = matches!(channel, Some(Channel::Phases(_)));
    phases || warp == then.warp() || shadow.clocks().knows(warp, then.warp(), then.began)
}

/// An access before an asynchronous operation that was begun has ended, as far as the thread can know.
#[cold]
#[inline(never)]
fn too_early(env: &mut Env, e: Element, other: Past) {
    let engines = env.shadow.as_ref().and_then(|shadow| shadow.clocks().engines.as_ref());
    let channel = engines.and_then(|engines| engines.channel(other.access.channel));
    let machine = env.machine;
    let verb = if e.write { "writes" } else { "reads" };
    let len = e.len;
    pair(env, Kind::Unfinished, e, other, |who, place| match channel {
        Some(Channel::Copies(_)) => format!(
            "{verb} {len} bytes that a cp.async of {who} may not have copied yet ({place}); next: let the thread that \
             copies wait (cp.async.wait_group, __pipeline_wait_prior), and the others behind a barrier after that"
        ),
        Some(Channel::Phases(barrier)) => {
            let (_, barrier) = describe(machine, Space::Shared, barrier);
            format!(
                "{verb} {len} bytes that the TMA may not have brought yet, asked by {who} ({place}); next: wait \
                 before it for the phase of the mbarrier that counts them ({barrier}), with that phase's parity"
            )
        }
        Some(Channel::Stores(_)) => format!(
            "{verb} {len} bytes that the TMA may still read for a store of {who} ({place}); next: let the thread \
             that stores wait (cp.async.bulk.wait_group.read), and the others behind a barrier after that"
        ),
        Some(Channel::Products(_)) | None => format!(
            "{verb} {len} bytes that a wgmma of {who} may still read ({place}); next: let the warpgroup wait \
             (wgmma.commit_group, then wgmma.wait_group) before it says that they are free"
        ),
    });
}

/// An asynchronous read of what ordinary stores wrote, without a fence between the two ways to memory.
#[cold]
#[inline(never)]
fn no_fence(env: &mut Env, e: Element, other: Past) {
    let len = e.len;
    pair(env, Kind::MissingFence, e, other, |who, place| {
        format!(
            "reads {len} bytes asynchronously that {who} wrote by an ordinary store, and no proxy fence is between \
             ({place}); next: put fence.proxy.async behind the stores, before the barrier that the reader waits at"
        )
    });
}

/// A word that an instruction reads, beside the plain loads.
pub fn read(env: &mut Env, (thread, pc): (u32, u32), space: Space, address: u64) {
    if env.machine.checks {
        let rest = Element { thread, pc, space, address, len: 4, read: true, write: false, strong: false, same: false };
        element(env, rest);
    }
}

/// A word that `cp.async` copies; without a source it is filled with zeros.
pub fn copied(env: &mut Env, (thread, pc): (u32, u32), (from, sourced): (u64, bool), to: u64) {
    if !env.machine.checks {
        return;
    }
    if sourced {
        read(env, (thread, pc), Space::Global, from);
    }
    let (space, address) = (Space::Shared, to);
    let word = Element { thread, pc, space, address, len: 4, read: false, write: true, strong: false, same: false };
    asynchronous(env, word, Channel::Copies(thread as usize / 32));
}

/// A word of shared memory that an instruction writes, beside the plain stores.
pub fn wrote(env: &mut Env, (thread, pc): (u32, u32), address: u64) {
    if env.machine.checks {
        let space = Space::Shared;
        let word = Element { thread, pc, space, address, len: 4, read: false, write: true, strong: false, same: false };
        element(env, word);
    }
}

/// A barrier in shared memory has a value from now on.
pub fn synchronised(env: &mut Env, at: u64) {
    if let Some(shadow) = &mut env.shadow {
        shadow.written(at as usize);
    }
}
