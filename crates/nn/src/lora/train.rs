//! Fine-tuning: examples, steps of AdamW, and what a step holds in memory.

use super::model::{Training, TunedLlama, cross_entropy};
use super::{Base, Example};
use crate::gpt::SplitMix64;
use crate::llama::{ChatModel, Llama};
use crate::memory::Meter;
use candle_core::backprop::GradStore;
use candle_core::{Device, Tensor, Var};
use candle_nn::{AdamW, Optimizer as _, ParamsAdamW};
use gpulab::error::{Error, Result};

/// How long and how fast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TunePlan {
    /// Examples in a step.
    pub batch: usize,
    /// Steps in all.
    pub steps: usize,
    /// The highest learning rate: it rises over the first tenth of the steps, and falls in a line to a tenth at the end.
    pub rate: f64,
    /// What the order of the examples follows from.
    pub seed: u64,
}

impl TunePlan {
    /// The learning rate of a step, from 0.
    pub fn rate_at(&self, step: usize) -> f64 {
        let (step, steps) = (step as f64, self.steps as f64);
        let rise = (steps / 10.0).max(1.0);
        let way = ((step - rise) / (steps - rise).max(1.0)).clamp(0.0, 1.0);
        self.rate * ((step + 1.0) / rise).min(1.0) * (1.0 - 0.9 * way)
    }
}

/// An example as the trained layers see it.
#[derive(Debug, Clone)]
struct Prepared {
    /// What goes into the first layer that learns, `[length, width]`.
    before: Tensor,
    tokens: Vec<u32>,
    /// Tokens of the prompt: only those behind it are learned.
    prompt: usize,
}

/// Examples behind each other: what the trained layers read, which rows are asked, and for which token.
#[derive(Debug)]
struct Batch {
    before: Tensor,
    rows: Tensor,
    targets: Tensor,
}

/// A fine-tuning run.
#[derive(Debug)]
pub struct Tuner {
    /// The model that learns.
    pub model: TunedLlama,
    plan: TunePlan,
    examples: Vec<Prepared>,
    optimiser: AdamW,
    vars: Vec<Var>,
    /// The parameters with which the last finite loss was computed.
    good: Vec<Tensor>,
    losses: Vec<f64>,
}

/// Gradients whose norm, over all parameters, is larger are made this long.
const LONGEST: f64 = 1.0;

impl Tuner {
    /// Prepares the examples: what lies before the first layer that learns is computed once for each.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no example, no step or no rate; as [`Example::tokens`].
    pub fn new(chat: &ChatModel, model: TunedLlama, examples: &[Example], plan: TunePlan) -> Result<Tuner> {
        if plan.batch == 0 || plan.steps == 0 || examples.is_empty() {
            return Err(Error::invalid("no step, or no example in one, teaches nothing", "give at least one of each"));
        }
        if !plan.rate.is_finite() || plan.rate <= 0.0 {
            return Err(Error::invalid(
                format!("a learning rate of {}", plan.rate),
                "give a positive number; 1e-4 to 2e-3 are usual for adapters",
            ));
        }
        model.reserve_ids([])?;
        let examples = prepared(chat, &model, examples)?;
        let vars = model.vars();
        let settings = ParamsAdamW { lr: plan.rate, weight_decay: 0.0, ..ParamsAdamW::default() };
        let optimiser = AdamW::new(vars.clone(), settings)?;
        let good = copies(&vars)?;
        Ok(Tuner { model, plan, examples, optimiser, vars, good, losses: Vec::new() })
    }

    /// One step; gives the loss of its batch in nats a token, before the step was made.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the loss or a gradient is no finite number: the parameters are then those of the last finite loss.
    pub fn step(&mut self) -> Result<f64> {
        let at = self.losses.len();
        let mut random = SplitMix64::new(self.plan.seed ^ (at as u64 + 1).wrapping_mul(0x9E37_79B9));
        let chosen: Vec<&Prepared> = (0..self.plan.batch)
            .map(|_| &self.examples[(random.unit() * self.examples.len() as f64) as usize])
            .collect();
        self.model.reserve_ids(chosen.iter().map(|example| &example.before))?;
        let loss = loss(&self.model, &batch(&chosen, self.model.device())?)?;
        let value = f64::from(loss.to_scalar::<f32>()?);
        if !value.is_finite() {
            return Err(self.stopped(at, &format!("the loss is {value}")));
        }
        let mut gradients = loss.backward()?;
        let norm = gradient_norm(&self.vars, &gradients)?;
        if !norm.is_finite() {
            return Err(self.stopped(at, &format!("the gradients' norm is {norm}")));
        }
        self.good = copies(&self.vars)?;
        if norm > LONGEST {
            for var in &self.vars {
                if let Some(gradient) = gradients.remove(var.as_tensor()) {
                    gradients.insert(var.as_tensor(), (gradient * (LONGEST / norm))?);
                }
            }
        }
        self.optimiser.set_learning_rate(self.plan.rate_at(at));
        self.optimiser.step(&gradients)?;
        self.losses.push(value);
        Ok(value)
    }

