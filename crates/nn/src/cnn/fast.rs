//! Both convolutions, ReLU and the max-pool for a whole batch on the CPU, forward and backward, on all cores.
//!
//! Each convolution is a matrix product of its weight and the image's windows side by side (im2col), by the crates `gemm`.
//! candle's CPU backend has these as single operations: each writes its result to memory for the next, some on one core,
//! and the backward pass of a convolution goes through a transposed convolution that is not made for speed.

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Storage, Tensor, bail};
use gpulab::cpu::{MatrixRef, product};
use rayon::prelude::*;
use std::sync::{Arc, Mutex};

/// Side and channels of what each layer gives: `[channel][row][column]`.
const SIDE_0: usize = 28;
const SIDE_1: usize = 26;
const SIDE_2: usize = 24;
const SIDE: usize = SIDE_2 / 2;
const CHANNELS_1: usize = 32;
const CHANNELS_2: usize = 64;
/// Numbers of an image, and of what the layers make of it.
const LEN_0: usize = SIDE_0 * SIDE_0;
const LEN_1: usize = SIDE_1 * SIDE_1 * CHANNELS_1;
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
    /// Layer 1 of each image.
    layer_1: Vec<f32>,
    /// Of each pooled number, which of its four it was, or [`NONE`].
    winners: Vec<u8>,
}

/// Gradients of the parameters, in the order of [`Layers`].
type Gradients = [Vec<f32>; 4];

/// From images [B, 28, 28] to pooled numbers [B, 64, 12, 12].
pub(super) fn forward(images: &[f32], layers: Layers) -> (Vec<f32>, SavedForBackward) {
    let count = images.len() / LEN_0;
    let mut layer_1 = vec![0f32; count * LEN_1];
    let mut pooled = vec![0f32; count * LEN_POOLED];
    let mut winners = vec![0u8; count * LEN_POOLED];
    images
        .par_chunks_exact(LEN_0)
        .zip(layer_1.par_chunks_exact_mut(LEN_1))
        .zip(pooled.par_chunks_exact_mut(LEN_POOLED).zip(winners.par_chunks_exact_mut(LEN_POOLED)))
        .for_each(|((image, layer_1), (pooled, winners))| {
            layer_1.copy_from_slice(&convolution(&windows(image, SIDE_0), layers.weight_1, layers.bias_1));
            max_pool(&convolution(&windows(layer_1, SIDE_1), layers.weight_2, layers.bias_2), pooled, winners);
        });
    (pooled, SavedForBackward { layer_1, winners })
}

/// The parameters' gradients, from that of the pooled numbers.
pub(super) fn backward(images: &[f32], layers: Layers, kept: &SavedForBackward, gradient: &[f32]) -> Gradients {
    let groups: Vec<Gradients> = images
        .par_chunks(GROUP * LEN_0)
        .zip(kept.layer_1.par_chunks(GROUP * LEN_1))
        .zip(kept.winners.par_chunks(GROUP * LEN_POOLED).zip(gradient.par_chunks(GROUP * LEN_POOLED)))
        .map(|((images, layers_1), (winners, gradients))| {
            let mut sum = zeros(layers);
            let images = images.chunks_exact(LEN_0).zip(layers_1.chunks_exact(LEN_1));
            let pooled = winners.chunks_exact(LEN_POOLED).zip(gradients.chunks_exact(LEN_POOLED));
            for ((image, layer_1), (winners, gradient)) in images.zip(pooled) {
                add(&mut sum, &backward_of_image(image, layer_1, winners, gradient, layers.weight_2));
            }
            sum
        })
        .collect();
    let mut sum = zeros(layers);
    groups.iter().for_each(|group| add(&mut sum, group));
    sum
}

fn zeros(layers: Layers) -> Gradients {
    [layers.weight_1, layers.bias_1, layers.weight_2, layers.bias_2].map(|parameter| vec![0.0; parameter.len()])
}

