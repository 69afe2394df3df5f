//! The gradients of attention in f64: what every kernel of its backward pass is compared with.

use super::{AttentionMask, AttentionShape, ElementAt, attention_row};
use gpulab_measure::error::{Result, same_length};
use rayon::prelude::*;

/// What the gradients are worked out from: the inputs, the gradient of the result, and of each query what the forward pass
/// left. Each gives the number at a place of its array.
#[derive(Clone, Copy)]
pub struct AttentionBackward<'a> {
    /// Sides of the arrays.
    pub shape: AttentionShape,
    /// Which keys are hidden.
    pub mask: &'a AttentionMask,
    /// `[batch, q_heads, length, width]`.
    pub q: ElementAt<'a>,
    /// `[batch, kv_heads, length, width]`.
    pub k: ElementAt<'a>,
    /// `[batch, kv_heads, length, width]`.
    pub v: ElementAt<'a>,
    /// The gradient of the result, `[batch, q_heads, length, width]`.
    pub d_o: ElementAt<'a>,
    /// log₂ of the sum of e^score over a query's keys, `[batch, q_heads, length]`.
    pub lse: ElementAt<'a>,
    /// The sum of result · gradient of a query, `[batch, q_heads, length]`.
    pub delta: ElementAt<'a>,
}

/// One row of a gradient in f64, and what bounds its rounding errors.
#[derive(Debug, Clone, PartialEq)]
pub struct GradientRow {
    /// The gradient: `width` numbers.
    pub values: Vec<f64>,
    /// The same with all terms positive: what the rounding of weights (of their derivatives) to bf16 is relative to.
    pub magnitudes: Vec<f64>,
    /// The same before the difference with delta is taken: what errors in f32 are relative to.
    pub in_f32: Vec<f64>,
    /// The largest Σ|q · k| / √width: what errors of the scores are relative to.
    pub score_magnitude: f64,
}

/// A query and a key: the weight, its derivative, and the magnitude of the latter's parts.
struct Pair {
    weight: f64,
    derivative: f64,
    parts: f64,
    score: f64,
}

impl AttentionBackward<'_> {
    /// The gradient of one query, counted through all heads.
    ///
    /// # Panics
    /// When the row, or what it reads, lies outside the arrays. So do its siblings.
    pub fn dq_row(&self, row: usize) -> GradientRow {
        let AttentionShape { length, width, kv_heads, .. } = self.shape;
        let (batch, head, query) = self.shape.place(row);
        let first = (batch * kv_heads + self.shape.kv_head(head)) * length;
        let scale = 1.0 / (width as f64).sqrt();
        let mut sum = GradientRow::zero(width);
        for key in first..first + self.mask.seen(batch, query, length) {
            let pair = self.pair(row, key);
            sum.add(pair.derivative * scale, pair.parts * scale, pair.score, |d| (self.k)(key * width + d));
        }
        sum
    }

    /// The gradients of one key and of its value, counted through all heads of k.
    pub fn dkv_row(&self, row: usize) -> [GradientRow; 2] {
        let AttentionShape { length, width, kv_heads, q_heads, .. } = self.shape;
        let (batch, head, key) = (row / length / kv_heads, row / length % kv_heads, row % length);
        let group = q_heads / kv_heads;
        let scale = 1.0 / (width as f64).sqrt();
        let (mut dk, mut dv) = (GradientRow::zero(width), GradientRow::zero(width));
        for q_head in head * group..(head + 1) * group {
            for query in (0..length).filter(|&query| key < self.mask.seen(batch, query, length)) {
                let q_row = (batch * q_heads + q_head) * length + query;
                let pair = self.pair(q_row, row);
                dk.add(pair.derivative * scale, pair.parts * scale, pair.score, |d| (self.q)(q_row * width + d));
                dv.add(pair.weight, pair.weight, pair.score, |d| (self.d_o)(q_row * width + d));
            }
        }
        [dk, dv]
    }

    fn pair(&self, query: usize, key: usize) -> Pair {
        let width = self.shape.width;
        let scale = 1.0 / (width as f64).sqrt();
        let (mut score, mut size, mut dp, mut dp_size) = (0.0, 0.0, 0.0, 0.0);
        for d in 0..width {
            let (s, x) = (
                (self.q)(query * width + d) * (self.k)(key * width + d),
                (self.d_o)(query * width + d) * (self.v)(key * width + d),
            );
            (score, size, dp, dp_size) = (score + s, size + s.abs(), dp + x, dp_size + x.abs());
        }
        let weight = (score * scale - (self.lse)(query) * std::f64::consts::LN_2).exp();
        let delta = (self.delta)(query);
        Pair { weight, derivative: weight * (dp - delta), parts: weight * (dp_size + delta.abs()), score: size * scale }
    }
}

