//! One rung of flash attention's backward pass, ready to run and to time on a GPU.

use super::flash_attention::{self, known_width, mask};
use super::{Allocation, Array, Cost, HostArray, Launches, Loaded, Reference, Size, Topic, changed, check_at, lengths};
use crate::ladder::{Leaves, Rung, file, operator, rung};
use gpulab::cpu::{self, AttentionBackward, AttentionShape};
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu, Kernel, TensorMap};
use gpulab::launch::{LaunchConfig, Source};
use rayon::prelude::*;
use std::sync::OnceLock;

/// Heads are filled up to a multiple of so many queries in what passes between the kernels.
const PADDED: usize = 128;

/// How far the scores of random inputs spread.
const SPREAD: f32 = 2.0;

/// Heads of q, heads of k and v, tokens, and how far scores spread, that a new kernel is checked at. The simulator takes the
/// first three. Of lone keys some have so small a score that a score of 0, as beyond the last key, would weigh infinitely.
const AWKWARD: [(usize, usize, usize, f32); 5] =
    [(8, 8, 1, 300.0), (2, 1, 33, 8.0), (1, 1, 129, 1.0), (4, 2, 200, 8.0), (1, 1, 400, 1.0)];

/// Up to so many multiplications the forward pass behind random inputs is worked out in f64, beyond on the GPU.
const IN_F64: usize = 1 << 24;

/// The backward pass of flash attention on one GPU: the gradients of q, k and v from that of the result, from bf16 to bf16
/// (`u16` to the host) with sums in f32. No weight is read from memory: each is worked out again from the
/// log-sum-exp that the forward pass left.
///
/// ```no_run
/// use gpulab::prelude::*;
/// use gpulab_kernels::*;
/// let gpu = Gpu::open()?;
/// let backward = FlashBackward::new(&gpu, "flash_backward/02_tensor_cores", true)?;
/// println!("{} ms", topics::Topic::time(&backward, Size::Three(64, 4096, 128), &Bench::default())?);
/// # Ok::<(), Error>(())
/// ```
pub struct FlashBackward {
    gpu: Gpu,
    path: &'static str,
    causal: bool,
    /// For each of [`WIDTHS`](super::WIDTHS), once it is asked for.
    loaded: [OnceLock<Kernels>; 2],
    /// Of the forward pass, likewise.
    forward: [OnceLock<Loaded>; 2],
}

/// All kernels of a pass.
#[derive(Debug, Clone)]
struct Kernels {
    main: Loaded,
    /// Of a rung that adds to sums of dq, this one zeroes them.
    prepare: Kernel,
    round: Kernel,
    /// Threads of a block of the latter two.
    threads: u32,
}

/// What the backward pass is given: the forward pass's inputs and what it left, and the gradient of the result.
#[derive(Debug, Clone, Copy)]
pub struct BackwardInputs<'a> {
    /// `[batch, q_heads, length, width]` in bf16.
    pub q: &'a Buffer<u16>,
    /// `[batch, kv_heads, length, width]` in bf16.
    pub k: &'a Buffer<u16>,
    /// `[batch, kv_heads, length, width]` in bf16.
    pub v: &'a Buffer<u16>,
    /// The result of the forward pass, of `q`'s shape.
    pub o: &'a Buffer<u16>,
    /// The gradient of the result, of `q`'s shape.
    pub d_o: &'a Buffer<u16>,
    /// `[batch, q_heads, length]` in f32: log₂ of the sum of e^score over a query's keys.
    pub lse: &'a Buffer<f32>,
}

/// What it writes: the gradients, and room that passes from kernel to kernel.
#[derive(Debug)]
pub struct BackwardOutputs<'a> {
    /// Of `q`'s shape.
    pub dq: &'a mut Buffer<u16>,
    /// Of `k`'s shape.
    pub dk: &'a mut Buffer<u16>,
    /// Of `v`'s shape.
    pub dv: &'a mut Buffer<u16>,
    /// log-sum-exp of each query of a head, then delta of each: [`FlashBackward::room`] says how many numbers.
    pub rows: &'a mut Buffer<f32>,
    /// Sums of dq, where blocks add to each other's.
    pub sums: Option<&'a mut Buffer<f32>>,
}

