//! One token of a language model at the speed of its memory: Llama and GPT-2 shapes, bf16, int8 or int4 weights, a batch of one,
//! on the kernels of `crates/kernels/engine/`.
//!
//! # What a token must read
//! Every weight once, and the keys and values of the positions before it:
//!
//! ```
//! use gpulab_kernels::engine::EngineConfig;
//! // Llama 3.2 with 1.2 billion parameters in bf16, at position 1024: 2.5 GB; GPT-2 with 124 million at 512: 0.27 GB.
//! let llama = EngineConfig::LLAMA_1B;
//! assert_eq!(2 * llama.parameter_count() + llama.cache_bytes(1024), 2_505_048_064);
//! let gpt2 = EngineConfig::GPT2;
//! assert_eq!(2 * gpt2.parameter_count() + gpt2.cache_bytes(512), 265_938_432);
//! ```
//!
//! At 4 TB/s, about the rate of a copy on an H200, that is 626 µs and 66 µs: the floor. Codes of 4 bits with a bf16 scale
//! for each 128 are a quarter of the weights' bytes and 3 % more.
//!
//! # Where the rest of the time goes
//! In each phase of a layer (q, k and v; attention; projection; MLP up; MLP down) every multiprocessor takes a share of the
//! rows, and needs all numbers of the phase before. So a token is a chain of 81 (Llama) or 61 (GPT-2) phases, and memory
//! idles whenever nothing has been asked for. [`EnginePlan`] has the ways to have it idle less. What we predicted for Llama in bf16
//! before the first measurement, from a few µs for each beginning and end of a kernel and about 2 µs for a meeting of all
//! blocks: operators 0.50 of the copy rate, fused 0.65, overlapped 0.80, persistent 0.90. `results/h200/decode_engine.csv`
//! has what it was. Two things we had not thought of: what blocks ask of each other waits in the same queues as the weights,
//! so that a few copies in flight ([`EngineTuning::ahead`]) are better than as many as fit; and short phases wait for more than
//! their barrier. `decode_engine_parts.csv` shows it, by kernels that leave a part out ([`EngineConstants::without`]): no part alone,
//! not even the barriers, takes the time of GPT-2 or of few bits near that of their bytes; without weights, products and inputs
//! the barriers remain. A phase is a chain of all of them. What is fetched is not what it waits for: the blocks' clocks
//! ([`Engine::clocks`], `decode_engine_phases.csv`) have hardly any waiting for weights.
//!
//! One way on that was tried and does not pay: no barrier at all, but a flag beside each number, which its readers poll (as NCCL's
//! LL protocol does). We expected 118 µs for GPT-2 in place of 198, from the barrier's share of a phase; it took 226
//! (`results/h200/2026-12-01/decode_engine_flags.csv`). All blocks then read twice the bytes, again and again, from the same lines of the L2
//! cache: reading the inputs takes several times as long by the blocks' clocks, and even a kernel that does not wait
//! for its flags takes 173, and one without a barrier 129 (`decode_engine_parts.csv`).
//!
//! # Example
//! ```
//! use gpulab::prelude::*;
//! use gpulab_kernels::engine::*;
//! use std::rc::Rc;
//!
//! let gpu = Gpu::simulated()?;
//! let small = EngineConfig { layers: 1, width: 64, inner: 64, vocabulary: 50, context: 8, ..EngineConfig::LLAMA_1B };
//! let config = EngineConfig { heads: 2, kv_heads: 1, head: 32, ..small };
//! let constants = EngineConstants { threads: 64, splits: 1, slot_steps: 2, ..EngineConstants::default() };
//! let weights = RandomWeights { config, seed: 1 };
//! let kernels = EngineKernels::compile(&gpu, &config, WeightBits::Bf16, EnginePlan::Persistent, constants)?;
//! let model = Rc::new(EngineModel::new(&gpu, &kernels, &weights)?);
//! let mut engine = Engine::new(&model, &kernels, EngineTuning::default())?;
//! engine.begin(&[7, 3], 0, None, (0.0, 0))?; // greedily
//! for _ in 0..4 {
//!     engine.step()?; // reads the token at the position, and chooses the next one
//! }
//! assert_eq!((engine.next()?.0, engine.logits()?.len()), (4, 50));
//! # Ok::<(), Error>(())
//! ```

mod batch;
mod graphs;
mod model;
mod reference;
#[cfg(test)]
mod tests;

