//! One token after the other from a GPT-2, with a batch of one, on the course's own kernels: `kernels/decode/`.
//!
//! A step reads every weight once, so the time of those bytes is the least that it can take. What it takes beyond that is
//! waiting: kernels for each other, the GPU for the CPU. [`DecodePlan`] and [`LaunchMode`] are the ways to wait less, one by one.

use super::{Config, Weights};
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Args, Buffer, Gpu, Graph, Kernel};
use gpulab::launch::{LaunchAttributes, LaunchConfig, Source};
use gpulab_kernels::ladder::operator;
use rayon::prelude::*;
use std::collections::HashMap;

/// How the next token is chosen. Other ways (top-p) take [`Decoder::logits`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DecodeSampling {
    /// 0 takes the most likely token; 1 draws as the model says; more makes unlikely tokens likelier.
    pub temperature: f32,
    /// The same seed draws the same text.
    pub seed: u32,
}

impl DecodeSampling {
    /// The most likely token each time.
    pub const GREEDY: DecodeSampling = DecodeSampling { temperature: 0.0, seed: 0 };
}

/// A GPT-2 in bf16 on a GPU, with the keys and values of one text. Sums are f32.
#[derive(Debug)]
pub struct Decoder {
    gpu: Gpu,
    config: Config,
    plan: DecodePlan,
    mode: LaunchMode,
    model: Model,
    kernels: Kernels,
    workspace: Workspace,
    graph: Option<Graph>,
    /// The position that the next step reads, known without asking the GPU.
    position: usize,
    prompt: usize,
}

impl Decoder {
    /// Puts a model on a GPU, in the quickest way that the GPU and the model allow.
    ///
    /// # Errors
    /// As [`Decoder::with`].
    pub fn new(gpu: &Gpu, weights: &Weights) -> Result<Decoder> {
        let plan = if DecodePlan::HalfLayers.suits(&weights.config()).is_ok() {
            DecodePlan::HalfLayers
        } else {
            DecodePlan::Fused
        };
        let mode = if matches!(gpu, Gpu::Cuda(_)) { LaunchMode::Overlapped } else { LaunchMode::Eager };
        Decoder::with(gpu, weights, plan, mode)
    }

    /// Puts a model on a GPU, to be run in that way.
    ///
    /// # Errors
    /// [`gpulab::Error::Unsupported`] for a GPU older than Hopper, an Apple GPU, graphs on a simulated GPU, or a model whose shape
    /// the kernels do not take; [`gpulab::Error::OutOfMemory`]; the errors of [`Gpu::compile`].
    pub fn with(gpu: &Gpu, weights: &Weights, plan: DecodePlan, mode: LaunchMode) -> Result<Decoder> {
        Decoder::tuned(gpu, weights, plan, mode, Tuning::of(&weights.config()))
    }

    /// As [`Decoder::with`], with other constants.
    ///
    /// # Errors
    /// As [`Decoder::with`]; [`gpulab::Error::Compile`] for constants that do not fit the model.
    pub fn tuned(gpu: &Gpu, weights: &Weights, plan: DecodePlan, mode: LaunchMode, tuning: Tuning) -> Result<Decoder> {
        let config = weights.config();
        plan.suits(&config)?;
        let kernels = Kernels::compile(gpu, &config, plan, tuning)?;
        let model = Model::load(gpu, weights, plan)?;
        let workspace = Workspace::new(gpu, &config)?;
        let (gpu, graph) = (gpu.clone(), None);
        let mut decoder = Decoder { gpu, config, plan, mode, model, kernels, workspace, graph, position: 0, prompt: 0 };
        decoder.set_launch_mode(mode)?;
        Ok(decoder)
    }

    /// Queues steps in another way from now on; the text stays.
    ///
    /// # Errors
    /// [`gpulab::Error::Unsupported`] for graphs on a simulated GPU; [`gpulab::Error::Driver`].
    pub fn set_launch_mode(&mut self, mode: LaunchMode) -> Result<()> {
        self.mode = mode;
        self.graph = None;
        if mode != LaunchMode::Eager {
            let Decoder { gpu, config, plan, model, kernels, workspace, .. } = self;
            let early = mode == LaunchMode::Overlapped;
            self.graph = Some(gpu.capture(|| queue_step(kernels, config, *plan, early, model, workspace))?);
        }
        Ok(())
    }

    /// The shape of the model.
    pub fn config(&self) -> Config {
        self.config
    }

    /// Kernels that a token takes.
    pub fn kernels_a_token(&self) -> usize {
        self.plan.kernels(&self.config)
    }

