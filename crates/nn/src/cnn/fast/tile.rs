//! The innermost loop of every convolution here: a tile of sums that stays in the CPU's registers.

use super::lanes::Lanes;

/// Where a tile reads: factor (row, i) of sum (t, lane) is `x[row * x_row + i * x + t * t] * w[row * w_row + i * w + lane]`.
#[derive(Clone, Copy)]
pub(super) struct Steps {
    pub rows: usize,
    pub x_row: usize,
    pub w_row: usize,
    /// Factors of a row.
    pub n: usize,
    pub x: usize,
    pub w: usize,
    pub t: usize,
}

/// T × two vectors of sums of `rows` × `n` products. One number of `x` meets two vectors of neighbours of `w`, so that each
/// vector that is loaded serves T of them.
///
/// # Safety
/// This CPU has such vectors.
#[inline(always)]
// By index, so that the compiler sees T places in registers and no array in memory.
#[allow(clippy::needless_range_loop)]
pub(super) unsafe fn sums<const T: usize, L: Lanes>(x: &[f32], w: &[f32], step: Steps) -> [[L; 2]; T] {
    let Steps { rows, n, .. } = step;
    assert!(rows > 0 && n > 0);
    assert!(x.len() > (rows - 1) * step.x_row + (n - 1) * step.x + (T - 1) * step.t);
    assert!(w.len() >= (rows - 1) * step.w_row + (n - 1) * step.w + 2 * L::COUNT);
    let mut sums = [[L::zero(); 2]; T];
    for row in 0..rows {
        for i in 0..n {
            // SAFETY: row < rows and i < n, so the assertions above hold both vectors within `w`, and for t < T the number
            // within `x`; the vectors are the caller's promise.
            unsafe {
                let w = w.as_ptr().add(row * step.w_row + i * step.w);
                let w = [L::load(w), L::load(w.add(L::COUNT))];
                for t in 0..T {
                    let x = *x.get_unchecked(row * step.x_row + i * step.x + t * step.t);
                    sums[t][0] = sums[t][0].add_product(x, w[0]);
                    sums[t][1] = sums[t][1].add_product(x, w[1]);
                }
            }
        }
    }
    sums
}

/// Writes two vectors as numbers, one after the other.
///
/// # Safety
/// This CPU has such vectors.
///
/// # Panics
/// When `to` has less room.
#[inline(always)]
pub(super) unsafe fn put<L: Lanes>(sums: [L; 2], to: &mut [f32]) {
    let to = &mut to[..2 * L::COUNT];
    // SAFETY: the line above holds room for both; the vectors are the caller's promise.
    unsafe {
        sums[0].store(to.as_mut_ptr());
        sums[1].store(to.as_mut_ptr().add(L::COUNT));
    }
}

/// Defines `fn name(…)` that calls the `#[inline(always)]` function `body::<T, L>` with the tile and the vectors of this CPU:
/// T × 2 sums and two factors must fit its registers.
macro_rules! for_this_cpu {
    ($(#[$note:meta])* fn $name:ident($($arg:ident: $ty:ty),*) = $body:ident) => {
        $(#[$note])*
        pub(super) fn $name($($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            {
                use std::arch::x86_64::{__m256, __m512};
                #[target_feature(enable = "avx512f")]
                fn avx512($($arg: $ty),*) {
                    // SAFETY: whoever calls this function has looked for the feature.
                    unsafe { $body::<12, __m512>($($arg),*) }
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $ty),*) {
                    // SAFETY: whoever calls this function has looked for the features.
                    unsafe { $body::<6, __m256>($($arg),*) }
                }
                if std::arch::is_x86_feature_detected!("avx512f") {
                    // SAFETY: the line above found the one feature that it needs.
                    return unsafe { avx512($($arg),*) };
                }
                if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                    // SAFETY: the line above found both features that it needs.
                    return unsafe { avx2($($arg),*) };
                }
            }
            // SAFETY: of four numbers every CPU has vectors. aarch64 has 32 registers of them, and T × 2 fit.
            unsafe { $body::<6, super::lanes::Four>($($arg),*) }
        }
    };
}
pub(super) use for_this_cpu;
