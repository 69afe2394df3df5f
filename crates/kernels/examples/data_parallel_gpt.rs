//! Data parallel training of GPT-2 (124 million parameters) on the NVIDIA GPUs of this host: what a second GPU gives.
//!
//! `cargo run --release -p gpulab-kernels --example data_parallel_gpt -- [--out data_parallel.csv] [--seconds 60]
//! [--timeline timeline.csv]` first holds the
//! gradients of a small model on all GPUs against those of one GPU with the whole batch, and the losses of 20 steps of the large one
//! likewise; then it times a step of 8 × 1024 tokens on each GPU: on one alone, on all of them with gradients added up behind the
//! backward pass, and beside it; in f32, and rounded to bf16 on their way, as PyTorch's `bf16_compress_hook` does it. Efficiency is the
//! time of one GPU alone over that of all. What a sum takes from the layers beside it is looked for by stand-ins, which run for as long as
//! a sum: blocks that hold a multiprocessor each and touch no memory, and blocks that copy memory of their own GPU.
//! With `--timeline` it keeps what the two streams of the first rank did from when to when in a step of each way, medians of nine steps,
//! as rows of `Span`s.
//!
//! Predicted before the first run, for two H200s: the gradients are 498 MB in f32, 1.7 ms at the 300 GB/s of an all-reduce of that
//! size. Behind the backward pass that is 15.3 → 17.0 ms, an efficiency of 0.90; beside it the last layer's 28 MB and the 12.6 MB of
//! gathered rows stay to be waited for, 0.2 ms, and so 0.98, but for what the collective's kernels take from the step's.
//!
//! Predicted before the first run in bf16, for four H200s, from their run in f32 (15.69 ms alone, 15.85 without sums, 17.14 with them
//! beside the backward pass): half of the bytes take half of the 1.29 ms, but rounding and widening move 12 bytes for each parameter,
//! 0.4 ms at the memory's rate, of which beside the other work about half is lost. So 16.7 ms, an efficiency of 0.94.
//!
//! Of the stand-ins: a layer takes 0.665 ms without a sum, and 0.730 with one that runs for 0.27 ms of it. If held multiprocessors were
//! the cause, 16 of 132 would lengthen a layer by at most 0.27 × 16/116 = 0.037 ms where work shares out evenly, and 32 by 0.086.

use gpulab::cudarc::driver::{self, DevicePtrMut, PushKernelArg};
use gpulab::gpu::{Event, Stream};
use gpulab::measurement::{Backend, Span, Summary};
use gpulab::prelude::*;
use gpulab::results;
use gpulab_kernels::gpt_step::*;
use gpulab_ranks::nccl::{GpuRank, Nccl};
use gpulab_ranks::{Collectives, Communicator, Op};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

const BATCH: usize = 8;
const STEPS: usize = 20;
const ROUNDS: usize = 15;
const CALLS: usize = 4;
/// Steps of a timeline.
const LOOKS: usize = 9;

/// When gradients are added up.
#[derive(Clone, Copy, PartialEq)]
enum When {
    /// All at once, when the backward pass has ended.
    Behind,
    /// Beside the backward pass, in buckets of so many layers: the last layer's, which nothing is left to hide, has its own.
    Beside(usize),
}

/// What runs when gradients are there.
#[derive(Clone, Copy, PartialEq)]
enum Load {
    /// The sum over all ranks.
    Sum,
    /// The same, rounded to bf16 before.
    Bf16,
    /// In place of a sum so many blocks, which hold a multiprocessor each for as long as a sum takes, and touch no memory.
    Hold(u32),
    /// In place of a sum so many blocks, which copy memory of this GPU for as long.
    Copy(u32),
}

/// When something runs, and what.
#[derive(Clone, Copy, PartialEq)]
struct Variant {
    when: When,
    load: Load,
}

