//! Blocks that are resident together, and take turns on one core: those of a cooperative launch.

use super::block::{Round, round, start};
use super::launch::warps;
use super::state::{Env, Machine, Warp};
use crate::exec::checks::check::settle;
use crate::exec::checks::clocks::Clocks;
use crate::exec::checks::shadow::Shadow;
use crate::memory::Bytes;

/// Instructions of a warp before the next one has its turn: short, as the others of the grid wait for it.
const TURN: u64 = 1 << 12;

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
            shadow: machine.checks.then(|| Box::new(Shadow::new(machine.shared_bytes, Clocks::new(None)))),
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
            match (from.clocks.foreign.is_some(), to.clocks.foreign.is_some()) {
                (true, false) => from.clocks.hand_over(&mut to.clocks),
                (false, true) => to.clocks.hand_over(&mut from.clocks),
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

/// Runs all blocks of a launch at the same time, interleaved. `None` if there is no memory for them.
pub fn run_all(env: &mut Env) -> Option<()> {
    let machine = env.machine;
    let mut blocks = (0..machine.blocks()).map(|_| Resident::new(machine)).collect::<Option<Vec<_>>>()?;
    for (position, block) in (0..).zip(&mut blocks) {
        block.exchange(env);
        start(env, &mut block.warps, position);
        block.exchange(env);
    }
    while blocks.iter().any(|block| !block.ended) {
        for block in blocks.iter_mut().filter(|block| !block.ended) {
            block.exchange(env);
            let stands = round(env, &mut block.warps, TURN);
            block.ended = stands == Round::Ended;
            if matches!(stands, Round::Ended | Round::Failed) {
                settle(env);
            }
            block.exchange(env);
            if stands == Round::Failed {
                return Some(());
            }
        }
    }
    Some(())
}
