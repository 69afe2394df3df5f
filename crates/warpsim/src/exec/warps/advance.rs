//! The interpreter loop with the vector instructions of this processor, whatever flags the caller was built with.

use super::warp::{Stop, steps};
use crate::exec::blocks::state::{Env, Warp};

/// Runs a warp for a number of instructions.
#[derive(Clone, Copy)]
pub struct Advance(fn(&mut Env, &mut Warp, u64) -> Stop);

impl Advance {
    /// Chosen once a launch: with counters or without, for this processor.
    pub fn choose(counters: bool) -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("bmi2") {
            return Self(if counters { counted_avx2 } else { bare_avx2 });
        }
        Self(if counters { steps::<true> } else { steps::<false> })
    }

    /// Runs a warp for at most `quantum` instructions.
    #[inline(always)]
    pub fn run(self, env: &mut Env, warp: &mut Warp, quantum: u64) -> Stop {
        self.0(env, warp, quantum)
    }
}

#[cfg(target_arch = "x86_64")]
fn counted_avx2(env: &mut Env, warp: &mut Warp, quantum: u64) -> Stop {
    // SAFETY: `choose` has asked for the features.
    unsafe { avx2::<true>(env, warp, quantum) }
}

#[cfg(target_arch = "x86_64")]
fn bare_avx2(env: &mut Env, warp: &mut Warp, quantum: u64) -> Stop {
    // SAFETY: `choose` has asked for the features.
    unsafe { avx2::<false>(env, warp, quantum) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
fn avx2<const COUNT: bool>(env: &mut Env, warp: &mut Warp, quantum: u64) -> Stop {
    steps::<COUNT>(env, warp, quantum)
}