const SUMS: Variant = Variant { when: When::Beside(1), load: Load::Sum };
const ROUNDED: Variant = Variant { load: Load::Bf16, ..SUMS };
/// Those after which all ranks have the sums: behind the backward pass; beside it, with so many layers sharing one sum.
const ADDED: [Variant; 7] = [
    Variant { when: When::Behind, ..SUMS },
    SUMS,
    Variant { when: When::Beside(3), ..SUMS },
    Variant { when: When::Beside(6), ..SUMS },
    Variant { when: When::Behind, ..ROUNDED },
    ROUNDED,
    Variant { when: When::Beside(3), ..ROUNDED },
];
const STAND_INS: [Variant; 4] = [
    Variant { load: Load::Hold(16), ..SUMS },
    Variant { load: Load::Hold(32), ..SUMS },
    Variant { load: Load::Copy(16), ..SUMS },
    Variant { load: Load::Copy(32), ..SUMS },
];

impl Variant {
    fn name(self) -> String {
        let what = match self.load {
            Load::Sum => "sums".to_string(),
            Load::Bf16 => "sums in bf16".to_string(),
            Load::Hold(blocks) => format!("{blocks} multiprocessors held"),
            Load::Copy(blocks) => format!("copies by {blocks} blocks"),
        };
        match self.when {
            When::Behind => format!("{what} behind the backward pass"),
            When::Beside(1) => format!("{what} beside it"),
            When::Beside(layers) => format!("{what} beside it, {layers} layers at a time"),
        }
    }
}

/// How long stand-ins run, in ns: as the sum of a layer and that of the table ran in f32 beside the backward pass on four H200s.
const LAYER_NS: u32 = 270_000;
const TABLE_NS: u32 = 860_000;
/// Numbers that are copied from, and to: past any cache.
const COPIED: usize = 1 << 26;

const SOURCE: &str = r#"
// Four numbers a thread at a time; to the nearest, ties to even.
__device__ unsigned narrow(float x) {
    unsigned bits = __float_as_uint(x);
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
__device__ float widened(unsigned x) { return __uint_as_float(x << 16); }
extern "C" __global__ void round_all(const float4 *x, uint2 *y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float4 v = x[i];
        y[i] = make_uint2(narrow(v.x) | narrow(v.y) << 16, narrow(v.z) | narrow(v.w) << 16);
    }
}
extern "C" __global__ void widen_all(const uint2 *y, float4 *x, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uint2 v = y[i];
        x[i] = make_float4(widened(v.x & 0xffff), widened(v.x >> 16), widened(v.y & 0xffff), widened(v.y >> 16));
    }
}
__device__ unsigned long long now_ns() {
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}
// A product's block, which takes most of the shared memory, finds no room beside this one.
extern "C" __global__ void hold(unsigned ns) {
    __shared__ volatile float room[12 * 1024 - 32];
    room[threadIdx.x] = 0.0f;
    unsigned long long end = now_ns() + ns;
    if (threadIdx.x == 0) while (now_ns() < end) {}
    __syncthreads();
}
// `moved` counts the bytes that were read.
extern "C" __global__ void copy_for(const float4 *from, float4 *to, int n, unsigned ns, unsigned long long *moved) {
    __shared__ volatile float room[12 * 1024 - 32];
    room[threadIdx.x] = 0.0f;
    unsigned long long end = now_ns() + ns, count = 0;
    unsigned stride = gridDim.x * blockDim.x, at = (blockIdx.x * blockDim.x + threadIdx.x) % n;
    do {
        // Four at a time, so that loads wait beside each other.
        float4 v[4];
        unsigned places[4];
        for (int k = 0; k < 4; k++) {
            places[k] = at;
            at = (at + stride) % n;
        }
        for (int k = 0; k < 4; k++) v[k] = from[places[k]];
        for (int k = 0; k < 4; k++) to[places[k]] = v[k];
        count += 4 * sizeof(float4);
    } while (now_ns() < end);
    atomicAdd(moved, count);
}
"#;