    /// Bytes of weights that a token reads, and of keys and values when `positions` of them are read.
    pub fn bytes_a_token(&self, positions: usize) -> usize {
        let Config { n_layer, n_embd, .. } = self.config;
        self.model.bytes() + n_layer * 2 * positions * n_embd * size_of::<u16>()
    }

    /// Begins a text.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] for an empty prompt, one that fills the context, a token that the vocabulary does not have, or a
    /// temperature that is none; [`gpulab::Error::Driver`].
    pub fn begin(&mut self, prompt: &[u32], draw: DecodeSampling) -> Result<()> {
        let Config { n_ctx, vocab_size, .. } = self.config;
        let refuse = |what: String, fix: String| Err(Error::invalid(what, fix));
        if prompt.is_empty() {
            return refuse("the prompt is empty".to_string(), "give at least one token to begin with".to_string());
        }
        if prompt.len() >= n_ctx {
            let what = format!("the prompt has {} tokens, and the model's context is {n_ctx}", prompt.len());
            return refuse(what, format!("shorten it to {} tokens at most: its end counts the most", n_ctx - 1));
        }
        if let Some(token) = prompt.iter().find(|&&token| token as usize >= vocab_size) {
            let what = format!("the prompt has the token {token}, and the vocabulary ends at {}", vocab_size - 1);
            return refuse(what, "use the tokenizer that belongs to the model".to_string());
        }
        if !draw.temperature.is_finite() || draw.temperature < 0.0 {
            let what = format!("a temperature of {}", draw.temperature);
            return refuse(what, "give 0 for the most likely token each time, or a number up to about 2".to_string());
        }
        let mut tokens = vec![0_i32; n_ctx];
        tokens.iter_mut().zip(prompt).for_each(|(to, &token)| *to = token as i32);
        self.workspace.tokens.copy_from(&tokens)?;
        self.prompt = prompt.len();
        self.start([0, prompt.len() as i32, draw.seed as i32, draw.temperature.to_bits() as i32])
    }

    /// Embeds the token at the state's position; each step then leaves the next one's embedding behind.
    fn start(&mut self, state: [i32; 4]) -> Result<()> {
        self.workspace.state.copy_from(&state)?;
        self.position = state[0] as usize;
        embed(&self.kernels, &self.model, &mut self.workspace)
    }

    /// Queues one step, and returns at once: the token at the position is read, and the next one chosen.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] before [`Decoder::begin`], and when the context is full; [`gpulab::Error::Driver`].
    pub fn step(&mut self) -> Result<()> {
        if self.prompt == 0 || self.position >= self.config.n_ctx {
            return Err(Error::invalid(
                format!("there is nothing to read at position {}", self.position),
                format!("call `begin` with a prompt; the context has {} positions", self.config.n_ctx),
            ));
        }
        match &mut self.graph {
            Some(graph) => graph.launch()?,
            None => {
                let Decoder { config, plan, model, kernels, workspace, .. } = self;
                queue_step(kernels, config, *plan, false, model, workspace)?;
            }
        }
        self.position += 1;
        Ok(())
    }

    /// The tokens so far: the prompt, and what was chosen. Waits for the steps that are queued.
    ///
    /// # Errors
    /// [`gpulab::Error::Driver`].
    pub fn tokens(&self) -> Result<Vec<u32>> {
        let there = (self.position + 1).max(self.prompt).min(self.config.n_ctx);
        Ok(self.workspace.tokens.to_host()?[..there].iter().map(|&token| token as u32).collect())
    }

    /// The logits of the last step, one for each token of the vocabulary. Waits for it.
    ///
    /// # Errors
    /// [`gpulab::Error::Driver`].
    pub fn logits(&self) -> Result<Vec<f32>> {
        self.workspace.logits.to_host()
    }

    /// Continues the prompt by up to `count` tokens, as far as the context goes; `each` sees them as they come.
    ///
    /// # Errors
    /// As [`Decoder::begin`] and [`Decoder::step`].
    pub fn generate(
        &mut self,
        prompt: &[u32],
        count: usize,
        draw: DecodeSampling,
        mut each: impl FnMut(u32),
    ) -> Result<Vec<u32>> {
        self.begin(prompt, draw)?;
        for _ in 1..prompt.len() {
            self.step()?;
        }
        let mut new = Vec::new();
        while new.len() < count && self.position + 1 < self.config.n_ctx {
            self.step()?;
            let token = self.tokens()?[self.position];
            each(token);
            new.push(token);
        }
        Ok(new)
    }

