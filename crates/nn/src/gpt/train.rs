//! Training a GPT on a text: batches, AdamW, a checkpoint to go on from, the loss on what was held out.

use super::{Config, Gpt, LanguageModel, SplitMix64, Text, Tokenizer, Tokens, Weights};
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
    /// The model's shape; its vocabulary has room for all tokens of the tokenizer.
    pub config: Config,
    /// Whole contexts of text that go through the model at once; while pieces are short, four times as many pieces of a quarter.
    pub batch: usize,
    /// Batches whose gradients are added up for one step (gradient accumulation).
    pub accumulate: usize,
    /// Steps in all.
    pub steps: u64,
    /// The highest learning rate: it rises over the first steps, and falls along half a cosine to a tenth at the end.
    pub rate: f64,
    /// Steps over which the learning rate rises; at most a tenth of all.
    pub warm_up: u64,
    /// Gradients whose norm, over all parameters together, is larger are made this long.
    pub clip: f64,
    /// For this part of the run pieces are short: what attention costs for each token grows with the length, and most of what
    /// there is to learn stands within a few words.
    pub short: f64,
    /// What forward and backward pass compute in: F32, or BF16. Parameters, gradients and moments are F32 in either case.
    pub dtype: DType,
    /// What the first weights and the choice of pieces follow from.
    pub seed: u64,
}

impl Default for GptTrainConfig {
    /// How the course's own model was trained, which reads bytes: minutes on a laptop.
    fn default() -> GptTrainConfig {
        GptTrainConfig {
            config: Config::COURSE,
            batch: 4,
            accumulate: 1,
            steps: 3000,
            rate: 1.5e-3,
            warm_up: 100,
            clip: 1.0,
            short: 0.75,
            dtype: DType::F32,
            seed: 1,
        }
    }
}

impl GptTrainConfig {
    /// GPT-2's smallest shape, 124 million parameters, for a GPU.
    pub const GPT2: GptTrainConfig = GptTrainConfig {
        config: Config::GPT2,
        batch: 8,
        accumulate: 4,
        steps: 2000,
        rate: 6e-4,
        warm_up: 200,
        clip: 1.0,
        short: 0.0,
        dtype: DType::BF16,
        seed: 1,
    };

    /// The learning rate of a step, from 0: up in a line, then down along half a cosine.
    pub fn rate_at(&self, step: u64) -> f64 {
        let (step, steps) = (step as f64, self.steps as f64);
        let rise = (self.warm_up as f64).min(steps / 10.0).max(1.0);
        let way = ((step - rise) / (steps - rise).max(1.0)).clamp(0.0, 1.0);
        let fall = 0.1 + 0.9 * 0.5 * (1.0 + (std::f64::consts::PI * way).cos());
        self.rate * ((step + 1.0) / rise).min(1.0) * fall
    }

    /// Tokens that a step reads.
    pub fn tokens_a_step(&self) -> usize {
        self.accumulate * self.batch * self.config.n_ctx
    }
}

/// The gradient of each parameter, in f32.
type Gradients = BTreeMap<String, Tensor>;

/// A training run.
#[derive(Debug)]
pub struct GptTrainer {
    plan: GptTrainConfig,
    tokens: Tokens,
    parameters: BTreeMap<String, Var>,
    optimiser: AdamW,
    model: Gpt,
    step: u64,
    losses: Vec<f32>,
    norms: Vec<f32>,
}

impl GptTrainer {
    /// Starts from random weights.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] when the model has fewer tokens than the tokenizer, a part of the text is shorter than its
    /// context, or a number of the plan trains nothing; what candle says.
    pub fn new(plan: GptTrainConfig, tokens: Tokens, device: &Device) -> Result<GptTrainer> {
        let weights = Weights::random(plan.config, plan.seed)?;
        GptTrainer::with(plan, tokens, &weights, device)
    }