/// Kernels beside the collectives, and what they work on.
struct Side {
    /// The gradients on their way in bf16.
    rounded: Buffer<u16>,
    copied: [Buffer<f32>; 2],
    moved: Buffer<u64>,
    kernels: [Kernel; 4],
}

impl Side {
    fn new(gpu: &Gpu, parameters: usize) -> Result<Side> {
        let module = gpu.compile(SOURCE)?;
        let kernel = |name: &str| module.kernel(name);
        Ok(Side {
            rounded: gpu.zeros(parameters)?,
            copied: [gpu.zeros(COPIED)?, gpu.zeros(COPIED)?],
            moved: gpu.zeros(1)?,
            kernels: [kernel("round_all")?, kernel("widen_all")?, kernel("hold")?, kernel("copy_for")?],
        })
    }

    /// Queues that work on a range of the gradients in the stream of the collectives, behind what is launched by now.
    ///
    /// # Safety
    /// As [`GpuRank::all_reduce_part`].
    unsafe fn queue(
        &mut self,
        (rank, stream): (&GpuRank, &Stream),
        load: Load,
        gradient: &mut Buffer<f32>,
        range: Range<usize>,
    ) -> Result<()> {
        let stream = stream.cuda_stream();
        if load != Load::Sum {
            // The sum waits by itself.
            stream.join(&*rank.gpu().cuda_stream()?)?;
        }
        let [round, widen, hold, copy] = &self.kernels;
        let stand_in = |blocks: u32| driver::LaunchConfig {
            grid_dim: (blocks, 1, 1),
            block_dim: (640, 1, 1),
            shared_mem_bytes: 0,
        };
        let ns = if range.start == 0 { TABLE_NS } else { LAYER_NS };
        match load {
            // SAFETY: the caller keeps others away from the range.
            Load::Sum => unsafe { rank.all_reduce_part(gradient, range, Op::Sum) },
            Load::Bf16 => {
                let fours = [range.start, range.len()].iter().all(|at| at.is_multiple_of(4));
                assert!(fours, "tensors begin at multiples of 16 bytes");
                let count = (range.len() / 4) as i32;
                let LaunchConfig { grid, block, .. } = LaunchConfig::for_elements(range.len() / 4, 256);
                let shape = driver::LaunchConfig { grid_dim: grid, block_dim: block, shared_mem_bytes: 0 };
                let wide = address(gradient, stream)? + (range.start * size_of::<f32>()) as u64;
                let narrow = address(&mut self.rounded, stream)? + (range.start * size_of::<u16>()) as u64;
                let (round, widen) = (round.cuda_function()?, widen.cuda_function()?);
                // SAFETY: so many numbers lie at the addresses, and the caller keeps others away from them.
                unsafe { stream.launch_builder(round).arg(&wide).arg(&narrow).arg(&count).launch(shape) }?;
                // SAFETY: nobody else knows of these numbers.
                unsafe { rank.all_reduce_part(&mut self.rounded, range, Op::Sum) }?;
                // SAFETY: as above.
                unsafe { stream.launch_builder(widen).arg(&narrow).arg(&wide).arg(&count).launch(shape) }?;
                Ok(())
            }
            Load::Hold(blocks) => {
                // SAFETY: it touches no memory.
                unsafe { stream.launch_builder(hold.cuda_function()?).arg(&ns).launch(stand_in(blocks)) }?;
                Ok(())
            }
            Load::Copy(blocks) => {
                let count = (self.copied[0].len() / 4) as i32;
                let [from, to] = &mut self.copied;
                let (from, to, moved) =
                    (address(from, stream)?, address(to, stream)?, address(&mut self.moved, stream)?);
                let mut launch = stream.launch_builder(copy.cuda_function()?);
                launch.arg(&from).arg(&to).arg(&count).arg(&ns).arg(&moved);
                // SAFETY: so many numbers lie at both addresses, and nobody else knows of them.
                unsafe { launch.launch(stand_in(blocks)) }?;
                Ok(())
            }
        }
    }
}

