//! What a launch, a block and a warp keep while they run.

use std::collections::{BTreeMap, BTreeSet};

use crate::block_order::BlockOrder;
use crate::counters::Tally;
use crate::decode::Kernel;
use crate::exec::checks::clocks::Clocks;
use crate::exec::checks::exact::Exact;
use crate::exec::checks::races::Races;
use crate::exec::checks::shadow::Shadow;
use crate::exec::checks::signals::Foreign;
use crate::exec::values::registers::File;
use crate::exec::warps::advance::Advance;
use crate::finding::{Finding, Kind};
use crate::memory::{Bytes, DeviceMemory, Span};
use crate::op::{BarrierReduce, SPANS};
use crate::watch::{WarpAccess, WatchedWarp};

/// What all blocks of a launch share.
pub struct Machine<'a> {
    pub kernel: &'a Kernel,
    pub memory: &'a DeviceMemory,
    pub params: Bytes,
    /// Addresses of the kernel's symbols, each in its own space.
    pub symbols: Vec<u64>,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Blocks of a cluster along x, y, z; 1 of each without clusters.
    pub cluster: [u32; 3],
    /// The order in which blocks start.
    pub order: BlockOrder,
    /// Whether all blocks run at the same time.
    pub cooperative: bool,
    /// Static and dynamic shared memory of a block.
    pub shared_bytes: u64,
    pub dynamic_bytes: u64,
    /// Warp instructions that a block may take.
    pub step_budget: u64,
    /// Whether races and reads of what nobody wrote are looked for.
    pub checks: bool,
    /// Whether requests, sectors, wavefronts and instructions are counted.
    pub counters: bool,
    /// The interpreter loop.
    pub advance: Advance,
    pub files: &'a [(u32, String)],
    /// The warp whose accesses are kept.
    pub watch: Option<WatchedWarp>,
}

impl Machine<'_> {
    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// Blocks of the launch.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|&n| u64::from(n)).product()
    }

    /// Blocks of a cluster.
    pub fn cluster_size(&self) -> u64 {
        self.cluster.iter().map(|&n| u64::from(n)).product()
    }

    /// The shadow of a block's shared memory.
    pub fn shadow(&self, foreign: Option<Box<Foreign>>) -> Shadow {
        let clocks = Clocks::new(foreign, self.kernel.asynchronous);
        Shadow::new(self.shared_bytes, clocks, !self.kernel.asynchronous && !self.kernel.swaps)
    }

    /// Coordinates of the block that starts at a position. Those of a cluster start one after the other, by their rank.
    pub fn coordinates(&self, position: u64) -> [u32; 3] {
        let size = self.cluster_size();
        let clusters = std::array::from_fn(|axis| self.grid[axis] / self.cluster[axis]);
        let cluster = Self::split(self.order.block(position / size, self.blocks() / size), clusters);
        let within = Self::split(position % size, self.cluster);
        std::array::from_fn(|axis| cluster[axis] * self.cluster[axis] + within[axis])
    }

    /// Coordinates of a linear index.
    pub fn split(index: u64, shape: [u32; 3]) -> [u32; 3] {
        let (x, y) = (u64::from(shape[0]), u64::from(shape[1]));
        [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32]
    }
}

/// Findings by instruction and kind, with the position of the first block, in the order in which blocks start.
pub type Found = BTreeMap<(u32, Kind), (u64, Finding)>;

/// What the warps of a block share, apart from the launch.
pub struct Env<'a> {
    pub machine: &'a Machine<'a>,
    pub shared: Bytes,
    /// Who touched shared memory, when checks are on.
    pub shadow: Option<Box<Shadow>>,
    /// Who shares global memory, when checks are on; and the exact look at that, in a launch that is repeated for it.
    pub races: Option<&'a Races<'a>>,
    pub exact: Option<Box<Exact>>,
    pub tally: Vec<Tally>,
    pub found: Found,
    /// Instructions that took part in a race.
    pub raced: BTreeSet<u32>,
    /// Races that are none if their reader, an instruction, is the guess of a compare-and-swap.
    pub doubts: BTreeMap<u32, (Found, BTreeSet<u32>)>,
    /// Plain reads that such a swap has checked afterwards.
    pub guesses: BTreeSet<u32>,
    /// What blocks printed, by position, and how much that is.
    pub printed: BTreeMap<u64, String>,
    pub printed_bytes: usize,
    /// What `printf` gives for each format met so far, by its address.
    pub printf_results: BTreeMap<u64, i32>,
    /// Position of the block in the order in which blocks start, and its coordinates.
    pub block: (u64, [u32; 3]),
    /// The other blocks of the cluster by rank, while one runs.
    pub peers: Vec<Peer>,
    /// Whether a thread of another block of the cluster is at work here, in this block's shared memory.
    pub visited: bool,
    /// The barrier of the cluster.
    pub meeting: Meeting,
    /// Whether blocks run one after the other, so that a block that waits for a later one waits for ever.
    pub alone: bool,
    /// Warp instructions of this block so far.
    pub steps: u64,
    /// Instructions of the warp that ran the most.
    pub longest: u64,
    /// So many, and its warps are looked at for a loop that waits.
    pub look_at: u64,
    /// Threads that passed `bar.arrive`, by barrier of the block.
    pub arrived: [u32; 24],
    /// Arrivals at barriers in shared memory so far.
    pub arrivals: u64,
    /// Allocation that the last access met.
    pub recent: usize,
    /// The same, by the low bits of the instruction's number: a kernel's buffers take turns.
    pub near: [u32; 16],
    /// What the watched warp accessed.
    pub accesses: Vec<WarpAccess>,
}

