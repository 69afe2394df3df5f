//! Training a GPT on a text: batches, AdamW, a checkpoint to go on from, the loss on what was held out.

mod adamw;
mod checkpoint;
mod measure;
mod run;
#[cfg(test)]
mod tests;

pub use run::{Progress, run};

use super::{Config, Gpt, Random, Text, Weights};
use gpulab::error::{Error, Result};
use adamw::AdamW;
use candle_core::{Device, Tensor, Var};
use std::collections::BTreeMap;

/// What is trained, how long and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// The model's shape; its vocabulary is the 256 bytes.
    pub config: Config,
    /// Whole contexts of text in a step; in the first three quarters of the run, four times as many pieces of a quarter.
    pub batch: usize,
    /// Steps in all.
    pub steps: u64,
    /// The highest learning rate: it rises over the first steps, and falls to a tenth at the end.
    pub rate: f64,
    /// What the first weights and the choice of pieces follow from.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { config: Config::COURSE, batch: 4, steps: 3000, rate: 1.5e-3, seed: 1 }
    }
}

/// Steps over which the learning rate rises.
const RISE: f64 = 100.0;
/// For this part of the run pieces are short: what attention costs for each byte grows with the length, and most of what there is to
/// learn stands within a few words.
const SHORT: f64 = 0.75;

impl Plan {
    /// The learning rate of a step, from 0: up in a line, then down along half a cosine.
    pub fn rate_at(&self, step: u64) -> f64 {
        let (step, steps) = (step as f64, self.steps as f64);
        let rise = RISE.min(steps / 10.0).max(1.0);
        let way = ((step - rise) / (steps - rise).max(1.0)).clamp(0.0, 1.0);
        let fall = 0.1 + 0.9 * 0.5 * (1.0 + (std::f64::consts::PI * way).cos());
        self.rate * ((step + 1.0) / rise).min(1.0) * fall
    }
}

/// A training run.
#[derive(Debug)]
pub struct Trainer {
    plan: Plan,
    text: Text,
    parameters: BTreeMap<String, Var>,
    optimiser: AdamW,
    model: Gpt,
    step: u64,
    losses: Vec<f32>,
}

impl Trainer {
    /// Starts from random weights.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the model does not read bytes or the text is shorter than its context; what candle says.
    pub fn new(plan: Plan, text: Text, device: &Device) -> Result<Trainer> {
        let weights = Weights::random(plan.config, plan.seed)?;
        Trainer::with(plan, text, &weights, device)
    }

    fn with(plan: Plan, text: Text, weights: &Weights, device: &Device) -> Result<Trainer> {
        let refuse = |what: String, fix: &str| Err(Error::Invalid { what, fix: fix.to_string() });
        if plan.config.vocab_size != 256 {
            return refuse(
                format!("a model with {} tokens does not read bytes", plan.config.vocab_size),
                "set vocab_size to 256",
            );
        }
        if plan.batch == 0 || plan.steps == 0 {
            return refuse("no step, or no text in a step, trains nothing".to_string(), "give at least 1 of each");
        }
        let shorter = text.train.len().min(text.held_out.len());
        if shorter <= plan.config.n_ctx + 1 {
            return refuse(
                format!("a part of the text has {shorter} bytes, and the model's context is {}", plan.config.n_ctx),
                "use a longer text, or a model with a smaller n_ctx",
            );
        }
        let parameters = weights
            .iter()
            .map(|(name, host)| {
                let tensor = Tensor::from_slice(&host.values, host.shape.as_slice(), device)?;
                Ok((name.to_string(), Var::from_tensor(&tensor)?))
            })
            .collect::<Result<BTreeMap<String, Var>>>()?;
        // The model's tensors and the parameters are the same memory: what the optimiser sets, the model computes with.
        let model = Gpt::build(plan.config, &|name| Ok(parameters[name].as_tensor().clone()), true)?;
        let optimiser = AdamW::new(&parameters)?;
        Ok(Trainer { plan, text, parameters, optimiser, model, step: 0, losses: Vec::new() })
    }

    /// One step: gives the loss of its batch, in nats a byte, before the step was made.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the loss or a gradient is no finite number: the step is then not made. What candle says.
    pub fn step(&mut self) -> Result<f32> {
        let (first, inputs, targets) = self.batch()?;
        let logits = self.model.logits_from(first, &inputs)?.flatten_to(1)?;
        let loss = candle_nn::loss::cross_entropy(&logits, &targets)?;
        let value = loss.to_scalar::<f32>()?;
        let gradients = loss.backward()?;
        let norm = self.optimiser.norm(&self.parameters, &gradients)?;
        if !value.is_finite() || !norm.is_finite() {
            return Err(Error::Invalid {
                what: format!("step {}: the loss is {value}, the gradients' norm {norm}", self.step + 1),
                fix: "the last checkpoint is good: go on from it with --resume and a smaller --rate".to_string(),
            });
        }
        self.optimiser.step(&self.parameters, &gradients, self.plan.rate_at(self.step), norm)?;
        self.step += 1;
        self.losses.push(value);
        Ok(value)
    }

    /// The pieces of a step, the position of their first byte, and what follows each of their bytes. They depend on seed and step
    /// alone, so a run that was stopped goes on with those that it would have had.
    fn batch(&self) -> Result<(usize, Tensor, Tensor)> {
        let (context, all) = (self.plan.config.n_ctx, &self.text.train);
        let short = !self.reads_whole_contexts();
        let (pieces, length) = if short { (4 * self.plan.batch, context / 4) } else { (self.plan.batch, context) };
        let mut random = Random::new(self.plan.seed ^ (self.step + 1).wrapping_mul(0x9E37_79B9));
        let mut below = |end: usize| (random.unit() * end as f64) as usize;
        // Short pieces take turns along the context, so that each position is learned.
        let first = below(context - length + 1);
        let (mut inputs, mut targets) = (Vec::new(), Vec::new());
        for _ in 0..pieces {
            let start = below(all.len() - length);
            let piece = &all[start..=start + length];
            inputs.extend(piece[..length].iter().map(|byte| u32::from(*byte)));
            targets.extend(piece[1..].iter().map(|byte| u32::from(*byte)));
        }
        let device = self.model.device();
        let inputs = Tensor::from_vec(inputs, (pieces, length), device)?;
        Ok((first, inputs, Tensor::from_vec(targets, pieces * length, device)?))
    }

    /// Whether the next step reads pieces as long as the context: before that a model knows nothing of what stands further away.
    pub fn reads_whole_contexts(&self) -> bool {
        self.step as f64 >= SHORT * self.plan.steps as f64 || !self.plan.config.n_ctx.is_multiple_of(4)
    }

    /// What is trained, and how.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Steps that were made.
    pub fn steps_made(&self) -> u64 {
        self.step
    }

    /// The loss of each step, in nats a byte.
    pub fn losses(&self) -> &[f32] {
        &self.losses
    }

    /// The weights as they are now, on the host.
    ///
    /// # Errors
    /// What candle says.
    pub fn weights(&self) -> Result<Weights> {
        let file = checkpoint::host(self.parameters.iter().map(|(name, var)| (name.clone(), var.as_tensor())))?;
        Weights::from_file(self.plan.config, file)
    }
}