    fn with(plan: GptTrainConfig, tokens: Tokens, weights: &Weights, device: &Device) -> Result<GptTrainer> {
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
        Ok(GptTrainer { plan, tokens, parameters, optimiser, model, step: 0, losses: Vec::new(), norms: Vec::new() })
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
                format!("step {}: the loss is {value}, the gradients' norm {norm}", self.step + 1),
                "the last checkpoint is good: go on from it with --resume and a smaller --rate",
            ));
        }
        let shrink = (self.plan.clip / norm.max(1e-12)).min(1.0);
        self.optimiser.step(&self.parameters, &gradients, self.plan.rate_at(self.step), shrink)?;
        self.step += 1;
        self.losses.push(value);
        self.norms.push(norm as f32);
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
        let cast = |name: &str| Ok(self.parameters[name].as_tensor().to_dtype(self.plan.dtype)?);
        let model = Gpt::build(self.plan.config, &cast, true)?;
        let (mut value, mut sum) = (0.0, Gradients::new());
        for batch in 0..self.plan.accumulate {
            let (first, inputs, targets) = self.batch(batch)?;
            let logits = model.logits_from(first, &inputs)?.flatten_to(1)?;
            let loss = (candle_nn::loss::cross_entropy(&logits, &targets)? / self.plan.accumulate as f64)?;
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

    /// The pieces of a batch, the position of their first token, and what follows each of their tokens. They depend on seed, step and
    /// batch alone, so a run that was stopped goes on with those that it would have had.
    fn batch(&self, batch: usize) -> Result<(usize, Tensor, Tensor)> {
        let (context, all) = (self.plan.config.n_ctx, &self.tokens.train);
        let short = !self.reads_whole_contexts();
        let (pieces, length) = if short { (4 * self.plan.batch, context / 4) } else { (self.plan.batch, context) };
        let number = self.step * self.plan.accumulate as u64 + batch as u64 + 1;
        let mut random = SplitMix64::new(self.plan.seed ^ number.wrapping_mul(0x9E37_79B9));
        let mut below = |end: usize| (random.unit() * end as f64) as usize;
        // Short pieces take turns along the context, so that each position is learned.
        let first = below(context - length + 1);
        let (mut inputs, mut targets) = (Vec::new(), Vec::new());
        for _ in 0..pieces {
            let start = below(all.len() - length);
            inputs.extend_from_slice(&all[start..start + length]);
            targets.extend_from_slice(&all[start + 1..=start + length]);
        }
        let device = self.model.device();
        let inputs = Tensor::from_vec(inputs, (pieces, length), device)?;
        Ok((first, inputs, Tensor::from_vec(targets, pieces * length, device)?))
    }

    /// Whether the next step reads pieces as long as the context: before that a model knows nothing of what stands further away.
    pub fn reads_whole_contexts(&self) -> bool {
        self.step as f64 >= self.plan.short * self.plan.steps as f64 || !self.plan.config.n_ctx.is_multiple_of(4)
    }

    /// What is trained, and how.
    pub fn config(&self) -> &GptTrainConfig {
        &self.plan
    }

    /// The text that it learns from.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
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

    /// The loss of each step, in nats a token.
    pub fn losses(&self) -> &[f32] {
        &self.losses
    }

    /// The norm of each step's gradients, before it was clipped. A run that was resumed knows those since then.
    pub fn norms(&self) -> &[f32] {
        &self.norms
    }

    /// The weights as they are now, on the host.
    ///
    /// # Errors
    /// What candle says.
    pub fn weights(&self) -> Result<Weights> {
        let file = host(self.parameters.iter().map(|(name, var)| (name.clone(), var.as_tensor())))?;
        Weights::from_file(self.plan.config, file)
    }

    /// The model as it is now, to write text with.
    ///
    /// # Errors
    /// What candle says.
    pub fn language_model(&self) -> Result<LanguageModel> {
        let tensor = |name: &str| Ok(self.parameters[name].as_tensor().detach());
        let gpt = Gpt::build(self.plan.config, &tensor, false)?;
        Ok(LanguageModel { gpt, tokenizer: self.tokens.tokenizer.clone() })
    }
}

