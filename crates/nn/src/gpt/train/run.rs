//! What a run is, and where it stands.

use super::plan::GptTrainConfig;
use crate::gpt::{SplitMix64, Tokens};
use candle_core::DType;
use gpulab::error::{Error, Result};

/// What is trained, on what, and where it stands: the same for every engine. Which pieces of the text a step reads follows from
/// seed, step and batch alone, so a run that was stopped goes on with those that it would have had, on another engine too.
#[derive(Debug, Clone)]
pub struct GptRun {
    /// What is trained, how long and how.
    pub plan: GptTrainConfig,
    /// The text that it learns from.
    pub tokens: Tokens,
    /// Steps that were made.
    pub step: u64,
    /// The loss of each step, in nats a token.
    pub losses: Vec<f32>,
    /// The norm of each step's gradients, before it was clipped. A run that was resumed knows those since then.
    pub norms: Vec<f32>,
}

impl GptRun {
    /// A run of which no step was made.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the model has fewer tokens than the tokenizer, a part of the text is shorter than its context, or a
    /// number of the plan trains nothing.
    pub fn new(plan: GptTrainConfig, tokens: Tokens) -> Result<GptRun> {
        let refuse = |what: String, fix: &str| Err(Error::invalid(what, fix));
        let (known, has) = (tokens.tokenizer.vocab_size(), plan.config.vocab_size);
        if known > has {
            return refuse(
                format!("the tokenizer knows {known} tokens, and the model {has}"),
                "set vocab_size to as many as the tokenizer knows",
            );
        }
        if plan.batch == 0 || plan.steps == 0 || plan.accumulate == 0 {
            return refuse("no step, or no text in a step, trains nothing".to_string(), "give at least 1 of each");
        }
        if plan.clip.is_nan() || plan.clip <= 0.0 {
            return refuse(format!("gradients of norm {} move nothing", plan.clip), "give a norm above 0, such as 1.0");
        }
        if !matches!(plan.dtype, DType::F32 | DType::BF16) {
            return refuse(
                format!("training in {} is not offered: its gradients would need a loss scale", plan.dtype.as_str()),
                "choose F32 or BF16",
            );
        }
        let shorter = tokens.train.len().min(tokens.held_out.len());
        if shorter <= plan.config.n_ctx + 1 {
            return refuse(
                format!("a part of the text has {shorter} tokens, and the model's context is {}", plan.config.n_ctx),
                "use a longer text, or a model with a smaller n_ctx",
            );
        }
        Ok(GptRun { plan, tokens, step: 0, losses: Vec::new(), norms: Vec::new() })
    }

    /// A batch of the next step: the position of each piece's first token in the context, the pieces' length, and their tokens, with
    /// the one that follows: length + 1 for each piece.
    pub fn pieces(&self, batch: usize) -> (usize, usize, Vec<u32>) {
        let (plan, all) = (&self.plan, &self.tokens.train);
        let context = plan.config.n_ctx;
        let short = !self.reads_whole_contexts();
        let (count, length) = if short { (4 * plan.batch, context / 4) } else { (plan.batch, context) };
        let number = self.step * plan.accumulate as u64 + batch as u64 + 1;
        let mut random = SplitMix64::new(plan.seed ^ number.wrapping_mul(0x9E37_79B9));
        let mut below = |end: usize| (random.unit() * end as f64) as usize;
        // Short pieces take turns along the context, so that each position is learned.
        let first = below(context - length + 1);
        let starts: Vec<usize> = (0..count).map(|_| below(all.len() - length)).collect();
        let texts = starts.into_iter().flat_map(|start| &all[start..=start + length]).copied().collect();
        (first, length, texts)
    }

    /// Whether the next step reads pieces as long as the context: before that a model knows nothing of what stands further away.
    pub fn reads_whole_contexts(&self) -> bool {
        self.step as f64 >= self.plan.short * self.plan.steps as f64 || !self.plan.config.n_ctx.is_multiple_of(4)
    }

    /// The first `most` held-out tokens, and more than the context has in any case.
    pub fn held_out(&self, most: usize) -> &[u32] {
        let held_out = &self.tokens.held_out;
        &held_out[..most.max(self.plan.config.n_ctx + 1).min(held_out.len())]
    }

    /// A step was made.
    pub(super) fn note(&mut self, loss: f32, norm: f32) {
        self.step += 1;
        self.losses.push(loss);
        self.norms.push(norm);
    }
}
