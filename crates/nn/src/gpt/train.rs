//! Training a GPT on a text: batches, AdamW, a checkpoint to go on from, the loss on what was held out.

use super::{Config, Gpt, SplitMix64, Text, Weights};
use crate::tensors::{HostTensor, TensorFile};
use candle_core::backprop::GradStore;
use candle_core::{D, DType, Device, Tensor, Var};
use gpulab::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// What is trained, how long and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GptTrainConfig {
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

impl Default for GptTrainConfig {
    fn default() -> GptTrainConfig {
        GptTrainConfig { config: Config::COURSE, batch: 4, steps: 3000, rate: 1.5e-3, seed: 1 }
    }
}

/// Steps over which the learning rate rises.
const RISE: f64 = 100.0;
/// For this part of the run pieces are short: what attention costs for each byte grows with the length, and most of what there is to
/// learn stands within a few words.
const SHORT: f64 = 0.75;

impl GptTrainConfig {
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
pub struct GptTrainer {
    plan: GptTrainConfig,
    text: Text,
    parameters: BTreeMap<String, Var>,
    optimiser: AdamW,
    model: Gpt,
    step: u64,
    losses: Vec<f32>,
}

impl GptTrainer {
    /// Starts from random weights.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] when the model does not read bytes or the text is shorter than its context; what candle says.
    pub fn new(plan: GptTrainConfig, text: Text, device: &Device) -> Result<GptTrainer> {
        let weights = Weights::random(plan.config, plan.seed)?;
        GptTrainer::with(plan, text, &weights, device)
    }

    fn with(plan: GptTrainConfig, text: Text, weights: &Weights, device: &Device) -> Result<GptTrainer> {
        let refuse = |what: String, fix: &str| Err(Error::invalid(what, fix));
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
        Ok(GptTrainer { plan, text, parameters, optimiser, model, step: 0, losses: Vec::new() })
    }

