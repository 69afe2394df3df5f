//! Llama on candle: RMS norm, RoPE, grouped heads, SwiGLU, and one matrix for the first layer and the last.

use super::cpu::{CpuLayer, CpuLlama};
use super::product::PackedMatrix;
use super::{GgufFile, Input, LlamaConfig, Projection};
use crate::attention::grouped_attention;
use crate::cached::Asked;
use crate::gpt::{CausalModel, KvCache};
use crate::paged::{PagedCache, rows};
use candle_core::quantized::{QMatMul, QTensor};
use candle_core::{DType, Device, Module, Tensor};
use gpulab::error::{Error, Result};
use gpulab_kernels::engine::TextPart;
use rayon::prelude::*;
use std::sync::Arc;

/// How the weights are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightDtype {
    /// In the file's own bits; products of few bits compute with them, on f32 activations that they round to 8 bits: ours for Q4_1 and
    /// Q8_0 on the CPU, candle's for all others and on a GPU.
    AsStored,
    /// Unpacked to that type when they are loaded: F32, BF16 or F16.
    Dense(DType),
}

/// A Llama whose parameters lie on a device.
#[derive(Debug, Clone)]
pub struct Llama {
    config: LlamaConfig,
    /// The embedding's rows, which are the last matrix, too, where the file has no other.
    embedding: Matrix,
    layers: Vec<Layer>,
    last_norm: Norm,
    last: Matrix,
    /// cos and sin of RoPE's angles, `[context, head_dim / 2]`.
    rope: (Tensor, Tensor),
    precision: WeightDtype,
    device: Device,
    /// What makes the steps where all matrices are laid out for the CPU.
    cpu: Option<Arc<CpuLlama>>,
}

#[derive(Debug, Clone)]
struct Layer {
    norm_1: Norm,
    norm_2: Norm,
    /// In the order of [`Projection::ALL`].
    matrices: Vec<Matrix>,
}

impl Llama {
    /// Loads a file's weights to `device`.
    ///
    /// # Errors
    /// As [`LlamaConfig::of`] and [`GgufFile::tensor`]; [`Error::Unsupported`] for a `precision` that is no floating-point type;
    /// what candle says, out of memory above all.
    pub fn load(file: &GgufFile, device: &Device, precision: WeightDtype) -> Result<Llama> {
        let config = LlamaConfig::of(file)?;
        if let WeightDtype::Dense(dtype) = precision
            && !matches!(dtype, DType::F32 | DType::BF16 | DType::F16)
        {
            return Err(Error::unsupported(
                format!("weights unpacked to {}", dtype.as_str()),
                "use WeightDtype::Dense with F32, BF16 or F16, or WeightDtype::AsStored",
            ));
        }
        let matrix = |name: &str, shape: [usize; 2]| Matrix::of(file.tensor(name, &shape, device)?, precision);
        let norm = |name: &str| Norm::of(&file.tensor(name, &[config.width], device)?, precision, config.epsilon);
        let embedding = matrix("token_embd.weight", [config.vocabulary, config.width])?;
        let layer = |i: usize| -> Result<Layer> {
            let one = |of: &Projection| matrix(&format!("blk.{i}.{}.weight", of.name()), of.shape(&config));
            Ok(Layer {
                norm_1: norm(&format!("blk.{i}.attn_norm.weight"))?,
                norm_2: norm(&format!("blk.{i}.ffn_norm.weight"))?,
                matrices: Projection::ALL.iter().map(one).collect::<Result<_>>()?,
            })
        };
        let mut llama = Llama {
            last: match file.has("output.weight") {
                true => matrix("output.weight", [config.vocabulary, config.width])?,
                false => embedding.clone(),
            },
            embedding,
            layers: (0..config.layers).map(layer).collect::<Result<_>>()?,
            last_norm: norm("output_norm.weight")?,
            rope: rope_tables(&config, device, precision.activations())?,
            config,
            precision,
            device: device.clone(),
            cpu: None,
        };
        llama.cpu = llama.on_cpu()?;
        Ok(llama)
    }

