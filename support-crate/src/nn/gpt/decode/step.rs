//! The launches of a step, in each plan.

use super::super::Config;
use super::layout::{Layer, Model};
use super::plan::{Plan, SPLIT, Tuning};
use crate::error::Result;
use crate::gpu::{Args, Buffer, Gpu, Kernel};
use crate::ladder::operator;
use crate::launch::{LaunchConfig, LaunchExtras, Source};
use std::collections::HashMap;

/// Threads of the kernels whose blocks have a warp for each row.
const ROW_THREADS: usize = 256;
/// Threads of the one block that looks for the largest logit.
const ONE_BLOCK: u32 = ROW_THREADS as u32;

/// The kernels of `kernels/decode/`, by name.
#[derive(Debug)]
pub(super) struct Kernels {
    named: HashMap<&'static str, Kernel>,
    tuning: Tuning,
    multiprocessors: usize,
    /// Blocks of a cluster: one in the simulator, which then does the work of all.
    cluster: u32,
    /// Clusters of the one kernel of [`Plan::Whole`].
    clusters: u32,
}

/// What steps write.
#[derive(Debug)]
pub(super) struct Scratch {
    /// The residual; by halves in three turns: one is read, one added to, one becomes zero.
    residual: Buffer<f32>,
    /// Normed, q with k and v, attended, hidden units, what is added to the residual.
    vectors: [Buffer<f32>; 5],
    /// For each layer the keys of all heads, then their values.
    pub caches: Buffer<u16>,
    pub logits: Buffer<f32>,
    /// The bias of the head: none.
    zeros: Buffer<f32>,
    best: Buffer<u64>,
    /// Blocks that have come to a meeting, and to their end.
    arrived: Buffer<u32>,
    pub tokens: Buffer<i32>,
    /// Position, length of the prompt, seed, bits of the temperature.
    pub state: Buffer<i32>,
}

impl Kernels {
    pub(super) fn compile(gpu: &Gpu, config: &Config, plan: Plan, tuning: Tuning) -> Result<Kernels> {
        let files: &[&str] = match plan {
            Plan::Operators => &["decode/ends", "decode/operators"],
            Plan::Fused => &["decode/ends", "decode/operators", "decode/fused"],
            Plan::Halves => &["decode/ends", "decode/halves"],
            Plan::Whole => &["decode/ends", "decode/whole"],
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
        self.launch_in(name, shape, early, 1, args)
    }

    /// As [`Kernels::launch`], in clusters.
    fn launch_in<'a>(
        &self,
        name: &str,
        shape: LaunchConfig,
        early: bool,
        cluster: u32,
        args: impl Args<'a>,
    ) -> Result<()> {
        let most_shared = early && self.tuning.most_shared;
        let extras = LaunchExtras { early, cluster, most_shared, ..LaunchExtras::NONE };
        self.named[name].launch_with(shape, extras, args)
    }
}

