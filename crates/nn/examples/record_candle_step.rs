//! Times GPT-2's training step (124 million parameters) by candle's autograd with the course's operators on this GPU beside PyTorch,
//! alternating, and writes a table.
//!
//! `cargo run --release -p gpulab-nn --example record_candle_step -- [--out candle_step.csv] [--talk FOLDER] [--batches 8,32]
//! [--ways eager,compiled] [--quick]`, with candle built for CUDA; `env/baselines/record_candle_step.py` does that and brings PyTorch along.
//! Before a time counts, gradients of small odd shapes are compared with f64, and the losses of the first steps with PyTorch's, from the same
//! parameters on the same tokens.

use gpulab::gpu::TimedWork;
use gpulab::prelude::*;
use gpulab::talk::{ask, unexpected};
use gpulab_kernels::gpt_step::{AdamWConfig, GptShape, reference_step, rounded_step, worst_gradient};
use gpulab_nn::gpt::train::CandleStep;
use gpulab_nn::{Device, DeviceKind, gpu_of};
use std::fmt::Write as _;

const SHAPE: GptShape = GptShape::GPT2_124M;
/// Steps whose losses are compared.
const COMPARED: usize = 20;
/// Steps of a timeline.
const TRACED: usize = 5;
const PLAN: Bench = Bench { warm_ups: 2, samples: 21, min_sample_ms: 150.0, budget_ms: 120_000.0 };
const QUICK: Bench = Bench { samples: 5, ..PLAN };
/// What an H200 reaches in bf16 by its data sheet, in operations a second.
const PEAK: f64 = 989e12;
const OURS: &str = "candle with the course's operators";

struct Asked {
    out: String,
    talks: bool,
    batches: Vec<usize>,
    ways: String,
    quick: bool,
}

fn asked() -> Asked {
    let (out, ways) = ("candle_step.csv".to_string(), "eager,compiled".to_string());
    let mut asked = Asked { out, talks: false, batches: vec![8, 32], ways, quick: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} needs a value"));
        match argument.as_str() {
            "--out" => asked.out = value(),
            // Nothing goes through the folder: parameters and tokens follow from seeds.
            "--talk" => asked.talks = !value().is_empty(),
            "--ways" => asked.ways = value(),
            "--quick" => asked.quick = true,
            "--batches" => {
                asked.batches = value().split(',').map(|word| word.parse().expect("such as 8,32: texts")).collect();
            }
            other => panic!("there is no option {other}"),
        }
    }
    asked
}

struct Table(String);

impl Table {
    fn row(&mut self, batch: usize, what: &str, metric: &str, unit: &str, samples: &[f64], ratio: Option<f64>) {
        let Summary { median, p10, p90, .. } = Summary::of(samples);
        let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"));
        let line =
            format!("{batch},\"{what}\",\"{metric}\",{median:.5},{unit},{ratio},{},{p10:.5},{p90:.5}", samples.len());
        eprintln!("{line}");
        writeln!(self.0, "{line}").expect("a String takes everything");
    }

    /// Step by step, so that any two ways can be compared.
    fn losses(&mut self, batch: usize, what: &str, losses: &[f64]) {
        for (step, loss) in losses.iter().enumerate() {
            self.row(batch, what, &format!("loss of step {}", step + 1), "nats a token", &[*loss], None);
        }
    }
}

fn main() -> Result<()> {
    let asked = asked();
    let device = DeviceKind::Cuda.open()?;
    let gpu = gpu_of(&device)?;
    eprintln!("{gpu}");
    // As PyTorch does: freed memory is kept.
    gpu.set_release_threshold(u64::MAX)?;
    let mut table = Table("batch,what,metric,value,unit,ratio,samples,p10,p90\n".to_string());
    check(&gpu, &device)?;
    for &batch in &asked.batches {
        measure(&gpu, &device, &asked, batch, &mut table)?;
        std::fs::write(&asked.out, &table.0).map_err(|error| unexpected(&error.to_string()))?;
    }
    Ok(())
}

