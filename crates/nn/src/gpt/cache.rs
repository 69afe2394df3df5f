//! What attention needs again of the tokens that came before: their keys and values, in room that is made once.

use super::model::{HIDDEN, causal_mask};
use super::{Config, Gpt};
use gpulab::error::{Error, Result};
use candle_core::{DType, Device, Tensor};

/// Keys and values of a batch of texts. Shorter texts are filled up on the left, so that all end at the same place.
#[derive(Debug)]
pub struct Cache {
    /// Of each layer, `[texts, heads, room, d]`.
    layers: Vec<(Tensor, Tensor)>,
    /// Tokens that are in it, filling included.
    filled: usize,
    room: usize,
    /// How many tokens of each text are filling.
    padding: Vec<usize>,
}

/// A layer's keys and values.
pub(super) struct Kept<'a> {
    layer: &'a (Tensor, Tensor),
    filled: usize,
}

impl Cache {
    /// Room for `room` tokens of as many texts as `padding` has numbers: the tokens that fill up each of them.
    pub(super) fn new(config: Config, padding: Vec<usize>, room: usize, kind: DType, device: &Device) -> Result<Cache> {
        let shape = (padding.len(), config.n_head, room, config.head());
        let layer = |_| Ok((Tensor::zeros(shape, kind, device)?, Tensor::zeros(shape, kind, device)?));
        let layers = (0..config.n_layer).map(layer).collect::<Result<_>>()?;
        Ok(Cache { layers, filled: 0, room, padding })
    }

    /// Bytes of keys and values: 2 · layers · texts · room · n_embd numbers.
    pub fn bytes(&self) -> usize {
        let bytes = |tensor: &Tensor| tensor.elem_count() * tensor.dtype().size_in_bytes();
        self.layers.iter().map(|(k, v)| bytes(k) + bytes(v)).sum()
    }

    /// How many tokens of each text it holds, those that fill it up included.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether nothing is in it yet.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// How many tokens of each text it has room for.
    pub fn room(&self) -> usize {
        self.room
    }

    /// How many texts it is for.
    pub fn texts(&self) -> usize {
        self.padding.len()
    }

    /// Keys and values of a layer's tokens so far, filling included: `[texts, heads, len, d]` each.
    ///
    /// # Errors
    /// What candle says.
    pub fn kept(&self, layer: usize) -> Result<(Tensor, Tensor)> {
        let (keys, values) = &self.layers[layer];
        Ok((keys.narrow(2, 0, self.filled)?, values.narrow(2, 0, self.filled)?))
    }

    pub(super) fn layer(&mut self, layer: usize) -> Kept<'_> {
        Kept { layer: &self.layers[layer], filled: self.filled }
    }

    pub(super) fn advance(&mut self, tokens: usize) {
        self.filled += tokens;
    }

    /// The position of each of the next `length` tokens in its own text, `[texts, length]`; filling counts as position 0.
    pub(super) fn places(&self, length: usize, device: &Device) -> Result<Tensor> {
        let row = |filling: &usize| {
            let filling = *filling;
            (self.filled..self.filled + length).map(move |i| i.saturating_sub(filling) as u32)
        };
        let places: Vec<u32> = self.padding.iter().flat_map(row).collect();
        Ok(Tensor::from_vec(places, (self.texts(), length), device)?)
    }

    /// What the next `length` tokens must not see; nothing where they may see all.
    pub(super) fn mask(&self, length: usize, device: &Device) -> Result<Option<Tensor>> {
        let filled_up = self.padding.iter().any(|filling| *filling > 0);
        if length == 1 && !filled_up {
            return Ok(None);
        }
        let causal = causal_mask(length, self.filled, device)?;
        if !filled_up {
            return Ok(Some(causal));
        }
        let keys = self.filled + length;
        let row = |filling: &usize| {
            let filling = *filling;
            (0..keys).map(move |key| if key < filling { HIDDEN } else { 0.0 })
        };
        let filling: Vec<f32> = self.padding.iter().flat_map(row).collect();
        let filling = Tensor::from_vec(filling, (self.texts(), 1, 1, keys), device)?;
        Ok(Some(filling.broadcast_add(&causal)?))
    }
}

impl Kept<'_> {
    /// Writes the new keys and values behind those that are there, and gives all of them.
    pub fn append(self, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor)> {
        let (keys, values) = self.layer;
        let length = k.dim(2)?;
        keys.slice_set(k, 2, self.filled)?;
        values.slice_set(v, 2, self.filled)?;
        let all = self.filled + length;
        Ok((keys.narrow(2, 0, all)?, values.narrow(2, 0, all)?))
    }
}

impl Gpt {
    /// Reads the prompts, the shorter ones filled up on the left, and makes room for `new` tokens behind them. Gives the
    /// cache, and a row of logits for each prompt: what may come next.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no prompt, one is empty, one names a token that the model does not have, or the longest with `new` tokens does not
    /// fit into the context, or the batch into the CPU's memory (it names the largest that does); what candle says.
    pub fn read(&self, prompts: &[Vec<u32>], new: usize) -> Result<(Cache, Tensor)> {
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        let shortest = prompts.iter().map(Vec::len).min().unwrap_or(0);
        self.fits(shortest)?;
        self.fits(longest + new)?;
        let most = self.config().vocab_size;
        if let Some(token) = prompts.iter().flatten().find(|token| **token as usize >= most) {
            return Err(Error::Invalid {
                what: format!("the prompt names token {token}, and the model has {most}"),
                fix: "use the tokenizer that belongs to the model".to_string(),
            });
        }
        self.room_for(prompts.len(), longest, longest + new)?;
        let padding: Vec<usize> = prompts.iter().map(|prompt| longest - prompt.len()).collect();
        let rows = prompts
            .iter()
            .zip(&padding)
            .flat_map(|(prompt, filling)| std::iter::repeat_n(0, *filling).chain(prompt.iter().copied()));
        let tokens = Tensor::from_vec(rows.collect::<Vec<u32>>(), (prompts.len(), longest), self.device())?;
        let mut cache = Cache::new(self.config(), padding, longest + new, self.kind(), self.device())?;
        let logits = self.next_logits(&tokens, &mut cache)?;
        Ok((cache, logits))
    }

    /// One more token of each text: gives the logits of what may come after it, `[texts, vocab_size]`.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when there are not as many tokens as texts, [`Error::Invalid`] when the cache is full.
    pub fn step(&self, tokens: &[u32], cache: &mut Cache) -> Result<Tensor> {
        if tokens.len() != cache.texts() {
            return Err(Error::LengthMismatch {
                what: "tokens of a step".to_string(),
                expected: cache.texts(),
                given: tokens.len(),
            });
        }
        if cache.len() == cache.room() {
            return Err(Error::Invalid {
                what: format!("the cache is full: it has room for {} tokens", cache.room()),
                fix: "ask `read` for room for more new tokens".to_string(),
            });
        }
        let tokens = Tensor::from_slice(tokens, (tokens.len(), 1), self.device())?;
        self.next_logits(&tokens, cache)
    }
}