    /// Goes back to the last good parameters; the error to return.
    fn stopped(&self, step: usize, what: &str) -> Error {
        let back = self.vars.iter().zip(&self.good).try_for_each(|(var, good)| var.set(good));
        if let Err(error) = back {
            return error.into();
        }
        Error::invalid(
            format!("step {}: {what}", step + 1),
            format!(
                "the parameters are again those with which the loss was last finite: keep them, or begin anew with a smaller rate than {:e}",
                self.plan.rate
            ),
        )
    }

    /// The mean loss on other examples, in nats for each token of an answer.
    ///
    /// # Errors
    /// As [`Example::tokens`].
    pub fn loss_on(&self, chat: &ChatModel, examples: &[Example]) -> Result<f64> {
        self.model.reserve_ids([])?;
        let prepared = prepared(chat, &self.model, examples)?;
        let (mut sum, mut count) = (0.0, 0);
        for some in prepared.chunks(AT_ONCE) {
            let batch = batch(&some.iter().collect::<Vec<_>>(), self.model.device())?;
            let tokens = batch.targets.elem_count();
            sum += f64::from(loss(&self.model, &batch)?.detach().to_scalar::<f32>()?) * tokens as f64;
            count += tokens;
        }
        Ok(sum / count as f64)
    }

    /// The norm of each parameter's gradient on one batch of the examples, in the order of [`TunedLlama::vars`]; NaN where there is
    /// none.
    ///
    /// # Errors
    /// What candle says.
    pub fn gradient_norms(&self) -> Result<Vec<f64>> {
        let chosen: Vec<&Prepared> = self.examples.iter().take(self.plan.batch).collect();
        self.model.reserve_ids(chosen.iter().map(|example| &example.before))?;
        let gradients = loss(&self.model, &batch(&chosen, self.model.device())?)?.backward()?;
        self.vars
            .iter()
            .map(|var| match gradients.get(var.as_tensor()) {
                Some(gradient) => Ok(f64::from(gradient.sqr()?.sum_all()?.to_scalar::<f32>()?).sqrt()),
                None => Ok(f64::NAN),
            })
            .collect()
    }

    /// The loss of each step.
    pub fn losses(&self) -> &[f64] {
        &self.losses
    }

    /// How long and how fast.
    pub fn plan(&self) -> TunePlan {
        self.plan
    }
}

/// Examples that go through the frozen layers at once.
const AT_ONCE: usize = 8;

fn prepared(chat: &ChatModel, model: &TunedLlama, examples: &[Example]) -> Result<Vec<Prepared>> {
    let mut all = Vec::new();
    for some in examples.chunks(AT_ONCE) {
        let tokens = some.iter().map(|example| example.tokens(chat)).collect::<Result<Vec<_>>>()?;
        let longest = tokens.iter().map(|(tokens, _)| tokens.len()).max().unwrap_or(0);
        // What stands behind a text is seen by none of its own tokens: attention is causal.
        let filled = |tokens: &Vec<u32>| {
            let mut row = tokens.clone();
            row.resize(longest, 0);
            row
        };
        let rows: Vec<u32> = tokens.iter().flat_map(|(tokens, _)| filled(tokens)).collect();
        let before = model.before(&Tensor::from_vec(rows, (some.len(), longest), model.device())?)?;
        for (at, (tokens, prompt)) in tokens.into_iter().enumerate() {
            // Copied, so that the batch's memory is not kept alive by a view of it.
            let before = before.get(at)?.narrow(0, 0, tokens.len())?.copy()?;
            all.push(Prepared { before, tokens, prompt });
        }
    }
    Ok(all)
}