impl Scratch {
    pub(super) fn new(gpu: &Gpu, config: &Config) -> Result<Scratch> {
        let Config { n_layer, n_embd: width, n_ctx, vocab_size, .. } = *config;
        let vector = |len: usize| gpu.zeros::<f32>(len);
        Ok(Scratch {
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

/// Embeds the first token of a text.
pub(super) fn embed(kernels: &Kernels, model: &Model, scratch: &mut Scratch) -> Result<()> {
    let Scratch { residual, best, tokens, state, .. } = scratch;
    let args = (&model.weights, model.table as i64, &model.positions, &*tokens, &*state, residual, best);
    kernels.launch("embed", LaunchConfig::new(1, kernels.threads()), false, args)
}

/// Queues a step. The first kernel is never early: others read the position ahead of their wait, and the step before must
/// have moved it.
pub(super) fn queue(
    kernels: &Kernels,
    config: &Config,
    plan: Plan,
    early: bool,
    model: &Model,
    scratch: &mut Scratch,
) -> Result<()> {
    if plan == Plan::Whole {
        return whole(kernels, config, model, scratch);
    }
    for number in 0..config.n_layer {
        let early_first = early && number > 0;
        match plan {
            Plan::Operators => operators(kernels, config, &model.layers[number], scratch, number)?,
            Plan::Fused => fused(kernels, config, [early_first, early], &model.layers[number], scratch, number)?,
            _ => halves(kernels, config, [early_first, early], model, scratch, number)?,
        }
    }
    let (vocabulary, context) = (config.vocab_size, config.n_ctx as i32);
    let Scratch { residual, vectors: [normed, ..], logits, zeros, best, arrived, tokens, state, .. } = scratch;
    if plan == Plan::Operators {
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
    let half = if plan == Plan::Halves { 2 * config.n_layer as i32 } else { 0 };
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

/// Eleven kernels: norm, q with k and v, cache, attention, projection, addition; norm, matrix, GELU, matrix, addition.
fn operators(kernels: &Kernels, config: &Config, layer: &Layer, scratch: &mut Scratch, number: usize) -> Result<()> {
    let (width, context) = (config.n_embd, config.n_ctx as i32);
    let Scratch { residual: x, vectors: [normed, qkv, attended, units, add], caches, state, .. } = scratch;
    let number = number as i32;
    let one = LaunchConfig::new(1, ONE_BLOCK);
    let each = |n: usize| LaunchConfig::for_elements(n, ROW_THREADS as u32);
    let [weight, bias] = &layer.norm_1;
    kernels.launch("layer_norm", one, false, (&*x, weight, bias, &mut *normed))?;
    let (rows, columns) = (3 * width, width as i32);
    let linear = &layer.qkv;
    kernels.launch(
        "matvec",
        by_rows(rows),
        false,
        (&linear.weight, &linear.bias, &*normed, &mut *qkv, rows as i32, columns),
    )?;
    kernels.launch("keep", each(width), false, (&*qkv, &mut *caches, &*state, number, context))?;
    let heads = LaunchConfig::new(config.n_head as u32, ROW_THREADS as u32);
    kernels.launch("attend", heads, false, (&*qkv, &*caches, &*state, &mut *attended, number, context))?;
    let linear = &layer.out;
    kernels.launch(
        "matvec",
        by_rows(width),
        false,
        (&linear.weight, &linear.bias, &*attended, &mut *add, columns, columns),
    )?;
    kernels.launch("add", each(width), false, (&mut *x, &*add, columns))?;
    let [weight, bias] = &layer.norm_2;
    kernels.launch("layer_norm", one, false, (&*x, weight, bias, &mut *normed))?;
    let (linear, hidden) = (&layer.up, 4 * width);
    kernels.launch(
        "matvec",
        by_rows(hidden),
        false,
        (&linear.weight, &linear.bias, &*normed, &mut *units, hidden as i32, columns),
    )?;
    kernels.launch("gelu_each", each(hidden), false, (&mut *units, hidden as i32))?;
    let linear = &layer.down;
    kernels.launch(
        "matvec",
        by_rows(width),
        false,
        (&linear.weight, &linear.bias, &*units, &mut *add, columns, hidden as i32),
    )?;
    kernels.launch("add", each(width), false, (&mut *x, &*add, columns))
}

/// Five kernels: q with k and v, attention, projection; up, down.
fn fused(
    kernels: &Kernels,
    config: &Config,
    [first, early]: [bool; 2],
    layer: &Layer,
    scratch: &mut Scratch,
    number: usize,
) -> Result<()> {
    let (width, context) = (config.n_embd, config.n_ctx as i32);
    let Scratch { residual: x, vectors: [_, qkv, attended, units, _], caches, state, .. } = scratch;
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
    scratch: &mut Scratch,
    number: usize,
) -> Result<()> {
    let Scratch { residual, caches, state, .. } = scratch;
    let cluster = kernels.cluster;
    let shape = LaunchConfig::new(config.n_head as u32 * cluster, kernels.threads()).shared(kernels.tiles(config));
    let (ahead, bytes) = run_ahead(kernels, config, model, 2 * number);
    let layer = number as i32;
    let context = config.n_ctx as i32;
    let args =
        (&model.weights, &model.vectors, caches, &*state, &mut *residual, layer, context, ahead as i64, bytes as i32);
    kernels.launch_in("attention_half", shape, first, cluster, args)?;
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
fn whole(kernels: &Kernels, config: &Config, model: &Model, scratch: &mut Scratch) -> Result<()> {
    let Scratch { residual, caches, logits, best, arrived, tokens, state, .. } = scratch;
    let cluster = kernels.cluster;
    let shape = LaunchConfig::new(kernels.clusters * cluster, kernels.threads()).shared(kernels.tiles(config));
    let extras = LaunchExtras { cluster, cooperative: kernels.tuning.cooperative, ..LaunchExtras::NONE };
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
    kernels.named["whole"].launch_with(shape, extras, args)
}
