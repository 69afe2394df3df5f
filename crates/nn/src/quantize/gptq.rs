//! GPTQ: column after column is rounded, and the columns that are still to come make up for the error.
//!
//! Frantar and others, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers", 2022,
//! <https://arxiv.org/abs/2210.17323>, algorithm 1. The error of a column is spread over the later ones by the inverse of the inputs'
//! second moments, of which only a Cholesky factor is needed.

use super::calibration::Calibration;
use super::integer::{IntGrid, fit};
use super::matrix::{Rounded, Share, WeightMatrix};
use gpulab::error::{Error, Result};
use rayon::prelude::*;

/// What is added to the diagonal of the moments, as a share of its mean: without it they may have no inverse.
const DAMPING: f64 = 0.01;

/// Rounds a matrix to whole numbers of so many bits, so that its outputs on the calibration text stay close.
///
/// # Errors
/// As [`Format::round`](super::Format::round); [`Error::Invalid`] when the calibration is of other inputs, or its moments have no inverse.
pub fn gptq(
    weights: WeightMatrix,
    calibration: &Calibration,
    bits: u32,
    zero_point: bool,
    share: Share,
) -> Result<Rounded> {
    weights.check()?;
    let (fit, grid_bits) = fit(bits, zero_point)?;
    let (n, rows) = (weights.columns, weights.rows());
    if calibration.mean_abs.len() != n {
        return Err(Error::invalid(
            format!("a calibration of {} inputs for a matrix of {n}", calibration.mean_abs.len()),
            "calibrate with the inputs of this matrix",
        ));
    }
    // A scale for the whole matrix is found once; all others are found when their first column is reached.
    let size = weights.shared(share)?.min(n);
    let whole = (share == Share::Tensor).then(|| fit(weights.values, bits));
    let spread = inverse_factor(calibration)?;
    let round_row = |row: &[f32]| -> Vec<f32> {
        let mut left = row.to_vec();
        let mut grid = whole.unwrap_or(IntGrid { scale: 0.0, zero: 0, low: 0, high: 0 });
        for j in 0..n {
            if j % size == 0 && whole.is_none() {
                grid = fit(&left[j..j + size], bits);
            }
            let factor = &spread[j * n..(j + 1) * n];
            let rounded = grid.round(left[j]);
            let off = (left[j] - rounded) / factor[j];
            left[j] = rounded;
            left[j + 1..].iter_mut().zip(&factor[j + 1..]).for_each(|(x, share)| *x -= off * share);
        }
        left
    };
    let values: Vec<f32> = weights.values.par_chunks(n).flat_map_iter(round_row).collect();
    let grids = if whole.is_some() { 1 } else { rows * n / size } as u64;
    Ok(Rounded { bits: values.len() as u64 * u64::from(bits) + grids * grid_bits, values })
}

