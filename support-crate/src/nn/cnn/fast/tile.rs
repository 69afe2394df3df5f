//! The innermost loop of every convolution here: a tile of sums that stays in the CPU's registers.

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

/// T × V sums of `rows` × `n` products. One number of `x` meets V neighbours of `w`, so that each vector that is loaded
/// serves T sums.
#[inline(always)]
pub(super) fn sums<const T: usize, const V: usize, const FMA: bool>(
    x: &[f32],
    w: &[f32],
    step: Steps,
) -> [[f32; V]; T] {
    let Steps { rows, n, .. } = step;
    assert!(rows > 0 && n > 0);
    assert!(x.len() > (rows - 1) * step.x_row + (n - 1) * step.x + (T - 1) * step.t);
    assert!(w.len() >= (rows - 1) * step.w_row + (n - 1) * step.w + V);
    let mut sums = [[0f32; V]; T];
    for row in 0..rows {
        for i in 0..n {
            // SAFETY: row < rows and i < n, so the assertion above holds these V numbers within `w`.
            let w: &[f32; V] = unsafe { &*w.as_ptr().add(row * step.w_row + i * step.w).cast() };
            for (t, sums) in sums.iter_mut().enumerate() {
                // SAFETY: t < T as well, so the assertion above holds this one within `x`.
                let x = unsafe { *x.get_unchecked(row * step.x_row + i * step.x + t * step.t) };
                for lane in 0..V {
                    let sum = &mut sums[lane];
                    // `mul_add` is one instruction only where the CPU has it; elsewhere it is a call.
                    *sum = if FMA { x.mul_add(w[lane], *sum) } else { x * w[lane] + *sum };
                }
            }
        }
    }
    sums
}

/// Defines `fn name(…)` that calls the `#[inline(always)]` function `body::<T, V, FMA>` with the tile and the instructions that
/// suit this CPU's vectors: T × V sums and V factors must fit its registers.
macro_rules! for_this_cpu {
    ($(#[$note:meta])* fn $name:ident($($arg:ident: $ty:ty),*) = $body:ident) => {
        $(#[$note])*
        pub(super) fn $name($($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f")]
                fn avx512($($arg: $ty),*) {
                    $body::<12, 32, true>($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $ty),*) {
                    $body::<6, 16, true>($($arg),*)
                }
                if std::arch::is_x86_feature_detected!("avx512f") {
                    // SAFETY: the line above found the one feature that it needs.
                    return unsafe { avx512($($arg),*) };
                }
                if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                    // SAFETY: the line above found both features that it needs.
                    return unsafe { avx2($($arg),*) };
                }
                $body::<2, 16, false>($($arg),*)
            }
            // NEON is part of every aarch64, and has 32 registers of four numbers.
            #[cfg(not(target_arch = "x86_64"))]
            $body::<6, 16, true>($($arg),*)
        }
    };
}
pub(super) use for_this_cpu;