/// Where the numbers lie. The buffer is not told: launches that use it wait for nothing that happens there.
fn address<T: gpulab::launch::Element>(buffer: &mut Buffer<T>, stream: &driver::CudaStream) -> Result<u64> {
    let mut view = buffer.as_cuda_mut()?;
    let (at, told) = view.device_ptr_mut(stream);
    std::mem::forget(told);
    Ok(at)
}

struct Sums<'a> {
    rank: &'a GpuRank,
    stream: &'a Stream,
    side: &'a RefCell<Side>,
    way: Variant,
    layers: usize,
    /// How many parts of this step's gradients are there.
    parts: usize,
    waiting: Vec<Range<usize>>,
    clock: Option<Clock>,
}

/// Events of one step, in the stream of the launches and in that of the collectives.
struct Clock {
    begin: Event,
    /// A part of the gradients is there.
    ready: Vec<Event>,
    /// So many bytes, the last of which came with that part, are added up.
    added: Vec<(usize, usize, Event)>,
    gathered: Option<Event>,
}

impl Clock {
    /// The spans of the step, in ms from its begin. A sum begins when its numbers are there and the one before it has ended.
    fn spans(&self, end: &Event, variant: &str, layers: usize) -> Result<Vec<Span>> {
        let at = |event: &Event| event.ms_since(&self.begin);
        let stands_in = STAND_INS.iter().any(|way| way.name() == variant);
        let beside = if stands_in { "stand-in" } else { "NCCL" };
        let (compute, network) = (format!("{variant}: compute"), format!("{variant}: {beside}"));
        let (mut spans, mut last) = (Vec::new(), 0.0);
        let ready = self.ready.iter().map(at).collect::<Result<Vec<f64>>>()?;
        let labels = ["forward pass, table".to_string(), "last norm, backward".to_string()]
            .into_iter()
            .chain((0..layers).rev().map(|layer| format!("backward pass, layer {layer}")));
        for (label, now) in labels.zip(&ready) {
            spans.push(Span::new(&compute, &label, last, *now));
            last = *now;
        }
        let mut free = 0.0_f64;
        for (bytes, part, event) in &self.added {
            let (there, now) = (ready[*part], at(event)?);
            let label = match stands_in {
                true => "in place of a sum".to_string(),
                false => format!("all-reduce of {:.1} MB", *bytes as f64 / 1e6),
            };
            spans.push(Span::new(&network, &label, there.max(free), now));
            free = now;
        }
        if let Some(gathered) = &self.gathered {
            let now = at(gathered)?;
            spans.push(Span::new(&network, "all-gather of rows", last.max(free), now));
            last = now;
        }
        spans.push(Span::new(&compute, "embedding, AdamW", last, at(end)?));
        Ok(spans)
    }
}

impl GptRanks for Sums<'_> {
    fn add_up(&mut self, gradient: &mut Buffer<f32>, range: Range<usize>) -> Result<()> {
        if let Some(clock) = &mut self.clock {
            clock.ready.push(self.rank.gpu().event()?);
        }
        let (when, load) = (self.way.when, self.way.load);
        let Sums { rank, stream, side, clock, .. } = self;
        let mut add_up = |range: Range<usize>| -> Result<()> {
            let bytes = range.len() * if load == Load::Bf16 { size_of::<u16>() } else { size_of::<f32>() };
            // SAFETY: the trainer writes and reads a range that is ready only after `join`.
            unsafe { side.borrow_mut().queue((*rank, *stream), load, gradient, range) }?;
            if let Some(clock) = clock {
                clock.added.push((bytes, clock.ready.len() - 1, stream.event()?));
            }
            Ok(())
        };
        // The table, the last norm, the layers from the last one to the first: all but the table lie one behind the other.
        let part = self.parts;
        self.parts = (part + 1) % (self.layers + 2);
        self.waiting.push(range);
        let full = match when {
            When::Behind => self.parts == 0,
            When::Beside(bucket) => {
                let layers = part.saturating_sub(1);
                part == 0 || self.parts == 0 || layers + 1 == self.layers || layers > 0 && layers.is_multiple_of(bucket)
            }
        };
        if !full {
            return Ok(());
        }
        if self.waiting.len() > part {
            add_up(self.waiting.remove(0))?;
        }
        let ends =
            self.waiting.iter().map(|range| range.start).min().zip(self.waiting.iter().map(|range| range.end).max());
        if let Some((start, end)) = ends {
            add_up(start..end)?;
        }
        self.waiting.clear();
        Ok(())
    }

    fn gather(&mut self, own: &Buffer<u16>, all: &mut Buffer<u16>) -> Result<()> {
        self.rank.all_gather(own, all)?;
        if let Some(clock) = &mut self.clock {
            clock.gathered = Some(self.stream.event()?);
        }
        Ok(())
    }

    fn join(&mut self) -> Result<()> {
        self.rank.join()
    }
}

