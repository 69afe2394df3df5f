//! A vector clock of the warps of a block.

/// Warps of a block at most.
pub const WARPS: usize = 32;
/// Of each warp of a block, until when its past is known.
pub type Clock = [u32; WARPS];

/// The later of both, warp by warp.
pub fn join(into: &mut Clock, from: &Clock) {
    into.iter_mut().zip(from).for_each(|(x, y)| *x = (*x).max(*y));
}
