//! GPT-2 on candle.

use super::{Config, Weights};
use crate::attention::{HIDDEN, causal_mask};
use crate::cached::{Asked, KeysValues, Reader};
use crate::operator::product;
use crate::paged::{PagedCache, rows};
use candle_core::{D, DType, Device, Tensor, Var};
use gpulab::cpu;
use gpulab::error::{Error, Result, bytes, same_length};
use gpulab_kernels::engine::TextPart;
use std::sync::OnceLock;

/// A model whose parameters lie on a device.
#[derive(Debug, Clone)]
pub struct Gpt {
    config: Config,
    token_embedding: Tensor,
    position_embedding: Tensor,
    blocks: Vec<Block>,
    last_norm: LayerNorm,
    train: bool,
    /// The share of numbers that dropout sets to 0; 0 in evaluation.
    dropout: f32,
}

/// Attention of a layer: its number, then queries, keys and values of the new tokens.
type Attend<'a> = dyn FnMut(usize, &Tensor, &Tensor, &Tensor) -> Result<Tensor> + 'a;

/// Attention and feed-forward layer, each added to its input.
#[derive(Debug, Clone)]
struct Block {
    norm_1: LayerNorm,
    qkv: Linear,
    out: Linear,
    norm_2: LayerNorm,
    up: Linear,
    down: Linear,
}

impl Gpt {
    /// Copies the weights to `device` as `dtype` (F32, BF16 or F16). Nothing of it tracks gradients.
    ///
    /// # Errors
    /// What candle says, out of memory above all.
    pub fn new(weights: &Weights, device: &Device, dtype: DType) -> Result<Gpt> {
        let tensor = |name: &str| -> Result<Tensor> {
            let host = weights.get(name);
            Ok(Tensor::from_slice(&host.values, host.shape.as_slice(), device)?.to_dtype(dtype)?)
        };
        Gpt::build(weights.config(), &tensor, false)
    }

    /// As [`Gpt::new`] in F32, but with parameters that track gradients, as in training: each result keeps all that its backward
    /// pass would need.
    ///
    /// # Errors
    /// As [`Gpt::new`].
    pub fn tracked(weights: &Weights, device: &Device) -> Result<Gpt> {
        let tensor = |name: &str| -> Result<Tensor> {
            let host = weights.get(name);
            let tensor = Tensor::from_slice(&host.values, host.shape.as_slice(), device)?;
            Ok(Var::from_tensor(&tensor)?.as_tensor().clone())
        };
        Gpt::build(weights.config(), &tensor, true)
    }

    /// The same parameters and the same operations, with nothing that tracks gradients: of a [`Gpt::tracked`] model, the one that
    /// differs from it in nothing else.
    #[must_use]
    pub fn detached(&self) -> Gpt {
        let linear = |x: &Linear| Linear { weight: x.weight.detach(), bias: x.bias.detach() };
        let norm = |x: &LayerNorm| LayerNorm { weight: x.weight.detach(), bias: x.bias.detach() };
        let block = |x: &Block| Block {
            norm_1: norm(&x.norm_1),
            qkv: linear(&x.qkv),
            out: linear(&x.out),
            norm_2: norm(&x.norm_2),
            up: linear(&x.up),
            down: linear(&x.down),
        };
        Gpt {
            token_embedding: self.token_embedding.detach(),
            position_embedding: self.position_embedding.detach(),
            blocks: self.blocks.iter().map(block).collect(),
            last_norm: norm(&self.last_norm),
            ..*self
        }
    }

    /// A model over tensors that are there already, by GPT-2's names and in the shapes of [`Config::parameters`]: also of such that are
    /// computed from others, as with an adapter or a mask. `train`: from operations that candle can differentiate.
    ///
    /// # Errors
    /// What `tensor` says.
    pub fn build(config: Config, tensor: &dyn Fn(&str) -> Result<Tensor>, train: bool) -> Result<Gpt> {
        let linear = |name: String| -> Result<Linear> {
            Ok(Linear { weight: tensor(&format!("{name}.weight"))?, bias: tensor(&format!("{name}.bias"))? })
        };
        let norm = |name: String| -> Result<LayerNorm> {
            Ok(LayerNorm { weight: tensor(&format!("{name}.weight"))?, bias: tensor(&format!("{name}.bias"))? })
        };
        let block = |layer: usize| -> Result<Block> {
            let of = |part: &str| format!("h.{layer}.{part}");
            Ok(Block {
                norm_1: norm(of("ln_1"))?,
                qkv: linear(of("attn.c_attn"))?,
                out: linear(of("attn.c_proj"))?,
                norm_2: norm(of("ln_2"))?,
                up: linear(of("mlp.c_fc"))?,
                down: linear(of("mlp.c_proj"))?,
            })
        };
        Ok(Gpt {
            config,
            token_embedding: tensor("wte.weight")?,
            position_embedding: tensor("wpe.weight")?,
            blocks: (0..config.n_layer).map(block).collect::<Result<_>>()?,
            last_norm: norm("ln_f".to_string())?,
            train,
            dropout: 0.0,
        })
    }

