//! One warp, watched: each of its accesses to memory is kept with the addresses of its lanes.

use crate::error::SourceLine;

/// The warp whose accesses a launch keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchedWarp {
    /// Block: x, y, z.
    pub block: [u32; 3],
    /// Warp of that block, from 0: its thread 0 has the linear index 32 × warp.
    pub warp: u32,
}

/// The memory that an access goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Memory of the device; constant memory too.
    Global,
    /// Memory of the block.
    Shared,
    /// Memory of the thread.
    Local,
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Reads and writes in one, as `atomicAdd` does.
    Atomic,
}

impl AccessKind {
    /// `load`, `store` or `atomic`.
    pub fn name(self) -> &'static str {
        match self {
            AccessKind::Load => "load",
            AccessKind::Store => "store",
            AccessKind::Atomic => "atomic",
        }
    }
}

/// An access of the watched warp: one instruction, executed once, in one space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarpAccess {
    /// Line of the CUDA source, when the PTX has it (compile with `-lineinfo`).
    pub source: Option<SourceLine>,
    /// Line of the PTX text.
    pub ptx_line: u32,
    /// Which memory.
    pub space: Space,
    /// What it does.
    pub kind: AccessKind,
    /// Bytes that each lane accesses.
    pub bytes: u32,
    /// Lanes that take part, lane 0 in the lowest bit; one whose access was refused (see the findings) is among them.
    pub mask: u32,
    /// Address of each lane in the space; 0 for lanes that take no part.
    pub addresses: [u64; 32],
    /// Variable or parameter that the first lane's address lies in, as far as known.
    pub variable: Option<String>,
    /// Where that variable or allocation starts.
    pub base: Option<u64>,
    /// 32-byte sectors touched, as [`Counters`](crate::Counters) counts them; 0 outside global memory.
    pub sectors: u64,
    /// Passes through the banks, as [`Counters`](crate::Counters) counts them; 0 outside shared memory and for atomics.
    pub wavefronts: u64,
    /// Passes beyond those that the access takes at least.
    pub conflicts: u64,
}
