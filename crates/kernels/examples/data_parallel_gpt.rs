//! Data parallel training of GPT-2 (124 million parameters) on the NVIDIA GPUs of this host: what a second GPU gives.
//!
//! `cargo run --release -p gpulab-kernels --example data_parallel_gpt -- [--out data_parallel.csv] [--seconds 60]
//! [--timeline timeline.csv]` first holds the
//! gradients of a small model on all GPUs against those of one GPU with the whole batch, and the losses of 20 steps of the large one
//! likewise; then it times a step of 8 × 1024 tokens on each GPU: on one alone, on all of them with gradients added up behind the
//! backward pass, and beside it. Efficiency is the time of one GPU alone over that of all.
//! With `--timeline` it keeps, of one step of the first rank in either way, what its two streams did from when to when, as rows of
//! `Span`s.
//!
//! Predicted before the first run, for two H200s: the gradients are 498 MB in f32, 1.7 ms at the 300 GB/s of an all-reduce of that
//! size. Behind the backward pass that is 15.3 → 17.0 ms, an efficiency of 0.90; beside it the last layer's 28 MB and the 12.6 MB of
//! gathered rows stay to be waited for, 0.2 ms, and so 0.98, but for what the collective's kernels take from the step's.

use gpulab::gpu::{Event, Stream};
use gpulab::measurement::{Backend, Span, Summary};
use gpulab::prelude::*;
use gpulab::results;
use gpulab_kernels::gpt_step::*;
use gpulab_ranks::nccl::{GpuRank, Nccl};
use gpulab_ranks::{Collectives, Communicator, Op};
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

const BATCH: usize = 8;
const STEPS: usize = 20;
const ROUNDS: usize = 15;
const CALLS: usize = 4;

/// When gradients are added up.
#[derive(Clone, Copy, PartialEq)]
enum When {
    /// All at once, when the backward pass has ended.
    Behind,
    /// Beside the backward pass, in buckets of so many layers: the last layer's, which nothing is left to hide, has its own.
    Beside(usize),
}

/// How many layers share one sum.
const BUCKETS: [usize; 3] = [1, 3, 6];

struct Sums<'a> {
    rank: &'a GpuRank,
    when: When,
    layers: usize,
    /// How many parts of this step's gradients are there.
    parts: usize,
    waiting: Vec<Range<usize>>,
    clock: Option<Clock<'a>>,
}

/// Events of one step, in the stream of the launches and in that of the collectives.
struct Clock<'a> {
    side: &'a Stream,
    begin: Event,
    /// A part of the gradients is there.
    ready: Vec<Event>,
    /// So many bytes, the last of which came with that part, are added up.
    added: Vec<(usize, usize, Event)>,
    gathered: Option<Event>,
}

