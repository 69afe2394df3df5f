//! The 32 threads of a warp: who they are, shuffles and votes.
//!
//! LLVM's own operations stand behind these, not inline assembly: LLVM knows of them that all lanes must come together.

use core::arch::asm;

/// All 32 lanes.
pub const ALL: u32 = u32::MAX;

/// Lanes of a warp.
pub const LANES: u32 = 32;

unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
    fn down(mask: u32, value: i32, delta: i32, clamp: i32) -> i32;
    #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
    fn up(mask: u32, value: i32, delta: i32, clamp: i32) -> i32;
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    fn bfly(mask: u32, value: i32, lanes: i32, clamp: i32) -> i32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn idx(mask: u32, value: i32, lane: i32, clamp: i32) -> i32;
    #[link_name = "llvm.nvvm.vote.all.sync"]
    fn vote_all(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.any.sync"]
    fn vote_any(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn vote_ballot(mask: u32, predicate: bool) -> u32;
}

/// This thread's lane, 0 to 31.
#[inline(always)]
pub fn lane() -> u32 {
    let lane;
    // SAFETY: it reads a register that every thread has.
    unsafe { asm!("mov.u32 {}, %laneid;", out(reg32) lane, options(pure, nomem, nostack, preserves_flags)) };
    lane
}

/// 32 bits that a shuffle moves to another thread.
pub trait Bits32: Copy + Send {
    /// As bits.
    fn to_bits(self) -> u32;
    /// From bits.
    fn from_bits(bits: u32) -> Self;
}

macro_rules! bits {
    ($($kind:ty: $to:expr, $from:expr;)*) => {$(
        impl Bits32 for $kind {
            #[inline(always)]
            fn to_bits(self) -> u32 {
                $to(self)
            }
            #[inline(always)]
            fn from_bits(bits: u32) -> Self {
                $from(bits)
            }
        }
    )*};
}

bits! {
    f32: f32::to_bits, f32::from_bits;
    u32: |x: u32| x, |x: u32| x;
    i32: |x: i32| x as u32, |x: u32| x as i32;
}

macro_rules! shuffles {
    ($($name:ident = $own:ident($by:ident), $clamp:literal: $what:literal;)*) => {$(
        #[doc = $what]
        ///
        /// All lanes of the mask must come to this call, and the lane that is read must be one of them.
        #[inline(always)]
        pub fn $name<T: Bits32>(mask: u32, value: T, $by: u32) -> T {
            // SAFETY: registers of other lanes are read; a lane that is not there gives any number.
            T::from_bits(unsafe { $own(mask, value.to_bits() as i32, $by as i32, $clamp) } as u32)
        }
    )*};
}

shuffles! {
    shuffle_down = down(delta), 31: "The value of the lane `delta` above (`__shfl_down_sync`); its own where there is none.";
    shuffle_up = up(delta), 0: "The value of the lane `delta` below (`__shfl_up_sync`); its own where there is none.";
    shuffle_xor = bfly(lanes), 31: "The value of the lane whose number differs in these bits (`__shfl_xor_sync`).";
    shuffle = idx(lane), 31: "The value of that lane (`__shfl_sync`).";
}

/// Whether the condition holds in all lanes of the mask (`__all_sync`).
#[inline(always)]
pub fn all(mask: u32, condition: bool) -> bool {
    // SAFETY: it exchanges predicates.
    unsafe { vote_all(mask, condition) }
}

/// Whether the condition holds in any lane of the mask (`__any_sync`).
#[inline(always)]
pub fn any(mask: u32, condition: bool) -> bool {
    // SAFETY: as above.
    unsafe { vote_any(mask, condition) }
}

/// The lanes in which the condition holds, as bits (`__ballot_sync`).
#[inline(always)]
pub fn ballot(mask: u32, condition: bool) -> u32 {
    // SAFETY: as above.
    unsafe { vote_ballot(mask, condition) }
}

/// The sum over the warp, in lane 0.
#[inline(always)]
pub fn sum(value: f32) -> f32 {
    let mut sum = value;
    let mut delta = LANES / 2;
    while delta > 0 {
        sum += shuffle_down(ALL, sum, delta);
        delta /= 2;
    }
    sum
}