    /// A model of that shape with random weights, in f32, which are numbers of bf16 too: a step takes as long as that of a trained one.
    ///
    /// # Errors
    /// What candle says.
    pub fn random(config: LlamaConfig, device: &Device, seed: u64) -> Result<Llama> {
        let mut number = seed;
        let mut draw = |shape: [usize; 2]| -> Result<Matrix> {
            number += 1;
            // A row's product with numbers around 1 is around 1.
            let bound = (3.0 / shape[1] as f32).sqrt();
            let round = |x: f32| half::bf16::from_f32(bound * x).to_f32();
            let values = gpulab::cpu::random_f32(shape[0] * shape[1], number).into_iter().map(round).collect();
            Ok(Matrix::Dense(Tensor::from_vec(values, &shape, device)?))
        };
        let norm = || -> Result<Norm> {
            Ok(Norm { weight: Tensor::ones(config.width, DType::F32, device)?, epsilon: config.epsilon })
        };
        let embedding = draw([config.vocabulary, config.width])?;
        let mut layer = |_| -> Result<Layer> {
            let matrices = Projection::ALL.iter().map(|of| draw(of.shape(&config))).collect::<Result<_>>()?;
            Ok(Layer { norm_1: norm()?, norm_2: norm()?, matrices })
        };
        Ok(Llama {
            last: embedding.clone(),
            embedding,
            layers: (0..config.layers).map(&mut layer).collect::<Result<_>>()?,
            last_norm: norm()?,
            rope: rope_tables(&config, device, DType::F32)?,
            config,
            precision: WeightDtype::Dense(DType::F32),
            device: device.clone(),
            cpu: None,
        })
    }

    /// The same weights in f32 on another device.
    ///
    /// # Errors
    /// What candle says.
    pub fn on(&self, device: &Device) -> Result<Llama> {
        let here = |matrix: &Matrix| -> Result<Matrix> {
            Ok(Matrix::Dense(matrix.dense()?.to_dtype(DType::F32)?.to_device(device)?))
        };
        let norm = |norm: &Norm| -> Result<Norm> {
            Ok(Norm { weight: norm.weight.to_dtype(DType::F32)?.to_device(device)?, epsilon: norm.epsilon })
        };
        let layer = |layer: &Layer| -> Result<Layer> {
            let matrices = layer.matrices.iter().map(here).collect::<Result<_>>()?;
            Ok(Layer { norm_1: norm(&layer.norm_1)?, norm_2: norm(&layer.norm_2)?, matrices })
        };
        let embedding = here(&self.embedding)?;
        Ok(Llama {
            last: if self.last.is_same(&self.embedding) { embedding.clone() } else { here(&self.last)? },
            embedding,
            layers: self.layers.iter().map(layer).collect::<Result<_>>()?,
            last_norm: norm(&self.last_norm)?,
            rope: rope_tables(&self.config, device, DType::F32)?,
            config: self.config,
            precision: WeightDtype::Dense(DType::F32),
            device: device.clone(),
            cpu: None,
        })
    }

    /// The model as the CPU's own steps need it; nothing where a matrix is of another kind.
    fn on_cpu(&self) -> Result<Option<Arc<CpuLlama>>> {
        let packed = |matrix: &Matrix| match matrix {
            Matrix::Packed(packed) => Some(packed.clone()),
            _ => None,
        };
        let mut layers = Vec::new();
        for layer in &self.layers {
            let Some(matrices) = layer.matrices.iter().map(packed).collect::<Option<Vec<_>>>() else {
                return Ok(None);
            };
            let norms = [layer.norm_1.weight.to_vec1()?, layer.norm_2.weight.to_vec1()?];
            layers.push(CpuLayer { norms, matrices });
        }
        let (Some(embedding), Some(last)) = (packed(&self.embedding), packed(&self.last)) else { return Ok(None) };
        Ok(Some(Arc::new(CpuLlama {
            config: self.config,
            embedding,
            layers,
            last_norm: self.last_norm.weight.to_vec1()?,
            last,
            rope: [self.rope.0.clone(), self.rope.1.clone()],
            scratch: Default::default(),
        })))
    }

