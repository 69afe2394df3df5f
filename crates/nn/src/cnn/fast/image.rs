//! The two convolutions of one image, forward and backward, channels last: `[row][column][channel]`.
//!
//! A window of 3 × 3 then is three stretches of neighbours in memory, and no copy of the image by windows (im2col) is
//! needed.

use super::lanes::Lanes;
use super::tile::{Steps, for_this_cpu, put, sums};

/// Side and channels of what each layer gives.
pub(super) const SIDE_0: usize = 28;
pub(super) const SIDE_1: usize = 26;
pub(super) const SIDE_2: usize = 24;
pub(super) const CHANNELS_1: usize = 32;
pub(super) const CHANNELS_2: usize = 64;
/// Numbers of an image.
pub(super) const LEN_0: usize = SIDE_0 * SIDE_0;
pub(super) const LEN_1: usize = SIDE_1 * SIDE_1 * CHANNELS_1;
pub(super) const LEN_2: usize = SIDE_2 * SIDE_2 * CHANNELS_2;
/// The gradient of layer 2 with two rows and columns of zeros around it.
pub(super) const PADDED_SIDE: usize = SIDE_2 + 4;
pub(super) const LEN_PADDED: usize = PADDED_SIDE * PADDED_SIDE * CHANNELS_2;

/// The most numbers of two vectors.
const WIDEST: usize = 32;

/// `out` (`side` × `side` × `wide`) = windows of `x` (side + 2) · `w` `[3][3][channels][wide]` + `bias`, and below zero zero
/// if `relu`. `wide` is a multiple of two vectors.
///
/// # Safety
/// This CPU has such vectors.
#[inline(always)]
unsafe fn convolve<const T: usize, L: Lanes>(
    x: &[f32],
    w: &[f32],
    bias: &[f32],
    out: &mut [f32],
    side: usize,
    relu: bool,
) {
    let wide = bias.len();
    let channels = w.len() / 9 / wide;
    let row = (side + 2) * channels;
    let window = 3 * channels;
    let step = Steps { rows: 3, x_row: row, w_row: window * wide, n: window, x: 1, w: wide, t: channels };
    for y in 0..side {
        let mut start = 0;
        while start < side {
            // The last tile of a row begins earlier, and makes some sums once more.
            let first = start.min(side - T);
            for lanes in (0..wide).step_by(2 * L::COUNT) {
                // SAFETY: the caller's promise.
                let sums = unsafe { sums::<T, L>(&x[y * row + first * channels..], &w[lanes..], step) };
                let bias = &bias[lanes..][..2 * L::COUNT];
                for (t, sums) in sums.into_iter().enumerate() {
                    let out = &mut out[(y * side + first + t) * wide + lanes..][..2 * L::COUNT];
                    // SAFETY: the caller's promise.
                    unsafe { put(sums, out) };
                    for (out, bias) in out.iter_mut().zip(bias) {
                        let sum = *out + bias;
                        *out = if relu { sum.max(0.0) } else { sum };
                    }
                }
            }
            start += T;
        }
    }
}

for_this_cpu! {
    /// A convolution of one image.
    fn convolution(x: &[f32], w: &[f32], bias: &[f32], out: &mut [f32], side: usize, relu: bool) = convolve
}

/// Adds two vectors of sums to numbers in memory.
///
/// # Safety
/// This CPU has such vectors.
#[inline(always)]
unsafe fn add_to<L: Lanes>(memory: &mut [f32], sums: [L; 2]) {
    let mut numbers = [0f32; WIDEST];
    // SAFETY: the caller's promise.
    unsafe { put(sums, &mut numbers) };
    memory[..2 * L::COUNT].iter_mut().zip(numbers).for_each(|(memory, number)| *memory += number);
}

/// Adds to `sum` `[3][3][32][64]` what one image has to say: windows of `x` (layer 1) times the padded gradient of layer 2.
///
/// # Safety
/// This CPU has such vectors.
#[inline(always)]
unsafe fn weights_2<const T: usize, L: Lanes>(x: &[f32], padded: &[f32], sum: &mut [f32]) {
    const WINDOW: usize = 3 * CHANNELS_1;
    const STEP: Steps = Steps {
        rows: SIDE_2,
        x_row: SIDE_1 * CHANNELS_1,
        w_row: PADDED_SIDE * CHANNELS_2,
        n: SIDE_2,
        x: CHANNELS_1,
        w: CHANNELS_2,
        t: 1,
    };
    for ky in 0..3 {
        for first in (0..WINDOW).step_by(T) {
            for lanes in (0..CHANNELS_2).step_by(2 * L::COUNT) {
                let (x, g) = (&x[ky * STEP.x_row + first..], &padded[2 * STEP.w_row + 2 * CHANNELS_2 + lanes..]);
                // SAFETY: the caller's promise.
                let sums = unsafe { sums::<T, L>(x, g, STEP) };
                for (t, sums) in sums.into_iter().enumerate() {
                    // SAFETY: the caller's promise.
                    unsafe { add_to(&mut sum[(ky * WINDOW + first + t) * CHANNELS_2 + lanes..], sums) };
                }
            }
        }
    }
}

for_this_cpu! {
    /// The second convolution's weight gradient of one image.
    fn weight_gradient_2(x: &[f32], padded: &[f32], sum: &mut [f32]) = weights_2
}

/// Adds to `sum` `[3][3][32]` windows of `x` (the image) times the gradient of layer 1. A window's row has three numbers,
/// however large a tile may be.
///
/// # Safety
/// This CPU has such vectors.
#[inline(always)]
unsafe fn weights_1<const T: usize, L: Lanes>(x: &[f32], g: &[f32], sum: &mut [f32]) {
    const STEP: Steps =
        Steps { rows: SIDE_1, x_row: SIDE_0, w_row: SIDE_1 * CHANNELS_1, n: SIDE_1, x: 1, w: CHANNELS_1, t: 1 };
    for lanes in (0..CHANNELS_1).step_by(2 * L::COUNT) {
        for ky in 0..3 {
            // SAFETY: the caller's promise.
            let sums = unsafe { sums::<3, L>(&x[ky * SIDE_0..], &g[lanes..], STEP) };
            for (kx, sums) in sums.into_iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { add_to(&mut sum[(ky * 3 + kx) * CHANNELS_1 + lanes..], sums) };
            }
        }
    }
}

for_this_cpu! {
    /// The first convolution's weight gradient of one image.
    fn weight_gradient_1(x: &[f32], g: &[f32], sum: &mut [f32]) = weights_1
}

/// [`convolution`] as a CPU without wide vectors makes it.
#[cfg(test)]
pub(super) fn plain(x: &[f32], w: &[f32], bias: &[f32], out: &mut [f32], side: usize, relu: bool) {
    // SAFETY: of four numbers every CPU has vectors.
    unsafe { convolve::<6, super::lanes::Four>(x, w, bias, out, side, relu) }
}
