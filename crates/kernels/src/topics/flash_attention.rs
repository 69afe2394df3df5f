//! One rung of flash attention, ready to run and to time on a GPU.

use super::{
    Allocation, Array, Cost, HostArray, Launches, Loaded, Reference, Size, Topic, lengths, spread_rows, wrong,
};
use crate::ladder::{Language, Rung, rung};
use crate::tiles::TileProgram;
use gpulab::bench::Bench;
use gpulab::cpu::{self, AttentionMask, AttentionShape, Rounding};
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu, Module, TensorMap};
use gpulab::measurement::Summary;
use std::sync::OnceLock;

/// The head dimension that the kernels are made for.
pub const WIDTHS: [usize; 2] = [64, 128];

/// Rows that the TMA moves at once of q and of the result.
const Q_BOX: u32 = 64;

/// How far the scores of random inputs spread: softmax then looks at a few keys of many, and its maximum moves.
const SPREAD: f32 = 2.0;

/// Heads of q, heads of k and v, and tokens that a new kernel is checked at: no multiples of any tile. The simulator takes
/// the first two, which it is done with in no time.
const AWKWARD: [(usize, usize, usize); 4] = [(2, 2, 1), (2, 1, 33), (4, 2, 129), (1, 1, 400)];

/// A flash attention kernel of the course on one GPU: `softmax(q · kᵀ / √width) · v` for each head, from bf16 to bf16
/// (`u16` to the host) with sums in f32, in one pass over the keys: no score is ever written to memory.
///
/// ```no_run
/// use gpulab::prelude::*;
/// use gpulab_kernels::*;
/// let gpu = Gpu::open()?;
/// let shape = cpu::AttentionShape { batch: 4, q_heads: 16, kv_heads: 16, length: 4096, width: 128 };
/// let flash = FlashAttention::new(&gpu, "flash_attention/03_tensor_cores", true)?;
/// println!("{} ms", flash.time(shape, &Bench::default())?);
/// # Ok::<(), Error>(())
/// ```
pub struct FlashAttention {
    gpu: Gpu,
    rung: Rung,
    causal: bool,
    /// For each of [`WIDTHS`], once it is asked for.
    loaded: [OnceLock<Loaded>; 2],
}

/// q, k, v and the result in device memory.
type Arrays<'a> = (&'a Buffer<u16>, &'a Buffer<u16>, &'a Buffer<u16>, &'a mut Buffer<u16>);

impl std::fmt::Debug for FlashAttention {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FlashAttention `{}`{} on {}", self.rung.path, if self.causal { ", causal" } else { "" }, self.gpu)
    }
}

impl FlashAttention {
    /// Compiles the rung of that path, such as `flash_attention/03_tensor_cores` or `flash_attention/01_one_pass.rs`, for heads of 128 numbers, and checks it
    /// against f64. For heads of 64 that is done when they are first asked for. With `causal` no query sees a key behind
    /// it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a GPU that the rung does not run on, [`Error::Invalid`] for a path that is none, or a
    /// kernel whose result is wrong; the errors of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str, causal: bool) -> Result<FlashAttention> {
        let flash = FlashAttention { gpu: gpu.clone(), rung: rung(path)?, causal, loaded: Default::default() };
        flash.loaded(128)?;
        Ok(flash)
    }

    /// The program on tiles with its constants, from the module that was made of its source, for heads of as many numbers as it
    /// is made for; checked likewise.
    ///
    /// # Errors
    /// As [`FlashAttention::new`].
    pub fn on_tiles(gpu: &Gpu, program: &TileProgram, module: &Module, causal: bool) -> Result<FlashAttention> {
        let loaded = Loaded::on_tiles(gpu, program, module)?;
        let width = loaded.constant("HEAD") as usize;
        let at = known_width(width)?;
        check_all(&loaded, width, causal)?;
        let flash = FlashAttention { gpu: gpu.clone(), rung: loaded.rung, causal, loaded: Default::default() };
        flash.loaded[at].get_or_init(|| loaded);
        Ok(flash)
    }

    /// All four steps: allocates, copies `q`, `k` and `v` to the device, launches, and copies the result back. Row-major:
    /// `q` and the result `[batch, q_heads, length, width]`, `k` and `v` `[batch, kv_heads, length, width]`.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] for an array that is not as long as its shape, [`Error::Invalid`] for a shape that is
    /// none or heads of another width than [`WIDTHS`], [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn attend(&self, q: &[u16], k: &[u16], v: &[u16], shape: AttentionShape) -> Result<Vec<u16>> {
        // Poisoned: a number that the kernel forgets comes back as NaN.
        let mut o = self.gpu.poison(q.len())?;
        let (q, k, v) = (self.gpu.to_device(q)?, self.gpu.to_device(k)?, self.gpu.to_device(v)?);
        self.launch(&mut Launches::queue(), (&q, &k, &v, &mut o), shape)?;
        o.to_host()
    }

    /// The kernel alone, by device events, in **ms per call**: the arrays are on the GPU already, as many sets of them as
    /// the cache does not hold.
    ///
    /// # Errors
    /// As [`FlashAttention::attend`].
    pub fn time(&self, shape: AttentionShape, plan: &Bench) -> Result<Summary> {
        self.gpu.has_times()?;
        shape.check()?;
        let count = self.gpu.sets_past_cache(4 * (shape.q_numbers() + shape.kv_numbers()));
        let set = |seed| {
            // First what fails where there is no room, before the host makes as many numbers.
            let o = self.gpu.alloc::<u16>(shape.q_numbers())?;
            let inputs = random(shape, seed).iter().map(|x| self.gpu.to_device(x)).collect::<Result<Vec<_>>>()?;
            Ok((inputs, o))
        };
        let mut sets = (0..count as u64).map(set).collect::<Result<Vec<_>>>()?;
        self.gpu.time(plan, |call| {
            let (inputs, o) = &mut sets[call % count];
            self.launch(&mut Launches::queue(), (&inputs[0], &inputs[1], &inputs[2], o), shape)
        })
    }

    fn launch(&self, launches: &mut Launches, arrays: Arrays<'_>, shape: AttentionShape) -> Result<()> {
        fits(shape, [arrays.0, arrays.1, arrays.2, &*arrays.3])?;
        launch(self.loaded(shape.width)?, launches, arrays, None, shape, self.causal)
    }

    /// The kernel for heads of that width, compiled and checked at its first use.
    fn loaded(&self, width: usize) -> Result<&Loaded> {
        let at = known_width(width)?;
        if let Some(loaded) = self.loaded[at].get() {
            return Ok(loaded);
        }
        let loaded = Loaded::of(&self.gpu, self.rung.for_heads_of(width)?)?;
        check_all(&loaded, width, self.causal)?;
        Ok(self.loaded[at].get_or_init(|| loaded))
    }
}

