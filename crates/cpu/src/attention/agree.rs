//! Comparing a result of attention with f64.

use super::{AttentionMask, AttentionRow, AttentionShape, ElementAt, attention_row};

/// How a kernel rounds, and so how far off it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// All in f32.
    F32,
    /// Inputs and result bf16, scores and sums f32; weights may be rounded to bf16 before the second product.
    Bf16,
    /// As `Bf16`, and the scores are written to memory as bf16 too, so often.
    Bf16Scores(u32),
}

/// The first number of these rows that is further off the result in f64 than rounding explains, in words; `None` where
/// there is none. A number that was never written, in a poisoned result, is NaN, and never passes. Rows of queries to which
/// every key is hidden must be 0.
///
/// The bound: each weight is off by a share of itself, `2 · (error of its score) + (error of its sum)`, and so is the
/// result, of Σ weight · |v|; its own rounding comes on top.
///
/// # Panics
/// When `shape` or `rows` reach beyond the arrays.
pub fn attention_wrong(
    given: ElementAt<'_>,
    (q, k, v): (ElementAt<'_>, ElementAt<'_>, ElementAt<'_>),
    shape: AttentionShape,
    mask: &AttentionMask,
    rows: &[usize],
    rounding: Rounding,
) -> Option<String> {
    for &row in rows {
        let exact = attention_row((q, k, v), shape, mask, row);
        for (d, (expected, allowed)) in exact.values.iter().zip(exact.allowed(shape, rounding)).enumerate() {
            let at = row * shape.width + d;
            let error = (given(at) - expected).abs();
            // Written so that NaN, which is neither more nor less, is wrong.
            if error.is_nan() || error > allowed {
                let (batch, head, query) = shape.place(row);
                return Some(format!(
                    "sequence {batch}, head {head}, query {query}, number {d}: {} instead of {expected} ({shape})",
                    given(at)
                ));
            }
        }
    }
    None
}

impl AttentionRow {
    /// How far off each of its numbers may be that a right kernel computes.
    pub fn allowed(&self, shape: AttentionShape, rounding: Rounding) -> Vec<f64> {
        let (half, bf16) = (2.0_f64.powi(-24), 2.0_f64.powi(-9));
        let (terms, width) = (shape.length as f64 + 8.0, shape.width as f64 + 8.0);
        let in_f32 = half * (terms + 2.0 * width * self.score_magnitude);
        let (weights, own) = match rounding {
            Rounding::F32 => (in_f32, half),
            Rounding::Bf16 => (in_f32 + 2.0 * bf16, 2.0 * bf16),
            Rounding::Bf16Scores(times) => {
                (in_f32 + 2.0 * bf16 + 2.0 * f64::from(times) * bf16 * self.score_magnitude, 2.0 * bf16)
            }
        };
        // The largest number that any launch of a GPU rounds to 0 as a weight: below the smallest normal f32.
        let smallest = f64::from(f32::MIN_POSITIVE);
        let numbers = self.magnitudes.iter().zip(&self.values);
        numbers.map(|(magnitude, value)| weights * magnitude + own * value.abs() + smallest).collect()
    }
}