    /// The same model, whose steps are candle's operators.
    #[cfg(test)]
    pub(super) fn by_operators(&self) -> Llama {
        assert!(self.cpu.is_some(), "its steps are candle's operators");
        Llama { cpu: None, ..self.clone() }
    }

    /// The shape of the model.
    pub fn config(&self) -> LlamaConfig {
        self.config
    }

    /// Where the parameters lie.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// How the weights are kept.
    pub fn precision(&self) -> WeightDtype {
        self.precision
    }

    /// Bytes of all parameters, as kept.
    pub fn bytes(&self) -> usize {
        let layer = |layer: &Layer| {
            let matrices: usize = layer.matrices.iter().map(Matrix::bytes).sum();
            matrices + layer.norm_1.bytes() + layer.norm_2.bytes()
        };
        let tied = self.last.is_same(&self.embedding);
        let last = if tied { 0 } else { self.last.bytes() };
        self.layers.iter().map(layer).sum::<usize>() + self.embedding.bytes() + last + self.last_norm.bytes()
    }

    /// A logit for each token of the vocabulary after each token of a text, `[length, vocabulary]` in f32.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the text is empty or longer than the context, or names a token that the model does not have.
    pub fn logits(&self, tokens: &[u32]) -> Result<Tensor> {
        let mut cache = self.cache(&[tokens.to_vec()], 0)?;
        if let Some(cpu) = &self.cpu {
            return cpu.step(&cache.readers(&[tokens], tokens.len(), Asked::All), cache.all());
        }
        let x = self.run(&self.batch(&[tokens.to_vec()])?, &mut cache)?;
        Ok(self.head(&x)?.squeeze(0)?)
    }

    /// The mean of −ln p over the tokens of a text, in nats a token: it is cut into windows of `window` tokens, and each token but
    /// the first of its window counts.
    ///
    /// # Errors
    /// As [`Llama::logits`]; [`Error::Invalid`] when the text has fewer than two tokens, or the loss is NaN.
    pub fn loss(&self, tokens: &[u32], window: usize) -> Result<f64> {
        if tokens.len() < 2 || window < 2 {
            return Err(Error::invalid(
                format!("a text of {} tokens in windows of {window} has nothing to predict", tokens.len()),
                "give a text and windows of at least two tokens",
            ));
        }
        let (mut sum, mut count) = (0.0, 0);
        for text in tokens.chunks(window).filter(|text| text.len() > 1) {
            let rows = self.logits(text)?.to_vec2::<f32>()?;
            sum += rows.par_iter().zip(&text[1..]).map(|(row, next)| surprise(row, *next)).sum::<f64>();
            count += text.len() - 1;
        }
        let loss = sum / count as f64;
        match loss.is_nan() {
            true => Err(Error::invalid("the model's loss is NaN", "its weights are damaged: load the file again")),
            false => Ok(loss),
        }
    }

    /// A layer's matrix in f32 on the CPU, `[outputs, inputs]`.
    ///
    /// # Errors
    /// What candle says.
    pub fn weight(&self, layer: usize, of: Projection) -> Result<Tensor> {
        self.layers[layer].matrices[of as usize].dense()
    }

    /// The factors of a layer's two norms, in f32.
    pub(crate) fn norms(&self, layer: usize) -> Result<[Tensor; 2]> {
        let layer = &self.layers[layer];
        Ok([layer.norm_1.weight.to_dtype(DType::F32)?, layer.norm_2.weight.to_dtype(DType::F32)?])
    }

