//! Attention as a chain of the course's kernels, a line of its formula each: ready to run, to look into, and to time.

use super::{Launches, length, lengths, wrong};
use crate::code::Listing;
use crate::ladder::{Operator, operator};
use AttentionStep::*;
use gpulab::bench::Bench;
use gpulab::cpu;
use gpulab::cpu::{AttentionMask, AttentionShape, Rounding, attention_inputs, attention_wrong};
use gpulab::error::{Result, bytes};
use gpulab::gpu::{Buffer, Gpu, Kernel, TimedWork};
use gpulab::inspect::Inspection;
use gpulab::launch::{Element, LaunchConfig};
use gpulab::measurement::{Backend, Measurement, Summary, figures};
use gpulab::table::{Cell, Table};
use rayon::prelude::*;
use std::cell::RefCell;
use std::fmt;

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

/// What a new set of kernels is checked at: sequences, heads of q, heads of k and v, tokens, head dimension; how far
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
    /// [`Error::Invalid`](gpulab::Error::Invalid) for kernels whose result is wrong; those of [`Gpu::compile`].
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

    /// Compares both chains with f64 at a shape, on random numbers whose scores spread by `spread`.
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) that names the first wrong number; as [`Attention::attend`].
    pub fn check(&self, shape: AttentionShape, mask: &AttentionMask, seed: u64, spread: f32) -> Result<()> {
        shape.check()?;
        let [q, k, v] = attention_inputs(shape, seed, spread).map(|x| self.rounded(x));
        let rows = super::spread_rows(shape.rows(), (1 << 24) / (shape.length * shape.width) + 16);
        for (steps, writes) in [(AttentionStep::CHAIN, 2), (AttentionStep::FUSED, 1)] {
            let given = self.run(steps, [&q, &k, &v], shape, mask)?;
            let at = |x: &[f32], at: usize| f64::from(x[at]);
            let inputs: (cpu::ElementAt<'_>, cpu::ElementAt<'_>, cpu::ElementAt<'_>) =
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
    /// [`Error::LengthMismatch`](gpulab::Error::LengthMismatch) for arrays of another length than the shape's,
    /// [`Error::Invalid`](gpulab::Error::Invalid) for a shape or mask that
    /// is none, [`Error::OutOfMemory`](gpulab::Error::OutOfMemory), [`Error::Driver`](gpulab::Error::Driver).
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
    /// As [`Attention::attend`]; [`Error::Unsupported`](gpulab::Error::Unsupported) on a real GPU.
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

    /// The kernels alone, by device events, in **ms per call**: a row for each step, named after it, and one for all steps
    /// of each chain, on random numbers; the size is the length. Each repetition runs all steps in order.
    ///
    /// # Errors
    /// [`Error::Unsupported`](gpulab::Error::Unsupported) on a simulated GPU,
    /// [`Error::OutOfMemory`](gpulab::Error::OutOfMemory) where the scores do not fit,
    /// [`Error::Driver`](gpulab::Error::Driver).
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
        let mut timed: Vec<TimedWork<'_>> =
            work.iter().map(|(_, steps)| TimedWork::Calls(Box::new(|_| run(steps)))).collect();
        // One call a sample: a step that is repeated finds what it made itself, and no longer what the step before made.
        let samples = self.gpu.time_interleaved(&plan.min_sample_ms(0.0), &mut timed)?;
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
        let ([q, k, v], kv_numbers) = (inputs.map(<[f32]>::len), shape.kv_numbers());
        lengths("attention", &[("q", q, shape.q_numbers()), ("k", k, kv_numbers), ("v", v, kv_numbers)])?;
        Held::new(&self.gpu, self.bf16, inputs, shape, mask)
    }

    fn rounded(&self, x: Vec<f32>) -> Vec<f32> {
        if self.bf16 { rounded(&x) } else { x }
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

/// One line of the formula, and the kernel that computes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionStep {
    /// Rows of tokens are cut into heads: `[batch, length, heads, width]` to `[batch, heads, length, width]`.
    SplitHeads,
    /// Each query times each key.
    Scores,
    /// Over √width.
    Scale,
    /// What must not be seen gets −∞.
    Mask,
    /// Each row of scores becomes weights, whose sum is 1.
    Softmax,
    /// The mean of v that they weigh.
    WeightedSum,
    /// Heads are put together again.
    MergeHeads,
    /// Scale, mask and softmax in one launch.
    MaskedSoftmax,
}

impl AttentionStep {
    /// A kernel for each line of the formula, in order.
    pub const CHAIN: &[AttentionStep] = &[SplitHeads, Scores, Scale, Mask, Softmax, WeightedSum, MergeHeads];
    /// The same with one kernel between the two products.
    pub const FUSED: &[AttentionStep] = &[SplitHeads, Scores, MaskedSoftmax, WeightedSum, MergeHeads];
    /// All of them.
    pub const ALL: &[AttentionStep] =
        &[SplitHeads, Scores, Scale, Mask, Softmax, WeightedSum, MergeHeads, MaskedSoftmax];

    /// Its name, as in tables and in `metrics.csv`.
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// What it computes, as a line of the formula.
    pub fn formula(self) -> &'static str {
        self.words().1
    }

    /// The operator's path and the kernel's name. The products have kernels of their own for bf16; the others are compiled
    /// with `-DBF16`.
    pub(super) fn kernel(self, bf16: bool) -> (&'static str, &'static str) {
        match (self, bf16, self.words()) {
            (Scores, true, (.., kernel)) => ("attention/scores_bf16", kernel),
            (WeightedSum, true, (.., kernel)) => ("attention/weighted_sum_bf16", kernel),
            (.., (.., path, kernel)) => (path, kernel),
        }
    }

    /// The file of its kernel for f32, to look at.
    ///
    /// # Errors
    /// [`Error::File`](gpulab::Error::File) when the file cannot be read.
    pub fn source(self) -> Result<Listing> {
        operator(self.kernel(false).0)?.listing()
    }

    fn words(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            SplitHeads => ("split heads", "Q, K, V by heads", "attention/heads", "split_heads"),
            Scores => ("scores", "S = Q Kᵀ", "attention/scores", "scores"),
            Scale => ("scale", "S / √d", "attention/scale", "scale"),
            Mask => ("mask", "S = −∞ where hidden", "attention/mask", "mask"),
            Softmax => ("softmax", "P = softmax(S)", "attention/softmax", "softmax_rows"),
            WeightedSum => ("weighted sum", "O = P V", "attention/weighted_sum", "weighted_sum"),
            MergeHeads => ("merge heads", "O by tokens", "attention/heads", "merge_heads"),
            MaskedSoftmax => {
                ("masked softmax", "P = softmax(S / √d), masked", "attention/masked_softmax", "masked_softmax")
            }
        }
    }
}