/// The Euclidean norm of all gradients together: one number fetched from the device.
fn norm(gradients: &Gradients) -> Result<f64> {
    let squares = gradients.values().map(|gradient| Ok(gradient.sqr()?.sum_all()?)).collect::<Result<Vec<Tensor>>>()?;
    Ok(f64::from(Tensor::stack(&squares, 0)?.sum_all()?.to_scalar::<f32>()?).sqrt())
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
    /// Mean over the last steps, in nats a token.
    pub loss: f64,
    /// On words that were never trained on, where it was measured.
    pub held_out: Option<f64>,
    /// Tokens a second, since this program began.
    pub rate: f64,
    /// Seconds that are left at this rate.
    pub left: f64,
}

impl std::fmt::Display for GptProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let GptProgress { step, steps, loss, rate, left, .. } = self;
        let minutes = left / 60.0;
        write!(f, "step {step:>5} of {steps}   loss {loss:.3}   {rate:>7.0} tokens/s   {minutes:>5.1} min left")?;
        match self.held_out {
            Some(held_out) => write!(f, "   held out {held_out:.3}"),
            None => Ok(()),
        }
    }
}

/// Trains to the plan's end. Every hundred steps, and at the end, `folder` gets `checkpoint.safetensors` (to go on from) and
/// `config.json`, `model.safetensors` (in bf16) and, unless it reads bytes, `tokenizer.json` (to generate with).
///
/// # Errors
/// As [`GptTrainer::step`] and [`GptTrainer::save`].
pub fn run(mut trainer: GptTrainer, folder: &Path, tell: &mut dyn FnMut(GptProgress)) -> Result<GptTrainer> {
    let checkpoint = folder.join("checkpoint.safetensors");
    if let Some(json) = trainer.tokens.tokenizer.to_json() {
        crate::tensors::write_whole(&folder.join("tokenizer.json"), json.as_bytes())?;
    }
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
                rate: plan.tokens_a_step() as f64 / seconds,
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
        self.language_model()?.gpt.token_loss(&self.tokens.held_out)
    }
}

impl Gpt {
    /// [`Gpt::token_loss`] of a model that reads bytes: nats a byte.
    ///
    /// # Errors
    /// As [`Gpt::token_loss`].
    pub fn loss(&self, text: &[u8]) -> Result<f64> {
        self.token_loss(&text.iter().copied().map(u32::from).collect::<Vec<u32>>())
    }