/// Compares calls at awkward sizes with f64.
fn check_all(loaded: &Loaded, width: usize, causal: bool) -> Result<()> {
    let checks = if matches!(loaded.gpu, Gpu::Simulated(_)) { 2 } else { AWKWARD.len() };
    for (turn, (q_heads, kv_heads, length)) in AWKWARD.into_iter().take(checks).enumerate() {
        let shape = AttentionShape { batch: 1, q_heads, kv_heads, length, width };
        check(loaded, shape, causal, [1.0, 8.0][turn % 2])?;
    }
    Ok(())
}

/// Compares one call on random numbers, whose scores spread so far, with f64.
fn check(loaded: &Loaded, shape: AttentionShape, causal: bool, spread: f32) -> Result<()> {
    let inputs = cpu::attention_inputs(shape, 1, spread).map(bf16);
    let on_gpu = inputs.iter().map(|x| loaded.gpu.to_device(x)).collect::<Result<Vec<_>>>()?;
    let mut o = loaded.gpu.poison(shape.q_numbers())?;
    launch(loaded, &mut Launches::queue(), (&on_gpu[0], &on_gpu[1], &on_gpu[2], &mut o), None, shape, causal)?;
    match off(&o.to_host()?, [&inputs[0], &inputs[1], &inputs[2]], shape, causal) {
        Some(what) => Err(wrong(loaded.rung.path, what)),
        None => Ok(()),
    }
}

/// One launch; of a kernel of the forward pass that leaves it, the log-sum-exp goes to `lse`.
pub(super) fn launch(
    loaded: &Loaded,
    launches: &mut Launches,
    (q, k, v, o): Arrays<'_>,
    lse: Option<&mut Buffer<f32>>,
    shape: AttentionShape,
    causal: bool,
) -> Result<()> {
    let AttentionShape { batch, q_heads, kv_heads, length, width } = shape;
    let heads = batch * q_heads;
    // A block for each tile of queries of each head; its tile counts their numbers.
    let columns = length * width;
    // exp(x) is a power of 2 of x times this, which the division by √width goes into.
    let scale = std::f32::consts::LOG2_E / (width as f32).sqrt();
    let (tokens, group, causal) = (length as i32, (q_heads / kv_heads) as i32, i32::from(causal));
    if loaded.tensor_maps == 0 {
        return match lse {
            None => loaded.launch(launches, columns, heads, (q, k, v, o, tokens, group, scale, causal)),
            Some(lse) => loaded.launch(launches, columns, heads, (q, k, v, o, tokens, group, scale, causal, lse)),
        };
    }
    let keys = loaded.constant("KEYS");
    let stack = |heads: usize| (heads, length, width);
    // A program on tiles asks for a block's queries at once.
    let q_box = if loaded.rung.language == Language::Rust { loaded.constant("GROUPS") * Q_BOX } else { Q_BOX };
    let q = TensorMap::of_stack(q, stack(heads), q_box)?;
    let k = TensorMap::of_stack(k, stack(batch * kv_heads), keys)?;
    let v = TensorMap::of_stack(v, stack(batch * kv_heads), keys)?;
    let mut o = TensorMap::of_written_stack(o, stack(heads), Q_BOX)?;
    match lse {
        None => loaded.launch(launches, columns, heads, (&q, &k, &v, &mut o, tokens, group, scale, causal)),
        Some(lse) => loaded.launch(launches, columns, heads, (&q, &k, &v, &mut o, tokens, group, scale, causal, lse)),
    }
}

