//! Blocks over cores, and what a launch, a block and a warp keep.

pub mod block;
pub mod launch;
pub mod setup;
pub mod state;
