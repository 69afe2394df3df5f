//! A run on candle.

use super::checkpoint::GptCheckpoint;
use super::engine::GptEngine;
use super::plan::{BETAS, DECAY, EPSILON, GptTrainConfig};
use super::run::GptRun;
use crate::gpt::{Gpt, LanguageModel, Text, Tokens, Weights};
use crate::tensors::{HostTensor, TensorFile};
use candle_core::backprop::GradStore;
use candle_core::{Device, Tensor, Var};
use gpulab::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// The gradient of each parameter, in f32.
type Gradients = BTreeMap<String, Tensor>;

/// A training run on candle.
#[derive(Debug)]
pub struct GptTrainer {
    run: GptRun,
    parameters: BTreeMap<String, Var>,
    optimiser: AdamW,
    model: Gpt,
}

impl GptTrainer {
    /// Starts from random weights.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] when the model has fewer tokens than the tokenizer, a part of the text is shorter than its
    /// context, or a number of the plan trains nothing; what candle says.
    pub fn new(plan: GptTrainConfig, tokens: Tokens, device: &Device) -> Result<GptTrainer> {
        let weights = Weights::random(plan.config, plan.seed)?;
        GptTrainer::with(GptRun::new(plan, tokens)?, &weights, device)
    }

    fn with(run: GptRun, weights: &Weights, device: &Device) -> Result<GptTrainer> {
        let parameters = weights
            .iter()
            .map(|(name, host)| {
                let tensor = Tensor::from_slice(&host.values, host.shape.as_slice(), device)?;
                Ok((name.to_string(), Var::from_tensor(&tensor)?))
            })
            .collect::<Result<BTreeMap<String, Var>>>()?;
        // The model's tensors and the parameters are the same memory: what the optimiser sets, the model computes with.
        let model = Gpt::build(run.plan.config, &|name| Ok(parameters[name].as_tensor().clone()), true)?;
        let optimiser = AdamW::new(&parameters)?;
        Ok(GptTrainer { run, parameters, optimiser, model })
    }

    /// One step: gives the loss of its batches, in nats a token, before the step was made.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] when the loss or a gradient is no finite number: the step is then not made, and parameters and
    /// moments are as they were before it. What candle says.
    pub fn step(&mut self) -> Result<f32> {
        let (value, gradients) = self.gradients()?;
        let norm = norm(&gradients)?;
        if !value.is_finite() || !norm.is_finite() {
            return Err(Error::invalid(
                format!("step {}: the loss is {value}, the gradients' norm {norm}", self.run.step + 1),
                "the last checkpoint is good: go on from it with --resume and a smaller --rate",
            ));
        }
        let shrink = (self.run.plan.clip / norm.max(1e-12)).min(1.0);
        self.optimiser.step(&self.parameters, &gradients, self.run.plan.rate_at(self.run.step), shrink)?;
        self.run.note(value, norm as f32);
        Ok(value)
    }

    /// Loss and gradients of the next step: the mean over all its batches.
    ///
    /// # Errors
    /// What candle says.
    pub fn gradients(&self) -> Result<(f32, BTreeMap<String, Tensor>)> {
        // The trainer may come from another cell of a notebook.
        crate::reserve_tensor_ids(self.parameters.values().map(Var::as_tensor))?;
        // In bf16 the model is a copy of the parameters, and the copy is in the graph: gradients come back to those in f32.
        let GptTrainConfig { config, dtype, accumulate, .. } = self.run.plan;
        let cast = |name: &str| Ok(self.parameters[name].as_tensor().to_dtype(dtype)?);
        let model = Gpt::build(config, &cast, true)?;
        let (mut value, mut sum) = (0.0, Gradients::new());
        for batch in 0..accumulate {
            let (first, inputs, targets) = self.batch(batch)?;
            let logits = model.logits_from(first, &inputs)?.flatten_to(1)?;
            let loss = (candle_nn::loss::cross_entropy(&logits, &targets)? / accumulate as f64)?;
            value += loss.to_scalar::<f32>()?;
            self.add(&mut sum, &loss.backward()?)?;
        }
        Ok((value, sum))
    }

