//! The warps of a block take turns; barriers let them go on together.

use super::barriers::{CLUSTER, WARPGROUPS};
use super::state::{Env, Machine, Meeting, Status, Waiting, Warp};
use super::wait::{Polled, waits};
use crate::exec::values::lanes::LANES;
use crate::exec::warps::warp::{Stop, run};
use crate::finding::Kind;
use crate::op::BarrierReduce;

/// Instructions a warp may take before the next one has its turn: spinning warps let others go on.
const QUANTUM: u64 = 1 << 16;

/// Rounds in which all wait for barriers in shared memory before that counts as for ever: lanes of a warp that are apart
/// take turns.
const IDLE: u32 = 1000;

/// How a block that ran alone ended.
pub enum Ran {
    /// All its threads have ended.
    Ended,
    /// The kernel cannot go on; a finding says why.
    Failed,
    /// It waits for these words of global memory, and nobody runs who could change them.
    Waits(Vec<Polled>),
}

/// How a block stands after each of its warps had a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// All its threads have ended.
    Ended,
    /// The kernel cannot go on; a finding says why.
    Failed,
    /// Warps came to a barrier or to their end.
    Moves,
    /// Each warp that can run used up its quantum.
    Spent,
    /// Each warp that can run asked for something in shared memory that has not happened, and nothing did.
    Vain,
    /// No warp can run until the cluster's other blocks are at its barrier.
    Stuck,
}

/// How long all has been waiting.
#[derive(Debug, Default)]
pub struct Stuck(u32);

impl Stuck {
    /// After a round of all that run together, in which nothing happened or something did: whether nothing ever will.
    pub fn for_ever(&mut self, nothing: bool) -> bool {
        self.0 = if nothing { self.0 + 1 } else { 0 };
        self.0 > IDLE
    }
}

impl Meeting {
    /// Before the blocks of a cluster start.
    pub fn of(machine: &Machine) -> Self {
        let threads = machine.threads();
        Self { phase: 0, threads: vec![(threads, threads); machine.cluster_size() as usize] }
    }
}

/// Runs a block to its end.
pub fn run_block(env: &mut Env, warps: &mut [Warp], position: u64) -> Ran {
    start(env, warps, position);
    go_on(env, warps)
}

/// Runs a block on, to its end.
pub fn go_on(env: &mut Env, warps: &mut [Warp]) -> Ran {
    env.look_at = env.steps + QUANTUM;
    let mut waited = Stuck::default();
    loop {
        match round(env, warps, QUANTUM) {
            Round::Ended => return Ran::Ended,
            Round::Failed => return Ran::Failed,
            Round::Spent if env.alone && env.steps >= env.look_at => {
                // Rarely for a block that takes long.
                env.look_at = 2 * env.steps;
                match waits(env, warps) {
                    Ok(words) if words.is_empty() => {}
                    Ok(words) => return Ran::Waits(words),
                    Err(()) => return Ran::Failed,
                }
            }
            stands => {
                if waited.for_ever(stands == Round::Vain) || stands == Round::Stuck {
                    stuck(env, warps);
                    return Ran::Failed;
                }
            }
        }
    }
}

/// Makes warps ready for the block that starts at a position.
pub fn start(env: &mut Env, warps: &mut [Warp], position: u64) {
    env.block = (position, env.machine.coordinates(position));
    env.steps = 0;
    env.meeting = Meeting::of(env.machine);
    env.arrived = [0; 24];
    env.shared.clear();
    if let Some(shadow) = &mut env.shadow {
        shadow.start();
    }
    if let Some(exact) = &mut env.exact
        && (position == 0 || !env.machine.cooperative)
    {
        exact.start();
    }
    warps.iter_mut().for_each(|warp| warp.start(env));
}

