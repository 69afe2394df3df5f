//! Barriers that lie in shared memory. Their 64 bits are the implementation's own (PTX ISA, "mbarrier"): here bits 0–19
//! hold the arrivals that are missing, 20–39 those that each phase expects, 40–63 the number of the phase.

use crate::exec::access::memory::addresses;
use crate::exec::blocks::state::{Env, Warp};
use crate::finding::Kind;
use crate::memory::from_generic;
use crate::op::{MBarrier, MBarrierOp};
use crate::ptx::types::Space;

const FIELD: u64 = (1 << 20) - 1;

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
        let inside = at.is_multiple_of(8) && at.checked_add(8).is_some_and(|end| end <= env.shared.len() as u64);
        if space != Space::Shared || !inside {
            return crate::exec::checks::report::access(env, thread, pc, (space, at), 8, false);
        }
        let word = env.shared.load(at as usize, 8);
        let number = |slot: Option<u32>| slot.map_or(1, |s| u64::from(warp.narrow[s as usize][lane]));
        match b.f {
            MBarrierOp::Init => {
                let count = number(b.operand) & FIELD;
                env.shared.store(at as usize, 8, count | count << 20);
                crate::exec::checks::check::synchronised(env, at);
            }
            MBarrierOp::Arrive { drop } => {
                let count = number(b.operand);
                let (missing, expected, phase) = (word & FIELD, word >> 20 & FIELD, word >> 40);
                if missing < count {
                    let message = format!(
                        "{count} arrivals at a barrier that waits for {missing} more; next: initialise it for the \
                         number of arrivals of a phase"
                    );
                    return env.note(Kind::BarrierDivergence, pc, thread, None, message);
                }
                let expected = if drop { expected.saturating_sub(count) } else { expected };
                let (missing, phase) = match missing - count {
                    0 => (expected, phase + 1),
                    left => (left, phase),
                };
                env.shared.store(at as usize, 8, missing | expected << 20 | phase << 40);
                if let Some(state) = b.state {
                    warp.wide[state as usize][lane] = word;
                }
                if let Some(shadow) = &mut env.shadow {
                    shadow.clocks.leave(thread as usize / 32, at);
                }
            }
            MBarrierOp::Wait { parity } => {
                let done = match (parity, b.operand) {
                    (true, _) => (word >> 40 & 1) != number(b.operand) & 1,
                    (false, Some(state)) => word >> 40 != warp.wide[state as usize][lane] >> 40,
                    (false, None) => true,
                };
                vain |= !done;
                if let Some(row) = b.done {
                    warp.set_pred(row, if done { u32::MAX } else { 0 }, 1 << lane);
                }
                if done && let Some(shadow) = &mut env.shadow {
                    shadow.clocks.learn(thread as usize / 32, at);
                }
            }
        }
    });
    vain
}
