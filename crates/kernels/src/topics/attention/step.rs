//! The lines of attention's formula, each with its kernel.

use crate::code::Listing;
use crate::ladder::operator;
use gpulab::error::Result;

/// One line of the formula, and the kernel that computes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionStep {
    /// Rows of tokens are cut into heads: `[batch, length, heads, width]` to `[batch, heads, length, width]`.
    SplitHeads,
    /// Each query times each key.
    Scores,
    /// Over √width.
    Scale,
    /// What must not be seen gets −∞.
    Mask,
    /// Each row of scores becomes weights, whose sum is 1.
    Softmax,
    /// The mean of v that they weigh.
    WeightedSum,
    /// Heads are put together again.
    MergeHeads,
    /// Scale, mask and softmax in one launch.
    MaskedSoftmax,
}

use AttentionStep::*;

impl AttentionStep {
    /// A kernel for each line of the formula, in order.
    pub const CHAIN: &[AttentionStep] = &[SplitHeads, Scores, Scale, Mask, Softmax, WeightedSum, MergeHeads];
    /// The same with one kernel between the two products.
    pub const FUSED: &[AttentionStep] = &[SplitHeads, Scores, MaskedSoftmax, WeightedSum, MergeHeads];
    /// All of them.
    pub const ALL: &[AttentionStep] =
        &[SplitHeads, Scores, Scale, Mask, Softmax, WeightedSum, MergeHeads, MaskedSoftmax];

    /// Its name, as in tables and in `metrics.csv`.
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// What it computes, as a line of the formula.
    pub fn formula(self) -> &'static str {
        self.words().1
    }

    /// The operator's path and the kernel's name. The products have kernels of their own for bf16; the others are compiled
    /// with `-DBF16`.
    pub(super) fn kernel(self, bf16: bool) -> (&'static str, &'static str) {
        match (self, bf16, self.words()) {
            (Scores, true, (.., kernel)) => ("attention/scores_bf16", kernel),
            (WeightedSum, true, (.., kernel)) => ("attention/weighted_sum_bf16", kernel),
            (.., (.., path, kernel)) => (path, kernel),
        }
    }

    /// The file of its kernel for f32, to look at.
    ///
    /// # Errors
    /// [`Error::File`](gpulab::Error::File) when the file cannot be read.
    pub fn source(self) -> Result<Listing> {
        let path = self.kernel(false).0;
        let source = operator(path)?.source()?;
        Ok(Listing { name: format!("{path}.cu"), text: source.text, constants: source.defines })
    }

    fn words(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            SplitHeads => ("split heads", "Q, K, V by heads", "attention/heads", "split_heads"),
            Scores => ("scores", "S = Q Kᵀ", "attention/scores", "scores"),
            Scale => ("scale", "S / √d", "attention/scale", "scale"),
            Mask => ("mask", "S = −∞ where hidden", "attention/mask", "mask"),
            Softmax => ("softmax", "P = softmax(S)", "attention/softmax", "softmax_rows"),
            WeightedSum => ("weighted sum", "O = P V", "attention/weighted_sum", "weighted_sum"),
            MergeHeads => ("merge heads", "O by tokens", "attention/heads", "merge_heads"),
            MaskedSoftmax => {
                ("masked softmax", "P = softmax(S / √d), masked", "attention/masked_softmax", "masked_softmax")
            }
        }
    }
}
