//! Blocks over cores, blocks that wait for each other, and what a launch, a block and a warp keep.

pub mod barriers;
pub mod block;
pub mod launch;
pub mod resident;
pub mod setup;
pub mod state;
pub mod wait;
