//! Both convolutions, ReLU and the max-pool for a whole batch on the CPU, forward and backward, on all cores.
//!
//! candle's CPU backend has these as single operations: each writes its result to memory for the next, some on one core,
//! and the backward pass of a convolution goes through a transposed convolution that is not made for speed.

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Storage, Tensor, bail};
use gpulab::cpu::{Matrix, product};
use rayon::prelude::*;
use std::sync::{Arc, Mutex};

/// Numbers of an image behind the pool.
pub(super) const LEN_POOLED: usize = SIDE * SIDE * CHANNELS_2;

/// Images whose gradients are added up one after the other; groups are then added in their order, so that the result is the
/// same on any number of cores.
const GROUP: usize = 4;

/// The two layers' parameters as the network holds them: weights [out, in, 3, 3], biases.
#[derive(Clone, Copy)]
pub(super) struct Layers<'a> {
    pub weight_1: &'a [f32],
    pub bias_1: &'a [f32],
    pub weight_2: &'a [f32],
    pub bias_2: &'a [f32],
}

/// What the backward pass needs of the forward one.
pub(super) struct SavedForBackward {
    /// Layer 1 of each image, channels last.
    layer_1: Vec<f32>,
    /// Of each pooled number, which of its four it was, and whether that was above zero.
    winners: Vec<u8>,
}

/// Gradients of the parameters, in the order of [`Layers`].
pub(super) struct Gradients {
    pub weight_1: Vec<f32>,
    pub bias_1: Vec<f32>,
    pub weight_2: Vec<f32>,
    pub bias_2: Vec<f32>,
}

/// From images [B, 28, 28] to pooled numbers [B, 64, 12, 12].
pub(super) fn forward(images: &[f32], layers: Layers) -> (Vec<f32>, SavedForBackward) {
    let count = images.len() / LEN_0;
    let w1 = channels_last(layers.weight_1, CHANNELS_1, 1);
    let w2 = channels_last(layers.weight_2, CHANNELS_2, CHANNELS_1);
    let mut layer_1 = vec![0f32; count * LEN_1];
    let mut pooled = vec![0f32; count * LEN_POOLED];
    let mut winners = vec![0u8; count * LEN_POOLED];
    images
        .par_chunks_exact(LEN_0)
        .zip(layer_1.par_chunks_exact_mut(LEN_1))
        .zip(pooled.par_chunks_exact_mut(LEN_POOLED).zip(winners.par_chunks_exact_mut(LEN_POOLED)))
        .for_each_init(
            || vec![0f32; LEN_2],
            |layer_2, ((image, layer_1), (pooled, winners))| {
                convolution(image, &w1, layers.bias_1, layer_1, SIDE_1, true);
                convolution(layer_1, &w2, layers.bias_2, layer_2, SIDE_2, true);
                max_pool(layer_2, pooled, winners);
            },
        );
    (pooled, SavedForBackward { layer_1, winners })
}

/// The parameters' gradients, from that of the pooled numbers.
pub(super) fn backward(images: &[f32], layers: Layers, kept: &SavedForBackward, gradient: &[f32]) -> Gradients {
    let turned = turned(layers.weight_2);
    let groups: Vec<Gradients> = images
        .par_chunks(GROUP * LEN_0)
        .zip(kept.layer_1.par_chunks(GROUP * LEN_1))
        .zip(kept.winners.par_chunks(GROUP * LEN_POOLED).zip(gradient.par_chunks(GROUP * LEN_POOLED)))
        .map_init(
            || (vec![0f32; LEN_PADDED], vec![0f32; LEN_1]),
            |(padded, gradient_1), ((images, layers_1), (winners, gradients))| {
                let mut sum = Gradients::zeros();
                for (at, image) in images.chunks_exact(LEN_0).enumerate() {
                    let layer_1 = &layers_1[at * LEN_1..][..LEN_1];
                    let pooled = at * LEN_POOLED..(at + 1) * LEN_POOLED;
                    max_pool_backward(&gradients[pooled.clone()], &winners[pooled], padded, &mut sum.bias_2);
                    weight_gradient_2(layer_1, padded, &mut sum.weight_2);
                    convolution(padded, &turned, &[0.0; CHANNELS_1], gradient_1, SIDE_1, false);
                    through_relu(layer_1, gradient_1, &mut sum.bias_1);
                    weight_gradient_1(image, gradient_1, &mut sum.weight_1);
                }
                sum
            },
        )
        .collect();
    let mut sum = Gradients::zeros();
    groups.iter().for_each(|group| sum.add(group));
    sum.weight_1 = channels_first(&sum.weight_1, CHANNELS_1, 1);
    sum.weight_2 = channels_first(&sum.weight_2, CHANNELS_2, CHANNELS_1);
    sum
}

