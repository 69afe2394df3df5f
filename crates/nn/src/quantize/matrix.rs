//! A matrix on the host, before and after rounding.

use gpulab::error::{Error, Result};

/// Which weights of a matrix share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// All.
    Tensor,
    /// Those of a row: of one output.
    Row,
    /// So many neighbours in a row.
    Group(usize),
}

/// A matrix on the host, `[rows, columns]`: a row holds the weights of one output.
#[derive(Debug, Clone, Copy)]
pub struct WeightMatrix<'a> {
    /// The weights, row after row.
    pub values: &'a [f32],
    /// Weights in a row.
    pub columns: usize,
}

/// A matrix after rounding.
#[derive(Debug, Clone, PartialEq)]
pub struct Rounded {
    /// What the bits stand for.
    pub values: Vec<f32>,
    /// Bits of the matrix, scales and zero points included.
    pub bits: u64,
}

impl WeightMatrix<'_> {
    /// Rows of the matrix.
    pub fn rows(&self) -> usize {
        self.values.len() / self.columns.max(1)
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.columns == 0 || self.values.is_empty() || !self.values.len().is_multiple_of(self.columns) {
            return Err(Error::invalid(
                format!("{} weights are no rows of {}", self.values.len(), self.columns),
                "give a whole matrix, row after row",
            ));
        }
        if let Some(at) = self.values.iter().position(|weight| !weight.is_finite()) {
            return Err(Error::invalid(
                format!("the weight in row {}, column {} is {}", at / self.columns, at % self.columns, self.values[at]),
                "no scale fits it: load the weights again, or find the step that made it",
            ));
        }
        Ok(())
    }

    /// How many neighbours share a scale.
    ///
    /// # Errors
    /// [`Error::Invalid`] when that does not divide the row.
    pub(super) fn shared(&self, share: Share) -> Result<usize> {
        match share {
            Share::Tensor => Ok(self.values.len()),
            Share::Row => Ok(self.columns),
            Share::Group(size) if size > 0 && self.columns.is_multiple_of(size) => Ok(size),
            Share::Group(size) => {
                let fitting: Vec<String> = [16, 32, 64, 128, 256]
                    .iter()
                    .filter(|size| self.columns.is_multiple_of(**size))
                    .map(ToString::to_string)
                    .collect();
                Err(Error::invalid(
                    format!("groups of {size} do not divide a row of {}", self.columns),
                    match fitting.is_empty() {
                        true => "share a scale by row".to_string(),
                        false => format!("use groups of {}", fitting.join(", ")),
                    },
                ))
            }
        }
    }
}