/// A GPU of several that train one model, or one of them by itself.
struct Trained<'a> {
    trainer: GptTraining,
    sums: Sums<'a>,
}

impl<'a> Trained<'a> {
    fn new(
        (rank, stream, side): (&'a GpuRank, &'a Stream, &'a RefCell<Side>),
        kernels: &GptKernels,
        (batch, ranks): (usize, usize),
        start: &[f32],
    ) -> Result<Trained<'a>> {
        let settings = GptSettings { batch, ranks, plan: GptPlan::Fused, ..GptSettings::default() };
        let mut trainer = GptTraining::with(rank.gpu(), kernels, settings)?;
        trainer.load(start)?;
        let layers = trainer.shape().layers;
        let sums = Sums { rank, stream, side, way: SUMS, layers, parts: 0, waiting: Vec::new(), clock: None };
        Ok(Trained { trainer, sums })
    }

    fn queue(&mut self) -> Result<()> {
        match self.trainer.settings().ranks {
            1 => self.trainer.queue(&AdamWConfig::default()),
            _ => self.trainer.queue_with(&AdamWConfig::default(), &mut self.sums),
        }
    }

    /// The step's loss on this rank's texts.
    fn step(&mut self, tokens: &[u32]) -> Result<StepResult> {
        let ranks = self.trainer.settings().ranks;
        self.trainer.set_batch_of(tokens, if ranks == 1 { 0 } else { self.sums.rank.rank() })?;
        self.queue()?;
        self.sums.rank.synchronize()?;
        self.trainer.result()
    }

    /// What the two streams did in a step, behind some others that were not looked at.
    fn look_once(&mut self, variant: &str) -> Result<Vec<Span>> {
        for _ in 0..CALLS {
            self.queue()?;
        }
        let begin = self.sums.rank.gpu().event()?;
        self.sums.clock = Some(Clock { begin, ready: Vec::new(), added: Vec::new(), gathered: None });
        self.queue()?;
        let end = self.sums.rank.gpu().event()?;
        self.sums.rank.synchronize()?;
        let layers = self.sums.layers;
        self.sums.clock.take().map_or(Ok(Vec::new()), |clock| clock.spans(&end, variant, layers))
    }

    /// The same of several steps: each span with the medians of its ends.
    fn look(&mut self, variant: &str) -> Result<Vec<Span>> {
        let steps = (0..LOOKS).map(|_| self.look_once(variant)).collect::<Result<Vec<Vec<Span>>>>()?;
        let median = |at: usize, end: fn(&Span) -> f64| {
            Summary::of(&steps.iter().map(|spans| end(&spans[at])).collect::<Vec<f64>>()).median
        };
        let spans = steps[0].iter().enumerate();
        Ok(spans
            .map(|(at, span)| Span {
                start_ms: median(at, |span| span.start_ms),
                end_ms: median(at, |span| span.end_ms),
                ..span.clone()
            })
            .collect())
    }

