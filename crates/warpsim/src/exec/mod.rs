//! Kernels run: blocks over cores, warps of a block in turn, lanes of a warp in lockstep.

mod access;
mod blocks;
mod checks;
mod values;
mod warps;

pub use blocks::launch::{Outcome, launch};
pub use blocks::state::Machine;
pub use values::half::narrow as narrow_half;
pub use warps::advance::Advance;
