//! What the simulator saw of a launch: plain data.

use warpsim::{AccessKind, Counters, Finding, Space, UnevenLoop};

/// A launch that ran in the simulator, to look into. As the last expression of a cell it shows its counters and findings.
#[derive(Debug, Clone)]
#[must_use = "an inspection shows itself as the last expression of a cell, without a semicolon"]
pub struct Inspection {
    /// The kernel's name.
    pub kernel: String,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Shared memory of a block, in bytes: static and dynamic.
    pub shared_bytes: u64,
    /// Counts of the whole launch.
    pub counters: Counters,
    /// Instructions of the warp that ran the most.
    pub longest_warp: u64,
    /// Loops whose accesses may count otherwise on a GPU: lanes of a warp left them after different numbers of iterations.
    pub uneven_loops: Vec<UnevenLoop>,
    /// Every line of the source, in order, with its counts.
    pub lines: Vec<Line>,
    /// The warp whose accesses were kept: its block (x, y, z), and its number in that block.
    pub watched: ([u32; 3], u32),
    /// The accesses of that warp, in the order in which it made them.
    pub accesses: Vec<Access>,
    /// What is wrong with the kernel, once for each instruction.
    pub findings: Vec<Finding>,
    /// What the kernel printed.
    pub printed: String,
}

/// One line of a kernel's source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// Its number, from 1.
    pub number: u32,
    /// Its text, as it stands in the source.
    pub text: String,
    /// What the instructions of this line counted, over all warps.
    pub counters: Counters,
}

/// One memory instruction of the watched warp, with the address of each lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The source line's number, where the PTX gives it.
    pub line: Option<u32>,
    /// That line's text, without the spaces around it; empty where it is not known.
    pub text: String,
    /// Which memory.
    pub space: Space,
    /// What was done there.
    pub kind: AccessKind,
    /// Bytes per lane.
    pub bytes: u32,
    /// The parameter or variable that the addresses belong to; empty where it is not known.
    pub variable: String,
    /// Address of the variable's first byte in its memory; 0 where it is not known.
    pub base: u64,
    /// For each lane the bytes from `base` to its address; `None` where the lane took no part.
    pub offsets: [Option<u64>; 32],
    /// Different 32-byte sectors touched, for global memory.
    pub sectors: u64,
    /// Passes that the banks take, for shared memory.
    pub wavefronts: u64,
    /// Passes beyond the least, for shared memory.
    pub conflicts: u64,
}
