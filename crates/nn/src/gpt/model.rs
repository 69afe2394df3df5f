//! GPT-2 on candle.

use super::cache::{Cache, Kept};
use super::layers::{LayerNorm, Linear, attention, join_heads, split_heads};
use super::{Config, Weights};
use gpulab::error::{Error, Result};
use candle_core::{DType, Device, Tensor, Var};

/// What hides a key: exp of it is 0 in f32, and unlike -∞ it makes no NaN where a whole row is hidden.
pub(super) const HIDDEN: f32 = -1e9;

/// A model whose parameters lie on a device.
#[derive(Debug, Clone)]
pub struct Gpt {
    config: Config,
    token_table: Tensor,
    place_table: Tensor,
    blocks: Vec<Block>,
    last_norm: LayerNorm,
    train: bool,
}

/// Attention and feed-forward layer, each added to what came in.
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
    /// Copies the weights to `device` as `kind` (F32, BF16 or F16). Nothing of it tracks gradients.
    ///
    /// # Errors
    /// What candle says, out of memory above all.
    pub fn new(weights: &Weights, device: &Device, kind: DType) -> Result<Gpt> {
        let tensor = |name: &str| -> Result<Tensor> {
            let host = weights.get(name);
            Ok(Tensor::from_slice(&host.values, host.shape.as_slice(), device)?.to_dtype(kind)?)
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

    /// A model over tensors that are there already. `train`: from operations that candle can differentiate.
    pub(super) fn build(config: Config, tensor: &dyn Fn(&str) -> Result<Tensor>, train: bool) -> Result<Gpt> {
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
            token_table: tensor("wte.weight")?,
            place_table: tensor("wpe.weight")?,
            blocks: (0..config.n_layer).map(block).collect::<Result<_>>()?,
            last_norm: norm("ln_f".to_string())?,
            train,
        })
    }

    /// The shape of the model.
    pub fn config(&self) -> Config {
        self.config
    }

    /// Where the parameters lie.
    pub fn device(&self) -> &Device {
        self.token_table.device()
    }

    /// What the parameters are kept as.
    pub fn kind(&self) -> DType {
        self.token_table.dtype()
    }

    /// Bytes of all parameters, as kept.
    pub fn bytes(&self) -> usize {
        self.config.parameter_count() * self.kind().size_in_bytes()
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
        let places = Tensor::arange(first as u32, (first + length) as u32, self.device())?;
        let places = self.place_table.index_select(&places, 0)?.unsqueeze(0)?;
        let mask = causal_mask(length, 0, self.device())?;
        self.head(&self.blocks(tokens, &places, Some(&mask), None)?)
    }

    /// As [`Gpt::logits`] for tokens that follow those in `cache`, and only after the last of them: `[texts, vocab_size]`.
    pub(super) fn next_logits(&self, tokens: &Tensor, cache: &mut Cache) -> Result<Tensor> {
        let (texts, length) = tokens.dims2()?;
        let places = cache.places(length, self.device())?;
        let places = self.place_table.index_select(&places.flatten_all()?, 0)?.reshape((texts, length, ()))?;
        let mask = cache.mask(length, self.device())?;
        let x = self.blocks(tokens, &places, mask.as_ref(), Some(cache))?;
        cache.advance(length);
        // The head is a third of the work of a small model: after a prompt only its last row is needed.
        Ok(self.head(&x.narrow(1, length - 1, 1)?)?.squeeze(1)?)
    }

    fn blocks(
        &self,
        tokens: &Tensor,
        places: &Tensor,
        mask: Option<&Tensor>,
        mut cache: Option<&mut Cache>,
    ) -> Result<Tensor> {
        let (texts, length) = tokens.dims2()?;
        let rows = self.token_table.index_select(&tokens.flatten_all()?, 0)?;
        let mut x = rows.reshape((texts, length, self.config.n_embd))?.broadcast_add(places)?;
        for (layer, block) in self.blocks.iter().enumerate() {
            let kept = cache.as_mut().map(|cache| cache.layer(layer));
            x = block.forward(&x, self.config.n_head, mask, kept, self.train)?;
        }
        Ok(x)
    }

    fn head(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.last_norm.forward(x, self.train)?;
        let (texts, length, width) = x.dims3()?;
        let logits = x.reshape((texts * length, width))?.matmul(&self.token_table.t()?)?;
        Ok(logits.to_dtype(DType::F32)?.reshape((texts, length, self.config.vocab_size))?)
    }

    /// An error when a text of that many tokens is longer than the context.
    pub(super) fn fits(&self, length: usize) -> Result<()> {
        let most = self.config.n_ctx;
        match length {
            0 => Err(Error::Invalid {
                what: "a text of no tokens has nothing to go on from".to_string(),
                fix: "give a prompt of at least one character".to_string(),
            }),
            _ if length > most => Err(Error::Invalid {
                what: format!("{length} tokens do not fit into the model's context of {most}"),
                fix: format!("shorten the prompt, or ask for fewer new tokens: together at most {most}"),
            }),
            _ => Ok(()),
        }
    }
}

impl Block {
    fn forward(
        &self,
        x: &Tensor,
        heads: usize,
        mask: Option<&Tensor>,
        kept: Option<Kept>,
        train: bool,
    ) -> Result<Tensor> {
        let qkv = self.qkv.forward(&self.norm_1.forward(x, train)?)?;
        let width = x.dim(2)?;
        let part = |i: usize| split_heads(&qkv.narrow(2, i * width, width)?, heads);
        let (q, mut k, mut v) = (part(0)?, part(1)?, part(2)?);
        if let Some(kept) = kept {
            (k, v) = kept.append(&k, &v)?;
        }
        let seen = join_heads(&attention(&q, &k, &v, mask, train)?)?;
        let x = (x + self.out.forward(&seen)?)?;
        // candle's `gelu` is the tanh form, which GPT-2 was trained with.
        let inner = self.up.forward(&self.norm_2.forward(&x, train)?)?.gelu()?;
        Ok((&x + self.down.forward(&inner)?)?)
    }
}

/// `[length, before + length]`: hides from each token those after it, with `before` tokens in the cache.
pub(super) fn causal_mask(length: usize, before: usize, device: &Device) -> Result<Tensor> {
    let row = |i: usize| (0..before + length).map(move |j| if j > before + i { HIDDEN } else { 0.0 });
    let mask: Vec<f32> = (0..length).flat_map(row).collect();
    Ok(Tensor::from_vec(mask, (length, before + length), device)?)
}
