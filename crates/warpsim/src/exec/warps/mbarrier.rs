//! Barriers that lie in shared memory. Their 64 bits are the implementation's own (PTX ISA, "mbarrier"): here bits 0–19
//! hold the arrivals that are missing, 20–39 those that each phase expects, 40–60 the bytes that are still to come
//! (negative where they came before they were announced), 61–63 the number of the phase.

use crate::exec::access::cluster::visit;
use crate::exec::access::memory::addresses;
use crate::exec::blocks::state::{Env, Warp};
use crate::exec::checks::check;
use crate::exec::checks::clocks::Awaited;
use crate::exec::checks::engines::{Channel, Engines};
use crate::exec::values::lanes::LANES;
use crate::finding::Kind;
use crate::memory::{from_generic, of_block};
use crate::op::{MBarrier, MBarrierOp};
use crate::ptx::types::Space;

const FIELD: u64 = (1 << 20) - 1;

/// A barrier's state.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    pub missing: u64,
    pub expected: u64,
    pub bytes: i64,
    pub number: u64,
}

impl Phase {
    /// From the barrier's word.
    pub fn of(word: u64) -> Self {
        let bytes = (word << 3) as i64 >> 43;
        Self { missing: word & FIELD, expected: word >> 20 & FIELD, bytes, number: word >> 61 }
    }

    fn word(mut self) -> u64 {
        if self.missing == 0 && self.bytes == 0 {
            self.missing = self.expected;
            self.number = (self.number + 1) & 7;
        }
        self.missing | self.expected << 20 | (self.bytes as u64 & ((1 << 21) - 1)) << 40 | self.number << 61
    }
}

/// Where a barrier lies, if it does.
fn inside(env: &Env, space: Space, at: u64) -> bool {
    let whole = at.is_multiple_of(8) && at.checked_add(8).is_some_and(|end| end <= env.shared.len() as u64);
    space == Space::Shared && whole
}

/// The TMA has moved so many bytes.
pub fn complete(env: &mut Env, thread: u32, pc: u32, at: u64, bytes: u64) {
    if !inside(env, Space::Shared, at) {
        return crate::exec::checks::report::access(env, thread, pc, (Space::Shared, at), 8, false);
    }
    let mut phase = Phase::of(env.shared.load(at as usize, 8));
    phase.bytes -= bytes as i64;
    put(env, at, phase);
    env.arrivals += 1;
}

/// Does the operation in the lanes of the mask; true if a lane waits in vain.
pub fn run(env: &mut Env, warp: &mut Warp, pc: u32, b: &MBarrier, mask: u32) -> bool {
    let all = addresses(warp, &b.address);
    let mut vain = false;
    crate::exec::values::lanes::each(mask, |lane| {
        let thread = warp.first + lane as u32;
        let (space, at) = match b.address.space {
            Space::Generic => from_generic(all[lane]),
            space => (space, all[lane]),
        };
        // Arrivals reach barriers of other blocks of the cluster; who waits, waits at its own.
        let (rank, at) = match (space, b.f) {
            (Space::Shared, MBarrierOp::Init | MBarrierOp::Wait { .. }) => (None, at),
            (Space::Shared, _) => of_block(at),
            _ => (None, at),
        };
        visit(env, (thread, pc), rank, |env| vain |= one(env, warp, (pc, lane), b, (space, at)));
    });
    vain
}

