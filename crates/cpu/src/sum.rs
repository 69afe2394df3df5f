//! The sum of an array, as fast as memory delivers it.

use super::simd::widest;
use super::{CHUNK, WORTH_SHARING};
use rayon::prelude::*;

/// Independent partial sums: eight 512-bit vectors, enough to hide the four cycles that an addition takes.
const LANES: usize = 128;
/// Additions in a row in f32 before a lane's sum moves on to f64.
const CHAIN: usize = 32;

/// The sum of `x`, on all cores.
///
/// Each of 128 lanes adds at most 32 numbers in f32, then everything is added in f64, so the result differs from the
/// exact sum by less than 33 · 2⁻²⁴ · Σ|xᵢ| (2 · 10⁻⁶ of the sum of magnitudes), whatever the length; a plain loop's
/// bound grows with the length. The same data gives the same bits on any number of cores. The sum of nothing is 0.
pub fn sum(x: &[f32]) -> f32 {
    if x.len() < WORTH_SHARING {
        return sum_one_core(x);
    }
    let parts: Vec<f64> = x.par_chunks(CHUNK).map(chunk_sum).collect();
    parts.iter().sum::<f64>() as f32
}

/// The same, to the bit, on one core.
pub fn sum_one_core(x: &[f32]) -> f32 {
    x.chunks(CHUNK).map(chunk_sum).sum::<f64>() as f32
}

widest!(fn chunk_sum(x: &[f32]) -> f64 = lanes_sum);

#[inline(always)]
fn lanes_sum(x: &[f32]) -> f64 {
    let mut total = [0f64; LANES];
    let mut blocks = x.chunks_exact(LANES * CHAIN);
    for block in &mut blocks {
        add_block(block, &mut total);
    }
    let rest = blocks.remainder();
    let whole = rest.len() / LANES * LANES;
    add_block(&rest[..whole], &mut total);
    for (lane, &value) in total.iter_mut().zip(&rest[whole..]) {
        *lane += f64::from(value);
    }
    total.iter().sum()
}

#[inline(always)]
fn add_block(block: &[f32], total: &mut [f64; LANES]) {
    let mut lanes = [0f32; LANES];
    for row in block.chunks_exact(LANES) {
        for lane in 0..LANES {
            lanes[lane] += row[lane];
        }
    }
    for lane in 0..LANES {
        total[lane] += f64::from(lanes[lane]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_f32;

    #[test]
    fn every_length_meets_its_error_bound() {
        for n in (0..300).chain([4095, 4096, 4097, CHUNK - 1, CHUNK, CHUNK + 1, WORTH_SHARING, 1_000_003]) {
            let x = random_f32(n, n as u64);
            let exact: f64 = x.iter().map(|&v| f64::from(v)).sum();
            let bound = 33.0 * 2f64.powi(-24) * x.iter().map(|v| f64::from(v.abs())).sum::<f64>();
            for got in [sum(&x), sum_one_core(&x)] {
                let error = (f64::from(got) - exact).abs();
                assert!(error <= bound, "n = {n}: {got} differs from {exact} by {error}");
            }
            assert_eq!(sum(&x).to_bits(), sum_one_core(&x).to_bits(), "n = {n}");
        }
    }

    #[test]
    fn every_element_counts_once() {
        // Ones and twos sum exactly in f32, so one that is missed or counted twice shows.
        let x: Vec<f32> = (0..600_001).map(|i| 1.0 + (i % 2) as f32).collect();
        assert_eq!(sum(&x), 900_001.0);
    }

    #[test]
    fn a_nan_or_an_infinity_shows() {
        for at in [0, 100, 70_000, WORTH_SHARING] {
            let mut x = vec![1.0; WORTH_SHARING + 1];
            x[at] = f32::NAN;
            assert!(sum(&x).is_nan() && sum_one_core(&x).is_nan(), "at {at}");
            x[at] = f32::INFINITY;
            assert_eq!(sum(&x), f32::INFINITY);
        }
    }
}