    /// Sets the position, with keys and values as given for those before it (bf16; layer after layer, the keys of all
    /// heads, then their values): to measure a step far into a text without reading one.
    ///
    /// # Errors
    /// [`gpulab::Error::LengthMismatch`], [`gpulab::Error::Driver`].
    pub fn begin_at(&mut self, token: u32, position: usize, caches: Option<&[u16]>) -> Result<()> {
        let mut tokens = vec![token; position + 1];
        tokens.truncate(self.config.n_ctx - 1);
        self.begin(&tokens, DecodeSampling::GREEDY)?;
        caches.map_or(Ok(()), |bits| self.workspace.caches.copy_from(bits))?;
        self.start([position as i32, position as i32 + 1, 0, 0])
    }
}

// ----------------------------------------------------------------------
// The ways to do a step: how many kernels, and how they are queued.

/// How the work of a layer is cut into kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodePlan {
    /// One for each operator, as a framework has them: eleven a layer.
    Operators,
    /// One for each matrix, with what stands before and behind it, and one for attention: five a layer.
    Fused,
    /// One for each half of a layer, attention and MLP: two a layer.
    HalfLayers,
    /// One for the token.
    Megakernel,
}

/// How kernels are queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchMode {
    /// Launched by the CPU, one after the other.
    Eager,
    /// A CUDA graph: launched as one.
    Graph,
    /// A CUDA graph whose kernels start before the one in front has ended, and fetch their weights meanwhile. (Those of
    /// [`DecodePlan::Operators`] do not, and [`DecodePlan::Megakernel`] has one.)
    Overlapped,
}

/// Constants of the kernels that no result depends on. The defaults are the best of those tried on an H200.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Threads of a block of [`DecodePlan::HalfLayers`] and [`DecodePlan::Megakernel`].
    pub threads: usize,
    /// Blocks of [`DecodePlan::HalfLayers`] that a multiprocessor is to hold: the registers of a thread are bounded for that.
    pub resident: usize,
    /// Hidden units that a block of the MLP owns.
    pub units: usize,
    /// Rows of the vocabulary that a warp has in flight.
    pub lines: usize,
    /// Blocks of the logits' kernel for each multiprocessor.
    pub logits_blocks: usize,
    /// So many bytes of weights behind those in use come into the L2 cache; 0: none.
    pub run_ahead: usize,
    /// Whether all kernels ask for as much shared memory as there is: kernels that overlap must agree on that.
    pub max_shared_carveout: bool,
    /// Clusters of the one kernel of [`DecodePlan::Megakernel`]; 0: as many as fit.
    pub clusters: usize,
    /// Whether that kernel's launch asks that all blocks run at the same time.
    pub cooperative: bool,
}

impl Tuning {
    /// The constants for a model of that shape.
    pub fn of(config: &Config) -> Tuning {
        Tuning {
            threads: DecodePlan::threads(config, 256).unwrap_or(256),
            resident: 2,
            // 128 blocks: each has a multiprocessor of an H200 to itself.
            units: (4 * config.n_embd).div_ceil(128).max(8),
            lines: 4,
            logits_blocks: 1,
            run_ahead: 0,
            max_shared_carveout: true,
            clusters: 0,
            cooperative: true,
        }
    }
}

/// Most threads of a block.
const MOST_THREADS: usize = 1024;
/// Blocks of a cluster, which share a head.
const SPLIT: usize = 8;

impl DecodePlan {
    /// All of them, the first one first.
    pub const ALL: [DecodePlan; 4] =
        [DecodePlan::Operators, DecodePlan::Fused, DecodePlan::HalfLayers, DecodePlan::Megakernel];

    /// `operators`, `fused`, `halves`, `whole`.
    pub fn name(self) -> &'static str {
        match self {
            DecodePlan::Operators => "operators",
            DecodePlan::Fused => "fused",
            DecodePlan::HalfLayers => "halves",
            DecodePlan::Megakernel => "whole",
        }
    }

    /// Whether the kernels find the matrices of all layers in one buffer.
    fn is_packed(self) -> bool {
        matches!(self, DecodePlan::HalfLayers | DecodePlan::Megakernel)
    }

    /// Kernels that a token takes: those of the layers, and those behind them.
    pub fn kernels(self, config: &Config) -> usize {
        let (layer, ends) = match self {
            DecodePlan::Operators => (11, 4),
            DecodePlan::Fused => (5, 1),
            DecodePlan::HalfLayers => (2, 1),
            DecodePlan::Megakernel => (0, 1),
        };
        layer * config.n_layer + ends
    }

    /// Threads of the blocks of `kernels/decode/halves.cu`: whole rows of eights, whole heads, whole warps, and at least
    /// so many. `None` where there is no such number.
    fn threads(config: &Config, least: usize) -> Option<usize> {
        let multiple = [config.n_embd / 8, config.head(), 32].into_iter().reduce(common_multiple)?;
        let threads = least.div_ceil(multiple) * multiple;
        (threads <= MOST_THREADS).then_some(threads)
    }

    /// Whether the kernels take a model of that shape.
    ///
    /// # Errors
    /// [`gpulab::Error::Unsupported`] says what does not fit.
    pub fn suits(self, config: &Config) -> Result<()> {
        let refuse = |what: String, fix: &str| Err(Error::unsupported(what, fix));
        let (width, head) = (config.n_embd, config.head());
        if !head.is_power_of_two() || !(8..=256).contains(&head) {
            return refuse(
                format!("the decoding kernels share a head of {head} numbers among lanes by eights"),
                "use a model whose heads have 8, 16, 32, 64, 128 or 256 numbers, or decode it on candle",
            );
        }
        if self.is_packed() && DecodePlan::threads(config, 256).is_none() {
            return refuse(
                format!("no block of {MOST_THREADS} threads at most has whole rows of a width of {width}"),
                "use `DecodePlan::Fused`",
            );
        }
        Ok(())
    }
}