impl Clock<'_> {
    /// The spans of the step, in ms from its begin. A sum begins when its numbers are there and the one before it has ended.
    fn spans(&self, end: &Event, variant: &str, layers: usize) -> Result<Vec<Span>> {
        let at = |event: &Event| event.ms_since(&self.begin);
        let (compute, network) = (format!("{variant}: compute"), format!("{variant}: NCCL"));
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
            spans.push(Span::new(
                &network,
                &format!("all-reduce of {:.1} MB", *bytes as f64 / 1e6),
                there.max(free),
                now,
            ));
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
        let (rank, clock) = (self.rank, &mut self.clock);
        let mut add_up = |range: Range<usize>| -> Result<()> {
            let bytes = range.len() * size_of::<f32>();
            // SAFETY: the trainer writes and reads a range that is ready only after `join`.
            unsafe { rank.all_reduce_part(gradient, range, Op::Sum) }?;
            if let Some(clock) = clock {
                clock.added.push((bytes, clock.ready.len() - 1, clock.side.event()?));
            }
            Ok(())
        };
        // The table, the last norm, the layers from the last one to the first: all but the table lie one behind the other.
        let part = self.parts;
        self.parts = (part + 1) % (self.layers + 2);
        self.waiting.push(range);
        let full = match self.when {
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
            clock.gathered = Some(clock.side.event()?);
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
    fn new(rank: &'a GpuRank, kernels: &GptKernels, batch: usize, ranks: usize, start: &[f32]) -> Result<Trained<'a>> {
        let settings = GptSettings { batch, ranks, plan: GptPlan::Fused, ..GptSettings::default() };
        let mut trainer = GptTraining::with(rank.gpu(), kernels, settings)?;
        trainer.load(start)?;
        let layers = trainer.shape().layers;
        Ok(Trained {
            trainer,
            sums: Sums { rank, when: When::Beside(1), layers, parts: 0, waiting: Vec::new(), clock: None },
        })
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

    /// What the two streams did in one step, behind some others that were not looked at.
    fn look(&mut self, side: &'a Stream, variant: &str) -> Result<Vec<Span>> {
        for _ in 0..CALLS {
            self.queue()?;
        }
        let begin = self.sums.rank.gpu().event()?;
        self.sums.clock = Some(Clock { side, begin, ready: Vec::new(), added: Vec::new(), gathered: None });
        self.queue()?;
        let end = self.sums.rank.gpu().event()?;
        self.sums.rank.synchronize()?;
        let layers = self.sums.layers;
        self.sums.clock.take().map_or(Ok(Vec::new()), |clock| clock.spans(&end, variant, layers))
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
    /// The largest error of a tensor's gradients on a small model, and that tensor's name.
    gradients: Option<(f64, String)>,
    /// This rank's losses of the large model's steps, and those of one GPU with all texts.
    losses: Vec<(f64, f64)>,
    /// Milliseconds of a step, by [`variants`]; of one GPU alone on the first rank only.
    times: Vec<Vec<f64>>,
    peak: f64,
    timeline: Vec<Span>,
}

/// What is timed: its name, and when the gradients are added up, if they are.
fn variants() -> Vec<(String, Option<When>)> {
    let mut variants = vec![
        ("one GPU alone".to_string(), None),
        ("all GPUs, no sums".to_string(), None),
        ("sums behind the backward pass".to_string(), Some(When::Behind)),
    ];
    variants.extend(BUCKETS.map(|layers| {
        let name = if layers == 1 { String::new() } else { format!(", {layers} layers at a time") };
        (format!("sums beside it{name}"), Some(When::Beside(layers)))
    }));
    variants
}

fn work(rank: &GpuRank, side: &Stream, seconds: f64, timeline: bool) -> Result<Found> {
    let (begin, n, gpu) = (Instant::now(), rank.size(), rank.gpu());
    let variants = variants();
    let mut found = Found { times: vec![Vec::new(); variants.len()], ..Found::default() };
    // The gradients of a small model: the whole batch on one GPU, and shared out.
    let small = GptShape { layers: 2, heads: 2, vocabulary: 77, context: 33 };
    let kernels = GptKernels::compile(gpu, &small)?;
    let start = small.start(3);
    let tokens = small.random_tokens(2 * n, 4);
    for when in [When::Behind, When::Beside(1), When::Beside(3)] {
        let mut whole = Trained::new(rank, &kernels, 2 * n, 1, &start)?;
        let mut shared = Trained::new(rank, &kernels, 2, n, &start)?;
        shared.sums.when = when;
        whole.step(&tokens)?;
        shared.step(&tokens)?;
        let (exact, own) = (whole.trainer.gradients()?, shared.trainer.gradients()?);
        for tensor in small.tensors() {
            let pairs = || own[tensor.range.clone()].iter().zip(&exact[tensor.range.clone()]);
            let off: f64 = pairs().map(|(own, exact)| f64::from(own - exact).powi(2)).sum();
            let size: f64 = pairs().map(|(_, exact)| f64::from(*exact).powi(2)).sum();
            let error = (off / size).sqrt();
            if !found.gradients.as_ref().is_some_and(|worst| error <= worst.0) {
                found.gradients = Some((error, tensor.name));
            }
        }
    }
    let shape = GptShape::GPT2_124M;
    let kernels = GptKernels::compile(gpu, &shape)?;
    let start = shape.start(1);
    {
        let mut whole = Trained::new(rank, &kernels, BATCH, 1, &start)?;
        let mut shared = Trained::new(rank, &kernels, BATCH / n, n, &start)?;
        for step in 0..STEPS as u64 {
            let tokens = shape.random_tokens(BATCH, 100 + step);
            let (own, all) = (shared.step(&tokens)?, whole.step(&tokens)?);
            found.losses.push((f64::from(own.loss), f64::from(all.loss)));
        }
    }
    let before = gpu.memory()?.used;
    gpu.reset_high_water()?;
    let mut shared = Trained::new(rank, &kernels, BATCH, n, &start)?;
    let tokens = shape.random_tokens(BATCH * n, 100);
    shared.step(&tokens)?;
    found.peak = (gpu.memory()?.used_high - before) as f64;
    let mut alone = Trained::new(rank, &kernels, BATCH, 1, &start)?;
    alone.step(&tokens[..BATCH * (shape.context + 1)])?;
    // All ranks agree on when to stop: the first one's clock counts.
    for round in 0..ROUNDS {
        let mut late = gpu.to_device(&[u32::from(begin.elapsed().as_secs_f64() > seconds)])?;
        rank.all_reduce(&mut late, Op::Max)?;
        rank.synchronize()?;
        if late.to_host()?[0] == 1 && round > 2 {
            break;
        }
        for ((index, (_, when)), times) in variants.iter().enumerate().zip(&mut found.times) {
            // Nobody begins before all are here.
            rank.all_reduce(&mut late, Op::Max)?;
            rank.synchronize()?;
            match when {
                None if index == 0 && rank.rank() > 0 => {}
                None => times.push(alone.time()?),
                Some(when) => {
                    shared.sums.when = *when;
                    times.push(shared.time()?);
                }
            }
        }
    }
    if timeline {
        for (variant, when) in &variants {
            if let Some(when) = when {
                shared.sums.when = *when;
                found.timeline.extend(shared.look(side, variant)?);
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
    let worst = found.iter().filter_map(|one| one.gradients.clone()).max_by(|a, b| a.0.total_cmp(&b.0));
    let worst = worst.unwrap_or((f64::NAN, String::new()));
    let mean = |step: usize| found.iter().map(|one| one.losses[step].0).sum::<f64>() / n as f64;
    let apart = (0..STEPS).map(|step| (mean(step) - found[0].losses[step].1).abs()).fold(0.0, f64::max);
    println!(
        "{}: gradients of {n} ranks off by at most {:.1e} ({}) from one GPU's; losses of {STEPS} steps by at most {apart:.1e}, the last {:.4}",
        if worst.0 < 2e-2 && apart < 2e-2 { "right" } else { "WRONG" },
        worst.0,
        worst.1,
        mean(STEPS - 1)
    );
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
    put("sums beside it", "gradients off by", "of a tensor's norm", &[worst.0]);
    put("sums beside it", "losses off by", "nats a token", &[apart]);
    put("sums beside it", "memory at the peak", "GiB", &[found[0].peak / f64::from(1 << 30)]);
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