    /// The same parameters in training mode: dropout sets that share of the embedding, and of what each half of a block adds,
    /// to 0 at random, and scales the rest up by 1 ÷ (1 − share). GPT-2 was trained with 0.1. A share of 0 is evaluation
    /// mode, in which every model here begins.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the share is not from 0 to below 1.
    pub fn with_dropout(&self, share: f32) -> Result<Gpt> {
        if !(0.0..1.0).contains(&share) {
            return Err(Error::invalid(
                format!("dropout cannot set a share of {share} of all numbers to 0"),
                "give a share from 0 (evaluation) to below 1, such as 0.1",
            ));
        }
        Ok(Gpt { dropout: share, ..self.clone() })
    }

    /// The shape of the model.
    pub fn config(&self) -> Config {
        self.config
    }

    /// Where the parameters lie.
    pub fn device(&self) -> &Device {
        self.token_embedding.device()
    }

    /// What the parameters are kept as.
    pub fn dtype(&self) -> DType {
        self.token_embedding.dtype()
    }

    /// Bytes of all parameters, as kept.
    pub fn bytes(&self) -> usize {
        self.config.parameter_count() * self.dtype().size_in_bytes()
    }

    /// A logit for each token of the vocabulary after each token of the texts: `[texts, length]` (u32) to
    /// `[texts, length, vocab_size]`, in f32. Nothing is kept from one call to the next.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the texts are longer than the context; what candle says.
    pub fn logits(&self, tokens: &Tensor) -> Result<Tensor> {
        self.logits_from(0, tokens)
    }

    /// As [`Gpt::logits`], with the first token at position `first` of the context.
    pub(super) fn logits_from(&self, first: usize, tokens: &Tensor) -> Result<Tensor> {
        let length = tokens.dim(1)?;
        self.fits(first + length)?;
        let positions = Tensor::arange(first as u32, (first + length) as u32, self.device())?;
        let positions = self.position_embedding.index_select(&positions, 0)?.unsqueeze(0)?;
        let mask = causal_mask(length, 0, self.device())?;
        let attend = &mut |_, q: &Tensor, k: &Tensor, v: &Tensor| attention(q, k, v, Some(&mask), self.train);
        self.head(&self.blocks(tokens, &positions, attend)?)
    }

    /// As [`Gpt::logits`] for tokens that follow those in `cache`, and only after the last of them: `[texts, vocab_size]`.
    pub(super) fn next_logits(&self, tokens: &Tensor, cache: &mut KvCache) -> Result<Tensor> {
        let (texts, length) = tokens.dims2()?;
        let positions = cache.positions(length, self.device())?;
        let positions =
            self.position_embedding.index_select(&positions.flatten_all()?, 0)?.reshape((texts, length, ()))?;
        let mask = cache.mask(length, self.device())?;
        let x = self.blocks(tokens, &positions, &mut |layer, q, k, v| {
            let (k, v) = cache.layer(layer).append(k, v)?;
            attention(q, &k, &v, mask.as_ref(), self.train)
        })?;
        cache.advance(length);
        // The head is a third of the work of a small model: after a prompt only its last row is needed.
        Ok(self.head(&x.narrow(1, length - 1, 1)?)?.squeeze(1)?)
    }

    fn blocks(&self, tokens: &Tensor, positions: &Tensor, attend: &mut Attend<'_>) -> Result<Tensor> {
        let (texts, length) = tokens.dims2()?;
        let rows = self.token_embedding.index_select(&tokens.flatten_all()?, 0)?;
        let rows = rows.reshape((texts, length, self.config.n_embd))?.broadcast_add(positions)?;
        let mut x = dropped(rows, self.dropout)?;
        for (layer, block) in self.blocks.iter().enumerate() {
            let attend = &mut |q: &Tensor, k: &Tensor, v: &Tensor| attend(layer, q, k, v);
            x = block.forward(&x, self.config.n_head, attend, (self.train, self.dropout))?;
        }
        Ok(x)
    }