pub use batch::{BatchEngine, BatchLimits, TextPart};
pub use model::{
    EngineConfig, EngineConstants, EngineModel, EnginePlan, EngineWeights, Family, Matrix, RandomWeights, WeightBits,
};
pub use reference::EngineReference;

use crate::ladder::operator;
use gpulab::bench::Bench;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu, Graph, Kernel};
use gpulab::launch::{LaunchAttributes, LaunchConfig, Source};
use model::Packing;
use std::collections::HashMap;
use std::rc::Rc;

/// What no result depends on, and a launch says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineTuning {
    /// Slots of the ring; 0: as many as fit.
    pub slots: usize,
    /// Of these, how many may be in flight; 0: all.
    pub ahead: usize,
}

/// What a launch says, as `kernels/engine/ring.cuh` has it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Launch {
    layers: i32,
    context: i32,
    slots: i32,
    ahead: i32,
    layer: i32,
    phase: i32,
}

gpulab::kernel_param!(Launch { layers: i32, context: i32, slots: i32, ahead: i32, layer: i32, phase: i32 });

/// The number of the phase behind all layers.
const LOGITS: i32 = 5;
/// Kernels of a layer, where each operator has its own.
const OPERATORS: usize = 12;
/// Numbers that a block writes down in a phase.
const CLOCKS: usize = 5;
/// Most slots of a ring, and the bytes that the kernels reserve beside it for themselves and the driver for each block.
const MOST_SLOTS: usize = 32;
const RESERVED: usize = 1024;

/// The compiled kernels of a plan, for models of one shape.
#[derive(Debug, Clone)]
pub struct EngineKernels {
    config: EngineConfig,
    bits: WeightBits,
    plan: EnginePlan,
    /// With the number of blocks.
    constants: EngineConstants,
    named: HashMap<&'static str, Kernel>,
}

impl EngineKernels {
    /// Compiles them.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a GPU older than Hopper, or a shape that the kernels do not take; those of [`Gpu::compile`].
    pub fn compile(
        gpu: &Gpu,
        config: &EngineConfig,
        bits: WeightBits,
        plan: EnginePlan,
        constants: EngineConstants,
    ) -> Result<EngineKernels> {
        model::suits(config, bits)?;
        constants.suit(config, bits, plan == EnginePlan::Operators)?;
        let files: &[&str] = match plan {
            EnginePlan::Operators => &["engine/embed", "engine/phases", "engine/operators"],
            EnginePlan::Fused | EnginePlan::Overlapped => &["engine/embed", "engine/phases"],
            EnginePlan::Persistent => &["engine/embed", "engine/persistent"],
        };
        let mut named = HashMap::new();
        for path in files {
            let operator = operator(path)?;
            operator.runs_on(gpu.compute_capability()?)?;
            let value = |name: &str| match name {
                "LLAMA" => usize::from(config.family == Family::Llama),
                "BITS" => bits.bits(),
                "WIDTH" => config.width,
                "HEADS" => config.heads,
                "KV_HEADS" => config.kv_heads,
                "HEAD" => config.head,
                "INNER" => config.inner,
                "VOCABULARY" => config.vocabulary,
                "THREADS" => constants.threads,
                "SLOT_STEPS" => constants.slot_steps,
                "SPLITS" => constants.splits,
                "HEADS_EACH" => constants.heads_each,
                "CLUSTER" => constants.cluster,
                "MERGED" => usize::from(constants.merged),
                "OWN_CODE" => usize::from(constants.has_own_code(plan, bits)),
                "CLOCKS" => usize::from(constants.clocks),
                "WITHOUT" => constants.without as usize,
                other => unreachable!("{path} has a constant {other}"),
            };
            let own = Source { defines: Vec::new(), ..operator.source()? };
            let source = operator.defines.iter().fold(own, |source, (name, _)| source.define(name, value(name)));
            let module = gpu.compile(source)?;
            for name in operator.kernels {
                named.insert(*name, module.kernel(name)?);
            }
        }
        let mut kernels = EngineKernels { config: *config, bits, plan, constants, named };
        let cluster = constants.cluster;
        let most = gpu.multiprocessors().max(1) as usize / cluster;
        if constants.blocks == 0 {
            let clusters = if cluster > 1 { kernels.clusters_that_fit(gpu)?.min(most) } else { most };
            kernels.constants.blocks = clusters * cluster;
        }
        kernels.constants.suit_blocks(config, bits)?;
        Ok(kernels)
    }