impl LaunchMode {
    /// `one by one`, `graph`, `overlapped`.
    pub fn name(self) -> &'static str {
        match self {
            LaunchMode::Eager => "one by one",
            LaunchMode::Graph => "graph",
            LaunchMode::Overlapped => "overlapped",
        }
    }
}

fn common_multiple(a: usize, b: usize) -> usize {
    let (mut larger, mut smaller) = (a.max(b), a.min(b));
    while smaller > 0 {
        (larger, smaller) = (smaller, larger % smaller);
    }
    a / larger * b
}

// ----------------------------------------------------------------------
// A model's weights on the GPU, as the decoding kernels read them: bf16, each row that a warp multiplies in one piece.

/// The weights of a layer, for plans whose kernels take matrices one by one: `[outputs, inputs]`, where GPT-2 has them
/// the other way round.
#[derive(Debug)]
struct Layer {
    pub norm_1: [Buffer<f32>; 2],
    pub qkv: Linear,
    pub out: Linear,
    pub norm_2: [Buffer<f32>; 2],
    pub up: Linear,
    pub down: Linear,
}

/// A matrix and its bias.
#[derive(Debug)]
struct Linear {
    pub weight: Buffer<u16>,
    pub bias: Buffer<f32>,
}

/// All of them. Plans by halves find every layer's matrices in `weights`, one after the other, and then the table of
/// tokens; the others find the table alone there.
#[derive(Debug)]
struct Model {
    pub weights: Buffer<u16>,
    /// Where the table of tokens begins.
    pub table: usize,
    /// The norms' scales and biases, and the biases, layer after layer, where `weights` has the matrices.
    pub vectors: Buffer<f32>,
    pub layers: Vec<Layer>,
    pub positions: Buffer<u16>,
    pub norm: [Buffer<f32>; 2],
    /// The last norm's scales, then its biases.
    pub last_norm: Buffer<f32>,
}

impl Model {
    fn load(gpu: &Gpu, weights: &Weights, plan: DecodePlan) -> Result<Model> {
        let vector = |name: String| gpu.to_device(&weights.get(&name).values);
        let norm =
            |name: &str| -> Result<_> { Ok([vector(format!("{name}.weight"))?, vector(format!("{name}.bias"))?]) };
        let linear = |name: String| -> Result<_> {
            let weight = gpu.to_device(&outputs_first(weights, &format!("{name}.weight")))?;
            Ok(Linear { weight, bias: vector(format!("{name}.bias"))? })
        };
        let layer = |at: usize| -> Result<_> {
            Ok(Layer {
                norm_1: norm(&format!("h.{at}.ln_1"))?,
                qkv: linear(format!("h.{at}.attn.c_attn"))?,
                out: linear(format!("h.{at}.attn.c_proj"))?,
                norm_2: norm(&format!("h.{at}.ln_2"))?,
                up: linear(format!("h.{at}.mlp.c_fc"))?,
                down: linear(format!("h.{at}.mlp.c_proj"))?,
            })
        };
        let count = weights.config().n_layer;
        let (packed, vectors) = if plan.is_packed() { pack(weights) } else { (Vec::new(), Vec::new()) };
        let table = packed.len();
        let norms = ["ln_f.weight", "ln_f.bias"].map(|name| weights.get(name).values.as_slice());
        Ok(Model {
            weights: gpu.to_device(&[packed, bf16(&weights.get("wte.weight").values)].concat())?,
            table,
            vectors: gpu.to_device(&vectors)?,
            layers: (0..if plan.is_packed() { 0 } else { count }).map(layer).collect::<Result<_>>()?,
            positions: gpu.to_device(&bf16(&weights.get("wpe.weight").values))?,
            norm: norm("ln_f")?,
            last_norm: gpu.to_device(&norms.concat())?,
        })
    }

