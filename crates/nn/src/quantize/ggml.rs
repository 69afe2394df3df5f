//! GGUF's kinds of quantized blocks, among them the k-quants, by candle.
//!
//! The k-quants keep 256 weights in a block, with scales of 4 or 6 bits for 16 or 32 of them, and one scale in f16 for these scales
//! (<https://github.com/ggml-org/llama.cpp/pull/1684>).

use super::matrix::{Rounded, WeightMatrix};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use gpulab::error::Result;

/// The kind that a matrix gets: where 256 does not divide its rows, what llama.cpp takes in place of a k-quant.
fn fitting(kind: GgmlDType, columns: usize) -> GgmlDType {
    use GgmlDType::{Q2K, Q3K, Q4_0, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
    match kind {
        _ if columns.is_multiple_of(kind.block_size()) => kind,
        Q2K | Q3K => Q4_0,
        Q4K => Q5_0,
        Q5K => Q5_1,
        Q6K => Q8_0,
        other => other,
    }
}

/// A matrix in one of GGUF's kinds, or in the one that llama.cpp takes in its place: what candle multiplies with.
///
/// # Errors
/// What candle says, when even that does not divide the rows.
pub fn ggml_stored(weights: WeightMatrix, kind: GgmlDType) -> Result<QTensor> {
    let kind = fitting(kind, weights.columns);
    let tensor = Tensor::from_slice(weights.values, (weights.rows(), weights.columns), &Device::Cpu)?;
    Ok(QTensor::quantize(&tensor, kind)?)
}

/// The same, unpacked.
///
/// # Errors
/// As [`ggml_stored`].
pub fn ggml_round(weights: WeightMatrix, kind: GgmlDType) -> Result<Rounded> {
    weights.check()?;
    let stored = ggml_stored(weights, kind)?;
    let values = stored.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1()?;
    Ok(Rounded { values, bits: 8 * stored.storage_size_in_bytes() as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_the_bytes_that_the_format_says() {
        let values = vec![0.5; 2 * 512];
        let bits = |kind, columns| {
            let weights = WeightMatrix { values: &values, columns };
            ggml_round(weights, kind).unwrap().bits as f64 / values.len() as f64
        };
        // llama.cpp, ggml-common.h: bytes of a block ÷ its weights.
        use GgmlDType::{Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5K, Q6K, Q8_0};
        for (kind, wanted) in
            [(Q4_0, 4.5), (Q4_1, 5.0), (Q8_0, 8.5), (Q2K, 2.625), (Q3K, 3.4375), (Q4K, 4.5), (Q5K, 5.5), (Q6K, 6.5625)]
        {
            assert_eq!(bits(kind, 512), wanted, "{kind:?}");
        }
        assert_eq!(bits(Q4K, 64), 5.5);
        let odd = WeightMatrix { values: &values[..100], columns: 50 };
        assert!(ggml_round(odd, GgmlDType::Q4_0).is_err());
    }
}
