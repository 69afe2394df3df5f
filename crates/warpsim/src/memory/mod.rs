//! Memory of the device: allocations with bounds, and the windows of the generic address space.

mod bytes;
mod device;
mod lanes;
mod span;

pub use bytes::Bytes;
pub use device::{Allocation, DeviceMemory};
pub use lanes::Lanes;
pub use span::{PIECE, Piece, Span};

use crate::ptx::types::Space;

/// Each window is 4 GiB of the generic address space (PTX ISA, "Generic Addressing": `.shared`, `.local` and `.param` map into it).
const WINDOW: u64 = 1 << 32;
/// Generic address of shared address 0.
pub const SHARED_WINDOW: u64 = WINDOW;
/// Generic address of local address 0.
pub const LOCAL_WINDOW: u64 = 2 * WINDOW;
/// Generic address of parameter address 0.
pub const PARAM_WINDOW: u64 = 3 * WINDOW;
/// Where allocations start.
pub const GLOBAL_START: u64 = 16 * WINDOW;

/// Shared addresses of another block of the cluster: from this bit on its rank, plus 1.
const RANK: u32 = 24;

/// A shared address (generic or not) in the block of a rank, where that is not its own.
pub fn in_block(address: u64, rank: u64) -> u64 {
    let within = address & ((1 << RANK) - 1) | address >> 32 << 32;
    within | (rank + 1) << RANK
}

/// The rank of the block that a shared address belongs to, unless that is its user's own, and the address there.
#[inline(always)]
pub fn of_block(address: u64) -> (Option<u64>, u64) {
    match address >> RANK {
        0 => (None, address),
        rank => (Some(rank - 1), address & ((1 << RANK) - 1)),
    }
}

/// Space and offset within it of a generic address.
#[inline(always)]
pub fn from_generic(address: u64) -> (Space, u64) {
    match address / WINDOW {
        1 => (Space::Shared, address - SHARED_WINDOW),
        2 => (Space::Local, address - LOCAL_WINDOW),
        3 => (Space::Param, address - PARAM_WINDOW),
        _ => (Space::Global, address),
    }
}

/// What is added to an address of a space to make it generic.
pub fn window(space: Space) -> u64 {
    match space {
        Space::Shared => SHARED_WINDOW,
        Space::Local => LOCAL_WINDOW,
        Space::Param => PARAM_WINDOW,
        Space::Generic | Space::Global | Space::Const => 0,
    }
}