    /// Bytes that a step reads: all but the table of positions, of which it reads a row.
    fn bytes(&self) -> usize {
        let linear = |linear: &Linear| linear.weight.bytes() + linear.bias.bytes();
        let norm = |norm: &[Buffer<f32>; 2]| norm[0].bytes() + norm[1].bytes();
        let layer = |layer: &Layer| {
            let linears = [&layer.qkv, &layer.out, &layer.up, &layer.down].map(linear);
            linears.iter().sum::<usize>() + norm(&layer.norm_1) + norm(&layer.norm_2)
        };
        let layers: usize = self.layers.iter().map(layer).sum();
        self.weights.bytes() + self.vectors.bytes() + layers + norm(&self.norm)
    }
}

/// Matrices and vectors as `kernels/decode/layer.cuh` has them: in the order of their use. The last matrix of a layer keeps
/// GPT-2's way, as a block owns some of its inputs.
fn pack(weights: &Weights) -> (Vec<u16>, Vec<f32>) {
    let (mut matrices, mut vectors) = (Vec::new(), Vec::new());
    for layer in 0..weights.config().n_layer {
        let name = |part: &str| format!("h.{layer}.{part}");
        for part in ["attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight"] {
            matrices.extend(outputs_first(weights, &name(part)));
        }
        matrices.extend(bf16(&weights.get(&name("mlp.c_proj.weight")).values));
        let parts = ["ln_1.weight", "ln_1.bias", "attn.c_attn.bias", "attn.c_proj.bias"];
        let more = ["ln_2.weight", "ln_2.bias", "mlp.c_fc.bias", "mlp.c_proj.bias"];
        parts.into_iter().chain(more).for_each(|part| vectors.extend(&weights.get(&name(part)).values));
    }
    (matrices, vectors)
}

/// A matrix of GPT-2 as `[outputs, inputs]`.
fn outputs_first(weights: &Weights, name: &str) -> Vec<u16> {
    let matrix = weights.get(name);
    transposed(&bf16(&matrix.values), matrix.shape[1])
}

fn bf16(values: &[f32]) -> Vec<u16> {
    values.par_iter().with_min_len(1 << 16).map(|&x| cpu::bf16_from_f32(x)).collect()
}

/// Columns become rows.
fn transposed(values: &[u16], columns: usize) -> Vec<u16> {
    let mut turned = vec![0; values.len()];
    let rows = values.len() / columns.max(1);
    turned.par_chunks_mut(rows.max(1)).enumerate().for_each(|(column, to)| {
        to.iter_mut().enumerate().for_each(|(row, to)| *to = values[row * columns + column]);
    });
    turned
}

// ----------------------------------------------------------------------
// The compiled kernels of a plan, and what they write.

/// Threads of the kernels whose blocks have a warp for each row.
const ROW_THREADS: usize = 256;
/// Threads of the one block that looks for the largest logit.
const ONE_BLOCK: u32 = ROW_THREADS as u32;

/// The kernels of `kernels/decode/`, by name.
#[derive(Debug)]
struct Kernels {
    pub named: HashMap<&'static str, Kernel>,
    pub tuning: Tuning,
    pub multiprocessors: usize,
    /// Blocks of a cluster: one in the simulator, which then does the work of all.
    pub cluster: u32,
    /// Clusters of the one kernel of [`DecodePlan::Megakernel`].
    pub clusters: u32,
}

/// What steps write.
#[derive(Debug)]
struct Workspace {
    /// The residual; by halves in three buffers that rotate: one is read, one added to, one becomes zero.
    pub residual: Buffer<f32>,
    /// Normed, q with k and v, attended, hidden units, what is added to the residual.
    pub vectors: [Buffer<f32>; 5],
    /// For each layer the keys of all heads, then their values.
    pub caches: Buffer<u16>,
    pub logits: Buffer<f32>,
    /// The bias of the head: none.
    pub zeros: Buffer<f32>,
    pub best: Buffer<u64>,
    /// Blocks that have come to a meeting, and to their end.
    pub arrived: Buffer<u32>,
    pub tokens: Buffer<i32>,
    /// Position, length of the prompt, seed, bits of the temperature.
    pub state: Buffer<i32>,
}