/// The upper triangle U with Uᵀ · U = (moments + damping)⁻¹, row after row.
///
/// The moments are M · Mᵀ with an upper triangle M, and U is its inverse.
fn inverse_factor(calibration: &Calibration) -> Result<Vec<f32>> {
    let n = calibration.mean_abs.len();
    let moments = calibration.moments.flatten_all()?.to_vec1::<f32>()?;
    let mean = (0..n).map(|i| f64::from(moments[i * n + i])).sum::<f64>() / n as f64;
    // From the last row and column to the first, so that an ordinary Cholesky factor of it is M, turned round.
    let mut a: Vec<f64> = moments.iter().rev().map(|x| f64::from(*x)).collect();
    (0..n).for_each(|i| a[i * n + i] += DAMPING * mean + f64::MIN_POSITIVE);
    for k in 0..n {
        let pivot = a[k * n + k];
        if !(pivot > 0.0 && pivot.is_finite()) {
            return Err(Error::invalid(
                format!("the second moments of this layer's inputs have no inverse (pivot {k} is {pivot})"),
                "calibrate with more text, of more kinds",
            ));
        }
        let (done, rest) = a.split_at_mut((k + 1) * n);
        let row = &mut done[k * n..];
        let root = pivot.sqrt();
        row[k..].iter_mut().for_each(|x| *x /= root);
        let row = &*row;
        rest.par_chunks_mut(n).enumerate().with_min_len(16).for_each(|(below, other)| {
            let i = k + 1 + below;
            let share = row[i];
            other[i..].iter_mut().zip(&row[i..]).for_each(|(x, y)| *x -= share * y);
        });
    }
    let m = |i: usize, j: usize| a[(n - 1 - j) * n + (n - 1 - i)];
    let mut inverse = vec![0.0_f64; n * n];
    for i in (0..n).rev() {
        let (above, below) = inverse.split_at_mut((i + 1) * n);
        let row = &mut above[i * n..];
        row[i] = 1.0;
        for k in i + 1..n {
            let share = m(i, k);
            row[k..].iter_mut().zip(&below[(k - i - 1) * n + k..(k - i) * n]).for_each(|(x, y)| *x -= share * y);
        }
        let pivot = m(i, i);
        row[i..].iter_mut().for_each(|x| *x /= pivot);
    }
    Ok(inverse.into_iter().map(|x| x as f32).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpt::SplitMix64;
    use crate::quantize::Format;
    use candle_core::{Device, Tensor};

    fn random(count: usize, seed: u64) -> Vec<f32> {
        let mut random = SplitMix64::new(seed);
        (0..count).map(|_| (0..6).map(|_| random.unit() as f32 - 0.5).sum()).collect()
    }

    /// Inputs that depend on each other: each is a mixture of few hidden ones, and some are large.
    fn inputs(tokens: usize, columns: usize) -> Tensor {
        let hidden = Tensor::from_vec(random(tokens * 8, 1), (tokens, 8), &Device::Cpu).unwrap();
        let mix = Tensor::from_vec(random(8 * columns, 2), (8, columns), &Device::Cpu).unwrap();
        let noise = Tensor::from_vec(random(tokens * columns, 3), (tokens, columns), &Device::Cpu).unwrap();
        (hidden.matmul(&mix).unwrap() + (noise * 0.3).unwrap()).unwrap()
    }

    #[test]
    fn the_factor_is_that_of_the_inverse() {
        let n = 24;
        let calibration = Calibration::of(&inputs(400, n)).unwrap();
        let u = Tensor::from_vec(inverse_factor(&calibration).unwrap(), (n, n), &Device::Cpu).unwrap();
        let below: f32 = (0..n)
            .flat_map(|i| (0..i).map(move |j| (i, j)))
            .map(|(i, j)| u.to_vec2::<f32>().unwrap()[i][j].abs())
            .sum();
        assert_eq!(below, 0.0);
        let moments = calibration.moments.to_vec2::<f32>().unwrap();
        let mean = (0..n).map(|i| moments[i][i]).sum::<f32>() / n as f32;
        let damped = (&calibration.moments
            + (Tensor::eye(n, candle_core::DType::F32, &Device::Cpu).unwrap() * f64::from(0.01 * mean)).unwrap())
        .unwrap();
        let one = u.t().unwrap().matmul(&u).unwrap().matmul(&damped).unwrap().to_vec2::<f32>().unwrap();
        for (i, row) in one.iter().enumerate() {
            for (j, x) in row.iter().enumerate() {
                assert!((x - if i == j { 1.0 } else { 0.0 }).abs() < 1e-3, "{i} {j} {x}");
            }
        }
    }

    #[test]
    fn independent_inputs_leave_plain_rounding() {
        // Their moments are diagonal: no column can make up for another.
        let n = 16;
        let rows: Vec<f32> =
            (0..n * 16).flat_map(|i| (0..n).map(move |j| if i % n == j { 2.0 } else { 0.0 })).collect();
        let calibration = Calibration::of(&Tensor::from_vec(rows, (n * 16, n), &Device::Cpu).unwrap()).unwrap();
        let values = random(8 * n, 4);
        let weights = WeightMatrix { values: &values, columns: n };
        let own = gptq(weights, &calibration, 4, false, Share::Row).unwrap();
        let plain = Format::Int { bits: 4, zero_point: false, share: Share::Row }.round(weights).unwrap();
        assert_eq!(own, plain);
    }

    #[test]
    fn outputs_are_closer_than_by_rounding_and_weights_are_on_the_grid() {
        let n = 64;
        let calibration = Calibration::of(&inputs(512, n)).unwrap();
        let values = random(32 * n, 5);
        let weights = WeightMatrix { values: &values, columns: n };
        for (bits, zero_point, share) in
            [(4, false, Share::Row), (4, true, Share::Group(32)), (3, true, Share::Row), (4, false, Share::Tensor)]
        {
            let own = gptq(weights, &calibration, bits, zero_point, share).unwrap();
            let plain = Format::Int { bits, zero_point, share }.round(weights).unwrap();
            let error = |rounded: &Rounded| calibration.output_error(weights, &rounded.values).unwrap();
            assert!(error(&own) < 0.6 * error(&plain), "{bits} {share:?}: {} {}", error(&own), error(&plain));
            assert_eq!(own.bits, plain.bits);
            for row in own.values.chunks(n) {
                let mut different: Vec<u32> = row[..32].iter().map(|x| x.to_bits()).collect();
                different.sort_unstable();
                different.dedup();
                assert!(different.len() <= 1 << bits, "{} values of {bits} bits", different.len());
            }
        }
        let other = Calibration::of(&inputs(512, 32)).unwrap();
        assert!(
            gptq(weights, &other, 4, false, Share::Row)
                .unwrap_err()
                .to_string()
                .contains("32 inputs for a matrix of 64")
        );
        assert!(gptq(weights, &calibration, 4, false, Share::Group(48)).is_err());
    }
}
