//! What of an atomic can be seen, and whether the order of blocks can.

use std::collections::HashSet;

use crate::op::{Atomic, AtomicOp, Instruction, Op, Slot};
use crate::ptx::types::Space;

/// Takes away results that no instruction reads, as ptxas does: `atom` then is `red`.
pub fn drop_unread(code: &mut [Instruction], read: &HashSet<(bool, Slot)>) {
    for instruction in code {
        if let Op::Atomic(atomic) = &mut instruction.op {
            let wide = atomic.wide;
            let olds = std::iter::once(&mut atomic.d).chain(atomic.more.iter_mut().map(|m| &mut m.0));
            olds.for_each(|d| *d = d.filter(|d| read.contains(&(wide, *d))));
        }
    }
}

/// Integer sums, minima and bit operations give the same in any order; what an atomic returned, float sums,
/// exchanges and wrapping counters do not, nor does what a volatile or ordered load finds.
pub fn needs_block_order(code: &[Instruction]) -> bool {
    code.iter().any(|instruction| match &instruction.op {
        Op::Atomic(atomic) if atomic.address.space != Space::Shared => shows(atomic),
        Op::Load(load) => load.strong && matches!(load.address.space, Space::Global | Space::Generic),
        _ => false,
    })
}

fn shows(atomic: &Atomic) -> bool {
    use AtomicOp::{AddF, AddHalf, CompareSwap, Dec, Exchange, Inc};
    matches!(atomic.op, AddF | AddHalf(_) | CompareSwap | Dec | Exchange | Inc)
        || atomic.d.is_some()
        || atomic.more.iter().any(|m| m.0.is_some())
}
