//! Lanes apart: when lanes must come together from different places of the program, or wait for one another, the stack
//! of meeting points does not do. The warp then runs as strands, each with its own place, as GPUs since Volta can
//! (CUDA C programming guide, "Independent Thread Scheduling"), until all its lanes are at one place again.

use super::gather::{self, Gathered};
use super::sync::{arrive, not_whole};
use super::warp::{Stop, step};
use crate::cfg::NEVER;
use crate::exec::blocks::state::{Entry, Env, Status, Warp};
use crate::finding::Kind;
use crate::op::Op;
use crate::ptx::types::Space;

/// Instructions that a strand may wait for its turn while others run.
const PATIENCE: u64 = 256;
/// Instructions that it then runs before the others.
const BOOST: u32 = 128;
/// Instructions of a quantum, as another warp may hold what these lanes wait for.
const SHORT: u64 = 2048;
/// Turns that lanes run alone, with others waiting for them, before they may be waiting for the others.
const ALONE: u32 = 2;
/// How often lanes may ask in vain before the lanes that wait for them go on.
const VAIN: u32 = 64;
/// Instructions in which a loop that waits shows itself.
const PROBE: u32 = 4096;

/// Lanes at one place.
#[derive(Clone, Copy, Debug)]
pub struct Strand {
    pub pc: u32,
    pub mask: u32,
    /// Step at which it ran last.
    pub last: u64,
    /// Instructions that it may run before the others.
    pub boost: u32,
}

/// What a warp keeps while its lanes are apart.
#[derive(Debug, Default)]
pub struct Apart {
    /// Whether they are; the strand that runs next is in `now`.
    pub active: bool,
    /// The other strands.
    pub strands: Vec<Strand>,
    /// Lanes that exist, ended ones too.
    pub all: u32,
    /// Whether they stay so to the end of the block: lanes that wait for each other once do it again.
    stay: bool,
    /// Of the strand that runs next.
    boost: u32,
    /// How often the same lanes used up their quantum while others waited for them, and which.
    alone: (u32, u32),
}

impl Warp {
    /// Before the first instruction of a block.
    pub fn start_together(&mut self) {
        self.apart.active = false;
        self.apart.stay = false;
        self.apart.strands.clear();
        self.apart.alone = (0, 0);
    }

    /// The stack becomes strands. A lane is where the innermost entry has it.
    fn unstack(&mut self, step: u64, boost: u32) {
        let mut taken = 0;
        for entry in std::iter::once(self.now).chain(std::mem::take(&mut self.stack).into_iter().rev()) {
            // Lanes at their meeting point belong to the entry that waits there.
            let mask = entry.mask & self.live & !taken;
            if mask != 0 && entry.pc != entry.meet {
                taken |= mask;
                match self.apart.strands.iter_mut().find(|s| s.pc == entry.pc) {
                    Some(strand) => {
                        strand.mask |= mask;
                        strand.boost = strand.boost.max(boost);
                    }
                    None => self.apart.strands.push(Strand { pc: entry.pc, mask, last: step, boost }),
                }
            }
        }
        self.now.mask = 0;
    }

    /// A strand becomes the one that runs next.
    fn take_strand(&mut self, at: usize) {
        let strand = self.apart.strands.swap_remove(at);
        self.apart.boost = strand.boost;
        self.now = Entry { pc: strand.pc, mask: strand.mask, meet: NEVER };
    }
}

/// The lanes part, before the instruction at `now`.
pub fn part(env: &mut Env, warp: &mut Warp) -> Stop {
    if !warp.frames.is_empty() {
        return super::calls::cannot(env, warp);
    }
    warp.apart.active = true;
    warp.apart.all = warp.lanes(env);
    warp.unstack(env.steps, 0);
    choose(env, warp)
}

/// At the end of a quantum: lanes that poll memory for long, while others wait for them, may be waiting for the others.
pub fn patience(env: &mut Env, warp: &mut Warp) -> Stop {
    let mask = warp.now.mask;
    let alone = warp.stack.is_empty() || mask == warp.live || !warp.frames.is_empty();
    if warp.apart.active || warp.status != Status::Ready || alone {
        warp.apart.alone = (0, 0);
        return Stop::Yield;
    }
    let (times, lanes) = warp.apart.alone;
    warp.apart.alone = if lanes == mask { (times + 1, mask) } else { (1, mask) };
    if warp.apart.alone.0 < ALONE {
        return Stop::Yield;
    }
    let mut polls = false;
    for _ in 0..PROBE {
        polls |= match &env.machine.kernel.code[warp.now.pc as usize].op {
            Op::Atomic(_) => true,
            Op::Load(t) => t.strong && t.address.space != Space::Local,
            _ => false,
        };
        let stop = step(env, warp);
        match stop {
            Stop::Apart => return part(env, warp),
            Stop::Yield | Stop::Vain if warp.now.mask == mask => {}
            stop => return stop,
        }
    }
    if !polls {
        return Stop::Yield;
    }
    warp.apart.stay = true;
    part(env, warp)
}

/// Lanes asked in vain: others of their warp may have to go on first.
pub fn vain(env: &mut Env, warp: &mut Warp) -> Stop {
    let mask = warp.now.mask;
    if warp.stack.is_empty() || mask == warp.live || !warp.frames.is_empty() {
        return Stop::Yield;
    }
    let (times, lanes) = warp.apart.alone;
    warp.apart.alone = if lanes == mask { (times + 1, mask) } else { (1, mask) };
    if warp.apart.alone.0 < VAIN {
        return Stop::Yield;
    }
    warp.apart.stay = true;
    part(env, warp)
}