    /// Bytes of a slot of the ring.
    fn slot_bytes(&self) -> usize {
        let steps = self.constants.slot_steps;
        let scales = if self.bits == WeightBits::Bf16 { 0 } else { (2 * steps).next_multiple_of(16) };
        16 * (64 * steps + scales)
    }

    /// A launch of so many blocks with so many slots.
    fn shape(&self, blocks: usize, slots: usize) -> LaunchConfig {
        let shared = (slots * self.slot_bytes()) as u32;
        LaunchConfig::new(blocks as u32, self.constants.threads as u32 + 32).shared(shared)
    }

    /// Slots of a block's ring: a multiprocessor is to hold two blocks of kernels that overlap.
    fn slots_that_fit(&self, gpu: &Gpu) -> Result<usize> {
        let blocks = if self.plan == EnginePlan::Overlapped { 2 } else { 1 };
        let resident = |slots: usize| -> Result<u64> {
            if slots * self.slot_bytes() + RESERVED > gpu.limits().shared_bytes_per_block as usize {
                return Ok(0);
            }
            self.with_ring().co_resident_blocks(self.shape(1, slots))
        };
        let wanted = blocks * u64::from(gpu.multiprocessors().max(1));
        for slots in (2..=MOST_SLOTS).rev() {
            if resident(slots).is_ok_and(|blocks| blocks >= wanted) {
                return Ok(slots);
            }
        }
        Err(Error::unsupported(
            format!("{blocks} blocks with rings of two slots of {} bytes do not fit", self.slot_bytes()),
            "lay the model out with fewer steps a slot, or use another plan",
        ))
    }

    /// Clusters that run at the same time: those of a GPU part share its multiprocessors, which may leave some over.
    fn clusters_that_fit(&self, gpu: &Gpu) -> Result<usize> {
        let cluster = self.constants.cluster;
        let shape = self.shape(cluster, self.slots_that_fit(gpu)?);
        Ok(self.with_ring().clusters_at_a_time(shape, cluster as u32)? as usize)
    }

    fn clocks_len(&self) -> usize {
        (self.constants.phases().len() * self.config.layers + 1) * self.constants.blocks * CLOCKS
    }

    /// Of the kernel that has a ring.
    fn with_ring(&self) -> &Kernel {
        &self.named[if self.plan == EnginePlan::Persistent { "persistent" } else { "phase" }]
    }
}

impl EngineModel {
    /// Lays a model's weights out for these kernels: each of their blocks takes shares of the matrices.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn new(gpu: &Gpu, kernels: &EngineKernels, weights: &impl EngineWeights) -> Result<EngineModel> {
        EngineModel::laid_out(gpu, Packing::of(&kernels.config, kernels.bits, kernels.constants), weights)
    }

    /// Whether its weights lie as these kernels read them.
    pub fn suits(&self, kernels: &EngineKernels) -> bool {
        self.packing.is_like(&Packing::of(&kernels.config, kernels.bits, kernels.constants))
    }
}

/// A model with the keys and values of one text, to be run in one way.
#[derive(Debug)]
pub struct Engine {
    model: Rc<EngineModel>,
    kernels: EngineKernels,
    tuning: EngineTuning,
    workspace: Workspace,
    graph: Option<Graph>,
    /// The position that the next step reads, known without asking the GPU, and the end of the prompt (0: no text yet).
    position: usize,
    prompt: usize,
}

/// GB/s of a copy of 1 GiB within the device, bytes read and written both counted: to compare a token's bytes with.
///
/// # Errors
/// [`Error::OutOfMemory`], [`Error::Driver`]; [`Error::Unsupported`] in the simulator.
pub fn copy_rate(gpu: &Gpu) -> Result<f64> {
    let n = 1 << 28;
    let (from, mut to) = (gpu.zeros::<f32>(n)?, gpu.zeros::<f32>(n)?);
    let time = gpu.time(&Bench::default(), |_| to.copy_from_buffer(&from))?;
    Ok(8.0 * n as f64 / time.median / 1e6)
}

/// What steps write.
#[derive(Debug)]
struct Workspace {
    caches: Buffer<u16>,
    tokens: Buffer<i32>,
    /// Position, length of the prompt, seed, bits of the temperature.
    state: Buffer<i32>,
    work: Buffer<f32>,
    /// What operators leave for each other.
    vectors: [Buffer<f32>; 2],
    logits: Buffer<f32>,
    best: Buffer<u64>,
    /// Blocks that have come to a meeting, and to their end.
    arrived: Buffer<u32>,
    clocks: Buffer<u64>,
}