    /// Milliseconds of a step, by events.
    fn time(&mut self) -> Result<f64> {
        let gpu = self.sums.rank.gpu();
        let begin = gpu.event()?;
        for _ in 0..CALLS {
            self.queue()?;
        }
        let end = self.sums.rank.gpu().event()?;
        self.sums.rank.synchronize()?;
        Ok(end.ms_since(&begin)? / CALLS as f64)
    }
}

/// What a rank found.
#[derive(Default)]
struct Found {
    /// The largest error of a tensor's gradients on a small model, and that tensor's name: summed in f32, and in bf16.
    gradients: [Option<(f64, String)>; 2],
    /// This rank's losses of the large model's steps, and those of one GPU with all texts: summed in f32, and in bf16.
    losses: [Vec<(f64, f64)>; 2],
    /// Milliseconds of a step, by [`variants`]; of one GPU alone on the first rank only.
    times: Vec<Vec<f64>>,
    peak: f64,
    /// GB/s that the copies of a stand-in read, and as many that they wrote; by [`STAND_INS`].
    copied: Vec<f64>,
    timeline: Vec<Span>,
}

/// What is timed: its name, and how the gradients are added up, if they are.
fn variants() -> Vec<(String, Option<Variant>)> {
    let without = ["one GPU alone", "all GPUs, no sums"].map(|name| (name.to_string(), None));
    let ways = ADDED.into_iter().chain(STAND_INS);
    without.into_iter().chain(ways.map(|way| (way.name(), Some(way)))).collect()
}

fn work(rank: &GpuRank, stream: &Stream, seconds: f64, timeline: bool) -> Result<Found> {
    let (begin, n, gpu) = (Instant::now(), rank.size(), rank.gpu());
    let variants = variants();
    let side = RefCell::new(Side::new(gpu, GptShape::GPT2_124M.parameter_count())?);
    let beside = (rank, stream, &side);
    let mut found = Found { times: vec![Vec::new(); variants.len()], ..Found::default() };
    // The gradients of a small model: the whole batch on one GPU, and shared out.
    let small = GptShape { layers: 2, heads: 2, vocabulary: 77, context: 33 };
    let kernels = GptKernels::compile(gpu, &small)?;
    let start = small.start(3);
    let tokens = small.random_tokens(2 * n, 4);
    for way in ADDED {
        let mut whole = Trained::new(beside, &kernels, (2 * n, 1), &start)?;
        let mut shared = Trained::new(beside, &kernels, (2, n), &start)?;
        shared.sums.way = way;
        let worst = &mut found.gradients[usize::from(way.load == Load::Bf16)];
        whole.step(&tokens)?;
        shared.step(&tokens)?;
        let (exact, own) = (whole.trainer.gradients()?, shared.trainer.gradients()?);
        for tensor in small.tensors() {
            let pairs = || own[tensor.range.clone()].iter().zip(&exact[tensor.range.clone()]);
            let off: f64 = pairs().map(|(own, exact)| f64::from(own - exact).powi(2)).sum();
            let size: f64 = pairs().map(|(_, exact)| f64::from(*exact).powi(2)).sum();
            let error = (off / size).sqrt();
            if !worst.as_ref().is_some_and(|worst| error <= worst.0) {
                *worst = Some((error, tensor.name));
            }
        }
    }
    let shape = GptShape::GPT2_124M;
    let kernels = GptKernels::compile(gpu, &shape)?;
    let start = shape.start(1);
    for (way, losses) in [SUMS, ROUNDED].into_iter().zip(&mut found.losses) {
        let mut whole = Trained::new(beside, &kernels, (BATCH, 1), &start)?;
        let mut shared = Trained::new(beside, &kernels, (BATCH / n, n), &start)?;
        shared.sums.way = way;
        for step in 0..STEPS as u64 {
            let tokens = shape.random_tokens(BATCH, 100 + step);
            let (own, all) = (shared.step(&tokens)?, whole.step(&tokens)?);
            losses.push((f64::from(own.loss), f64::from(all.loss)));
        }
    }
    let before = gpu.memory()?.used;
    gpu.reset_high_water()?;
    let mut shared = Trained::new(beside, &kernels, (BATCH, n), &start)?;
    let tokens = shape.random_tokens(BATCH * n, 100);
    shared.step(&tokens)?;
    found.peak = (gpu.memory()?.used_high - before) as f64;
    let mut alone = Trained::new(beside, &kernels, (BATCH, 1), &start)?;
    alone.step(&tokens[..BATCH * (shape.context + 1)])?;
    // All ranks agree on when to stop: the first one's clock counts.
    for round in 0..ROUNDS {
        let mut late = gpu.to_device(&[u32::from(begin.elapsed().as_secs_f64() > seconds)])?;
        rank.all_reduce(&mut late, Op::Max)?;
        rank.synchronize()?;
        if late.to_host()?[0] == 1 && round > 2 {
            break;
        }
        for ((index, (_, way)), times) in variants.iter().enumerate().zip(&mut found.times) {
            // Nobody begins before all are here.
            rank.all_reduce(&mut late, Op::Max)?;
            rank.synchronize()?;
            match way {
                None if index == 0 && rank.rank() > 0 => {}
                None => times.push(alone.time()?),
                Some(way) => {
                    shared.sums.way = *way;
                    times.push(shared.time()?);
                }
            }
        }
    }
    for way in STAND_INS {
        shared.sums.way = way;
        side.borrow_mut().moved.fill_bytes(0)?;
        shared.time()?;
        let busy_ns = CALLS * (TABLE_NS as usize + shape.layers * LAYER_NS as usize);
        found.copied.push(side.borrow().moved.to_host()?[0] as f64 / busy_ns as f64);
    }
    if timeline {
        for (variant, way) in &variants {
            if let Some(way) = way {
                shared.sums.way = *way;
                found.timeline.extend(shared.look(variant)?);
            }
        }
    }
    Ok(found)
}

