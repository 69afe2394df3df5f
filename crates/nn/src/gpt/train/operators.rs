//! A run by candle's autograd, with the operators of [`CandleOperators`].

use super::checkpoint::GptCheckpoint;
use super::engine::GptEngine;
use super::held_out::windowed_loss;
use super::kernels::{adamw, flat, named, shape, shape_of};
use super::plan::GptTrainConfig;
use super::run::GptRun;
use crate::gpt::{CandleOperators, Text, Tokens, Weights};
use crate::operator::{given, lent};
use candle_core::{DType, Device, Tensor, Var};
use gpulab::error::{Error, Result, same_length};
use gpulab::gpu::{Buffer, Gpu};
use gpulab::launch::Element;
use gpulab_kernels::gpt_step::{AdamWConfig, GptOperators, GptOptimizer, GptShape, GptState, StepResult};
use half::bf16;
use std::ops::Range;

/// A training step of GPT-2 by candle's graph and its backward pass: products, the residual's sums and the sums of gradients are
/// candle's, the rest is [`CandleOperators`]; AdamW is [`GptOptimizer`], on parameters in f32, of which the graph gets matrices in bf16.
/// The embeddings' sum is a leaf of the graph, and what its gradient adds to the table's is a kernel's work: candle's `index_add` has a
/// thread for each column alone, and takes 4 ms.
///
/// # What a step must do
/// Predicted, before any measurement, for GPT-2 with 124 million parameters and 8 × 1024 tokens on an H200. Bytes are counted in u = 12.6 MB,
/// an array of activations in bf16 as wide as the model; our kernels move them at 3 TB/s. candle's own kernels are slower than memory, as
/// each of their threads takes one number: in the record of its whole step (lesson 22a) a sum of 25 million numbers in bf16 takes 0.12 ms, 31 µs for
/// each u, and a cast to f32 10 ms for a billion.
///
/// | part | launches | what it is | predicted |
/// | --- | --- | --- | --- |
/// | products of layers and logits, by cuBLAS's own choice | 147 | 6.1 · 10¹² operations | 11.8 ms |
/// | attention, both passes | 48, and 84 fills | 0.54 · 10¹² operations | 2.9 ms |
/// | norms, biases, GELU, heads: forward 30 u, backward 39 u a layer | 270 | 10.4 GB | 3.5 ms |
/// | candle's residuals, and each gradient added to its zeros: 18 u a layer, and the matrices | 280 | 9 GB | 7.3 ms |
/// | those zeros: 14 u a layer, and the matrices | 232 | 2.4 GB | 0.7 ms |
/// | loss and its gradient, in the logits' place | 6 | 1.7 GB | 0.9 ms |
/// | gradients to f32 and into one array | 174 | 2.7 GB | 1.8 ms |
/// | norm of the gradients, AdamW | 3 | 4.2 GB | 1.1 ms |
/// | parameters for the next graph | 125 | 2 GB | 0.6 ms |
/// | embeddings, both passes | 10 | 0.1 GB | 0.2 ms |
/// | candle's stream and ours wait for each other | | 340 times 2 µs | 0.7 ms |
///
/// Together 31.5 ms in 1380 launches, which one core queues at some 8 to 12 µs each in 11 to 17 ms: it is the GPU that takes the time. PyTorch takes
/// 26.9 to 27.5 ms eager, so this would be 0.85 of its speed or a little more; with candle's own GELU (39 passes over 4 u a layer in its backward pass)
/// and biases (7 more edges a layer of the graph, and sums over columns, whose reads are not coalesced) it would be below half. At 32 × 1024 all but the
/// parameters' part is four times as much: 111 ms, where PyTorch takes 83. candle alone takes 640 ms for 8 × 1024.
///
/// # What it took
/// Measured on an H200 afterwards (`results/h200/candle_step.md`): 28.7 ms for 8 × 1024 tokens and 90.6 ms for 32 × 1024. In the same run PyTorch took
/// 30.9 ms eager and 25.0 compiled, with spreads that hold ours, and 81.5 and 67.6 ms. CUPTI's kernels for 8 × 1024, 1438 launches, come to 27.0 ms:
///
/// | part | launches | predicted | measured |
/// | --- | --- | --- | --- |
/// | products (`nvjet`) | 147 | 11.8 ms | 8.3 ms |
/// | attention's kernels, without the fills | 48 | 2.9 ms | 2.2 ms |
/// | `badd_bf16` 208 and `badd_f32` 73: residuals, and gradients that are added to their zeros | 281 | 7.3 ms | 7.4 ms |
/// | all fills | 359 | 0.7 ms and attention's | 1.1 ms |
/// | gradients to f32 and into one array (`cast_bf16_f32`, `copy2d_f32`) | 172 | 1.8 ms | 1.9 ms |
/// | `adamw`, `squares`, `tally` | 3 | 1.1 ms | 1.1 ms |
///
/// So the products were better than assumed, and candle's sums as slow: `badd_bf16`, 7.3 ms, is the longest line of the step. The record has names
/// and launches, not what each launch was for; that these are the sums of the row above follows from their number.
#[derive(Debug)]
pub struct CandleStep {
    operators: CandleOperators,
    optimizer: GptOptimizer,
    device: Device,
}

