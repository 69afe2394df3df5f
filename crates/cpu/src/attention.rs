//! Attention in f64, `softmax(q · kᵀ / √width) · v`: what every kernel of it is compared with.
//!
//! All arrays are row-major: `q` and the result `[batch, q_heads, length, width]`, `k` and `v`
//! `[batch, kv_heads, length, width]`. A row of the result is one query of one head, counted through all of them.

mod agree;
mod gradient;
mod shape;

pub use agree::{Rounding, attention_wrong};
pub use gradient::{AttentionBackward, GradientRow, attention_backward_f64};
pub use shape::{AttentionMask, AttentionShape};

use super::random_f32;
use gpulab_measure::error::{Result, same_length};
use rayon::prelude::*;

/// What stands at a place of an array, whatever its element type.
pub type ElementAt<'a> = &'a dyn Fn(usize) -> f64;

/// One row of the result in f64, and what bounds its rounding errors.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionRow {
    /// The result: `width` numbers. A query to which every key is hidden has no softmax; its row is 0 here.
    pub values: Vec<f64>,
    /// The same with |v| in place of v: what errors of the weights are relative to.
    pub magnitudes: Vec<f64>,
    /// The largest Σ|q · k| / √width of a key: what errors of the scores are relative to.
    pub score_magnitude: f64,
    /// log₂ of the sum of e^score over the keys, −∞ where none is seen.
    pub lse: f64,
}

/// One row of the result. `q`, `k` and `v` give the number at a place of their arrays, so any element type will do.
///
/// # Panics
/// When the row, or what it reads, lies outside the arrays: check `shape` and the lengths first.
pub fn attention_row(
    (q, k, v): (ElementAt<'_>, ElementAt<'_>, ElementAt<'_>),
    shape: AttentionShape,
    mask: &AttentionMask,
    row: usize,
) -> AttentionRow {
    let AttentionShape { length, width, .. } = shape;
    let (batch, head, query) = shape.place(row);
    let first = (batch * shape.kv_heads + shape.kv_head(head)) * length * width;
    let scale = 1.0 / (width as f64).sqrt();
    let seen = mask.seen(batch, query, length);
    let product = |key: usize, of: &dyn Fn(f64) -> f64| -> f64 {
        (0..width).map(|d| of(q(row * width + d) * k(first + key * width + d))).sum::<f64>() * scale
    };
    let scores: Vec<f64> = (0..seen).map(|key| product(key, &|x| x)).collect();
    let score_magnitude = (0..seen).map(|key| product(key, &f64::abs)).fold(0.0, f64::max);
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let (mut values, mut magnitudes) = (vec![0.0; width], vec![0.0; width]);
    for (key, weight) in weights.iter().enumerate() {
        for d in 0..width {
            let x = weight / sum * v(first + key * width + d);
            values[d] += x;
            magnitudes[d] += x.abs();
        }
    }
    let lse = most * std::f64::consts::LOG2_E + sum.log2();
    AttentionRow { values, magnitudes, score_magnitude, lse }
}

/// The whole result in f64, on all cores; T² · width steps a head, so keep it small. Of a query to which every key is
/// hidden the row is 0.
///
/// ```
/// use gpulab_cpu::{AttentionMask, AttentionShape, attention_f64};
/// let shape = AttentionShape { batch: 1, q_heads: 1, kv_heads: 1, length: 2, width: 1 };
/// // The first query sees itself alone, the second one both, with weights of 1 : e.
/// let out = attention_f64(&[1.0, 1.0], &[0.0, 1.0], &[3.0, 5.0], shape, &AttentionMask::causal())?;
/// assert_eq!((out[0], (out[1] * 1e3).round()), (3.0, 4462.0));
/// # Ok::<(), gpulab_measure::Error>(())
/// ```
///
/// # Errors
/// [`Error::LengthMismatch`](gpulab_measure::Error::LengthMismatch) for an array of another length than its shape,
/// [`Error::Invalid`](gpulab_measure::Error::Invalid) for a shape or a mask that is none.
pub fn attention_f64(q: &[f32], k: &[f32], v: &[f32], shape: AttentionShape, mask: &AttentionMask) -> Result<Vec<f64>> {
    shape.check()?;
    mask.check(shape)?;
    same_length("attention's `q`", shape.q_numbers(), q.len())?;
    same_length("attention's `k`", shape.kv_numbers(), k.len())?;
    same_length("attention's `v`", shape.kv_numbers(), v.len())?;
    let row = |row| {
        let get = |x: &[f32], at: usize| f64::from(x[at]);
        attention_row((&|at| get(q, at), &|at| get(k, at), &|at| get(v, at)), shape, mask, row).values
    };
    Ok((0..shape.rows()).into_par_iter().flat_map_iter(row).collect())
}

/// Random `q`, `k` and `v` whose scores spread by about `spread` (their standard deviation): at 1 softmax looks at
/// many keys, at 10 at a few, from 100 on exp of a score overflows where nobody takes the largest one away.
pub fn attention_inputs(shape: AttentionShape, seed: u64, spread: f32) -> [Vec<f32>; 3] {
    // Numbers from -1 to 1 have a variance of 1/3, so a score of `width` products, over √width, has one of 1/9.
    let q = random_f32(shape.q_numbers(), 3 * seed).into_iter().map(|x| 3.0 * spread * x).collect();
    [q, random_f32(shape.kv_numbers(), 3 * seed + 1), random_f32(shape.kv_numbers(), 3 * seed + 2)]
}

#[cfg(test)]
mod tests;
