//! The sides of a matrix product.

use super::Size;
use gpulab::error::{Error, Result};

/// The sides of a product: `a` has `m` rows of `k`, `b` has `k` rows of `n`, `c` has `m` rows of `n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Rows of `a` and of `c`.
    pub m: usize,
    /// Columns of `b` and of `c`.
    pub n: usize,
    /// Columns of `a`, rows of `b`: what is summed over.
    pub k: usize,
}

impl From<usize> for Shape {
    /// Square matrices of that side.
    fn from(side: usize) -> Shape {
        Shape { m: side, n: side, k: side }
    }
}

impl TryFrom<Size> for Shape {
    type Error = Error;

    fn try_from(size: Size) -> Result<Shape> {
        let (m, n, k) = size.three()?;
        Ok(Shape { m, n, k })
    }
}

impl Shape {
    /// Multiplications and additions of the product: 2mnk.
    pub fn operations(self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// Numbers of the three matrices.
    pub fn numbers(self) -> usize {
        self.m * self.k + self.k * self.n + self.m * self.n
    }
}
