//! A training step of adapters (LoRA) beside a Llama's frozen matrices, in bf16 or in four bits (QLoRA), on the course's own kernels
//! (`kernels/lora_step/`), flash attention and cuBLASLt's products: the whole step one CUDA graph.
//!
//! # What makes it fast
//! With candle or PyTorch an adapter beside a matrix is five operators more forward and ten backward, of a few microseconds each: at SmolLM2's
//! size the host is busy with launches, and the GPU waits. Here the adapters ride on what must be done anyway.
//!
//! - Matrices that read the same input are one: q, k and v; gate and up. A layer has four.
//! - A row's products with all A's of a matrix, `lows` numbers, stand behind the row itself, put there by the kernel that makes the row (a norm,
//!   SwiGLU). So `[row | low] · [W | B]ᵀ` is the layer with its adapters, in one product that is little larger.
//! - Backwards, `dy · [W | B]` gives the gradients of row and lows in one product as well; the kernel that reads the row's adds `d_low · A`.
//! - What is left are two thin products for each matrix, of A's gradient and of B's.
//!
//! That is 10 kernels a layer forward and 20 backward, about 900 in a step of SmolLM2-135M, and with them as a graph no launch is waited for.
//! Four bits cost 14 kernels more, as a matrix is unpacked before each of its two products.

#[cfg(test)]
mod tests;

use crate::gpt_step::{AdamWConfig, StepResult};
use crate::ladder::compile;
use crate::products::{Into, Products, Sides};
use crate::topics::{BackwardInputs, BackwardOutputs, FlashBackward};
use gpulab::cpu::{AttentionShape, bf16_from_f32};
use gpulab::error::{Error, Result, same_length};
use gpulab::gpu::{Buffer, Gpu, Graph, Kernel, LtEpilogue, LtExtra};
use gpulab::launch::LaunchConfig;
use std::collections::HashMap;

/// The head dimension that the kernels take.
pub const HEAD: usize = 64;
/// Threads of a block: of most kernels eight rows.
const THREADS: usize = 256;
/// Blocks of the pass that sums squares.
const WALKERS: usize = 528;
/// Of a number of A, beside its place among the weights.
const OF_A: i32 = 1 << 30;
/// Weights of four bits that share a scale.
const BLOCK: usize = 64;

/// The shape of a Llama with tied embeddings, and of its adapters: beside each matrix of each layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoraShape {
    /// Layers.
    pub layers: usize,
    /// Heads of queries, of 64 numbers; the model is as wide as all of them.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Width of the feed-forward layer's middle.
    pub inner: usize,
    /// Different tokens.
    pub vocabulary: usize,
    /// What RMS norm adds to the mean square.
    pub epsilon: f32,
    /// Rows of A.
    pub rank: usize,
    /// What adapters' products are multiplied by: alpha / rank.
    pub scale: f32,
}

/// How many tokens go through at once, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoraSettings {
    /// Texts.
    pub batch: usize,
    /// Tokens of each.
    pub length: usize,
    /// The step as one CUDA graph; else its kernels are queued one by one.
    pub graph: bool,
    /// The plain product in place of cuBLASLt's, on a GPU too.
    pub plain_products: bool,
}

/// A frozen matrix `[outputs, inputs]`.
#[derive(Debug, Clone, PartialEq)]
pub enum Frozen {
    /// In bf16.
    Bf16(Vec<u16>),
    /// In NF4, its scales in 8 bits: scale = mean + `of_group` · E4M3, of 64 weights; 256 scales are a group.
    Nf4 {
        /// Two weights in a byte, the first one in its high half.
        codes: Vec<u8>,
        /// A scale for each 64 weights.
        scales: Vec<u8>,
        /// A number for each 256 scales.
        of_group: Vec<f32>,
        /// Of all scales.
        mean: f32,
    },
}

/// A matrix with its adapter, on the host.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraMatrix {
    /// What does not learn.
    pub frozen: Frozen,
    /// `[rank, inputs]`.
    pub a: Vec<f32>,
    /// `[outputs, rank]`.
    pub b: Vec<f32>,
}

/// A and B beside each of a layer's seven matrices, on the host.
pub type LayerAdapters = [(Vec<f32>, Vec<f32>); 7];

/// All weights of a model, on the host.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraWeights {
    /// The table of tokens `[vocabulary, width]` in bf16, which is the last matrix as well.
    pub table: Vec<u16>,
    /// The factors of both norms of each layer, then of the last norm.
    pub norms: Vec<f32>,
    /// For each position 32 cosines, then 32 sines: of pairs that lie beside each other.
    pub rope: Vec<f32>,
    /// For each layer q, k, v, out, gate, up and down.
    pub layers: Vec<[LoraMatrix; 7]>,
    /// What NF4's sixteen codes stand for, then what a scale's 256 do.
    pub levels: Vec<f32>,
}

/// Matrices that read the same rows, as one.
#[derive(Debug, Clone)]
struct Group {
    inputs: usize,
    /// Of each matrix.
    outputs: Vec<usize>,
    /// Columns behind the inputs: the rank for each matrix, filled up to a multiple of 16.
    lows: usize,
}

impl Group {
    fn all_outputs(&self) -> usize {
        self.outputs.iter().sum()
    }

    /// Numbers of A and B of all its adapters, in one piece: A `[lows, inputs]`, then B `[outputs, lows]`.
    fn adapters(&self) -> usize {
        self.lows * (self.inputs + self.all_outputs())
    }
}

