//! What is wrong with a kernel.

use std::fmt;

use crate::error::SourceLine;

/// The kind of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// An access outside every buffer, array or parameter.
    OutOfBounds,
    /// An address that is no multiple of the access's size.
    Misaligned,
    /// A read of memory that nothing has written.
    UninitialisedRead,
    /// Two threads of a block use the same shared memory, one of them writes, and no barrier is between.
    SharedRace,
    /// Two threads use the same global memory, one of them writes, and nothing orders the two: no barrier within a block,
    /// no atomics with fences between blocks.
    GlobalRace,
    /// Memory or a register is used before an asynchronous operation on it was waited for: a copy (`cp.async`, the copy
    /// engine's) or a product of a warpgroup.
    Unfinished,
    /// A fence is missing that an asynchronous operation needs: `fence.proxy.async` between ordinary writes and its reads, or
    /// `wgmma.fence` before it uses registers.
    MissingFence,
    /// Two threads each read a word and write it back, changed, by two volatile or atomic accesses, and nothing orders the
    /// two threads: one of the changes is lost.
    LostUpdate,
    /// A barrier, or an exchange between lanes, that some of its threads do not reach.
    BarrierDivergence,
    /// Threads wait for each other for ever.
    Deadlock,
    /// A block waits for one that has not started, and need not ever start: only a cooperative launch promises that all
    /// blocks run at the same time.
    BlockOrder,
    /// The launch took more steps than it may: an endless loop, most likely.
    StepBudget,
    /// The kernel executed `trap` (a failed `assert`, `__trap()`).
    Trap,
}

impl Kind {
    /// The name used in machine-readable output.
    pub fn name(self) -> &'static str {
        match self {
            Self::OutOfBounds => "out_of_bounds",
            Self::Misaligned => "misaligned",
            Self::UninitialisedRead => "uninitialised_read",
            Self::SharedRace => "shared_race",
            Self::GlobalRace => "global_race",
            Self::Unfinished => "unfinished",
            Self::MissingFence => "missing_fence",
            Self::LostUpdate => "lost_update",
            Self::BarrierDivergence => "barrier_divergence",
            Self::Deadlock => "deadlock",
            Self::BlockOrder => "block_order",
            Self::StepBudget => "step_budget",
            Self::Trap => "trap",
        }
    }

    /// The name in plain words, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::OutOfBounds => "access out of bounds",
            Self::Misaligned => "misaligned access",
            Self::UninitialisedRead => "read of memory that nothing has written",
            Self::SharedRace => "data race in shared memory",
            Self::GlobalRace => "data race in global memory",
            Self::Unfinished => "use before an asynchronous operation was waited for",
            Self::MissingFence => "missing fence",
            Self::LostUpdate => "lost update",
            Self::BarrierDivergence => "barrier that not all threads reach",
            Self::Deadlock => "deadlock",
            Self::BlockOrder => "wait that depends on the order of blocks",
            Self::StepBudget => "loop that does not end",
            Self::Trap => "the kernel stopped itself",
        }
    }
}

/// The other access of a race.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// Line of the CUDA source, when the PTX has it.
    pub source: Option<SourceLine>,
    /// Line of the PTX text.
    pub ptx_line: u32,
    /// Its block: x, y, z.
    pub block: [u32; 3],
    /// Its thread: x, y, z.
    pub thread: [u32; 3],
    /// Whether it writes.
    pub writes: bool,
}

/// A mistake, once for each source line and variable (for a race, each pair of lines): the first block and thread that
/// met it stand for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub kind: Kind,
    /// Line of the CUDA source, when the PTX has it (compile with `-lineinfo`).
    pub source: Option<SourceLine>,
    /// Line of the PTX text.
    pub ptx_line: u32,
    /// First block that met it: x, y, z.
    pub block: [u32; 3],
    /// First thread of that block: x, y, z.
    pub thread: [u32; 3],
    /// How often it happened, over all threads.
    pub times: u64,
    /// Address, for accesses.
    pub address: Option<u64>,
    /// Parameter or variable that the address belongs to, as far as known.
    pub variable: Option<String>,
    /// Number of the kernel's parameter that points to the address's buffer, from 0: who knows the source can name it.
    pub parameter: Option<usize>,
    /// The access that it races with, for races.
    pub other: Option<Box<Other>>,
    /// What happened, and what to do.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{source}: ")?,
            None => write!(f, "PTX line {}: ", self.ptx_line)?,
        }
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(f, "{}: block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})", self.kind.name())?;
        write!(f, ": {}", self.message)?;
        if self.times > 1 {
            write!(f, " ({} times in all)", self.times)?;
        }
        Ok(())
    }
}
