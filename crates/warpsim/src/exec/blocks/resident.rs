//! Blocks that are resident together, and take turns on one core: those of a cooperative launch, and those of a cluster.

use std::ops::Range;

use super::block::{Round, Stuck, round, start, stuck};
use super::launch::warps;
use super::state::{Env, Machine, Meeting, Peer, Warp};
use crate::exec::checks::check::settle;
use crate::exec::checks::shadow::Shadow;
use crate::memory::Bytes;

/// Instructions of a warp before the next one has its turn: short, as the others of the grid wait for it.
const QUANTUM: u64 = 1 << 12;

/// What a block keeps while others run.
pub struct Resident {
    pub warps: Vec<Warp>,
    shared: Bytes,
    shadow: Option<Box<Shadow>>,
    block: (u64, [u32; 3]),
    steps: u64,
    arrived: [u32; 24],
    ended: bool,
}

impl Resident {
    /// A block that has not started.
    pub fn new(machine: &Machine) -> Option<Self> {
        Some(Self {
            warps: warps(machine)?,
            shared: Bytes::zeros(usize::try_from(machine.shared_bytes).ok()?)?,
            shadow: machine.checks.then(|| Box::new(machine.shadow(None))),
            block: (0, [0; 3]),
            steps: 0,
            arrived: [0; 24],
            ended: false,
        })
    }

    /// Puts what the block keeps into the environment, or back.
    pub fn exchange(&mut self, env: &mut Env) {
        use std::mem::swap;
        if let (Some(from), Some(to)) = (&mut env.shadow, &mut self.shadow) {
            // What blocks tell each other goes with the block that runs, in both directions.
            match (from.clocks().foreign.is_some(), to.clocks().foreign.is_some()) {
                (true, false) => from.clocks_mut().hand_over(to.clocks_mut()),
                (false, true) => to.clocks_mut().hand_over(from.clocks_mut()),
                _ => {}
            }
            swap(from, to);
        }
        swap(&mut env.shared, &mut self.shared);
        swap(&mut env.block, &mut self.block);
        swap(&mut env.steps, &mut self.steps);
        swap(&mut env.arrived, &mut self.arrived);
    }
}

/// Runs blocks from their start to their end, interleaved; whole clusters. False if the kernel cannot go on; `None` if
/// there is no memory for them. `pool` keeps what the next ones can use again.
pub fn run_together(env: &mut Env, positions: Range<u64>, pool: &mut Vec<Resident>) -> Option<bool> {
    let machine = env.machine;
    let (size, count) = (machine.cluster_size() as usize, (positions.end - positions.start) as usize);
    while pool.len() < count {
        pool.push(Resident::new(machine)?);
    }
    let blocks = &mut pool[..count];
    for (position, block) in positions.zip(blocks.iter_mut()) {
        block.exchange(env);
        start(env, &mut block.warps, position);
        block.ended = false;
        block.exchange(env);
    }
    let mut meetings = vec![Meeting::of(machine); count / size];
    let mut waits = Stuck::default();
    while blocks.iter().any(|block| !block.ended) {
        let before = (env.arrivals, meetings.iter().map(|meeting| meeting.phase).sum::<u64>());
        let mut moves = false;
        for at in 0..count {
            if blocks[at].ended {
                continue;
            }
            let mut warps = std::mem::take(&mut blocks[at].warps);
            let cluster = at / size * size..(at / size + 1) * size;
            blocks[at].exchange(env);
            lend(env, &mut blocks[cluster.clone()], &mut meetings[at / size]);
            let stands = round(env, &mut warps, QUANTUM);
            moves |= !matches!(stands, Round::Vain | Round::Stuck);
            let over = matches!(stands, Round::Ended | Round::Failed);
            if over {
                settle(env);
            }
            give_back(env, &mut blocks[cluster], &mut meetings[at / size]);
            blocks[at].exchange(env);
            blocks[at].ended = stands == Round::Ended;
            blocks[at].warps = warps;
            if stands == Round::Failed {
                return Some(false);
            }
        }
        let after = (env.arrivals, meetings.iter().map(|meeting| meeting.phase).sum::<u64>());
        if waits.for_ever(!moves && before == after) {
            if let Some(block) = blocks.iter_mut().find(|block| !block.ended) {
                block.exchange(env);
                stuck(env, &block.warps);
                settle(env);
                block.exchange(env);
            }
            return Some(false);
        }
    }
    Some(true)
}

/// While a block runs, the others of its cluster lend it their memory.
fn lend(env: &mut Env, cluster: &mut [Resident], meeting: &mut Meeting) {
    std::mem::swap(&mut env.meeting, meeting);
    if cluster.len() > 1 {
        let lent = cluster.iter_mut().map(|block| Peer {
            shared: std::mem::take(&mut block.shared),
            shadow: block.shadow.take(),
            ended: block.ended,
        });
        env.peers.extend(lent);
    }
}

fn give_back(env: &mut Env, cluster: &mut [Resident], meeting: &mut Meeting) {
    std::mem::swap(&mut env.meeting, meeting);
    for (block, peer) in cluster.iter_mut().zip(env.peers.drain(..)) {
        (block.shared, block.shadow) = (peer.shared, peer.shadow);
    }
}