impl CandleStep {
    /// A model whose parameters are all 0, for `gpu`, that of candle's `device` ([`gpu_of`](crate::gpu_of)); or the simulated one for the CPU.
    ///
    /// # Errors
    /// As [`CandleOperators::new`]; out of memory above all.
    ///
    /// # Examples
    /// ```no_run
    /// use gpulab_kernels::gpt_step::{AdamWConfig, GptShape};
    /// use gpulab_nn::{DeviceKind, gpt::train::CandleStep, gpu_of};
    /// let (device, shape) = (DeviceKind::Cuda.open()?, GptShape::GPT2_124M);
    /// let mut step = CandleStep::new(&gpu_of(&device)?, &device, shape)?;
    /// step.load(&shape.start(1))?;
    /// step.queue(&[shape.random_tokens(8, 100)], &AdamWConfig::default())?;
    /// println!("loss {}", step.result()?.loss);
    /// # Ok::<(), gpulab::Error>(())
    /// ```
    pub fn new(gpu: &Gpu, device: &Device, shape: GptShape) -> Result<CandleStep> {
        let operators = CandleOperators::new(gpu, shape)?;
        let optimizer = GptOptimizer::new(operators.kernels())?;
        Ok(CandleStep { operators, optimizer, device: device.clone() })
    }

