//! The order in which the blocks of a launch start.

use std::fmt;
use std::str::FromStr;

use crate::error::{Result, SimulatorError};

/// The order in which the blocks of a launch start. CUDA promises none, so a kernel must be right in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BlockOrder {
    /// By linear index, as hardware most often does.
    #[default]
    Forward,
    /// The last block first.
    Reverse,
    /// Shuffled by a seed.
    Random(u64),
}

/// Rounds of the Feistel network that shuffles; four make it look random (Luby, Rackoff 1988).
const ROUNDS: u64 = 4;

impl BlockOrder {
    /// Linear index of the block that starts at a position. A permutation of `0..blocks`, without a table: a grid may
    /// have 2^63 blocks.
    pub(crate) fn block(self, position: u64, blocks: u64) -> u64 {
        match self {
            Self::Forward => position,
            Self::Reverse => blocks - 1 - position,
            Self::Random(seed) => {
                // A permutation of the next power of four, walked until it hits the range.
                let half = (u64::BITS - blocks.saturating_sub(1).leading_zeros()).div_ceil(2);
                let mut at = feistel(position, half, seed);
                while at >= blocks {
                    at = feistel(at, half, seed);
                }
                at
            }
        }
    }
}

/// A permutation of the numbers of `2 * half` bits.
fn feistel(x: u64, half: u32, seed: u64) -> u64 {
    let mask = (1u64 << half) - 1;
    let (mut left, mut right) = (x >> half, x & mask);
    for round in 0..ROUNDS {
        (left, right) = (right, left ^ (mix(right ^ mix(seed ^ round)) & mask));
    }
    left << half | right
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

impl fmt::Display for BlockOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forward => f.write_str("forward"),
            Self::Reverse => f.write_str("reverse"),
            Self::Random(seed) => write!(f, "random:{seed}"),
        }
    }
}

impl FromStr for BlockOrder {
    type Err = SimulatorError;

    /// Reads `forward`, `reverse` or `random:SEED`.
    fn from_str(text: &str) -> Result<Self> {
        let seed = text.strip_prefix("random:").and_then(|seed| seed.parse().ok());
        match (text, seed) {
            ("forward", _) => Ok(Self::Forward),
            ("reverse", _) => Ok(Self::Reverse),
            (_, Some(seed)) => Ok(Self::Random(seed)),
            _ => Err(SimulatorError::Call(format!(
                "`{text}` is no order of blocks\nnext: write forward, reverse or random:SEED, such as random:1"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_starts_each_block_once() {
        for order in [BlockOrder::Forward, BlockOrder::Reverse, BlockOrder::Random(1), BlockOrder::Random(u64::MAX)] {
            for blocks in [1, 2, 3, 4, 5, 16, 17, 100, 1023, 1025] {
                let mut started: Vec<u64> = (0..blocks).map(|position| order.block(position, blocks)).collect();
                if blocks > 16 && order != BlockOrder::Forward {
                    assert!(!started.is_sorted(), "{order} of {blocks}");
                }
                started.sort_unstable();
                assert!(started.into_iter().eq(0..blocks), "{order} of {blocks}");
            }
        }
    }

    #[test]
    fn seeds_differ_and_large_grids_need_no_table() {
        let first = |seed, blocks| (0..8).map(|at| BlockOrder::Random(seed).block(at, blocks)).collect::<Vec<_>>();
        assert_ne!(first(1, 1000), first(2, 1000));
        let most = (i32::MAX as u64) * 65_535 * 65_535;
        assert!(first(7, most).into_iter().all(|block| block < most));
        assert_eq!(BlockOrder::Reverse.block(0, most), most - 1);
    }

    #[test]
    fn it_is_read_as_it_is_written() {
        for order in [BlockOrder::Forward, BlockOrder::Reverse, BlockOrder::Random(42)] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for wrong in ["", "backward", "random", "random:", "random:x", "random:-1"] {
            assert!(wrong.parse::<BlockOrder>().unwrap_err().to_string().contains("\nnext: "), "{wrong}");
        }
    }
}
