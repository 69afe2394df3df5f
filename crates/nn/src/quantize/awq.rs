//! AWQ: inputs that are large get a finer grid, as their weights are multiplied before rounding, and the inputs divided.
//!
//! Lin and others, "AWQ: Activation-aware Weight Quantization for LLM Compression and Acceleration", 2023,
//! <https://arxiv.org/abs/2306.00978>: the factor of an input is its mean magnitude to a power between 0 and 1, and the power is the one
//! with the least error on the calibration text.

use super::calibration::Calibration;
use super::integer::{self, fit};
use super::matrix::{Rounded, Share, WeightMatrix};
use candle_core::{Device, Tensor};
use gpulab::error::Result;

/// The powers that are tried: 0, which is plain rounding, to 1.
const POWERS: usize = 11;

/// Rounds matrices that read the same inputs to whole numbers of so many bits. The values are those that the model sees: rounded
/// with the factors, and divided by them again, as a model divides its inputs, in the layer in front. Gives the power as well.
///
/// # Errors
/// As [`Format::round`](super::Format::round); what candle says.
pub fn awq(
    matrices: &[WeightMatrix],
    calibration: &Calibration,
    bits: u32,
    zero_point: bool,
    share: Share,
) -> Result<(Vec<Rounded>, f64)> {
    fit(bits, zero_point)?;
    for weights in matrices {
        weights.check()?;
    }
    let mut best: Option<(f64, Vec<Rounded>, f64)> = None;
    for step in 0..POWERS {
        let power = step as f64 / (POWERS - 1) as f64;
        let factors = factors(&calibration.mean_abs, power);
        let (mut error, mut all) = (0.0, Vec::new());
        for weights in matrices {
            let scaled: Vec<f32> = weights
                .values
                .chunks(weights.columns)
                .flat_map(|row| row.iter().zip(&factors).map(|(w, s)| w * s))
                .collect();
            let mut rounded = integer::round(WeightMatrix { values: &scaled, ..*weights }, bits, zero_point, share)?;
            for row in rounded.values.chunks_mut(weights.columns) {
                row.iter_mut().zip(&factors).for_each(|(w, s)| *w /= s);
            }
            let shape = (weights.rows(), weights.columns);
            let own = Tensor::from_slice(weights.values, shape, &Device::Cpu)?;
            let off = (Tensor::from_slice(&rounded.values, shape, &Device::Cpu)? - own)?;
            error += calibration.energy(&off)?;
            all.push(rounded);
        }
        if best.as_ref().is_none_or(|(least, ..)| error < *least) {
            best = Some((error, all, power));
        }
    }
    let (_, rounded, power) = best.expect("some power was tried");
    Ok((rounded, power))
}

/// Mean magnitude to that power, so that the smallest and the largest factor are each other's inverse.
fn factors(mean_abs: &[f32], power: f64) -> Vec<f32> {
    let raw: Vec<f64> = mean_abs.iter().map(|x| f64::from(*x).max(1e-4).powf(power)).collect();
    let (least, most) = raw.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), x| (least.min(*x), most.max(*x)));
    raw.iter().map(|x| (x / (least * most).sqrt()) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpt::SplitMix64;
    use crate::quantize::Format;

    #[test]
    fn factors_by_hand() {
        assert_eq!(factors(&[4.0, 1.0], 0.5), [2.0_f32.sqrt(), 1.0 / 2.0_f32.sqrt()]);
        assert_eq!(factors(&[9.0, 0.0, 3.0], 0.0), [1.0; 3]);
    }

    #[test]
    fn an_outlier_channel_is_rounded_finely() {
        // Input 5 is 50 times as large as the others.
        let (n, tokens) = (64, 512);
        let mut random = SplitMix64::new(9);
        let mut next = || (0..6).map(|_| random.unit() as f32 - 0.5).sum::<f32>();
        let rows: Vec<f32> = (0..tokens * n).map(|i| next() * if i % n == 5 { 50.0 } else { 1.0 }).collect();
        let calibration = Calibration::of(&Tensor::from_vec(rows, (tokens, n), &Device::Cpu).unwrap()).unwrap();
        let values: Vec<f32> = (0..32 * n).map(|_| next()).collect();
        let weights = WeightMatrix { values: &values, columns: n };
        let (own, power) = awq(&[weights, weights], &calibration, 4, true, Share::Group(32)).unwrap();
        let plain = Format::Int { bits: 4, zero_point: true, share: Share::Group(32) }.round(weights).unwrap();
        let error = |rounded: &Rounded| calibration.output_error(weights, &rounded.values).unwrap();
        assert!(power > 0.0 && error(&own[0]) < 0.3 * error(&plain), "{power}: {} {}", error(&own[0]), error(&plain));
        assert_eq!((own[0].bits, &own[0]), (plain.bits, &own[1]));
        let off =
            |values: &[f32]| (0..32).map(|row| (values[row * n + 5] - weights.values[row * n + 5]).abs()).sum::<f32>();
        assert!(off(&own[0].values) < 0.5 * off(&plain.values));
    }

    #[test]
    fn equal_inputs_need_no_factors() {
        let mut random = SplitMix64::new(3);
        let rows: Vec<f32> = (0..256 * 32).map(|_| if random.unit() < 0.5 { -1.0 } else { 1.0 }).collect();
        let calibration = Calibration::of(&Tensor::from_vec(rows, (256, 32), &Device::Cpu).unwrap()).unwrap();
        let values: Vec<f32> = (0..256).map(|_| random.unit() as f32 - 0.5).collect();
        let weights = WeightMatrix { values: &values, columns: 32 };
        let (own, power) = awq(&[weights], &calibration, 4, false, Share::Row).unwrap();
        let plain = Format::Int { bits: 4, zero_point: false, share: Share::Row }.round(weights).unwrap();
        assert_eq!((power, &own[0]), (0.0, &plain));
    }
}
