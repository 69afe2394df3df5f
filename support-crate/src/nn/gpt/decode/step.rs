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
}

/// What steps write.
#[derive(Debug)]
pub(super) struct Scratch {
    /// The residual, before and behind the half of a layer under way, and the one that becomes zero meanwhile.
    x: [Buffer<f32>; 3],
    /// Normed, q with k and v, attended, hidden units, what is added to the residual.
    vectors: [Buffer<f32>; 5],
    /// For each layer the keys of all heads, then their values.
    pub caches: Vec<Buffer<u16>>,
    pub logits: Buffer<f32>,
    /// The bias of the head: none.
    zeros: Buffer<f32>,
    best: Buffer<u64>,
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
                "THREADS" if matches!(*path, "decode/ends" | "decode/halves") => tuning.threads,
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
        Ok(Kernels { named, tuning, multiprocessors, cluster })
    }

    fn threads(&self) -> u32 {
        self.tuning.threads as u32
    }

    /// One launch; with `early` it may start before the one in front has ended.
    fn launch<'a>(&self, name: &str, shape: LaunchConfig, early: bool, args: impl Args<'a>) -> Result<()> {
        self.named[name].launch_with(shape, LaunchExtras { early, cluster: 1 }, args)
    }
}

impl Scratch {
    pub(super) fn new(gpu: &Gpu, config: &Config) -> Result<Scratch> {
        let Config { n_layer, n_embd: width, n_ctx, vocab_size, .. } = *config;
        let vector = |len: usize| gpu.zeros::<f32>(len);
        Ok(Scratch {
            x: [vector(width)?, vector(width)?, vector(width)?],
            vectors: [vector(width)?, vector(3 * width)?, vector(width)?, vector(4 * width)?, vector(width)?],
            caches: (0..n_layer).map(|_| gpu.zeros(2 * width * n_ctx)).collect::<Result<_>>()?,
            logits: vector(vocab_size)?,
            zeros: vector(vocab_size)?,
            best: gpu.zeros(1)?,
            tokens: gpu.zeros(n_ctx)?,
            state: gpu.zeros(4)?,
        })
    }
}

/// A warp for each row.
fn by_rows(rows: usize) -> LaunchConfig {
    LaunchConfig::for_elements(32 * rows, ROW_THREADS as u32)
}

/// Queues a step.
pub(super) fn queue(
    kernels: &Kernels,
    config: &Config,
    plan: Plan,
    early: bool,
    model: &Model,
    scratch: &mut Scratch,
) -> Result<()> {
    let context = config.n_ctx as i32;
    let one = LaunchConfig::new(1, kernels.threads());
    let [x, sum, _] = &mut scratch.x;
    let args = (&model.tokens, &model.positions, &scratch.tokens, &scratch.state, x, sum, &mut scratch.best);
    // Never early: behind it kernels read the position ahead of their wait, and the step before must have moved it.
    kernels.launch("embed", one, false, args)?;
    for (number, layer) in model.layers.iter().enumerate() {
        match plan {
            Plan::Operators => operators(kernels, config, layer, scratch, number)?,
            Plan::Fused => fused(kernels, config, early, layer, scratch, number)?,
            Plan::Halves => halves(kernels, config, early, model, scratch, number)?,
        }
    }
    let Scratch { x, vectors: [normed, ..], logits, zeros, best, tokens, state, .. } = scratch;
    let last = match plan {
        Plan::Halves => &x[2 * model.layers.len() % 3],
        _ => &x[0],
    };
    let (vocabulary, [weight, bias]) = (config.vocab_size, &model.norm);
    if plan == Plan::Operators {
        kernels.launch("layer_norm", LaunchConfig::new(1, ONE_BLOCK), false, (last, weight, bias, &mut *normed))?;
        let args = (&model.tokens, &*zeros, &*normed, &mut *logits, vocabulary as i32, config.n_embd as i32);
        kernels.launch("matvec", by_rows(vocabulary), false, args)?;
        let args = (&*logits, &*state, &mut *best, vocabulary as i32);
        kernels.launch("argmax", LaunchConfig::new(1, ONE_BLOCK), false, args)?;
    } else {
        let Tuning { threads, lines, logits_blocks, .. } = kernels.tuning;
        let blocks = vocabulary.div_ceil(lines * threads / 32).min(logits_blocks * kernels.multiprocessors);
        let shape = LaunchConfig::new(blocks as u32, kernels.threads());
        let args = (last, weight, bias, &model.tokens, &*state, logits, &mut *best, vocabulary as i32);
        kernels.launch("logits", shape, early, args)?;
    }
    kernels.launch("pick", LaunchConfig::new(1, 32), early, (&*best, tokens, state, context))
}