/// Gives each warp that can run a turn.
pub fn round(env: &mut Env, warps: &mut [Warp], quantum: u64) -> Round {
    let (mut ran, mut moves) = (false, false);
    let (arrivals, mut vain) = (env.arrivals, true);
    let met = meet(env, warps);
    for warp in warps.iter_mut() {
        if warp.status != Status::Ready {
            continue;
        }
        ran = true;
        let before = env.steps;
        warp.in_vain = None;
        let stop = run(env, warp, quantum);
        warp.steps += env.steps - before;
        env.longest = env.longest.max(warp.steps);
        if stop == Stop::Fault {
            return Round::Failed;
        }
        vain &= warp.in_vain.is_some();
        moves |= warp.status != Status::Ready;
        if warp.status != Status::Done && env.steps > env.machine.step_budget {
            let message = format!(
                "the block took {} instructions and has not ended; \
                 next: look for a loop that never ends, or raise the budget",
                env.steps
            );
            env.note(Kind::StepBudget, warp.now.pc, first_thread(warp), None, message);
            return Round::Failed;
        }
    }
    let met = met | meet(env, warps);
    if warps.iter().all(|w| w.status == Status::Done) {
        return Round::Ended;
    }
    let released = release(env, warps) | met;
    if !ran && !released {
        if warps.iter().any(|w| waiting(w).is_some_and(|b| b.id == CLUSTER)) {
            return Round::Stuck;
        }
        deadlock(env, warps);
        return Round::Failed;
    }
    match (moves || released, ran && vain && env.arrivals == arrivals) {
        (true, _) => Round::Moves,
        (false, true) => Round::Vain,
        _ => Round::Spent,
    }
}

/// The block's part in the cluster's barrier: lets its warps go on whose phase has ended; true if there were some.
fn meet(env: &mut Env, warps: &mut [Warp]) -> bool {
    let rank = (env.block.0 % env.machine.cluster_size()) as usize;
    let meeting = &mut env.meeting;
    let arrived = |w: &Warp| if w.met.0 == meeting.phase { w.met.1 } else { 0 };
    let count = |lanes: &dyn Fn(&Warp) -> u32| {
        warps.iter().filter(|w| w.status != Status::Done).map(|w| lanes(w).count_ones()).sum::<u32>()
    };
    meeting.threads[rank] = (count(&|w| w.live), count(&|w| w.live & !arrived(w)));
    if meeting.threads.iter().all(|(_, missing)| *missing == 0) {
        meeting.phase += 1;
        meeting.threads.iter_mut().for_each(|(threads, missing)| *missing = *threads);
    }
    let phase = meeting.phase;
    let mut any = false;
    for warp in warps {
        if waiting(warp).is_some_and(|b| b.id == CLUSTER) && warp.met.0 < phase {
            warp.status = Status::Ready;
            warp.met.1 = 0;
            any = true;
            if let Some(shadow) = &mut env.shadow {
                shadow.clocks_mut().meet_cluster(warp.first as usize / LANES);
            }
        }
    }
    any
}

fn first_thread(warp: &Warp) -> u32 {
    warp.first + warp.now.mask.trailing_zeros().min(LANES as u32 - 1)
}

fn waiting(warp: &Warp) -> Option<Waiting> {
    match warp.status {
        Status::Waiting(waiting) => Some(waiting),
        _ => None,
    }
}