impl Env<'_> {
    /// Counts a mistake that was noted before; false if it is new. Words are only found for new ones: a kernel may make
    /// the same mistake in each of a million threads.
    #[cold]
    #[inline(never)]
    pub fn again(&mut self, kind: Kind, pc: u32) -> bool {
        let known = self.found.get_mut(&(pc, kind));
        known.map(|(_, finding)| finding.times += 1).is_some()
    }

    /// Notes a mistake of a lane.
    #[cold]
    #[inline(never)]
    pub fn note(&mut self, kind: Kind, pc: u32, thread: u32, access: Option<(u64, Option<String>)>, message: String) {
        let block = self.block;
        let machine = self.machine;
        let entry = self.found.entry((pc, kind)).or_insert_with(|| {
            let instruction = &machine.kernel.code[pc as usize];
            let source = crate::module::source_line(machine.files, instruction.loc);
            let (address, variable) = access.map_or((None, None), |(a, v)| (Some(a), v));
            let finding = Finding {
                kind,
                source,
                ptx_line: instruction.ptx_line,
                block: block.1,
                thread: Machine::split(thread.into(), machine.block),
                times: 0,
                address,
                parameter: address.and_then(|a| crate::exec::checks::report::parameter(machine, a)),
                variable,
                other: None,
                message,
            };
            (block.0, finding)
        });
        entry.1.times += 1;
    }
}

/// What a block of a cluster lends the one that runs.
pub struct Peer {
    pub shared: Bytes,
    pub shadow: Option<Box<Shadow>>,
    pub ended: bool,
}

/// The barrier of a cluster (`barrier.cluster`): a phase ends when all threads have arrived that have not ended.
#[derive(Clone, Debug, Default)]
pub struct Meeting {
    /// Phases that have ended.
    pub phase: u64,
    /// By rank: threads that have not ended, and those of them that have not arrived.
    pub threads: Vec<(u32, u32)>,
}

/// Lanes that wait to go on at `pc`, until they meet the others at `meet`.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub pc: u32,
    pub mask: u32,
    pub meet: u32,
}

/// Whether a warp can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Ready,
    Waiting(Waiting),
    Done,
}

/// At a barrier of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub id: u32,
    /// Threads that the barrier waits for; all of the block if `None`.
    pub threads: Option<u32>,
    /// What is combined, the row of the result, and this warp's part.
    pub reduce: Option<(BarrierReduce, u32, u32)>,
    /// Groups of products that may be unfinished.
    pub pending: u32,
    pub pc: u32,
}

/// A warp.
pub struct Warp {
    pub narrow: File<u32>,
    pub wide: File<u64>,
    pub preds: Vec<u32>,
    /// What the rows of both files hold when a block starts.
    pub first_rows: (File<u32>, File<u64>),
    /// Lanes that exist and have not ended.
    pub live: u32,
    /// The lanes that run now.
    pub now: Entry,
    pub stack: Vec<Entry>,
    /// What callers keep, innermost last.
    pub frames: Vec<crate::exec::warps::calls::Frame>,
    pub status: Status,
    /// Products of its warpgroup that are unfinished, by their registers.
    pub sums: crate::exec::checks::sums::Sums,
    /// At the cluster's barrier: the phase in which lanes of it arrived last, and which.
    pub met: (u64, u32),
    /// The barrier in shared memory that it asked last in vain: instruction, thread, address, parity or state.
    pub in_vain: Option<(u32, u32, u64, u64)>,
    /// Its strands, while its lanes are apart.
    pub apart: crate::exec::warps::strands::Apart,
    /// Local memory, lane after lane.
    pub local: Bytes,
    /// Linear index in the block of lane 0.
    pub first: u32,
    /// Instructions of its block that it ran.
    pub steps: u64,
    /// Addresses in base rows, as loads and stores have measured them, and for which lanes.
    pub spans: [(u32, Span); SPANS],
}