/// Which matrices of a layer are a group: q, k and v; out; gate and up; down.
const GROUPS: [std::ops::Range<usize>; 4] = [0..3, 3..4, 4..6, 6..7];
const QKV: usize = 0;
const OUT: usize = 1;
const UP: usize = 2;
const DOWN: usize = 3;

impl LoraShape {
    /// Width of the residual stream: the numbers that stand for a token (`d_model`, `hidden_size`).
    pub fn width(&self) -> usize {
        self.heads * HEAD
    }

    /// Outputs and inputs of a layer's seven matrices.
    pub fn matrices(&self) -> [[usize; 2]; 7] {
        let (c, kv, inner) = (self.width(), self.kv_heads * HEAD, self.inner);
        [[c, c], [kv, c], [kv, c], [c, c], [inner, c], [inner, c], [c, inner]]
    }

    /// Numbers that learn.
    pub fn trainable(&self) -> usize {
        self.layers * self.matrices().iter().map(|sides| self.rank * (sides[0] + sides[1])).sum::<usize>()
    }

    /// Multiplications and additions that a step of so many tokens has to make: two for each weight and token forward, and as many for the
    /// inputs' gradients; attention's beside them.
    pub fn operations(&self, settings: &LoraSettings) -> f64 {
        let matrices: usize = self.matrices().iter().map(|sides| sides[0] * sides[1]).sum();
        let weights = self.layers * matrices + self.vocabulary * self.width();
        let tokens = settings.batch * settings.length;
        // Two products forward and five backward, of which a causal mask leaves half.
        let attention = self.layers * 7 * settings.length * self.width() * tokens;
        4.0 * weights as f64 * tokens as f64 + attention as f64
    }

    fn groups(&self) -> [Group; 4] {
        let matrices = self.matrices();
        GROUPS.map(|range| Group {
            inputs: matrices[range.start][1],
            outputs: matrices[range.clone()].iter().map(|sides| sides[0]).collect(),
            lows: (range.len() * self.rank).next_multiple_of(16),
        })
    }

    /// Rows of logits' gradients: the vocabulary, filled up to a multiple of 128.
    fn rows(&self) -> usize {
        self.vocabulary.next_multiple_of(128)
    }

    fn check(&self, settings: &LoraSettings) -> Result<()> {
        let refuse = |what: String, fix: &str| Err(Error::invalid(what, fix));
        let LoraShape { layers, heads, kv_heads, inner, vocabulary, rank, .. } = *self;
        if [layers, heads, kv_heads, inner, vocabulary, rank, settings.batch, settings.length].contains(&0) {
            return refuse(format!("{self:?} and {settings:?}"), "give at least one of each");
        }
        if !heads.is_multiple_of(kv_heads) || !inner.is_multiple_of(BLOCK) {
            return refuse(
                format!("{heads} heads of queries for {kv_heads} of keys, and a middle of {inner}"),
                "heads of keys share those of queries evenly, and 64 divides the middle",
            );
        }
        if self.width().max(inner) > 4096 || rank > 64 {
            return Err(Error::unsupported(
                format!("rows of {} and {inner} numbers, and a rank of {rank}: a warp holds a row", self.width()),
                "take a model with rows of at most 4096 numbers and a rank of at most 64, or candle's `Tuner`",
            ));
        }
        let most = (settings.batch * settings.length).saturating_mul((2 * inner).max(3 * self.width()));
        let weights = layers * self.matrices().iter().map(|sides| sides[0] * (sides[1] + 256)).sum::<usize>();
        if most.max(weights) >= OF_A as usize {
            return refuse(format!("{most} numbers in an array"), "take fewer texts at once: indices are 30 bits");
        }
        Ok(())
    }
}

/// What a layer's forward pass leaves for its backward pass. `cat`: rows with their adapters' products behind them.
#[derive(Debug)]
struct Layer {
    x: Buffer<u16>,
    rstd_1: Buffer<f32>,
    middle: Buffer<u16>,
    rstd_2: Buffer<f32>,
    /// What goes into each group's product.
    cat: [Buffer<u16>; 4],
    q: Buffer<u16>,
    k: Buffer<u16>,
    v: Buffer<u16>,
    o: Buffer<u16>,
    lse: Buffer<f32>,
    both: Buffer<u16>,
}

#[derive(Debug)]
struct Scratch {
    x: Buffer<u16>,
    normed: Buffer<u16>,
    rstd: Buffer<f32>,
    y: Buffer<u16>,
    qkv: Buffer<u16>,
    d_x: Buffer<u16>,
    d_cat: Buffer<u16>,
    d_both: Buffer<u16>,
    d_o: Buffer<u16>,
    dq: Buffer<u16>,
    dk: Buffer<u16>,
    dv: Buffer<u16>,
    rows: Buffer<f32>,
    sums: Option<Buffer<f32>>,
    logits: Buffer<u16>,
    losses: Buffer<f32>,
    squares: Buffer<f32>,
    tallied: Buffer<f32>,
    /// A matrix of four bits, unpacked.
    unpacked: Option<Buffer<u16>>,
}

/// Of four bits: all matrices, one behind the other.
#[derive(Debug)]
struct Packed {
    codes: Buffer<u8>,
    scales: Buffer<u8>,
    of_group: Buffer<f32>,
    levels: Buffer<f32>,
    /// Where each layer's seven matrices begin in the three arrays, and their means.
    offsets: Vec<[([usize; 3], f32); 7]>,
}

