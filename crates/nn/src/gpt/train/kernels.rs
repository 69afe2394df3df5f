//! A run on the course's own kernels: [`gpulab_kernels::gpt_step`] makes the steps.

use super::checkpoint::GptCheckpoint;
use super::engine::GptEngine;
use super::held_out::windowed_loss;
use super::plan::{BETAS, DECAY, EPSILON, GptTrainConfig};
use super::run::GptRun;
use crate::gpt::{Config, Text, Tokens, Weights};
use crate::tensors::{HostTensor, TensorFile};
use candle_core::{DType, Device};
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use gpulab_kernels::gpt_step::{AdamWConfig, GptKernels, GptSettings, GptShape, GptState, GptTraining};
use rayon::prelude::*;

/// A training run on the course's own kernels: weights and activations in bf16, parameters, gradients and moments in f32. It reads the
/// same pieces in the same order as [`GptTrainer`](super::GptTrainer), and its losses differ by rounding.
///
/// State and order are the same bits after a checkpoint. So are steps in the simulator, and on a GPU with a plan that is
/// [`deterministic`](GptTrainConfig::deterministic): the checkpoint then also says by which of cuBLASLt's algorithms each product was computed, which a
/// clock has chosen. Without it attention's backward pass adds up in any order, so the last bits of its sums differ from run to run.
#[derive(Debug)]
pub struct KernelTrainer {
    run: GptRun,
    training: GptTraining,
    /// Why the run has not the bits that it would have had.
    note: Option<String>,
}

impl KernelTrainer {
    /// Whether the kernels take this plan, and the GPU runs them.
    ///
    /// # Errors
    /// [`Error::Unsupported`] and [`Error::Invalid`] say why not.
    pub fn takes(gpu: &Gpu, plan: &GptTrainConfig) -> Result<()> {
        GptKernels::take(gpu, &shape_of(plan)?, plan.batch)
    }

    /// Starts from random weights, those of [`GptTrainer::new`](super::GptTrainer::new). The simulated GPU does, too: a step of the
    /// smallest model takes it seconds.
    ///
    /// # Errors
    /// As [`KernelTrainer::takes`] and [`GptRun::new`]; what the GPU says, out of memory above all.
    pub fn new(plan: GptTrainConfig, tokens: Tokens, gpu: &Gpu) -> Result<KernelTrainer> {
        let mut trainer = KernelTrainer::with(GptRun::new(plan, tokens)?, gpu)?;
        trainer.training.load(&flat(&shape(plan.config)?, &Weights::random(plan.config, plan.seed)?))?;
        Ok(trainer)
    }

    /// Goes on from a checkpoint that was read, whichever engine has written it.
    ///
    /// # Errors
    /// As [`KernelTrainer::new`]; [`Error::Invalid`] for a run on another text.
    pub fn from_checkpoint(checkpoint: &GptCheckpoint, text: &Text, gpu: &Gpu) -> Result<KernelTrainer> {
        let mut trainer = KernelTrainer::with(checkpoint.run(text)?, gpu)?;
        let shape = shape(checkpoint.plan.config)?;
        let [parameters, m, v] = [&checkpoint.parameters, &checkpoint.m, &checkpoint.v].map(|all| flat(&shape, all));
        trainer.training.restore(&GptState { parameters, m, v, step: checkpoint.step })?;
        trainer.note = match &checkpoint.algorithms {
            Some(chosen) => trainer.training.choose(chosen).err().map(|error| error.to_string()),
            // Plain products have no choice.
            None if trainer.training.chosen().is_none() => None,
            None => Some(
                "the checkpoint does not say by which algorithms its products were computed: they are timed anew"
                    .to_string(),
            ),
        };
        Ok(trainer)
    }

    fn with(run: GptRun, gpu: &Gpu) -> Result<KernelTrainer> {
        KernelTrainer::takes(gpu, &run.plan)?;
        let GptTrainConfig { config, batch, accumulate, deterministic, .. } = run.plan;
        let settings = GptSettings { batch, accumulate, deterministic, ..GptSettings::default() };
        let training = GptTraining::new(gpu, shape(config)?, settings)?;
        Ok(KernelTrainer { run, training, note: None })
    }

    /// What makes the steps.
    pub fn training(&self) -> &GptTraining {
        &self.training
    }

    /// Why the steps from here on may have other bits than those of a run that was not stopped, where something is known that the
    /// plan does not say.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }
}