/// The gradients of small shapes against f64, and a run of few steps, whose loss must fall.
fn check(gpu: &Gpu, device: &Device) -> Result<()> {
    let small = GptShape { layers: 2, heads: 1, vocabulary: 77, context: 17 };
    let odd = GptShape { layers: 2, heads: 3, vocabulary: 301, context: 200 };
    for (shape, batch) in [(small, 2), (odd, 3)] {
        let mut start = shape.start(3);
        let noise = cpu::random_f32(start.len(), 5);
        for (x, noise) in start.iter_mut().zip(noise) {
            *x = cpu::f32_from_bf16(cpu::bf16_from_f32(*x * 2.0 + 0.1 * noise));
        }
        let (tokens, adamw) = (vec![shape.random_tokens(batch, 4)], AdamWConfig::default());
        let wide: Vec<f64> = start.iter().map(|&x| f64::from(x)).collect();
        let (exact, rounded) = (reference_step(&shape, &wide, &tokens[0]), rounded_step(&shape, &wide, &tokens[0]));
        let mut step = CandleStep::new(gpu, device, shape)?;
        step.load(&start)?;
        step.queue(&tokens, &adamw)?;
        let first = step.result()?;
        let (share, worst) = worst_gradient(&shape, &step.optimizer().gradient().to_host()?, &exact, &rounded);
        let mut last = first;
        for _ in 0..8 {
            step.queue(&tokens, &adamw)?;
            last = step.result()?;
        }
        eprintln!(
            "{shape:?} × {batch}: loss {} for {}, then {}; worst gradient: {worst}",
            first.loss, exact.loss, last.loss
        );
        // A share that is no number is none that is allowed.
        let right = share <= 1.0 && (f64::from(first.loss) - exact.loss).abs() < 5e-3 * exact.loss;
        if !right || last.loss >= first.loss {
            return Err(Error::invalid(
                format!("{shape:?}: the step computes something else than f64: {worst}"),
                "run the tests of gpulab-nn's module gpt::operators",
            ));
        }
    }
    Ok(())
}

