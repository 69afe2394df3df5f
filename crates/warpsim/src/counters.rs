//! Counters, as hardware counts them; each names the Nsight Compute metric that it stands for.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::error::SourceLine;

/// Counts of a launch, or of one source line.
///
/// Requests, sectors, wavefronts and conflicts follow the memory system; instructions and branches are those of the
/// PTX, which ptxas may still merge, unroll or turn into predicates. `wmma.load` and `wmma.store` count as the loads
/// and stores that ptxas makes of them.
///
/// There will be more of them: a literal ends in `..Counters::default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// PTX instructions executed, once a warp. Near `smsp__inst_executed.sum`, which counts SASS.
    pub warp_instructions: u64,
    /// The same times the lanes that were active. Near `smsp__thread_inst_executed.sum`.
    pub thread_instructions: u64,
    /// Conditional and unconditional branches, once a warp. Near `smsp__inst_executed_op_branch.sum`.
    pub branches: u64,
    /// Branches whose active lanes took both paths. Near `smsp__sass_branch_targets_threads_divergent.sum`.
    pub divergent_branches: u64,
    /// Load instructions on global memory with at least one lane, once a warp; `cp.async` is one:
    /// `l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum`.
    pub global_load_requests: u64,
    /// Different 32-byte sectors that each of those requests touches, summed. A `cp.async.cg`, which goes past L1, counts
    /// for each 128-byte line of its source the sectors that it fills in shared memory:
    /// `l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum`.
    pub global_load_sectors: u64,
    /// Store instructions on global memory: `l1tex__t_requests_pipe_lsu_mem_global_op_st.sum`.
    pub global_store_requests: u64,
    /// Their sectors: `l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum`.
    pub global_store_sectors: u64,
    /// Passes that loads from shared memory take: 32 banks of 4 bytes, one word a bank and pass. Loads of 8 bytes per
    /// lane go by half warps, of 16 bytes by quarters; two of these go as one when all lanes of the warp read the same
    /// as their lane ^ 1, or all the same as their lane ^ 2 (inactive lanes agree with any). `ldmatrix` goes matrix by
    /// matrix: `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum`.
    pub shared_load_wavefronts: u64,
    /// Passes beyond one for each (part of a) warp: `l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum`.
    pub shared_load_bank_conflicts: u64,
    /// Passes of stores, whose parts are never joined; the hardware counts `cp.async` in neither:
    /// `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum`.
    pub shared_store_wavefronts: u64,
    /// Their conflicts: `l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum`.
    pub shared_store_bank_conflicts: u64,
    /// Passes of atomics on shared memory: a bank serves one lane a pass, even on the same word, and a compare-and-swap
    /// passes twice. Only a count (1 is added, and nobody reads the result) takes all lanes of a word at once.
    /// Sums of floats or of 64 bits are loops that ptxas makes, and take more: `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum`.
    pub shared_atomic_wavefronts: u64,
    /// Lanes of them that wait for a bank: `l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum`.
    pub shared_atomic_bank_conflicts: u64,
    /// Words of 4 bytes, once a warp, of loads from local memory, such as arrays with a computed index; ptxas may add
    /// spills of its own:
    /// `l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum`.
    pub local_load_requests: u64,
    /// Their sectors: word w of 32 lanes lies together, in four sectors: `l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum`.
    pub local_load_sectors: u64,
    /// Words of stores to local memory: `l1tex__t_requests_pipe_lsu_mem_local_op_st.sum`.
    pub local_store_requests: u64,
    /// Their sectors: `l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum`.
    pub local_store_sectors: u64,
    /// Atomics and reductions on global memory, once a warp: `l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum` and
    /// `l1tex__t_requests_pipe_lsu_mem_global_op_red.sum` together.
    pub global_atomics: u64,
    /// Atomics on shared memory, once a warp: `smsp__inst_executed_op_shared_atom.sum`.
    pub shared_atomics: u64,
    /// Barriers of the block, once for each warp that arrives: `BAR` in `sass__inst_executed_per_opcode`.
    pub barriers: u64,
}

impl Counters {
    /// Active lanes of an average instruction, 32 at best: near `smsp__thread_inst_executed_per_inst_executed.ratio`.
    pub fn active_lanes_per_instruction(&self) -> f64 {
        self.thread_instructions as f64 / self.warp_instructions.max(1) as f64
    }

    /// Names and values, in a fixed order.
    pub fn rows(&self) -> [(&'static str, u64); 21] {
        [
            ("global_load_requests", self.global_load_requests),
            ("global_load_sectors", self.global_load_sectors),
            ("global_store_requests", self.global_store_requests),
            ("global_store_sectors", self.global_store_sectors),
            ("shared_load_wavefronts", self.shared_load_wavefronts),
            ("shared_load_bank_conflicts", self.shared_load_bank_conflicts),
            ("shared_store_wavefronts", self.shared_store_wavefronts),
            ("shared_store_bank_conflicts", self.shared_store_bank_conflicts),
            ("shared_atomic_wavefronts", self.shared_atomic_wavefronts),
            ("shared_atomic_bank_conflicts", self.shared_atomic_bank_conflicts),
            ("local_load_requests", self.local_load_requests),
            ("local_load_sectors", self.local_load_sectors),
            ("local_store_requests", self.local_store_requests),
            ("local_store_sectors", self.local_store_sectors),
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
        self.shared_atomic_wavefronts += other.shared_atomic_wavefronts;
        self.shared_atomic_bank_conflicts += other.shared_atomic_bank_conflicts;
        self.local_load_requests += other.local_load_requests;
        self.local_load_sectors += other.local_load_sectors;
        self.local_store_requests += other.local_store_requests;
        self.local_store_sectors += other.local_store_sectors;
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
    /// On local memory.
    pub local_requests: u64,
    pub local_sectors: u64,
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
        self.local_requests += other.local_requests;
        self.local_sectors += other.local_sectors;
    }
}