impl std::fmt::Debug for FlashBackward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FlashBackward `{}`{} on {}", self.path, if self.causal { ", causal" } else { "" }, self.gpu)
    }
}

impl FlashBackward {
    /// Compiles the rung of that path, such as `flash_backward/02_tensor_cores`, for heads of 128 numbers, and checks it
    /// against f64. For heads of 64 that is done when they are first asked for. With `causal` no query sees a key behind
    /// it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a GPU that the rung does not run on, [`Error::Invalid`] for a path that is none, or a
    /// kernel whose result is wrong; the errors of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str, causal: bool) -> Result<FlashBackward> {
        let backward = FlashBackward::empty(gpu, path, causal)?;
        backward.kernels(128)?;
        Ok(backward)
    }

    /// Nothing is compiled yet.
    fn empty(gpu: &Gpu, path: &str, causal: bool) -> Result<FlashBackward> {
        let path = rung(path)?.path;
        Ok(FlashBackward { gpu: gpu.clone(), path, causal, loaded: Default::default(), forward: Default::default() })
    }

    /// The GPU that it was compiled for.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The same for heads of that width alone, with some of the rung's constants changed, to try them.
    ///
    /// # Errors
    /// As [`FlashBackward::new`].
    pub fn with(gpu: &Gpu, path: &str, causal: bool, width: usize, constants: &[(&str, u32)]) -> Result<FlashBackward> {
        FlashBackward::compile(gpu, path, width, constants)?.checked(causal)
    }

    /// The same, compiled and not checked yet, so that many can be compiled side by side.
    ///
    /// # Errors
    /// As [`FlashBackward::new`].
    pub fn compile(gpu: &Gpu, path: &str, width: usize, constants: &[(&str, u32)]) -> Result<CompiledBackward> {
        let rung = rung(path)?.for_heads_of(width)?.reshaped(constants);
        let kernels = Kernels::of(gpu, rung, rung_sources(rung)?, &changed(rung.defines, constants), width)?;
        Ok(CompiledBackward { gpu: gpu.clone(), path: rung.path, width, kernels })
    }

    /// The kernels for heads of that width, compiled and checked at their first use.
    fn kernels(&self, width: usize) -> Result<&Kernels> {
        let at = known_width(width)?;
        if let Some(kernels) = self.loaded[at].get() {
            return Ok(kernels);
        }
        let compiled = FlashBackward::compile(&self.gpu, self.path, width, &[])?;
        compiled.checked(self.causal)?;
        Ok(self.loaded[at].get_or_init(|| compiled.kernels))
    }

    /// Compares calls at awkward sizes with f64.
    fn check(&self, width: usize) -> Result<()> {
        let checks = if matches!(self.gpu, Gpu::Simulated(_)) { 3 } else { AWKWARD.len() };
        for (q_heads, kv_heads, length, spread) in AWKWARD.into_iter().take(checks) {
            let shape = AttentionShape { batch: 1, q_heads, kv_heads, length, width };
            self.check_at(shape, spread)?;
        }
        Ok(())
    }

    /// Compares every number of the gradients with f64, of random inputs whose scores spread so far.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names the first number that is wrong; as [`Kernel::launch`].
    pub fn check_at(&self, shape: AttentionShape, spread: f32) -> Result<()> {
        let inputs = self.random(shape, 1, spread)?;
        let on_gpu = super::on_gpu(&self.gpu, &inputs)?;
        let mut outputs = super::poisoned(&self.gpu, &self.allocations(shape)?)?;
        self.run(&on_gpu, &mut outputs, shape, &mut Launches::queue())?;
        let given = outputs.iter().take(3).map(Array::to_host).collect::<Result<Vec<_>>>()?;
        let rows = shape.rows() + shape.batch * shape.kv_heads * shape.length;
        let exact = (0..rows).into_par_iter().map(|row| self.exact(&inputs, shape, row));
        check_at(self.path, &format!("{shape}"), &given, exact.collect::<Vec<_>>())
    }

    /// The gradients of q, k and v, in arrays of their shapes.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] for an array that is not as long as its shape, [`Error::Invalid`] for a shape that is
    /// none or heads of another width than [`WIDTHS`](super::WIDTHS), [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn gradients(&self, inputs: BackwardInputs<'_>, shape: AttentionShape) -> Result<[Buffer<u16>; 3]> {
        let (mut dq, mut dk, mut dv) = (
            self.gpu.poison(shape.q_numbers())?,
            self.gpu.poison(shape.kv_numbers())?,
            self.gpu.poison(shape.kv_numbers())?,
        );
        let padded = padded(shape);
        let mut rows = self.gpu.poison(2 * padded)?;
        let mut sums = match self.adds(shape.width)? {
            true => Some(self.gpu.poison(padded * shape.width)?),
            false => None,
        };
        let outputs = BackwardOutputs { dq: &mut dq, dk: &mut dk, dv: &mut dv, rows: &mut rows, sums: sums.as_mut() };
        self.launch(&mut Launches::queue(), inputs, outputs, shape)?;
        Ok([dq, dk, dv])
    }

    /// The forward pass that leaves what the backward pass needs: the result, and the log-sum-exp of each query. It is a
    /// rung of `flash_attention`: the last one on Hopper, elsewhere the last that needs no Hopper.
    ///
    /// # Errors
    /// As [`FlashBackward::gradients`].
    pub fn forward(&self, [q, k, v]: [&Buffer<u16>; 3], shape: AttentionShape) -> Result<(Buffer<u16>, Buffer<f32>)> {
        let (mut o, mut lse) = (self.gpu.poison(shape.q_numbers())?, self.gpu.poison(shape.rows())?);
        self.forward_into([q, k, v], &mut o, &mut lse, shape)?;
        Ok((o, lse))
    }

    /// The same into arrays that are there; what is compiled when it is first asked for is so then.
    ///
    /// # Errors
    /// As [`FlashBackward::gradients`].
    pub fn forward_into(
        &self,
        [q, k, v]: [&Buffer<u16>; 3],
        o: &mut Buffer<u16>,
        lse: &mut Buffer<f32>,
        shape: AttentionShape,
    ) -> Result<()> {
        flash_attention::fits(shape, [q, k, v, o])?;
        lengths("attention", &[("lse", lse.len(), shape.rows())])?;
        let at = known_width(shape.width)?;
        let forward = match self.forward[at].get() {
            Some(forward) => forward,
            None => {
                let compiled = self.forward_kernel(shape.width)?;
                self.forward[at].get_or_init(|| compiled)
            }
        };
        flash_attention::launch(forward, &mut Launches::queue(), (q, k, v, o), Some(lse), shape, self.causal)
    }

    /// How many numbers `rows` and `sums` of [`BackwardOutputs`] have; 0 of a rung that needs no sums.
    ///
    /// # Errors
    /// As [`FlashBackward::gradients`].
    pub fn room(&self, shape: AttentionShape) -> Result<[usize; 2]> {
        let padded = padded(shape);
        Ok([2 * padded, if self.adds(shape.width)? { padded * shape.width } else { 0 }])
    }

    /// As [`FlashBackward::gradients`], into arrays that are there: nothing is allocated, so that a graph may take it in.
    ///
    /// # Errors
    /// As [`FlashBackward::gradients`]; [`Error::LengthMismatch`] for room that is too small.
    pub fn gradients_into(
        &self,
        inputs: BackwardInputs<'_>,
        outputs: BackwardOutputs<'_>,
        shape: AttentionShape,
    ) -> Result<()> {
        let [rows, sums] = self.room(shape)?;
        let given = outputs.sums.as_ref().map_or(0, |sums| sums.len());
        let kv = shape.kv_numbers();
        lengths(
            "attention's backward pass",
            &[
                ("rows", outputs.rows.len(), rows),
                ("sums", given, sums),
                ("dq", outputs.dq.len(), shape.q_numbers()),
                ("dk", outputs.dk.len(), kv),
                ("dv", outputs.dv.len(), kv),
            ],
        )?;
        self.launch(&mut Launches::queue(), inputs, outputs, shape)
    }

    fn forward_kernel(&self, width: usize) -> Result<Loaded> {
        let (path, of) = match self.gpu.compute_capability()? == (9, 0) {
            true => ("flash_backward/forward_hopper.cu", "flash_attention/09_ping_pong"),
            false => ("flash_backward/forward.cu", "flash_attention/05_swizzle"),
        };
        let rung = rung(of)?.for_heads_of(width)?;
        Loaded::of_source(&self.gpu, rung, file(path)?, &changed(rung.defines, &[]))
    }

    /// Whether blocks add to each other's sums of dq, in an order that nobody knows.
    fn adds(&self, width: usize) -> Result<bool> {
        Ok(self.kernels(width)?.main.rung.leaves == Leaves::Added)
    }

    fn allocations(&self, shape: AttentionShape) -> Result<Vec<Allocation>> {
        let padded = padded(shape);
        let (q, kv) = (Allocation::Bf16(shape.q_numbers()), Allocation::Bf16(shape.kv_numbers()));
        let mut all = vec![q, kv, kv, Allocation::F32(2 * padded)];
        all.extend(self.adds(shape.width)?.then_some(Allocation::F32(padded * shape.width)));
        Ok(all)
    }

    fn run(
        &self,
        inputs: &[Array],
        outputs: &mut [Array],
        shape: AttentionShape,
        launches: &mut Launches,
    ) -> Result<()> {
        let [q, k, v, o, d_o, lse] = inputs else { return Err(wrong_arrays(inputs.len())) };
        let (q, k, v, o, d_o) = (q.bf16()?, k.bf16()?, v.bf16()?, o.bf16()?, d_o.bf16()?);
        let inputs = BackwardInputs { q, k, v, o, d_o, lse: lse.f32()? };
        let given = outputs.len();
        let [dq, dk, dv, rows, more @ ..] = outputs else { return Err(wrong_arrays(given)) };
        let (dq, dk, dv, rows) = (dq.bf16_mut()?, dk.bf16_mut()?, dv.bf16_mut()?, rows.f32_mut()?);
        let sums = more.first_mut().map(Array::f32_mut).transpose()?;
        self.launch(launches, inputs, BackwardOutputs { dq, dk, dv, rows, sums }, shape)
    }

    fn launch(
        &self,
        launches: &mut Launches,
        inputs: BackwardInputs<'_>,
        outputs: BackwardOutputs<'_>,
        shape: AttentionShape,
    ) -> Result<()> {
        let BackwardInputs { q, k, v, o, d_o, lse } = inputs;
        flash_attention::fits(shape, [q, k, v, o])?;
        let expected = [("d_o", d_o.len(), shape.q_numbers()), ("lse", lse.len(), shape.rows())];
        lengths("attention's backward pass", &expected)?;
        let Kernels { main, prepare, round, threads } = self.kernels(shape.width)?;
        let BackwardOutputs { dq, dk, dv, rows, sums } = outputs;
        let AttentionShape { batch, q_heads, kv_heads, length, width } = shape;
        let (heads, kv_heads_all) = (batch * q_heads, batch * kv_heads);
        let (tokens, group) = (length as i32, (q_heads / kv_heads) as i32);
        let padded = length.next_multiple_of(PADDED);
        let scale = std::f32::consts::LOG2_E / (width as f32).sqrt();
        // The ends are no part of what a look at the rung's own kernel shows, but their results are.
        let blocks = |numbers: usize| LaunchConfig {
            grid: ((numbers / *threads as usize) as u32, heads as u32, 1),
            block: (*threads, 1, 1),
            shared_bytes: 0,
        };
        let causal = i32::from(self.causal);
        let mut config = main.rung.launch(length * width, heads, self.gpu.multiprocessors());
        let Some(sums) = sums else {
            prepare.launch(blocks(padded * width / 8), (o, d_o, lse, &mut *rows, tokens, padded as i32))?;
            // Half of the blocks own queries, half own keys.
            config.grid.2 = 2;
            let args = (q, k, v, d_o, &*rows, dq, dk, dv, tokens, group, scale, causal);
            return launches.launch(&main.kernel, config, args);
        };
        let args = (o, d_o, lse, &mut *rows, &mut *sums, tokens, padded as i32);
        prepare.launch(blocks(padded * width / 8), args)?;
        if main.tensor_maps == 0 {
            let args = (q, k, v, d_o, &*rows, &mut *sums, dk, dv, tokens, group, scale, causal);
            launches.launch(&main.kernel, config, args)?;
        } else {
            // Keys own the blocks, and a block takes all heads of q that share its own.
            config.grid.1 = kv_heads_all as u32;
            let constant = |name: &str| main.constant(name);
            let stack = |heads: usize| (heads, length, width);
            let (queries, keys) = (constant("QUERIES"), constant("KEYS"));
            let q = TensorMap::of_stack(q, stack(heads), queries)?;
            let d_o = TensorMap::of_stack(d_o, stack(heads), queries)?;
            let k = TensorMap::of_stack(k, stack(kv_heads_all), keys)?;
            let v = TensorMap::of_stack(v, stack(kv_heads_all), keys)?;
            // A warpgroup writes 64 keys.
            let mut dk = TensorMap::of_written_stack(dk, stack(kv_heads_all), 64)?;
            let mut dv = TensorMap::of_written_stack(dv, stack(kv_heads_all), 64)?;
            let args = (&q, &k, &v, &d_o, &*rows, &mut *sums, &mut dk, &mut dv, tokens, group, scale, causal);
            launches.launch(&main.kernel, config, args)?;
        }
        let factor = 1.0 / (width as f32).sqrt();
        round.launch(blocks(padded * width / 8), (&*sums, dq, tokens, padded as i32, factor))
    }

    /// q, k, v, the result of the forward pass, its gradient, and the log-sum-exp.
    fn random(&self, shape: AttentionShape, seed: u64, spread: f32) -> Result<Vec<HostArray>> {
        let [q, k, v] = cpu::attention_inputs(shape, seed, spread).map(flash_attention::bf16);
        let d_o = flash_attention::bf16(cpu::random_f32(shape.q_numbers(), 3 * seed + 7));
        let (o, lse) = if shape.scores().saturating_mul(shape.width) <= IN_F64 {
            let get = |x: &[u16], at: usize| f64::from(cpu::f32_from_bf16(x[at]));
            let rows = (0..shape.rows()).into_par_iter().map(|row| {
                let arrays: (cpu::ElementAt<'_>, cpu::ElementAt<'_>, cpu::ElementAt<'_>) =
                    (&|at| get(&q, at), &|at| get(&k, at), &|at| get(&v, at));
                cpu::attention_row(arrays, shape, &mask(self.causal), row)
            });
            let rows: Vec<cpu::AttentionRow> = rows.collect();
            let o = rows.iter().flat_map(|row| &row.values).map(|&x| cpu::bf16_from_f32(x as f32)).collect();
            (o, rows.iter().map(|row| row.lse as f32).collect())
        } else {
            let on_gpu = [&q, &k, &v].map(|x| self.gpu.to_device(x));
            let [q, k, v] = on_gpu;
            let (o, lse) = self.forward([&q?, &k?, &v?], shape)?;
            (o.to_host()?, lse.to_host()?)
        };
        let [q, k, v, o, d_o] = [q, k, v, o, d_o].map(HostArray::Bf16);
        Ok(vec![q, k, v, o, d_o, HostArray::F32(lse)])
    }

    /// A row of dq, or beyond its rows one of dk and dv, in f64 from what the kernels are given.
    fn exact(&self, inputs: &[HostArray], shape: AttentionShape, row: usize) -> Vec<Reference> {
        let width = shape.width;
        let get = |array: usize| move |at: usize| inputs[array].get(at);
        let delta =
            |row: usize| (row * width..(row + 1) * width).map(|at| inputs[3].get(at) * inputs[4].get(at)).sum::<f64>();
        let backward = AttentionBackward {
            shape,
            mask: &mask(self.causal),
            q: &get(0),
            k: &get(1),
            v: &get(2),
            d_o: &get(4),
            lse: &get(5),
            delta: &delta,
        };
        let piece = |output: usize, row: usize, gradient: cpu::GradientRow, terms: usize| {
            let allowed = gradient.allowed(terms, shape);
            Reference { output, from: row * width, values: gradient.values, allowed }
        };
        match row.checked_sub(shape.rows()) {
            None => vec![piece(0, row, backward.dq_row(row), shape.length)],
            Some(row) => {
                let [dk, dv] = backward.dkv_row(row);
                let terms = shape.length * shape.q_heads / shape.kv_heads;
                vec![piece(1, row, dk, terms), piece(2, row, dv, terms)]
            }
        }
    }
}

