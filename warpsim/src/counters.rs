//! Counters, as hardware counts them; each names the Nsight Compute metric that it stands for.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::error::SourceLine;

/// Counts of a launch, or of one source line.
///
/// Requests, sectors, wavefronts and conflicts follow the memory system; instructions and branches are those of the
/// PTX, which ptxas may still merge, unroll or turn into predicates. `wmma.load` and `wmma.store` add nothing to requests,
/// sectors and wavefronts: the ISA leaves open which lane accesses what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// PTX instructions executed, once a warp. Near `smsp__inst_executed.sum`, which counts SASS.
    pub warp_instructions: u64,
    /// The same times the lanes that were active. Near `smsp__thread_inst_executed.sum`.
    pub thread_instructions: u64,
    /// Conditional and unconditional branches, once a warp. Near `smsp__sass_branch_targets.sum`.
    pub branches: u64,
    /// Branches whose active lanes went both ways. Near `smsp__sass_branch_targets_threads_divergent.sum`.
    pub divergent_branches: u64,
    /// Load instructions on global memory with at least one lane, once a warp:
    /// `l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum`.
    pub global_load_requests: u64,
    /// Different 32-byte sectors that each of those requests touches, summed:
    /// `l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum`.
    pub global_load_sectors: u64,
    /// Store instructions on global memory: `l1tex__t_requests_pipe_lsu_mem_global_op_st.sum`.
    pub global_store_requests: u64,
    /// Their sectors: `l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum`.
    pub global_store_sectors: u64,
    /// Passes that loads from shared memory take: 32 banks of 4 bytes, one word a bank and pass. Loads of 8 bytes a
    /// lane go by half warps, of 16 bytes by quarters, and two of these go as one when each lane reads the same as
    /// lane ^ 1, or each the same as lane ^ 2: `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum`.
    pub shared_load_wavefronts: u64,
    /// Passes beyond one for each (part of a) warp: `l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum`.
    pub shared_load_bank_conflicts: u64,
    /// Passes of stores, whose parts are never joined: `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum`.
    pub shared_store_wavefronts: u64,
    /// Their conflicts: `l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum`.
    pub shared_store_bank_conflicts: u64,
    /// Atomics and reductions on global memory, once a warp: near `smsp__inst_executed_op_global_atom.sum` and
    /// `smsp__inst_executed_op_global_red.sum` together.
    pub global_atomics: u64,
    /// Atomics on shared memory, once a warp: near `smsp__inst_executed_op_shared_atom.sum`.
    pub shared_atomics: u64,
    /// Barriers of the block, once for each warp that arrives: near `smsp__inst_executed_pipe_adu.sum`.
    pub barriers: u64,
}

impl Counters {
    /// Active lanes of an average instruction, 32 at best: near `smsp__thread_inst_executed_per_inst_executed.ratio`.
    pub fn active_lanes_per_instruction(&self) -> f64 {
        self.thread_instructions as f64 / self.warp_instructions.max(1) as f64
    }

    /// Names and values, in a fixed order.
    pub fn rows(&self) -> [(&'static str, u64); 15] {
        [
            ("global_load_requests", self.global_load_requests),
            ("global_load_sectors", self.global_load_sectors),
            ("global_store_requests", self.global_store_requests),
            ("global_store_sectors", self.global_store_sectors),
            ("shared_load_wavefronts", self.shared_load_wavefronts),
            ("shared_load_bank_conflicts", self.shared_load_bank_conflicts),
            ("shared_store_wavefronts", self.shared_store_wavefronts),
            ("shared_store_bank_conflicts", self.shared_store_bank_conflicts),
            ("branches", self.branches),
            ("divergent_branches", self.divergent_branches),
            ("warp_instructions", self.warp_instructions),
            ("thread_instructions", self.thread_instructions),
            ("global_atomics", self.global_atomics),
            ("shared_atomics", self.shared_atomics),
            ("barriers", self.barriers),
        ]
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.warp_instructions += other.warp_instructions;
        self.thread_instructions += other.thread_instructions;
        self.branches += other.branches;
        self.divergent_branches += other.divergent_branches;
        self.global_load_requests += other.global_load_requests;
        self.global_load_sectors += other.global_load_sectors;
        self.global_store_requests += other.global_store_requests;
        self.global_store_sectors += other.global_store_sectors;
        self.shared_load_wavefronts += other.shared_load_wavefronts;
        self.shared_load_bank_conflicts += other.shared_load_bank_conflicts;
        self.shared_store_wavefronts += other.shared_store_wavefronts;
        self.shared_store_bank_conflicts += other.shared_store_bank_conflicts;
        self.global_atomics += other.global_atomics;
        self.shared_atomics += other.shared_atomics;
        self.barriers += other.barriers;
    }
}

/// Counters by source line; `None` holds what the PTX gives no line for.
pub type Lines = BTreeMap<Option<SourceLine>, Counters>;

/// Counts of one instruction while it runs; the fields' meaning depends on the instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub warps: u64,
    pub lanes: u64,
    /// Executions with at least one lane that does something, on global memory (or divergent, for branches).
    pub requests: u64,
    pub sectors: u64,
    /// On shared memory.
    pub shared: u64,
    pub wavefronts: u64,
    pub conflicts: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.warps += other.warps;
        self.lanes += other.lanes;
        self.requests += other.requests;
        self.sectors += other.sectors;
        self.shared += other.shared;
        self.wavefronts += other.wavefronts;
        self.conflicts += other.conflicts;
    }
}

