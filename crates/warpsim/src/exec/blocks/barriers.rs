//! Numbers of a block's barriers.

/// The first of the warpgroups' own barriers, among those of a block.
pub const WARPGROUPS: u32 = 16;
/// The barrier of the cluster, among those of the block (0 to 15) and of its warpgroups (16 to 23).
pub const CLUSTER: u32 = 24;
