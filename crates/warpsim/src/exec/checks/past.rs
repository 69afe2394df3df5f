//! Accesses, as they come and as they are remembered.

use super::clock::WARPS;
use crate::ptx::types::Space;

/// An element that is read or written.
#[derive(Clone, Copy, Debug)]
pub struct Element {
    pub thread: u32,
    pub pc: u32,
    pub space: Space,
    /// Address in the space.
    pub address: u64,
    pub len: u8,
    pub read: bool,
    pub write: bool,
    /// Atomic or volatile.
    pub strong: bool,
    /// A write that leaves the value as it is.
    pub same: bool,
}

/// An access as a word remembers it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Access {
    /// Linear index in the block, plus 1; 0 is nobody.
    pub thread: u32,
    /// Instruction.
    pub pc: u32,
    /// Clock of the thread's warp.
    pub epoch: u32,
    /// Bytes of the word.
    pub bytes: u8,
    /// Atomic or volatile.
    pub strong: bool,
    /// Whether it writes.
    pub write: bool,
    /// The channel of an asynchronous access, whose group or phase is its epoch; 0 for others.
    pub channel: u8,
    /// Of an asynchronous access: clock of the thread's warp when it was begun.
    pub began: u32,
}

impl Access {
    /// An access of now.
    pub fn new(thread: u32, pc: u32, strong: bool, write: bool) -> Self {
        Self { thread: thread + 1, pc, epoch: 0, bytes: 0, strong, write, channel: 0, began: 0 }
    }

    /// The warp of its thread.
    #[inline(always)]
    pub fn warp(&self) -> usize {
        (self.thread.wrapping_sub(1) / 32) as usize % WARPS
    }
}

/// An access, and its block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Past {
    pub access: Access,
    pub block: u64,
}
