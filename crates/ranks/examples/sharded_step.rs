//! Training steps of data parallel and sharded training on as many NVIDIA GPUs as this host has: losses, memory a rank, time.
//!
//! `cargo run --release -p gpulab-ranks --features nccl --example sharded_step -- [--out FOLDER] [--commit HASH] [--width 2048] [--blocks 12]
//! [--tokens 8192]`
//!
//! The network is a stack of the MLPs of transformers with their residuals (`y = x + W2ᵀ relu(W1 x)`, 4 × as wide inside) in bf16 on tensor cores
//! (cuBLAS), with Adam's state in f32, in ZeRO's stages 0 to 3 as lesson 61 has them, over `GpuRank`. Losses of all stages are compared with one
//! GPU's that computes the whole batch; bytes are the memory pool's, beside 16Ψ, 4Ψ + 12Ψ/N, 2Ψ + 14Ψ/N and 16Ψ/N. Calls go into a stream
//! of their own, so that they run beside the computing; stage 3 gathers the next block's weights ahead. Stages 0 and 1 run once more with
//! every collective left out: what a step takes beyond that is what its messages cost. (Stages 2 and 3 compute and update as stage 1 does.)

use gpulab::gpu::Stream;
use gpulab::prelude::*;
use gpulab::results;
use gpulab_ranks::nccl::{GpuRank, Nccl};
use gpulab_ranks::{Collectives, Communicator, Op};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

const SOURCE: &str = r#"
typedef unsigned short bf16;
__device__ float wide(bf16 x) { return __uint_as_float((unsigned)x << 16); }
__device__ bf16 narrow(float x) {
    unsigned bits = __float_as_uint(x);
    return (bf16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
__device__ float noise(unsigned seed, unsigned at) {
    unsigned x = seed * 0x9E3779B9u ^ at * 0x85EBCA6Bu;
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    return (float)(x ^ (x >> 16)) * 4.656612873e-10f - 1.0f;
}
#define EACH(i, n) for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
// Numbers from -scale to scale, from element `first` of that seed's on.
extern "C" __global__ void random_bf16(bf16 *x, long long n, long long first, unsigned seed, float scale) { EACH(i, n) x[i] = narrow(scale * noise(seed, (unsigned)(first + i))); }
extern "C" __global__ void random_f32(float *x, long long n, long long first, unsigned seed, float scale) { EACH(i, n) x[i] = scale * noise(seed, (unsigned)(first + i)); }
extern "C" __global__ void round_all(const float *x, bf16 *y, long long n) { EACH(i, n) y[i] = narrow(x[i]); }
extern "C" __global__ void relu(bf16 *x, long long n) { EACH(i, n) x[i] = x[i] & 0x8000 ? 0 : x[i]; }
extern "C" __global__ void relu_backward(const bf16 *h, bf16 *d, long long n) { EACH(i, n) d[i] = h[i] == 0 ? 0 : d[i]; }
extern "C" __global__ void add(const bf16 *x, bf16 *y, long long n) { EACH(i, n) y[i] = narrow(wide(x[i]) + wide(y[i])); }
// d = 2 (y - target) / n of the whole batch; each block leaves the sum of its squares.
extern "C" __global__ void loss_gradient(const bf16 *y, const bf16 *x, bf16 *d, float *squares, long long n, float scale) {
    __shared__ float sums[256];
    float sum = 0.0f;
    EACH(i, n) {
        float off = wide(y[i]) - sinf(3.0f * wide(x[i]));
        d[i] = narrow(2.0f * scale * off);
        sum += off * off;
    }
    sums[threadIdx.x] = sum;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) squares[blockIdx.x] = sums[0];
}
// (rows x columns) to (columns x rows).
extern "C" __global__ void transpose(const bf16 *x, bf16 *y, int rows, int columns) {
    __shared__ bf16 tile[32][33];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) if (row + k < rows && column < columns) tile[threadIdx.y + k][threadIdx.x] = x[(long long)(row + k) * columns + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x;
    row = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8) if (row + k < columns && column < rows) y[(long long)(row + k) * rows + column] = tile[threadIdx.x][threadIdx.y + k];
}
extern "C" __global__ void adam(float *master, float *mean, float *square, const bf16 *gradient, long long first, long long n, float fix_mean, float fix_square, float rate) {
    EACH(i, n) {
        float g = wide(gradient[first + i]);
        float m = mean[i] = 0.9f * mean[i] + 0.1f * g;
        float s = square[i] = 0.999f * square[i] + 0.001f * g * g;
        master[i] -= rate * (m / fix_mean) / (sqrtf(s / fix_square) + 1e-12f);
    }
}
"#;

