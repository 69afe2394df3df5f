//! Lanes and warps that must come together: members of an exchange, barriers of the block.

use super::warp::Stop;
use crate::exec::blocks::barriers::{CLUSTER, WARPGROUPS};
use crate::exec::blocks::state::{Env, Status, Waiting, Warp};
use crate::exec::values::lanes::LANES;
use crate::finding::Kind;
use crate::op::Op;

/// Groups of lanes that name the same members; `None` unless all members are here, or where one reads a lane that has ended,
/// which is found when lanes are looked at apart.
pub fn together(env: &Env, warp: &Warp, (op, row): (&Op, u32), mask: u32) -> Option<Vec<u32>> {
    let ended = warp.lanes(env) & !warp.live;
    if ended != 0 && super::exchange::reads(warp, op, mask, ended) {
        return None;
    }
    let members = &warp.narrow[row as usize];
    let mut groups = Vec::with_capacity(1);
    let mut rest = mask;
    while rest != 0 {
        let lane = rest.trailing_zeros();
        let wanted = members[lane as usize];
        let here = (0..LANES as u32).filter(|&l| mask >> l & 1 != 0 && members[l as usize] == wanted);
        let here = here.fold(0, |m, l| m | 1 << l);
        // A lane that names the others may not name itself.
        if wanted & warp.live & !here != 0 || here & !wanted != 0 {
            return None;
        }
        groups.push(here);
        rest &= !here;
    }
    Some(groups)
}

/// A warp at a barrier of the block.
pub fn arrive(env: &mut Env, warp: &mut Warp, pc: u32, op: &Op, mask: u32) -> Stop {
    let lane = mask.trailing_zeros();
    if mask != warp.live {
        let message = format!(
            "lanes {mask:#010x} of a warp reach the barrier, {:#010x} do not; \
             next: move __syncthreads() out of the condition",
            warp.live & !mask
        );
        env.note(Kind::BarrierDivergence, pc, warp.first + lane, None, message);
        return Stop::Fault;
    }
    let waiting = match *op {
        Op::BarrierReduce { f, id, d, a } => {
            let reduce = Some((f, d, warp.pred(a) & mask));
            Waiting { id: warp.narrow[id as usize][lane as usize], threads: None, reduce, pending: 0, pc }
        }
        Op::Barrier { id, threads, wait } => {
            let threads = threads.map(|t| warp.narrow[t as usize][lane as usize]);
            let id = warp.narrow[id as usize][lane as usize];
            if !wait {
                // `bar.arrive` goes on; the block counts it.
                env.arrived[id as usize & 15] += LANES as u32;
                if let Some(shadow) = &mut env.shadow {
                    shadow.clocks_mut().arrive(warp.first as usize / LANES, id);
                }
                return Stop::Yield;
            }
            Waiting { id, threads, reduce: None, pending: 0, pc }
        }
        Op::ClusterWait if warp.met.1 & mask != mask => {
            let message = "waits at the cluster's barrier without having arrived there; next: let each thread execute \
                           barrier.cluster.arrive before barrier.cluster.wait";
            env.note(Kind::BarrierDivergence, pc, warp.first + lane, None, message.into());
            return Stop::Fault;
        }
        // The round after this turn lets it go on, also where the phase has ended meanwhile.
        Op::ClusterWait => Waiting { id: CLUSTER, threads: None, reduce: None, pending: 0, pc },
        // Products of a warpgroup are one operation of its four warps: none is done before all have started it.
        Op::WarpgroupWait { pending } => {
            warp.sums.wait(pending);
            Waiting { id: WARPGROUPS + warp.first / 128, threads: Some(128), reduce: None, pending, pc }
        }
        _ => return Stop::Yield,
    };
    warp.status = Status::Waiting(waiting);
    Stop::Status
}

/// Lanes arrive at the cluster's barrier; false if they were there already in this phase.
pub fn arrive_in_cluster(env: &mut Env, warp: &mut Warp, pc: u32, mask: u32) -> bool {
    let phase = env.meeting.phase;
    if warp.met.0 != phase {
        warp.met = (phase, 0);
    }
    let again = warp.met.1 & mask;
    if again != 0 {
        let message = "arrives at the cluster's barrier again before the others have; next: let each thread execute \
                       barrier.cluster.wait between two barrier.cluster.arrive";
        env.note(Kind::BarrierDivergence, pc, warp.first + again.trailing_zeros(), None, message.into());
        return false;
    }
    warp.met.1 |= mask;
    if let Some(shadow) = &mut env.shadow {
        shadow.clocks_mut().leave_cluster(warp.first as usize / LANES);
    }
    true
}

/// An instruction of the whole warp, without some of its lanes.
#[cold]
pub fn not_whole(env: &mut Env, warp: &Warp, pc: u32, mask: u32) -> Stop {
    let message = format!(
        "only lanes {mask:#010x} execute an instruction that all 32 lanes of a warp must execute together; \
         next: take it out of the condition, and launch whole warps"
    );
    env.note(Kind::BarrierDivergence, pc, warp.first + mask.trailing_zeros(), None, message);
    Stop::Fault
}