    fn head(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.last_norm.forward(x, self.train)?;
        let (texts, length, width) = x.dims3()?;
        let logits = product(&x.reshape((texts * length, width))?, &self.token_embedding.t()?)?;
        Ok(logits.to_dtype(DType::F32)?.reshape((texts, length, self.config.vocab_size))?)
    }

    /// An empty cache of `blocks` blocks of `block_size` tokens for [`Gpt::paged_step`].
    ///
    /// # Errors
    /// What candle says, out of memory above all.
    pub fn paged_cache(&self, blocks: usize, block_size: usize) -> Result<PagedCache> {
        let shape = (self.config.n_layer, self.config.n_head, self.config.head());
        PagedCache::new(shape, (blocks, block_size), self.dtype(), self.device())
    }

    /// Reads parts of several texts at once: the logits after each part that asks for them, `[those parts, vocab_size]` in f32.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no part, one does not fit into its blocks or the context, or names an unknown token; what
    /// candle says.
    pub fn paged_step(&self, parts: &[TextPart<'_>], cache: &PagedCache) -> Result<Tensor> {
        let most = self.config.vocab_size;
        self.fits(parts.len().min(1))?;
        for part in parts {
            self.fits(part.first + part.tokens.len())?;
            if let Some(token) = part.tokens.iter().find(|token| **token as usize >= most) {
                return Err(Error::invalid(
                    format!("the prompt names token {token}, and the model has {most}"),
                    "use the tokenizer that belongs to the model",
                ));
            }
        }
        let step = cache.step(parts, self.device())?;
        let (tokens, positions, ends) = rows(parts, self.device())?;
        let positions = self.position_embedding.index_select(&positions, 0)?.unsqueeze(0)?;
        let x = self.blocks(&tokens, &positions, &mut |layer, q, k, v| step.attend(layer, q, k, v))?;
        if ends.elem_count() == 0 {
            return Ok(Tensor::zeros((0, most), DType::F32, self.device())?);
        }
        Ok(self.head(&x.index_select(&ends, 1)?)?.squeeze(0)?)
    }

    /// An error when a text of that many tokens is longer than the context.
    pub(super) fn fits(&self, length: usize) -> Result<()> {
        let most = self.config.n_ctx;
        match length {
            0 => Err(Error::invalid(
                "a text of no tokens has nothing to go on from",
                "give a prompt of at least one character",
            )),
            _ if length > most => Err(Error::invalid(
                format!("{length} tokens do not fit into the model's context of {most}"),
                format!("shorten the prompt, or ask for fewer new tokens: together at most {most}"),
            )),
            _ => Ok(()),
        }
    }
}

impl Block {
    fn forward(
        &self,
        x: &Tensor,
        heads: usize,
        attend: &mut dyn FnMut(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
        (train, dropout): (bool, f32),
    ) -> Result<Tensor> {
        let qkv = self.qkv.forward(&self.norm_1.forward(x, train)?)?;
        let width = x.dim(2)?;
        let part = |i: usize| split_heads(&qkv.narrow(2, i * width, width)?, heads);
        let seen = join_heads(&attend(&part(0)?, &part(1)?, &part(2)?)?)?;
        let x = (x + dropped(self.out.forward(&seen)?, dropout)?)?;
        // candle's `gelu` is the tanh form, which GPT-2 was trained with.
        let inner = self.up.forward(&self.norm_2.forward(&x, train)?)?.gelu()?;
        Ok((&x + dropped(self.down.forward(&inner)?, dropout)?)?)
    }
}

/// Dropout in training; in evaluation, with a share of 0, the tensor itself.
fn dropped(x: Tensor, share: f32) -> Result<Tensor> {
    if share == 0.0 { Ok(x) } else { Ok(candle_nn::ops::dropout(&x, share)?) }
}

// ----------------------------------------------------------------------
// GPT-2's layers on candle tensors, the same code for training and for inference.

/// GPT-2's, for all its layer norms.
const EPSILON: f64 = 1e-5;

/// `x · weight + bias`, with the weight as GPT-2 keeps it: `[inputs, outputs]`.
#[derive(Debug, Clone)]
struct Linear {
    pub weight: Tensor,
    pub bias: Tensor,
}

impl Linear {
    /// The last axis of `x` is the inputs.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // One product for all rows: candle would make one for each text.
        let mut shape = x.dims().to_vec();
        let rows: usize = shape.iter().rev().skip(1).product();
        let (inputs, outputs) = self.weight.dims2()?;
        let y = product(&x.reshape((rows, inputs))?, &self.weight)?.broadcast_add(&self.bias)?;
        *shape.last_mut().expect("a tensor of rows has axes") = outputs;
        Ok(y.reshape(shape)?)
    }
}

/// Layer norm over the last axis.
#[derive(Debug, Clone)]
struct LayerNorm {
    pub weight: Tensor,
    pub bias: Tensor,
}

impl LayerNorm {
    /// `train`: from single operations, which candle can differentiate. Its fused kernel has no backward pass.
    pub fn forward(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        if !train {
            return Ok(candle_nn::ops::layer_norm(&x.contiguous()?, &self.weight, &self.bias, EPSILON as f32)?);
        }
        // Sums over a row are taken in f32, whatever the numbers are kept as.
        let row = x.to_dtype(DType::F32)?;
        let away = row.broadcast_sub(&row.mean_keepdim(D::Minus1)?)?;
        let variance = away.sqr()?.mean_keepdim(D::Minus1)?;
        let unit = away.broadcast_div(&(variance + EPSILON)?.sqrt()?)?.to_dtype(x.dtype())?;
        Ok(unit.broadcast_mul(&self.weight)?.broadcast_add(&self.bias)?)
    }
}

/// softmax(q · kᵀ / √d + mask) · v for `[texts, heads, length, d]`; the sum of a softmax is taken in f32.
fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, train: bool) -> Result<Tensor> {
    let scale = 1.0 / (q.dim(D::Minus1)? as f64).sqrt();
    let mut scores = product(&(q * scale)?, &k.transpose(2, 3)?)?.to_dtype(DType::F32)?;
    if let Some(mask) = mask {
        scores = scores.broadcast_add(mask)?;
    }
    let weights = match train {
        true => candle_nn::ops::softmax(&scores, D::Minus1)?,
        false => candle_nn::ops::softmax_last_dim(&scores)?,
    };
    product(&weights.to_dtype(v.dtype())?, v)
}