#[derive(Debug)]
struct Model {
    table: Buffer<u16>,
    norms: Buffer<f32>,
    rope: Buffer<f32>,
    /// Of each group `[W | B]`, or B alone where W has four bits, and behind it scale · A.
    weights: Buffer<u16>,
    packed: Option<Packed>,
    /// Adapters in f32, as [`Group::adapters`] says, of all groups.
    master: Buffer<f32>,
    m: Buffer<f32>,
    v: Buffer<f32>,
    gradient: Buffer<f32>,
    offsets: Buffer<i32>,
}

/// Where a group's parts begin.
#[derive(Debug, Clone, Copy)]
struct GroupOffsets {
    /// `[W | B]`, or B, among the weights.
    matrix: usize,
    /// scale · A among the weights.
    a: usize,
    /// Among the adapters.
    adapters: usize,
}

/// Adapters that are trained on one GPU.
#[derive(Debug)]
pub struct LoraTraining {
    gpu: Gpu,
    shape: LoraShape,
    settings: LoraSettings,
    groups: [Group; 4],
    kernels: HashMap<&'static str, Kernel>,
    flash: FlashBackward,
    products: Products,
    model: Model,
    offsets: Vec<[GroupOffsets; 4]>,
    layers: Vec<Layer>,
    scratch: Scratch,
    tokens: Buffer<i32>,
    targets: Buffer<i32>,
    given: Buffer<f32>,
    is_set: bool,
    tuned: bool,
    graph: Option<Graph>,
    step: u64,
}

/// The files of a step.
const FILES: [&str; 7] = [
    "gpt_step/loss",
    "gpt_step/update",
    "lora_step/heads",
    "lora_step/norm",
    "lora_step/swiglu",
    "lora_step/unpack",
    "lora_step/update",
];

/// Threads for a row of logits.
fn loss_threads(shape: &LoraShape) -> usize {
    if shape.rows() > 8192 { 512 } else { 128 }
}

/// A warp a row.
fn row_blocks(rows: usize) -> LaunchConfig {
    LaunchConfig::new(rows.div_ceil(THREADS / 32) as u32, THREADS as u32)
}

/// A thread for each.
fn each(count: usize) -> LaunchConfig {
    LaunchConfig::new(count.div_ceil(THREADS) as u32, THREADS as u32)
}

fn compiled(gpu: &Gpu, shape: &LoraShape) -> Result<HashMap<&'static str, Kernel>> {
    compile(gpu, &FILES, |path, name| match (path, name) {
        ("gpt_step/loss", "THREADS") => loss_threads(shape),
        ("lora_step/swiglu", "WIDTH") => shape.inner,
        (_, "THREADS") => THREADS,
        (_, "WIDTH") => shape.width(),
        (_, "HEADS") => shape.heads,
        (_, "KV_HEADS") => shape.kv_heads,
        (_, "VOCABULARY") => shape.vocabulary,
        (_, "COLUMNS") => shape.rows(),
        (_, other) => unreachable!("{path} has a constant {other}"),
    })
}

impl LoraTraining {
    /// Compiles the kernels, and takes all memory that steps will need. In the simulator products are plain ones and steps are queued one by
    /// one.
    ///
    /// # Errors
    /// [`Error::Invalid`] and [`Error::Unsupported`] for a shape that the kernels do not take; [`Error::LengthMismatch`] for weights of another
    /// one; [`Error::Unsupported`] on a GPU before Ampere, or without cuBLASLt; [`Error::OutOfMemory`].
    pub fn new(gpu: &Gpu, shape: LoraShape, weights: &LoraWeights, settings: LoraSettings) -> Result<LoraTraining> {
        shape.check(&settings)?;
        // What does not fit is refused before kernels are compiled and checked.
        let groups = shape.groups();
        let (model, offsets) = Model::new(gpu, &shape, &groups, weights)?;
        if weights.rope.len() < settings.length * HEAD {
            return Err(Error::invalid(
                format!("texts of {} tokens, and RoPE for {} positions", settings.length, weights.rope.len() / HEAD),
                "take shorter texts, or a model with a longer context",
            ));
        }
        let simulated = matches!(gpu, Gpu::Simulated(_));
        let settings = LoraSettings { plain_products: settings.plain_products || simulated, ..settings };
        let hopper = gpu.compute_capability()? == (9, 0);
        let rung = if hopper { "flash_backward/06_warp_specialised" } else { "flash_backward/04_async_copies" };
        let (kernels, flash) = std::thread::scope(|scope| {
            let flash = scope.spawn(|| FlashBackward::with(gpu, rung, true, HEAD, &[]));
            (compiled(gpu, &shape), flash.join().expect("no panic"))
        });
        let (kernels, flash) = (kernels?, flash?);
        let attention = attention_shape(&shape, &settings);
        let (t, c) = (settings.batch * settings.length, shape.width());
        let bf16 = |len: usize| gpu.poison::<u16>(len);
        let f32 = |len: usize| gpu.poison::<f32>(len);
        let (q, kv) = (attention.q_numbers(), attention.kv_numbers());
        let layer = |_| -> Result<Layer> {
            let cat = |group: &Group| bf16(t * (group.inputs + group.lows));
            Ok(Layer {
                x: bf16(t * c)?,
                rstd_1: f32(t)?,
                middle: bf16(t * c)?,
                rstd_2: f32(t)?,
                cat: [cat(&groups[0])?, cat(&groups[1])?, cat(&groups[2])?, cat(&groups[3])?],
                q: bf16(q)?,
                k: bf16(kv)?,
                v: bf16(kv)?,
                o: bf16(q)?,
                lse: f32(attention.rows())?,
                both: bf16(t * 2 * shape.inner)?,
            })
        };
        let layers = (0..shape.layers).map(layer).collect::<Result<_>>()?;
        let [rows, sums] = flash.room(attention)?;
        let widest = |of: &dyn Fn(&Group) -> usize| groups.iter().map(of).max().unwrap_or(0);
        let scratch = Scratch {
            x: bf16(t * c)?,
            normed: bf16(t * c)?,
            rstd: f32(t)?,
            y: bf16(t * c)?,
            qkv: bf16(t * groups[QKV].all_outputs())?,
            d_x: bf16(t * c)?,
            d_cat: bf16(t * widest(&|group| group.inputs + group.lows))?,
            d_both: bf16(t * 2 * shape.inner)?,
            d_o: bf16(q)?,
            dq: bf16(q)?,
            dk: bf16(kv)?,
            dv: bf16(kv)?,
            rows: f32(rows)?,
            sums: if sums > 0 { Some(f32(sums)?) } else { None },
            logits: bf16(t.min(LOSS_ROWS) * shape.rows())?,
            losses: f32(t)?,
            squares: f32(WALKERS)?,
            tallied: f32(2)?,
            unpacked: match model.packed {
                Some(_) => Some(bf16(widest(&|group| group.all_outputs() * (group.inputs + group.lows)))?),
                None => None,
            },
        };
        Ok(LoraTraining {
            gpu: gpu.clone(),
            shape,
            settings,
            groups,
            kernels,
            flash,
            products: Products::new(gpu, settings.plain_products)?,
            model,
            offsets,
            layers,
            scratch,
            tokens: gpu.zeros(t)?,
            targets: gpu.zeros(t)?,
            given: gpu.zeros(8)?,
            is_set: false,
            tuned: false,
            graph: None,
            step: 0,
        })
    }