    /// One step: gives the loss of its batch, in nats a byte, before the step was made.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] when the loss or a gradient is no finite number: the step is then not made. What candle says.
    pub fn step(&mut self) -> Result<f32> {
        let (first, inputs, targets) = self.batch()?;
        let logits = self.model.logits_from(first, &inputs)?.flatten_to(1)?;
        let loss = candle_nn::loss::cross_entropy(&logits, &targets)?;
        let value = loss.to_scalar::<f32>()?;
        let gradients = loss.backward()?;
        let norm = self.optimiser.norm(&self.parameters, &gradients)?;
        if !value.is_finite() || !norm.is_finite() {
            return Err(Error::invalid(
                format!("step {}: the loss is {value}, the gradients' norm {norm}", self.step + 1),
                "the last checkpoint is good: go on from it with --resume and a smaller --rate",
            ));
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
        let mut random = SplitMix64::new(self.plan.seed ^ (self.step + 1).wrapping_mul(0x9E37_79B9));
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
    pub fn config(&self) -> &GptTrainConfig {
        &self.plan
    }

    /// The model that is trained: its tensors are the memory of [`GptTrainer::vars`].
    pub fn model(&self) -> &Gpt {
        &self.model
    }

    /// The parameters by GPT-2's names, in the shapes of [`Config::parameters`], as candle's optimisers take them.
    pub fn vars(&self) -> &BTreeMap<String, Var> {
        &self.parameters
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
        let file = host(self.parameters.iter().map(|(name, var)| (name.clone(), var.as_tensor())))?;
        Weights::from_file(self.plan.config, file)
    }
}

// ----------------------------------------------------------------------
// A whole training run with its files and lines of progress.

/// Steps between two checkpoints, and two looks at the held-out part.
const CHECKPOINT: u64 = 100;
/// Steps between two lines.
const LINE: u64 = 20;

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GptProgress {
    /// Steps that were made, of `steps`.
    pub step: u64,
    /// Steps in all.
    pub steps: u64,
    /// Mean over the last steps, in nats a byte.
    pub loss: f64,
    /// On words that were never trained on, where it was measured.
    pub held_out: Option<f64>,
    /// Bytes of text a second, since this program began.
    pub rate: f64,
    /// Seconds that are left at this rate.
    pub left: f64,
}

impl std::fmt::Display for GptProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let GptProgress { step, steps, loss, rate, left, .. } = self;
        let minutes = left / 60.0;
        write!(f, "step {step:>5} of {steps}   loss {loss:.3}   {rate:>7.0} bytes/s   {minutes:>5.1} min left")?;
        match self.held_out {
            Some(held_out) => write!(f, "   held out {held_out:.3}"),
            None => Ok(()),
        }
    }
}

/// Trains to the plan's end. Every hundred steps, and at the end, `folder` gets `checkpoint.safetensors` (to go on from) and
/// `config.json` with `model.safetensors` (to generate with, in bf16). `resume` goes on from that checkpoint, with the plan it had.
///
/// # Errors
/// As [`GptTrainer::new`], [`GptTrainer::resume`], [`GptTrainer::step`] and [`GptTrainer::save`].
pub fn run(
    plan: GptTrainConfig,
    text: Text,
    device: &Device,
    folder: &Path,
    resume: bool,
    tell: &mut dyn FnMut(GptProgress),
) -> Result<GptTrainer> {
    let checkpoint = folder.join("checkpoint.safetensors");
    let mut trainer = match resume {
        true => GptTrainer::resume(&checkpoint, text, device)?,
        false => GptTrainer::new(plan, text, device)?,
    };
    let (start, before, plan) = (Instant::now(), trainer.steps_made(), *trainer.config());
    while trainer.steps_made() < plan.steps {
        trainer.step()?;
        let (step, last) = (trainer.steps_made(), trainer.steps_made() == plan.steps);
        let kept = step % CHECKPOINT == 0 || last;
        if kept {
            trainer.save(&checkpoint)?;
            trainer.weights()?.save(folder, DType::BF16)?;
        }
        // Of a model that has read short pieces only, a loss over whole contexts would say nothing.
        let told = kept && (last || trainer.reads_whole_contexts());
        let held_out = if told { Some(trainer.held_out_loss()?) } else { None };
        if step % LINE == 0 || last {
            let seconds = start.elapsed().as_secs_f64() / (step - before) as f64;
            let recent = &trainer.losses()[trainer.losses().len().saturating_sub(LINE as usize)..];
            tell(GptProgress {
                step,
                steps: plan.steps,
                loss: recent.iter().map(|loss| f64::from(*loss)).sum::<f64>() / recent.len() as f64,
                held_out,
                rate: (plan.batch * plan.config.n_ctx) as f64 / seconds,
                left: seconds * (plan.steps - step) as f64,
            });
        }
    }
    Ok(trainer)
}

// ----------------------------------------------------------------------
// The loss on words that were never trained on.

/// Pieces that go through the model at once.
const AT_ONCE: usize = 16;

impl GptTrainer {
    /// [`Gpt::loss`] of the held-out part.
    ///
    /// # Errors
    /// What candle says.
    pub fn held_out_loss(&self) -> Result<f64> {
        // Over plain tensors nothing is kept for a backward pass.
        let tensor = |name: &str| Ok(self.parameters[name].as_tensor().detach());
        Gpt::build(self.plan.config, &tensor, false)?.loss(&self.text.held_out)
    }
}

impl Gpt {
    /// Nats a byte of a text that the model reads byte by byte: -ln of the probability that it gave to what came, in the mean. Each byte but
    /// those at the very beginning has half a context of bytes before it.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] when the text is not longer than the context; what candle says.
    pub fn loss(&self, text: &[u8]) -> Result<f64> {
        let (length, half) = (self.config().n_ctx, self.config().n_ctx / 2);
        if text.len() <= length {
            self.fits(length + 1)?;
        }
        // Windows overlap by half; the last one ends where the text does.
        let last = text.len() - length - 1;
        let starts: Vec<usize> = (0..last).step_by(half.max(1)).chain([last]).collect();
        let (mut sum, mut done) = (0.0, 0);
        for some in starts.chunks(AT_ONCE) {
            let tokens = some.iter().flat_map(|start| text[*start..start + length].iter().map(|byte| u32::from(*byte)));
            let tokens = Tensor::from_vec(tokens.collect::<Vec<u32>>(), (some.len(), length), self.device())?;
            let logs = candle_nn::ops::log_softmax(&self.logits(&tokens)?, D::Minus1)?;
            let targets = some.iter().flat_map(|start| text[start + 1..=start + length].iter().map(|b| u32::from(*b)));
            let targets = Tensor::from_vec(targets.collect::<Vec<u32>>(), (some.len(), length, 1), self.device())?;
            let costs = logs.gather(&targets, 2)?.squeeze(2)?.to_vec2::<f32>()?;
            for (start, costs) in some.iter().zip(costs) {
                // Bytes that an earlier window has told already are left out.
                let new = done.max(*start) - start;
                sum -= costs[new..].iter().map(|cost| f64::from(*cost)).sum::<f64>();
                done = start + length;
            }
        }
        Ok(sum / (text.len() - 1) as f64)
    }
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
    /// Writes parameters, both moments, the losses and the plan into one safetensors file, whole or not at all.
    ///
    /// # Errors
    /// As [`TensorFile::write`].
    pub fn save(&self, path: &Path) -> Result<()> {
        let moments = [("adamw.m.", &self.optimiser.m), ("adamw.v.", &self.optimiser.v)];
        let parameters = self.parameters.iter().map(|(name, var)| (name.clone(), var.as_tensor()));
        let mut file =
            host(parameters.chain(
                moments.iter().flat_map(|(prefix, all)| {
                    all.iter().map(move |(name, tensor)| (format!("{prefix}{name}"), tensor))
                }),
            ))?;
        file.tensors.insert("losses".to_string(), HostTensor::new(&[self.losses.len()], self.losses.clone()));
        let GptTrainConfig { config, batch, steps, rate, seed } = self.plan;
        file.metadata = BTreeMap::from([
            ("config".to_string(), config.to_json().to_string()),
            ("text".to_string(), self.text.fingerprint.clone()),
            ("step".to_string(), self.step.to_string()),
            ("batch".to_string(), batch.to_string()),
            ("steps".to_string(), steps.to_string()),
            // Sixteen digits and an exponent give the same f64 back.
            ("rate".to_string(), format!("{rate:e}")),
            ("seed".to_string(), seed.to_string()),
        ]);
        file.write(path, DType::F32)
    }