/// `[texts, length, heads · d]` as `[texts, heads, length, d]`.
fn split_heads(x: &Tensor, heads: usize) -> Result<Tensor> {
    let (texts, length, width) = x.dims3()?;
    Ok(x.reshape((texts, length, heads, width / heads))?.transpose(1, 2)?.contiguous()?)
}

/// The inverse of [`split_heads`].
fn join_heads(x: &Tensor) -> Result<Tensor> {
    let (texts, heads, length, d) = x.dims4()?;
    Ok(x.transpose(1, 2)?.reshape((texts, length, heads * d))?)
}

// ----------------------------------------------------------------------
// What attention needs again of the tokens that came before: their keys and values, in memory that is allocated once.

/// Keys and values of a batch of texts. Shorter texts are filled up on the left, so that all end at the same position.
#[derive(Debug)]
pub struct KvCache {
    /// Of each layer, `[texts, heads, capacity, d]`.
    layers: Vec<(Tensor, Tensor)>,
    /// Tokens that are in it, filling included.
    filled: usize,
    capacity: usize,
    /// How many tokens of each text are filling.
    padding: Vec<usize>,
}

/// A layer's keys and values.
pub(crate) struct LayerCache<'a> {
    layer: &'a (Tensor, Tensor),
    filled: usize,
}

impl KvCache {
    /// Memory for `capacity` tokens of as many texts as `padding` has numbers: the tokens that fill up each of them. A layer
    /// keeps `heads` keys and values of `head_dim` numbers for each token.
    pub(crate) fn new(
        (layers, heads, head_dim): (usize, usize, usize),
        padding: Vec<usize>,
        capacity: usize,
        dtype: DType,
        device: &Device,
    ) -> Result<KvCache> {
        let shape = (padding.len(), heads, capacity, head_dim);
        let layer = |_| Ok((Tensor::zeros(shape, dtype, device)?, Tensor::zeros(shape, dtype, device)?));
        let layers = (0..layers).map(layer).collect::<Result<_>>()?;
        Ok(KvCache { layers, filled: 0, capacity, padding })
    }

    /// Forgets all tokens after the first `length`: the next ones are written over them.
    pub fn truncate(&mut self, length: usize) {
        self.filled = self.filled.min(length);
    }