impl Kernels {
    fn compile(gpu: &Gpu, config: &Config, plan: DecodePlan, tuning: Tuning) -> Result<Kernels> {
        let files: &[&str] = match plan {
            DecodePlan::Operators => &["decode/ends", "decode/operators"],
            DecodePlan::Fused => &["decode/ends", "decode/operators", "decode/fused"],
            DecodePlan::HalfLayers => &["decode/ends", "decode/halves"],
            DecodePlan::Megakernel => &["decode/ends", "decode/whole"],
        };
        let mut named = HashMap::new();
        for path in files {
            let operator = operator(path)?;
            operator.runs_on(gpu.compute_capability()?)?;
            let value = |name: &str| match name {
                "WIDTH" => config.n_embd,
                "HIDDEN" => 4 * config.n_embd,
                "HEAD" => config.head(),
                "SPLIT" => SPLIT,
                "ROWS" => tuning.units,
                "RESIDENT" => tuning.resident,
                "LINES" => tuning.lines,
                "THREADS" if !matches!(*path, "decode/operators" | "decode/fused") => tuning.threads,
                "THREADS" => ROW_THREADS,
                other => unreachable!("{path} has a constant {other}"),
            };
            let own = Source { defines: Vec::new(), ..operator.source()? };
            let source = operator.defines.iter().fold(own, |source, (name, _)| source.define(name, value(name)));
            let module = gpu.compile(source)?;
            for name in operator.kernels {
                named.insert(*name, module.kernel(name)?);
            }
        }
        let multiprocessors = gpu.multiprocessors().max(1) as usize;
        let cluster = if matches!(gpu, Gpu::Simulated(_)) { 1 } else { SPLIT as u32 };
        let mut kernels = Kernels { named, tuning, multiprocessors, cluster, clusters: 0 };
        if let Some(whole) = kernels.named.get("whole") {
            let shape = LaunchConfig::new(cluster, kernels.threads()).shared(kernels.tiles(config));
            let fit = whole.clusters_at_a_time(shape, cluster)?;
            if fit == 0 {
                return Err(Error::unsupported(
                    format!("a cluster of {cluster} blocks of {} threads has no room on this GPU", tuning.threads),
                    "use fewer threads, or `DecodePlan::HalfLayers`",
                ));
            }
            kernels.clusters = if tuning.clusters == 0 { fit } else { fit.min(tuning.clusters as u32) };
        }
        Ok(kernels)
    }

    /// Shared memory of a block for keys and values, in bytes.
    fn tiles(&self, config: &Config) -> u32 {
        (2 * config.n_ctx.div_ceil(self.cluster as usize) * config.head() * size_of::<u16>()) as u32
    }

    fn threads(&self) -> u32 {
        self.tuning.threads as u32
    }

    /// One launch; with `early` it may start before the one in front has ended.
    fn launch<'a>(&self, name: &str, shape: LaunchConfig, early: bool, args: impl Args<'a>) -> Result<()> {
        self.named[name].launch_with(shape, self.attributes(early), args)
    }

    fn attributes(&self, early: bool) -> LaunchAttributes {
        LaunchAttributes {
            programmatic_stream_serialization: early,
            max_shared_carveout: early && self.tuning.max_shared_carveout,
            ..LaunchAttributes::NONE
        }
    }
}

impl Workspace {
    fn new(gpu: &Gpu, config: &Config) -> Result<Workspace> {
        let Config { n_layer, n_embd: width, n_ctx, vocab_size, .. } = *config;
        let vector = |len: usize| gpu.zeros::<f32>(len);
        Ok(Workspace {
            residual: vector(3 * width)?,
            vectors: [vector(width)?, vector(3 * width)?, vector(width)?, vector(4 * width)?, vector(width)?],
            caches: gpu.zeros(n_layer * 2 * width * n_ctx)?,
            logits: vector(vocab_size)?,
            zeros: vector(vocab_size)?,
            best: gpu.zeros(1)?,
            arrived: gpu.zeros(2)?,
            tokens: gpu.zeros(n_ctx)?,
            state: gpu.zeros(4)?,
        })
    }
}

/// A warp for each row.
fn by_rows(rows: usize) -> LaunchConfig {
    LaunchConfig::for_elements(32 * rows, ROW_THREADS as u32)
}

// ----------------------------------------------------------------------
// The launches of a layer, in each plan.