    /// Begins with these parameters, in the order of [`GptShape::tensors`].
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::Driver`].
    pub fn load(&mut self, parameters: &[f32]) -> Result<()> {
        self.optimizer.load(parameters)
    }

    /// Parameters, moments and gradients.
    pub fn optimizer(&self) -> &GptOptimizer {
        &self.optimizer
    }

    /// Queues a step whose gradients are the mean over these batches, each of texts of context + 1 tokens.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no batch, one of no whole texts, or a token that the vocabulary does not have; what candle and the GPU say.
    pub fn queue(&mut self, batches: &[Vec<u32>], adamw: &AdamWConfig) -> Result<()> {
        let batches = batches.iter().map(|texts| self.batch(texts)).collect::<Result<Vec<_>>>()?;
        let vars = self.parameters()?.into_iter().map(|part| Ok(Var::from_tensor(&part)?.into_inner()));
        let vars = vars.collect::<Result<Vec<Tensor>>>()?;
        let (mut sum, mut d_of_batches) = (None, Vec::new());
        for Batch { inputs, targets } in &batches {
            let share = 1.0 / (batches.len() * inputs.len()) as f32;
            let embedded = Var::from_tensor(&self.embedded(&vars, inputs)?)?;
            let rows = self.rows(&vars, embedded.as_tensor())?;
            let loss = self.operators.cross_entropy(&rows, &vars[0], &self.targets(targets)?, share)?;
            let mut gradients = loss.backward()?;
            let d_embedded = gradients.remove(&embedded).ok_or_else(without_gradient)?;
            let all = vars.iter().enumerate().map(|(at, var)| match gradients.remove(var) {
                Some(gradient) => Ok(gradient.detach().to_dtype(DType::F32)?.flatten_all()?),
                // The positions, whose gradient comes from the embeddings' sum.
                None if at == 1 => Ok(Tensor::zeros(var.elem_count(), DType::F32, &self.device)?),
                None => Err(without_gradient()),
            });
            let all = Tensor::cat(&all.collect::<Result<Vec<_>>>()?, 0)?;
            sum = Some(match sum {
                Some((loss_before, before)) => ((loss_before + loss.detach())?, (before + all)?),
                None => (loss.detach(), all),
            });
            d_of_batches.push(d_embedded.detach());
        }
        let (loss, all) = sum.ok_or_else(|| Error::invalid("a step without a batch", "give at least one"))?;
        let Self { operators, optimizer, .. } = self;
        let (gpu, kernels) = (operators.kernels().gpu(), operators.kernels());
        let loss = loss.reshape(1)?;
        optimizer.queue(kernels, adamw, &*lent::<f32>(gpu, &loss)?, |gradient| {
            gradient.copy_from_buffer(&*lent::<f32>(gpu, &all)?)?;
            batches.iter().zip(&d_of_batches).try_for_each(|(batch, d_embedded)| {
                kernels.embed_backward(&batch.inputs, &*lent::<bf16>(gpu, d_embedded)?, gradient)
            })
        })
    }

    /// What came of the last step; waits for it.
    ///
    /// # Errors
    /// As [`GptOptimizer::result`].
    pub fn result(&mut self) -> Result<StepResult> {
        self.optimizer.result()
    }

    /// The loss of each token of texts of context + 1 tokens, in nats, without a gradient or an update.
    ///
    /// # Errors
    /// As [`CandleStep::queue`].
    pub fn losses_of(&self, texts: &[u32]) -> Result<Vec<f32>> {
        let Batch { inputs, targets } = self.batch(texts)?;
        // Over plain tensors nothing is kept for a backward pass.
        let parameters = self.parameters()?;
        let rows = self.rows(&parameters, &self.embedded(&parameters, &inputs)?)?;
        Ok(self.operators.losses(&rows, &parameters[0], &self.targets(&targets)?)?.to_vec1()?)
    }

    fn shape(&self) -> &GptShape {
        self.operators.kernels().shape()
    }

    /// The parameters in the order of the flat arrays, scales and shifts of a norm as one: matrices in bf16, the others in f32.
    fn parameters(&self) -> Result<Vec<Tensor>> {
        let weights = copied::<bf16>(self.optimizer.weights(), &self.device)?;
        let master = copied::<f32>(self.optimizer.master(), &self.device)?;
        parts(self.shape())
            .into_iter()
            .map(|Part { range, sides: [rows, columns], matrix }| {
                let all = if matrix { &weights } else { &master };
                let part = all.narrow(0, range.start, range.len())?;
                Ok(if matrix || rows > 1 { part.reshape((rows, columns))? } else { part })
            })
            .collect()
    }

    fn batch(&self, texts: &[u32]) -> Result<Batch> {
        let context = self.shape().context;
        let rows = texts.len() / (context + 1) * (context + 1);
        same_length("the batch's tokens", rows.max(context + 1), texts.len())?;
        self.shape().knows(texts)?;
        let part = |from: usize| texts.chunks_exact(context + 1).flat_map(move |text| &text[from..from + context]);
        Ok(Batch { inputs: part(0).copied().collect(), targets: part(1).map(|&token| token as i32).collect() })
    }

    fn targets(&self, targets: &[i32]) -> Result<Tensor> {
        Ok(Tensor::from_slice(targets, targets.len(), &self.device)?)
    }

    /// The embeddings' sum, `[rows, width]`.
    fn embedded(&self, parameters: &[Tensor], inputs: &[u32]) -> Result<Tensor> {
        let (c, context) = (self.shape().width(), self.shape().context);
        let tokens = Tensor::from_slice(inputs, inputs.len(), &self.device)?;
        let rows = parameters[0].detach().index_select(&tokens, 0)?.reshape(((), context, c))?;
        Ok(rows.broadcast_add(&parameters[1].detach())?.reshape((inputs.len(), c))?)
    }

    /// Through all layers and the last norm: `[rows, width]` to the same.
    fn rows(&self, parameters: &[Tensor], embedded: &Tensor) -> Result<Tensor> {
        let (own, context) = (&self.operators, self.shape().context);
        let mut x = embedded.clone();
        let last = parameters.len() - 1;
        for layer in parameters[2..last].chunks_exact(LAYER) {
            let [qkv, project, up, down, norm_1, qkv_bias, project_bias, norm_2, up_bias, down_bias] = layer else {
                unreachable!("chunks of {LAYER}")
            };
            let seen = own.attend(&own.linear(&own.norm(&x, norm_1)?, qkv, qkv_bias)?, context)?;
            x = (x + own.linear(&seen, project, project_bias)?)?;
            let inner = own.linear_gelu(&own.norm(&x, norm_2)?, up, up_bias)?;
            x = (x + own.linear(&inner, down, down_bias)?)?;
        }
        own.norm(&x, &parameters[last])
    }
}

/// Parameters of a layer, as [`parts`] has them.
const LAYER: usize = 10;

/// What the model reads, and what follows each of it.
struct Batch {
    inputs: Vec<u32>,
    targets: Vec<i32>,
}

/// A parameter, or the scales and shifts of a norm.
struct Part {
    /// In the flat arrays.
    range: Range<usize>,
    /// Rows and columns; of a bias one row, of a norm two.
    sides: [usize; 2],
    matrix: bool,
}

fn parts(shape: &GptShape) -> Vec<Part> {
    let mut all: Vec<Part> = Vec::new();
    for tensor in shape.tensors() {
        let (norm, scales) = (tensor.name.contains("ln_"), tensor.name.ends_with(".weight"));
        match all.last_mut().filter(|_| norm && !scales) {
            Some(part) => (part.range.end, part.sides[0]) = (tensor.range.end, 2),
            None => all.push(Part { range: tensor.range, sides: tensor.sides, matrix: !norm && scales }),
        }
    }
    all
}

/// A copy that candle may keep: the next step writes into the buffer.
fn copied<T: crate::TensorElement>(from: &Buffer<T::Stored>, device: &Device) -> Result<Tensor>
where
    T::Stored: Element,
{
    let mut copy = from.gpu().alloc(from.len())?;
    copy.copy_from_buffer(from)?;
    given::<T>(copy, from.len(), device)
}

fn without_gradient() -> Error {
    Error::invalid("a parameter without a gradient", "this is a mistake of gpulab's: each has one after a step")
}

/// A training run by [`CandleStep`]. It reads the same pieces in the same order as [`GptTrainer`](super::GptTrainer), and its losses
/// differ by rounding.
#[derive(Debug)]
pub struct OperatorTrainer {
    run: GptRun,
    step: CandleStep,
}

impl OperatorTrainer {
    /// Whether the operators take this plan, and the GPU runs them.
    ///
    /// # Errors
    /// [`Error::Unsupported`] and [`Error::Invalid`] say why not.
    pub fn takes(gpu: &Gpu, plan: &GptTrainConfig) -> Result<()> {
        if plan.deterministic && !matches!(gpu, Gpu::Simulated(_)) {
            return Err(Error::unsupported(
                "the same bits in each run with attention that adds gradients up in any order",
                "take --engine kernels, or leave --deterministic out",
            ));
        }
        GptOperators::take(gpu, &shape_of(plan)?, plan.batch)
    }

    /// Starts from random weights, those of [`GptTrainer::new`](super::GptTrainer::new). `gpu` is that of candle's `device`
    /// ([`gpu_of`](crate::gpu_of)), or the simulated one for the CPU.
    ///
    /// # Errors
    /// As [`OperatorTrainer::takes`], [`GptRun::new`] and [`CandleStep::new`].
    pub fn new(plan: GptTrainConfig, tokens: Tokens, gpu: &Gpu, device: &Device) -> Result<OperatorTrainer> {
        let mut trainer = OperatorTrainer::with(GptRun::new(plan, tokens)?, gpu, device)?;
        trainer.step.load(&flat(&shape(plan.config)?, &Weights::random(plan.config, plan.seed)?))?;
        Ok(trainer)
    }

    /// Goes on from a checkpoint that was read, whichever engine has written it.
    ///
    /// # Errors
    /// As [`OperatorTrainer::new`]; [`Error::Invalid`] for a run on another text.
    pub fn from_checkpoint(
        checkpoint: &GptCheckpoint,
        text: &Text,
        gpu: &Gpu,
        device: &Device,
    ) -> Result<OperatorTrainer> {
        let mut trainer = OperatorTrainer::with(checkpoint.run(text)?, gpu, device)?;
        let shape = shape(checkpoint.plan.config)?;
        let [parameters, m, v] = [&checkpoint.parameters, &checkpoint.m, &checkpoint.v].map(|all| flat(&shape, all));
        trainer.step.optimizer.restore(&GptState { parameters, m, v, step: checkpoint.step })?;
        Ok(trainer)
    }

    fn with(run: GptRun, gpu: &Gpu, device: &Device) -> Result<OperatorTrainer> {
        OperatorTrainer::takes(gpu, &run.plan)?;
        let step = CandleStep::new(gpu, device, shape(run.plan.config)?)?;
        Ok(OperatorTrainer { run, step })
    }
}

impl GptEngine for OperatorTrainer {
    fn name(&self) -> &'static str {
        "operators"
    }

    fn run(&self) -> &GptRun {
        &self.run
    }

    fn step(&mut self) -> Result<f32> {
        let plan = self.run.plan;
        let batches: Vec<Vec<u32>> = (0..plan.accumulate).map(|batch| self.run.pieces(batch).2).collect();
        self.step.queue(&batches, &adamw(&plan, self.run.step))?;
        let StepResult { loss, norm } = self.step.result()?;
        self.run.note(loss, norm);
        Ok(loss)
    }

    fn held_out_loss_of(&mut self, most: usize) -> Result<f64> {
        let GptTrainConfig { config, batch, .. } = self.run.plan;
        windowed_loss(self.run.held_out(most), config.n_ctx, batch, &mut |windows| {
            self.step.losses_of(&windows.concat())
        })
    }

    fn checkpoint(&self) -> Result<GptCheckpoint> {
        let (shape, config) = (self.step.shape(), self.run.plan.config);
        let GptState { parameters, m, v, .. } = self.step.optimizer.state()?;
        let state = [named(shape, config, &parameters)?, named(shape, config, &m)?, named(shape, config, &v)?];
        Ok(GptCheckpoint::of(&self.run, self.name(), state))
    }

    fn device(&self) -> Device {
        self.step.device.clone()
    }
}

#[cfg(test)]
mod tests;