    /// The embedding's rows, the factors of the last norm, and the last matrix, which may be the embedding again; in f32 on the model's
    /// device.
    pub(crate) fn ends(&self) -> Result<[Tensor; 3]> {
        let here = |matrix: &Matrix| -> Result<Tensor> { Ok(matrix.dense()?.to_device(&self.device)?) };
        let embedding = here(&self.embedding)?;
        let last = if self.last.is_same(&self.embedding) { embedding.clone() } else { here(&self.last)? };
        Ok([embedding, self.last_norm.weight.to_dtype(DType::F32)?, last])
    }

    /// cos and sin of RoPE's angles for the first `length` positions, `[length, head_dim / 2]` in f32.
    pub(crate) fn rope(&self, length: usize) -> Result<(Tensor, Tensor)> {
        let of = |table: &Tensor| -> Result<Tensor> { Ok(table.narrow(0, 0, length)?.to_dtype(DType::F32)?) };
        Ok((of(&self.rope.0)?, of(&self.rope.1)?))
    }

    /// Puts another matrix of the same shape in place of a layer's: what a quantization has left of it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another shape.
    pub fn replace(&mut self, layer: usize, of: Projection, weight: &Tensor) -> Result<()> {
        let shape = of.shape(&self.config);
        if weight.dims() != shape {
            return Err(Error::invalid(
                format!("a matrix of {:?} in place of one of {shape:?}", weight.dims()),
                "give a matrix of the same shape",
            ));
        }
        let weight = weight.to_device(&self.device)?.to_dtype(self.precision.activations())?;
        self.layers[layer].matrices[of as usize] = Matrix::Dense(weight);
        self.cpu = None;
        Ok(())
    }

    /// As [`Llama::replace`], with a matrix in candle's quantized bits.
    ///
    /// # Errors
    /// As [`Llama::replace`]; what candle says.
    pub fn replace_quantized(&mut self, layer: usize, of: Projection, weight: QTensor) -> Result<()> {
        let shape = of.shape(&self.config);
        if weight.shape().dims() != shape || self.precision.activations() != DType::F32 {
            return Err(Error::invalid(
                format!("a quantized matrix of {:?} in place of one of {shape:?}", weight.shape().dims()),
                "give a matrix of the same shape, and load the model AsStored or as F32",
            ));
        }
        self.layers[layer].matrices[of as usize] = Matrix::of(weight, WeightDtype::AsStored)?;
        self.cpu = self.on_cpu()?;
        Ok(())
    }

    /// Runs a text through the embedding: `[1, length, width]`, what the first layer reads.
    ///
    /// # Errors
    /// As [`Llama::logits`].
    pub fn embed(&self, tokens: &[u32]) -> Result<Tensor> {
        self.check(&[tokens.to_vec()], 0)?;
        self.embedding.rows(&self.batch(&[tokens.to_vec()])?)
    }

    /// Runs texts of one length through one layer, `[texts, length, width]` to the same; `see` gets what goes into its matrices.
    ///
    /// # Errors
    /// What candle or `see` says.
    pub fn layer(&self, layer: usize, x: &Tensor, see: &mut dyn FnMut(Input, &Tensor) -> Result<()>) -> Result<Tensor> {
        let (texts, length, _) = x.dims3()?;
        let shape = (self.config.layers, self.config.kv_heads, self.config.head_dim());
        // Of one layer only its own part is used, and no memory is touched for the others.
        let mut cache = KvCache::new((1, shape.1, shape.2), vec![0; texts], length, x.dtype(), &self.device)?;
        let mask = cache.mask(length, &self.device)?;
        let rope = self.angles(&cache, length)?;
        let attend = &mut |q: &Tensor, k: &Tensor, v: &Tensor| {
            let (k, v) = cache.layer(0).append(k, v)?;
            grouped_attention(q, &k, &v, mask.as_ref())
        };
        self.layers[layer].forward(&self.config, x, &rope, attend, see)
    }