/// Eleven kernels: norm, q with k and v, cache, attention, projection, addition; norm, matrix, GELU, matrix, addition.
fn operators(
    kernels: &Kernels,
    config: &Config,
    layer: &Layer,
    workspace: &mut Workspace,
    number: usize,
) -> Result<()> {
    let (width, context) = (config.n_embd, config.n_ctx as i32);
    let Workspace { residual: x, vectors: [normed, qkv, attended, units, add], caches, state, .. } = workspace;
    let number = number as i32;
    let one = LaunchConfig::new(1, ONE_BLOCK);
    let each = |n: usize| LaunchConfig::for_elements(n, ROW_THREADS as u32);
    let matvec = |linear: &Linear, x: &Buffer<f32>, y: &mut Buffer<f32>, [rows, columns]: [usize; 2]| {
        let args = (&linear.weight, &linear.bias, x, y, rows as i32, columns as i32);
        kernels.launch("matvec", by_rows(rows), false, args)
    };
    let [weight, bias] = &layer.norm_1;
    kernels.launch("layer_norm", one, false, (&*x, weight, bias, &mut *normed))?;
    matvec(&layer.qkv, normed, qkv, [3 * width, width])?;
    kernels.launch("keep", each(width), false, (&*qkv, &mut *caches, &*state, number, context))?;
    let heads = LaunchConfig::new(config.n_head as u32, ROW_THREADS as u32);
    kernels.launch("attend", heads, false, (&*qkv, &*caches, &*state, &mut *attended, number, context))?;
    matvec(&layer.out, attended, add, [width, width])?;
    kernels.launch("add", each(width), false, (&mut *x, &*add, width as i32))?;
    let [weight, bias] = &layer.norm_2;
    kernels.launch("layer_norm", one, false, (&*x, weight, bias, &mut *normed))?;
    let hidden = 4 * width;
    matvec(&layer.up, normed, units, [hidden, width])?;
    kernels.launch("gelu_each", each(hidden), false, (&mut *units, hidden as i32))?;
    matvec(&layer.down, units, add, [width, hidden])?;
    kernels.launch("add", each(width), false, (&mut *x, &*add, width as i32))
}

/// Five kernels: q with k and v, attention, projection; up, down.
fn fused(
    kernels: &Kernels,
    config: &Config,
    [first, early]: [bool; 2],
    layer: &Layer,
    workspace: &mut Workspace,
    number: usize,
) -> Result<()> {
    let (width, context) = (config.n_embd, config.n_ctx as i32);
    let Workspace { residual: x, vectors: [_, qkv, attended, units, _], caches, state, .. } = workspace;
    let number = number as i32;
    let (linear, [weight, bias]) = (&layer.qkv, &layer.norm_1);
    let args = (&*x, weight, bias, &linear.weight, &linear.bias, &mut *qkv, &mut *caches, &*state, number, context);
    kernels.launch("norm_qkv", by_rows(3 * width), first, args)?;
    let heads = LaunchConfig::new(config.n_head as u32, ROW_THREADS as u32);
    let args = (&*qkv, &*caches, &*state, &mut *attended, number, context);
    kernels.launch("attend", heads, early, args)?;
    let linear = &layer.out;
    let args = (&linear.weight, &linear.bias, &*attended, &mut *x);
    kernels.launch("project_attended", by_rows(width), early, args)?;
    let (linear, [weight, bias]) = (&layer.up, &layer.norm_2);
    let args = (&*x, weight, bias, &linear.weight, &linear.bias, &mut *units);
    kernels.launch("norm_up", by_rows(4 * width), early, args)?;
    let linear = &layer.down;
    let args = (&linear.weight, &linear.bias, &*units, &mut *x);
    kernels.launch("project_units", by_rows(width), early, args)
}

/// Two kernels: attention, MLP.
fn halves(
    kernels: &Kernels,
    config: &Config,
    [first, early]: [bool; 2],
    model: &Model,
    workspace: &mut Workspace,
    number: usize,
) -> Result<()> {
    let Workspace { residual, caches, state, .. } = workspace;
    let cluster = kernels.cluster;
    let shape = LaunchConfig::new(config.n_head as u32 * cluster, kernels.threads()).shared(kernels.tiles(config));
    let (ahead, bytes) = run_ahead(kernels, config, model, 2 * number);
    let layer = number as i32;
    let context = config.n_ctx as i32;
    let args =
        (&model.weights, &model.vectors, caches, &*state, &mut *residual, layer, context, ahead as i64, bytes as i32);
    let attributes = LaunchAttributes { cluster, ..kernels.attributes(first) };
    kernels.named["attention_half"].launch_with(shape, attributes, args)?;
    let blocks = (4 * config.n_embd).div_ceil(kernels.tuning.units);
    let shape = LaunchConfig::new(blocks as u32, kernels.threads());
    let (ahead, bytes) = run_ahead(kernels, config, model, 2 * number + 1);
    let args = (&model.weights, &model.vectors, residual, layer, ahead as i64, bytes as i32);
    kernels.launch("mlp_half", shape, early, args)
}