/// Eleven kernels: norm, q with k and v, cache, attention, projection, addition; norm, matrix, GELU, matrix, addition.
fn operators(kernels: &Kernels, config: &Config, layer: &Layer, scratch: &mut Scratch, number: usize) -> Result<()> {
    let (width, context) = (config.n_embd, config.n_ctx as i32);
    let Scratch { x: [x, ..], vectors: [normed, qkv, attended, units, add], caches, state, .. } = scratch;
    let cache = &mut caches[number];
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
    kernels.launch("keep", each(width), false, (&*qkv, &mut *cache, &*state, context))?;
    let heads = LaunchConfig::new(config.n_head as u32, ROW_THREADS as u32);
    kernels.launch("attend", heads, false, (&*qkv, &*cache, &*state, &mut *attended, context))?;
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
    early: bool,
    layer: &Layer,
    scratch: &mut Scratch,
    number: usize,
) -> Result<()> {
    let (width, context) = (config.n_embd, config.n_ctx as i32);
    let Scratch { x: [x, ..], vectors: [_, qkv, attended, units, _], caches, state, .. } = scratch;
    let cache = &mut caches[number];
    let (linear, [weight, bias]) = (&layer.qkv, &layer.norm_1);
    let args = (&*x, weight, bias, &linear.weight, &linear.bias, &mut *qkv, &mut *cache, &*state, context);
    kernels.launch("norm_qkv", by_rows(3 * width), early, args)?;
    let heads = LaunchConfig::new(config.n_head as u32, ROW_THREADS as u32);
    let args = (&*qkv, &*cache, &*state, &mut *attended, context);
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

/// Two kernels, which read one residual, add to the next, and zero the one behind that.
fn halves(
    kernels: &Kernels,
    config: &Config,
    early: bool,
    model: &Model,
    scratch: &mut Scratch,
    number: usize,
) -> Result<()> {
    let (context, layer) = (config.n_ctx as i32, &model.layers[number]);
    let Scratch { x, caches, state, .. } = scratch;
    let (x, sum, spare) = in_turn(x, 2 * number);
    let (qkv, out, [weight, bias]) = (&layer.qkv, &layer.out, &layer.norm_1);
    let cluster = kernels.cluster;
    let slots = config.n_ctx.div_ceil(cluster as usize);
    let shared = 2 * slots * config.head() * size_of::<u16>();
    let shape = LaunchConfig::new(config.n_head as u32 * cluster, kernels.threads()).shared(shared as u32);
    let args = (
        &*x,
        weight,
        bias,
        &qkv.weight,
        &qkv.bias,
        &out.weight,
        &out.bias,
        &mut caches[number],
        &*state,
        &mut *sum,
        &mut *spare,
        context,
    );
    kernels.named["attention_half"].launch_with(shape, LaunchExtras { early, cluster }, args)?;
    let (up, down, [weight, bias]) = (&layer.up, &layer.down, &layer.norm_2);
    let blocks = (4 * config.n_embd).div_ceil(kernels.tuning.units);
    let shape = LaunchConfig::new(blocks as u32, kernels.threads());
    // Whole 16 bytes for each block, as far as the table goes.
    let share = kernels.tuning.ahead / blocks / 16 * 16;
    let from = number * share * blocks;
    let share = if from + share * blocks <= model.tokens.bytes() { share } else { 0 };
    let args = (
        &*sum,
        weight,
        bias,
        &up.weight,
        &up.bias,
        &down.weight,
        &down.bias,
        &mut *spare,
        &mut *x,
        &model.tokens,
        from as i32,
        share as i32,
    );
    kernels.launch("mlp_half", shape, early, args)
}

/// The three residuals as half a layer number `half` uses them: it reads one, adds to the next, zeroes the last.
fn in_turn(x: &mut [Buffer<f32>; 3], half: usize) -> (&mut Buffer<f32>, &mut Buffer<f32>, &mut Buffer<f32>) {
    let [a, b, c] = x;
    match half % 3 {
        0 => (a, b, c),
        1 => (b, c, a),
        _ => (c, a, b),
    }
}
