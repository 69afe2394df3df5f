//! Vectors of f32 as this CPU has them, by name: left to itself, the compiler makes good use of them in one function and
//! none in the next, by a factor of ten.

/// A vector that fits a register.
pub(super) trait Lanes: Copy {
    /// How many numbers it holds.
    const COUNT: usize;

    fn zero() -> Self;

    /// Its numbers, from memory.
    ///
    /// # Safety
    /// [`Lanes::COUNT`] numbers lie behind the pointer, and this CPU has such vectors.
    unsafe fn load(from: *const f32) -> Self;

    /// Its numbers, to memory.
    ///
    /// # Safety
    /// As [`Lanes::load`].
    unsafe fn store(self, to: *mut f32);

    /// `self + x · w`, the same `x` for each lane.
    ///
    /// # Safety
    /// This CPU has such vectors.
    unsafe fn add_product(self, x: f32, w: Self) -> Self;
}

/// Four numbers: every 64-bit CPU has vectors for so many, and the compiler finds them.
#[derive(Clone, Copy)]
pub(super) struct Four([f32; 4]);

impl Lanes for Four {
    const COUNT: usize = 4;

    #[inline(always)]
    fn zero() -> Four {
        Four([0.0; 4])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Four {
        // SAFETY: the caller's; no alignment is needed.
        Four(unsafe { from.cast::<[f32; 4]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's; no alignment is needed.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn add_product(self, x: f32, w: Four) -> Four {
        // Of aarch64's instructions it is one; elsewhere `mul_add` may be a call.
        Four(std::array::from_fn(|lane| match cfg!(target_arch = "aarch64") {
            true => x.mul_add(w.0[lane], self.0[lane]),
            false => x * w.0[lane] + self.0[lane],
        }))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;
    use std::arch::x86_64::{
        __m256, __m512, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_storeu_ps, _mm512_fmadd_ps,
        _mm512_loadu_ps, _mm512_set1_ps, _mm512_storeu_ps,
    };

    macro_rules! lanes {
        ($vector:ty, $count:literal, $load:ident, $store:ident, $all:ident, $fma:ident) => {
            impl Lanes for $vector {
                const COUNT: usize = $count;

                #[inline(always)]
                fn zero() -> $vector {
                    // SAFETY: a vector of zeros is all bits zero.
                    unsafe { std::mem::zeroed() }
                }

                #[inline(always)]
                unsafe fn load(from: *const f32) -> $vector {
                    // SAFETY: the caller's.
                    unsafe { $load(from) }
                }

                #[inline(always)]
                unsafe fn store(self, to: *mut f32) {
                    // SAFETY: the caller's.
                    unsafe { $store(to, self) }
                }

                #[inline(always)]
                unsafe fn add_product(self, x: f32, w: $vector) -> $vector {
                    // SAFETY: the caller's.
                    unsafe { $fma($all(x), w, self) }
                }
            }
        };
    }
    lanes!(__m512, 16, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps);
    lanes!(__m256, 8, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps);
}