/// The kernels of a rung for heads of one width, of which nobody knows yet whether they are right.
#[derive(Debug)]
pub struct CompiledBackward {
    gpu: Gpu,
    path: &'static str,
    width: usize,
    kernels: Kernels,
}

impl CompiledBackward {
    /// The backward pass with or without a mask, checked against f64.
    ///
    /// # Errors
    /// As [`FlashBackward::new`].
    pub fn checked(&self, causal: bool) -> Result<FlashBackward> {
        let backward = FlashBackward::empty(&self.gpu, self.path, causal)?;
        backward.loaded[known_width(self.width)?].get_or_init(|| self.kernels.clone());
        backward.check(self.width)?;
        Ok(backward)
    }
}

impl Kernels {
    fn of(
        gpu: &Gpu,
        rung: Rung,
        [main, ends]: [Source; 2],
        constants: &[(String, u32)],
        width: usize,
    ) -> Result<Kernels> {
        let main = Loaded::of_source(gpu, rung, main, constants)?;
        let threads = operator("flash_backward/ends")?.constant("THREADS");
        let module = gpu.compile(ends.define("HEAD", width).define("THREADS", threads))?;
        let adds = rung.leaves == Leaves::Added;
        let prepare = module.kernel(if adds { "prepare_sums" } else { "prepare" })?;
        Ok(Kernels { main, prepare, round: module.kernel("round_dq")?, threads })
    }
}

