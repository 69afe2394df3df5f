//! The warps of a block take turns; barriers let them go on together.

use super::state::{Env, Machine, Status, Waiting, Warp};
use crate::exec::values::lanes::LANES;
use crate::exec::warps::warp::{Stop, run};
use crate::finding::Kind;
use crate::op::BarrierReduce;

/// Instructions a warp may take before the next one has its turn: spinning warps let others go on.
const TURN: u64 = 1 << 16;

/// Runs a block to its end. False if the kernel cannot go on.
pub fn run_block(env: &mut Env, warps: &mut [Warp], number: u64) -> bool {
    env.block = (number, Machine::split(number, env.machine.grid));
    env.steps = 0;
    env.arrived = [0; 16];
    env.shared.clear();
    if let Some(shadow) = &mut env.shadow {
        shadow.start();
    }
    if let Some(exact) = &mut env.exact {
        exact.start();
    }
    warps.iter_mut().for_each(|warp| warp.start(env));
    loop {
        let mut ran = false;
        for warp in warps.iter_mut() {
            if warp.status != Status::Ready {
                continue;
            }
            ran = true;
            if run(env, warp, TURN) == Stop::Fault {
                return false;
            }
            if warp.status != Status::Done && env.steps > env.machine.step_budget {
                let message = format!(
                    "the block took {} instructions and has not ended; \
                     next: look for a loop that never ends, or raise the budget",
                    env.steps
                );
                env.note(Kind::StepBudget, warp.now.pc, first_thread(warp), None, message);
                return false;
            }
        }
        if warps.iter().all(|w| w.status == Status::Done) {
            return true;
        }
        let released = release(env, warps);
        if !ran && !released {
            deadlock(env, warps);
            return false;
        }
    }
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
    for id in 0..16u32 {
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
        if let Some(shadow) = &mut env.shadow {
            // Threads that have ended count as arrived.
            let ended = warps.iter().enumerate().filter(|(_, w)| w.status == Status::Done);
            shadow.clocks.release(&members, &ended.map(|(at, _)| at).collect::<Vec<_>>(), id);
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

fn deadlock(env: &mut Env, warps: &[Warp]) {
    let stuck: Vec<(u32, Waiting)> = warps.iter().filter_map(|w| waiting(w).map(|b| (w.first, b))).collect();
    let Some(&(thread, first)) = stuck.first() else { return };
    let ids: Vec<String> = stuck.iter().map(|(t, b)| format!("thread {t} at barrier {}", b.id)).take(4).collect();
    let message = format!(
        "no warp of the block can go on: {}; next: let all threads reach the same barriers in the same order",
        ids.join(", ")
    );
    env.note(Kind::Deadlock, first.pc, thread, None, message);
}