/// All arrays that the steps read and write.
#[derive(Debug)]
pub(super) struct Arrays<T: Element> {
    /// q, k and v by tokens: `[batch, length, heads, width]`.
    pub tokens: [Buffer<T>; 3],
    /// The same by heads.
    pub heads: [Buffer<T>; 3],
    /// Scores, then weights: `[batch, q_heads, length, length]`.
    pub scores: Buffer<T>,
    /// The result by heads.
    pub out: Buffer<T>,
    /// The result by tokens.
    pub merged: Buffer<T>,
    /// Keys of each sequence that are no padding.
    pub lengths: Buffer<i32>,
}

/// They are of one kind.
#[derive(Debug)]
pub(super) enum Held {
    F32(Arrays<f32>),
    Bf16(Arrays<u16>),
}

impl Held {
    /// Allocation for all, and `inputs`, which lie by heads, by tokens on the GPU. All that a step writes is poisoned: a number
    /// that a kernel forgets comes back as NaN.
    pub(super) fn new(
        gpu: &Gpu,
        bf16: bool,
        inputs: [&[f32]; 3],
        shape: AttentionShape,
        mask: &AttentionMask,
    ) -> Result<Held> {
        let by_tokens = |(input, heads): (&[f32], usize)| turned(input, heads, shape.length, shape.width);
        let heads = [shape.q_heads, shape.kv_heads, shape.kv_heads];
        // The scores first: they are what fails where there is no room.
        if bf16 {
            let scores = gpu.poison(shape.scores())?;
            let given: Vec<Vec<u16>> = inputs
                .into_iter()
                .zip(heads)
                .map(|x| by_tokens(x).into_iter().map(cpu::bf16_from_f32).collect())
                .collect();
            return Ok(Held::Bf16(arrays(gpu, scores, &given, shape, mask)?));
        }
        let scores = gpu.poison(shape.scores())?;
        let given: Vec<Vec<f32>> = inputs.into_iter().zip(heads).map(by_tokens).collect();
        Ok(Held::F32(arrays(gpu, scores, &given, shape, mask)?))
    }

