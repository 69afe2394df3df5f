//! The definition, in an order that suits vectors: a row of the result is nine rows of each channel, each times one weight.

use super::ConvShape;
use crate::simd::widest;
use rayon::prelude::*;

pub(super) fn run(shape: &ConvShape, images: &[f32], weights: &[f32], out: &mut [f32]) {
    let plane = shape.side * shape.side;
    let out_plane = shape.out_side() * shape.out_side();
    out.par_chunks_mut(out_plane).enumerate().for_each(|(at, out)| {
        let (image, channel) = (at / shape.outputs, at % shape.outputs);
        let image = &images[image * shape.inputs * plane..][..shape.inputs * plane];
        let weights = &weights[channel * shape.inputs * 9..][..shape.inputs * 9];
        one_channel(image, weights, out, shape.side);
    });
}

widest! {
    fn one_channel(image: &[f32], weights: &[f32], out: &mut [f32], side: usize) = body
}

#[inline(always)]
fn body(image: &[f32], weights: &[f32], out: &mut [f32], side: usize) {
    let out_side = side - 2;
    for (y, out) in out.chunks_exact_mut(out_side).enumerate() {
        out.fill(0.0);
        for (plane, window) in image.chunks_exact(side * side).zip(weights.chunks_exact(9)) {
            for (ky, weights) in window.chunks_exact(3).enumerate() {
                let row = &plane[(y + ky) * side..][..side];
                // Three shifted looks at one row: no index is left to check in the loop.
                let (left, middle, right) = (&row[..out_side], &row[1..][..out_side], &row[2..][..out_side]);
                for (x, out) in out.iter_mut().enumerate() {
                    *out += weights[0] * left[x] + weights[1] * middle[x] + weights[2] * right[x];
                }
            }
        }
    }
}