fn main() -> Result<()> {
    let (mut out, mut seconds, mut timeline) = ("data_parallel.csv".to_string(), 60.0, None);
    let given: Vec<String> = std::env::args().skip(1).collect();
    let mut arguments = given.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} needs a value")).clone();
        match argument.as_str() {
            "--out" => out = value(),
            "--timeline" => timeline = Some(value()),
            "--seconds" => seconds = value().parse().expect("a number follows"),
            other => panic!("unknown: {other}"),
        }
    }
    let gpus = (0..Gpu::count()).map(Gpu::open_index).collect::<Result<Vec<Gpu>>>()?;
    let n = gpus.len();
    if n < 2 || !BATCH.is_multiple_of(n) {
        return Err(Error::invalid(format!("{n} GPUs"), "run it where 2, 4 or 8 NVIDIA GPUs are"));
    }
    let nccl = Arc::new(Nccl::load()?);
    println!("{nccl:?}, {n} × {}", gpus[0].name());
    let found = nccl.run(&gpus, |rank| {
        let side = rank.gpu().new_stream()?;
        rank.communicate_on(Some(&side))?;
        let found = work(rank, &side, seconds, timeline.is_some());
        rank.communicate_on(None)?;
        found
    })?;
    let shape = GptShape::GPT2_124M;
    let mut off = Vec::new();
    for (at, (numbers, way)) in [("f32", SUMS), ("bf16", ROUNDED)].into_iter().enumerate() {
        let worst = found.iter().filter_map(|one| one.gradients[at].clone()).max_by(|a, b| a.0.total_cmp(&b.0));
        let (error, tensor) = worst.unwrap_or((f64::NAN, String::new()));
        let mean = |step: usize| found.iter().map(|one| one.losses[at][step].0).sum::<f64>() / n as f64;
        let apart = (0..STEPS).map(|step| (mean(step) - found[0].losses[at][step].1).abs()).fold(0.0, f64::max);
        println!(
            "{}: gradients of {n} ranks, summed in {numbers}, off by at most {error:.1e} ({tensor}) from one GPU's; losses of {STEPS} steps by at most {apart:.1e}, the last {:.4}",
            if error < 2e-2 && apart < 2e-2 { "right" } else { "WRONG" },
            mean(STEPS - 1)
        );
        off.push((way.name(), error, apart));
    }
    let driver = gpulab_lessons::machine::detect().nvidia.driver;
    let stamp = format!(
        "{},{},{n} x {},{},data_parallel_gpt {}",
        results::now_utc(),
        results::commit(),
        gpus[0].name(),
        driver.as_deref().unwrap_or("unknown"),
        given.join(" ")
    );
    let mut rows = "time,commit,machine,driver,command,ranks,way,what,value,unit,samples,p10,p90\n".to_string();
    let mut put = |variant: &str, what: &str, unit: &str, samples: &[f64]| {
        let Summary { median, p10, p90, .. } = Summary::of(samples);
        writeln!(
            rows,
            "{stamp},{n},{},{what},{median:.5},{unit},{},{p10:.5},{p90:.5}",
            variant.replace(',', ""),
            samples.len()
        )
        .expect("a String takes everything");
        median
    };
    for (name, error, apart) in off {
        put(&name, "gradients off by", "of a tensor's norm", &[error]);
        put(&name, "losses off by", "nats a token", &[apart]);
    }
    put("sums beside it", "memory at the peak", "GiB", &[found[0].peak / f64::from(1 << 30)]);
    for (way, rate) in STAND_INS.into_iter().zip(&found[0].copied).filter(|(_, rate)| **rate > 0.0) {
        put(&way.name(), "read by the copies", "GB/s", &[*rate]);
        println!("  {}: {rate:.0} GB/s read", way.name());
    }
    let mut alone = f64::NAN;
    for (variant, (name, _)) in variants().iter().enumerate() {
        // A step has ended when the slowest rank has ended it.
        let ranks: Vec<&Vec<f64>> =
            found.iter().map(|one| &one.times[variant]).filter(|times| !times.is_empty()).collect();
        let rounds = ranks.iter().map(|times| times.len()).min().unwrap_or(0);
        let slowest: Vec<f64> =
            (0..rounds).map(|round| ranks.iter().map(|times| times[round]).fold(0.0, f64::max)).collect();
        let ms = put(name, "a step", "ms", &slowest);
        if variant == 0 {
            alone = ms;
        }
        let share: Vec<f64> = slowest.iter().map(|ms| alone / ms).collect();
        let efficiency = put(name, "efficiency", "of one GPU alone", &share);
        let texts = if variant == 0 { BATCH } else { n * BATCH };
        let rate = (texts * shape.context) as f64 / ms * 1e3;
        put(name, "tokens a second", "1/s", &[rate]);
        println!("  {name:36} {ms:8.3} ms {rate:9.0} tokens/s, efficiency {efficiency:.3}");
    }
    if let Some(path) = timeline {
        let spans = &found[0].timeline;
        let rows = Span::to_rows(spans, Backend::Cuda).into_iter().map(|row| Measurement {
            time: results::now_utc(),
            commit: results::commit(),
            lesson: "60_multi_gpu".to_string(),
            experiment: format!("{n} GPUs: {}", row.experiment),
            machine: gpus[0].name().to_string(),
            dtype: "bf16".to_string(),
            ..row
        });
        results::append_to(std::path::Path::new(&path), &rows.collect::<Vec<Measurement>>())?;
        for span in spans {
            println!("  {:34} {:28} {:7.3} to {:7.3} ms", span.lane, span.label, span.start_ms, span.end_ms);
        }
    }
    std::fs::write(&out, rows).unwrap_or_else(|error| println!("{out}: {error}"));
    Ok(())
}