    /// The result, by heads again.
    pub(super) fn result(&self, shape: AttentionShape) -> Result<Vec<f32>> {
        let merged = match self {
            Held::F32(arrays) => arrays.merged.to_host()?,
            Held::Bf16(arrays) => in_f32(arrays.merged.to_host()?),
        };
        // By tokens, heads and tokens have changed places.
        Ok(turned(&merged, shape.length, shape.q_heads, shape.width))
    }

    /// What lies in the scores' place.
    pub(super) fn weights(&self) -> Result<Vec<f32>> {
        match self {
            Held::F32(arrays) => arrays.scores.to_host(),
            Held::Bf16(arrays) => Ok(in_f32(arrays.scores.to_host()?)),
        }
    }
}

fn arrays<T: Element>(
    gpu: &Gpu,
    scores: Buffer<T>,
    given: &[Vec<T>],
    shape: AttentionShape,
    mask: &AttentionMask,
) -> Result<Arrays<T>> {
    let (q, kv) = (shape.q_numbers(), shape.kv_numbers());
    // At most `shape.length`, which kernels take as `int`.
    let whole = vec![shape.length; shape.batch];
    let lengths: Vec<i32> = mask.lengths.as_ref().unwrap_or(&whole).iter().map(|&length| length as i32).collect();
    Ok(Arrays {
        tokens: [gpu.to_device(&given[0])?, gpu.to_device(&given[1])?, gpu.to_device(&given[2])?],
        heads: [gpu.poison(q)?, gpu.poison(kv)?, gpu.poison(kv)?],
        scores,
        out: gpu.poison(q)?,
        merged: gpu.poison(q)?,
        lengths: gpu.to_device(&lengths)?,
    })
}

/// `[batch, first, second, width]` as `[batch, second, first, width]`.
fn turned(x: &[f32], first: usize, second: usize, width: usize) -> Vec<f32> {
    let sequence = |x: &[f32]| -> Vec<f32> {
        let rows = (0..second).flat_map(|s| (0..first).map(move |f| f * second + s));
        rows.flat_map(|row| x[row * width..(row + 1) * width].iter().copied()).collect()
    };
    x.par_chunks(first * second * width).flat_map_iter(sequence).collect()
}

fn in_f32(bits: Vec<u16>) -> Vec<f32> {
    bits.into_iter().map(cpu::f32_from_bf16).collect()
}

/// Each number as the nearest bf16.
pub(super) fn rounded(x: &[f32]) -> Vec<f32> {
    x.iter().map(|&x| cpu::f32_from_bf16(cpu::bf16_from_f32(x))).collect()
}

/// What one step does at least: each array that it takes read once, each that it gives written once.
#[derive(Debug, Clone, PartialEq)]
pub struct StepWork {
    /// Which.
    pub step: AttentionStep,
    /// Bytes.
    pub read: u64,
    /// Bytes.
    pub written: u64,
    /// Additions, multiplications, comparisons and exponentials.
    pub operations: f64,
    /// Its time, in ms, where rows with its name were given.
    pub ms: Option<f64>,
}

/// The steps of one attention, with their bytes and operations. As the last expression of a cell it shows itself.
///
/// # Examples
/// ```
/// use gpulab::cpu::{AttentionMask, AttentionShape};
/// use gpulab_kernels::AttentionWork;
/// let shape = AttentionShape { batch: 1, q_heads: 8, kv_heads: 8, length: 1024, width: 64 };
/// let (chained, fused) = (
///     AttentionWork::chained(shape, &AttentionMask::none(), 2)?,
///     AttentionWork::fused(shape, &AttentionMask::none(), 2)?,
/// );
/// // One kernel for scale, mask and softmax moves the scores fewer times, and computes the same.
/// assert!(fused.bytes() < chained.bytes());
/// println!("{chained}");
/// # Ok::<(), gpulab::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use = "work shows itself as the last expression of a cell, without a semicolon"]
pub struct AttentionWork {
    /// The shape in words.
    pub title: String,
    /// In order.
    pub steps: Vec<StepWork>,
    /// Where the times come from; empty without times.
    pub source: String,
}

