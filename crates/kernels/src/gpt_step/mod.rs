//! A training step of GPT-2 on the course's own kernels (`kernels/gpt_step/`), flash attention forward and backward, and
//! cuBLASLt's products: weights and activations in bf16, parameters, gradients and AdamW's state in f32, the whole step one
//! CUDA graph.
//!
//! # What a step must do
//! 6 operations for each parameter and token, and attention's; beside products it moves bytes. With u = tokens × width × 2
//! bytes, the size of one array of activations, a layer stores 16 u for its backward pass:
//! its input, both norms' results, q, k and v (3), attention's result, the residual in the middle, and the MLP's units before and after GELU (8).
//!
//! | operator of a layer | bytes moved | of a step of 8 × 1024 at 3.8 TB/s |
//! | --- | --- | --- |
//! | residual and norm, forward | 4 u, twice | 0.32 ms |
//! | GELU, forward and backward | 8 u, 12 u | 0.79 ms |
//! | norm, backward | 4 u, twice | 0.32 ms |
//! | bias of q, k and v: column sums | 3 u | 0.12 ms |
//! | attention's two ends | 2 u, and f32 sums of 2 u written and read | 0.24 ms |
//!
//! Beyond the layers: the loss reads and writes the logits, 1.65 GB at 8 × 1024 (0.43 ms, when the second read comes from
//! the L2); AdamW moves 30 bytes for each parameter and the norm of the gradients 4 (1.11 ms). The products are 6.1 ·
//! 10¹² operations, 9.4 ms at 650 TFLOP/s; attention is 0.54 · 10¹², about 2 ms. Together that is 14.7 ms, which we
//! predicted for 8 × 1024 before the first measurement; `results/h200/gpt_step.csv` has what it was.
//!
//! # Example
//! ```no_run
//! use gpulab::prelude::*;
//! use gpulab_kernels::gpt_step::*;
//! let gpu = Gpu::open()?;
//! let shape = GptShape::GPT2_124M;
//! let mut trainer = GptTraining::new(&gpu, shape, GptSettings { batch: 8, ..GptSettings::default() })?;
//! trainer.load(&shape.start(1))?;
//! trainer.set_batch(&shape.random_tokens(8, 2))?;
//! println!("loss {}", trainer.step(&AdamWConfig::default())?.loss);
//! # Ok::<(), Error>(())
//! ```

mod operators;
mod reference;
mod shape;
#[cfg(test)]
mod tests;

pub use operators::{GptOperators, GptOptimizer};
pub use reference::{GptReference, reference_step, rounded_step};
pub use shape::{GptShape, Tensor};

use crate::ladder::{Rung, compile, operator, rung};
pub use crate::products::ChosenAlgorithms;
use crate::products::{At, Into, Products, Sides};
use gpulab::error::{Error, Result, same_length};
use gpulab::gpu::{Buffer, CublasLt, Event, Gpu, Graph, Kernel, LtEpilogue, LtExtra, TensorMap};
use gpulab::launch::LaunchConfig;
use shape::HEAD;
use std::collections::HashMap;
use std::ops::Range;

/// Heads are filled up to a multiple of so many queries in what passes between attention's backward kernels.
const PADDED: usize = 128;
/// Keys that a block of attention's backward pass owns: the rung's KEYS.
const DQ_KEYS: usize = 128;
/// Rows of a tile of q.
const Q_BOX: u32 = 64;
/// Threads of a block of the kernels that go element by element.
const THREADS: usize = 256;

/// How a step is cut into kernels, and how these are queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GptPlan {
    /// A kernel for each operator, and AdamW once for each tensor.
    Operators,
    /// What stands beside each other in one kernel, queued one by one.
    Fused,
    /// The same as one CUDA graph.
    Graph,
}

impl GptPlan {
    /// All of them, the first one first.
    pub const ALL: [GptPlan; 3] = [GptPlan::Operators, GptPlan::Fused, GptPlan::Graph];

    /// `operators`, `fused`, `graph`.
    pub fn name(self) -> &'static str {
        match self {
            GptPlan::Operators => "operators",
            GptPlan::Fused => "fused",
            GptPlan::Graph => "graph",
        }
    }
}

/// What a trainer is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GptSettings {
    /// Texts that go through the model at once.
    pub batch: usize,
    /// Batches whose gradients are added up for one step (gradient accumulation): memory as of one of them.
    pub accumulate: usize,
    /// How the step is queued.
    pub plan: GptPlan,
    /// Rows of logits that are there at a time; 0: half of them, and at most 8192.
    pub loss_rows: usize,
    /// GELU in the product's kernel, where cuBLASLt has that.
    pub gelu_in_product: bool,
    /// Blocks that leave sums of columns.
    pub parts: usize,
    /// The plain product in place of cuBLASLt's, on a GPU too.
    pub plain_products: bool,
    /// The same bits in each run: blocks of attention's backward pass leave their parts of dq beside each other, and these are added up in
    /// one order, where they add to one sum by atomics else, in any order. It takes a sum of dq for each 128 keys of the context. What is
    /// left to chance then is the choice of the products' algorithms ([`GptTraining::chosen`]).
    pub deterministic: bool,
    /// GPUs that train together, each on `batch` texts of its own ([`GptTraining::queue_with`]).
    pub ranks: usize,
}

/// What GPUs that train together do in a step ([`GptTraining::queue_with`]): data parallel training.
///
/// Each call queues work and returns. Sums are those of all ranks, in the same bits on each of them.
pub trait GptRanks {
    /// This range of the gradients is complete on this rank when what is queued by now has run: add it up over all ranks, beside
    /// what is queued next, which reads and writes other ranges alone.
    ///
    /// # Errors
    /// Those of the collective.
    fn add_up(&mut self, gradient: &mut Buffer<f32>, range: Range<usize>) -> Result<()>;

    /// The rows of all ranks, one behind the other, behind what is queued by now.
    ///
    /// # Errors
    /// Those of the collective.
    fn gather(&mut self, own: &Buffer<u16>, all: &mut Buffer<u16>) -> Result<()>;

    /// What is queued next waits for all of these.
    ///
    /// # Errors
    /// [`Error::Driver`].
    fn join(&mut self) -> Result<()>;
}

impl Default for GptSettings {
    fn default() -> GptSettings {
        GptSettings {
            batch: 8,
            accumulate: 1,
            plan: GptPlan::Graph,
            loss_rows: 0,
            gelu_in_product: true,
            parts: 132,
            plain_products: false,
            deterministic: false,
            ranks: 1,
        }
    }
}

/// AdamW's numbers of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWConfig {
    /// The learning rate.
    pub rate: f32,
    /// β₁ and β₂.
    pub betas: (f32, f32),
    /// ε.
    pub epsilon: f32,
    /// Weight decay, of matrices and embeddings alone.
    pub decay: f32,
    /// Gradients whose norm is larger are scaled down to it; 0: never.
    pub clip: f32,
}

impl Default for AdamWConfig {
    fn default() -> AdamWConfig {
        AdamWConfig { rate: 6e-4, betas: (0.9, 0.95), epsilon: 1e-8, decay: 0.1, clip: 1.0 }
    }
}

impl AdamWConfig {
    /// What the kernel reads in the step of that number, from 1.
    fn numbers(&self, step: u64) -> [f32; 8] {
        let correction = |beta: f32| (1.0 / (1.0 - f64::from(beta).powf(step as f64))) as f32;
        let AdamWConfig { rate, betas, epsilon, decay, clip } = *self;
        [rate, betas.0, betas.1, epsilon, decay, clip, correction(betas.0), correction(betas.1)]
    }
}

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepResult {
    /// The mean loss of the batch, before the update.
    pub loss: f32,
    /// The norm of all gradients, before clipping.
    pub norm: f32,
}

impl StepResult {
    /// Itself, where loss and norm are finite; otherwise the step has not changed what it was to change.
    pub(crate) fn finite(self, step: u64, what: &str) -> Result<StepResult> {
        if (self.loss + self.norm).is_finite() {
            return Ok(self);
        }
        let StepResult { loss, norm } = self;
        Err(Error::invalid(
            format!("step {step}: loss {loss}, gradient norm {norm}"),
            format!("the {what} are those of the step before: go on from them with a smaller learning rate"),
        ))
    }
}