impl GptEngine for KernelTrainer {
    fn name(&self) -> &'static str {
        "kernels"
    }

    fn run(&self) -> &GptRun {
        &self.run
    }

    fn step(&mut self) -> Result<f32> {
        let plan = self.run.plan;
        let texts: Vec<u32> = (0..plan.accumulate).flat_map(|batch| self.run.pieces(batch).2).collect();
        self.training.set_batch(&texts)?;
        let result = self.training.step(&adamw(&plan, self.run.step))?;
        self.run.note(result.loss, result.norm);
        Ok(result.loss)
    }

    fn held_out_loss_of(&mut self, most: usize) -> Result<f64> {
        let (run, training) = (&self.run, &mut self.training);
        let GptTrainConfig { config, batch, .. } = run.plan;
        windowed_loss(run.held_out(most), config.n_ctx, batch, &mut |windows| {
            // As many texts as always: the last ones stand for those that are missing.
            let missing = std::iter::repeat_n(&windows[windows.len() - 1], batch - windows.len());
            let texts: Vec<u32> = windows.iter().chain(missing).flat_map(|window| window.iter()).copied().collect();
            let mut losses = training.losses_of(&texts)?;
            losses.truncate(windows.len() * config.n_ctx);
            Ok(losses)
        })
    }

    fn checkpoint(&self) -> Result<GptCheckpoint> {
        let (shape, config) = (self.training.shape(), self.run.plan.config);
        let GptState { parameters, m, v, .. } = self.training.state()?;
        let state = [named(shape, config, &parameters)?, named(shape, config, &m)?, named(shape, config, &v)?];
        let algorithms = self.training.chosen();
        Ok(GptCheckpoint { algorithms, ..GptCheckpoint::of(&self.run, self.name(), state) })
    }

    fn device(&self) -> Device {
        Device::Cpu
    }
}

/// AdamW's numbers in the step of that number, from 0.
pub(super) fn adamw(plan: &GptTrainConfig, step: u64) -> AdamWConfig {
    let [beta_1, beta_2] = BETAS.map(|beta| beta as f32);
    AdamWConfig {
        rate: plan.rate_at(step) as f32,
        betas: (beta_1, beta_2),
        epsilon: EPSILON as f32,
        decay: DECAY as f32,
        clip: plan.clip as f32,
    }
}

// ----------------------------------------------------------------------
// The kernels' one array, and tensors by name.

/// The model of a plan as the kernels see it, where they can train as the plan says.
pub(super) fn shape_of(plan: &GptTrainConfig) -> Result<GptShape> {
    let elsewhere = |what: String, fix: &str| Err(Error::unsupported(what, fix));
    if plan.dtype != DType::BF16 {
        return elsewhere(
            format!("the kernels compute in bf16, and this run in {}", plan.dtype.as_str()),
            "add --dtype bf16, or take --engine candle",
        );
    }
    if plan.short > 0.0 && plan.config.n_ctx.is_multiple_of(4) {
        return elsewhere(
            "the kernels read whole contexts, and this run begins with shorter pieces".to_string(),
            "take --engine candle, or another model",
        );
    }
    shape(plan.config)
}

/// The same model as the kernels see it.
pub(super) fn shape(config: Config) -> Result<GptShape> {
    let Config { n_layer, n_head, n_embd, n_ctx, vocab_size } = config.checked()?;
    if config.head() != GptShape::HEAD {
        return Err(Error::unsupported(
            format!(
                "the kernels take heads of {} numbers, and {n_embd} shared by {n_head} are {}",
                GptShape::HEAD,
                config.head()
            ),
            "take --engine candle, or a model with such heads",
        ));
    }
    Ok(GptShape { layers: n_layer, heads: n_head, vocabulary: vocab_size, context: n_ctx })
}

/// The order of [`GptShape::tensors`]: matrices of layers as `[outputs, inputs]`, where GPT-2's files have `[inputs, outputs]`; rows that fill
/// the table of tokens up are 0.
pub(super) fn flat(shape: &GptShape, weights: &Weights) -> Vec<f32> {
    let mut all = vec![0.0; shape.parameter_count()];
    for tensor in shape.tensors() {
        let values = &weights.get(&tensor.name).values;
        let to = &mut all[tensor.range];
        match tensor.name.starts_with("h.") && tensor.sides[0] > 1 {
            true => transpose(values, to, tensor.sides[0]),
            false => to[..values.len()].copy_from_slice(values),
        }
    }
    all
}

/// Back from [`flat`].
pub(super) fn named(shape: &GptShape, config: Config, all: &[f32]) -> Result<Weights> {
    let sides: std::collections::BTreeMap<String, Vec<usize>> = config.parameters().into_iter().collect();
    let mut file = TensorFile::default();
    for tensor in shape.tensors() {
        let (from, sides) = (&all[tensor.range], &sides[&tensor.name]);
        let mut values = vec![0.0; sides.iter().product()];
        match tensor.name.starts_with("h.") && sides.len() > 1 {
            true => transpose(from, &mut values, sides[0]),
            // Without the rows that fill the table up.
            false => {
                let len = values.len();
                values.copy_from_slice(&from[..len]);
            }
        }
        file.tensors.insert(tensor.name, HostTensor::new(sides, values));
    }
    Weights::from_file(config, file)
}

/// `from` has rows of so many numbers; those become the columns of `to`.
fn transpose(from: &[f32], to: &mut [f32], columns: usize) {
    let rows = from.len() / columns;
    to.par_chunks_mut(rows).enumerate().for_each(|(column, line)| {
        line.iter_mut().enumerate().for_each(|(row, x)| *x = from[row * columns + column]);
    });
}

#[cfg(test)]
pub(super) mod tests;
