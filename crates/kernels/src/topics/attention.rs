//! Attention as a chain of the course's kernels, a line of its formula each: ready to run, to look into, and to time.

mod arrays;
mod step;
#[cfg(test)]
mod tests;
mod work;

pub use step::AttentionStep;
pub use work::{AttentionWork, StepWork, bytes_row};

use super::{Launches, length, wrong};
use crate::ladder::{Operator, operator};
use arrays::{Arrays, Held};
use gpulab::bench::Bench;
use gpulab::cpu::{self, AttentionMask, AttentionShape, Rounding, attention_inputs, attention_wrong};
use gpulab::error::{Error, Result};
use gpulab::gpu::{Contestant, Gpu, Kernel};
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::measurement::{Measurement, Summary};
use std::cell::RefCell;

/// The kernels of chained attention on one GPU, in f32 or bf16 (with sums in f32). Arrays on the host are f32: `q` and the
/// result `[batch, q_heads, length, width]`, `k` and `v` `[batch, kv_heads, length, width]`. A query to which every key is
/// hidden gets the result 0.
#[derive(Debug, Clone)]
pub struct Attention {
    gpu: Gpu,
    bf16: bool,
    /// In the order of [`AttentionStep::ALL`].
    kernels: Vec<(Operator, Kernel)>,
}

/// What a new set of kernels is checked at: sequences, heads of q, heads of k and v, tokens, numbers of a head; how far
/// the scores spread. The last ones' exp is infinite where nobody takes the largest one away.
const AWKWARD: [([usize; 5], f32); 4] =
    [([1, 1, 1, 1, 16], 1.0), ([2, 4, 2, 33, 16], 2.0), ([1, 2, 1, 31, 80], 0.5), ([1, 1, 1, 65, 64], 100.0)];

/// What a launch of a step needs beside its arrays.
struct Call<'a> {
    shape: AttentionShape,
    mask: &'a AttentionMask,
}

impl Attention {
    /// Compiles the kernels for f32, and checks them against f64 at awkward shapes, with and without masks.
    ///
    /// # Errors
    /// [`Error::Invalid`] for kernels whose result is wrong; those of [`Gpu::compile`].
    pub fn new(gpu: &Gpu) -> Result<Attention> {
        Attention::compiled(gpu, false)
    }

    /// The same in bf16: inputs, scores, weights and the result are rounded to it, and sums are f32.
    ///
    /// # Errors
    /// As [`Attention::new`].
    pub fn bf16(gpu: &Gpu) -> Result<Attention> {
        Attention::compiled(gpu, true)
    }

    fn compiled(gpu: &Gpu, bf16: bool) -> Result<Attention> {
        let kernel = |step: &AttentionStep| {
            let (path, kernel) = step.kernel(bf16);
            let operator = operator(path)?;
            if let Ok(capability) = gpu.compute_capability() {
                operator.runs_on(capability)?;
            }
            let source = operator.source()?;
            let module = gpu.compile(if bf16 { source.define("BF16", 1) } else { source })?;
            Ok((operator, module.kernel(kernel)?))
        };
        let kernels = AttentionStep::ALL.iter().map(kernel).collect::<Result<Vec<_>>>()?;
        let attention = Attention { gpu: gpu.clone(), bf16, kernels };
        for (seed, ([batch, q_heads, kv_heads, length, width], spread)) in (1..).zip(AWKWARD) {
            let shape = AttentionShape { batch, q_heads, kv_heads, length, width };
            let ends: Vec<usize> = (0..batch).map(|at| length * (at + 1) / (batch + 1)).collect();
            for mask in [AttentionMask::none(), AttentionMask::causal().padded(&ends)] {
                attention.check(shape, &mask, seed, spread)?;
            }
        }
        Ok(attention)
    }

    /// Holds both chains against f64 at a shape, on random numbers whose scores spread by `spread`.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names the first wrong number; as [`Attention::attend`].
    pub fn check(&self, shape: AttentionShape, mask: &AttentionMask, seed: u64, spread: f32) -> Result<()> {
        shape.check()?;
        let [q, k, v] = attention_inputs(shape, seed, spread).map(|x| self.rounded(x));
        let rows = super::spread_rows(shape.rows(), (1 << 24) / (shape.length * shape.width) + 16);
        for (steps, writes) in [(AttentionStep::CHAIN, 2), (AttentionStep::FUSED, 1)] {
            let given = self.run(steps, [&q, &k, &v], shape, mask)?;
            let at = |x: &[f32], at: usize| f64::from(x[at]);
            let inputs: (cpu::Numbers<'_>, cpu::Numbers<'_>, cpu::Numbers<'_>) =
                (&|n| at(&q, n), &|n| at(&k, n), &|n| at(&v, n));
            let rounding = if self.bf16 { Rounding::Bf16Scores(writes) } else { Rounding::F32 };
            if let Some(what) = attention_wrong(&|n| at(&given, n), inputs, shape, mask, &rows, rounding) {
                return Err(wrong("attention", what));
            }
        }
        Ok(())
    }

    /// Runs the chain, a kernel a line of the formula, and gives the result.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] for arrays of another length than the shape's, [`Error::Invalid`] for a shape or mask that
    /// is none, [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn attend(
        &self,
        q: &[f32],
        k: &[f32],
        v: &[f32],
        shape: AttentionShape,
        mask: &AttentionMask,
    ) -> Result<Vec<f32>> {
        self.run(AttentionStep::CHAIN, [q, k, v], shape, mask)
    }

