//! A step: the launches in front of the layers and behind them.

use super::super::Config;
use super::kernels::{Kernels, ONE_BLOCK, Scratch, by_rows};
use super::layers::{fused, halves, operators, whole};
use super::layout::Model;
use super::plan::{Plan, Tuning};
use gpulab::error::Result;
use gpulab::launch::LaunchConfig;

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