impl GradientRow {
    fn zero(width: usize) -> GradientRow {
        let zeros = || vec![0.0; width];
        GradientRow { values: zeros(), magnitudes: zeros(), in_f32: zeros(), score_magnitude: 0.0 }
    }

    fn add(&mut self, weight: f64, parts: f64, score: f64, number: impl Fn(usize) -> f64) {
        for d in 0..self.values.len() {
            let x = number(d);
            self.values[d] += weight * x;
            self.magnitudes[d] += (weight * x).abs();
            self.in_f32[d] += (parts * x).abs();
        }
        self.score_magnitude = self.score_magnitude.max(score);
    }

    /// How far off each number may be that a right kernel computes from bf16 to bf16 with sums in f32, where weights and
    /// their derivatives are rounded to bf16 before the second product. `terms`: how many of them are added up.
    pub fn allowed(&self, terms: usize, shape: AttentionShape) -> Vec<f64> {
        let (half, bf16) = (2.0_f64.powi(-24), 2.0_f64.powi(-9));
        let width = shape.width as f64 + 8.0;
        let in_f32 = half * (terms as f64 + 16.0 + 2.0 * width * (1.0 + self.score_magnitude));
        let smallest = f64::from(f32::MIN_POSITIVE);
        let numbers = self.values.iter().zip(&self.magnitudes).zip(&self.in_f32);
        numbers.map(|((value, size), parts)| 2.0 * bf16 * (size + value.abs()) + in_f32 * parts + smallest).collect()
    }
}

/// The gradients of q, k and v in f64, on all cores, from the forward pass in f64; T² · width steps a head, so keep it small.
///
/// ```
/// use gpulab_cpu::{AttentionMask, AttentionShape, attention_backward_f64};
/// let shape = AttentionShape { batch: 1, q_heads: 1, kv_heads: 1, length: 1, width: 2 };
/// // One key has a weight of 1, whatever its score: the value gets the whole gradient.
/// let [dq, dk, dv] = attention_backward_f64(&[0.0; 2], &[1.0; 2], &[3.0; 2], &[5.0, 7.0], shape, &AttentionMask::none())?;
/// assert_eq!((dq, dk, dv), (vec![0.0; 2], vec![0.0; 2], vec![5.0, 7.0]));
/// # Ok::<(), gpulab_measure::Error>(())
/// ```
///
/// # Errors
/// As [`attention_f64`](super::attention_f64).
pub fn attention_backward_f64(
    q: &[f32],
    k: &[f32],
    v: &[f32],
    d_o: &[f32],
    shape: AttentionShape,
    mask: &AttentionMask,
) -> Result<[Vec<f64>; 3]> {
    shape.check()?;
    mask.check(shape)?;
    same_length("attention's `q`", shape.q_numbers(), q.len())?;
    same_length("attention's `k`", shape.kv_numbers(), k.len())?;
    same_length("attention's `v`", shape.kv_numbers(), v.len())?;
    same_length("the gradient of attention's result", shape.q_numbers(), d_o.len())?;
    let get = |x: &[f32], at: usize| f64::from(x[at]);
    let width = shape.width;
    let left = |row| {
        let row_of = attention_row((&|at| get(q, at), &|at| get(k, at), &|at| get(v, at)), shape, mask, row);
        let delta: f64 = row_of.values.iter().enumerate().map(|(d, o)| o * get(d_o, row * width + d)).sum();
        (row_of.lse, delta)
    };
    let (lse, delta): (Vec<f64>, Vec<f64>) = (0..shape.rows()).into_par_iter().map(left).unzip();
    let all = |of: &(dyn Fn(&AttentionBackward<'_>, usize) -> Vec<Vec<f64>> + Sync), rows: usize| -> Vec<Vec<f64>> {
        let rows: Vec<Vec<Vec<f64>>> = (0..rows)
            .into_par_iter()
            .map(|row| {
                let backward = AttentionBackward {
                    shape,
                    mask,
                    q: &|at| get(q, at),
                    k: &|at| get(k, at),
                    v: &|at| get(v, at),
                    d_o: &|at| get(d_o, at),
                    lse: &|at| lse[at],
                    delta: &|at| delta[at],
                };
                of(&backward, row)
            })
            .collect();
        (0..rows.first().map_or(0, Vec::len))
            .map(|part| rows.iter().flat_map(|row| row[part].clone()).collect())
            .collect()
    };
    let mut dq = all(&|backward, row| vec![backward.dq_row(row).values], shape.rows());
    let mut dkv = all(
        &|backward, row| backward.dkv_row(row).map(|row| row.values).into(),
        shape.batch * shape.kv_heads * shape.length,
    );
    let (dv, dk) = (dkv.pop().unwrap_or_default(), dkv.pop().unwrap_or_default());
    Ok([dq.pop().unwrap_or_default(), dk, dv])
}