    /// The shape of the model.
    pub fn shape(&self) -> &LoraShape {
        &self.shape
    }

    /// What it was made with.
    pub fn settings(&self) -> &LoraSettings {
        &self.settings
    }

    /// Steps that were made.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Kernels of the graph, once it is there.
    pub fn nodes(&self) -> Option<usize> {
        self.graph.as_ref().map(Graph::nodes)
    }

    /// A and B of each layer's seven matrices, as they have become.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn adapters(&self) -> Result<Vec<LayerAdapters>> {
        let all = self.model.master.to_host()?;
        Ok(self.unpacked_adapters(&all))
    }

    /// The gradients of the last step, before clipping, likewise.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn gradients(&self) -> Result<Vec<LayerAdapters>> {
        let mut layers = self.unpacked_adapters(&self.model.gradient.to_host()?);
        // Of A it is that of scale · A.
        layers.iter_mut().flatten().flat_map(|(a, _)| a).for_each(|x| *x *= self.shape.scale);
        Ok(layers)
    }

    fn unpacked_adapters(&self, all: &[f32]) -> Vec<LayerAdapters> {
        let rank = self.shape.rank;
        let of_layer = |offsets: &[GroupOffsets; 4]| {
            std::array::from_fn(|matrix| {
                let (at, group, part, first) = group_of(&self.groups, matrix);
                let Group { inputs, lows, .. } = *group;
                let begin = offsets[at].adapters;
                let a = all[begin + part * rank * inputs..][..rank * inputs].to_vec();
                let rows = first..first + group.outputs[part];
                let b_begin = begin + lows * inputs;
                let b = rows.flat_map(|row| &all[b_begin + row * lows + part * rank..][..rank]).copied().collect();
                (a, b)
            })
        };
        self.offsets.iter().map(of_layer).collect()
    }

    /// What the next step reads: `batch` texts of length + 1 tokens; each token's target is the one behind it.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::Invalid`] for a token that the vocabulary does not have; [`Error::Driver`].
    pub fn set_batch(&mut self, tokens: &[u32]) -> Result<()> {
        let LoraSettings { batch, length, .. } = self.settings;
        same_length("the batch's tokens", batch * (length + 1), tokens.len())?;
        if let Some(token) = tokens.iter().find(|token| **token as usize >= self.shape.vocabulary) {
            return Err(Error::invalid(
                format!("the batch has the token {token}, and the vocabulary ends at {}", self.shape.vocabulary - 1),
                "use the tokenizer that belongs to the model",
            ));
        }
        let part = |from: usize| -> Vec<i32> {
            let texts = tokens.chunks_exact(length + 1).flat_map(|text| &text[from..from + length]);
            texts.map(|&token| token as i32).collect()
        };
        self.tokens.copy_from(&part(0))?;
        self.targets.copy_from(&part(1))?;
        self.is_set = true;
        Ok(())
    }

    /// Queues a step on the batch that was set last, and returns at once.
    ///
    /// # Errors
    /// [`Error::Invalid`] before a batch was set; [`Error::Driver`]; in the simulator what a kernel did wrong.
    pub fn queue(&mut self, adamw: &AdamWConfig) -> Result<()> {
        if !self.is_set {
            return Err(Error::invalid("there is no batch yet", "call `set_batch` first"));
        }
        if !self.tuned && !self.settings.plain_products {
            // Products are timed on the batch; the gradients that come of it are overwritten.
            self.queue_gradients()?;
            self.tuned = true;
        }
        let step = (self.step + 1) as f64;
        let correction = |beta: f32| (1.0 / (1.0 - f64::from(beta).powf(step))) as f32;
        let AdamWConfig { rate, betas, epsilon, decay, clip } = *adamw;
        let given = [rate, betas.0, betas.1, epsilon, decay, clip, correction(betas.0), correction(betas.1)];
        self.given.copy_from(&given)?;
        if self.settings.graph && matches!(self.gpu, Gpu::Cuda(_)) {
            if self.graph.is_none() {
                let gpu = self.gpu.clone();
                self.graph = Some(gpu.capture(|| self.queue_all())?);
            }
            self.graph.as_mut().map_or(Ok(()), Graph::launch)?;
        } else {
            self.queue_all()?;
        }
        self.step += 1;
        Ok(())
    }

    /// A step, and what came of it; waits for it.
    ///
    /// # Errors
    /// As [`LoraTraining::queue`], and [`Error::Invalid`] when the loss or a gradient was no finite number: the adapters are then those of
    /// before.
    pub fn step(&mut self, adamw: &AdamWConfig) -> Result<StepResult> {
        self.queue(adamw)?;
        let result = self.result()?.finite(self.step, "adapters");
        if result.is_err() {
            self.step -= 1;
        }
        result
    }

    /// What came of the last step; waits for it.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn result(&self) -> Result<StepResult> {
        let tallied = self.scratch.tallied.to_host()?;
        Ok(StepResult { loss: tallied[0], norm: tallied[1] })
    }

    fn queue_all(&mut self) -> Result<()> {
        self.queue_gradients()?;
        self.queue_update()
    }

    fn queue_gradients(&mut self) -> Result<()> {
        self.queue_forward()?;
        self.queue_loss()?;
        self.queue_norm_backward(None)?;
        (0..self.shape.layers).rev().try_for_each(|layer| self.queue_layer_backward(layer))
    }

    fn rows(&self) -> usize {
        self.settings.batch * self.settings.length
    }

    fn queue_forward(&mut self) -> Result<()> {
        let (t, shape, length) = (self.rows(), self.shape, self.settings.length as i32);
        let rows = t as i32;
        let attention = attention_shape(&shape, &self.settings);
        for at in 0..shape.layers {
            self.queue_norm(at, false)?;
            self.queue_product(at, QKV)?;
            let Self { kernels, model, scratch, layers, flash, offsets, groups, .. } = &mut *self;
            let Layer { cat, q, k, v, o, lse, .. } = &mut layers[at];
            let eights = t * groups[QKV].all_outputs() / 8;
            let args = (&scratch.qkv, &model.rope, &mut *q, &mut *k, &mut *v, length, rows);
            kernels["lora_to_heads"].launch(each(eights), args)?;
            flash.forward_into([q, k, v], o, lse, attention)?;
            let (a, lows) = (offsets[at][OUT].a as i32, groups[OUT].lows as i32);
            kernels["lora_gather"]
                .launch(row_blocks(t), (&*o, &model.weights, &mut cat[OUT], a, lows, length, rows))?;
            self.queue_product(at, OUT)?;
            self.queue_norm(at, true)?;
            self.queue_product(at, UP)?;
            let Self { kernels, model, layers, offsets, groups, .. } = &mut *self;
            let Layer { cat, both, .. } = &mut layers[at];
            let (a, lows) = (offsets[at][DOWN].a as i32, groups[DOWN].lows as i32);
            kernels["lora_swiglu"].launch(row_blocks(t), (&*both, &model.weights, &mut cat[DOWN], a, lows, rows))?;
            self.queue_product(at, DOWN)?;
        }
        self.queue_norm(shape.layers, false)
    }

    /// A layer's first norm, or its second one; of layer `layers` the last one. In front of it what the product before has left is added to
    /// the residual.
    fn queue_norm(&mut self, at: usize, second: bool) -> Result<()> {
        let (rows, epsilon, width) = (self.rows(), self.shape.epsilon, self.shape.width());
        let Self { kernels, model, scratch, layers, offsets, groups, tokens, .. } = &mut *self;
        let Scratch { x: last_x, normed: last_normed, rstd: last_rstd, y, .. } = scratch;
        let norm = ((2 * at + usize::from(second)) * width) as i32;
        let (before, rest) = layers.split_at_mut(at);
        let group = if second { UP } else { QKV };
        let lows = groups[group].lows as i32;
        let config = row_blocks(rows);
        let rows = rows as i32;
        let (residual, sum, to, rstd, a, lows) = match rest.first_mut() {
            Some(Layer { x, middle, cat, rstd_2, .. }) if second => {
                (&*x, middle, &mut cat[UP], rstd_2, offsets[at][UP].a, lows)
            }
            Some(Layer { x, cat, rstd_1, .. }) => {
                let a = offsets[at][QKV].a;
                let Some(own) = before.last() else {
                    let args = (
                        &model.table,
                        &*tokens,
                        &model.norms,
                        &model.weights,
                        x,
                        &mut cat[QKV],
                        rstd_1,
                        norm,
                        a as i32,
                        lows,
                        epsilon,
                        rows,
                    );
                    return kernels["lora_embed"].launch(config, args);
                };
                (&own.middle, x, &mut cat[QKV], rstd_1, a, lows)
            }
            None => (&before[at - 1].middle, last_x, last_normed, last_rstd, 0, 0),
        };
        let args = (residual, &*y, &model.norms, &model.weights, sum, to, rstd, norm, a as i32, lows, epsilon, rows);
        kernels["lora_norm"].launch(config, args)
    }

    /// `[W | B]` of a group as a product reads it: a buffer, and where it begins. In four bits it is unpacked first.
    fn queue_unpack(&mut self, at: usize, which: usize) -> Result<()> {
        let Self { kernels, model, scratch, offsets, groups, .. } = &mut *self;
        let (Some(packed), Some(to)) = (&model.packed, &mut scratch.unpacked) else { return Ok(()) };
        let (group, start) = (&groups[which], offsets[at][which]);
        let (mut row, columns) = (0, group.inputs + group.lows);
        for (part, matrix) in GROUPS[which].clone().enumerate() {
            let outputs = group.outputs[part];
            let ([codes, scales, of_group], mean) = packed.offsets[at][matrix];
            let args = (
                &packed.codes,
                &packed.scales,
                &packed.of_group,
                &packed.levels,
                &model.weights,
                &mut *to,
                codes as i32,
                scales as i32,
                of_group as i32,
                mean,
                (start.matrix + row * group.lows) as i32,
                (row * columns) as i32,
                group.inputs as i32,
                group.lows as i32,
                outputs as i32,
            );
            kernels["lora_unpack"].launch(each(outputs * columns / 8), args)?;
            row += outputs;
        }
        Ok(())
    }

    /// A group's product forward: its rows with their lows, times `[W | B]`ᵀ.
    fn queue_product(&mut self, at: usize, which: usize) -> Result<()> {
        self.queue_unpack(at, which)?;
        let rows = self.rows();
        let Self { products, model, scratch, layers, offsets, groups, .. } = &mut *self;
        let Scratch { y, qkv, unpacked, .. } = scratch;
        let Layer { cat, both, .. } = &mut layers[at];
        let group = &groups[which];
        let sides = Sides {
            rows,
            columns: group.all_outputs(),
            terms: group.inputs + group.lows,
            a_transposed: false,
            b_transposed: true,
        };
        let weights = unpacked.as_ref().map_or((&model.weights, offsets[at][which].matrix), |unpacked| (unpacked, 0));
        let to = match which {
            QKV => qkv,
            UP => both,
            _ => y,
        };
        products.multiply(sides, (&cat[which], 0), weights, Into::Bf16(to, 0), LtEpilogue::None, LtExtra::default())
    }

    /// A group's products backward: the gradient of its rows with their lows, then those of A and B.
    fn queue_product_backward(&mut self, at: usize, which: usize) -> Result<()> {
        self.queue_unpack(at, which)?;
        let rows = self.rows();
        let Self { products, model, scratch, layers, offsets, groups, .. } = &mut *self;
        // The gradient of `down`'s result is the residual's, and so is that of `out`'s.
        let Scratch { d_x, qkv, d_both, d_cat, unpacked, .. } = scratch;
        let d_y: &Buffer<u16> = match which {
            QKV => qkv,
            UP => d_both,
            _ => d_x,
        };
        let Group { inputs, lows, .. } = groups[which];
        let (outputs, columns) = (groups[which].all_outputs(), inputs + lows);
        let start = offsets[at][which];
        let weights = unpacked.as_ref().map_or((&model.weights, start.matrix), |unpacked| (unpacked, 0));
        let back = Sides { rows, columns, terms: outputs, a_transposed: false, b_transposed: false };
        let into = Into::Bf16(d_cat, 0);
        products.multiply(back, (d_y, 0), weights, into, LtEpilogue::None, LtExtra::default())?;
        let cat = &layers[at].cat[which];
        // A `[lows, inputs]`: the lows' gradients, behind the rows', times the rows.
        let own = |rows: usize, columns: usize, terms: usize| Sides {
            rows,
            columns,
            terms,
            a_transposed: true,
            b_transposed: false,
        };
        let into = Into::F32 { to: &mut model.gradient, at: start.adapters, adds: false };
        products.multiply_within(own(lows, inputs, rows), [columns, columns, 0], (&*d_cat, inputs), (cat, 0), into)?;
        // B `[outputs, lows]`: the result's gradients times the lows.
        let into = Into::F32 { to: &mut model.gradient, at: start.adapters + lows * inputs, adds: false };
        products.multiply_within(own(outputs, lows, rows), [0, columns, 0], (d_y, 0), (cat, inputs), into)
    }

    /// Logits, loss and their gradients, and the gradient of the last norm's result.
    fn queue_loss(&mut self) -> Result<()> {
        let (t, c, shape) = (self.rows(), self.shape.width(), self.shape);
        let columns = shape.rows();
        for from in (0..t).step_by(LOSS_ROWS) {
            let rows = LOSS_ROWS.min(t - from);
            let Self { kernels, products, model, scratch, targets, .. } = &mut *self;
            let Scratch { normed, logits, losses, d_cat, .. } = scratch;
            let forward = Sides { rows, columns, terms: c, a_transposed: false, b_transposed: true };
            let (none, table) = (LtEpilogue::None, (&model.table, 0));
            let into = Into::Bf16(logits, 0);
            products.multiply(forward, (normed, from * c), table, into, none, LtExtra::default())?;
            let args = (&mut *logits, &*targets, losses, from as i32, 1.0 / t as f32);
            let config = LaunchConfig::new(rows as u32, loss_threads(&shape) as u32);
            kernels["cross_entropy"].launch(config, args)?;
            let back = Sides { rows, columns: c, terms: columns, a_transposed: false, b_transposed: false };
            let into = Into::Bf16(d_cat, from * c);
            products.multiply(back, (&*logits, 0), table, into, none, LtExtra::default())?;
        }
        Ok(())
    }

    /// Backwards through the last norm (`None`), or one of a layer.
    fn queue_norm_backward(&mut self, which: Option<(usize, usize)>) -> Result<()> {
        let (t, width, last) = (self.rows(), self.shape.width(), self.shape.layers);
        let Self { kernels, model, scratch, layers, offsets, groups, .. } = &mut *self;
        let Scratch { x: last_x, rstd: last_rstd, d_x, d_cat, .. } = scratch;
        let (x, rstd, norm, a, lows) = match which {
            None => (&*last_x, &*last_rstd, 2 * last, 0, 0),
            Some((at, QKV)) => (&layers[at].x, &layers[at].rstd_1, 2 * at, offsets[at][QKV].a, groups[QKV].lows),
            Some((at, _)) => (&layers[at].middle, &layers[at].rstd_2, 2 * at + 1, offsets[at][UP].a, groups[UP].lows),
        };
        let (norm, adds) = ((norm * width) as i32, i32::from(which.is_some()));
        let args = (&*d_cat, x, rstd, &model.norms, &model.weights, d_x, norm, a as i32, lows as i32, adds, t as i32);
        kernels["lora_norm_backward"].launch(row_blocks(t), args)
    }

    fn queue_layer_backward(&mut self, at: usize) -> Result<()> {
        let (t, shape, length) = (self.rows(), self.shape, self.settings.length as i32);
        let rows = t as i32;
        let attention = attention_shape(&shape, &self.settings);
        self.queue_product_backward(at, DOWN)?;
        {
            let Self { kernels, model, scratch, layers, offsets, groups, .. } = &mut *self;
            let Scratch { d_cat, d_both, .. } = scratch;
            let (a, lows) = (offsets[at][DOWN].a as i32, groups[DOWN].lows as i32);
            let args = (&*d_cat, &model.weights, &layers[at].both, d_both, a, lows, rows);
            kernels["lora_swiglu_backward"].launch(row_blocks(t), args)?;
        }
        self.queue_product_backward(at, UP)?;
        self.queue_norm_backward(Some((at, UP)))?;
        self.queue_product_backward(at, OUT)?;
        {
            let Self { kernels, model, scratch, layers, offsets, groups, flash, .. } = &mut *self;
            let Scratch { d_cat, d_o, dq, dk, dv, rows: row_room, sums, qkv, .. } = scratch;
            let Layer { q, k, v, o, lse, .. } = &layers[at];
            let (a, lows) = (offsets[at][OUT].a as i32, groups[OUT].lows as i32);
            let args = (&*d_cat, &model.weights, &mut *d_o, a, lows, length, rows);
            kernels["lora_scatter"].launch(row_blocks(t), args)?;
            let inputs = BackwardInputs { q, k, v, o, d_o, lse };
            let outputs =
                BackwardOutputs { dq: &mut *dq, dk: &mut *dk, dv: &mut *dv, rows: row_room, sums: sums.as_mut() };
            flash.gradients_into(inputs, outputs, attention)?;
            let eights = t * groups[QKV].all_outputs() / 8;
            let args = (&*dq, &*dk, &*dv, &model.rope, qkv, length, rows);
            kernels["lora_from_heads"].launch(each(eights), args)?;
        }
        self.queue_product_backward(at, QKV)?;
        // What comes out of the first layer's norm is the embeddings' gradient, which nobody asks for.
        if at > 0 { self.queue_norm_backward(Some((at, QKV))) } else { Ok(()) }
    }

    fn queue_update(&mut self) -> Result<()> {
        let (rows, scale) = (self.rows() as i32, self.shape.scale);
        let Self { kernels, model, scratch, given, .. } = &mut *self;
        let Model { master, m, v, gradient, offsets, weights, .. } = model;
        let Scratch { squares, losses, tallied, .. } = scratch;
        let count = master.len();
        let walkers = LaunchConfig::new(WALKERS as u32, THREADS as u32);
        let args = (&*gradient, &*offsets, &mut *squares, scale, count as i32);
        kernels["lora_squares"].launch(walkers, args)?;
        let one = LaunchConfig::new(1, THREADS as u32);
        kernels["tally"].launch(one, (&*squares, &*losses, &mut *tallied, WALKERS as i32, rows))?;
        let args = (master, m, v, &*gradient, &*offsets, weights, &*tallied, &*given, scale, count as i32);
        kernels["lora_adamw"].launch(each(count), args)
    }
}