impl Gradients {
    fn zeros() -> Gradients {
        Gradients {
            weight_1: vec![0.0; 9 * CHANNELS_1],
            bias_1: vec![0.0; CHANNELS_1],
            weight_2: vec![0.0; 9 * CHANNELS_1 * CHANNELS_2],
            bias_2: vec![0.0; CHANNELS_2],
        }
    }

    fn add(&mut self, other: &Gradients) {
        let pairs = [
            (&mut self.weight_1, &other.weight_1),
            (&mut self.bias_1, &other.bias_1),
            (&mut self.weight_2, &other.weight_2),
            (&mut self.bias_2, &other.bias_2),
        ];
        for (sum, part) in pairs {
            sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
    }
}

/// Nothing goes back where ReLU gave zero; what does is the bias' gradient too.
fn through_relu(layer_1: &[f32], gradient_1: &mut [f32], bias_1: &mut [f32]) {
    let bias_1: &mut [f32; CHANNELS_1] = bias_1.try_into().expect("a number for each channel");
    let pixels = gradient_1.as_chunks_mut::<CHANNELS_1>().0.iter_mut().zip(layer_1.as_chunks::<CHANNELS_1>().0);
    for (gradient, layer) in pixels {
        for channel in 0..CHANNELS_1 {
            gradient[channel] = if layer[channel] > 0.0 { gradient[channel] } else { 0.0 };
            bias_1[channel] += gradient[channel];
        }
    }
}

/// [out, in, 3, 3] → [3, 3, in, out].
fn channels_last(weight: &[f32], outputs: usize, inputs: usize) -> Vec<f32> {
    let mut last = vec![0f32; weight.len()];
    for (at, &number) in weight.iter().enumerate() {
        let (output, input, tap) = (at / 9 / inputs, at / 9 % inputs, at % 9);
        last[(tap * inputs + input) * outputs + output] = number;
    }
    last
}

/// [3, 3, in, out] → [out, in, 3, 3].
fn channels_first(weight: &[f32], outputs: usize, inputs: usize) -> Vec<f32> {
    let at = |at: usize| weight[(at % 9 * inputs + at / 9 % inputs) * outputs + at / 9 / inputs];
    (0..weight.len()).map(at).collect()
}

/// The second layer's weight for the backward pass, [64, 32, 3, 3] → [3, 3, 64, 32] with the taps in reverse.
fn turned(weight: &[f32]) -> Vec<f32> {
    let mut turned = vec![0f32; weight.len()];
    for (at, &number) in weight.iter().enumerate() {
        let (output, input, tap) = (at / 9 / CHANNELS_1, at / 9 % CHANNELS_1, 8 - at % 9);
        turned[(tap * CHANNELS_2 + output) * CHANNELS_1 + input] = number;
    }
    turned
}

// ----------------------------------------------------------------------
// Vectors of f32 as this CPU has them, by name: left to itself, the compiler makes good use of them in one function and
// none in the next, by a factor of ten.

/// A vector that fits a register.
trait Lanes: Copy {
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
struct Four([f32; 4]);

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

// ----------------------------------------------------------------------
// The innermost loop of every convolution here: a tile of sums that stays in the CPU's registers.

/// Where a tile reads: factor (row, i) of sum (t, lane) is `x[row * x_row + i * x + t * t] * w[row * w_row + i * w + lane]`.
#[derive(Clone, Copy)]
struct Steps {
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
// By index, so that the compiler sees T positions in registers and no array in memory.
#[allow(clippy::needless_range_loop)]
unsafe fn sums<const T: usize, L: Lanes>(x: &[f32], w: &[f32], step: Steps) -> [[L; 2]; T] {
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
/// When `to` is shorter.
#[inline(always)]
unsafe fn put<L: Lanes>(sums: [L; 2], to: &mut [f32]) {
    let to = &mut to[..2 * L::COUNT];
    // SAFETY: the line above is long enough for both; the vectors are the caller's promise.
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
        fn $name($($arg: $ty),*) {
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
            unsafe { $body::<6, Four>($($arg),*) }
        }
    };
}

// ----------------------------------------------------------------------
// The two convolutions of one image, forward and backward, channels last: `[row][column][channel]`.
//
// A window of 3 × 3 then is three stretches of neighbours in memory, and no copy of the image by windows (im2col) is
// needed.

/// Side and channels of what each layer gives.
const SIDE_0: usize = 28;
const SIDE_1: usize = 26;
const SIDE_2: usize = 24;
const CHANNELS_1: usize = 32;
const CHANNELS_2: usize = 64;
/// Numbers of an image.
const LEN_0: usize = SIDE_0 * SIDE_0;
const LEN_1: usize = SIDE_1 * SIDE_1 * CHANNELS_1;
const LEN_2: usize = SIDE_2 * SIDE_2 * CHANNELS_2;
/// The gradient of layer 2 with two rows and columns of zeros around it.
const PADDED_SIDE: usize = SIDE_2 + 4;
const LEN_PADDED: usize = PADDED_SIDE * PADDED_SIDE * CHANNELS_2;

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
fn plain_convolution(x: &[f32], w: &[f32], bias: &[f32], out: &mut [f32], side: usize, relu: bool) {
    // SAFETY: of four numbers every CPU has vectors.
    unsafe { convolve::<6, Four>(x, w, bias, out, side, relu) }
}

// ----------------------------------------------------------------------
// The 2 × 2 max-pool of one image, between channels last and the order [channel][row][column] of what follows.

const SIDE: usize = SIDE_2 / 2;

/// Says that none of the four was above zero, so nothing goes back: ReLU stopped it.
const NONE: u8 = 4;

/// The largest of each four, and which it was. Of equal ones it is the first, as PyTorch has it.
fn max_pool(layer_2: &[f32], pooled: &mut [f32], winners: &mut [u8]) {
    let rows = layer_2.as_chunks::<CHANNELS_2>().0;
    for y in 0..SIDE {
        for x in 0..SIDE {
            let first = 2 * y * SIDE_2 + 2 * x;
            let four = [first, first + 1, first + SIDE_2, first + SIDE_2 + 1].map(|at| &rows[at]);
            let (mut best, mut winner) = (*four[0], [0u8; CHANNELS_2]);
            for (number, row) in four.into_iter().enumerate().skip(1) {
                for channel in 0..CHANNELS_2 {
                    let better = row[channel] > best[channel];
                    best[channel] = if better { row[channel] } else { best[channel] };
                    winner[channel] = if better { number as u8 } else { winner[channel] };
                }
            }
            for channel in 0..CHANNELS_2 {
                let at = (channel * SIDE + y) * SIDE + x;
                pooled[at] = best[channel];
                winners[at] = if best[channel] > 0.0 { winner[channel] } else { NONE };
            }
        }
    }
}

/// Lays the gradient of the pooled numbers where they came from, into the padded image of layer 2, whose edge is zero and
/// stays so; adds it up for the bias.
fn max_pool_backward(gradient: &[f32], winners: &[u8], padded: &mut [f32], bias: &mut [f32]) {
    let rows = padded.as_chunks_mut::<CHANNELS_2>().0;
    for y in 0..SIDE {
        for x in 0..SIDE {
            let first = (2 * y + 2) * PADDED_SIDE + 2 * x + 2;
            let positions = [first, first + 1, first + PADDED_SIDE, first + PADDED_SIDE + 1];
            positions.into_iter().for_each(|at| rows[at].fill(0.0));
            for channel in 0..CHANNELS_2 {
                let at = (channel * SIDE + y) * SIDE + x;
                if let Some(&position) = positions.get(usize::from(winners[at])) {
                    rows[position][channel] = gradient[at];
                    bias[channel] += gradient[at];
                }
            }
        }
    }
}

// ----------------------------------------------------------------------
// The layers as operators of candle, each with its own backward pass; on the CPU and in f32.

/// Weight and bias of one convolution lie in one tensor, one after the other: an operator of candle takes three.
const SPLIT_1: usize = 9 * 32;
const SPLIT_2: usize = 9 * 32 * 64;

/// Both convolutions, their ReLUs and the max-pool: [B, 1, 28, 28] → [B, 9216].
#[derive(Clone, Default)]
pub(super) struct Features {
    kept: Arc<Mutex<Option<SavedForBackward>>>,
}

/// `relu(x · wᵀ + b)`, or without ReLU: [B, in] → [B, out].
pub(super) struct Linear {
    pub relu: bool,
}

/// The numbers of a contiguous f32 tensor on the CPU.
fn numbers<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let Some((start, end)) = layout.contiguous_offsets() else { bail!("a contiguous tensor is needed") };
    Ok(&storage.as_slice::<f32>()?[start..end])
}

/// Calls `work` with the numbers of these tensors.
fn with<const N: usize, T>(tensors: [&Tensor; N], work: impl FnOnce([&[f32]; N]) -> Result<T>) -> Result<T> {
    let held: Vec<_> = tensors.iter().map(|tensor| tensor.storage_and_layout()).collect();
    let mut slices: [&[f32]; N] = [&[]; N];
    for (slice, (storage, layout)) in slices.iter_mut().zip(&held) {
        let Storage::Cpu(storage) = &**storage else { bail!("this operator computes on the CPU") };
        *slice = numbers(storage, layout)?;
    }
    work(slices)
}

fn layers<'a>(first: &'a [f32], second: &'a [f32]) -> Layers<'a> {
    let ((weight_1, bias_1), (weight_2, bias_2)) = (first.split_at(SPLIT_1), second.split_at(SPLIT_2));
    Layers { weight_1, bias_1, weight_2, bias_2 }
}

impl CustomOp3 for Features {
    fn name(&self) -> &'static str {
        "two convolutions, ReLU and max-pool"
    }