    /// All layers: `[texts, length]` (u32) to `[texts, length, width]`.
    pub(super) fn run(&self, tokens: &Tensor, cache: &mut KvCache) -> Result<Tensor> {
        let length = tokens.dim(1)?;
        let mask = cache.mask(length, &self.device)?;
        let rope = self.angles(cache, length)?;
        let mut x = self.embedding.rows(tokens)?;
        for (i, layer) in self.layers.iter().enumerate() {
            let attend = &mut |q: &Tensor, k: &Tensor, v: &Tensor| {
                let (k, v) = cache.layer(i).append(k, v)?;
                grouped_attention(q, &k, &v, mask.as_ref())
            };
            x = layer.forward(&self.config, &x, &rope, attend, &mut |_, _| Ok(()))?;
        }
        cache.advance(length);
        Ok(x)
    }

    /// An empty cache of `blocks` blocks of `block_size` tokens for [`Llama::paged_step`].
    ///
    /// # Errors
    /// What candle says, out of memory above all.
    pub fn paged_cache(&self, blocks: usize, block_size: usize) -> Result<PagedCache> {
        let shape = (self.config.layers, self.config.kv_heads, self.config.head_dim());
        PagedCache::new(shape, (blocks, block_size), self.precision.activations(), &self.device)
    }

