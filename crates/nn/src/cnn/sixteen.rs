//! What 16-bit numbers make of gradients.

use super::{Cnn, Precision};
use gpulab::error::Result;
use candle_core::{DType, Device, Tensor};

/// The gradients of all parameters for that batch, one after the other, computed in the network's own precision.
///
/// # Errors
/// candle's error when `x` or the digits have another shape.
pub fn gradients(cnn: &Cnn, x: &Tensor, digits: &Tensor) -> Result<Vec<f32>> {
    let found = cnn.loss(x, digits)?.backward()?;
    let mut all = Vec::new();
    for var in &cnn.vars {
        if let Some(gradient) = found.get(var) {
            all.extend(gradient.flatten_all()?.to_vec1::<f32>()?);
        }
    }
    Ok(all)
}

/// The share, 0 to 1, of the gradients other than 0 that become 0 or infinite as such numbers, once they are multiplied by the
/// loss scale.
///
/// # Errors
/// candle's error when the conversion fails.
pub fn share_lost(gradients: &[f32], loss_scale: f32, precision: Precision) -> Result<f64> {
    let there: Vec<f32> = gradients.iter().filter(|&&g| g != 0.0).map(|g| g * loss_scale).collect();
    let count = there.len();
    let kept = Tensor::from_vec(there, count, &Device::Cpu)?.to_dtype(precision.dtype())?.to_dtype(DType::F32)?;
    let lost = kept.to_vec1::<f32>()?.into_iter().filter(|g| *g == 0.0 || !g.is_finite()).count();
    Ok(lost as f64 / count.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f16_loses_what_is_small_and_what_is_large() {
        let gradients = [0.0, 1e-9, 1e-6, 0.5, -2e-8];
        let lost = |scale: f32, precision: Precision| share_lost(&gradients, scale, precision).unwrap();
        assert_eq!(lost(1.0, Precision::F16), 0.5);
        assert_eq!(lost(1024.0, Precision::F16), 0.0);
        assert_eq!(lost(1e6, Precision::F16), 0.25);
        assert_eq!(lost(1.0, Precision::Bf16), 0.0);
        assert_eq!(share_lost(&[], 1.0, Precision::F16).unwrap(), 0.0);
    }
}