impl Engine {
    /// A model on compiled kernels; on a real GPU a step is a CUDA graph.
    ///
    /// # Errors
    /// [`Error::Invalid`] for kernels of another shape; [`Error::Unsupported`] for a GPU whose multiprocessors have too little
    /// shared memory for the model's vectors; [`Error::OutOfMemory`]; [`Error::Driver`].
    pub fn new(model: &Rc<EngineModel>, kernels: &EngineKernels, tuning: EngineTuning) -> Result<Engine> {
        let (gpu, config, constants) = (&model.gpu, model.config, kernels.constants);
        if !model.suits(kernels) {
            let fix = "compile them with the model's shape, bits and constants";
            return Err(Error::invalid("these kernels were compiled for another model", fix));
        }
        let attended = config.heads * constants.splits * (config.head + 2);
        let work = 3 * config.width + config.query() + 2 * config.keys() + config.inner + attended;
        let longest = (config.query() + 2 * config.keys()).max(2 * config.inner).max(config.width);
        let workspace = Workspace {
            caches: gpu.zeros(config.cache_len())?,
            tokens: gpu.zeros(config.context)?,
            state: gpu.zeros(4)?,
            work: gpu.zeros(work)?,
            vectors: [gpu.zeros(longest)?, gpu.zeros(longest)?],
            logits: gpu.zeros(config.vocabulary)?,
            best: gpu.zeros(1)?,
            arrived: gpu.zeros(2)?,
            clocks: gpu.zeros(if constants.clocks { kernels.clocks_len() } else { 1 })?,
        };
        let mut engine = Engine {
            model: Rc::clone(model),
            kernels: kernels.clone(),
            tuning,
            workspace,
            graph: None,
            position: 0,
            prompt: 0,
        };
        engine.tune(tuning)?;
        Ok(engine)
    }

