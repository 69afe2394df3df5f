//! One convolution, several ways to compute it: they need different memory beside input and output, and different time.
//!
//! All of them take images [B, inputs, H, W] and weights [outputs, inputs, 3, 3], and give [B, outputs, H - 2, W - 2], in f32,
//! on all cores.

mod columns;
mod direct;
mod winograd;

use gpulab_measure::Result;
use gpulab_measure::error::same_length;

/// The shape of a convolution with windows of 3 × 3, without padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvShape {
    /// Images.
    pub batch: usize,
    /// Channels that come in.
    pub inputs: usize,
    /// Channels that go out.
    pub outputs: usize,
    /// Rows and columns of an image; at least 3.
    pub side: usize,
}

impl ConvShape {
    /// Rows and columns of the result.
    pub fn out_side(&self) -> usize {
        self.side - 2
    }

    /// Numbers of the images, of the weights, of the result.
    pub fn lengths(&self) -> [usize; 3] {
        let ConvShape { batch, inputs, outputs, side } = *self;
        [batch * inputs * side * side, outputs * inputs * 9, batch * outputs * self.out_side() * self.out_side()]
    }

    /// Multiplications and additions as the definition has them.
    pub fn operations(&self) -> f64 {
        2.0 * (self.lengths()[2] * self.inputs * 9) as f64
    }
}

/// A way to compute it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConvAlgorithm {
    /// As the definition says, row by row. Needs nothing beside input and output.
    Direct,
    /// Each window of an image written out as a column, then one matrix product; an image at a time on each core.
    ColumnsOfAnImage,
    /// The same with the columns of all images at once.
    ColumnsOfTheBatch,
    /// Winograd's F(2×2, 3×3): four results from 16 products in place of 36, between two changes of basis.
    Winograd,
}

impl ConvAlgorithm {
    /// All of them.
    pub const ALL: [ConvAlgorithm; 4] = [
        ConvAlgorithm::Direct,
        ConvAlgorithm::ColumnsOfAnImage,
        ConvAlgorithm::ColumnsOfTheBatch,
        ConvAlgorithm::Winograd,
    ];

    /// Its name, as it stands in tables.
    pub fn name(self) -> &'static str {
        match self {
            ConvAlgorithm::Direct => "direct",
            ConvAlgorithm::ColumnsOfAnImage => "im2col, image by image",
            ConvAlgorithm::ColumnsOfTheBatch => "im2col, whole batch",
            ConvAlgorithm::Winograd => "Winograd F(2×2, 3×3)",
        }
    }

    /// Bytes that it needs beside images, weights and result, when `threads` work at once.
    pub fn workspace(self, shape: &ConvShape, threads: usize) -> u64 {
        let columns = shape.inputs * 9 * shape.out_side() * shape.out_side();
        let at_once = threads.min(shape.batch);
        4 * match self {
            ConvAlgorithm::Direct => 0,
            ConvAlgorithm::ColumnsOfAnImage => at_once * columns,
            ConvAlgorithm::ColumnsOfTheBatch => shape.batch * columns,
            ConvAlgorithm::Winograd => winograd::weights(shape) + at_once * winograd::workspace(shape),
        } as u64
    }

    /// Computes it.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`](gpulab_measure::Error::LengthMismatch) when a slice does not hold what the shape says, also when
    /// the images are smaller than a window.
    pub fn run(self, shape: &ConvShape, images: &[f32], weights: &[f32], out: &mut [f32]) -> Result<()> {
        if shape.side < 3 {
            same_length("a convolution's image side (3 at least)", 3, shape.side)?;
        }
        let [of_images, of_weights, of_out] = shape.lengths();
        same_length("a convolution's images", of_images, images.len())?;
        same_length("a convolution's weights", of_weights, weights.len())?;
        same_length("a convolution's result", of_out, out.len())?;
        if images.is_empty() || out.is_empty() {
            out.fill(0.0);
            return Ok(());
        }
        match self {
            ConvAlgorithm::Direct => direct::run(shape, images, weights, out),
            ConvAlgorithm::ColumnsOfAnImage => columns::image_by_image(shape, images, weights, out),
            ConvAlgorithm::ColumnsOfTheBatch => columns::whole_batch(shape, images, weights, out),
            ConvAlgorithm::Winograd => winograd::run(shape, images, weights, out),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
