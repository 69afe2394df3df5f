//! im2col: each window of an image becomes a column of a matrix, and the convolution one product of two matrices.
//!
//! The matrix holds each number of the image nine times. That is what it costs; what it buys is a product of matrices, the one
//! thing that every library does at full speed.

use super::ConvShape;
use crate::matmul::matmul_shape_one_core;
use rayon::prelude::*;

/// Columns of one image live while that image is computed: as many at a time as there are threads.
pub(super) fn image_by_image(shape: &ConvShape, images: &[f32], weights: &[f32], out: &mut [f32]) {
    let (image, result) = lengths(shape);
    let length = columns_length(shape);
    images.par_chunks(image).zip(out.par_chunks_mut(result)).for_each(|(image, out)| {
        let mut columns = vec![0f32; length];
        write_columns(shape, image, &mut columns);
        product(shape, weights, &columns, out);
    });
}

/// All columns first, then all products.
pub(super) fn whole_batch(shape: &ConvShape, images: &[f32], weights: &[f32], out: &mut [f32]) {
    let (image, result) = lengths(shape);
    let length = columns_length(shape);
    let mut columns = vec![0f32; shape.batch * length];
    images
        .par_chunks(image)
        .zip(columns.par_chunks_mut(length))
        .for_each(|(image, columns)| write_columns(shape, image, columns));
    columns
        .par_chunks(length)
        .zip(out.par_chunks_mut(result))
        .for_each(|(columns, out)| product(shape, weights, columns, out));
}

/// Numbers of an image, of its result.
fn lengths(shape: &ConvShape) -> (usize, usize) {
    let plane = shape.out_side() * shape.out_side();
    (shape.inputs * shape.side * shape.side, shape.outputs * plane)
}

fn columns_length(shape: &ConvShape) -> usize {
    shape.inputs * 9 * shape.out_side() * shape.out_side()
}

/// Row (channel, ky, kx) of the matrix holds, for each place of the window, the number at (ky, kx) in it.
fn write_columns(shape: &ConvShape, image: &[f32], columns: &mut [f32]) {
    let (side, out_side) = (shape.side, shape.out_side());
    for (row, column) in columns.chunks_exact_mut(out_side * out_side).enumerate() {
        let (channel, ky, kx) = (row / 9, row % 9 / 3, row % 3);
        for (y, line) in column.chunks_exact_mut(out_side).enumerate() {
            line.copy_from_slice(&image[(channel * side + y + ky) * side + kx..][..out_side]);
        }
    }
}

fn product(shape: &ConvShape, weights: &[f32], columns: &[f32], out: &mut [f32]) {
    let plane = shape.out_side() * shape.out_side();
    multiply(weights, columns, out, (shape.outputs, shape.inputs * 9, plane));
}

/// `out` (m × n) = `a` (m × k) · `b` (k × n), on the calling thread.
pub(super) fn multiply(a: &[f32], b: &[f32], out: &mut [f32], (m, k, n): (usize, usize, usize)) {
    matmul_shape_one_core(a, b, out, m, k, n).expect("the slices were cut to this very shape");
}