/// Everything that a run needs to go on, as a file may hold it.
#[derive(Debug, Clone, PartialEq)]
pub struct GptState {
    /// Parameters in f32.
    pub parameters: Vec<f32>,
    /// AdamW's first moments.
    pub m: Vec<f32>,
    /// AdamW's second moments.
    pub v: Vec<f32>,
    /// Steps that were made.
    pub step: u64,
}

/// Milliseconds of each operator of a step, by events.
pub type OperatorTimes = Vec<(&'static str, f64)>;

/// A model that is trained on one GPU.
#[derive(Debug)]
pub struct GptTraining {
    gpu: Gpu,
    shape: GptShape,
    settings: GptSettings,
    kernels: GptKernels,
    gelu_in_product: bool,
    products: Products,
    parameters: Parameters,
    activations: Activations,
    batch: Batch,
    graph: Option<Graph>,
    step: u64,
    clock: Option<Vec<(&'static str, Event)>>,
    /// Whether products have been timed.
    tuned: bool,
}

/// The compiled kernels, for models of one shape.
#[derive(Debug, Clone)]
pub struct GptKernels {
    shape: GptShape,
    named: HashMap<&'static str, Kernel>,
    forward: Rung,
    backward: Rung,
    /// KEYS of the forward pass; QUERIES and KEYS of the backward pass.
    tiles: [u32; 3],
    /// Whether dq is added up in one order.
    ordered: bool,
}

/// A constant of a file in place of the usual one, to try it: `("gpt_step/attention", "GROUPS", 2)`.
pub type GptConstant = (&'static str, &'static str, u32);

/// Flat arrays, in the order of [`GptShape::tensors`].
#[derive(Debug)]
struct Parameters {
    master: Buffer<f32>,
    m: Buffer<f32>,
    v: Buffer<f32>,
    gradient: Buffer<f32>,
    weights: Buffer<u16>,
}

impl Parameters {
    fn zeros(gpu: &Gpu, n: usize) -> Result<Parameters> {
        Ok(Parameters {
            master: gpu.zeros(n)?,
            m: gpu.zeros(n)?,
            v: gpu.zeros(n)?,
            // Rows that fill the table up get a gradient of 0 by the last product.
            gradient: gpu.zeros(n)?,
            weights: gpu.zeros(n)?,
        })
    }

    fn set(&mut self, parameters: &[f32], [m, v]: [&[f32]; 2]) -> Result<()> {
        let Parameters { master, m: own_m, v: own_v, weights, .. } = self;
        for (what, given) in [("parameters", parameters), ("first moments", m), ("second moments", v)] {
            same_length(what, master.len(), given.len())?;
        }
        master.copy_from(parameters)?;
        own_m.copy_from(m)?;
        own_v.copy_from(v)?;
        let bits: Vec<u16> = parameters.iter().map(|&x| gpulab::cpu::bf16_from_f32(x)).collect();
        weights.copy_from(&bits)
    }

    fn state(&self, step: u64) -> Result<GptState> {
        let Parameters { master, m, v, .. } = self;
        Ok(GptState { parameters: master.to_host()?, m: m.to_host()?, v: v.to_host()?, step })
    }
}

/// What a layer's forward pass leaves for its backward pass.
#[derive(Debug)]
struct Layer {
    x: Buffer<u16>,
    normed_1: Buffer<u16>,
    stats_1: Buffer<f32>,
    qkv: Buffer<u16>,
    o: Buffer<u16>,
    lse: Buffer<f32>,
    middle: Buffer<u16>,
    normed_2: Buffer<u16>,
    stats_2: Buffer<f32>,
    h: Buffer<u16>,
    g: Buffer<u16>,
}

#[derive(Debug)]
struct Activations {
    layers: Vec<Layer>,
    x: Buffer<u16>,
    normed: Buffer<u16>,
    stats: Buffer<f32>,
    logits: Buffer<u16>,
    losses: Buffer<f32>,
    /// What a product leaves for the next residual; in the backward pass what goes into a norm or an attention.
    y: Buffer<u16>,
    /// The gradient of the residual.
    d_x: Buffer<u16>,
    /// Of operators alone: the gradient that comes out of a norm.
    d_norm: Option<Buffer<u16>>,
    d_qkv: Buffer<u16>,
    d_h: Buffer<u16>,
    attention_rows: Buffer<f32>,
    dq_sums: Buffer<f32>,
    /// The gradients of the embeddings' results on all ranks.
    d_x_of_all: Option<Buffer<u16>>,
    /// Sums that blocks leave: of a layer, of the next one, and of the last norm.
    parts: Buffer<f32>,
    squares: Buffer<f32>,
    tallied: Buffer<f32>,
}

/// What a step reads.
#[derive(Debug)]
struct Batch {
    pieces: Vec<Piece>,
    /// What follows each token, of all pieces.
    targets: Buffer<i32>,
    settings: Buffer<f32>,
    is_set: bool,
}

/// Of the texts that go through the model at once: the tokens, and the rows sorted by token.
#[derive(Debug)]
struct Piece {
    tokens: Buffer<i32>,
    /// The tokens of all ranks, one rank's behind the other's, as `order` counts them.
    tokens_of_all: Buffer<i32>,
    order: Buffer<i32>,
    starts: Buffer<i32>,
}

impl Piece {
    fn new(gpu: &Gpu, own: usize, ranks: usize) -> Result<Piece> {
        Ok(Piece {
            tokens: gpu.zeros(own)?,
            tokens_of_all: gpu.zeros(ranks * own)?,
            order: gpu.zeros(ranks * own)?,
            starts: gpu.zeros(ranks * own + 1)?,
        })
    }

    /// Takes in the tokens of all ranks, of which those of `rank` are its own.
    fn set(&mut self, inputs: &[i32], rank: usize, vocabulary: usize) -> Result<()> {
        // A stable sort by counting: rows of a token stay in their order, so sums are the same each time.
        let rows = inputs.len();
        let mut next = vec![0_i32; vocabulary + 1];
        inputs.iter().for_each(|&token| next[token as usize + 1] += 1);
        (0..vocabulary).for_each(|token| next[token + 1] += next[token]);
        let mut starts: Vec<i32> = (0..vocabulary).filter(|&at| next[at] < next[at + 1]).map(|at| next[at]).collect();
        starts.resize(rows + 1, rows as i32);
        let mut order = vec![0_i32; rows];
        for (row, &token) in inputs.iter().enumerate() {
            order[next[token as usize] as usize] = row as i32;
            next[token as usize] += 1;
        }
        let own = self.tokens.len();
        self.tokens.copy_from(&inputs[rank * own..][..own])?;
        self.tokens_of_all.copy_from(inputs)?;
        self.order.copy_from(&order)?;
        self.starts.copy_from(&starts)
    }
}

impl GptKernels {
    /// Compiles them, all files at the same time.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a GPU that is no Hopper; those of [`Gpu::compile`].
    pub fn compile(gpu: &Gpu, shape: &GptShape) -> Result<GptKernels> {
        GptKernels::compile_with(gpu, shape, &[])
    }

    /// The same with other constants of attention's files.
    ///
    /// # Errors
    /// As [`GptKernels::compile`].
    pub fn compile_with(gpu: &Gpu, shape: &GptShape, constants: &[GptConstant]) -> Result<GptKernels> {
        GptKernels::compile_all(gpu, shape, constants, false)
    }

    /// Those for [`GptSettings::deterministic`].
    ///
    /// # Errors
    /// As [`GptKernels::compile`].
    pub fn compile_deterministic(gpu: &Gpu, shape: &GptShape) -> Result<GptKernels> {
        GptKernels::compile_all(gpu, shape, &[], true)
    }

    fn compile_all(gpu: &Gpu, shape: &GptShape, constants: &[GptConstant], ordered: bool) -> Result<GptKernels> {
        shape.check(1)?;
        let forward = rung("flash_attention/09_ping_pong")?.for_heads_of(HEAD)?;
        let backward = rung("flash_backward/06_warp_specialised")?.for_heads_of(HEAD)?;
        let of = |path: &str, rung: &Rung, name: &str| {
            let changed = constants.iter().find(|(of, known, _)| (*of, *known) == (path, name));
            let usual = rung.defines.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value);
            changed.map_or(usual, |(_, _, value)| *value)
        };
        let [ahead, back] = ["gpt_step/attention", "gpt_step/attention_backward"];
        let named = compile(gpu, FILES, |path, name| match (path, constant(shape, path, name)) {
            (_, Some(value)) => value,
            (_, None) if name == "ORDERED" => usize::from(ordered),
            ("gpt_step/attention", _) => of(ahead, &forward, name) as usize,
            ("gpt_step/attention_backward", _) => of(back, &backward, name) as usize,
            _ => unreachable!("{path} has a constant {name}"),
        })?;
        let value = |name: &str| of(back, &backward, name);
        let tiles = [of(ahead, &forward, "KEYS"), value("QUERIES"), value("KEYS")];
        let backward = backward.reshaped(&[("QUERIES", value("QUERIES")), ("STAGES", value("STAGES"))]);
        let forward = forward.with_groups(of(ahead, &forward, "GROUPS"));
        Ok(GptKernels { shape: *shape, named, forward, backward, tiles, ordered })
    }

    /// Whether these kernels take a model of this shape with so many texts at once, and this GPU runs them: nothing is compiled for
    /// that.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the shape, [`Error::Unsupported`] for the GPU, or where cuBLASLt is not there.
    pub fn take(gpu: &Gpu, shape: &GptShape, batch: usize) -> Result<()> {
        shape.check(batch)?;
        let capability = gpu.compute_capability()?;
        FILES.iter().try_for_each(|path| operator(path)?.runs_on(capability))?;
        // Nobody else multiplies at that speed.
        if matches!(gpu, Gpu::Cuda(_)) { CublasLt::new(gpu).map(drop) } else { Ok(()) }
    }

    fn get(&self, name: &str) -> &Kernel {
        &self.named[name]
    }
}

/// The files of a step, but for the plain product.
const FILES: &[&str] = &[
    "gpt_step/attention",
    "gpt_step/attention_backward",
    "gpt_step/columns",
    "gpt_step/embed_backward",
    "gpt_step/loss",
    "gpt_step/norm",
    "gpt_step/update",
];

/// The value of a constant of a file, where it follows from the model's shape.
fn constant(shape: &GptShape, path: &str, name: &str) -> Option<usize> {
    Some(match (path, name) {
        (_, "HEADS") => shape.heads,
        (_, "WIDTH") => shape.width(),
        (_, "VOCABULARY") => shape.vocabulary,
        (_, "COLUMNS") => shape.rows(),
        ("gpt_step/norm", "THREADS") => norm_threads(shape),
        ("gpt_step/loss", "THREADS") => loss_threads(shape),
        (_, "THREADS") => THREADS,
        _ => return None,
    })
}

/// Blocks of 256 threads for so many.
fn each(threads: usize) -> LaunchConfig {
    LaunchConfig::new(threads.div_ceil(THREADS) as u32, THREADS as u32)
}

/// Blocks of 256 threads for 32 columns each.
fn strips(columns: usize) -> LaunchConfig {
    LaunchConfig::new(columns.div_ceil(32) as u32, THREADS as u32)
}

/// Threads of a block of the norms: their sums of long rows shall fit into shared memory.
fn norm_threads(shape: &GptShape) -> usize {
    match shape.width() {
        ..=768 => 384,
        769..=1024 => 256,
        _ => 128,
    }
}

/// Threads for a row of logits.
fn loss_threads(shape: &GptShape) -> usize {
    if shape.rows() > 8192 { 512 } else { 128 }
}

fn table(columns: usize, rows: usize) -> LaunchConfig {
    LaunchConfig { grid: (columns as u32, rows as u32, 1), block: (THREADS as u32, 1, 1), shared_bytes: 0 }
}

/// Bytes that a trainer holds, by what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GptMemory {
    /// Parameters, moments, gradients in f32, and the bf16 weights.
    pub parameters: usize,
    /// What the forward pass leaves.
    pub saved: usize,
    /// Logits.
    pub logits: usize,
    /// Everything else.
    pub others: usize,
}