    /// Reads parts of several texts at once: the logits after each part that asks for them, `[those parts, vocabulary]` in f32.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no part, one does not fit into its blocks or the context, or names an unknown token; what
    /// candle says.
    pub fn paged_step(&self, parts: &[TextPart<'_>], cache: &PagedCache) -> Result<Tensor> {
        if parts.is_empty() {
            self.check(&[], 0)?;
        }
        parts.iter().try_for_each(|part| self.check(&[part.tokens.to_vec()], part.first).map(|_| ()))?;
        if let Some(cpu) = &self.cpu {
            return cpu.step(&cache.readers(parts)?, cache.all());
        }
        let step = cache.step(parts, &self.device)?;
        let (tokens, positions, ends) = rows(parts, &self.device)?;
        let of = |table: &Tensor| -> Result<Tensor> { Ok(table.index_select(&positions, 0)?.unsqueeze(0)?) };
        let rope = (of(&self.rope.0)?, of(&self.rope.1)?);
        let mut x = self.embedding.rows(&tokens)?;
        for (i, layer) in self.layers.iter().enumerate() {
            let attend = &mut |q: &Tensor, k: &Tensor, v: &Tensor| step.attend(i, q, k, v);
            x = layer.forward(&self.config, &x, &rope, attend, &mut |_, _| Ok(()))?;
        }
        if ends.elem_count() == 0 {
            return Ok(Tensor::zeros((0, self.config.vocabulary), DType::F32, &self.device)?);
        }
        Ok(self.head(&x.index_select(&ends, 1)?)?.squeeze(0)?)
    }

    /// cos and sin for the next `length` tokens of each text, `[texts, length, head_dim / 2]`.
    fn angles(&self, cache: &KvCache, length: usize) -> Result<(Tensor, Tensor)> {
        let positions = cache.positions(length, &self.device)?;
        let (texts, half) = (cache.texts(), self.config.head_dim() / 2);
        let of = |table: &Tensor| -> Result<Tensor> {
            Ok(table.index_select(&positions.flatten_all()?, 0)?.reshape((texts, length, half))?)
        };
        Ok((of(&self.rope.0)?, of(&self.rope.1)?))
    }

    fn head(&self, x: &Tensor) -> Result<Tensor> {
        Ok(self.last.forward(&self.last_norm.forward(x)?)?.to_dtype(DType::F32)?)
    }

    /// The texts, shorter ones filled up on the left, `[texts, longest]`.
    fn batch(&self, prompts: &[Vec<u32>]) -> Result<Tensor> {
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        let filled = |prompt: &Vec<u32>| std::iter::repeat_n(0, longest - prompt.len()).chain(prompt.clone());
        let rows: Vec<u32> = prompts.iter().flat_map(filled).collect();
        Ok(Tensor::from_vec(rows, (prompts.len(), longest), &self.device)?)
    }

    fn cache(&self, prompts: &[Vec<u32>], new: usize) -> Result<KvCache> {
        let longest = self.check(prompts, new)?;
        let padding = prompts.iter().map(|prompt| longest - prompt.len()).collect();
        self.empty_cache(padding, longest + new)
    }

    /// A cache for `capacity` tokens of as many texts as `padding` has numbers.
    pub(super) fn empty_cache(&self, padding: Vec<usize>, capacity: usize) -> Result<KvCache> {
        let shape = (self.config.layers, self.config.kv_heads, self.config.head_dim());
        KvCache::new(shape, padding, capacity, self.precision.activations(), &self.device)
    }

    /// Reads more tokens of one text into its cache, and gives the logits after the last of them, `[1, vocabulary]`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is none, the cache lacks room, or one is unknown.
    pub fn extend(&self, tokens: &[u32], cache: &mut KvCache) -> Result<Tensor> {
        self.check(&[tokens.to_vec()], 0)?;
        if cache.texts() != 1 || cache.len() + tokens.len() > cache.capacity() {
            return Err(Error::invalid(
                format!(
                    "{} more tokens do not fit into a cache of {} that holds {}",
                    tokens.len(),
                    cache.capacity(),
                    cache.len()
                ),
                "begin again with a larger cache, or give a shorter text",
            ));
        }
        self.next_logits(&[tokens.to_vec()], cache)
    }

    /// Reads the texts' next tokens; shorter ones were filled up on the left when the cache was made.
    fn next_logits(&self, texts: &[Vec<u32>], cache: &mut KvCache) -> Result<Tensor> {
        let length = texts.iter().map(Vec::len).max().unwrap_or(0);
        if let Some(cpu) = &self.cpu {
            let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
            let logits = cpu.step(&cache.readers(&texts, length, Asked::Last), cache.all())?;
            cache.advance(length);
            return Ok(logits);
        }
        let x = self.run(&self.batch(texts)?, cache)?;
        // The last matrix is a fifth of the weights: after a prompt only its last row is needed.
        Ok(self.head(&x.narrow(1, length - 1, 1)?)?.squeeze(1)?)
    }

    /// The longest prompt, when all of them can be read, with `new` tokens behind them.
    fn check(&self, prompts: &[Vec<u32>], new: usize) -> Result<usize> {
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        if prompts.iter().map(Vec::len).min().unwrap_or(0) == 0 {
            return Err(Error::invalid(
                "a text of no tokens has nothing to go on from",
                "give a prompt of at least one character",
            ));
        }
        let most = self.config.context;
        if longest + new > most {
            return Err(Error::invalid(
                format!("{} tokens do not fit into the model's context of {most}", longest + new),
                format!("shorten the prompt, or ask for fewer new tokens: together at most {most}"),
            ));
        }
        if let Some(token) = prompts.iter().flatten().find(|token| **token as usize >= self.config.vocabulary) {
            return Err(Error::invalid(
                format!("the prompt names token {token}, and the model has {}", self.config.vocabulary),
                "use the tokenizer that belongs to the model",
            ));
        }
        Ok(longest)
    }
}

impl CausalModel for Llama {
    fn prefill(&self, prompts: &[Vec<u32>], new: usize) -> Result<(KvCache, Tensor)> {
        let mut cache = self.cache(prompts, new)?;
        let logits = self.next_logits(prompts, &mut cache)?;
        Ok((cache, logits))
    }

    fn step(&self, tokens: &[u32], cache: &mut KvCache) -> Result<Tensor> {
        cache.room_for(tokens)?;
        let texts: Vec<Vec<u32>> = tokens.iter().map(|token| vec![*token]).collect();
        self.check(&texts, 0)?;
        self.next_logits(&texts, cache)
    }
}

/// −ln of the probability that the logits give a token.
fn surprise(logits: &[f32], token: u32) -> f64 {
    let most = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - most).exp()).sum();
    sum.ln() + most - f64::from(logits[token as usize])
}