    /// Bytes of keys and values: 2 · layers · texts · capacity · heads · head dimension numbers.
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

    /// How many tokens of each text it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Refuses a step that is not of one token for each text, or has no room.
    pub(crate) fn room_for(&self, tokens: &[u32]) -> Result<()> {
        same_length("tokens of a step", self.texts(), tokens.len())?;
        if self.len() == self.capacity() {
            return Err(Error::invalid(
                format!("the cache is full: its capacity is {} tokens", self.capacity()),
                "ask `prefill` for more new tokens",
            ));
        }
        Ok(())
    }

    /// How many texts it is for.
    pub fn texts(&self) -> usize {
        self.padding.len()
    }

    /// Keys and values of a layer's tokens so far, filling included: `[texts, heads, len, d]` each.
    ///
    /// # Errors
    /// What candle says.
    pub fn keys_values(&self, layer: usize) -> Result<(Tensor, Tensor)> {
        let (keys, values) = &self.layers[layer];
        Ok((keys.narrow(2, 0, self.filled)?, values.narrow(2, 0, self.filled)?))
    }

    pub(crate) fn layer(&mut self, layer: usize) -> LayerCache<'_> {
        LayerCache { layer: &self.layers[layer], filled: self.filled }
    }

    pub(crate) fn advance(&mut self, tokens: usize) {
        self.filled += tokens;
    }

    /// The next tokens of each text, without what fills up, and where their keys and values go; `length` is the longest.
    pub(crate) fn readers<'a>(&self, texts: &[&'a [u32]], length: usize, asked: Asked) -> Vec<Reader<'a>> {
        let heads = self.layers.first().map_or(0, |(k, _)| k.dims()[1]);
        let of = |(text, (tokens, padding)): (usize, (&&'a [u32], &usize))| {
            let count = self.filled + length - padding;
            let runs = vec![(text * heads * self.capacity + padding, count)];
            Reader { tokens, first: count - tokens.len(), runs, asked }
        };
        texts.iter().zip(&self.padding).enumerate().map(of).collect()
    }

    /// All keys and values.
    pub(crate) fn all(&self) -> KeysValues<'_> {
        KeysValues { layers: &self.layers, head_slots: self.capacity }
    }

    /// The position of each of the next `length` tokens in its own text, `[texts, length]`; filling counts as position 0.
    pub(crate) fn positions(&self, length: usize, device: &Device) -> Result<Tensor> {
        let row = |filling: &usize| {
            let filling = *filling;
            (self.filled..self.filled + length).map(move |i| i.saturating_sub(filling) as u32)
        };
        let positions: Vec<u32> = self.padding.iter().flat_map(row).collect();
        Ok(Tensor::from_vec(positions, (self.texts(), length), device)?)
    }

    /// What the next `length` tokens must not see; nothing where they may see all.
    pub(crate) fn mask(&self, length: usize, device: &Device) -> Result<Option<Tensor>> {
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

impl LayerCache<'_> {
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
    /// Reads the prompts, the shorter ones filled up on the left, and allocates the cache for `new` tokens behind them. Gives the
    /// cache, and the logits of what may come next, `[prompts, vocab_size]` in f32.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no prompt, one is empty, one names a token that the model does not have, or the longest with `new` tokens does not
    /// fit into the context, or the batch into the CPU's memory (it names the largest that does); what candle says.
    pub fn prefill(&self, prompts: &[Vec<u32>], new: usize) -> Result<(KvCache, Tensor)> {
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        let shortest = prompts.iter().map(Vec::len).min().unwrap_or(0);
        self.fits(shortest)?;
        self.fits(longest + new)?;
        let most = self.config().vocab_size;
        if let Some(token) = prompts.iter().flatten().find(|token| **token as usize >= most) {
            return Err(Error::invalid(
                format!("the prompt names token {token}, and the model has {most}"),
                "use the tokenizer that belongs to the model",
            ));
        }
        self.check_memory(prompts.len(), longest, longest + new)?;
        let padding: Vec<usize> = prompts.iter().map(|prompt| longest - prompt.len()).collect();
        let rows = prompts
            .iter()
            .zip(&padding)
            .flat_map(|(prompt, filling)| std::iter::repeat_n(0, *filling).chain(prompt.iter().copied()));
        let tokens = Tensor::from_vec(rows.collect::<Vec<u32>>(), (prompts.len(), longest), self.device())?;
        let config = self.config();
        let shape = (config.n_layer, config.n_head, config.head());
        let mut cache = KvCache::new(shape, padding, longest + new, self.dtype(), self.device())?;
        let logits = self.next_logits(&tokens, &mut cache)?;
        Ok((cache, logits))
    }

    /// One more token of each text: gives the logits of what may come after it, `[texts, vocab_size]`.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when there are not as many tokens as texts, [`Error::Invalid`] when the cache is full.
    pub fn step(&self, tokens: &[u32], cache: &mut KvCache) -> Result<Tensor> {
        cache.room_for(tokens)?;
        let tokens = Tensor::from_slice(tokens, (tokens.len(), 1), self.device())?;
        self.next_logits(&tokens, cache)
    }
}