/// Different 32-byte sectors among the addresses of the lanes; aligned elements of at most 32 bytes lie in one each.
#[inline]
pub(crate) fn sectors(addresses: &[u64; 32], mask: u32) -> u64 {
    let mut seen = [0u64; 32];
    let (mut count, mut sorted) = (0, true);
    let mut rest = mask;
    while rest != 0 {
        let sector = addresses[rest.trailing_zeros() as usize] >> 5;
        rest &= rest - 1;
        if count > 0 && seen[count - 1] == sector {
            continue;
        }
        sorted &= count == 0 || seen[count - 1] < sector;
        seen[count] = sector;
        count += 1;
    }
    if !sorted {
        seen[..count].sort_unstable();
        let different = seen[..count].windows(2).filter(|w| w[0] != w[1]).count();
        return different as u64 + 1;
    }
    count as u64
}

/// Wavefronts of a shared access of `bytes` a lane, and those that it takes at least: one for each part of the warp
/// that goes by itself. `LOAD`s may go in fewer parts than stores, see [`joined`].
#[inline]
pub(crate) fn wavefronts<const LOAD: bool>(addresses: &[u64; 32], mask: u32, bytes: u32) -> (u64, u64) {
    if mask == u32::MAX && bytes <= 4 {
        // Words less than 32 apart share a bank only with themselves.
        let (mut low, mut high) = (u64::MAX, 0);
        for address in addresses {
            low = low.min(address >> 2);
            high = high.max(address >> 2);
        }
        if high - low < 32 {
            return (1, 1);
        }
    }
    if bytes <= 4 {
        return (passes(addresses, mask, 1), 1);
    }
    // Halves of a warp for 8 bytes, quarters for 16; what may be joined is the warp, or each of its halves.
    let (whole, words) = if bytes <= 8 { (32, 2) } else { (16, 4) };
    let (mut waves, mut least) = (0, 0);
    for first in (0..32).step_by(whole) {
        let part = if LOAD && joined(addresses, mask, first, whole) { whole } else { whole / 2 };
        for first in (first..first + whole).step_by(part) {
            let members = mask & u32::MAX >> (32 - part) << first;
            if members != 0 {
                waves += passes(addresses, members, words);
                least += 1;
            }
        }
    }
    (waves, least)
}

/// Whether a load serves two parts of a warp at once: when each lane reads the same word as its neighbour (lane ^ 1),
/// or each the same as its neighbour but one (lane ^ 2). A lane that is not active agrees with all.
fn joined(addresses: &[u64; 32], mask: u32, first: usize, lanes: usize) -> bool {
    [1, 2].into_iter().any(|step| {
        (first..first + lanes).all(|lane| {
            let other = lane ^ step;
            addresses[lane] == addresses[other] || mask >> lane & mask >> other & 1 == 0
        })
    })
}

/// The most different words in one bank.
fn passes(addresses: &[u64; 32], mut members: u32, words: usize) -> u64 {
    let mut first = [u64::MAX; 32];
    let mut more: Vec<u64> = Vec::new();
    while members != 0 {
        let word = addresses[members.trailing_zeros() as usize] >> 2;
        members &= members - 1;
        for word in word..word + words as u64 {
            let slot = &mut first[word as usize & 31];
            if *slot == u64::MAX {
                *slot = word;
            } else if *slot != word {
                more.push(word);
            }
        }
    }
    if more.is_empty() {
        return 1;
    }
    more.sort_unstable();
    more.dedup();
    let mut count = [1u64; 32];
    more.iter().for_each(|w| count[*w as usize & 31] += 1);
    count.into_iter().max().unwrap_or(1)
}