/// What a half brings into the L2 cache: where in `weights` it begins, and its bytes.
fn run_ahead(kernels: &Kernels, config: &Config, model: &Model, half: usize) -> (usize, usize) {
    let distance = kernels.tuning.run_ahead / 16 * 8;
    if distance == 0 {
        return (0, 0);
    }
    let square = config.n_embd * config.n_embd;
    // Twelve squares a layer, of which attention has four.
    let end = |half: usize| (half / 2 * 12 + [4, 12][half % 2]) * square;
    let most = model.weights.len();
    let from = if half == 0 { end(0) } else { (end(half - 1) + distance).min(most) };
    (from, 2 * ((end(half) + distance).min(most) - from))
}

/// One kernel.
fn whole(kernels: &Kernels, config: &Config, model: &Model, workspace: &mut Workspace) -> Result<()> {
    let Workspace { residual, caches, logits, best, arrived, tokens, state, .. } = workspace;
    let cluster = kernels.cluster;
    let shape = LaunchConfig::new(kernels.clusters * cluster, kernels.threads()).shared(kernels.tiles(config));
    let attributes = LaunchAttributes { cluster, cooperative: kernels.tuning.cooperative, ..LaunchAttributes::NONE };
    let args = (
        &model.weights,
        &model.vectors,
        &model.last_norm,
        &model.positions,
        caches,
        tokens,
        state,
        residual,
        logits,
        best,
        arrived,
        config.n_layer as i32,
        config.vocab_size as i32,
        config.n_ctx as i32,
        kernels.tuning.run_ahead as i32,
    );
    kernels.named["whole"].launch_with(shape, attributes, args)
}

// ----------------------------------------------------------------------
// A step: the launches in front of the layers and behind them.

/// Embeds the first token of a text.
fn embed(kernels: &Kernels, model: &Model, workspace: &mut Workspace) -> Result<()> {
    let Workspace { residual, best, tokens, state, .. } = workspace;
    let args = (&model.weights, model.table as i64, &model.positions, &*tokens, &*state, residual, best);
    kernels.launch("embed", LaunchConfig::new(1, kernels.threads()), false, args)
}

/// Queues a step. The first kernel is never early: others read the position ahead of their wait, and the step before must
/// have moved it.
fn queue_step(
    kernels: &Kernels,
    config: &Config,
    plan: DecodePlan,
    early: bool,
    model: &Model,
    workspace: &mut Workspace,
) -> Result<()> {
    if plan == DecodePlan::Megakernel {
        return whole(kernels, config, model, workspace);
    }
    for number in 0..config.n_layer {
        let early_first = early && number > 0;
        match plan {
            DecodePlan::Operators => operators(kernels, config, &model.layers[number], workspace, number)?,
            DecodePlan::Fused => {
                fused(kernels, config, [early_first, early], &model.layers[number], workspace, number)?
            }
            _ => halves(kernels, config, [early_first, early], model, workspace, number)?,
        }
    }
    let (vocabulary, context) = (config.vocab_size, config.n_ctx as i32);
    let Workspace { residual, vectors: [normed, ..], logits, zeros, best, arrived, tokens, state, .. } = workspace;
    if plan == DecodePlan::Operators {
        let [weight, bias] = &model.norm;
        let one = LaunchConfig::new(1, ONE_BLOCK);
        kernels.launch("layer_norm", one, false, (&*residual, weight, bias, &mut *normed))?;
        let args = (&model.weights, &*zeros, &*normed, &mut *logits, vocabulary as i32, config.n_embd as i32);
        kernels.launch("matvec", by_rows(vocabulary), false, args)?;
        let args = (&*logits, &*state, &mut *best, vocabulary as i32);
        kernels.launch("argmax", one, false, args)?;
        let args = (&model.weights, &model.positions, tokens, state, residual, best, context);
        return kernels.launch("pick", LaunchConfig::new(1, kernels.threads()), false, args);
    }
    let Tuning { threads, lines, logits_blocks, .. } = kernels.tuning;
    let blocks = vocabulary.div_ceil(lines * threads / 32).min(logits_blocks * kernels.multiprocessors);
    let half = if plan == DecodePlan::HalfLayers { 2 * config.n_layer as i32 } else { 0 };
    let args = (
        &model.last_norm,
        &model.weights,
        model.table as i64,
        &model.positions,
        tokens,
        state,
        residual,
        half,
        logits,
        best,
        arrived,
        vocabulary as i32,
        context,
    );
    kernels.launch("logits", LaunchConfig::new(blocks as u32, kernels.threads()), early, args)
}

#[cfg(test)]
mod tests;
