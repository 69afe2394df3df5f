//! A Llama to be trained: its matrices frozen, with adapters, or all of them free; every operator with a backward pass.

use super::frozen::{Base, FrozenWeight, with_backward};
use super::linear::LoraLinear;
use crate::llama::{Llama, LlamaConfig, Projection};
use crate::tensor_id::reserve_tensor_ids;
use candle_core::{D, Device, Tensor, Var};
use candle_nn::ops::{rms_norm, softmax_last_dim};
use candle_nn::rotary_emb::rope_i;
use gpulab::error::{Error, Result};
use std::ops::Range;

/// Which matrices get an adapter, and how large.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraConfig {
    /// Rows of A and columns of B.
    pub rank: usize,
    /// The adapter's product is multiplied by alpha / rank.
    pub alpha: f64,
    /// The matrices of a layer that get one.
    pub targets: Vec<Projection>,
    /// The layers whose matrices get one: 0 is the first.
    pub layers: Range<usize>,
    /// What the first A's follow from.
    pub seed: u64,
}

/// What learns.
#[derive(Debug, Clone, PartialEq)]
pub enum Training {
    /// Adapters beside frozen matrices.
    Lora(LoraConfig),
    /// The matrices of these layers themselves; all before them stay frozen.
    Full(Range<usize>),
}

impl Training {
    /// The layers in which something learns.
    pub fn layers(&self) -> Range<usize> {
        match self {
            Training::Lora(config) => config.layers.clone(),
            Training::Full(layers) => layers.clone(),
        }
    }
}

/// A matrix of the model.
#[derive(Debug, Clone)]
enum Matrix {
    Frozen(FrozenWeight),
    Adapted(Box<LoraLinear>),
    Free(Var),
}

#[derive(Debug, Clone)]
struct Layer {
    norms: [Tensor; 2],
    /// In the order of [`Projection::ALL`].
    matrices: Vec<Matrix>,
}

/// A Llama of which a part can learn.
#[derive(Debug, Clone)]
pub struct TunedLlama {
    config: LlamaConfig,
    training: Training,
    base: Base,
    layers: Vec<Layer>,
    embedding: Tensor,
    last_norm: Tensor,
    last: Tensor,
    rope: (Tensor, Tensor),
}

impl TunedLlama {
    /// Takes a model's weights and freezes them: the layers' matrices as `base` says, embedding and norms in f32. Then adapters are put
    /// beside the matrices, or some are set free (as f32, whatever the base).
    ///
    /// # Errors
    /// [`Error::Invalid`] for layers that the model does not have, no target, or a rank above a matrix' own; what candle says.
    pub fn new(llama: &Llama, base: Base, training: Training) -> Result<TunedLlama> {
        let (config, learning) = (llama.config(), training.layers());
        if learning.is_empty() || learning.end > config.layers {
            return Err(Error::invalid(
                format!("layers {} to {} of a model that has {}", learning.start, learning.end, config.layers),
                format!("name layers within 0..{}, at least one", config.layers),
            ));
        }
        if let Training::Lora(LoraConfig { targets, .. }) = &training
            && targets.is_empty()
        {
            return Err(Error::invalid(
                "adapters beside no matrix",
                "name targets, such as Projection::Q and Projection::V",
            ));
        }
        let layer = |at: usize| -> Result<Layer> {
            let matrix = |of: &Projection| -> Result<Matrix> {
                let weight = llama.weight(at, *of)?.to_device(llama.device())?;
                let learns = learning.contains(&at);
                Ok(match &training {
                    Training::Full(_) if learns => Matrix::Free(Var::from_tensor(&weight)?),
                    Training::Lora(lora) if learns && lora.targets.contains(of) => {
                        let seed = lora.seed.wrapping_mul(0x9E37_79B9) ^ (at * 7 + *of as usize) as u64;
                        let frozen = FrozenWeight::new(&weight, base)?;
                        Matrix::Adapted(Box::new(LoraLinear::new(frozen, None, lora.rank, lora.alpha, seed)?))
                    }
                    _ => Matrix::Frozen(FrozenWeight::new(&weight, base)?),
                })
            };
            Ok(Layer { norms: llama.norms(at)?, matrices: Projection::ALL.iter().map(matrix).collect::<Result<_>>()? })
        };
        let [embedding, last_norm, last] = llama.ends()?;
        Ok(TunedLlama {
            layers: (0..config.layers).map(layer).collect::<Result<_>>()?,
            embedding,
            last_norm,
            last,
            rope: llama.rope(config.context)?,
            config,
            training,
            base,
        })
    }