    /// The same with scale, mask and softmax in one kernel.
    ///
    /// # Errors
    /// As [`Attention::attend`].
    pub fn attend_fused(
        &self,
        q: &[f32],
        k: &[f32],
        v: &[f32],
        shape: AttentionShape,
        mask: &AttentionMask,
    ) -> Result<Vec<f32>> {
        self.run(AttentionStep::FUSED, [q, k, v], shape, mask)
    }

    /// The weights P that the chain computes on the way, `[batch, q_heads, length, length]`.
    ///
    /// # Errors
    /// As [`Attention::attend`].
    pub fn weights(&self, q: &[f32], k: &[f32], shape: AttentionShape, mask: &AttentionMask) -> Result<Vec<f32>> {
        let until = AttentionStep::CHAIN.iter().position(|&step| step == AttentionStep::WeightedSum);
        let mut held = self.held([q, k, k], shape, mask)?;
        for &step in &AttentionStep::CHAIN[..until.unwrap_or(0)] {
            self.step(step, &mut held, &Call { shape, mask }, &mut Launches::queue())?;
        }
        held.weights()
    }

    /// What the simulator saw of each step on random numbers; of the first step the launch for q.
    ///
    /// # Errors
    /// As [`Attention::attend`]; [`Error::Unsupported`] on a real GPU.
    pub fn inspect(&self, shape: AttentionShape, mask: &AttentionMask) -> Result<Vec<(AttentionStep, Inspection)>> {
        let mut held = self.random(shape, mask)?;
        let look = |&step: &AttentionStep| {
            let mut launches = Launches::inspect();
            self.step(step, &mut held, &Call { shape, mask }, &mut launches)?;
            let first = launches.inspections.into_iter().next();
            Ok(first.map(|seen| (step, seen)))
        };
        let seen = AttentionStep::CHAIN.iter().map(look).collect::<Result<Vec<_>>>()?;
        Ok(seen.into_iter().flatten().collect())
    }

    /// The kernels alone, by device events, in **ms a call**: a row for each step, named after it, and one for all steps
    /// of each chain, on random numbers; the size is the length. Each round runs all steps in order.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a simulated GPU, [`Error::OutOfMemory`] where the scores do not fit, [`Error::Driver`].
    pub fn time_steps(&self, shape: AttentionShape, mask: &AttentionMask, plan: &Bench) -> Result<Vec<Measurement>> {
        self.gpu.has_times()?;
        let held = RefCell::new(self.random(shape, mask)?);
        let call = Call { shape, mask };
        let run = |steps: &[AttentionStep]| {
            let queue = |&step: &AttentionStep| self.step(step, &mut held.borrow_mut(), &call, &mut Launches::queue());
            steps.iter().try_for_each(queue)
        };
        let mut work: Vec<(&str, Vec<AttentionStep>)> =
            AttentionStep::ALL.iter().map(|&step| (step.name(), vec![step])).collect();
        work.push(("all steps", AttentionStep::CHAIN.to_vec()));
        work.push(("all steps, softmax fused", AttentionStep::FUSED.to_vec()));
        let mut contestants: Vec<Contestant<'_>> =
            work.iter().map(|(_, steps)| Contestant::Calls(Box::new(|_| run(steps)))).collect();
        // One call a sample: a step that is repeated finds what it made itself, and no longer what the step before made.
        let samples = self.gpu.time_interleaved(&plan.min_sample_ms(0.0), &mut contestants)?;
        let row = |((name, _), samples): (&(&str, Vec<AttentionStep>), &Vec<f64>)| {
            let dtype = if self.bf16 { "bf16" } else { "f32" };
            Measurement::time_ms(name, self.gpu.backend(), shape.length, Summary::of(samples)).dtype(dtype)
        };
        Ok(work.iter().zip(&samples).map(row).collect())
    }

