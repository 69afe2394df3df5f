//! Winograd's minimal filtering F(2×2, 3×3), after Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks"
//! (2015): a tile of 4 × 4 numbers and a window of 3 × 3 give 2 × 2 results.
//!
//! In another basis, V = Bᵀ·d·B for a tile d and U = G·g·Gᵀ for a window g, the sum over channels is one product for each of
//! 16 places: M = U ⊙ V, and the result is Aᵀ·M·A. 16 products in place of 2·2·9 = 36; what is paid is memory for U, V
//! and M, and a few bits of accuracy.

use super::ConvShape;
use super::columns::multiply;
use rayon::prelude::*;

/// Places of a tile.
const PLACES: usize = 16;

/// Numbers of all windows in the other basis.
pub(super) fn weights(shape: &ConvShape) -> usize {
    PLACES * shape.inputs * shape.outputs
}

/// Numbers that one image needs: its tiles in the other basis, and the products.
pub(super) fn workspace(shape: &ConvShape) -> usize {
    PLACES * (shape.inputs + shape.outputs) * tiles(shape) * tiles(shape)
}

/// Tiles along a side; the last one may reach over the edge.
fn tiles(shape: &ConvShape) -> usize {
    shape.out_side().div_ceil(2)
}

pub(super) fn run(shape: &ConvShape, images: &[f32], weights: &[f32], out: &mut [f32]) {
    let ConvShape { inputs, outputs, side, .. } = *shape;
    let (of_image, of_result) = (inputs * side * side, outputs * shape.out_side() * shape.out_side());
    let count = tiles(shape) * tiles(shape);
    let windows = windows(shape, weights);
    images.par_chunks(of_image).zip(out.par_chunks_mut(of_result)).for_each(|(image, out)| {
        let mut work = vec![0f32; workspace(shape)];
        let (turned, products) = work.split_at_mut(PLACES * inputs * count);
        for (channel, plane) in image.chunks_exact(side * side).enumerate() {
            turn_tiles(shape, plane, &mut turned[channel * count..], inputs * count);
        }
        let places = windows.chunks_exact(outputs * inputs).zip(turned.chunks_exact(inputs * count));
        for ((windows, turned), products) in places.zip(products.chunks_exact_mut(outputs * count)) {
            multiply(windows, turned, products, (outputs, inputs, count));
        }
        for (channel, plane) in out.chunks_exact_mut(shape.out_side() * shape.out_side()).enumerate() {
            turn_back(shape, &products[channel * count..], outputs * count, plane);
        }
    });
}

/// U = G·g·Gᵀ for each window: [16][outputs][inputs].
fn windows(shape: &ConvShape, weights: &[f32]) -> Vec<f32> {
    let mut turned = vec![0f32; self::weights(shape)];
    let each = shape.outputs * shape.inputs;
    for (at, g) in weights.chunks_exact(9).enumerate() {
        // G = [1 0 0; ½ ½ ½; ½ -½ ½; 0 0 1], down each column, then along each row.
        let turn = |a: f32, b: f32, c: f32| [a, (a + b + c) / 2.0, (a - b + c) / 2.0, c];
        let down: [[f32; 4]; 3] = std::array::from_fn(|x| turn(g[x], g[3 + x], g[6 + x]));
        for y in 0..4 {
            let along = turn(down[0][y], down[1][y], down[2][y]);
            along.into_iter().enumerate().for_each(|(x, value)| turned[(y * 4 + x) * each + at] = value);
        }
    }
    turned
}

/// V = Bᵀ·d·B for each tile of one channel; place p of tile t goes to `to[p * stride + t]`.
fn turn_tiles(shape: &ConvShape, plane: &[f32], to: &mut [f32], stride: usize) {
    let (side, tiles) = (shape.side, tiles(shape));
    for tile in 0..tiles * tiles {
        let (top, left) = (tile / tiles * 2, tile % tiles * 2);
        // Beyond the edge there is nothing; results from there are not written.
        let d = |y: usize, x: usize| {
            if top + y < side && left + x < side { plane[(top + y) * side + left + x] } else { 0.0 }
        };
        let turn = |a: [f32; 4]| [a[0] - a[2], a[1] + a[2], a[2] - a[1], a[1] - a[3]];
        let down: [[f32; 4]; 4] = std::array::from_fn(|x| turn([d(0, x), d(1, x), d(2, x), d(3, x)]));
        for y in 0..4 {
            let along = turn([down[0][y], down[1][y], down[2][y], down[3][y]]);
            along.into_iter().enumerate().for_each(|(x, value)| to[(y * 4 + x) * stride + tile] = value);
        }
    }
}

/// Aᵀ·M·A for each tile of one channel; place p of tile t comes from `from[p * stride + t]`.
fn turn_back(shape: &ConvShape, from: &[f32], stride: usize, plane: &mut [f32]) {
    let (out_side, tiles) = (shape.out_side(), tiles(shape));
    for tile in 0..tiles * tiles {
        let (top, left) = (tile / tiles * 2, tile % tiles * 2);
        let turn = |a: [f32; 4]| [a[0] + a[1] + a[2], a[1] - a[2] - a[3]];
        let m = |y: usize, x: usize| from[(y * 4 + x) * stride + tile];
        let down: [[f32; 2]; 4] = std::array::from_fn(|x| turn([m(0, x), m(1, x), m(2, x), m(3, x)]));
        for y in 0..2 {
            let along = turn([down[0][y], down[1][y], down[2][y], down[3][y]]);
            for (x, value) in along.into_iter().enumerate() {
                if top + y < out_side && left + x < out_side {
                    plane[(top + y) * out_side + left + x] = value;
                }
            }
        }
    }
}