/// A size is (heads, tokens, head dimension). The arrays are q, k and v.
impl Topic for FlashAttention {
    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn work(&self, size: Size) -> Result<Cost> {
        let shape = shape(size)?;
        Ok(Cost::of_operations(shape.operations(self.causal), 8 * shape.q_numbers(), "bf16"))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        Ok(random(shape(size)?, seed).map(HostArray::Bf16).into())
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        Ok(vec![Allocation::Bf16(shape(size)?.q_numbers())])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        let arrays = (inputs[0].bf16()?, inputs[1].bf16()?, inputs[2].bf16()?, outputs[0].bf16_mut()?);
        self.launch(launches, arrays, shape(size)?)
    }

    fn rows(&self, size: Size) -> Result<(usize, usize)> {
        Ok((shape(size)?.rows(), 32))
    }

    fn exact_row(&self, inputs: &[HostArray], size: Size, row: usize) -> Result<Vec<Reference>> {
        let shape = shape(size)?;
        let get = |array: usize| move |at: usize| inputs[array].get(at);
        let exact = cpu::attention_row((&get(0), &get(1), &get(2)), shape, &mask(self.causal), row);
        let allowed = exact.allowed(shape, Rounding::Bf16);
        Ok(vec![Reference { output: 0, from: row * shape.width, values: exact.values, allowed }])
    }
}

/// The shape of a size: all heads of one sequence, each of its own.
pub(super) fn shape(size: Size) -> Result<AttentionShape> {
    let (heads, length, width) = size.three()?;
    AttentionShape { batch: 1, q_heads: heads, kv_heads: heads, length, width }.check()
}

pub(super) fn mask(causal: bool) -> AttentionMask {
    if causal { AttentionMask::causal() } else { AttentionMask::none() }
}

pub(super) fn bf16(numbers: Vec<f32>) -> Vec<u16> {
    numbers.into_iter().map(cpu::bf16_from_f32).collect()
}

fn random(shape: AttentionShape, seed: u64) -> [Vec<u16>; 3] {
    cpu::attention_inputs(shape, seed, SPREAD).map(bf16)
}

/// What is wrong with a result, in words.
fn off(o: &[u16], [q, k, v]: [&[u16]; 3], shape: AttentionShape, causal: bool) -> Option<String> {
    let number = |bits: &[u16], at: usize| f64::from(cpu::f32_from_bf16(bits[at]));
    let (q, k, v) = (|at| number(q, at), |at| number(k, at), |at| number(v, at));
    let rows = spread_rows(shape.rows(), 256);
    cpu::attention_wrong(&|at| number(o, at), (&q, &k, &v), shape, &mask(causal), &rows, Rounding::Bf16)
}

/// Where a width stands in [`WIDTHS`].
///
/// # Errors
/// [`Error::Invalid`] for one that does not.
pub(crate) fn known_width(width: usize) -> Result<usize> {
    WIDTHS.iter().position(|&known| known == width).ok_or_else(|| Error::Invalid {
        what: format!("heads of {width} numbers: these kernels are made for 64 and 128"),
        fix: "fill the heads up with zeros to 64 or 128 numbers, and scale q by the root of the ratio".to_string(),
    })
}

/// An error where an array is not as long as its shape, or the shape is beyond what the kernels count.
pub(super) fn fits(shape: AttentionShape, [q, k, v, o]: [&Buffer<u16>; 4]) -> Result<()> {
    shape.check()?;
    let (q_numbers, kv_numbers) = (shape.q_numbers(), shape.kv_numbers());
    lengths("attention", &[("q", q.len(), q_numbers), ("k", k.len(), kv_numbers), ("v", v.len(), kv_numbers)])?;
    lengths("attention", &[("o", o.len(), q_numbers)])?;
    known_width(shape.width)?;
    // Heads go along a grid's y; tokens are counted in `int`, a tile beyond the last one too.
    if shape.batch * shape.q_heads > 65_535 || shape.length > 1 << 30 {
        return Err(Error::invalid(
            format!("attention over {shape}: a launch takes up to 65535 heads, of up to 2^30 tokens"),
            "split the batch, and launch once for each part",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
