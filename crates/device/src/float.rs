//! Floating-point operations that `core` lacks, and 16-bit floats.

use core::arch::asm;

macro_rules! unary {
    ($($name:ident = $instruction:literal: $what:literal;)*) => {
        /// Operations on `f32` beside those of `core`.
        pub trait Float: Sized {
            /// `self * by + plus`, rounded once (`fmaf`). rustc does not join a product and a sum by itself, as NVRTC does.
            fn fma(self, by: Self, plus: Self) -> Self;
            $(#[doc = $what] fn $name(self) -> Self;)*
        }

        impl Float for f32 {
            #[inline(always)]
            fn fma(self, by: f32, plus: f32) -> f32 {
                core::intrinsics::fmaf32(self, by, plus)
            }
            $(
                #[inline(always)]
                fn $name(self) -> f32 {
                    let y;
                    // SAFETY: arithmetic on registers.
                    unsafe {
                        asm!(concat!($instruction, " {}, {};"), out(reg32) y, in(reg32) self,
                            options(pure, nomem, nostack, preserves_flags));
                    }
                    y
                }
            )*
        }
    };
}

unary! {
    square_root = "sqrt.rn.f32": "The square root, rounded (`sqrtf`).";
    rsqrt_approx = "rsqrt.approx.f32": "One divided by the square root, to about 22 bits (`rsqrtf`).";
    exp2_approx = "ex2.approx.f32": "2 to that power, to about 22 bits (`exp2f` with fast math).";
    exp2_fast = "ex2.approx.ftz.f32": "The same in one instruction: what is below the smallest normal number becomes 0 (`__expf`'s own).";
    log2_approx = "lg2.approx.f32": "The logarithm to base 2, to about 22 bits (`__log2f`).";
    tanh_approx = "tanh.approx.f32": "The hyperbolic tangent, to about 11 bits.";
}

/// A 16-bit float with the exponent of `f32` (`__nv_bfloat16`), as its bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct Bf16(pub u16);

impl Bf16 {
    /// Rounds to the nearest.
    #[inline(always)]
    pub fn from_f32(x: f32) -> Bf16 {
        let bits;
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!("cvt.rn.bf16.f32 {}, {};", out(reg16) bits, in(reg32) x, options(pure, nomem, nostack, preserves_flags));
        }
        Bf16(bits)
    }

    /// Rounds two numbers, the first into the lower half (`__floats2bfloat162_rn`).
    #[inline(always)]
    pub fn pair_from_f32(low: f32, high: f32) -> u32 {
        let bits;
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!("cvt.rn.bf16x2.f32 {}, {}, {};", out(reg32) bits, in(reg32) high, in(reg32) low,
                options(pure, nomem, nostack, preserves_flags));
        }
        bits
    }

    /// The same number in 32 bits.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// A 16-bit float of IEEE 754 (`__half`), as its bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct F16(pub u16);

impl F16 {
    /// Rounds to the nearest.
    #[inline(always)]
    pub fn from_f32(x: f32) -> F16 {
        let bits;
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!("cvt.rn.f16.f32 {}, {};", out(reg16) bits, in(reg32) x, options(pure, nomem, nostack, preserves_flags));
        }
        F16(bits)
    }

    /// The same number in 32 bits.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        let x;
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!("cvt.f32.f16 {}, {};", out(reg32) x, in(reg16) self.0, options(pure, nomem, nostack, preserves_flags));
        }
        x
    }
}
