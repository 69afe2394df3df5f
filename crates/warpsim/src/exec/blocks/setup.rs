//! A warp before its first instruction.

use super::state::{Entry, Env, Machine, Status, Warp};
use crate::cfg::NEVER;
use crate::decode::slots::{Fill, LaneMask, Special};
use crate::exec::values::lanes::LANES;
use crate::exec::values::registers::File;
use crate::memory::Bytes;

impl Warp {
    /// Room for a warp of this kernel.
    pub fn new(machine: &Machine, number: u32) -> Option<Self> {
        let (narrow, wide, preds) = machine.kernel.sizes;
        let local = machine.kernel.layout.local_bytes.checked_mul(LANES as u64)?;
        let mut warp = Self {
            narrow: File::zeros(narrow),
            wide: File::zeros(wide),
            preds: vec![0; preds],
            first_rows: (File::zeros(0), File::zeros(0)),
            live: 0,
            now: Entry { pc: 0, mask: 0, meet: NEVER },
            stack: Vec::new(),
            frames: Vec::new(),
            status: Status::Done,
            in_vain: None,
            met: (0, 0),
            sums: Default::default(),
            apart: crate::exec::warps::strands::Apart::default(),
            local: Bytes::zeros(usize::try_from(local).ok()?)?,
            first: number * LANES as u32,
            steps: 0,
            spans: Default::default(),
        };
        machine.kernel.fills.iter().for_each(|&fill| warp.fill(machine, fill));
        warp.first_rows = (warp.narrow.clone(), warp.wide.clone());
        Some(warp)
    }

    /// The lanes that exist: the last warp of a block may have fewer than 32.
    pub fn lanes(&self, env: &Env) -> u32 {
        let lanes = (env.machine.threads() - self.first).min(LANES as u32);
        u32::MAX >> (LANES as u32 - lanes)
    }

    /// Ready to run a block from its first instruction.
    pub fn start(&mut self, env: &Env) {
        self.live = self.lanes(env);
        self.now = Entry { pc: 0, mask: self.live, meet: NEVER };
        self.stack.clear();
        self.frames.clear();
        self.start_together();
        self.status = Status::Ready;
        self.met = (0, 0);
        self.sums.start();
        self.steps = 0;
        self.narrow.copy_from_slice(&self.first_rows.0);
        self.wide.copy_from_slice(&self.first_rows.1);
        self.preds.fill(0);
        self.local.clear();
        // All that differs from block to block.
        for &fill in &env.machine.kernel.fills {
            if let (wide, slot, Fill::Special(special)) = fill
                && let Some(value) = of_block(env, special)
            {
                match wide {
                    true => self.wide[slot as usize] = [value.into(); LANES],
                    false => self.narrow[slot as usize] = [value; LANES],
                }
            }
        }
    }

    /// Writes the contents of a row that has some from the start.
    fn fill(&mut self, machine: &Machine, (wide, slot, fill): (bool, u32, Fill)) {
        let value = |lane: u32| match fill {
            Fill::Bits(bits) => bits,
            Fill::Symbol(symbol, offset) => machine.symbols[symbol as usize].wrapping_add_signed(offset),
            Fill::Special(special) => u64::from(self.special(machine, special, lane)),
        };
        if wide {
            self.wide[slot as usize] = std::array::from_fn(|lane| value(lane as u32));
        } else {
            self.narrow[slot as usize] = std::array::from_fn(|lane| value(lane as u32) as u32);
        }
    }

    fn special(&self, machine: &Machine, special: Special, lane: u32) -> u32 {
        let bit = 1u32 << lane;
        match special {
            Special::Tid(axis) => Machine::split(u64::from(self.first + lane), machine.block)[axis as usize],
            Special::Ntid(axis) => machine.block[axis as usize],
            // Each block writes its own.
            Special::Ctaid(_) | Special::ClusterId(_) | Special::BlockInCluster(_) | Special::ClusterRank => 0,
            Special::ClusterCount(axis) => machine.grid[axis as usize] / machine.cluster[axis as usize],
            Special::ClusterSide(axis) => machine.cluster[axis as usize],
            Special::ClusterSize => machine.cluster_size() as u32,
            Special::Nctaid(axis) => machine.grid[axis as usize],
            Special::Zero => 0,
            Special::One => 1,
            Special::Lane => lane,
            Special::Warp => self.first / LANES as u32,
            Special::Warps => machine.threads().div_ceil(LANES as u32),
            Special::SharedSize => machine.shared_bytes as u32,
            Special::DynamicSharedSize => machine.dynamic_bytes as u32,
            Special::LaneMask(LaneMask::Eq) => bit,
            Special::LaneMask(LaneMask::Lt) => bit - 1,
            Special::LaneMask(LaneMask::Le) => bit | (bit - 1),
            Special::LaneMask(LaneMask::Gt) => !(bit | (bit - 1)),
            Special::LaneMask(LaneMask::Ge) => !(bit - 1),
        }
    }
}

/// What a special register holds that differs from block to block.
fn of_block(env: &Env, special: Special) -> Option<u32> {
    let (block, cluster) = (env.block.1, env.machine.cluster);
    Some(match special {
        Special::Ctaid(axis) => block[axis as usize],
        Special::ClusterId(axis) => block[axis as usize] / cluster[axis as usize],
        Special::BlockInCluster(axis) => block[axis as usize] % cluster[axis as usize],
        Special::ClusterRank => (env.block.0 % env.machine.cluster_size()) as u32,
        _ => return None,
    })
}