    /// The same kernels tuned in another way; the text stays.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn tune(&mut self, tuning: EngineTuning) -> Result<()> {
        let fit = self.kernels.slots_that_fit(&self.model.gpu)?;
        self.tuning = EngineTuning { slots: if tuning.slots == 0 { fit } else { tuning.slots.min(fit) }, ..tuning };
        self.tuning.ahead = match tuning.ahead {
            0 => self.tuning.slots,
            ahead => ahead.min(self.tuning.slots),
        };
        self.graph = None;
        if matches!(self.model.gpu, Gpu::Cuda(_)) {
            let gpu = self.model.gpu.clone();
            self.graph = Some(gpu.capture(|| self.queue_step())?);
        }
        Ok(())
    }

    /// From now on the CPU launches each kernel, and no graph.
    pub fn launch_one_by_one(&mut self) {
        self.graph = None;
    }

    /// The constants, those that were 0 filled in.
    pub fn tuning(&self) -> EngineTuning {
        self.tuning
    }

    /// Kernels that a token takes.
    pub fn kernels_a_token(&self) -> usize {
        match self.kernels.plan {
            EnginePlan::Operators => OPERATORS * self.model.config.layers + 1,
            EnginePlan::Fused | EnginePlan::Overlapped => {
                self.kernels.constants.phases().len() * self.model.config.layers + 1
            }
            EnginePlan::Persistent => 1,
        }
    }

    /// Queues the kernels of a step. The first one is never early: others read the position ahead of their wait, and the step
    /// before must have moved it.
    fn queue_step(&mut self) -> Result<()> {
        let shape = self.kernels.shape(self.kernels.constants.blocks, self.tuning.slots);
        let Engine { model, kernels: EngineKernels { plan, constants, named: kernels, .. }, tuning, workspace, .. } =
            self;
        let Workspace { caches, tokens, state, work, vectors: [first, second], logits, best, arrived, clocks } =
            workspace;
        let config = &model.config;
        let launch = Launch {
            layers: config.layers as i32,
            context: config.context as i32,
            slots: tuning.slots as i32,
            ahead: tuning.ahead as i32,
            layer: 0,
            phase: 0,
        };
        let EngineModel { weights, vectors, table, positions, angles, .. } = &**model;
        if *plan == EnginePlan::Persistent {
            let attributes =
                LaunchAttributes { cooperative: true, cluster: constants.cluster as u32, ..LaunchAttributes::NONE };
            let args = (
                weights, vectors, table, positions, angles, caches, tokens, state, work, logits, best, arrived, clocks,
                launch,
            );
            return kernels["persistent"].launch_with(shape, attributes, args);
        }
        let mut phase = |layer: i32,
                         phase: i32,
                         early: bool,
                         work: &mut Buffer<f32>,
                         caches: &mut Buffer<u16>,
                         state: &mut Buffer<i32>| {
            let attributes = LaunchAttributes {
                programmatic_stream_serialization: early,
                max_shared_carveout: *plan == EnginePlan::Overlapped,
                cluster: constants.cluster as u32,
                ..LaunchAttributes::NONE
            };
            let args = (
                weights,
                vectors,
                table,
                positions,
                angles,
                caches,
                &mut *tokens,
                state,
                work,
                &mut *logits,
                &mut *best,
                &mut *arrived,
                Launch { layer, phase, ..launch },
            );
            kernels["phase"].launch_with(shape, attributes, args)
        };
        let overlapped = *plan == EnginePlan::Overlapped;
        for layer in 0..launch.layers {
            if *plan != EnginePlan::Operators {
                for (at, &number) in constants.phases().iter().enumerate() {
                    phase(layer, number, overlapped && layer as usize + at > 0, work, caches, state)?;
                }
                continue;
            }
            let each = |elements: usize| LaunchConfig::for_elements(elements, constants.threads as u32);
            let one = LaunchConfig::new(1, constants.threads as u32);
            let matrix = |phase: i32, x: &Buffer<f32>, y: &mut Buffer<f32>| {
                kernels["matrix"].launch(shape, (weights, vectors, x, y, Launch { layer, phase, ..launch }))
            };
            kernels["norm_row"].launch(one, (vectors, &*work, &mut *first, layer, 0))?;
            matrix(0, first, second)?;
            let args = (&*second, angles, &mut *caches, &*state, &mut *work, layer, launch.context);
            kernels["keep"].launch(each((config.query() + 2 * config.keys()) / 2), args)?;
            phase(layer, 1, false, work, caches, state)?;
            kernels["gather"].launch(each(config.query() / 4), (&*work, &mut *first))?;
            matrix(2, first, second)?;
            kernels["add"].launch(each(config.width), (&mut *work, &*second))?;
            kernels["norm_row"].launch(one, (vectors, &*work, &mut *first, layer, 1))?;
            matrix(3, first, second)?;
            kernels["activate"].launch(each(config.inner), (&*second, &mut *first))?;
            matrix(4, first, second)?;
            kernels["add"].launch(each(config.width), (&mut *work, &*second))?;
        }
        phase(launch.layers, LOGITS, overlapped, work, caches, state)
    }

    /// Begins a text whose first positions are in the cache already: the next step reads `tokens[0]` at `position`, then the others.
    /// `caches`: keys and values in bf16, as [`EngineConfig::cache_len`] says. The most likely token is chosen, or with a
    /// `temperature` one is drawn, which `seed` decides.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no token, one that the vocabulary does not have, or a position past the context;
    /// [`Error::LengthMismatch`], [`Error::Driver`].
    pub fn begin(
        &mut self,
        tokens: &[u32],
        position: usize,
        caches: Option<&[u16]>,
        (temperature, seed): (f32, u32),
    ) -> Result<()> {
        let EngineConfig { context, vocabulary, .. } = self.model.config;
        let refuse = |what: String, fix: String| Err(Error::invalid(what, fix));
        if tokens.is_empty() || position + tokens.len() > context {
            let what = format!("{} tokens from position {position} on, and the context is {context}", tokens.len());
            return refuse(what, "give at least one token, and no more than there is room for".to_string());
        }
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= vocabulary) {
            let what = format!("the prompt has the token {token}, and the vocabulary ends at {}", vocabulary - 1);
            return refuse(what, "use the tokenizer that belongs to the model".to_string());
        }
        if !temperature.is_finite() || temperature < 0.0 {
            let fix = "give 0 for the most likely token each time, or a number up to about 2".to_string();
            return refuse(format!("a temperature of {temperature}"), fix);
        }
        (self.position, self.prompt) = (position, position + tokens.len());
        let mut all = vec![0_i32; context];
        all[position..].iter_mut().zip(tokens).for_each(|(to, &token)| *to = token as i32);
        let Workspace { caches: kept, tokens: ids, state, work, best, .. } = &mut self.workspace;
        ids.copy_from(&all)?;
        caches.map_or(Ok(()), |bits| kept.copy_from(bits))?;
        state.copy_from(&[
            position as i32,
            (position + tokens.len()) as i32,
            seed as i32,
            temperature.to_bits() as i32,
        ])?;
        let args = (&self.model.table, &self.model.positions, &*ids, &*state, work, best);
        self.kernels.named["embed"].launch(LaunchConfig::new(1, self.kernels.constants.threads as u32), args)
    }

    /// Queues one step, and returns at once: the token at the position is read, and the next one chosen.
    ///
    /// # Errors
    /// [`Error::Invalid`] before [`Engine::begin`], and when the context is full; [`Error::Driver`]; in the simulator what a
    /// kernel did wrong.
    pub fn step(&mut self) -> Result<()> {
        let context = self.model.config.context;
        if self.prompt == 0 || self.position >= context {
            return Err(Error::invalid(
                format!("there is nothing to read at position {}", self.position),
                format!("call `begin` with a prompt; the context has {context} positions"),
            ));
        }
        match &mut self.graph {
            Some(graph) => graph.launch()?,
            None => self.queue_step()?,
        }
        self.position += 1;
        Ok(())
    }

    /// The tokens so far, from position 0 on: the prompt, and what was chosen. Waits for the steps that are queued.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn tokens(&self) -> Result<Vec<u32>> {
        let there = (self.position + 1).max(self.prompt).min(self.model.config.context);
        Ok(self.workspace.tokens.to_host()?[..there].iter().map(|&token| token as u32).collect())
    }

    /// Continues a prompt by up to `count` tokens, as far as the context goes; `each` sees them as they come.
    ///
    /// # Errors
    /// As [`Engine::begin`] and [`Engine::step`].
    pub fn generate(
        &mut self,
        prompt: &[u32],
        count: usize,
        (temperature, seed): (f32, u32),
        mut each: impl FnMut(u32),
    ) -> Result<Vec<u32>> {
        self.begin(prompt, 0, None, (temperature, seed))?;
        for _ in 1..prompt.len() {
            self.step()?;
        }
        let mut new = Vec::new();
        while new.len() < count && self.position + 1 < self.model.config.context {
            self.step()?;
            let token = self.tokens()?[self.position];
            each(token);
            new.push(token);
        }
        Ok(new)
    }

    /// The µs of a token, the mean of so many around a context of which keys and values are whatever they are. Needs a GPU.
    ///
    /// # Errors
    /// As [`Engine::begin`] and [`Engine::step`]; [`Error::Unsupported`] in the simulator, which has no clock.
    pub fn token_us(&mut self, context: usize, tokens: usize) -> Result<f64> {
        const WARM_UP: usize = 4;
        let gpu = self.model.gpu.clone();
        self.begin(&[42], context - tokens / 2 - WARM_UP, None, (0.0, 0))?;
        (0..WARM_UP).try_for_each(|_| self.step())?;
        gpu.synchronize()?;
        let start = gpu.event()?;
        (0..tokens).try_for_each(|_| self.step())?;
        Ok(gpu.event()?.ms_since(&start)? * 1e3 / tokens as f64)
    }

    /// The logits of the last step, one for each token of the vocabulary. Waits for it.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn logits(&self) -> Result<Vec<f32>> {
        self.workspace.logits.to_host()
    }

    /// What the persistent plan's blocks have written down in the last step, with [`EngineConstants::clocks`]: for each phase,
    /// for each block, its multiprocessor's clock when the phase began, when all others had ended the one before, when the
    /// vector to multiply by was there, and when its own part was done; then how many cycles of these it waited for weights.
    ///
    /// # Errors
    /// [`Error::Invalid`] for kernels without clocks, [`Error::Driver`].
    pub fn clocks(&self) -> Result<Vec<Vec<[u64; CLOCKS]>>> {
        if !self.kernels.constants.clocks {
            return Err(Error::invalid("these kernels write no clocks", "compile them with `clocks: true`"));
        }
        let all = self.workspace.clocks.to_host()?;
        let (blocks, _) = all.as_chunks::<CLOCKS>();
        Ok(blocks.chunks(self.kernels.constants.blocks).map(<[_]>::to_vec).collect())
    }

    /// The position that the next step reads, and the token there. Waits for the steps that are queued.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn next(&self) -> Result<(usize, Option<u32>)> {
        let position = self.workspace.state.to_host()?[0] as usize;
        let tokens = self.workspace.tokens.to_host()?;
        Ok((position, tokens.get(position).map(|&token| token as u32)))
    }
}