/// The network, and the tokens of a step on all ranks together.
#[derive(Clone, Copy)]
struct Shape {
    width: usize,
    blocks: usize,
    tokens: usize,
}

impl Shape {
    fn hidden(&self) -> usize {
        4 * self.width
    }

    /// Numbers of a matrix; a block has two.
    fn matrix(&self) -> usize {
        self.width * self.hidden()
    }

    fn parameters(&self) -> usize {
        2 * self.blocks * self.matrix()
    }

    /// Bytes of weights, gradients and Adam's state that a rank holds in that stage.
    fn predicted(&self, stage: usize, ranks: usize) -> f64 {
        let (psi, n) = (self.parameters() as f64, ranks as f64);
        psi * [16.0, 4.0 + 12.0 / n, 2.0 + 14.0 / n, 16.0 / n][stage]
    }
}

struct Kernels {
    random_bf16: Kernel,
    random_f32: Kernel,
    round_all: Kernel,
    relu: Kernel,
    relu_backward: Kernel,
    add: Kernel,
    loss_gradient: Kernel,
    transpose: Kernel,
    adam: Kernel,
    blas: Cublas,
    gpu: Gpu,
}

const BLOCKS: u32 = 1056;
const GRID: LaunchConfig = LaunchConfig { grid: (BLOCKS, 1, 1), block: (256, 1, 1), shared_bytes: 0 };

impl Kernels {
    fn new(gpu: &Gpu) -> Result<Kernels> {
        let module = gpu.compile(SOURCE)?;
        let kernel = |name| module.kernel(name);
        Ok(Kernels {
            random_bf16: kernel("random_bf16")?,
            random_f32: kernel("random_f32")?,
            round_all: kernel("round_all")?,
            relu: kernel("relu")?,
            relu_backward: kernel("relu_backward")?,
            add: kernel("add")?,
            loss_gradient: kernel("loss_gradient")?,
            transpose: kernel("transpose")?,
            adam: kernel("adam")?,
            blas: Cublas::new(gpu)?,
            gpu: gpu.clone(),
        })
    }

    fn transposed(&self, x: &Buffer<u16>, rows: usize, columns: usize) -> Result<Buffer<u16>> {
        let mut y = self.gpu.alloc::<u16>(x.len())?;
        let mut config = LaunchConfig::new(columns.div_ceil(32) as u32, 32);
        (config.grid.1, config.block.1) = (rows.div_ceil(32) as u32, 8);
        self.transpose.launch(config, (x, &mut y, rows as i32, columns as i32))?;
        Ok(y)
    }
}

/// One matrix as a rank holds it: all of it, or its part.
struct Held {
    weights: Buffer<u16>,
    gradient: Buffer<u16>,
    master: Buffer<f32>,
    mean: Buffer<f32>,
    square: Buffer<f32>,
}

/// What a block keeps for its backward pass.
struct Saved {
    x: Buffer<u16>,
    h: Buffer<u16>,
}

struct Trainer<'a> {
    rank: &'a GpuRank,
    kernels: Kernels,
    shape: Shape,
    stage: usize,
    /// Without them each rank trains by itself on its tokens: in stage 1 it updates its part from its own gradient, and rounds it for nobody.
    messages: bool,
    /// Matrix 2 b and 2 b + 1 are block b's.
    held: Vec<Held>,
    /// This rank's parts of the gradients in stage 1.
    parts: Vec<Option<Buffer<u16>>>,
    /// What a collective still reads. Freeing it at once would make the computing wait for that collective.
    later: VecDeque<Buffer<u16>>,
    step: usize,
}