impl GptMemory {
    /// All of it.
    pub fn bytes(&self) -> usize {
        self.parameters + self.saved + self.logits + self.others
    }
}

impl GptSettings {
    fn loss_rows(&self, shape: &GptShape) -> usize {
        let rows = self.batch * shape.context;
        let wanted = if self.loss_rows == 0 { rows.div_ceil(2).min(8192) } else { self.loss_rows };
        wanted.min(rows)
    }

    /// How many sums of dq there are.
    fn dq_areas(&self, shape: &GptShape) -> usize {
        if self.deterministic { shape.context.div_ceil(DQ_KEYS) } else { 1 }
    }

    /// The bytes that a trainer of this shape will hold, cuBLASLt's 64 MiB included.
    pub fn memory(&self, shape: &GptShape) -> GptMemory {
        let (c, t) = (shape.width(), self.batch * shape.context);
        let n = shape.parameter_count();
        let rows = self.batch * shape.heads;
        let padded = rows * shape.context.next_multiple_of(PADDED);
        let layer = t * c * 16 * 2 + 2 * 2 * t * 4 + rows * shape.context * 4;
        let pieces = self.accumulate;
        let mut others = t * c * 2 * (1 + 1 + 3 + 4) + pieces * (t * 4 * 6 + 4);
        others += padded * (self.dq_areas(shape) * HEAD + 2) * 4;
        others += 3 * self.parts * 13 * c * 4 + WALKERS * 4 + 40;
        others += if self.plan == GptPlan::Operators { t * c * 2 } else { 0 };
        others += if self.plain_products { 0 } else { 64 << 20 };
        others += if self.ranks > 1 { self.ranks * t * c * 2 + (self.ranks - 1) * t * 4 * 3 } else { 0 };
        GptMemory {
            parameters: n * (4 * 4 + 2),
            saved: shape.layers * layer + 2 * t * c * 2 + 2 * t * 4,
            logits: self.loss_rows(shape) * shape.rows() * 2,
            others,
        }
    }
}

/// Blocks of the pass that sums squares, and of AdamW.
const WALKERS: usize = 1056;

