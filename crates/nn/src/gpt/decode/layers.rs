//! The launches of a layer, in each plan.

use super::super::Config;
use super::kernels::{Kernels, ONE_BLOCK, ROW_THREADS, Scratch, by_rows};
use super::layout::{Layer, Model};
use gpulab::error::Result;
use gpulab::launch::{LaunchAttributes, LaunchConfig};

/// Eleven kernels: norm, q with k and v, cache, attention, projection, addition; norm, matrix, GELU, matrix, addition.
pub(super) fn operators(
    kernels: &Kernels,
    config: &Config,
    layer: &Layer,
    scratch: &mut Scratch,
    number: usize,
) -> Result<()> {
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
pub(super) fn fused(
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
pub(super) fn halves(
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
pub(super) fn whole(kernels: &Kernels, config: &Config, model: &Model, scratch: &mut Scratch) -> Result<()> {
    let Scratch { residual, caches, logits, best, arrived, tokens, state, .. } = scratch;
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