/// Who computes it: what a mask costs differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chain {
    /// The course's kernels write hidden scores in place.
    InPlace,
    /// A framework reads scores and mask, and writes all scores anew.
    OutOfPlace,
}

impl AttentionWork {
    /// The course's chain, a kernel a line of the formula, with numbers of so many bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) and [`Error::LengthMismatch`](gpulab::Error::LengthMismatch) for what is
    /// no shape, or no mask of it.
    pub fn chained(shape: AttentionShape, mask: &AttentionMask, number: usize) -> Result<AttentionWork> {
        AttentionWork::of(AttentionStep::CHAIN, shape, mask, number, Chain::InPlace)
    }

    /// The same with scale, mask and softmax in one kernel.
    ///
    /// # Errors
    /// As [`AttentionWork::chained`].
    pub fn fused(shape: AttentionShape, mask: &AttentionMask, number: usize) -> Result<AttentionWork> {
        AttentionWork::of(AttentionStep::FUSED, shape, mask, number, Chain::InPlace)
    }

    /// The chain of a framework whose operators write a new array each.
    ///
    /// # Errors
    /// As [`AttentionWork::chained`].
    pub fn out_of_place(shape: AttentionShape, mask: &AttentionMask, number: usize) -> Result<AttentionWork> {
        AttentionWork::of(AttentionStep::CHAIN, shape, mask, number, Chain::OutOfPlace)
    }

    fn of(
        steps: &[AttentionStep],
        shape: AttentionShape,
        mask: &AttentionMask,
        number: usize,
        chain: Chain,
    ) -> Result<AttentionWork> {
        shape.check()?;
        mask.check(shape)?;
        let AttentionShape { batch, q_heads, length, width, .. } = shape;
        let sequence = |at| (0..length).map(|query| mask.seen(at, query, length)).sum::<usize>();
        let seen = q_heads * (0..batch).map(sequence).sum::<usize>();
        let (scores, q, kv) = (shape.scores(), shape.q_numbers(), shape.kv_numbers());
        let masks = if mask.lengths.is_some() { batch } else { 1 };
        let product = 2.0 * scores as f64 * width as f64;
        let work = |&step: &AttentionStep| {
            // A comparison, a subtraction, exp, an addition and a division for each number of a softmax.
            let (read, written, operations) = match (step, chain) {
                (AttentionStep::SplitHeads, Chain::InPlace) => (q + 2 * kv, q + 2 * kv, 0.0),
                // Grouped heads are repeated: k and v become as large as q.
                (AttentionStep::SplitHeads, Chain::OutOfPlace) => (q + 2 * kv, 3 * q, 0.0),
                (AttentionStep::Scores, Chain::OutOfPlace) => (2 * q, scores, product),
                (AttentionStep::Scores, _) => (q + kv, scores, product),
                (AttentionStep::Scale, _) => (scores, scores, scores as f64),
                (AttentionStep::Mask, Chain::InPlace) => (0, scores - seen, 0.0),
                (AttentionStep::Mask, Chain::OutOfPlace) => (scores + masks * length * length, scores, scores as f64),
                (AttentionStep::Softmax, _) => (scores, scores, 5.0 * scores as f64),
                (AttentionStep::MaskedSoftmax, _) => (seen, scores, 6.0 * seen as f64),
                (AttentionStep::WeightedSum, Chain::OutOfPlace) => (scores + q, q, product),
                (AttentionStep::WeightedSum, _) => (scores + kv, q, product),
                (AttentionStep::MergeHeads, _) => (q, q, 0.0),
            };
            StepWork { step, read: (number * read) as u64, written: (number * written) as u64, operations, ms: None }
        };
        let title = format!("{shape}, {number} bytes per element");
        Ok(AttentionWork { title, steps: steps.iter().map(work).collect(), source: String::new() })
    }