    fn cpu_fwd(
        &self,
        images: &CpuStorage,
        images_at: &Layout,
        first: &CpuStorage,
        first_at: &Layout,
        second: &CpuStorage,
        second_at: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (images, first) = (numbers(images, images_at)?, numbers(first, first_at)?);
        let (pooled, kept) = forward(images, layers(first, numbers(second, second_at)?));
        *self.kept.lock().expect("no other holder panics") = Some(kept);
        Ok((CpuStorage::F32(pooled), (images_at.dims()[0], LEN_POOLED).into()))
    }

    fn bwd(
        &self,
        images: &Tensor,
        first: &Tensor,
        second: &Tensor,
        _pooled: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let kept = self.kept.lock().expect("no other holder panics");
        let Some(kept) = &*kept else { bail!("the backward pass comes after the forward one") };
        let gradient = gradient.contiguous()?;
        let found = with([images, first, second, &gradient], |[images, first, second, gradient]| {
            Ok(backward(images, layers(first, second), kept, gradient))
        })?;
        let Gradients { mut weight_1, bias_1, mut weight_2, bias_2 } = found;
        weight_1.extend(bias_1);
        weight_2.extend(bias_2);
        let first = Tensor::from_vec(weight_1, first.shape(), first.device())?;
        let second = Tensor::from_vec(weight_2, second.shape(), second.device())?;
        Ok((None, Some(first), Some(second)))
    }
}

impl CustomOp3 for Linear {
    fn name(&self) -> &'static str {
        "linear layer"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_at: &Layout,
        weight: &CpuStorage,
        weight_at: &Layout,
        bias: &CpuStorage,
        bias_at: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (rows, inputs) = x_at.shape().dims2()?;
        let (x, weight, bias) = (numbers(x, x_at)?, numbers(weight, weight_at)?, numbers(bias, bias_at)?);
        let outputs = bias.len();
        let weight = Matrix::rows(weight, inputs).turned();
        let mut out = product(Matrix::rows(x, inputs), weight, (rows, inputs, outputs));
        for row in out.chunks_exact_mut(outputs) {
            for (number, bias) in row.iter_mut().zip(bias) {
                let sum = *number + bias;
                *number = if self.relu { sum.max(0.0) } else { sum };
            }
        }
        Ok((CpuStorage::F32(out), (rows, outputs).into()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        out: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let ((rows, inputs), outputs) = (x.dims2()?, bias.elem_count());
        let gradient = gradient.contiguous()?;
        let found = with([x, weight, out, &gradient], |[x, weight, out, gradient]| {
            let mut gradient = gradient.to_vec();
            if self.relu {
                gradient.iter_mut().zip(out).for_each(|(g, out)| *g = if *out > 0.0 { *g } else { 0.0 });
            }
            let mut to_bias = vec![0f32; outputs];
            for row in gradient.chunks_exact(outputs) {
                to_bias.iter_mut().zip(row).for_each(|(sum, g)| *sum += g);
            }
            let turned = Matrix::rows(&gradient, outputs);
            let to_x = product(turned, Matrix::rows(weight, inputs), (rows, outputs, inputs));
            let to_weight = product(turned.turned(), Matrix::rows(x, inputs), (outputs, rows, inputs));
            Ok([to_x, to_weight, to_bias])
        })?;
        let [to_x, to_weight, to_bias] = found;
        let tensor =
            |numbers: Vec<f32>, like: &Tensor| Tensor::from_vec(numbers, like.shape(), like.device()).map(Some);
        Ok((tensor(to_x, x)?, tensor(to_weight, weight)?, tensor(to_bias, bias)?))
    }
}

#[cfg(test)]
mod tests;