fn add(sum: &mut Gradients, part: &Gradients) {
    for (sum, part) in sum.iter_mut().zip(part) {
        sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
}

fn backward_of_image(image: &[f32], layer_1: &[f32], winners: &[u8], gradient: &[f32], weight_2: &[f32]) -> Gradients {
    let gradient_2 = max_pool_backward(gradient, winners);
    let (to_weight_2, to_bias_2) = parameter_gradients(&gradient_2, &windows(layer_1, SIDE_1), CHANNELS_2);
    let (inputs, places) = (9 * CHANNELS_1, SIDE_2 * SIDE_2);
    let turned = MatrixRef::rows(weight_2, inputs).turned();
    let to_windows = product(turned, MatrixRef::rows(&gradient_2, places), (inputs, CHANNELS_2, places));
    let mut gradient_1 = sum_of_windows(&to_windows, SIDE_1);
    // Nothing goes back where ReLU gave zero.
    gradient_1.iter_mut().zip(layer_1).for_each(|(g, layer)| *g = if *layer > 0.0 { *g } else { 0.0 });
    let (to_weight_1, to_bias_1) = parameter_gradients(&gradient_1, &windows(image, SIDE_0), CHANNELS_1);
    [to_weight_1, to_bias_1, to_weight_2, to_bias_2]
}

/// A layer's gradients of weight and bias, from that of its sums.
fn parameter_gradients(gradient: &[f32], windows: &[f32], channels: usize) -> (Vec<f32>, Vec<f32>) {
    let places = gradient.len() / channels;
    let inputs = windows.len() / places;
    let windows = MatrixRef::rows(windows, places).turned();
    let to_weight = product(MatrixRef::rows(gradient, places), windows, (channels, places, inputs));
    (to_weight, gradient.chunks_exact(places).map(|channel| channel.iter().sum()).collect())
}

/// Bias and ReLU included: `[out, places]` from `[in × 9, places]`.
fn convolution(windows: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f32> {
    let inputs = weight.len() / bias.len();
    let places = windows.len() / inputs;
    let mut out =
        product(MatrixRef::rows(weight, inputs), MatrixRef::rows(windows, places), (bias.len(), inputs, places));
    for (channel, bias) in out.chunks_exact_mut(places).zip(bias) {
        channel.iter_mut().for_each(|sum| *sum = (*sum + bias).max(0.0));
    }
    out
}

/// The windows of 3 × 3 of an image with that side, side by side: of each channel a row for each of the nine taps.
fn windows(image: &[f32], side: usize) -> Vec<f32> {
    let out = side - 2;
    let mut rows = Vec::with_capacity(9 * out * out * image.len() / (side * side));
    for channel in image.chunks_exact(side * side) {
        for tap in 0..9 {
            for y in 0..out {
                rows.extend_from_slice(&channel[(y + tap / 3) * side + tap % 3..][..out]);
            }
        }
    }
    rows
}

/// The other way round: each number of an image with that side, as the sum over the windows that hold it.
fn sum_of_windows(rows: &[f32], side: usize) -> Vec<f32> {
    let out = side - 2;
    let mut image = vec![0f32; rows.len() / (9 * out * out) * side * side];
    for (channel, taps) in image.chunks_exact_mut(side * side).zip(rows.chunks_exact(9 * out * out)) {
        for (at, row) in taps.chunks_exact(out).enumerate() {
            let (tap, y) = (at / out, at % out);
            let to = &mut channel[(y + tap / 3) * side + tap % 3..][..out];
            to.iter_mut().zip(row).for_each(|(sum, part)| *sum += part);
        }
    }
    image
}

/// In the list of winners: no number of the window is above zero, so nothing goes back.
const NONE: u8 = 4;

/// The four numbers of each window of the pool, by their places in layer 2.
fn fours() -> impl Iterator<Item = [usize; 4]> {
    (0..LEN_POOLED).map(|at| {
        let (line, x) = (at / SIDE, at % SIDE);
        let first = 2 * line * SIDE_2 + 2 * x;
        [first, first + 1, first + SIDE_2, first + SIDE_2 + 1]
    })
}

/// The largest of each four; of several that are equal the first.
fn max_pool(layer_2: &[f32], pooled: &mut [f32], winners: &mut [u8]) {
    for ((four, pooled), winner) in fours().zip(pooled).zip(winners) {
        let four = four.map(|at| layer_2[at]);
        let best = (1..4).fold(0, |best, at| if four[at] > four[best] { at } else { best });
        *pooled = four[best];
        *winner = if four[best] > 0.0 { best as u8 } else { NONE };
    }
}

/// The gradient of layer 2's sums: that of each pooled number, where it came from.
fn max_pool_backward(gradient: &[f32], winners: &[u8]) -> Vec<f32> {
    let mut gradient_2 = vec![0f32; SIDE_2 * SIDE_2 * CHANNELS_2];
    for ((four, gradient), winner) in fours().zip(gradient).zip(winners) {
        if let Some(&at) = four.get(usize::from(*winner)) {
            gradient_2[at] = *gradient;
        }
    }
    gradient_2
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
        let [mut weight_1, bias_1, mut weight_2, bias_2] = found;
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
        let weight = MatrixRef::rows(weight, inputs).turned();
        let mut out = product(MatrixRef::rows(x, inputs), weight, (rows, inputs, outputs));
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
            let turned = MatrixRef::rows(&gradient, outputs);
            let to_x = product(turned, MatrixRef::rows(weight, inputs), (rows, outputs, inputs));
            let to_weight = product(turned.turned(), MatrixRef::rows(x, inputs), (outputs, rows, inputs));
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