    /// The bytes that attention must move, whoever computes it: q, k and v read, the result written.
    pub fn least(shape: AttentionShape, number: usize) -> u64 {
        (number * (2 * shape.q_numbers() + 2 * shape.kv_numbers())) as u64
    }

    /// Bytes of all steps.
    pub fn bytes(&self) -> u64 {
        self.steps.iter().map(StepWork::bytes).sum()
    }

    /// Operations of all steps.
    pub fn operations(&self) -> f64 {
        self.steps.iter().map(|step| step.operations).sum()
    }

    /// Milliseconds of all steps; `None` where one has no time.
    pub fn ms(&self) -> Option<f64> {
        self.steps.iter().map(|step| step.ms).sum()
    }

    /// The same with the times of rows that are named after steps. Give rows of one size and one dtype.
    pub fn timed(mut self, rows: &[Measurement]) -> AttentionWork {
        for step in &mut self.steps {
            let row = rows.iter().find(|row| row.experiment == step.step.name() && row.metric == "time");
            step.ms = row.map(|row| row.summary.median);
            if let Some(row) = row {
                self.source = row.source();
            }
        }
        self
    }

    /// A row for each step with its share of the whole time in percent, for `plot::bars`; none without times.
    pub fn shares(&self, rows: &[Measurement]) -> Vec<Measurement> {
        let Some(all) = self.ms() else { return Vec::new() };
        let share = |step: &StepWork| {
            let row = rows.iter().find(|row| row.experiment == step.step.name())?;
            let percent = Summary::of(&[100.0 * step.ms? / all]);
            Some(Measurement { metric: "share".into(), unit: "%".into(), summary: percent, ..row.clone() })
        };
        self.steps.iter().filter_map(share).collect()
    }

    /// One row with the bytes of all steps, for a chart over the length.
    pub fn bytes_row(&self, name: &str, length: usize) -> Measurement {
        bytes_row(name, length, self.bytes())
    }

    fn table(&self) -> Table {
        let all = self.ms();
        let row = |step: &StepWork| {
            let mut cells = vec![
                Cell::of(step.step.name()),
                Cell::of(step.step.formula()),
                Cell::of(bytes(step.read)),
                Cell::of(bytes(step.written)),
                Cell::of(if step.operations == 0.0 { "–".into() } else { figures(step.operations / 1e9) }),
            ];
            if let Some(all) = all {
                let ms = step.ms.unwrap_or(f64::NAN);
                let rate = step.bytes() as f64 / ms / 1e6;
                cells.extend([figures(ms), format!("{:.1} %", 100.0 * ms / all), figures(rate)].map(Cell::of));
            }
            cells
        };
        let mut heads: Vec<&str> = vec!["step", "formula", "reads", "writes", "10⁹ operations"];
        heads.extend(all.map(|_| ["ms", "of the time", "GB/s"]).iter().flatten());
        let mut notes = vec![format!("{} in all", bytes(self.bytes()))];
        if let Some(all) = all {
            notes.push(format!("{} ms in all, {}", figures(all), self.source));
        }
        Table {
            title: self.title.clone(),
            heads: heads.into_iter().map(str::to_string).collect(),
            rows: self.steps.iter().map(row).collect(),
            text_columns: 1,
            notes,
        }
    }

    /// The table as a piece of a page.
    pub fn html(&self) -> String {
        self.table().html()
    }

    /// What the notebook calls to show it.
    pub fn evcxr_display(&self) {
        self.table().show();
    }
}

impl StepWork {
    /// Read and written.
    pub fn bytes(&self) -> u64 {
        self.read + self.written
    }
}

impl fmt::Display for AttentionWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table().text())
    }
}

/// A row of bytes that were derived, in GB (10⁹ bytes), at that length.
pub fn bytes_row(name: &str, length: usize, bytes: u64) -> Measurement {
    let row = Measurement::new(name, Backend::Derived, length, "bytes", "GB", Summary::of(&[bytes as f64 / 1e9]));
    Measurement { machine: "derived".to_string(), ..row.dtype("") }
}

#[cfg(test)]
mod tests;