// ----------------------------------------------------------------------
// A layer.

impl Layer {
    fn forward(
        &self,
        config: &LlamaConfig,
        x: &Tensor,
        (cos, sin): &(Tensor, Tensor),
        attend: &mut dyn FnMut(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
        see: &mut dyn FnMut(Input, &Tensor) -> Result<()>,
    ) -> Result<Tensor> {
        let project = |of: Projection, x: &Tensor| self.matrices[of as usize].forward(x);
        let (texts, length, _) = x.dims3()?;
        let heads = |x: Tensor, heads: usize| -> Result<Tensor> {
            Ok(x.reshape((texts, length, heads, config.head_dim()))?.transpose(1, 2)?.contiguous()?)
        };
        let normed = self.norm_1.forward(x)?;
        see(Input::Attention, &normed)?;
        let q = heads(project(Projection::Q, &normed)?, config.heads)?;
        let k = heads(project(Projection::K, &normed)?, config.kv_heads)?;
        let v = heads(project(Projection::V, &normed)?, config.kv_heads)?;
        // The file's converter has put the two numbers of a rotated pair beside each other.
        let q = candle_nn::rotary_emb::rope_i(&q, cos, sin)?;
        let k = candle_nn::rotary_emb::rope_i(&k, cos, sin)?;
        let gathered = attend(&q, &k, &v)?;
        let gathered = gathered.transpose(1, 2)?.reshape((texts, length, config.width))?;
        see(Input::Gathered, &gathered)?;
        let x = (x + project(Projection::Out, &gathered)?)?;

        let normed = self.norm_2.forward(&x)?;
        see(Input::FeedForward, &normed)?;
        let middle = (project(Projection::Gate, &normed)?.silu()? * project(Projection::Up, &normed)?)?;
        see(Input::Middle, &middle)?;
        Ok((&x + project(Projection::Down, &middle)?)?)
    }
}

/// cos and sin of position ÷ base^(2i / d), `[context, d / 2]`.
fn rope_tables(config: &LlamaConfig, device: &Device, dtype: DType) -> Result<(Tensor, Tensor)> {
    let d = config.head_dim();
    let frequencies: Vec<f32> = (0..d).step_by(2).map(|i| 1.0 / config.rope_base.powf(i as f32 / d as f32)).collect();
    let angles: Vec<f32> =
        (0..config.context).flat_map(|at| frequencies.iter().map(move |frequency| at as f32 * frequency)).collect();
    let angles = Tensor::from_vec(angles, (config.context, d / 2), device)?;
    Ok((angles.cos()?.to_dtype(dtype)?, angles.sin()?.to_dtype(dtype)?))
}

// ----------------------------------------------------------------------
// Weights, in the file's bits or unpacked.

impl WeightDtype {
    /// What the model computes in between its matrices.
    fn activations(self) -> DType {
        match self {
            WeightDtype::AsStored => DType::F32,
            WeightDtype::Dense(dtype) => dtype,
        }
    }
}

/// A matrix `[outputs, inputs]`.
#[derive(Debug, Clone)]
enum Matrix {
    /// In few bits, and candle's product that computes with them.
    Quantized(Arc<QTensor>, QMatMul),
    /// In few bits, laid out for our product.
    Packed(Arc<PackedMatrix>),
    Dense(Tensor),
}

impl Matrix {
    fn of(tensor: QTensor, precision: WeightDtype) -> Result<Matrix> {
        match precision {
            WeightDtype::AsStored => {
                if let Some(packed) = PackedMatrix::of(&tensor)? {
                    return Ok(Matrix::Packed(Arc::new(packed)));
                }
                let tensor = Arc::new(tensor);
                let candle = QMatMul::from_arc(tensor.clone())?;
                Ok(Matrix::Quantized(tensor, candle))
            }
            WeightDtype::Dense(dtype) => Ok(Matrix::Dense(tensor.dequantize(&tensor.device())?.to_dtype(dtype)?)),
        }
    }