fn measure(gpu: &Gpu, device: &Device, asked: &Asked, batch: usize, table: &mut Table) -> Result<()> {
    let mut theirs = Vec::new();
    if asked.talks {
        let ways: Vec<&str> = asked.ways.split(',').filter(|way| !way.is_empty()).collect();
        let question = serde_json::json!({ "batch": batch, "steps": COMPARED, "ways": ways });
        let answer: serde_json::Value = ask(&question.to_string())?;
        theirs = answer.as_array().cloned().ok_or_else(|| unexpected(&answer.to_string()))?;
    }
    let losses_of = |way: &serde_json::Value| -> Vec<f64> {
        way["losses"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_f64).collect()
    };
    let name_of = |way: &serde_json::Value| way["name"].as_str().unwrap_or("?").to_string();
    gpu.synchronize()?;
    let before = gpu.memory()?;
    gpu.reset_high_water()?;
    let adamw = AdamWConfig::default();
    let mut step = CandleStep::new(gpu, device, SHAPE)?;
    step.load(&SHAPE.start(1))?;
    let mut losses = Vec::new();
    for at in 0..COMPARED {
        step.queue(&[SHAPE.random_tokens(batch, 100 + at as u64)], &adamw)?;
        losses.push(f64::from(step.result()?.loss));
    }
    let peak = (gpu.memory()?.used_high - before.used) as f64 / f64::from(1 << 30);
    table.row(batch, OURS, "memory at the peak", "GiB", &[peak], None);
    table.row(batch, OURS, "last loss", "nats a token", &losses[COMPARED - 1..], None);
    table.losses(batch, OURS, &losses);
    let mut names = vec![OURS.to_string()];
    for way in &theirs {
        let (name, given) = (name_of(way), losses_of(way));
        if given.len() != COMPARED {
            eprintln!("{name}: left out: {}", way["error"]);
            continue;
        }
        let apart = losses.iter().zip(&given).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        table.row(batch, &name, "last loss", "nats a token", &given[COMPARED - 1..], None);
        table.losses(batch, &name, &given);
        table.row(batch, &name, "largest difference of a loss from ours", "nats a token", &[apart], None);
        if let Some(peak) = way["memory"].as_f64() {
            table.row(batch, &name, "memory at the peak", "GiB", &[peak], None);
        }
        if losses.iter().any(|loss| !loss.is_finite()) || apart >= 0.02 * losses[0] {
            return Err(Error::invalid(
                format!("batch {batch}: losses are apart from those of {name} by {apart}: {losses:?} and {given:?}"),
                "compare the parameters' order, the decay and the clipping on both sides",
            ));
        }
        names.push(name);
    }
    let tokens = vec![SHAPE.random_tokens(batch, 100)];
    if batch == asked.batches[0] {
        timeline(gpu, batch, table, &mut || step.queue(&tokens, &adamw))?;
    }
    let mut contestants: Vec<TimedWork<'_>> = vec![TimedWork::Calls(Box::new(|_| step.queue(&tokens, &adamw)))];
    for (at, way) in theirs.iter().enumerate() {
        if losses_of(way).len() != COMPARED {
            continue;
        }
        contestants.push(TimedWork::Clocked(Box::new(move || ask(&format!("go {at}")))));
    }
    let samples = gpu.time_interleaved(if asked.quick { &QUICK } else { &PLAN }, &mut contestants)?;
    drop(contestants);
    let count = (batch * SHAPE.context) as f64;
    for (name, times) in names.iter().zip(&samples) {
        // How many times as fast as that one ours is: the median of the rounds' own ratios.
        let ratios: Vec<f64> = times.iter().zip(&samples[0]).map(|(a, b)| a / b).collect();
        table.row(batch, name, "a step", "ms", times, Some(Summary::of(&ratios).median));
        let ms = Summary::of(times).median;
        table.row(batch, name, "tokens a second", "1/s", &[count / ms * 1e3], None);
        table.row(batch, name, "of 989 TFLOP/s", "%", &[100.0 * SHAPE.operations(batch) / ms * 1e3 / PEAK], None);
    }
    Ok(())
}

/// How often each kernel and each copy ran in a step, and for how long together: the mean of a few steps.
fn timeline(gpu: &Gpu, batch: usize, table: &mut Table, step: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let trace = match gpulab_profiling::trace(gpu, |_| (0..TRACED).try_for_each(|_| step())) {
        Ok(trace) => trace,
        Err(error) => {
            eprintln!("no timeline: {error}");
            return Ok(());
        }
    };
    let mut kernels: Vec<(&str, f64, f64)> = Vec::new();
    for one in &trace.activities {
        let ms = (one.end_ns - one.start_ns) as f64 / 1e6;
        match kernels.iter_mut().find(|(name, ..)| *name == one.name) {
            Some((_, count, sum)) => (*count, *sum) = (*count + 1.0, *sum + ms),
            None => kernels.push((&one.name, 1.0, ms)),
        }
    }
    let of_a_step = |sum: f64| sum / TRACED as f64;
    let all = kernels.iter().fold((0.0, 0.0), |all, (_, count, ms)| (all.0 + count, all.1 + ms));
    table.row(batch, OURS, "kernels and copies of a step", "1", &[of_a_step(all.0)], None);
    table.row(batch, OURS, "kernels and copies of a step, one by one", "ms", &[of_a_step(all.1)], None);
    kernels.sort_by(|a, b| b.2.total_cmp(&a.2));
    for (name, count, ms) in kernels {
        table.row(batch, OURS, &format!("launches: {name}"), "1", &[of_a_step(count)], None);
        table.row(batch, OURS, &format!("kernel: {name}"), "ms", &[of_a_step(ms)], None);
    }
    Ok(())
}