/// Lets the warps of each complete barrier go on.
fn release(env: &mut Env, warps: &mut [Warp]) -> bool {
    let mut any = false;
    for id in 0..CLUSTER {
        let here = || warps.iter().enumerate().filter(|(_, w)| waiting(w).is_some_and(|b| b.id == id));
        let Some(first) = here().find_map(|(_, w)| waiting(w)) else { continue };
        let complete = match first.threads {
            None => warps.iter().all(|w| w.status == Status::Done || waiting(w).is_some_and(|b| b.id == id)),
            Some(threads) => here().count() as u32 * LANES as u32 + env.arrived[id as usize] >= threads,
        };
        if !complete {
            continue;
        }
        any = true;
        env.arrived[id as usize] = 0;
        let members: Vec<usize> = here().map(|(at, _)| at).collect();
        if let Some(shadow) = &mut env.shadow
            && id >= WARPGROUPS
        {
            // Products of a warpgroup order nothing else that its warps do.
            let pending: Vec<u32> = members.iter().map(|&at| waiting(&warps[at]).map_or(0, |b| b.pending)).collect();
            if let Some(engines) = &mut shadow.clocks_mut().engines {
                engines.wait_together(&members, &pending);
            }
        } else if let Some(shadow) = &mut env.shadow {
            // Threads that have ended count as arrived.
            let ended = warps.iter().enumerate().filter(|(_, w)| w.status == Status::Done);
            let ended: Vec<usize> = ended.map(|(at, _)| at).collect();
            shadow.release((&members, &ended, warps.len()), id);
        }
        let holds = |w: &Warp| waiting(w).and_then(|b| b.reduce).map_or(0, |r| r.2);
        let count: u32 = members.iter().map(|&at| holds(&warps[at]).count_ones()).sum();
        let all = members.iter().all(|&at| holds(&warps[at]) == warps[at].live);
        for at in members {
            let warp = &mut warps[at];
            if let Some((f, d, _)) = waiting(warp).and_then(|b| b.reduce) {
                let live = warp.live;
                let flag = |holds: bool| if holds { u32::MAX } else { 0 };
                match f {
                    BarrierReduce::Popc => {
                        crate::exec::values::lanes::each(live, |lane| warp.narrow[d as usize][lane] = count);
                    }
                    BarrierReduce::And => warp.set_pred(d, flag(all), live),
                    BarrierReduce::Or => warp.set_pred(d, flag(count > 0), live),
                }
            }
            warp.status = Status::Ready;
        }
    }
    any
}

/// Nothing goes on any more: says who waits for what.
pub fn stuck(env: &mut Env, warps: &[Warp]) {
    match warps.iter().any(|w| w.status == Status::Ready && w.in_vain.is_some()) {
        true => never(env, warps),
        false => deadlock(env, warps),
    }
}

/// All warps wait for barriers in shared memory that nobody completes.
fn never(env: &mut Env, warps: &[Warp]) {
    let waits = warps.iter().filter(|w| w.status == Status::Ready).find_map(|w| w.in_vain);
    let Some((pc, thread, at, _)) = waits else { return };
    let phase = crate::exec::warps::mbarrier::Phase::of(env.shared.load(at as usize, 8));
    let (variable, place) = crate::exec::checks::report::describe(env.machine, crate::ptx::types::Space::Shared, at);
    let (missing, bytes, number) = (phase.missing, phase.bytes, phase.number);
    let message = format!(
        "waits for ever for the mbarrier at {at:#x} ({place}): it is in phase {number} of parity {}, {missing} of {} \
         arrivals and {bytes} bytes are missing; next: look for the arrival or the announced bytes that never come, or \
         for a wait with the wrong parity",
        number & 1,
        phase.expected,
    );
    let address = at + crate::memory::SHARED_WINDOW;
    env.note(Kind::Deadlock, pc, thread, Some((address, variable)), message);
}

fn deadlock(env: &mut Env, warps: &[Warp]) {
    let stuck: Vec<(u32, Waiting)> = warps.iter().filter_map(|w| waiting(w).map(|b| (w.first, b))).collect();
    let Some(&(thread, first)) = stuck.first() else { return };
    let name = |id| match id {
        CLUSTER => "the cluster's barrier".to_owned(),
        WARPGROUPS.. => "the wait for its warpgroup's products".to_owned(),
        id => format!("barrier {id}"),
    };
    let ids: Vec<String> = stuck.iter().map(|(t, b)| format!("thread {t} at {}", name(b.id))).take(4).collect();
    let message = format!(
        "no warp of the block can go on: {}; next: let all threads reach the same barriers in the same order",
        ids.join(", ")
    );
    env.note(Kind::Deadlock, first.pc, thread, None, message);
}
