//! The watched warp runs instruction by instruction, so that each access can be looked at before it happens.

use super::warp::{Stop, advance};
use crate::counters::Tally;
use crate::exec::access::memory::{addresses, by_space};
use crate::exec::blocks::state::{Env, Status, Warp};
use crate::exec::checks::report::home;
use crate::exec::values::lanes::{LANES, Row, each};
use crate::op::{Address, Op};
use crate::ptx::types;
use crate::watch::{AccessKind, Space, WarpAccess, WatchedWarp};

/// Accesses that a launch keeps at most: those of the loops that learners look at, in a few MiB.
const MOST: usize = 4096;

/// Runs the watched warp for at most `quantum` instructions.
pub fn run(env: &mut Env, warp: &mut Warp, quantum: u64) -> Stop {
    for _ in 0..quantum {
        if env.accesses.len() >= MOST {
            return advance(env, warp, quantum);
        }
        // As the interpreter does before an instruction; doing it here shows which one comes next.
        if warp.now.pc == warp.now.meet {
            warp.next_lanes();
            if warp.status == Status::Done {
                return Stop::Status;
            }
        }
        let pc = warp.now.pc;
        let before = env.tally[pc as usize];
        let mut coming = look(env, warp, pc);
        let stop = advance(env, warp, 1);
        settle(&mut coming, before, env.tally[pc as usize]);
        let room = MOST - env.accesses.len();
        env.accesses.extend(coming.into_iter().take(room));
        if stop != Stop::Yield {
            return stop;
        }
    }
    Stop::Yield
}

/// True for the warp that a launch watches.
pub fn wants(watch: Option<WatchedWarp>, block: [u32; 3], first: u32) -> bool {
    watch.is_some_and(|w| w.block == block && w.warp == first / LANES as u32)
}

/// The accesses of the next instruction, not yet counted.
fn look(env: &Env, warp: &Warp, pc: u32) -> Vec<WarpAccess> {
    let instruction = &env.machine.kernel.code[pc as usize];
    let mask = instruction.guard.map_or(u32::MAX, |guard| warp.pred(guard)) & warp.now.mask;
    let mut out = Vec::new();
    let mut add = |kind, address: &Address, bytes: u32, mask: u32| {
        let all = addresses(warp, address);
        by_space(address.space, &all, mask, |space, at, mask| {
            out.extend(access(env, pc, kind, (space, at), bytes, mask));
        });
    };
    match &instruction.op {
        Op::Load(t) => add(AccessKind::Load, &t.address, u32::from(t.bytes) * u32::from(t.count), mask),
        Op::Store(t) => add(AccessKind::Store, &t.address, u32::from(t.bytes) * u32::from(t.count), mask),
        Op::Atomic(a) => add(AccessKind::Atomic, &a.address, a.len(), mask),
        Op::Copy(c) => {
            add(AccessKind::Load, &c.from, c.bytes.into(), mask);
            add(AccessKind::Store, &c.to, c.bytes.into(), mask);
        }
        Op::LoadMatrix(l) => {
            // Lanes beyond 8 a matrix lend no address.
            let lanes = u32::MAX >> (32 - 8 * l.rows.len());
            add(AccessKind::Load, &l.address, 16, mask & lanes);
        }
        _ => {}
    }
    out
}

fn access(
    env: &Env,
    pc: u32,
    kind: AccessKind,
    (space, at): (types::Space, &Row<u64>),
    bytes: u32,
    mask: u32,
) -> Option<WarpAccess> {
    let kept = match space {
        types::Space::Global => Space::Global,
        types::Space::Shared => Space::Shared,
        types::Space::Local => Space::Local,
        // Parameters are no memory that a learner places anything in.
        _ => return None,
    };
    if mask == 0 {
        return None;
    }
    let instruction = &env.machine.kernel.code[pc as usize];
    let mut inside = [0; LANES];
    each(mask, |lane| inside[lane] = at[lane]);
    let (variable, base) = home(env.machine, space, at[mask.trailing_zeros() as usize]);
    Some(WarpAccess {
        source: crate::module::source_line(env.machine.files, instruction.loc),
        ptx_line: instruction.ptx_line,
        space: kept,
        kind,
        bytes,
        mask,
        addresses: inside,
        variable,
        base,
        sectors: 0,
        wavefronts: 0,
        conflicts: 0,
    })
}

/// Gives each access what the instruction counted in its space: the counters stay the only ones who count.
fn settle(coming: &mut [WarpAccess], before: Tally, after: Tally) {
    for access in coming {
        match access.space {
            Space::Global => access.sectors = after.sectors - before.sectors,
            Space::Shared => {
                access.wavefronts = after.wavefronts - before.wavefronts;
                access.conflicts = after.conflicts - before.conflicts;
            }
            Space::Local => {}
        }
    }
}