/// Runs a warp whose lanes are apart for at most `quantum` instructions.
pub fn run(env: &mut Env, warp: &mut Warp, quantum: u64) -> Stop {
    for _ in 0..quantum.min(SHORT) {
        let (pc, mask, boost) = (warp.now.pc, warp.now.mask, warp.apart.boost.saturating_sub(1));
        let instruction = &env.machine.kernel.code[pc as usize];
        let lanes = instruction.guard.map_or(mask, |guard| warp.pred(guard)) & mask;
        if lanes != 0 && super::exchange::members(&instruction.op).is_some() {
            warp.apart.strands.push(Strand { pc, mask, last: env.steps, boost });
            if !gather::exchange(env, warp, pc, lanes) {
                return Stop::Fault;
            }
            merge(warp);
        } else {
            match step(env, warp) {
                Stop::Yield | Stop::Vain => warp.unstack(env.steps, boost),
                Stop::Status if warp.status == Status::Done => {
                    // These lanes ended.
                    warp.status = Status::Ready;
                }
                stop => return stop,
            }
        }
        if warp.apart.strands.is_empty() {
            warp.apart.active = false;
            warp.status = Status::Done;
            return Stop::Status;
        }
        let stop = choose(env, warp);
        if stop != Stop::Yield {
            return stop;
        }
        // An exchange that was waited for is looked at as one of lanes apart: some may have ended instead of coming.
        // And what is known of a basic block's addresses is known of all its lanes: the stack goes on where one starts.
        let next = &env.machine.kernel.code[warp.now.pc as usize].op;
        let starts = matches!(instruction.op, Op::Branch { .. } | Op::BranchTable { .. });
        let together = warp.apart.strands.is_empty() && !warp.apart.stay;
        if together && starts && super::exchange::members(next).is_none() {
            warp.apart.active = false;
            return Stop::Yield;
        }
    }
    Stop::Yield
}

/// Strands at one place become one.
fn merge(warp: &mut Warp) {
    let strands = &mut warp.apart.strands;
    strands.sort_by_key(|s| s.pc);
    strands.dedup_by(|next, kept| {
        let same = next.pc == kept.pc;
        if same {
            kept.mask |= next.mask;
            kept.boost = kept.boost.max(next.boost);
        }
        same
    });
}

/// Picks the strand that runs next: the one that is farthest behind in the program, so that the others are caught up
/// with, unless another waited for long.
fn choose(env: &mut Env, warp: &mut Warp) -> Stop {
    let now = env.steps;
    let ready: Vec<usize> = (0..warp.apart.strands.len()).filter(|&at| can_run(env, warp, at)).collect();
    let strands = &mut warp.apart.strands;
    let starving = ready.iter().copied().find(|&at| now - strands[at].last > PATIENCE);
    if let Some(at) = starving {
        strands[at].boost = BOOST;
    }
    let first = ready.iter().copied().max_by_key(|&at| (strands[at].boost > 0, std::cmp::Reverse(strands[at].pc)));
    match first {
        Some(at) => {
            warp.take_strand(at);
            Stop::Yield
        }
        None => stuck(env, warp),
    }
}

/// Whether the next instruction of a strand has all the lanes that it needs.
fn can_run(env: &Env, warp: &Warp, at: usize) -> bool {
    let Strand { pc, mask, .. } = warp.apart.strands[at];
    let instruction = &env.machine.kernel.code[pc as usize];
    let lanes = instruction.guard.map_or(mask, |guard| warp.pred(guard)) & mask;
    match &instruction.op {
        _ if lanes == 0 => true,
        Op::WarpgroupWait { .. } | Op::ClusterWait | Op::Barrier { .. } | Op::BarrierReduce { .. } => {
            lanes == warp.live
        }
        op if op.whole_warp() => lanes == u32::MAX,
        op if super::exchange::members(op).is_some() => gather::groups(env, warp, pc, lanes) != Gathered::Missing,
        _ => true,
    }
}

/// No strand can go on: the first one that waits says so.
fn stuck(env: &mut Env, warp: &mut Warp) -> Stop {
    let Some(at) = (0..warp.apart.strands.len()).min_by_key(|&at| warp.apart.strands[at].pc) else {
        return Stop::Fault;
    };
    warp.take_strand(at);
    let (pc, mask) = (warp.now.pc, warp.now.mask);
    let instruction = &env.machine.kernel.code[pc as usize];
    match &instruction.op {
        op @ (Op::WarpgroupWait { .. } | Op::Barrier { .. } | Op::BarrierReduce { .. }) => {
            arrive(env, warp, pc, op, mask)
        }
        op if op.whole_warp() => not_whole(env, warp, pc, mask),
        _ => {
            let elsewhere = warp.live & !mask;
            let message = format!(
                "lanes {mask:#010x} wait here for lanes that their member mask names, and lanes {elsewhere:#010x} wait \
                 elsewhere; next: use it where the whole group is, or name the group's lanes"
            );
            env.note(Kind::BarrierDivergence, pc, warp.first + mask.trailing_zeros(), None, message);
            Stop::Fault
        }
    }
}
