//! Both convolutions, ReLU and the max-pool for a whole batch on the CPU, forward and backward, on all cores.
//!
//! candle's CPU backend has these as single operations: each writes its result to memory for the next, some on one core,
//! and the backward pass of a convolution goes through a transposed convolution that is not made for speed.

mod image;
mod lanes;
pub(super) mod ops;
mod pool;
mod tile;
pub(super) mod update;

use image::*;
use rayon::prelude::*;

/// Numbers of an image behind the pool.
pub(super) const LEN_POOLED: usize = pool::SIDE * pool::SIDE * CHANNELS_2;

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
pub(super) struct Kept {
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
pub(super) fn forward(images: &[f32], layers: Layers) -> (Vec<f32>, Kept) {
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
                pool::forward(layer_2, pooled, winners);
            },
        );
    (pooled, Kept { layer_1, winners })
}

/// The parameters' gradients, from that of the pooled numbers.
pub(super) fn backward(images: &[f32], layers: Layers, kept: &Kept, gradient: &[f32]) -> Gradients {
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
                    pool::backward(&gradients[pooled.clone()], &winners[pooled], padded, &mut sum.bias_2);
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

/// The second layer's weight for the way back, [64, 32, 3, 3] → [3, 3, 64, 32] with the taps in reverse.
fn turned(weight: &[f32]) -> Vec<f32> {
    let mut turned = vec![0f32; weight.len()];
    for (at, &number) in weight.iter().enumerate() {
        let (output, input, tap) = (at / 9 / CHANNELS_1, at / 9 % CHANNELS_1, 8 - at % 9);
        turned[(tap * CHANNELS_2 + output) * CHANNELS_1 + input] = number;
    }
    turned
}

#[cfg(test)]
mod tests;
