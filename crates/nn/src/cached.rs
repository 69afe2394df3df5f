//! Where a step of a model finds the keys and values of its texts, whichever cache holds them.

use candle_core::Tensor;

/// A text's tokens in a step, and where its keys and values are.
pub(crate) struct Reader<'a> {
    pub tokens: &'a [u32],
    /// How many tokens of the text are before them.
    pub first: usize,
    /// Slots of the first head's keys, for all tokens up to the last one here: where each run begins, and how long it is.
    pub runs: Vec<(usize, usize)>,
    pub asked: Asked,
}

/// After which of a reader's tokens the logits are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    None,
    Last,
    All,
}

/// Keys and values of all layers: candle tensors in f32 whose last axis is the head dimension.
#[derive(Clone, Copy)]
pub(crate) struct KeysValues<'a> {
    pub layers: &'a [(Tensor, Tensor)],
    /// Slots from a head's to the next head's.
    pub head_slots: usize,
}