impl<'a> Trainer<'a> {
    fn new(rank: &'a GpuRank, shape: Shape, stage: usize, messages: bool) -> Result<Trainer<'a>> {
        assert!(messages || stage < 2, "stages 2 and 3 need messages");
        let (gpu, kernels) = (rank.gpu(), Kernels::new(rank.gpu())?);
        let (whole, part) = (shape.matrix(), shape.matrix() / rank.size());
        let kept = |from: usize| if stage >= from { part } else { whole };
        let mut held = Vec::new();
        for at in 0..2 * shape.blocks {
            let first = |from: usize| if stage >= from { (rank.rank() * part) as i64 } else { 0 };
            // The second matrix begins small, so that a block begins as almost nothing beside its residual.
            let scale = (3.0 / shape.width as f32).sqrt() * if at % 2 == 0 { 1.0 } else { 0.1 };
            let mut one = Held {
                weights: gpu.alloc(kept(3))?,
                gradient: gpu.zeros(kept(2))?,
                master: gpu.alloc(kept(1))?,
                mean: gpu.zeros(kept(1))?,
                square: gpu.zeros(kept(1))?,
            };
            let (w, m) = (one.weights.len() as i64, one.master.len() as i64);
            kernels.random_bf16.launch(GRID, (&mut one.weights, w, first(3), at as u32, scale))?;
            kernels.random_f32.launch(GRID, (&mut one.master, m, first(1), at as u32, scale))?;
            held.push(one);
        }
        rank.synchronize()?;
        let (parts, later) = (Vec::new(), VecDeque::new());
        Ok(Trainer { rank, kernels, shape, stage, messages, held, parts, later, step: 0 })
    }

    /// A matrix' weights, from all ranks where each has a part.
    fn gathered(&self, at: usize) -> Result<Option<Buffer<u16>>> {
        if self.stage < 3 {
            return Ok(None);
        }
        let mut all = self.rank.gpu().alloc(self.shape.matrix())?;
        self.rank.all_gather(&self.held[at].weights, &mut all)?;
        Ok(Some(all))
    }

    fn block(&self, block: usize) -> Result<[Option<Buffer<u16>>; 2]> {
        Ok([self.gathered(2 * block)?, self.gathered(2 * block + 1)?])
    }

    /// Reduces a matrix' gradient as the stage asks.
    fn reduce(&mut self, at: usize, mut whole: Buffer<u16>) -> Result<()> {
        match self.stage {
            _ if !self.messages => self.held[at].gradient = whole,
            0 => {
                self.rank.all_reduce(&mut whole, Op::Avg)?;
                self.held[at].gradient = whole;
            }
            1 => {
                let mut own = self.rank.gpu().alloc::<u16>(whole.len() / self.rank.size())?;
                self.rank.reduce_scatter(&whole, &mut own, Op::Avg)?;
                self.parts[at] = Some(own);
                self.held[at].gradient = whole;
            }
            _ => {
                let held = &mut self.held[at];
                self.rank.reduce_scatter(&whole, &mut held.gradient, Op::Avg)?;
                self.later.push_back(whole);
                if self.later.len() > 4 {
                    self.later.pop_front();
                }
            }
        }
        Ok(())
    }

    /// One step; this rank's loss, summed on the host from its blocks' sums where `told`.
    fn step(&mut self, told: bool) -> Result<f64> {
        self.step += 1;
        self.parts = (0..self.held.len()).map(|_| None).collect();
        let (shape, gpu) = (self.shape, self.rank.gpu().clone());
        let (n, w, hidden) = (shape.tokens / self.rank.size(), shape.width, shape.hidden());
        let size = (n * w) as i64;
        let first = ((self.step - 1) * shape.tokens * w) as i64 + self.rank.rank() as i64 * size;
        let mut input = gpu.alloc::<u16>(n * w)?;
        self.kernels.random_bf16.launch(GRID, (&mut input, size, first, 1000_u32, 1.0_f32))?;
        let mut saved: Vec<Saved> = Vec::new();
        let mut x = gpu.alloc::<u16>(n * w)?;
        x.copy_from_buffer(&input)?;
        let mut coming = self.block(0)?;
        for block in 0..shape.blocks {
            let weights = std::mem::take(&mut coming);
            // The last block's weights are wanted again at once.
            if block + 1 < shape.blocks {
                coming = self.block(block + 1)?;
            }
            let k = &self.kernels;
            let of = |at: usize| weights[at].as_ref().unwrap_or(&self.held[2 * block + at].weights);
            let (mut h, mut y) = (gpu.alloc::<u16>(n * hidden)?, gpu.alloc::<u16>(n * w)?);
            k.blas.multiply_transposed(&x, of(0), &mut h, (n, hidden, w))?;
            k.relu.launch(GRID, (&mut h, (n * hidden) as i64))?;
            k.blas.multiply(&h, of(1), &mut y, (n, w, hidden))?;
            k.add.launch(GRID, (&x, &mut y, size))?;
            saved.push(Saved { x: std::mem::replace(&mut x, y), h });
            if block + 1 == shape.blocks {
                coming = weights;
            }
        }
        let (mut d, mut squares) = (gpu.alloc::<u16>(n * w)?, gpu.alloc::<f32>(BLOCKS as usize)?);
        // The mean over a token's numbers; that over the tokens would be too small for bf16, and Adam does not see a factor.
        let args = (&x, &input, &mut d, &mut squares, size, 1.0 / w as f32);
        self.kernels.loss_gradient.launch(GRID, args)?;
        for block in (0..shape.blocks).rev() {
            let weights = std::mem::take(&mut coming);
            if block > 0 {
                coming = self.block(block - 1)?;
            }
            let Saved { x, h } = saved.pop().expect("one for each block");
            let k = &self.kernels;
            let of = |at: usize| weights[at].as_ref().unwrap_or(&self.held[2 * block + at].weights);
            let mut dh = gpu.alloc::<u16>(n * hidden)?;
            k.blas.multiply_transposed(&d, of(1), &mut dh, (n, hidden, w))?;
            k.relu_backward.launch(GRID, (&h, &mut dh, (n * hidden) as i64))?;
            let mut second = gpu.alloc::<u16>(shape.matrix())?;
            k.blas.multiply(&k.transposed(&h, n, hidden)?, &d, &mut second, (hidden, w, n))?;
            let mut first = gpu.alloc::<u16>(shape.matrix())?;
            k.blas.multiply(&k.transposed(&dh, n, hidden)?, &x, &mut first, (hidden, w, n))?;
            if block > 0 {
                let mut dx = gpu.alloc::<u16>(n * w)?;
                k.blas.multiply(&dh, of(0), &mut dx, (n, w, hidden))?;
                k.add.launch(GRID, (&d, &mut dx, size))?;
                d = dx;
            }
            drop(weights);
            self.reduce(2 * block + 1, second)?;
            self.reduce(2 * block, first)?;
        }
        self.update()?;
        if !told {
            return Ok(0.0);
        }
        let sum: f64 = squares.to_host()?.into_iter().map(f64::from).sum();
        Ok(sum / (n * w) as f64)
    }

    fn update(&mut self) -> Result<()> {
        let part = self.shape.matrix() / self.rank.size();
        let (fix_mean, fix_square) = (1.0 - 0.9_f32.powi(self.step as i32), 1.0 - 0.999_f32.powi(self.step as i32));
        for (at, held) in self.held.iter_mut().enumerate() {
            let n = held.master.len() as i64;
            let gradient = self.parts[at].as_ref().unwrap_or(&held.gradient);
            // Without messages the gradient of stage 1 is still a whole one.
            let whole = self.stage == 1 && !self.messages;
            let first = if whole { (self.rank.rank() * part) as i64 } else { 0 };
            let (master, mean, square) = (&mut held.master, &mut held.mean, &mut held.square);
            let args = (&mut *master, mean, square, gradient, first, n, fix_mean, fix_square, 1e-5_f32);
            self.kernels.adam.launch(GRID, args)?;
            if self.stage == 0 || self.stage == 3 {
                self.kernels.round_all.launch(GRID, (&*master, &mut held.weights, n))?;
            } else {
                let mut own = self.rank.gpu().alloc::<u16>(part)?;
                self.kernels.round_all.launch(GRID, (&*master, &mut own, n))?;
                if self.messages {
                    self.rank.all_gather(&own, &mut held.weights)?;
                }
                self.later.push_back(own);
            }
        }
        self.later.clear();
        self.parts.clear();
        Ok(())
    }
}

/// What one rank tells of one stage.
struct Told {
    losses: Vec<f64>,
    /// Bytes of the pool in use between steps, and at most during one.
    held: u64,
    most: u64,
    ms: Vec<f64>,
}

fn train(
    rank: &GpuRank,
    shape: Shape,
    (stage, messages): (usize, bool),
    (steps, timed): (usize, usize),
) -> Result<Told> {
    let gpu = rank.gpu();
    rank.synchronize()?;
    let before = gpu.memory()?.used;
    let mut trainer = Trainer::new(rank, shape, stage, messages)?;
    let stream: Stream = gpu.new_stream()?;
    rank.communicate_on(Some(&stream))?;
    let losses = (0..steps).map(|_| trainer.step(true)).collect::<Result<Vec<f64>>>()?;
    rank.synchronize()?;
    gpu.reset_high_water()?;
    trainer.step(false)?;
    rank.synchronize()?;
    let memory = gpu.memory()?;
    let mut ms = Vec::new();
    for _ in 0..timed {
        rank.synchronize()?;
        rank.barrier()?;
        let begin = Instant::now();
        trainer.step(false)?;
        rank.synchronize()?;
        ms.push(1e3 * begin.elapsed().as_secs_f64());
    }
    drop(trainer);
    rank.communicate_on(None)?;
    rank.synchronize()?;
    Ok(Told { losses, held: memory.used - before, most: memory.used_high - before, ms })
}

fn main() -> Result<()> {
    let mut shape = Shape { width: 2048, blocks: 12, tokens: 16_384 };
    let (mut out, mut commit) = (PathBuf::from("."), "unknown".to_string());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let next = arguments.next().expect("a value follows");
        let number = || next.parse::<usize>().expect("a number follows");
        match argument.as_str() {
            "--out" => out = next.into(),
            "--commit" => commit = next,
            "--width" => shape.width = number(),
            "--blocks" => shape.blocks = number(),
            "--tokens" => shape.tokens = number(),
            other => panic!("unknown: {other}"),
        }
    }
    let gpus = (0..Gpu::count()).map(Gpu::open_index).collect::<Result<Vec<Gpu>>>()?;
    let nccl = Arc::new(Nccl::load()?);
    println!("{nccl:?}, {} GPUs, {} parameters, {} tokens per step", gpus.len(), shape.parameters(), shape.tokens);
    let (steps, timed) = (8, 12);
    let n = gpus.len();
    // One GPU, the whole batch; and one GPU with the tokens that each of several has: what each would take alone.
    let whole = nccl.run(&gpus[..1], |rank| train(rank, shape, (0, true), (steps, timed)))?.remove(0);
    let share = Shape { tokens: shape.tokens / n, ..shape };
    let alone = nccl.run(&gpus[..1], |rank| train(rank, share, (0, true), (2, timed)))?.remove(0);
    let median = |ms: &[f64]| Summary::of(ms).median;
    println!(
        "one GPU: whole batch {:.2} ms, its share {:.2} ms; losses {:.5?}",
        median(&whole.ms),
        median(&alone.ms),
        whole.losses
    );
    let mut rows = Vec::new();
    let mut row = |name: &str, metric: &str, unit: &str, samples: &[f64]| {
        let (name, summary) = (format!("{n} GPUs: {name}"), Summary::of(samples));
        let row = Measurement::new(&name, Backend::Cuda, shape.parameters(), metric, unit, summary).dtype("bf16");
        let (time, commit, machine) = (results::now_utc(), commit.clone(), gpus[0].name().to_string());
        rows.push(Measurement { time, commit, lesson: "61_sharding".to_string(), machine, ..row });
    };
    row("one GPU, a rank's tokens", "time", "ms", &alone.ms);
    row("one GPU, all tokens", "time", "ms", &whole.ms);
    println!(
        "{:<8} {:>14} {:>14} {:>8} {:>14} {:>9} {:>9} {:>10}",
        "stage", "predicted", "held", "off", "most", "ms", "alone/ms", "loss off"
    );
    let mut stage_0 = f64::NAN;
    for stage in 0..4 {
        let ranks = nccl.run(&gpus, |rank| train(rank, shape, (stage, true), (steps, timed)))?;
        let slowest = |ranks: &[Told]| -> Vec<f64> {
            (0..timed).map(|at| ranks.iter().map(|told| told.ms[at]).fold(0.0, f64::max)).collect()
        };
        let ms = slowest(&ranks);
        let (held, most) = ranks.iter().fold((0, 0), |(held, most), told| (told.held.max(held), told.most.max(most)));
        let predicted = shape.predicted(stage, n);
        let losses: Vec<f64> =
            (0..steps).map(|at| ranks.iter().map(|told| told.losses[at]).sum::<f64>() / n as f64).collect();
        let off = losses.iter().zip(&whole.losses).map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max);
        let took = median(&ms);
        if stage == 0 {
            stage_0 = took;
        }
        println!(
            "{stage:<8} {predicted:>14.0} {held:>14} {:>7.3}% {most:>14} {took:>9.2} {:>9.3} {off:>10.1e}  {:.2} x stage 0; last loss {:.5}",
            100.0 * (held as f64 / predicted - 1.0),
            median(&alone.ms) / took,
            took / stage_0,
            losses[steps - 1]
        );
        row(&format!("stage {stage}"), "time", "ms", &ms);
        if stage < 2 {
            let quiet = slowest(&nccl.run(&gpus, |rank| train(rank, shape, (stage, false), (steps, timed)))?);
            println!("{:<8} without messages {:.2} ms: they cost {:.2} ms", "", median(&quiet), took - median(&quiet));
            row(&format!("stage {stage}, no messages"), "time", "ms", &quiet);
        }
        row(&format!("stage {stage}"), "memory held", "B", &[held as f64]);
        row(&format!("stage {stage}"), "predicted memory", "B", &[predicted]);
        row(&format!("stage {stage}"), "memory at most", "B", &[most as f64]);
        row(&format!("stage {stage}"), "loss off one GPU's", "relative", &[off]);
    }
    results::append_to(&out.join("sharding.csv"), &rows)
}