// ----------------------------------------------------------------------
// A batch that is larger than the CPU's memory: refused before it is read, as a failed allocation would end the process there.

impl Gpt {
    /// Bytes that a text needs while its prompt of `prompt` tokens is read, with a cache of `capacity` tokens: keys and values
    /// of all layers, and of one layer its scores (three tables of them at a time) and the wide middle of the feed-forward layer.
    fn bytes_a_text(&self, prompt: usize, capacity: usize) -> u64 {
        let (config, number) = (self.config(), self.dtype().size_in_bytes());
        let cache = 2 * config.n_layer * capacity * config.n_embd * number;
        let scores = 3 * config.n_head * prompt * prompt * DType::F32.size_in_bytes();
        // Of four widths each: before and after GELU; of one: what comes in, its norm, and the like.
        let rows = prompt * config.n_embd * (2 * 4 + 4) * number;
        (cache + scores.max(rows) + config.vocab_size * DType::F32.size_in_bytes()) as u64
    }

    /// An error when the CPU's memory cannot hold that many texts.
    pub(super) fn check_memory(&self, texts: usize, prompt: usize, capacity: usize) -> Result<()> {
        // Read once: it takes hundreds of small files, and each prefill asks.
        static MEMORY: OnceLock<Option<u64>> = OnceLock::new();
        // A GPU says so itself, and nothing is lost.
        if !self.device().is_cpu() {
            return Ok(());
        }
        let memory = *MEMORY.get_or_init(|| {
            let info = cpu::info();
            [info.memory_bytes, info.memory_limit_bytes].into_iter().flatten().min()
        });
        memory.map_or(Ok(()), |memory| check(self.bytes_a_text(prompt, capacity), texts as u64, memory))
    }
}

fn check(a_text: u64, texts: u64, memory: u64) -> Result<()> {
    // A tenth is for the rest of the machine.
    let fits = memory / 10 * 9 / a_text;
    if texts <= fits {
        return Ok(());
    }
    Err(Error::invalid(
        format!(
            "a batch of {texts} texts does not fit into memory: it needs about {} of {}",
            bytes(texts.saturating_mul(a_text)),
            bytes(memory)
        ),
        match fits {
            0 => "not even one text fits: use a shorter prompt, or a smaller model".to_string(),
            _ => format!("use a batch of {fits} or less, or shorter texts"),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Weights};
    use super::*;
    use candle_core::Device;

    #[test]
    fn a_batch_that_is_too_large_is_told_the_largest_that_fits() {
        check(1 << 20, 900, 1 << 30).unwrap();
        let text = check(1 << 20, 1000, 1 << 30).unwrap_err().to_string();
        assert!(
            text.contains("1000 texts") && text.contains("of 1.00 GiB\nnext: use a batch of 921 or less"),
            "{text}"
        );
        assert!(check(1 << 20, 1, 1 << 10).unwrap_err().to_string().contains("not even one"));
    }

    #[test]
    fn what_a_text_needs_grows_with_its_length() {
        let config = Config { n_layer: 2, n_head: 2, n_embd: 8, n_ctx: 64, vocab_size: 256 };
        let gpt = Gpt::new(&Weights::random(config, 1).unwrap(), &Device::Cpu, DType::F32).unwrap();
        assert_eq!(gpt.bytes_a_text(1, 10), 2 * 2 * 10 * 8 * 4 + 8 * 12 * 4 + 1024);
        assert_eq!(gpt.bytes_a_text(64, 64), 2 * 2 * 64 * 8 * 4 + 3 * 2 * 64 * 64 * 4 + 1024);
        gpt.check_memory(64, 64, 64).unwrap();
        assert!(gpt.check_memory(usize::MAX / 1024, 64, 64).is_err());
    }
}