    fn run(
        &self,
        steps: &[AttentionStep],
        inputs: [&[f32]; 3],
        shape: AttentionShape,
        mask: &AttentionMask,
    ) -> Result<Vec<f32>> {
        let mut held = self.held(inputs, shape, mask)?;
        for &step in steps {
            self.step(step, &mut held, &Call { shape, mask }, &mut Launches::queue())?;
        }
        held.result(shape)
    }

    fn random(&self, shape: AttentionShape, mask: &AttentionMask) -> Result<Held> {
        shape.check()?;
        let [q, k, v] = attention_inputs(shape, 1, 1.0);
        self.held([&q, &k, &v], shape, mask)
    }

    fn held(&self, inputs: [&[f32]; 3], shape: AttentionShape, mask: &AttentionMask) -> Result<Held> {
        shape.check()?;
        mask.check(shape)?;
        let wanted = [shape.q_numbers(), shape.kv_numbers(), shape.kv_numbers()];
        for ((what, input), expected) in ["q", "k", "v"].into_iter().zip(inputs).zip(wanted) {
            if input.len() != expected {
                let what = format!("attention's `{what}`");
                return Err(Error::LengthMismatch { what, expected, given: input.len() });
            }
        }
        Held::new(&self.gpu, self.bf16, inputs, shape, mask)
    }

    fn rounded(&self, x: Vec<f32>) -> Vec<f32> {
        if self.bf16 { arrays::rounded(&x) } else { x }
    }

    fn step(&self, step: AttentionStep, held: &mut Held, call: &Call<'_>, launches: &mut Launches) -> Result<()> {
        match held {
            Held::F32(arrays) => self.launch(step, arrays, call, launches),
            Held::Bf16(arrays) => self.launch(step, arrays, call, launches),
        }
    }

    fn launch<T: gpulab::launch::Element>(
        &self,
        step: AttentionStep,
        arrays: &mut Arrays<T>,
        Call { shape, mask }: &Call<'_>,
        launches: &mut Launches,
    ) -> Result<()> {
        let (operator, kernel) = &self.kernels[step as usize];
        let AttentionShape { batch, q_heads, kv_heads, length: tokens, width } = *shape;
        let [heads_of_q, heads_of_kv, t, d] = [length(q_heads)?, length(kv_heads)?, length(tokens)?, length(width)?];
        let (block, count) = (LaunchConfig::for_elements, |n: usize| n as i64);
        // What no grid holds is refused at the launch.
        let blocks = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let rows = LaunchConfig::new(blocks(shape.rows()), 256);
        // Of each product a tile a block; in f32 a thread computes 4 × 4.
        let product = |columns: usize| {
            let tile = operator.constant("TILE");
            let tiles = |side: usize| blocks(side.div_ceil(tile as usize));
            LaunchConfig {
                grid: (tiles(columns), tiles(tokens), blocks(batch * q_heads)),
                block: (if self.bf16 { operator.constant("THREADS") } else { (tile / 4).pow(2) }, 1, 1),
                shared_bytes: 0,
            }
        };
        let factor = 1.0 / (width as f32).sqrt();
        let causal = i32::from(mask.causal);
        let Arrays { tokens: given, heads, scores, out, merged, lengths } = arrays;
        match step {
            AttentionStep::SplitHeads => {
                for ((x, y), heads) in given.iter().zip(heads).zip([heads_of_q, heads_of_kv, heads_of_kv]) {
                    let n = x.len();
                    launches.launch(kernel, block(n, 256), (x, y, heads, t, d, count(n)))?;
                }
                Ok(())
            }
            AttentionStep::Scores => {
                let [q, k, _] = heads;
                launches.launch(kernel, product(tokens), (&*q, &*k, scores, heads_of_q, heads_of_kv, t, d))
            }
            AttentionStep::Scale => {
                let n = scores.len();
                let threads = n.div_ceil(operator.constant("EACH") as usize);
                launches.launch(kernel, block(threads, 256), (scores, factor, count(n)))
            }
            AttentionStep::Mask => launches.launch(kernel, rows, (scores, &*lengths, heads_of_q, t, causal)),
            AttentionStep::Softmax => launches.launch(kernel, rows, (scores, t)),
            AttentionStep::MaskedSoftmax => {
                launches.launch(kernel, rows, (scores, &*lengths, factor, heads_of_q, t, causal))
            }
            AttentionStep::WeightedSum => {
                let arrays = (&*scores, &heads[2], out, heads_of_q, heads_of_kv, t, d);
                launches.launch(kernel, product(width), arrays)
            }
            AttentionStep::MergeHeads => {
                let n = out.len();
                launches.launch(kernel, block(n, 256), (&*out, merged, heads_of_q, t, d, count(n)))
            }
        }
    }
}
