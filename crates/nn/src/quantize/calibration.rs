//! What goes into a matrix on a sample of text: its second moments, and how large each input is.

use super::matrix::WeightMatrix;
use candle_core::{DType, Device, Tensor};
use gpulab::error::{Error, Result};

/// Fewer tokens say too little about the inputs of a layer.
pub(super) const LEAST_TOKENS: usize = 128;

/// How many tokens' outputs are compared.
const SAMPLE: usize = 256;

/// Statistics of a matrix' inputs.
#[derive(Debug, Clone)]
pub struct Calibration {
    /// The mean of x · xᵀ, `[columns, columns]` in f32 on the CPU.
    pub moments: Tensor,
    /// The mean of |x| of each column.
    pub mean_abs: Vec<f32>,
    /// The largest |x| of each column: a column far above the others is an outlier channel.
    pub most: Vec<f32>,
    /// Inputs of up to 256 tokens, spread over the text, `[columns, tokens]`: errors of outputs are taken on these.
    sample: Tensor,
}

impl Calibration {
    /// Of inputs `[…, columns]`: a row for each token.
    ///
    /// # Errors
    /// [`Error::Invalid`] for fewer than 128 tokens, or inputs that are NaN or infinite; what candle says.
    pub fn of(inputs: &Tensor) -> Result<Calibration> {
        let columns = inputs.dims().last().copied().unwrap_or(0);
        let rows = inputs.elem_count() / columns.max(1);
        enough(rows)?;
        let x = inputs.to_device(&Device::Cpu)?.to_dtype(DType::F32)?.reshape((rows, columns))?;
        let moments = (x.t()?.matmul(&x)? / rows as f64)?;
        let magnitude = x.abs()?;
        let every = rows.div_ceil(SAMPLE);
        let picked = Tensor::arange_step(0, rows as u32, every as u32, &Device::Cpu)?;
        let sample = x.index_select(&picked, 0)?.t()?.contiguous()?;
        let (mean_abs, most) = (magnitude.mean(0)?.to_vec1::<f32>()?, magnitude.max(0)?.to_vec1::<f32>()?);
        if mean_abs.iter().any(|x| !x.is_finite()) {
            return Err(Error::invalid(
                "the calibration's inputs hold NaN or infinity",
                "the model's weights are damaged, or 16 bits are too few for this layer: load it as F32",
            ));
        }
        Ok(Calibration { moments, mean_abs, most, sample })
    }

    /// How far a matrix' outputs are off on this text when `weights` become `rounded`: the mean of the squares of (W' − W) · x over
    /// that of W · x.
    ///
    /// # Errors
    /// What candle says.
    pub fn output_error(&self, weights: WeightMatrix, rounded: &[f32]) -> Result<f64> {
        let shape = (weights.rows(), weights.columns);
        let own = Tensor::from_slice(weights.values, shape, &Device::Cpu)?;
        let off = (Tensor::from_slice(rounded, shape, &Device::Cpu)? - &own)?;
        Ok(self.energy(&off)? / self.energy(&own)?.max(f64::MIN_POSITIVE))
    }

    /// The sum of the squares of a matrix' outputs.
    pub(super) fn energy(&self, weights: &Tensor) -> Result<f64> {
        Ok(f64::from(weights.matmul(&self.sample)?.sqr()?.sum_all()?.to_scalar::<f32>()?))
    }
}

/// An error when there are too few tokens.
pub(super) fn enough(tokens: usize) -> Result<()> {
    match tokens < LEAST_TOKENS {
        true => Err(Error::invalid(
            format!("a calibration text of {tokens} tokens is too short"),
            format!("give at least {LEAST_TOKENS}; 1,000 or more are usual"),
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_by_hand_and_too_little_text() {
        // Half of the tokens are (1, 0), the others (1, −2).
        let rows: Vec<f32> = (0..256).flat_map(|i| [1.0, if i % 2 == 0 { 0.0 } else { -2.0 }]).collect();
        let x = Tensor::from_vec(rows, (2, 128, 2), &Device::Cpu).unwrap();
        let found = Calibration::of(&x).unwrap();
        assert_eq!(found.moments.to_vec2::<f32>().unwrap(), [[1.0, -1.0], [-1.0, 2.0]]);
        assert_eq!((found.mean_abs.clone(), found.most.clone()), (vec![1.0, 1.0], vec![1.0, 2.0]));
        // W = (1, 1): outputs 1 and −1. Rounded to (1, 0): off by 0 and 2, so 2 of 1.
        let weights = WeightMatrix { values: &[1.0, 1.0], columns: 2 };
        assert!((found.output_error(weights, &[1.0, 0.0]).unwrap() - 2.0).abs() < 1e-6);
        let text = Calibration::of(&x.narrow(0, 0, 1).unwrap().narrow(1, 0, 100).unwrap()).unwrap_err().to_string();
        assert!(text.contains("100 tokens is too short\nnext: give at least 128"), "{text}");
        let nan = Tensor::full(f32::NAN, (128, 2), &Device::Cpu).unwrap();
        assert!(Calibration::of(&nan).unwrap_err().to_string().contains("NaN"));
    }
}