    /// x · weightᵀ over the last axis of `[texts, length, inputs]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Matrix::Quantized(_, product) => Ok(product.forward(&x.contiguous()?)?),
            Matrix::Packed(packed) => packed.forward(x),
            Matrix::Dense(weight) => {
                // One product for all rows: candle would make one for each text.
                let (texts, length, inputs) = x.dims3()?;
                let y = x.reshape((texts * length, inputs))?.matmul(&weight.t()?)?;
                Ok(y.reshape((texts, length, ()))?)
            }
        }
    }

    /// Its rows of these numbers, `[texts, length]` to `[texts, length, inputs]`: an embedding.
    fn rows(&self, tokens: &Tensor) -> Result<Tensor> {
        match self {
            Matrix::Quantized(_, product) => Ok(product.embedding(tokens)?),
            Matrix::Packed(packed) => {
                let (texts, length) = tokens.dims2()?;
                let mut rows = vec![0.0; texts * length * packed.inputs()];
                let tokens = tokens.flatten_all()?.to_vec1::<u32>()?;
                let each = tokens.iter().zip(rows.chunks_exact_mut(packed.inputs()));
                each.for_each(|(token, row)| packed.row(*token as usize, row));
                Ok(Tensor::from_vec(rows, (texts, length, packed.inputs()), &Device::Cpu)?)
            }
            Matrix::Dense(weight) => {
                let (texts, length) = tokens.dims2()?;
                Ok(weight.index_select(&tokens.flatten_all()?, 0)?.reshape((texts, length, ()))?)
            }
        }
    }

    fn dense(&self) -> Result<Tensor> {
        Ok(match self {
            Matrix::Quantized(tensor, _) => tensor.dequantize(&Device::Cpu)?,
            Matrix::Packed(packed) => packed.dense()?,
            Matrix::Dense(weight) => weight.to_device(&Device::Cpu)?.to_dtype(DType::F32)?,
        })
    }

    fn bytes(&self) -> usize {
        match self {
            Matrix::Quantized(tensor, _) => tensor.storage_size_in_bytes(),
            Matrix::Packed(packed) => packed.bytes(),
            Matrix::Dense(weight) => weight.elem_count() * weight.dtype().size_in_bytes(),
        }
    }

    fn is_same(&self, other: &Matrix) -> bool {
        match (self, other) {
            (Matrix::Quantized(one, _), Matrix::Quantized(two, _)) => Arc::ptr_eq(one, two),
            (Matrix::Packed(one), Matrix::Packed(two)) => Arc::ptr_eq(one, two),
            (Matrix::Dense(one), Matrix::Dense(two)) => one.id() == two.id(),
            _ => false,
        }
    }
}

/// RMS norm over the last axis.
#[derive(Debug, Clone)]
struct Norm {
    weight: Tensor,
    epsilon: f32,
}

impl Norm {
    fn of(tensor: &QTensor, precision: WeightDtype, epsilon: f32) -> Result<Norm> {
        let weight = tensor.dequantize(&tensor.device())?.to_dtype(precision.activations())?;
        Ok(Norm { weight, epsilon })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(candle_nn::ops::rms_norm(&x.contiguous()?, &self.weight, self.epsilon)?)
    }

    fn bytes(&self) -> usize {
        self.weight.elem_count() * self.weight.dtype().size_in_bytes()
    }
}

#[cfg(test)]
mod surprise_tests {
    #[test]
    fn a_surprise_is_minus_the_logarithm_of_softmax() {
        // softmax of (0, ln 3) is (1/4, 3/4).
        let logits = [0.0, 3.0_f32.ln()];
        assert!((super::surprise(&logits, 0) - 4.0_f64.ln()).abs() < 1e-6);
        assert!((super::surprise(&logits, 1) - (4.0_f64 / 3.0).ln()).abs() < 1e-6);
        assert!((super::surprise(&[1e4, 0.0], 1) - 1e4).abs() < 1e-3);
    }
}