    /// The shape of the model.
    pub fn config(&self) -> LlamaConfig {
        self.config
    }

    /// What learns.
    pub fn training(&self) -> &Training {
        &self.training
    }

    /// Where it computes.
    pub fn device(&self) -> &Device {
        self.embedding.device()
    }

    /// What an optimiser changes, layer by layer: of each adapter A, then B.
    pub fn vars(&self) -> Vec<Var> {
        self.layers
            .iter()
            .flat_map(|layer| &layer.matrices)
            .flat_map(|matrix| match matrix {
                Matrix::Frozen(_) => vec![],
                Matrix::Adapted(adapter) => vec![adapter.a().clone(), adapter.b().clone()],
                Matrix::Free(var) => vec![var.clone()],
            })
            .collect()
    }

    /// The adapters, with the layer and the matrix that each stands beside.
    pub fn adapters(&self) -> impl Iterator<Item = (usize, Projection, &LoraLinear)> {
        self.layers.iter().enumerate().flat_map(|(at, layer)| {
            layer.matrices.iter().zip(Projection::ALL).filter_map(move |(matrix, of)| match matrix {
                Matrix::Adapted(adapter) => Some((at, of, &**adapter)),
                _ => None,
            })
        })
    }

    pub(super) fn adapters_mut(&mut self) -> impl Iterator<Item = (usize, Projection, &mut LoraLinear)> {
        self.layers.iter_mut().enumerate().flat_map(|(at, layer)| {
            layer.matrices.iter_mut().zip(Projection::ALL).filter_map(move |(matrix, of)| match matrix {
                Matrix::Adapted(adapter) => Some((at, of, &mut **adapter)),
                _ => None,
            })
        })
    }

    /// Numbers that learn.
    pub fn trainable(&self) -> usize {
        self.vars().iter().map(|var| var.elem_count()).sum()
    }

    /// Bytes of everything that does not learn: matrices as kept, embedding and norms in f32, tied embeddings once.
    pub fn frozen_bytes(&self) -> usize {
        let matrices: usize = self
            .layers
            .iter()
            .flat_map(|layer| &layer.matrices)
            .map(|matrix| match matrix {
                Matrix::Frozen(weight) => weight.bytes(),
                Matrix::Adapted(adapter) => adapter.weight().bytes(),
                Matrix::Free(_) => 0,
            })
            .sum();
        let tied = if self.last.id() == self.embedding.id() { 0 } else { self.last.elem_count() };
        let norms = (2 * self.config.layers + 1) * self.config.width;
        matrices + 4 * (self.embedding.elem_count() + tied + norms)
    }

    /// The model as it has become, for everything that a [`Llama`] can do: adapters are merged, four bits unpacked. `llama` is the one
    /// that this was made from; its weights are copied only where they changed.
    ///
    /// # Errors
    /// What candle says.
    pub fn merged(&self, llama: &Llama) -> Result<Llama> {
        let mut merged = llama.clone();
        for (at, layer) in self.layers.iter().enumerate() {
            for (matrix, of) in layer.matrices.iter().zip(Projection::ALL) {
                match matrix {
                    Matrix::Frozen(_) if self.base == Base::F32 => (),
                    Matrix::Frozen(weight) => merged.replace(at, of, &weight.dense(&self.embedding)?)?,
                    Matrix::Adapted(adapter) => merged.replace(at, of, &adapter.merged_weight()?)?,
                    Matrix::Free(var) => merged.replace(at, of, &var.as_detached_tensor().copy()?)?,
                }
            }
        }
        Ok(merged)
    }

    /// A layer's matrix as it is frozen, with its adapter; nothing where it is free or has none.
    pub(super) fn adapted(&self, layer: usize, of: Projection) -> Option<&LoraLinear> {
        match &self.layers[layer].matrices[of as usize] {
            Matrix::Adapted(adapter) => Some(adapter),
            _ => None,
        }
    }

    /// The factors of both norms of each layer, then of the last norm.
    pub(super) fn norms(&self) -> impl Iterator<Item = &Tensor> {
        self.layers.iter().flat_map(|layer| &layer.norms).chain([&self.last_norm])
    }

    /// The table of tokens; nothing where another matrix gives the logits.
    pub(super) fn tied_table(&self) -> Option<&Tensor> {
        if self.last.id() == self.embedding.id() { Some(&self.embedding) } else { None }
    }