impl GptTraining {
    /// Compiles the kernels, and takes all memory that steps will need. In the simulator products are plain ones and steps are
    /// queued one by one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a shape that the kernels do not take; [`Error::Unsupported`] on a GPU that is no Hopper, or without
    /// cuBLASLt; [`Error::OutOfMemory`]; those of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, shape: GptShape, settings: GptSettings) -> Result<GptTraining> {
        GptTraining::with(gpu, &GptKernels::compile_all(gpu, &shape, &[], settings.deterministic)?, settings)
    }

    /// The same with kernels that are there already.
    ///
    /// # Errors
    /// As [`GptTraining::new`].
    pub fn with(gpu: &Gpu, kernels: &GptKernels, settings: GptSettings) -> Result<GptTraining> {
        let shape = kernels.shape;
        shape.check(settings.batch)?;
        if settings.ranks == 0 {
            return Err(Error::invalid("a world without a rank", "`ranks` is 1 on one GPU"));
        }
        if settings.accumulate == 0 {
            return Err(Error::invalid("a step without a batch", "`accumulate` is 1 where nothing is accumulated"));
        }
        if settings.accumulate > 1 && settings.ranks > 1 {
            return Err(Error::invalid(
                "gradients of several ranks that are also accumulated",
                "each rank may take more texts at once: `accumulate: 1` and a larger `batch`",
            ));
        }
        if settings.deterministic != kernels.ordered {
            let (asked, are) = if settings.deterministic { ("", "not ") } else { ("not ", "") };
            return Err(Error::invalid(
                format!("a trainer that is {asked}deterministic, of kernels that are {are}so"),
                "compile them by `GptKernels::compile_deterministic`, or call `GptTraining::new`, which does",
            ));
        }
        if settings.parts == 0 {
            return Err(Error::invalid("no blocks to leave sums", "give at least one, such as one a multiprocessor"));
        }
        let simulated = matches!(gpu, Gpu::Simulated(_));
        let settings = GptSettings { plain_products: settings.plain_products || simulated, ..settings };
        let products = Products::new(gpu, settings.plain_products)?;
        let (t, c) = (settings.batch * shape.context, shape.width());
        let rows = settings.batch * shape.heads;
        let padded = rows * shape.context.next_multiple_of(PADDED);
        let bf16 = |len: usize| gpu.poison::<u16>(len);
        let f32 = |len: usize| gpu.poison::<f32>(len);
        let layer = |_| -> Result<Layer> {
            Ok(Layer {
                x: bf16(t * c)?,
                normed_1: bf16(t * c)?,
                stats_1: f32(2 * t)?,
                qkv: bf16(3 * t * c)?,
                o: bf16(t * c)?,
                lse: f32(rows * shape.context)?,
                middle: bf16(t * c)?,
                normed_2: bf16(t * c)?,
                stats_2: f32(2 * t)?,
                h: bf16(4 * t * c)?,
                g: bf16(4 * t * c)?,
            })
        };
        let activations = Activations {
            layers: (0..shape.layers).map(layer).collect::<Result<_>>()?,
            x: bf16(t * c)?,
            normed: bf16(t * c)?,
            stats: f32(2 * t)?,
            logits: bf16(settings.loss_rows(&shape) * shape.rows())?,
            losses: f32(settings.accumulate * t)?,
            y: bf16(t * c)?,
            d_x: bf16(t * c)?,
            d_norm: None,
            d_qkv: bf16(3 * t * c)?,
            d_h: bf16(4 * t * c)?,
            attention_rows: f32(2 * padded)?,
            // Of the ordered ones each block writes what it has: where it has nothing, there is 0.
            dq_sums: gpu.zeros(settings.dq_areas(&shape) * padded * HEAD)?,
            d_x_of_all: if settings.ranks > 1 { Some(bf16(settings.ranks * t * c)?) } else { None },
            parts: f32(3 * settings.parts * 13 * c)?,
            squares: f32(WALKERS)?,
            tallied: f32(2)?,
        };
        let batch = Batch {
            pieces: (0..settings.accumulate).map(|_| Piece::new(gpu, t, settings.ranks)).collect::<Result<_>>()?,
            targets: gpu.zeros(settings.accumulate * t)?,
            settings: gpu.zeros(8)?,
            is_set: false,
        };
        let parameters = Parameters::zeros(gpu, shape.parameter_count())?;
        let mut trainer = GptTraining {
            gpu: gpu.clone(),
            shape,
            settings,
            kernels: kernels.clone(),
            gelu_in_product: false,
            products,
            parameters,
            activations,
            batch,
            graph: None,
            step: 0,
            clock: None,
            tuned: false,
        };
        trainer.set_plan(settings.plan, settings.gelu_in_product)?;
        Ok(trainer)
    }

    /// The same run with its steps queued in another way.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Driver`].
    pub fn set_plan(&mut self, plan: GptPlan, gelu_in_product: bool) -> Result<()> {
        let (t, c) = (self.tokens(), self.shape.width());
        self.graph = None;
        self.settings = GptSettings { plan, gelu_in_product, ..self.settings };
        self.activations.d_norm = if self.fused() { None } else { Some(self.gpu.poison(t * c)?) };
        let up = Sides { rows: t, columns: 4 * c, terms: c, a_transposed: false, b_transposed: true };
        let back = Sides { b_transposed: false, ..up };
        self.gelu_in_product = gelu_in_product
            && self.fused()
            && self.products.takes(up, LtEpilogue::BiasGelu)
            && self.products.takes(back, LtEpilogue::GeluBackward);
        self.tuned = false;
        Ok(())
    }

    /// The shape of the model.
    pub fn shape(&self) -> &GptShape {
        &self.shape
    }

    /// What it was made with.
    pub fn settings(&self) -> &GptSettings {
        &self.settings
    }

    /// Whether GELU is a part of the product.
    pub fn gelu_in_product(&self) -> bool {
        self.gelu_in_product
    }

    /// The algorithm of each product, in words.
    pub fn choices(&self) -> Vec<String> {
        self.products.choices()
    }

    /// The algorithms of all products that have been made, to be kept: a run that goes on with them, and is
    /// [`GptSettings::deterministic`], has the bits that it would have had. Nothing where products are plain.
    pub fn chosen(&self) -> Option<ChosenAlgorithms> {
        self.products.chosen()
    }

    /// Takes algorithms that were kept, in place of timing them.
    ///
    /// # Errors
    /// [`Error::Invalid`] where they are of another GPU or another version of cuBLASLt: they are timed then.
    pub fn choose(&mut self, chosen: &ChosenAlgorithms) -> Result<()> {
        self.graph = None;
        self.products.keep(chosen)
    }

    /// Begins with these parameters, in the order of [`GptShape::tensors`]; no step has been made.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::Driver`].
    pub fn load(&mut self, parameters: &[f32]) -> Result<()> {
        let zeros = vec![0.0; self.shape.parameter_count()];
        let moments = [zeros.as_slice(), zeros.as_slice()];
        self.set(parameters, moments, 0)
    }

    /// Goes on where a run stood.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] for the state of another shape, [`Error::Driver`].
    pub fn restore(&mut self, state: &GptState) -> Result<()> {
        self.set(&state.parameters, [&state.m, &state.v], state.step)
    }

    fn set(&mut self, parameters: &[f32], moments: [&[f32]; 2], step: u64) -> Result<()> {
        self.parameters.set(parameters, moments)?;
        self.step = step;
        Ok(())
    }

    /// Everything that a run needs to go on.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn state(&self) -> Result<GptState> {
        self.parameters.state(self.step)
    }

    /// The parameters in f32, in the order of [`GptShape::tensors`]; waits for the steps that were queued.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn parameters(&self) -> Result<Vec<f32>> {
        self.parameters.master.to_host()
    }

    /// The gradients of the last step, before clipping, in the order of [`GptShape::tensors`].
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn gradients(&self) -> Result<Vec<f32>> {
        self.parameters.gradient.to_host()
    }

    /// What the next step reads: texts of context + 1 tokens, each token's target the one behind it; `batch` texts, and as many more
    /// for each further batch that is accumulated.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::Invalid`] for a token that the vocabulary does not have; [`Error::Driver`].
    pub fn set_batch(&mut self, tokens: &[u32]) -> Result<()> {
        self.set_batch_of(tokens, 0)
    }

    /// The next batch of all ranks, one rank's texts behind the other's, and which rank this is. All of them are asked for, since
    /// the gradient of a token's embedding takes in the rows of each rank that has the token.
    ///
    /// # Errors
    /// As [`GptTraining::set_batch`], and [`Error::Invalid`] for a rank that there is not.
    pub fn set_batch_of(&mut self, tokens: &[u32], rank: usize) -> Result<()> {
        let (own, ranks) = (self.tokens(), self.settings.ranks);
        if rank >= ranks {
            return Err(Error::invalid(format!("rank {rank} of {ranks}"), "ranks are counted from 0"));
        }
        let [inputs, targets] = self.inputs_and_targets(tokens, self.settings.accumulate)?;
        let vocabulary = self.shape.vocabulary;
        for (piece, inputs) in self.batch.pieces.iter_mut().zip(inputs.chunks_exact(ranks * own)) {
            piece.set(inputs, rank, vocabulary)?;
        }
        // With several ranks there is one piece, of which this rank has a part.
        self.batch.targets.copy_from(&targets[rank * own..][..self.settings.accumulate * own])?;
        self.batch.is_set = true;
        Ok(())
    }

    /// Of so many batches of texts.
    fn inputs_and_targets(&self, tokens: &[u32], batches: usize) -> Result<[Vec<i32>; 2]> {
        let context = self.shape.context;
        let expected = batches * self.settings.ranks * self.settings.batch * (context + 1);
        same_length("the batch's tokens", expected, tokens.len())?;
        self.shape.knows(tokens)?;
        let part = |from: usize| {
            let texts = tokens.chunks_exact(context + 1).flat_map(move |text| &text[from..from + context]);
            texts.map(|&token| token as i32).collect()
        };
        Ok([part(0), part(1)])
    }

    /// The loss of each token of `batch` texts of context + 1 tokens, in nats, without a gradient or an update. A batch that was set
    /// before is forgotten: this takes its place. Waits for the result.
    ///
    /// # Errors
    /// As [`GptTraining::set_batch`]; [`Error::Invalid`] with several ranks.
    ///
    /// # Examples
    /// ```no_run
    /// # use gpulab::prelude::*;
    /// # use gpulab_kernels::gpt_step::*;
    /// # fn of(trainer: &mut GptTraining, texts: &[u32]) -> Result<f32> {
    /// let losses = trainer.losses_of(texts)?; // 8 texts of 1025 tokens: 8 · 1024 losses
    /// # Ok(losses.iter().sum::<f32>() / losses.len() as f32)
    /// # }
    /// ```
    pub fn losses_of(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        if self.settings.ranks > 1 {
            return Err(Error::invalid("losses on one of several ranks", "make the trainer with `ranks: 1`"));
        }
        let [inputs, mut targets] = self.inputs_and_targets(tokens, 1)?;
        let vocabulary = self.shape.vocabulary;
        self.batch.is_set = false;
        targets.resize(self.batch.targets.len(), 0);
        self.batch.targets.copy_from(&targets)?;
        self.batch.pieces[0].set(&inputs, 0, vocabulary)?;
        self.queue_forward(0)?;
        self.queue_loss(0, false)?;
        let mut losses = self.activations.losses.to_host()?;
        losses.truncate(inputs.len());
        Ok(losses)
    }

    /// Queues a step on the batch that was set last, and returns at once.
    ///
    /// # Errors
    /// [`Error::Invalid`] before a batch was set; [`Error::Driver`]; in the simulator what a kernel did wrong.
    pub fn queue(&mut self, adamw: &AdamWConfig) -> Result<()> {
        if self.settings.ranks > 1 {
            return Err(Error::invalid(
                format!("a step of one of {} ranks by itself", self.settings.ranks),
                "call `queue_with` on all ranks, or make the trainer with `ranks: 1`",
            ));
        }
        self.queue_for(adamw, None)
    }

    /// The same on one of several GPUs that train together: gradients are those of the batches of all ranks, and each layer's are added
    /// up while the backward pass goes on. Kernels are queued one by one, without a graph.
    ///
    /// # Errors
    /// As [`GptTraining::queue`], and those of the ranks.
    pub fn queue_with(&mut self, adamw: &AdamWConfig, ranks: &mut dyn GptRanks) -> Result<()> {
        self.queue_for(adamw, Some(ranks))
    }

    fn queue_for(&mut self, adamw: &AdamWConfig, ranks: Option<&mut (dyn GptRanks + '_)>) -> Result<()> {
        if !self.batch.is_set {
            return Err(Error::invalid("there is no batch yet", "call `set_batch` first"));
        }
        if !self.tuned && !self.settings.plain_products {
            // Products are timed on the batch; the gradients that come of it are overwritten.
            self.queue_gradients(None)?;
            self.tuned = true;
        }
        self.batch.settings.copy_from(&adamw.numbers(self.step + 1))?;
        let graph = self.settings.plan == GptPlan::Graph
            && matches!(self.gpu, Gpu::Cuda(_))
            && self.clock.is_none()
            && ranks.is_none();
        if graph {
            if self.graph.is_none() {
                let gpu = self.gpu.clone();
                self.graph = Some(gpu.capture(|| self.queue_all(None))?);
            }
            self.graph.as_mut().map_or(Ok(()), Graph::launch)?;
        } else {
            self.queue_all(ranks)?;
        }
        self.step += 1;
        Ok(())
    }

    /// A step, and what came of it; waits for it.
    ///
    /// # Errors
    /// As [`GptTraining::queue`], and [`Error::Invalid`] when the loss or a gradient was no finite number: the parameters are then
    /// those of before.
    pub fn step(&mut self, adamw: &AdamWConfig) -> Result<StepResult> {
        self.queue(adamw)?;
        let result = self.result()?.finite(self.step, "parameters");
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
        let tallied = self.activations.tallied.to_host()?;
        Ok(StepResult { loss: tallied[0], norm: tallied[1] })
    }

    /// Kernels of the graph, once it is there.
    pub fn nodes(&self) -> Option<usize> {
        self.graph.as_ref().map(Graph::nodes)
    }

    /// A step whose operators are timed one by one.
    ///
    /// # Errors
    /// As [`GptTraining::queue`].
    pub fn timed_step(&mut self, adamw: &AdamWConfig) -> Result<OperatorTimes> {
        self.clock = Some(Vec::new());
        let done = self.queue(adamw);
        let end = self.gpu.event();
        let clock = self.clock.take().unwrap_or_default();
        done?;
        let end = end?;
        let mut times: OperatorTimes = Vec::new();
        for (at, (name, begin)) in clock.iter().enumerate() {
            let next = clock.get(at + 1).map_or(&end, |(_, next)| next);
            let ms = next.ms_since(begin)?;
            match times.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += ms,
                None => times.push((name, ms)),
            }
        }
        Ok(times)
    }

    fn queue_all(&mut self, ranks: Option<&mut (dyn GptRanks + '_)>) -> Result<()> {
        self.queue_gradients(ranks)?;
        self.queue_update()
    }

    /// Notes when the operator of that name begins, if somebody wants to know.
    fn begins(&mut self, name: &'static str) -> Result<()> {
        if let Some(clock) = &mut self.clock {
            clock.push((name, self.gpu.event()?));
        }
        Ok(())
    }

    fn tokens(&self) -> usize {
        self.settings.batch * self.shape.context
    }

    fn fused(&self) -> bool {
        self.settings.plan != GptPlan::Operators
    }

    /// Blocks of the norms, a warp a row.
    fn norms(&self) -> LaunchConfig {
        let threads = norm_threads(&self.shape);
        LaunchConfig::new(self.tokens().div_ceil(threads / 32) as u32, threads as u32)
    }

    fn queue_gradients(&mut self, ranks: Option<&mut (dyn GptRanks + '_)>) -> Result<()> {
        // Several batches are there on one rank alone.
        let last = self.settings.accumulate - 1;
        (0..last).try_for_each(|piece| self.queue_piece(piece, None))?;
        self.queue_piece(last, ranks)
    }

    /// The gradients of one batch: the first one's take the place of what was there, those of others are added.
    fn queue_piece(&mut self, piece: usize, mut ranks: Option<&mut (dyn GptRanks + '_)>) -> Result<()> {
        let (c, shape) = (self.shape.width(), self.shape);
        let adds = piece > 0;
        self.queue_forward(piece)?;
        self.queue_loss(piece, true)?;
        // The table's gradient by the logits; what its rows get as embeddings comes last, and is gathered and not added up.
        let mut ready = |trainer: &mut Self, range: Range<usize>| match &mut ranks {
            Some(ranks) => ranks.add_up(&mut trainer.parameters.gradient, range),
            None => Ok(()),
        };
        ready(self, 0..shape.positions())?;
        self.queue_norm_backward(shape.layers, true, adds)?;
        ready(self, shape.layer(shape.layers))?;
        for layer in (0..shape.layers).rev() {
            self.queue_layer_backward(layer, adds)?;
            ready(self, shape.layer(layer))?;
        }
        self.begins("embedding, backward")?;
        let Activations { d_x, d_x_of_all, .. } = &mut self.activations;
        let d_x = match (ranks, d_x_of_all) {
            (Some(ranks), Some(all)) => {
                ranks.gather(d_x, all)?;
                ranks.join()?;
                &*all
            }
            _ => &*d_x,
        };
        let (kernels, gradient) = (&self.kernels, &mut self.parameters.gradient);
        let Piece { tokens_of_all, order, starts, .. } = &self.batch.pieces[piece];
        let texts = d_x.len() / c / shape.context;
        let rows = texts * shape.context;
        let args = (d_x, tokens_of_all, order, starts, &mut *gradient, rows as i32);
        kernels.get("embed_backward").launch(LaunchConfig::new(rows as u32, THREADS as u32), args)?;
        let positions = shape.positions() as i32;
        let args = (d_x, gradient, positions, shape.context as i32, texts as i32, i32::from(adds));
        kernels.get("position_backward").launch(each(shape.context * c / 8), args)
    }

    fn queue_forward(&mut self, piece: usize) -> Result<()> {
        let (t, c, shape, fused) = (self.tokens(), self.shape.width(), self.shape, self.fused());
        let offsets = shape.offsets();
        let norms = self.norms();
        self.begins("embedding")?;
        {
            let Activations { layers, .. } = &mut self.activations;
            let Layer { x, normed_1, stats_1, .. } = &mut layers[0];
            let (weights, master) = (&self.parameters.weights, &self.parameters.master);
            let scale = (shape.layer(0).start + offsets.norm_1) as i32;
            let positions = (shape.positions() as i32, scale, shape.context as i32, t as i32);
            let args = (
                weights,
                master,
                &self.batch.pieces[piece].tokens,
                x,
                normed_1,
                stats_1,
                positions.0,
                positions.1,
                positions.2,
                positions.3,
            );
            self.kernels.get("embed_norm").launch(norms, args)?;
        }
        for at in 0..shape.layers {
            let begin = shape.layer(at).start;
            self.begins("q, k, v")?;
            let bias = begin + offsets.qkv_bias;
            let in_product = fused && !self.settings.plain_products;
            let sides = |columns: usize, terms: usize| Sides {
                rows: t,
                columns,
                terms,
                a_transposed: false,
                b_transposed: true,
            };
            {
                let Self { products, parameters, activations, kernels, .. } = &mut *self;
                let Layer { normed_1, qkv, .. } = &mut activations.layers[at];
                let weights = &parameters.weights;
                let (epilogue, extra) = match in_product {
                    true => (LtEpilogue::Bias, LtExtra { bias: Some((weights, bias)), ..LtExtra::default() }),
                    false => (LtEpilogue::None, LtExtra::default()),
                };
                let into = Into::Bf16(qkv, 0);
                products.multiply(
                    sides(3 * c, c),
                    (normed_1, 0),
                    (weights, begin + offsets.qkv),
                    into,
                    epilogue,
                    extra,
                )?;
                if !in_product {
                    let args = (qkv, &parameters.master, bias as i32, 3 * c as i32, t as i32);
                    kernels.get("add_bias").launch(each(t * 3 * c / 8), args)?;
                }
            }
            self.begins("attention")?;
            self.queue_attention(at)?;
            self.begins("projection")?;
            {
                let Self { products, parameters, activations, .. } = &mut *self;
                let Activations { layers, y, .. } = activations;
                let weight = (&parameters.weights, begin + offsets.project);
                multiply(products, sides(c, c), (&layers[at].o, 0), weight, y, 0)?;
            }
            self.queue_add_norm(at, false)?;
            self.begins("MLP up")?;
            let gelu = self.gelu_in_product && fused;
            {
                let Self { products, parameters, activations, .. } = &mut *self;
                let Layer { normed_2, h, g, .. } = &mut activations.layers[at];
                let weight = (&parameters.weights, begin + offsets.up);
                if gelu {
                    let bias = Some((&parameters.weights, begin + offsets.up_bias));
                    let extra = LtExtra { bias, before_gelu: Some(h), gelu_of: None };
                    let (a, into) = ((&*normed_2, 0), Into::Bf16(g, 0));
                    products.multiply(sides(4 * c, c), a, weight, into, LtEpilogue::BiasGelu, extra)?;
                } else {
                    multiply(products, sides(4 * c, c), (normed_2, 0), weight, h, 0)?;
                }
            }
            if !gelu {
                self.begins("GELU")?;
                let Self { parameters, activations, kernels, .. } = &mut *self;
                let Layer { h, g, .. } = &mut activations.layers[at];
                let mut bias = (begin + offsets.up_bias) as i32;
                if !fused {
                    let args = (&mut *h, &parameters.master, bias, 4 * c as i32, t as i32);
                    kernels.get("add_bias").launch(each(t * 4 * c / 8), args)?;
                    bias = -1;
                }
                let args = (&*h, &parameters.master, g, bias, 4 * c as i32, t as i32);
                kernels.get("gelu").launch(each(t * 4 * c / 8), args)?;
            }
            self.begins("MLP down")?;
            {
                let Self { products, parameters, activations, .. } = &mut *self;
                let Activations { layers, y, .. } = activations;
                let weight = (&parameters.weights, begin + offsets.down);
                multiply(products, sides(c, 4 * c), (&layers[at].g, 0), weight, y, 0)?;
            }
            self.queue_add_norm(at, true)?;
        }
        Ok(())
    }

    /// The residual, what a product has left in `y` and its bias, added; and the norm of the sum: in the middle of a layer, or at
    /// its end for the next one.
    fn queue_add_norm(&mut self, layer: usize, at_end: bool) -> Result<()> {
        self.begins("residual and norm")?;
        let (t, c, fused, norms) = (self.tokens(), self.shape.width(), self.fused(), self.norms());
        let offsets = self.shape.offsets();
        let begin = self.shape.layer(layer).start;
        let Activations { layers, x, normed, stats, y, .. } = &mut self.activations;
        let (first, later) = layers.split_at_mut(layer + 1);
        let own = &mut first[layer];
        let (bias, scale) = match at_end {
            false => (begin + offsets.project_bias, begin + offsets.norm_2),
            // The last norm lies where another layer's first one would.
            true => {
                let next = self.shape.layer(layer + 1).start;
                let last = layer + 1 == self.shape.layers;
                (begin + offsets.down_bias, if last { next } else { next + offsets.norm_1 })
            }
        };
        let (residual, sum, to, stats) = match (at_end, later.first_mut()) {
            (false, _) => (&own.x, &mut own.middle, &mut own.normed_2, &mut own.stats_2),
            (true, Some(next)) => (&own.middle, &mut next.x, &mut next.normed_1, &mut next.stats_1),
            (true, None) => (&own.middle, x, normed, stats),
        };
        let master = &self.parameters.master;
        let (bias, scale, rows) = (bias as i32, scale as i32, t as i32);
        let kernels = &self.kernels;
        if fused {
            return kernels.get("add_norm").launch(norms, (residual, &*y, master, sum, to, stats, bias, scale, rows));
        }
        kernels.get("add_bias").launch(each(t * c / 8), (&mut *y, master, bias, c as i32, rows))?;
        kernels.get("add").launch(each(t * c / 8), (residual, &*y, &mut *sum, (t * c / 8) as i32))?;
        kernels.get("norm_rows").launch(norms, (&*sum, master, to, stats, scale, rows))
    }

    fn queue_attention(&mut self, layer: usize) -> Result<()> {
        let GptShape { heads, context, .. } = self.shape;
        let (batch, c) = (self.settings.batch, self.shape.width());
        let GptKernels { forward, tiles, .. } = &self.kernels;
        let Layer { qkv, o, lse, .. } = &mut self.activations.layers[layer];
        let wide = (batch, context, 3 * c);
        let q = TensorMap::of_columns(qkv, wide, 0..c, Q_BOX)?;
        let k = TensorMap::of_columns(qkv, wide, c..2 * c, tiles[0])?;
        let v = TensorMap::of_columns(qkv, wide, 2 * c..3 * c, tiles[0])?;
        let mut o = TensorMap::of_written_stack(o, (batch, context, c), Q_BOX)?;
        let config = forward.launch(context * HEAD, batch * heads, self.gpu.multiprocessors());
        let args = (&q, &k, &v, &mut o, context as i32, 1, score_scale(), 1, lse);
        self.kernels.get("flash_attention").launch(config, args)
    }

    /// Logits, loss and their gradients, some rows at a time; `backward`: and through the last product.
    fn queue_loss(&mut self, piece: usize, backward: bool) -> Result<()> {
        let (t, c, shape) = (self.tokens(), self.shape.width(), self.shape);
        let GptSettings { ranks, accumulate, .. } = self.settings;
        let columns = shape.rows();
        let most = self.settings.loss_rows(&shape);
        for from in (0..t).step_by(most) {
            let rows = most.min(t - from);
            self.begins("logits")?;
            let Self { products, parameters, activations, .. } = &mut *self;
            let Activations { normed, logits, .. } = activations;
            let forward = Sides { rows, columns, terms: c, a_transposed: false, b_transposed: true };
            multiply(products, forward, (normed, from * c), (&parameters.weights, 0), logits, 0)?;
            self.begins("loss")?;
            let Self { kernels, batch, activations, .. } = &mut *self;
            let Activations { logits, losses, .. } = activations;
            let args =
                (logits, &batch.targets, losses, (piece * t + from) as i32, 1.0 / (ranks * accumulate * t) as f32);
            kernels.get("cross_entropy").launch(LaunchConfig::new(rows as u32, loss_threads(&shape) as u32), args)?;
            if !backward {
                continue;
            }
            self.begins("logits, backward")?;
            let Self { products, parameters, activations, .. } = &mut *self;
            let Activations { normed, logits, y, .. } = activations;
            let back = Sides { rows, columns: c, terms: columns, a_transposed: false, b_transposed: false };
            multiply(products, back, (logits, 0), (&parameters.weights, 0), y, from * c)?;
            let own = Sides { rows: columns, columns: c, terms: rows, a_transposed: true, b_transposed: false };
            let into = Into::F32 { to: &mut parameters.gradient, at: 0, adds: piece > 0 || from > 0 };
            let (a, b) = ((&*logits, 0), (&*normed, from * c));
            products.multiply(own, a, b, into, LtEpilogue::None, LtExtra::default())?;
        }
        Ok(())
    }

    /// Through the first norm of a layer (`first`; of the last norm as of layer `layers`) or its second one: y is the gradient of its
    /// result, that of the residual is added to.
    fn queue_norm_backward(&mut self, layer: usize, first: bool, accumulates: bool) -> Result<()> {
        self.begins("norm, backward")?;
        let (t, c, shape, fused) = (self.tokens(), self.shape.width(), self.shape, self.fused());
        let GptSettings { parts: blocks, .. } = self.settings;
        let offsets = shape.offsets();
        let stride = 13 * c;
        let area = |layer: usize| blocks * stride * (layer % 2);
        let vectors = offsets.norm_1;
        let last = layer == shape.layers;
        let begin = shape.layer(layer).start;
        let Activations { layers, x, stats, y, d_x, d_norm, parts, .. } = &mut self.activations;
        let (x, stats, scale, norm_at) = match (last, first) {
            (true, _) => (&*x, &*stats, begin, 2 * blocks * stride),
            (_, true) => (&layers[layer].x, &layers[layer].stats_1, begin + offsets.norm_1, area(layer)),
            (_, false) => {
                let own = &layers[layer];
                (&own.middle, &own.stats_2, begin + offsets.norm_2, area(layer) + offsets.norm_2 - vectors)
            }
        };
        // The residual's gradient is that of the bias of the projection in front: in this layer, or at the end of the one before.
        let sum_at = match (first, layer.checked_sub(1)) {
            (false, _) => Some(area(layer) + offsets.project_bias - vectors),
            (true, Some(before)) => Some(area(before) + offsets.down_bias - vectors),
            (true, None) => None,
        };
        let config = LaunchConfig::new(blocks as u32, norm_threads(&shape) as u32);
        let (kernels, master) = (&self.kernels, &self.parameters.master);
        let (stride, rows) = (stride as i32, t as i32);
        let asked = sum_at.map_or(-1, |at| at as i32);
        let adds = i32::from(!last);
        match d_norm.as_mut().filter(|_| !fused && !last) {
            None => {
                let args = (
                    &*y,
                    x,
                    stats,
                    master,
                    &mut *d_x,
                    &mut *parts,
                    scale as i32,
                    norm_at as i32,
                    asked,
                    stride,
                    adds,
                    rows,
                );
                kernels.get("norm_backward").launch(config, args)?;
            }
            Some(d_norm) => {
                let args = (
                    &*y,
                    x,
                    stats,
                    master,
                    &mut *d_norm,
                    &mut *parts,
                    scale as i32,
                    norm_at as i32,
                    -1,
                    stride,
                    0,
                    rows,
                );
                kernels.get("norm_backward").launch(config, args)?;
                kernels.get("add_to").launch(each(t * c / 8), (&mut *d_x, &*d_norm, (t * c / 8) as i32))?;
                if asked >= 0 {
                    let args = (&*d_x, &mut *parts, asked, stride, c as i32, rows);
                    kernels.get("column_sums").launch(table(c.div_ceil(256), blocks), args)?;
                }
            }
        }
        if last {
            let args = (
                &*parts,
                &mut self.parameters.gradient,
                norm_at as i32,
                begin as i32,
                stride,
                2 * c as i32,
                blocks as i32,
                i32::from(accumulates),
            );
            kernels.get("add_parts").launch(strips(2 * c), args)?;
        }
        Ok(())
    }

    fn queue_layer_backward(&mut self, layer: usize, adds: bool) -> Result<()> {
        let (t, c, shape, fused) = (self.tokens(), self.shape.width(), self.shape, self.fused());
        let offsets = shape.offsets();
        let begin = shape.layer(layer).start;
        let blocks = self.settings.parts;
        let stride = 13 * c;
        let area = blocks * stride * (layer % 2);
        let vectors = offsets.norm_1;
        let column = |at: usize| (area + at - vectors) as i32;
        // From the gradient of a result (rows × outputs) to that of the weight (outputs × inputs), and of the input.
        let own = |outputs: usize, inputs: usize| Sides {
            rows: outputs,
            columns: inputs,
            terms: t,
            a_transposed: true,
            b_transposed: false,
        };
        let back = |outputs: usize, inputs: usize| Sides {
            rows: t,
            columns: inputs,
            terms: outputs,
            a_transposed: false,
            b_transposed: false,
        };
        let none = LtEpilogue::None;
        self.begins("MLP down, backward")?;
        let gelu = self.gelu_in_product && fused;
        {
            let Self { products, parameters, activations, .. } = &mut *self;
            let Activations { layers, d_x, d_h, .. } = activations;
            let Layer { h, g, .. } = &layers[layer];
            let into = Into::F32 { to: &mut parameters.gradient, at: begin + offsets.down, adds };
            products.multiply(own(c, 4 * c), (d_x, 0), (g, 0), into, none, LtExtra::default())?;
            let (epilogue, extra) = match gelu {
                true => (LtEpilogue::GeluBackward, LtExtra { gelu_of: Some(h), ..LtExtra::default() }),
                false => (none, LtExtra::default()),
            };
            let weight = (&parameters.weights, begin + offsets.down);
            products.multiply(back(c, 4 * c), (d_x, 0), weight, Into::Bf16(d_h, 0), epilogue, extra)?;
        }
        self.begins("GELU, backward")?;
        {
            let Self { kernels, parameters, activations, .. } = &mut *self;
            let Activations { layers, d_h, parts, .. } = activations;
            let h = &layers[layer].h;
            let config = table((4 * c).div_ceil(256), blocks);
            let sum = column(offsets.up_bias);
            if !gelu {
                let bias = if fused { (begin + offsets.up_bias) as i32 } else { -1 };
                let args =
                    (&mut *d_h, h, &parameters.master, &mut *parts, bias, sum, stride as i32, 4 * c as i32, t as i32);
                kernels.get("gelu_backward").launch(config, args)?;
            }
            if gelu || !fused {
                let args = (&*d_h, parts, sum, stride as i32, 4 * c as i32, t as i32);
                kernels.get("column_sums").launch(config, args)?;
            }
        }
        self.begins("MLP up, backward")?;
        {
            let Self { products, parameters, activations, .. } = &mut *self;
            let Activations { layers, y, d_h, .. } = activations;
            let into = Into::F32 { to: &mut parameters.gradient, at: begin + offsets.up, adds };
            products.multiply(own(4 * c, c), (d_h, 0), (&layers[layer].normed_2, 0), into, none, LtExtra::default())?;
            multiply(products, back(4 * c, c), (d_h, 0), (&parameters.weights, begin + offsets.up), y, 0)?;
        }
        self.queue_norm_backward(layer, false, adds)?;
        self.begins("projection, backward")?;
        {
            let Self { products, parameters, activations, .. } = &mut *self;
            let Activations { layers, y, d_x, .. } = activations;
            let into = Into::F32 { to: &mut parameters.gradient, at: begin + offsets.project, adds };
            products.multiply(own(c, c), (d_x, 0), (&layers[layer].o, 0), into, none, LtExtra::default())?;
            multiply(products, back(c, c), (d_x, 0), (&parameters.weights, begin + offsets.project), y, 0)?;
        }
        self.queue_attention_backward(layer)?;
        self.begins("bias of q, k, v")?;
        {
            let Self { kernels, activations, .. } = &mut *self;
            let Activations { d_qkv, parts, .. } = activations;
            let args = (&*d_qkv, parts, column(offsets.qkv_bias), stride as i32, 3 * c as i32, t as i32);
            kernels.get("column_sums").launch(table((3 * c).div_ceil(256), blocks), args)?;
        }
        self.begins("q, k, v, backward")?;
        {
            let Self { products, parameters, activations, .. } = &mut *self;
            let Activations { layers, y, d_qkv, .. } = activations;
            let into = Into::F32 { to: &mut parameters.gradient, at: begin + offsets.qkv, adds };
            products.multiply(
                own(3 * c, c),
                (d_qkv, 0),
                (&layers[layer].normed_1, 0),
                into,
                none,
                LtExtra::default(),
            )?;
            multiply(products, back(3 * c, c), (d_qkv, 0), (&parameters.weights, begin + offsets.qkv), y, 0)?;
        }
        self.queue_norm_backward(layer, true, adds)?;
        self.begins("sums of parts")?;
        let Self { kernels, parameters, activations, .. } = &mut *self;
        let to = (begin + vectors) as i32;
        let args = (
            &activations.parts,
            &mut parameters.gradient,
            area as i32,
            to,
            stride as i32,
            stride as i32,
            blocks as i32,
            i32::from(adds),
        );
        kernels.get("add_parts").launch(strips(stride), args)
    }

    fn queue_attention_backward(&mut self, layer: usize) -> Result<()> {
        self.begins("attention, backward")?;
        let GptShape { heads, context, .. } = self.shape;
        let (batch, c) = (self.settings.batch, self.shape.width());
        let GptKernels { backward, tiles, .. } = &self.kernels;
        let Activations { layers, y, d_qkv, attention_rows, dq_sums, .. } = &mut self.activations;
        let Layer { qkv, o, lse, .. } = &layers[layer];
        let padded = context.next_multiple_of(PADDED);
        let ends = LaunchConfig {
            grid: ((padded * HEAD / 8 / THREADS) as u32, (batch * heads) as u32, 1),
            block: (THREADS as u32, 1, 1),
            shared_bytes: 0,
        };
        let (tokens, length) = (context as i32, padded as i32);
        let args = (o, &*y, lse, &mut *attention_rows, &mut *dq_sums, tokens, length);
        self.kernels.get("prepare_sums").launch(ends, args)?;
        {
            let wide = (batch, context, 3 * c);
            let [_, queries, keys] = *tiles;
            let q = TensorMap::of_columns(qkv, wide, 0..c, queries)?;
            let k = TensorMap::of_columns(qkv, wide, c..2 * c, keys)?;
            let v = TensorMap::of_columns(qkv, wide, 2 * c..3 * c, keys)?;
            let d_o = TensorMap::of_stack(y, (batch, context, c), queries)?;
            let [mut dk, mut dv] = TensorMap::of_written_columns(d_qkv, wide, [c..2 * c, 2 * c..3 * c], 64)?;
            let config = backward.launch(context * HEAD, batch * heads, self.gpu.multiprocessors());
            let (rows, sums) = (&*attention_rows, &mut *dq_sums);
            let args = (&q, &k, &v, &d_o, rows, sums, &mut dk, &mut dv, tokens, 1, score_scale(), 1);
            self.kernels.get("flash_backward").launch(config, args)?;
        }
        let factor = 1.0 / (HEAD as f32).sqrt();
        self.kernels.get("round_dq").launch(ends, (&*dq_sums, d_qkv, tokens, length, factor))
    }

    fn queue_update(&mut self) -> Result<()> {
        let (shape, rows) = (self.shape, self.settings.accumulate * self.tokens());
        self.begins("norm of the gradients")?;
        let Self { kernels, parameters, activations, .. } = &mut *self;
        let Activations { squares, tallied, losses, .. } = activations;
        tally(&kernels.named, &parameters.gradient, (losses, rows), squares, tallied)?;
        self.begins("AdamW")?;
        let all = 0..shape.parameter_count();
        let ranges = match self.fused() {
            true => vec![all],
            false => shape.tensors().into_iter().map(|tensor| tensor.range).collect(),
        };
        let Self { kernels, parameters, activations, batch, .. } = &mut *self;
        ranges.into_iter().try_for_each(|range| {
            update(&kernels.named, &shape, parameters, &activations.tallied, &batch.settings, range)
        })
    }
}

/// The norm of all gradients, and the mean of the losses of so many rows.
fn tally(
    kernels: &HashMap<&'static str, Kernel>,
    gradient: &Buffer<f32>,
    (losses, rows): (&Buffer<f32>, usize),
    squares: &mut Buffer<f32>,
    tallied: &mut Buffer<f32>,
) -> Result<()> {
    let walkers = LaunchConfig::new(WALKERS as u32, THREADS as u32);
    kernels["squares"].launch(walkers, (gradient, &mut *squares, gradient.len() as i32))?;
    let one = LaunchConfig::new(1, THREADS as u32);
    kernels["tally"].launch(one, (&*squares, losses, tallied, WALKERS as i32, rows as i32))
}

/// AdamW on a range of the parameters.
fn update(
    kernels: &HashMap<&'static str, Kernel>,
    shape: &GptShape,
    parameters: &mut Parameters,
    tallied: &Buffer<f32>,
    settings: &Buffer<f32>,
    range: Range<usize>,
) -> Result<()> {
    let Parameters { master, m, v, gradient, weights } = parameters;
    let layer = shape.layer(0);
    let blocks = (range.len() / 4).div_ceil(THREADS).min(WALKERS);
    let args = (
        master,
        m,
        v,
        &*gradient,
        weights,
        tallied,
        settings,
        layer.start as i32,
        layer.len() as i32,
        shape.layers as i32,
        shape.offsets().norm_1 as i32,
        range.start as i32,
        range.end as i32,
    );
    kernels["adamw"].launch(LaunchConfig::new(blocks as u32, THREADS as u32), args)
}

/// exp(x) is a power of 2 of x times log₂(e), which the division by √HEAD goes into.
fn score_scale() -> f32 {
    std::f32::consts::LOG2_E / (HEAD as f32).sqrt()
}

/// The tensor whose gradient is worst, and how it is: ‖given − exact‖ ÷ ‖exact‖ as a multiple of what is allowed, twice what rounding
/// activations to bf16 makes of it and half a hundredth.
pub fn worst_gradient(shape: &GptShape, given: &[f32], exact: &GptReference, rounded: &GptReference) -> (f64, String) {
    let of = |tensor: Tensor| {
        let range = tensor.range;
        let exact = &exact.gradients[range.clone()];
        let size = exact.iter().map(|x| x * x).sum::<f64>().sqrt();
        let off = |other: &mut dyn Iterator<Item = f64>| {
            other.zip(exact).map(|(other, exact)| (other - exact).powi(2)).sum::<f64>().sqrt() / size
        };
        let error = off(&mut given[range.clone()].iter().map(|&x| f64::from(x)));
        let allowed = 2.0 * off(&mut rounded.gradients[range].iter().copied()) + 5e-3;
        (error / allowed, format!("{}, off by {error:.1e} where {allowed:.1e} is allowed", tensor.name))
    };
    // A gradient that is no number is the worst of all.
    let worse = |a: &(f64, String), b: &(f64, String)| a.0.total_cmp(&b.0);
    shape.tensors().into_iter().map(of).max_by(worse).unwrap_or_default()
}

/// A product to bf16 without an epilogue.
fn multiply(
    products: &mut Products,
    sides: Sides,
    a: At<'_>,
    b: At<'_>,
    to: &mut Buffer<u16>,
    at: usize,
) -> Result<()> {
    products.multiply(sides, a, b, Into::Bf16(to, at), LtEpilogue::None, LtExtra::default())
}