fn batch(examples: &[&Prepared], device: &Device) -> Result<Batch> {
    let longest = examples.iter().map(|example| example.tokens.len()).max().unwrap_or(0);
    let (mut texts, mut rows, mut targets) = (Vec::new(), Vec::new(), Vec::new());
    for (at, example) in examples.iter().enumerate() {
        let length = example.tokens.len();
        texts.push(example.before.pad_with_zeros(0, 0, longest - length)?);
        // The row before a token is the one that predicts it.
        rows.extend((example.prompt - 1..length - 1).map(|row| (at * longest + row) as u32));
        targets.extend_from_slice(&example.tokens[example.prompt..]);
    }
    Ok(Batch {
        before: Tensor::stack(&texts, 0)?,
        rows: Tensor::from_vec(rows, targets.len(), device)?,
        targets: Tensor::from_vec(targets.clone(), targets.len(), device)?,
    })
}

fn loss(model: &TunedLlama, batch: &Batch) -> Result<Tensor> {
    cross_entropy(&model.logits(&model.behind(&batch.before)?, &batch.rows)?, &batch.targets)
}

fn gradient_norm(vars: &[Var], gradients: &GradStore) -> Result<f64> {
    let mut square = 0.0;
    for var in vars {
        if let Some(gradient) = gradients.get(var.as_tensor()) {
            square += f64::from(gradient.sqr()?.sum_all()?.to_scalar::<f32>()?);
        }
    }
    Ok(square.sqrt())
}

fn copies(vars: &[Var]) -> Result<Vec<Tensor>> {
    vars.iter().map(|var| Ok(var.as_detached_tensor().copy()?)).collect()
}

// ----------------------------------------------------------------------
// What a step holds.

/// What one step was seen to hold, in bytes, and how long it took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TuneMemory {
    /// Numbers that learn.
    pub trainable: usize,
    /// The frozen weights, from their shapes; those in f32 belong to the model that was loaded, and are not allocated again.
    pub frozen: u64,
    /// What was allocated for model and parameters.
    pub model: u64,
    /// AdamW's two means.
    pub state: u64,
    /// What was kept between the forward and the backward pass.
    pub activations: u64,
    /// Gradients, all that candle has stored.
    pub gradients: u64,
    /// How many tensors of gradients it has stored.
    pub stored: usize,
    /// The peak of forward pass, backward pass and update, above what was in use before them.
    pub peak: u64,
    /// Forward, backward and update together, in milliseconds.
    pub ms: f64,
}

/// Runs one step with the first `batch` of these examples, and measures what each phase adds. It is the second step that is measured.
///
/// # Errors
/// As [`TunedLlama::new`], [`Tuner::new`] and [`Meter::now`].
pub fn tune_memory(
    chat: &ChatModel,
    llama: &Llama,
    (base, training): (Base, Training),
    examples: &[Example],
    meter: &Meter,
) -> Result<TuneMemory> {
    let (model, kept) = meter.watch(|| TunedLlama::new(llama, base, training))?;
    model.reserve_ids([])?;
    let prepared = prepared(chat, &model, examples)?;
    let batch = batch(&prepared.iter().collect::<Vec<_>>(), model.device())?;
    drop(prepared);
    let vars = model.vars();
    let step = || -> Result<TuneMemory> {
        model.reserve_ids([&batch.before])?;
        let (mut optimiser, state) = meter.watch(|| Ok(AdamW::new_lr(vars.clone(), 1e-6)?))?;
        let (loss, forward) = meter.watch(|| loss(&model, &batch))?;
        let (gradients, backward) = meter.watch(|| Ok(loss.backward()?))?;
        let stored = gradients.get_ids().count();
        // candle's store holds a view of what it has: the graph behind the loss can go.
        let ((), dropped) = meter.watch(|| {
            drop(loss);
            Ok(())
        })?;
        let ((), update) = meter.watch(|| Ok(optimiser.step(&gradients)?))?;
        let at = |kept: &[i64], peak: u64| (kept.iter().sum::<i64>().max(0) as u64) + peak;
        let peaks = [
            forward.peak,
            at(&[forward.kept], backward.peak),
            at(&[forward.kept, backward.kept, dropped.kept], update.peak),
        ];
        Ok(TuneMemory {
            trainable: model.trainable(),
            frozen: model.frozen_bytes() as u64,
            model: kept.kept.max(0) as u64,
            state: state.kept.max(0) as u64,
            activations: forward.kept.max(0) as u64,
            gradients: (backward.kept.max(0)) as u64,
            stored,
            peak: peaks.into_iter().max().unwrap_or(0),
            ms: forward.ms + backward.ms + update.ms,
        })
    };
    step()?;
    step()
}