    /// cos and sin of RoPE's angles.
    pub(super) fn rope(&self) -> &(Tensor, Tensor) {
        &self.rope
    }

    /// candle looks gradients up by numbers that each cell of a notebook counts anew ([`reserve_tensor_ids`]).
    pub(super) fn reserve_ids<'a>(&'a self, more: impl IntoIterator<Item = &'a Tensor>) -> Result<()> {
        let mut all: Vec<&Tensor> = vec![&self.embedding, &self.last_norm, &self.last, &self.rope.0, &self.rope.1];
        for layer in &self.layers {
            all.extend(&layer.norms);
            for matrix in &layer.matrices {
                match matrix {
                    Matrix::Frozen(weight) => all.extend(weight.tensor()),
                    Matrix::Adapted(adapter) => {
                        all.extend([adapter.a().as_tensor(), adapter.b().as_tensor()]);
                        all.extend(adapter.weight().tensor());
                    }
                    Matrix::Free(var) => all.push(var.as_tensor()),
                }
            }
        }
        reserve_tensor_ids(all.into_iter().chain(more))
    }

    // ----------------------------------------------------------------------
    // The forward pass.

    /// What the first layer that learns reads, `[texts, length, width]`: everything before it is the same in every step, so it need
    /// be computed only once. `tokens` is `[texts, length]`.
    ///
    /// # Errors
    /// What candle says.
    pub fn before(&self, tokens: &Tensor) -> Result<Tensor> {
        let (texts, length) = tokens.dims2()?;
        let x = self.embedding.index_select(&tokens.flatten_all()?, 0)?.reshape((texts, length, ()))?;
        self.run(0..self.training.layers().start, x)
    }

    /// The layers from the first that learns to the last, on what [`TunedLlama::before`] gave.
    ///
    /// # Errors
    /// What candle says.
    pub fn behind(&self, x: &Tensor) -> Result<Tensor> {
        self.run(self.training.layers().start..self.config.layers, x.clone())
    }

    /// A logit for each token of the vocabulary, `[rows, vocabulary]`, after the positions that `rows` names (of all texts' positions,
    /// one text behind the other) of what [`TunedLlama::behind`] gave. The last matrix is a fifth of SmolLM2: it sees no row in vain.
    ///
    /// # Errors
    /// What candle says.
    pub fn logits(&self, x: &Tensor, rows: &Tensor) -> Result<Tensor> {
        let x = x.flatten_to(1)?.index_select(rows, 0)?;
        FrozenWeight::Dense(self.last.clone()).product(&norm(&x, &self.last_norm, self.config.epsilon)?)
    }

    fn run(&self, layers: Range<usize>, mut x: Tensor) -> Result<Tensor> {
        let length = x.dim(1)?;
        if length > self.config.context {
            return Err(Error::invalid(
                format!("{length} tokens do not fit into the model's context of {}", self.config.context),
                "give shorter texts",
            ));
        }
        let rope = (self.rope.0.narrow(0, 0, length)?, self.rope.1.narrow(0, 0, length)?);
        let hidden = (0..length * length).map(|at| if at % length > at / length { f32::NEG_INFINITY } else { 0.0 });
        let mask = Tensor::from_vec(hidden.collect::<Vec<f32>>(), (length, length), x.device())?;
        for layer in &self.layers[layers] {
            x = layer.forward(&self.config, &x, &rope, &mask)?;
        }
        Ok(x)
    }
}

impl Matrix {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Matrix::Frozen(weight) => weight.product(x),
            Matrix::Adapted(adapter) => adapter.forward(x),
            Matrix::Free(var) => {
                let (texts, length, inputs) = x.dims3()?;
                let y = x.reshape((texts * length, inputs))?.matmul(&var.t()?)?;
                Ok(y.reshape((texts, length, ()))?)
            }
        }
    }
}

