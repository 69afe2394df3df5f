//! The sides of attention, and which keys a query may see.

use gpulab_measure::error::{Error, Result};
use std::fmt;

/// The sides of `q` and the result, `[batch, q_heads, length, width]`, and of `k` and `v`,
/// `[batch, kv_heads, length, width]`.
///
/// # Examples
/// ```
/// use gpulab_cpu::AttentionShape;
/// // Eight heads ask, and each two of them share one head of keys and values.
/// let shape = AttentionShape { batch: 1, q_heads: 8, kv_heads: 4, length: 128, width: 64 }.check()?;
/// assert_eq!((shape.q_numbers(), shape.kv_numbers()), (8 * 128 * 64, 4 * 128 * 64));
/// assert_eq!((shape.scores(), shape.kv_head(7)), (8 * 128 * 128, 3));
/// # Ok::<(), gpulab_measure::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionShape {
    /// Sequences.
    pub batch: usize,
    /// Heads that ask.
    pub q_heads: usize,
    /// Heads that are asked: `q_heads / kv_heads` neighbours share one (grouped queries); 1 is multi-query attention.
    pub kv_heads: usize,
    /// Tokens of a sequence: T of the scores' T × T.
    pub length: usize,
    /// Head dimension: d of the formula.
    pub width: usize,
}

impl AttentionShape {
    /// The shape itself, where it is one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for heads that cannot be shared evenly, a side of 0, and more scores than can be counted.
    pub fn check(self) -> Result<AttentionShape> {
        let AttentionShape { batch, q_heads, kv_heads, length, width } = self;
        let sides = [batch, q_heads, kv_heads, length, width];
        let counted = |sides: &[usize]| sides.iter().try_fold(16usize, |all, &side| all.checked_mul(side)).is_some();
        let fix = if sides.contains(&0) {
            "let every side be at least 1"
        } else if !q_heads.is_multiple_of(kv_heads) {
            "let the heads of q be a multiple of those of k and v, so that each of these serves as many"
        } else if !counted(&[batch, q_heads, length, length]) || !counted(&[batch, q_heads, length, width]) {
            "take fewer or shorter sequences: bytes are counted in 64 bits"
        } else {
            return Ok(self);
        };
        Err(Error::invalid(format!("attention over {self}"), fix.to_string()))
    }

    /// Numbers of `q`, and of the result.
    pub fn q_numbers(self) -> usize {
        self.rows() * self.width
    }

    /// Numbers of `k`, and of `v`.
    pub fn kv_numbers(self) -> usize {
        self.batch * self.kv_heads * self.length * self.width
    }

    /// Rows of the result, and of the scores: a query of a head each.
    pub fn rows(self) -> usize {
        self.batch * self.q_heads * self.length
    }

    /// Numbers of the scores: batch · q_heads · T².
    pub fn scores(self) -> usize {
        self.rows() * self.length
    }

    /// The head of k and v that a head of q asks.
    pub fn kv_head(self, q_head: usize) -> usize {
        q_head / (self.q_heads / self.kv_heads)
    }

    /// The sequence, the head of q and the query that a row belongs to.
    pub fn place(self, row: usize) -> (usize, usize, usize) {
        (row / self.length / self.q_heads, row / self.length % self.q_heads, row % self.length)
    }

    /// Multiplications and additions of the two products: 4 · batch · q_heads · T² · width, half of them where a causal
    /// mask hides half of the keys (as FlashAttention's authors count).
    pub fn operations(self, causal: bool) -> f64 {
        4.0 * self.scores() as f64 * self.width as f64 * if causal { 0.5 } else { 1.0 }
    }
}

impl fmt::Display for AttentionShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AttentionShape { batch, q_heads, kv_heads, length, width } = self;
        write!(
            f,
            "batch {batch}, {q_heads} heads of q and {kv_heads} of k and v, {length} tokens, head dimension {width}"
        )
    }
}

/// Which keys a query may not see. What is hidden gets the weight 0, as if its score were −∞.
///
/// # Examples
/// ```
/// use gpulab_cpu::AttentionMask;
/// let mask = AttentionMask::causal().padded(&[3, 8]);
/// assert_eq!(mask.seen(1, 4, 8), 5); // the fifth query sees itself and four keys before it
/// assert_eq!(mask.seen(0, 4, 8), 3); // the first sequence has three tokens
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttentionMask {
    /// A query sees no key behind it: `key > query` is hidden.
    pub causal: bool,
    /// Padding: of sequence `b` the keys from `lengths[b]` on are hidden. `None`: all sequences are whole.
    pub lengths: Option<Vec<usize>>,
}

impl AttentionMask {
    /// Nothing is hidden.
    pub fn none() -> AttentionMask {
        AttentionMask::default()
    }

    /// No query sees a key behind it.
    pub fn causal() -> AttentionMask {
        AttentionMask { causal: true, lengths: None }
    }

    /// The same, with the true lengths of the sequences: what comes after is padding.
    pub fn padded(self, lengths: &[usize]) -> AttentionMask {
        AttentionMask { lengths: Some(lengths.to_vec()), ..self }
    }

    /// How many keys a query of a sequence sees, of `length`: always the first ones.
    pub fn seen(&self, batch: usize, query: usize, length: usize) -> usize {
        let length = self.lengths.as_ref().map_or(length, |lengths| lengths[batch].min(length));
        if self.causal { length.min(query + 1) } else { length }
    }

    /// An error where there is not one length from 0 to `shape.length` for each sequence.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::Invalid`].
    pub fn check(&self, shape: AttentionShape) -> Result<()> {
        let Some(lengths) = &self.lengths else { return Ok(()) };
        super::same_length("the padding mask's lengths, one a sequence", shape.batch, lengths.len())?;
        match lengths.iter().position(|&length| length > shape.length) {
            None => Ok(()),
            Some(at) => Err(Error::invalid(
                format!("sequence {at} is said to have {} of {} tokens", lengths[at], shape.length),
                "count the tokens of each sequence without its padding",
            )),
        }
    }
}