    /// Nats a token: -ln of the probability that the model gave to what came, in the mean. Each token but those at the very beginning
    /// has half a context before it.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] when there are not more tokens than the context has; what candle says.
    pub fn token_loss(&self, text: &[u32]) -> Result<f64> {
        let (length, half) = (self.config().n_ctx, self.config().n_ctx / 2);
        if text.len() <= length {
            self.fits(length + 1)?;
        }
        // Windows overlap by half; the last one ends where the text does.
        let last = text.len() - length - 1;
        let starts: Vec<usize> = (0..last).step_by(half.max(1)).chain([last]).collect();
        let (mut sum, mut done) = (0.0, 0);
        for some in starts.chunks(AT_ONCE) {
            let tokens = some.iter().flat_map(|start| &text[*start..start + length]).copied();
            let tokens = Tensor::from_vec(tokens.collect::<Vec<u32>>(), (some.len(), length), self.device())?;
            let logs = candle_nn::ops::log_softmax(&self.logits(&tokens)?, D::Minus1)?;
            let targets = some.iter().flat_map(|start| &text[start + 1..=start + length]).copied();
            let targets = Tensor::from_vec(targets.collect::<Vec<u32>>(), (some.len(), length, 1), self.device())?;
            let costs = logs.gather(&targets, 2)?.squeeze(2)?.to_vec2::<f32>()?;
            for (start, costs) in some.iter().zip(costs) {
                // Tokens that an earlier window has told already are left out.
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
        let GptTrainConfig { config, batch, accumulate, steps, rate, warm_up, clip, short, dtype, seed } = self.plan;
        // `{:e}` gives the same f64 back.
        let numbers = [("rate", format!("{rate:e}")), ("clip", format!("{clip:e}")), ("short", format!("{short:e}"))];
        let counts = [
            ("step", self.step),
            ("batch", batch as u64),
            ("accumulate", accumulate as u64),
            ("steps", steps),
            ("warm_up", warm_up),
            ("seed", seed),
        ];
        let words = [
            ("config", config.to_json().to_string()),
            ("text", self.tokens.fingerprint.clone()),
            ("dtype", dtype.as_str().to_string()),
            ("tokenizer", self.tokens.tokenizer.to_json().unwrap_or_default()),
        ];
        let counts = counts.map(|(name, count)| (name, count.to_string()));
        let all = counts.into_iter().chain(numbers).chain(words);
        file.metadata = all.map(|(name, value)| (name.to_string(), value)).collect();
        file.write(path, DType::F32)
    }

    /// Goes on from a checkpoint, with its own plan and tokenizer. `rate`: with another highest learning rate, as after a loss
    /// that became NaN.
    ///
    /// # Errors
    /// As [`TensorFile::read`]; [`gpulab::Error::Invalid`] when it is no checkpoint of a run, or of one on another text.
    pub fn resume(path: &Path, text: &Text, rate: Option<f64>, device: &Device) -> Result<GptTrainer> {
        let file = TensorFile::read(path)?;
        let wrong = |what: String| {
            Error::invalid(
                format!("{}: {what}", path.display()),
                "name the checkpoint.safetensors that `gpulab train-gpt` wrote, or begin again without --resume",
            )
        };
        let word = |name: &str| file.metadata.get(name).ok_or_else(|| wrong(format!("its metadata has no `{name}`")));
        let number = |name: &str| word(name)?.parse::<f64>().map_err(|_| wrong(format!("`{name}` is no number")));
        let tokenizer = match word("tokenizer")?.as_str() {
            "" => Tokenizer::Bytes,
            json => Tokenizer::from_json(json)?,
        };
        let tokens = Tokens::new(text, tokenizer)?;
        if *word("text")? != tokens.fingerprint {
            return Err(wrong("this run learned from another text than the one given".to_string()));
        }
        let config = serde_json::from_str(word("config")?).map_err(|_| wrong("`config` is no JSON".to_string()))?;
        let plan = GptTrainConfig {
            config: Config::from_json(&config)?,
            batch: number("batch")? as usize,
            accumulate: number("accumulate")? as usize,
            steps: number("steps")? as u64,
            rate: rate.map_or_else(|| number("rate"), Ok)?,
            warm_up: number("warm_up")? as u64,
            clip: number("clip")?,
            short: number("short")?,
            dtype: if word("dtype")? == DType::BF16.as_str() { DType::BF16 } else { DType::F32 },
            seed: word("seed")?.parse().map_err(|_| wrong("`seed` is no number".to_string()))?,
        };
        let part = |prefix: &str| TensorFile {
            tensors: (file.tensors.iter())
                .filter_map(|(name, tensor)| Some((name.strip_prefix(prefix)?.to_string(), tensor.clone())))
                .collect(),
            metadata: BTreeMap::new(),
        };
        let mut trainer = GptTrainer::with(plan, tokens, &Weights::from_file(plan.config, part(""))?, device)?;
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
        let warm_1 = 1.0 - BETA_1.powf(self.steps as f64);
        let warm_2 = 1.0 - BETA_2.powf(self.steps as f64);
        for (name, var) in parameters {
            let Some(gradient) = gradients.get(name) else { continue };
            let gradient = (gradient * shrink)?;
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