/// The operation of a lane; true if it waits in vain.
fn one(env: &mut Env, warp: &mut Warp, (pc, lane): (u32, usize), b: &MBarrier, (space, at): (Space, u64)) -> bool {
    let thread = warp.first + lane as u32;
    let mut vain = false;
    {
        if !inside(env, space, at) {
            crate::exec::checks::report::access(env, thread, pc, (space, at), 8, false);
            return false;
        }
        let word = env.shared.load(at as usize, 8);
        let mut phase = Phase::of(word);
        let number = |slot: Option<u32>| slot.map_or(1, |s| u64::from(warp.narrow[s as usize][lane]));
        let operand = number(b.operand);
        // Of a barrier of another block, that one's clocks know; they do not know this thread.
        if b.f != MBarrierOp::Init
            && !env.visited
            && let Some(shadow) = &env.shadow
            && let Some(maker) = shadow.clocks().unknown_maker(thread as usize / LANES, at)
        {
            let message = format!(
                "uses the mbarrier that thread {maker} initialises, with no barrier between; next: put `__syncthreads()` \
                 between the two"
            );
            env.note(Kind::SharedRace, pc, thread, None, message);
        }
        match b.f {
            MBarrierOp::Init => {
                let count = operand & FIELD;
                env.shared.store(at as usize, 8, count | count << 20);
                check::synchronised(env, at);
                if let Some(shadow) = &mut env.shadow {
                    shadow.clocks_mut().make(thread, at);
                }
            }
            MBarrierOp::Expect => {
                phase.bytes += operand as i64;
                put(env, at, phase);
            }
            MBarrierOp::Copied { arrives: false } => leave(env, thread, at, true),
            MBarrierOp::Complete => complete(env, thread, pc, at, operand),
            MBarrierOp::Arrive { .. } | MBarrierOp::ArriveExpect | MBarrierOp::Copied { .. } => {
                let count = if b.f == MBarrierOp::ArriveExpect { 1 } else { operand };
                if phase.missing < count {
                    let message = format!(
                        "{count} arrivals at a barrier that waits for {} more; next: initialise it for the number of \
                         arrivals of a phase",
                        phase.missing
                    );
                    env.note(Kind::BarrierDivergence, pc, thread, None, message);
                    return false;
                }
                match b.f {
                    MBarrierOp::ArriveExpect => phase.bytes += operand as i64,
                    MBarrierOp::Arrive { drop: true } => phase.expected = phase.expected.saturating_sub(count),
                    _ => {}
                }
                phase.missing -= count;
                // Before the phase may end: this arrival is part of it.
                leave(env, thread, at, matches!(b.f, MBarrierOp::Copied { .. }));
                put(env, at, phase);
                env.arrivals += 1;
                if let Some(state) = b.state {
                    warp.wide[state as usize][lane] = word;
                }
            }
            MBarrierOp::Wait { parity } => {
                let done = match (parity, b.operand) {
                    (true, _) => phase.number & 1 != operand & 1,
                    (false, Some(state)) => phase.number != warp.wide[state as usize][lane] >> 61,
                    (false, None) => true,
                };
                if !done {
                    vain = true;
                    warp.in_vain = Some((pc, thread, at, operand));
                }
                if let Some(row) = b.done {
                    warp.set_pred(row, if done { u32::MAX } else { 0 }, 1 << lane);
                }
                if done && let Some(shadow) = &mut env.shadow {
                    let phase = match (parity, b.operand) {
                        (false, Some(state)) => Awaited::Number((warp.wide[state as usize][lane] >> 61) as u32),
                        _ => Awaited::Parity(operand as u32),
                    };
                    shadow.clocks_mut().learn(thread as usize / 32, at, phase);
                }
            }
        }
    }
    vain
}

/// What a thread did before it arrived is known to who waits; threads of other blocks have no clock here.
fn leave(env: &mut Env, thread: u32, at: u64, copies: bool) {
    if let (Some(shadow), false) = (&mut env.shadow, env.visited) {
        shadow.clocks_mut().leave(thread as usize / 32, at, copies);
    }
}

fn engines<'e>(env: &'e mut Env) -> Option<&'e mut Engines> {
    env.shadow.as_mut()?.clocks_mut().engines.as_deref_mut()
}

/// The barrier's new state, in which a phase may have ended.
fn put(env: &mut Env, at: u64, phase: Phase) {
    let word = phase.word();
    env.shared.store(at as usize, 8, word);
    if Phase::of(word).number != phase.number
        && let Some(engines) = engines(env)
    {
        engines.next(Channel::Phases(at));
    }
}
