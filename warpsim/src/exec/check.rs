//! Checks of each access, when they are asked for.

use super::report::describe;
use super::shadow::Access;
use super::state::{Env, Machine};
use crate::finding::Kind;
use crate::memory::{Bytes, window};
use crate::op::Instruction;
use crate::ptx::types::Space;

/// An element that is read or written.
#[derive(Clone, Copy)]
pub struct Element {
    pub thread: u32,
    pub pc: u32,
    pub space: Space,
    /// Address in the space.
    pub address: u64,
    pub len: u8,
    pub read: bool,
    pub write: bool,
    /// Atomic or volatile.
    pub strong: bool,
    /// A write that leaves the value as it is.
    pub same: bool,
}

/// Checks an element that was found inside memory.
pub fn element(env: &mut Env, e: Element) {
    match e.space {
        Space::Shared => shared(env, e),
        Space::Global => {
            let Some(written) = env.machine.memory.get(env.recent).and_then(|a| a.written.as_ref()) else { return };
            let Some(base) = env.machine.memory.get(env.recent).map(|a| a.base) else { return };
            if e.read && !is_written(written, (e.address - base) as usize, e.len) {
                unwritten(env, e);
            }
            if e.write {
                mark(written, (e.address - base) as usize, e.len);
            }
        }
        _ => {}
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

fn shared(env: &mut Env, e: Element) {
    let Some(shadow) = env.shadow.as_mut() else { return };
    let (at, len) = (e.address as usize, usize::from(e.len));
    let (mut race, mut missing) = (None, false);
    // An atomic is one access: a write that needs a value.
    if e.read {
        (race, missing) = shadow.access(at, len, Access::new(e.thread, e.pc, e.strong, false), false);
    }
    if e.write {
        race = race.or(shadow.access(at, len, Access::new(e.thread, e.pc, e.strong, true), e.same).0);
    }
    if missing {
        unwritten(env, e);
    }
    if let Some(other) = race {
        raced(env, e, other);
    }
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

#[cold]
#[inline(never)]
fn raced(env: &mut Env, e: Element, other: Access) {
    env.raced.extend([e.pc, other.pc]);
    if env.again(Kind::SharedRace, e.pc) {
        return;
    }
    let machine = env.machine;
    let (variable, place) = describe(machine, e.space, e.address);
    let [x, y, z] = Machine::split(u64::from(other.thread - 1), machine.block);
    let line = |i: &Instruction| match crate::module::source_line(machine.files, i.loc) {
        Some(source) => format!("line {}", source.line),
        None => format!("PTX line {}", i.ptx_line),
    };
    let there = line(&machine.kernel.code[other.pc as usize]);
    let verbs = |write| if write { ["writes", "wrote"] } else { ["reads", "read"] };
    let message = format!(
        "{} {} bytes that thread ({x}, {y}, {z}) {} at {there}, with no barrier between ({place}); \
         next: put __syncthreads() between the two, or __syncwarp() within a warp",
        verbs(e.write)[0],
        e.len,
        verbs(other.write)[1],
    );
    env.note(Kind::SharedRace, e.pc, e.thread, Some((e.address + window(e.space), variable)), message);
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
    element(env, Element { thread, pc, space, address, len: 4, read: false, write: true, strong: false, same: false });
}

/// A barrier in shared memory has a value from now on.
pub fn synchronised(env: &mut Env, at: u64) {
    if let Some(shadow) = &mut env.shadow {
        shadow.written(at as usize);
    }
}