    fn add(&self, sum: &mut Gradients, gradients: &GradStore) -> Result<()> {
        for (name, var) in &self.parameters {
            let Some(gradient) = gradients.get(var.as_tensor()) else { continue };
            // Without `detach` it would keep the graph that it was computed by.
            let gradient = match sum.remove(name) {
                Some(before) => (before + gradient.detach())?,
                None => gradient.detach(),
            };
            sum.insert(name.clone(), gradient);
        }
        Ok(())
    }

    /// The pieces of a batch, the position of their first token, and what follows each of their tokens.
    fn batch(&self, batch: usize) -> Result<(usize, Tensor, Tensor)> {
        let (first, length, texts) = self.run.pieces(batch);
        let part = |from: usize| -> Vec<u32> {
            texts.chunks_exact(length + 1).flat_map(|text| &text[from..from + length]).copied().collect()
        };
        let (count, device) = (texts.len() / (length + 1), self.model.device());
        let inputs = Tensor::from_vec(part(0), (count, length), device)?;
        Ok((first, inputs, Tensor::from_vec(part(1), count * length, device)?))
    }

    /// What is trained, and how.
    pub fn config(&self) -> &GptTrainConfig {
        &self.run.plan
    }

    /// The text that it learns from.
    pub fn tokens(&self) -> &Tokens {
        &self.run.tokens
    }

    /// The model that is trained: its tensors are the memory of [`GptTrainer::vars`].
    pub fn model(&self) -> &Gpt {
        &self.model
    }

    /// The parameters by GPT-2's names, as candle's optimisers take them.
    /// [`Config::parameters`](crate::gpt::Config::parameters) has their shapes.
    pub fn vars(&self) -> &BTreeMap<String, Var> {
        &self.parameters
    }

    /// Steps that were made.
    pub fn steps_made(&self) -> u64 {
        self.run.step
    }

    /// The loss of each step, in nats a token.
    pub fn losses(&self) -> &[f32] {
        &self.run.losses
    }

    /// The norm of each step's gradients, before it was clipped. A run that was resumed knows those since then.
    pub fn norms(&self) -> &[f32] {
        &self.run.norms
    }

    /// The weights as they are now, on the host.
    ///
    /// # Errors
    /// What candle says.
    pub fn weights(&self) -> Result<Weights> {
        let file = host(self.parameters.iter().map(|(name, var)| (name.clone(), var.as_tensor())))?;
        Weights::from_file(self.run.plan.config, file)
    }

    /// The model as it is now, to write text with.
    ///
    /// # Errors
    /// What candle says.
    pub fn language_model(&self) -> Result<LanguageModel> {
        let tensor = |name: &str| Ok(self.parameters[name].as_tensor().detach());
        let gpt = Gpt::build(self.run.plan.config, &tensor, false)?;
        Ok(LanguageModel { gpt, tokenizer: self.run.tokens.tokenizer.clone() })
    }
}

/// The Euclidean norm of all gradients together: one number fetched from the device.
fn norm(gradients: &Gradients) -> Result<f64> {
    let squares = gradients.values().map(|gradient| Ok(gradient.sqr()?.sum_all()?)).collect::<Result<Vec<Tensor>>>()?;
    Ok(f64::from(Tensor::stack(&squares, 0)?.sum_all()?.to_scalar::<f32>()?).sqrt())
}

// ----------------------------------------------------------------------
// A run that was stopped goes on from here, as if it had not been.

/// Copies tensors to the host.
fn host<'a>(tensors: impl Iterator<Item = (String, &'a Tensor)>) -> Result<TensorFile> {
    let mut file = TensorFile::default();
    for (name, tensor) in tensors {
        let values = tensor.flatten_all()?.to_vec1::<f32>()?;
        file.tensors.insert(name, HostTensor::new(tensor.dims(), values));
    }
    Ok(file)
}

impl GptTrainer {
    /// Writes all that the run needs to go on, whole or not at all: [`GptCheckpoint::write`].
    ///
    /// # Errors
    /// As [`TensorFile::write`].
    pub fn save(&self, path: &Path) -> Result<()> {
        self.checkpoint()?.write(path)
    }

    /// Goes on from a checkpoint, with its own plan and tokenizer. `rate`: with another highest learning rate, as after a loss
    /// that became NaN.
    ///
    /// # Errors
    /// As [`GptCheckpoint::read`]; [`gpulab::Error::Invalid`] for a run on another text.
    pub fn resume(path: &Path, text: &Text, rate: Option<f64>, device: &Device) -> Result<GptTrainer> {
        let mut checkpoint = GptCheckpoint::read(path)?;
        checkpoint.plan.rate = rate.unwrap_or(checkpoint.plan.rate);
        GptTrainer::from_checkpoint(&checkpoint, text, device)
    }

