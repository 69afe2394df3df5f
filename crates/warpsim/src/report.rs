//! What a launch counted and found.

use crate::counters::{Counters, Lines, Tally};
use crate::decode::Kernel;
use crate::error::SourceLine;
use crate::exec::Outcome;
use crate::finding::Finding;
use crate::module::source_line;
use crate::op::Op;
use crate::watch::WarpAccess;

/// Result of a launch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// Counts of the whole launch.
    pub counters: Counters,
    /// PTX instructions of the warp that ran the most: the longest path through the launch, were all warps to run at once.
    pub longest_warp: u64,
    /// Counts by source line; PTX compiled without `-lineinfo` has none.
    pub lines: Lines,
    /// Loops whose memory instructions may count otherwise on a GPU, as ptxas may lay the loop out in another way.
    pub uneven_loops: Vec<UnevenLoop>,
    /// Mistakes of the kernel, by block. Empty for a kernel that did nothing wrong here.
    pub findings: Vec<Finding>,
    /// What the kernel printed (`printf`), block after block; at most about 1 MiB for each core.
    pub printed: String,
    /// Accesses of the watched warp in program order, 4096 at most. Whole tiles (`wmma.load`, `wmma.store`), whose lanes
    /// have no address each, and `mbarrier` are not among them. Empty unless
    /// [`Device::set_watch`](crate::Device::set_watch) asked for them.
    pub accesses: Vec<WarpAccess>,
}

/// A loop of the PTX that reads or writes memory, and that lanes of one warp left after different numbers of iterations.
///
/// The counters hold for the iterations of the PTX. ptxas may unroll such a loop, or carry the last iterations out together with others
/// under predicates, and then a warp makes another number of requests. Seen on an H200: a softmax whose lanes made 15 or 16
/// iterations of a loop counted 3,648 requests of global loads, and 4,416 here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnevenLoop {
    /// Where the loop goes back to its beginning; `None` where the PTX gives no line.
    pub source: Option<SourceLine>,
    /// The lines of its accesses, each once, in order.
    pub accesses: Vec<SourceLine>,
}

/// The loops of a launch that its warps left unevenly, innermost first.
fn uneven_loops(kernel: &Kernel, files: &[(u32, String)], tally: &[Tally]) -> Vec<UnevenLoop> {
    let mut found: Vec<UnevenLoop> = Vec::new();
    for (end, instruction) in kernel.code.iter().enumerate() {
        let Op::Branch { target, .. } = instruction.op else { continue };
        let start = target as usize;
        if start > end {
            continue;
        }
        // Back at the end, or out of its middle: some lanes of a warp went on, and others did not.
        let leaves = |at: usize| match kernel.code[at].op {
            Op::Branch { target, .. } => at == end || !(start..=end).contains(&(target as usize)),
            _ => false,
        };
        if !(start..=end).any(|at| leaves(at) && tally[at].requests > 0) {
            continue;
        }
        let accessing: Vec<usize> =
            (start..=end).filter(|&at| accesses_memory(&counts(&kernel.code[at].op, &tally[at]))).collect();
        if accessing.is_empty() {
            continue;
        }
        let mut accesses: Vec<SourceLine> =
            accessing.into_iter().filter_map(|at| source_line(files, kernel.code[at].loc)).collect();
        accesses.sort();
        accesses.dedup();
        let one = UnevenLoop { source: source_line(files, instruction.loc), accesses };
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

fn accesses_memory(counts: &Counters) -> bool {
    let other = ["branches", "divergent_branches", "warp_instructions", "thread_instructions", "barriers"];
    counts.rows().iter().any(|(name, count)| *count > 0 && !other.contains(name))
}

impl Report {
    pub(crate) fn new(kernel: &Kernel, files: &[(u32, String)], outcome: Outcome) -> Self {
        let mut counters = Counters::default();
        let mut lines = Lines::new();
        for (instruction, tally) in kernel.code.iter().zip(&outcome.tally) {
            if tally.warps == 0 {
                continue;
            }
            let counts = counts(&instruction.op, tally);
            counters += counts;
            *lines.entry(source_line(files, instruction.loc)).or_default() += counts;
        }
        let uneven_loops = uneven_loops(kernel, files, &outcome.tally);
        let Outcome { longest: longest_warp, findings, printed, accesses, .. } = outcome;
        Self { counters, longest_warp, lines, uneven_loops, findings, printed, accesses }
    }
}

fn counts(op: &Op, tally: &Tally) -> Counters {
    let mut out = Counters { warp_instructions: tally.warps, thread_instructions: tally.lanes, ..Default::default() };
    match op {
        Op::Branch { .. } | Op::BranchTable { .. } => {
            (out.branches, out.divergent_branches) = (tally.warps, tally.requests)
        }
        Op::LoadMatrix(_) => {
            (out.shared_load_wavefronts, out.shared_load_bank_conflicts) = (tally.wavefronts, tally.conflicts);
        }
        Op::StoreMatrix(_) => {
            (out.shared_store_wavefronts, out.shared_store_bank_conflicts) = (tally.wavefronts, tally.conflicts);
        }
        Op::Load(_) | Op::Tile(_) if loads(op) => {
            (out.global_load_requests, out.global_load_sectors) = (tally.requests, tally.sectors);
            (out.shared_load_wavefronts, out.shared_load_bank_conflicts) = (tally.wavefronts, tally.conflicts);
            (out.local_load_requests, out.local_load_sectors) = (tally.local_requests, tally.local_sectors);
        }
        // The hardware counts what it writes to shared memory elsewhere.
        Op::Copy(_) => (out.global_load_requests, out.global_load_sectors) = (tally.requests, tally.sectors),
        Op::Store(_) | Op::Tile(_) => {
            (out.global_store_requests, out.global_store_sectors) = (tally.requests, tally.sectors);
            (out.shared_store_wavefronts, out.shared_store_bank_conflicts) = (tally.wavefronts, tally.conflicts);
            (out.local_store_requests, out.local_store_sectors) = (tally.local_requests, tally.local_sectors);
        }
        Op::Atomic(_) => {
            (out.global_atomics, out.shared_atomics) = (tally.requests, tally.shared);
            (out.shared_atomic_wavefronts, out.shared_atomic_bank_conflicts) = (tally.wavefronts, tally.conflicts);
        }
        Op::Barrier { .. } | Op::BarrierReduce { .. } => out.barriers = tally.warps,
        _ => {}
    }
    out
}

fn loads(op: &Op) -> bool {
    match op {
        Op::Tile(tile) => tile.load,
        _ => true,
    }
}
