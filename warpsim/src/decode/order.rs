//! Whether the order of blocks can show in the result.

use std::collections::HashSet;

use crate::op::{Atomic, AtomicOp, Instruction, Op, Slot};
use crate::ptx::types::Space;

/// Integer sums, minima and bit operations give the same in any order; what an atomic returned, float sums,
/// exchanges and wrapping counters do not.
pub fn needs_block_order(code: &[Instruction], read: &HashSet<(bool, Slot)>) -> bool {
    code.iter().any(|instruction| match &instruction.op {
        Op::Atomic(atomic) if atomic.address.space != Space::Shared => shows(atomic, read),
        _ => false,
    })
}

fn shows(atomic: &Atomic, read: &HashSet<(bool, Slot)>) -> bool {
    use AtomicOp::{AddF, CompareSwap, Dec, Exchange, Inc};
    matches!(atomic.op, AddF | CompareSwap | Dec | Exchange | Inc)
        || atomic.d.is_some_and(|d| read.contains(&(atomic.wide, d)))
}
