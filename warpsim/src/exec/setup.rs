//! A warp before its first instruction.

use super::lanes::{LANES, Row};
use super::state::{Entry, Env, Machine, Status, Warp};
use crate::cfg::NEVER;
use crate::decode::slots::{Fill, LaneMask, Special};
use crate::memory::Bytes;

impl Warp {
    /// Room for a warp of this kernel.
    pub fn new(machine: &Machine, number: u32) -> Option<Self> {
        let (narrow, wide, preds) = machine.kernel.sizes;
        let local = machine.kernel.layout.local_bytes.checked_mul(LANES as u64)?;
        Some(Self {
            narrow: vec![[0; LANES]; narrow],
            wide: vec![[0; LANES]; wide],
            preds: vec![0; preds],
            live: 0,
            now: Entry { pc: 0, mask: 0, meet: NEVER },
            stack: Vec::new(),
            status: Status::Done,
            apart: super::strands::Apart::default(),
            local: Bytes::zeros(usize::try_from(local).ok()?)?,
            first: number * LANES as u32,
            spans: Default::default(),
        })
    }

    /// Ready to run a block from its first instruction.
    pub fn start(&mut self, env: &Env) {
        let threads = env.machine.threads();
        let lanes = (threads - self.first).min(LANES as u32);
        self.live = u32::MAX >> (LANES as u32 - lanes);
        self.now = Entry { pc: 0, mask: self.live, meet: NEVER };
        self.stack.clear();
        self.start_together();
        self.status = Status::Ready;
        self.narrow.fill([0; LANES]);
        self.wide.fill([0; LANES]);
        self.preds.fill(0);
        self.local.as_mut().fill(0);
        for &(wide, slot, fill) in &env.machine.kernel.fills {
            let value = |lane: u32| match fill {
                Fill::Bits(bits) => bits,
                Fill::Symbol(symbol, offset) => env.machine.symbols[symbol as usize].wrapping_add_signed(offset),
                Fill::Special(special) => u64::from(self.special(env, special, lane)),
            };
            if wide {
                let row: Row<u64> = std::array::from_fn(|lane| value(lane as u32));
                self.wide[slot as usize] = row;
            } else {
                let row: Row<u32> = std::array::from_fn(|lane| value(lane as u32) as u32);
                self.narrow[slot as usize] = row;
            }
        }
    }

    fn special(&self, env: &Env, special: Special, lane: u32) -> u32 {
        let machine = env.machine;
        let bit = 1u32 << lane;
        match special {
            Special::Tid(axis) => Machine::split(u64::from(self.first + lane), machine.block)[axis as usize],
            Special::Ntid(axis) => machine.block[axis as usize],
            Special::Ctaid(axis) => env.block.1[axis as usize],
            Special::Nctaid(axis) => machine.grid[axis as usize],
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