    /// Goes on from a checkpoint, with its own plan.
    ///
    /// # Errors
    /// As [`TensorFile::read`]; [`gpulab::Error::Invalid`] when it is no checkpoint of a run, or of one on another text.
    pub fn resume(path: &Path, text: Text, device: &Device) -> Result<GptTrainer> {
        let file = TensorFile::read(path)?;
        let wrong = |what: String| {
            Error::invalid(
                format!("{}: {what}", path.display()),
                "name the checkpoint.safetensors that `gpulab train-gpt` wrote, or begin again without --resume",
            )
        };
        let word = |name: &str| file.metadata.get(name).ok_or_else(|| wrong(format!("its metadata has no `{name}`")));
        let number = |name: &str| word(name)?.parse::<f64>().map_err(|_| wrong(format!("`{name}` is no number")));
        if *word("text")? != text.fingerprint {
            return Err(wrong("this run learned from another text than the one given".to_string()));
        }
        let config = serde_json::from_str(word("config")?).map_err(|_| wrong("`config` is no JSON".to_string()))?;
        let plan = GptTrainConfig {
            config: Config::from_json(&config)?,
            batch: number("batch")? as usize,
            steps: number("steps")? as u64,
            rate: number("rate")?,
            seed: word("seed")?.parse().map_err(|_| wrong("`seed` is no number".to_string()))?,
        };
        let part = |prefix: &str| TensorFile {
            tensors: (file.tensors.iter())
                .filter_map(|(name, tensor)| Some((name.strip_prefix(prefix)?.to_string(), tensor.clone())))
                .collect(),
            metadata: BTreeMap::new(),
        };
        let mut trainer = GptTrainer::with(plan, text, &Weights::from_file(plan.config, part(""))?, device)?;
        for (prefix, own) in [("adamw.m.", &mut trainer.optimiser.m), ("adamw.v.", &mut trainer.optimiser.v)] {
            // A moment has its parameter's shape, and is checked like one.
            for (name, host) in Weights::from_file(plan.config, part(prefix))?.iter() {
                own.insert(name.to_string(), Tensor::from_slice(&host.values, host.shape.as_slice(), device)?);
            }
        }
        trainer.step = number("step")? as u64;
        trainer.optimiser.steps = trainer.step;
        trainer.losses = file.tensors.get("losses").map(|losses| losses.values.clone()).unwrap_or_default();
        Ok(trainer)
    }
}

// ----------------------------------------------------------------------
// AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization"), with moments that a checkpoint can keep.

const BETA_1: f64 = 0.9;
const BETA_2: f64 = 0.99;
const EPSILON: f64 = 1e-8;
/// Of matrices; scales, biases are left alone.
const DECAY: f64 = 0.1;
/// Gradients whose norm, over all parameters, is larger are made this long.
const LONGEST: f64 = 1.0;

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

    /// The Euclidean norm of all gradients together: one number fetched from the device.
    pub fn norm(&self, parameters: &BTreeMap<String, Var>, gradients: &GradStore) -> Result<f64> {
        let squares = parameters.values().filter_map(|var| gradients.get(var.as_tensor()));
        let squares = squares.map(|gradient| Ok(gradient.sqr()?.sum_all()?)).collect::<Result<Vec<Tensor>>>()?;
        Ok(f64::from(Tensor::stack(&squares, 0)?.sum_all()?.to_scalar::<f32>()?).sqrt())
    }

    /// Moves the parameters. `norm` is [`AdamW::norm`] of these gradients.
    pub fn step(
        &mut self,
        parameters: &BTreeMap<String, Var>,
        gradients: &GradStore,
        rate: f64,
        norm: f64,
    ) -> Result<()> {
        self.steps += 1;
        let shrink = (LONGEST / norm.max(1e-12)).min(1.0);
        // Both moments start at 0; this is how far they still are from a true mean.
        let warm_1 = 1.0 - BETA_1.powf(self.steps as f64);
        let warm_2 = 1.0 - BETA_2.powf(self.steps as f64);
        for (name, var) in parameters {
            let Some(gradient) = gradients.get(var.as_tensor()) else { continue };
            // Without `detach` each moment would keep the graph of all steps before.
            let gradient = (gradient.detach() * shrink)?;
            let m = ((&self.m[name] * BETA_1)? + (&gradient * (1.0 - BETA_1))?)?;
            let v = ((&self.v[name] * BETA_2)? + (gradient.sqr()? * (1.0 - BETA_2))?)?;
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