/// The files of a rung and of what comes before and after it.
fn rung_sources(rung: Rung) -> Result<[Source; 2]> {
    Ok([file(&format!("{}.cu", rung.path))?, file("flash_backward/ends.cu")?])
}

/// Queries of all heads, each head filled up.
fn padded(shape: AttentionShape) -> usize {
    shape.batch * shape.q_heads * shape.length.next_multiple_of(PADDED)
}

fn wrong_arrays(given: usize) -> Error {
    Error::invalid(
        format!("{given} arrays for the backward pass of attention"),
        "take those that the topic's `inputs` and `outputs` name",
    )
}

/// A size is (heads, tokens, head dimension). The arrays are q, k, v, the result, its gradient, and the log-sum-exp.
impl Topic for FlashBackward {
    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn work(&self, size: Size) -> Result<Cost> {
        let shape = flash_attention::shape(size)?;
        // Five products, where the forward pass has two.
        let operations = 2.5 * shape.operations(self.causal);
        let bytes = 16 * shape.q_numbers() + 4 * shape.rows();
        Ok(Cost::of_operations(operations, bytes, "bf16").holding(bytes + 4 * padded(shape) * (shape.width + 2)))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        self.random(flash_attention::shape(size)?, seed, SPREAD)
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        self.allocations(flash_attention::shape(size)?)
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        self.run(inputs, outputs, flash_attention::shape(size)?, launches)
    }

    fn rows(&self, size: Size) -> Result<(usize, usize)> {
        Ok((2 * flash_attention::shape(size)?.rows(), 64))
    }

    fn exact_row(&self, inputs: &[HostArray], size: Size, row: usize) -> Result<Vec<Reference>> {
        Ok(self.exact(inputs, flash_attention::shape(size)?, row))
    }
}

#[cfg(test)]
mod tests;