impl Layer {
    fn forward(&self, config: &LlamaConfig, x: &Tensor, rope: &(Tensor, Tensor), mask: &Tensor) -> Result<Tensor> {
        let project = |of: Projection, x: &Tensor| self.matrices[of as usize].forward(x);
        let (texts, length, _) = x.dims3()?;
        let heads = |x: Tensor, heads: usize| -> Result<Tensor> {
            Ok(x.reshape((texts, length, heads, config.head_dim()))?.transpose(1, 2)?.contiguous()?)
        };
        let normed = norm(x, &self.norms[0], config.epsilon)?;
        let q = rotated(&heads(project(Projection::Q, &normed)?, config.heads)?, rope)?;
        let k = rotated(&heads(project(Projection::K, &normed)?, config.kv_heads)?, rope)?;
        let v = heads(project(Projection::V, &normed)?, config.kv_heads)?;
        // The heads of a group stand under each other as more rows of one product.
        let rows = config.heads / config.kv_heads * length;
        let q = q.reshape((texts, config.kv_heads, rows, config.head_dim()))?;
        let scores = q.matmul(&k.transpose(2, 3)?)?.reshape((texts, config.heads, length, length))?;
        let weights = attention_weights(&scores, mask, config.head_dim())?;
        let gathered = weights.reshape((texts, config.kv_heads, rows, length))?.matmul(&v)?;
        let gathered = gathered.reshape((texts, config.heads, length, config.head_dim()))?.transpose(1, 2)?;
        let gathered = gathered.reshape((texts, length, config.width))?;
        let x = (x + project(Projection::Out, &gathered)?)?;
        let normed = norm(&x, &self.norms[1], config.epsilon)?;
        let middle = (project(Projection::Gate, &normed)?.silu()? * project(Projection::Up, &normed)?)?;
        Ok((&x + project(Projection::Down, &middle)?)?)
    }
}

// ----------------------------------------------------------------------
// Operators whose fast kernels in candle have no backward pass, with one. What is frozen gets no gradient.

/// RMS norm over the last axis. With r = 1 / √(mean x² + ε), n = x · r and g = dy · factor: dx = r · (g − n · mean(g · n)).
fn norm(x: &Tensor, factor: &Tensor, epsilon: f32) -> Result<Tensor> {
    let y = rms_norm(&x.detach().contiguous()?, factor, epsilon)?;
    let factor = factor.clone();
    with_backward(x, y, move |x, _, dy| {
        let r = (x.sqr()?.mean_keepdim(D::Minus1)? + f64::from(epsilon))?.sqrt()?.recip()?;
        let n = x.broadcast_mul(&r)?;
        let g = dy.broadcast_mul(&factor)?;
        let along = n.broadcast_mul(&(&g * &n)?.mean_keepdim(D::Minus1)?)?;
        Ok((g - along)?.broadcast_mul(&r)?)
    })
}

/// RoPE turns pairs by an angle; the gradient is turned back.
fn rotated(x: &Tensor, (cos, sin): &(Tensor, Tensor)) -> Result<Tensor> {
    let y = rope_i(&x.detach(), cos, sin)?;
    let (cos, back) = (cos.clone(), sin.neg()?);
    with_backward(x, y, move |_, _, dy| Ok(rope_i(&dy.contiguous()?, &cos, &back)?))
}

/// softmax(scores / √d + mask): dx = y · (dy − Σ dy · y) / √d.
fn attention_weights(scores: &Tensor, mask: &Tensor, d: usize) -> Result<Tensor> {
    let factor = 1.0 / (d as f64).sqrt();
    let y = softmax_last_dim(&(scores.detach() * factor)?.broadcast_add(mask)?)?;
    with_backward(scores, y, move |_, y, dy| {
        let along = (dy * y)?.sum_keepdim(D::Minus1)?;
        Ok(((dy.broadcast_sub(&along)? * y)? * factor)?)
    })
}

/// The mean of −ln p of the targets, from logits `[rows, vocabulary]`: dx = (softmax − one at the target) / rows.
///
/// # Errors
/// What candle says.
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let (x, rows) = (logits.detach(), logits.dim(0)?);
    let x = x.broadcast_sub(&x.max_keepdim(D::Minus1)?)?;
    let e = x.exp()?;
    let sum = e.sum_keepdim(D::Minus1)?;
    let targets = targets.unsqueeze(1)?;
    let loss = (sum.log()? - x.gather(&targets, 1)?)?.mean_all()?;
    let p = e.broadcast_div(&sum)?;
    with_backward(logits, loss, move |_, _, dy| {
        let minus_one = Tensor::full(-1.0_f32, (rows, 1), p.device())?;
        let difference = p.scatter_add(&targets, &minus_one, 1)?;
        Ok(difference.broadcast_mul(&(dy / rows as f64)?)?)
    })
}

/// Bytes of parameters that learn, of their gradients, and of AdamW's two means: all in f32.
pub fn learning_bytes(trainable: usize) -> [usize; 3] {
    [4 * trainable, 4 * trainable, 8 * trainable]
}