    /// Goes on from a checkpoint that was read, whichever engine has written it.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] for a run on another text; what candle says.
    pub fn from_checkpoint(checkpoint: &GptCheckpoint, text: &Text, device: &Device) -> Result<GptTrainer> {
        let mut trainer = GptTrainer::with(checkpoint.run(text)?, &checkpoint.parameters, device)?;
        let AdamW { m, v, steps } = &mut trainer.optimiser;
        for (own, given) in [(m, &checkpoint.m), (v, &checkpoint.v)] {
            for (name, host) in given.iter() {
                own.insert(name.to_string(), Tensor::from_slice(&host.values, host.shape.as_slice(), device)?);
            }
        }
        *steps = checkpoint.step;
        Ok(trainer)
    }
}

impl GptTrainer {
    /// [`Gpt::token_loss`] of the held-out part.
    ///
    /// # Errors
    /// What candle says.
    pub fn held_out_loss(&self) -> Result<f64> {
        // Over plain tensors nothing is kept for a backward pass.
        self.language_model()?.gpt.token_loss(&self.run.tokens.held_out)
    }
}

impl GptEngine for GptTrainer {
    fn name(&self) -> &'static str {
        "candle"
    }

    fn run(&self) -> &GptRun {
        &self.run
    }

    fn step(&mut self) -> Result<f32> {
        GptTrainer::step(self)
    }

    fn held_out_loss_of(&mut self, most: usize) -> Result<f64> {
        // Over plain tensors nothing is kept for a backward pass.
        self.language_model()?.gpt.token_loss(self.run.held_out(most))
    }

    fn checkpoint(&self) -> Result<GptCheckpoint> {
        let moment = |all: &BTreeMap<String, Tensor>| {
            let file = host(all.iter().map(|(name, tensor)| (name.clone(), tensor)))?;
            Weights::from_file(self.run.plan.config, file)
        };
        let state = [self.weights()?, moment(&self.optimiser.m)?, moment(&self.optimiser.v)?];
        Ok(GptCheckpoint::of(&self.run, self.name(), state))
    }

    fn device(&self) -> Device {
        self.model.device().clone()
    }
}

// ----------------------------------------------------------------------
// AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization"), with moments that a checkpoint can keep.

/// The two moments of each parameter.
#[derive(Debug)]
struct AdamW {
    pub m: BTreeMap<String, Tensor>,
    pub v: BTreeMap<String, Tensor>,
    pub steps: u64,
}

impl AdamW {
    pub fn new(parameters: &BTreeMap<String, Var>) -> Result<AdamW> {
        let zeros =
            || parameters.iter().map(|(name, var)| Ok((name.clone(), var.zeros_like()?))).collect::<Result<_>>();
        Ok(AdamW { m: zeros()?, v: zeros()?, steps: 0 })
    }

    /// Moves the parameters, by gradients that are first multiplied by `shrink`.
    pub fn step(
        &mut self,
        parameters: &BTreeMap<String, Var>,
        gradients: &Gradients,
        rate: f64,
        shrink: f64,
    ) -> Result<()> {
        self.steps += 1;
        // Both moments start at 0; this is how far they still are from a true mean.
        let [beta_1, beta_2] = BETAS;
        let warm_1 = 1.0 - beta_1.powf(self.steps as f64);
        let warm_2 = 1.0 - beta_2.powf(self.steps as f64);
        for (name, var) in parameters {
            let Some(gradient) = gradients.get(name) else { continue };
            let gradient = (gradient * shrink)?;
            let m = ((&self.m[name] * beta_1)? + (&gradient * (1.0 - beta_1))?)?;
            let v = ((&self.v[name] * beta_2)? + (gradient.sqr()? * (1.0 - beta_2))?)?;
            let way = ((&m / warm_1)? / ((&v / warm_2)?.sqrt()? + EPSILON)?)?;
            let decay = if var.rank() > 1 { rate * DECAY } else { 0.0 };
            let value = var.as_tensor().detach();
            var.set(&((value * (1.0 - decay))? - (way * rate)?)?)?;
            self.m.insert(name.clone(), m);
            self.v.insert(name.clone(), v);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