/// Rows of logits that are there at a time.
const LOSS_ROWS: usize = 8192;

fn attention_shape(shape: &LoraShape, settings: &LoraSettings) -> AttentionShape {
    AttentionShape {
        batch: settings.batch,
        q_heads: shape.heads,
        kv_heads: shape.kv_heads,
        length: settings.length,
        width: HEAD,
    }
}

/// Of a matrix: its group's number, the group, which part of it, and its first row there.
fn group_of(groups: &[Group; 4], matrix: usize) -> (usize, &Group, usize, usize) {
    let at = GROUPS.iter().position(|range| range.contains(&matrix)).expect("seven matrices");
    let part = matrix - GROUPS[at].start;
    (at, &groups[at], part, groups[at].outputs[..part].iter().sum())
}

impl Model {
    fn new(
        gpu: &Gpu,
        shape: &LoraShape,
        groups: &[Group; 4],
        given: &LoraWeights,
    ) -> Result<(Model, Vec<[GroupOffsets; 4]>)> {
        let (c, rank) = (shape.width(), shape.rank);
        same_length("the table", shape.vocabulary * c, given.table.len())?;
        same_length("norms", (2 * shape.layers + 1) * c, given.norms.len())?;
        same_length("layers", shape.layers, given.layers.len())?;
        let in_four_bits = matches!(given.layers[0][0].frozen, Frozen::Nf4 { .. });
        same_length("levels", 16 + 256, given.levels.len())?;
        for (layer, matrices) in given.layers.iter().enumerate() {
            for (matrix, ([outputs, inputs], of)) in shape.matrices().into_iter().zip(matrices).enumerate() {
                let name = |what: &str| format!("{what} of layer {layer}'s matrix {matrix}");
                match &of.frozen {
                    Frozen::Bf16(values) if !in_four_bits => {
                        same_length(name("weights"), outputs * inputs, values.len())?
                    }
                    Frozen::Nf4 { codes, scales, of_group, .. } if in_four_bits => {
                        let blocks = outputs * inputs / BLOCK;
                        same_length(name("codes"), outputs * inputs / 2, codes.len())?;
                        same_length(name("scales"), blocks, scales.len())?;
                        same_length(name("groups of scales"), blocks.div_ceil(256), of_group.len())?;
                    }
                    _ => {
                        return Err(Error::invalid(
                            format!("{} are not of the first one's kind", name("weights")),
                            "give all in bf16, or all in NF4",
                        ));
                    }
                }
                same_length(name("A"), rank * inputs, of.a.len())?;
                same_length(name("B"), outputs * rank, of.b.len())?;
            }
        }
        let (mut weights, mut master, mut where_): (Vec<u16>, Vec<f32>, Vec<i32>) = Default::default();
        let (mut codes, mut scales, mut of_group): (Vec<u8>, Vec<u8>, Vec<f32>) = Default::default();
        let (mut offsets, mut packed_offsets) = (Vec::new(), Vec::new());
        for matrices in &given.layers {
            for matrix in matrices {
                if let Frozen::Nf4 { codes: more, scales: more_scales, of_group: more_groups, mean } = &matrix.frozen {
                    packed_offsets.push(([codes.len(), scales.len(), of_group.len()], *mean));
                    codes.extend_from_slice(more);
                    scales.extend_from_slice(more_scales);
                    of_group.extend_from_slice(more_groups);
                }
            }
            offsets.push(std::array::from_fn(|which| {
                let group = &groups[which];
                let Group { inputs, lows, .. } = *group;
                let matrices = &matrices[GROUPS[which].clone()];
                let matrix = weights.len();
                // A first, then B: the order of the adapters. Among the weights A comes last.
                let adapters = master.len();
                master.resize(adapters + group.adapters(), 0.0);
                where_.resize(adapters + group.adapters(), -1);
                let b_begin = adapters + lows * inputs;
                let mut row = 0;
                for (part, of) in matrices.iter().enumerate() {
                    for output in 0..group.outputs[part] {
                        if let Frozen::Bf16(values) = &of.frozen {
                            weights.extend_from_slice(&values[output * inputs..][..inputs]);
                        }
                        let begin = weights.len();
                        weights.resize(begin + lows, 0);
                        for r in 0..rank {
                            let (column, x) = (part * rank + r, of.b[output * rank + r]);
                            weights[begin + column] = bf16_from_f32(x);
                            master[b_begin + row * lows + column] = x;
                            where_[b_begin + row * lows + column] = (begin + column) as i32;
                        }
                        row += 1;
                    }
                }
                let a = weights.len();
                weights.resize(a + lows * inputs, 0);
                for (part, of) in matrices.iter().enumerate() {
                    for (at, &x) in of.a.iter().enumerate() {
                        let at = part * rank * inputs + at;
                        weights[a + at] = bf16_from_f32(x * shape.scale);
                        master[adapters + at] = x;
                        where_[adapters + at] = (a + at) as i32 | OF_A;
                    }
                }
                GroupOffsets { matrix, a, adapters }
            }));
        }
        let mut table = given.table.clone();
        table.resize(shape.rows() * c, 0);
        let packed = match in_four_bits {
            false => None,
            true => Some(Packed {
                codes: gpu.to_device(&codes)?,
                scales: gpu.to_device(&scales)?,
                of_group: gpu.to_device(&of_group)?,
                levels: gpu.to_device(&given.levels)?,
                offsets: packed_offsets
                    .chunks_exact(7)
                    .map(|seven| <[_; 7]>::try_from(seven).expect("seven"))
                    .collect(),
            }),
        };
        let count = master.len();
        let model = Model {
            table: gpu.to_device(&table)?,
            norms: gpu.to_device(&given.norms)?,
            rope: gpu.to_device(&given.rope)?,
            weights: gpu.to_device(&weights)?,
            packed,
            master: gpu.to_device(&master)?,
            m: gpu.zeros(count)?,
            v: gpu.zeros(count)?,
            gradient: gpu.zeros(count)?,
            offsets: gpu.to_device(&where_)?,
        };
        Ok((model, offsets))
    }
}
