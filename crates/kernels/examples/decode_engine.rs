//! Checks and times every plan of `gpulab_kernels::engine` on this GPU: a token of a Llama with 1.2 billion parameters at context 1024 in
//! bf16, int8 and int4, and of a GPT-2 with 124 million at context 512; random weights, a batch of one.
//!
//! `cargo run --release -p gpulab-kernels --example decode_engine -- [--out decode_engine.csv] [--seconds 100] [--quick]`, in a
//! folder where `crates/kernels` lies. First every plan is held against f64 at awkward shapes; then, at the timed shape,
//! against f64 as well, at the timed position. A sample is 32 tokens around the context; the table has medians.

use gpulab::prelude::*;
use gpulab_kernels::engine::{
    Engine, EngineConfig, EngineModel, EnginePlan, EngineReference, EngineTuning, Family, RandomWeights, WeightBits,
};
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Instant;

/// Tokens of a sample, and how many samples.
const TOKENS: usize = 32;
const SAMPLES: usize = 9;
/// Steps of a stage at the timed shapes.
const SLOT_STEPS: usize = 16;

fn main() -> Result<()> {
    let (mut out, mut seconds, mut quick) = ("decode_engine.csv".to_string(), 100.0, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--out" => out = arguments.next().expect("a path follows"),
            "--seconds" => seconds = arguments.next().and_then(|text| text.parse().ok()).expect("a number follows"),
            "--quick" => quick = true,
            other => panic!("unknown: {other}"),
        }
    }
    let start = Instant::now();
    let gpu = Gpu::open_index(0)?;
    println!("{gpu}");
    awkward(&gpu)?;
    println!("[{:.1} s] awkward shapes done", start.elapsed().as_secs_f64());
    let copy = copy_rate(&gpu)?;
    println!("copy rate {copy:.0} GB/s");
    let mut rows = Vec::new();
    let shapes = [
        ("llama-1.2B", EngineConfig::LLAMA_1B, 1024, WeightBits::Bf16),
        ("gpt2-124M", EngineConfig::GPT2, 512, WeightBits::Bf16),
        ("llama-1.2B", EngineConfig::LLAMA_1B, 1024, WeightBits::Int4),
        ("gpt2-124M", EngineConfig::GPT2, 512, WeightBits::Int4),
        ("llama-1.2B", EngineConfig::LLAMA_1B, 1024, WeightBits::Int8),
    ];
    for (name, config, context, bits) in shapes {
        let left = seconds - start.elapsed().as_secs_f64();
        if left < 8.0 {
            println!("{name} {bits:?}: no time left");
            continue;
        }
        let deadline = if quick { 1.0 } else { left };
        if let Err(error) = shape(&gpu, (name, config, context, bits), copy, (start, deadline), &mut rows) {
            println!("{name} {bits:?}: {error}");
        }
    }
    let mut table = String::from(ROW);
    table += "\n";
    rows.iter().for_each(|row: &Row| writeln!(table, "{}", row.csv(copy)).expect("a String takes everything"));
    std::fs::write(&out, &table).unwrap_or_else(|error| println!("{out}: {error}"));
    println!("copy rate at the end {:.0} GB/s; {:.1} s", copy_rate(&gpu)?, start.elapsed().as_secs_f64());
    println!("---- {} rows in {out}; the best five of each shape and plan:", rows.len());
    let mut shown: Vec<(String, usize)> = Vec::new();
    rows.sort_by(|a, b| (&a.shape, &a.plan).cmp(&(&b.shape, &b.plan)).then(a.us.total_cmp(&b.us)));
    for row in &rows {
        let key = format!("{} {}", row.shape, row.plan);
        match shown.iter_mut().find(|(known, _)| *known == key) {
            Some((_, count)) if *count >= 5 => continue,
            Some((_, count)) => *count += 1,
            None => shown.push((key, 1)),
        }
        println!("{}", row.text(copy));
    }
    Ok(())
}

const ROW: &str = "shape,bits,plan,threads,splits,slots,ahead,late,kernels,context,us_a_token,p10,p90,bytes,share_of_copy,error";

struct Row {
    shape: String,
    plan: &'static str,
    tuning: EngineTuning,
    kernels: usize,
    context: usize,
    us: f64,
    p10: f64,
    p90: f64,
    bytes: usize,
    error: f64,
}

impl Row {
    fn share(&self, copy: f64) -> f64 {
        self.bytes as f64 / self.us / 1e3 / copy
    }

    fn csv(&self, copy: f64) -> String {
        let EngineTuning { threads, splits, slots, ahead, late } = self.tuning;
        let Row { shape, plan, kernels, context, us, p10, p90, bytes, error, .. } = self;
        let shape = shape.replace(' ', ",");
        let share = self.share(copy);
        format!(
            "{shape},{plan},{threads},{splits},{slots},{ahead},{},{kernels},{context},{us:.2},{p10:.2},{p90:.2},{bytes},{share:.3},{error:.1e}",
            u8::from(late)
        )
    }

    fn text(&self, copy: f64) -> String {
        let EngineTuning { threads, splits, slots, ahead, late } = self.tuning;
        let tuning = format!("threads {threads} splits {splits} slots {slots} ahead {ahead} late {}", u8::from(late));
        let Row { shape, plan, us, p10, p90, bytes, error, .. } = self;
        let share = self.share(copy);
        let megabytes = *bytes as f64 / 1e6;
        format!(
            "{shape:>16} {plan:>10} {us:8.1} µs ({p10:.1} to {p90:.1}) {megabytes:7.1} MB share {share:.3} error {error:.0e} | {tuning}"
        )
    }
}

/// How far logits are off: (‖given − exact‖ ÷ ‖exact‖, what is wrong first).
fn error_of(given: &[f32], exact: &[f64]) -> (f64, String) {
    let size = (exact.iter().map(|x| x * x).sum::<f64>() / exact.len() as f64).sqrt();
    let off = |(given, exact): (&f32, &f64)| f64::from(*given) - exact;
    let total = (given.iter().zip(exact).map(off).map(|x| x * x).sum::<f64>() / exact.len() as f64).sqrt() / size;
    let wrong = |pair: (&f32, &f64)| {
        let off = off(pair).abs();
        off.is_nan() || off > 0.02 * size
    };
    let wrong: Vec<usize> = (0..exact.len()).filter(|&at| wrong((&given[at], &exact[at]))).collect();
    let text = match wrong.first() {
        None => String::new(),
        Some(&at) => {
            let last = wrong[wrong.len() - 1];
            format!(
                "{} of {} logits are wrong, from {at} to {last}: {}, not {}",
                wrong.len(),
                exact.len(),
                given[at],
                exact[at]
            )
        }
    };
    (if total.is_nan() { f64::INFINITY } else { total }, text)
}

/// Every plan and kind of weights at shapes that fill nothing evenly.
fn awkward(gpu: &Gpu) -> Result<()> {
    let llama = EngineConfig {
        family: Family::Llama,
        layers: 3,
        width: 384,
        heads: 6,
        kv_heads: 2,
        head: 64,
        inner: 1152,
        vocabulary: 5003,
        context: 700,
        rope_base: 10_000.0,
    };
    let wide = EngineConfig { head: 128, heads: 4, kv_heads: 1, layers: 2, width: 640, ..llama };
    let gpt2 = EngineConfig { family: Family::Gpt2, heads: 12, kv_heads: 12, width: 768, ..llama };
    for (name, config, position) in [("llama", llama, 613), ("wide heads", wide, 37), ("gpt2", gpt2, 331), ("start", llama, 0)] {
        for bits in [WeightBits::Bf16, WeightBits::Int8, WeightBits::Int4] {
            if name == "start" && bits != WeightBits::Bf16 {
                continue;
            }
            let weights = RandomWeights { config, seed: 5 };
            let caches = cpu::random_bf16(config.cache_len(), 6);
            let mut reference = EngineReference::new(&config, bits, &weights, position, caches.clone());
            let tokens = [11, 98, 4999];
            let exact = tokens.map(|token| reference.step(token));
            let model = Rc::new(EngineModel::new(gpu, &config, bits, 8, &weights)?);
            let mut line = format!("{name} {bits:?}:");
            for plan in EnginePlan::ALL {
                let tuning = EngineTuning { splits: 3, slots: 7, ..EngineTuning::default() };
                let mut engine = Engine::new(&model, plan, tuning)?;
                engine.begin(&tokens, position, Some(&caches), (0.0, 0))?;
                let mut worst = 0.0_f64;
                for (at, exact) in exact.iter().enumerate() {
                    engine.step()?;
                    let (error, text) = error_of(&engine.logits()?, exact);
                    worst = worst.max(error);
                    if !text.is_empty() {
                        println!("WRONG: {} {name} {bits:?}, step {at}: {text}", plan.name());
                    }
                }
                write!(line, " {} {worst:.1e}", plan.name()).expect("a String takes everything");
            }
            println!("{line}");
        }
    }
    Ok(())
}

fn shape(
    gpu: &Gpu,
    (name, config, context, bits): (&str, EngineConfig, usize, WeightBits),
    copy: f64,
    (start, left): (Instant, f64),
    rows: &mut Vec<Row>,
) -> Result<()> {
    let begin = Instant::now();
    let shape = format!("{name} {bits:?}");
    let weights = RandomWeights { config, seed: 9 };
    let caches = cpu::random_bf16(config.cache_len(), 10);
    let model = Rc::new(EngineModel::new(gpu, &config, bits, SLOT_STEPS, &weights)?);
    let laid_out = begin.elapsed().as_secs_f64();
    let mut reference = EngineReference::new(&config, bits, &weights, context, caches.clone());
    let exact = reference.step(42);
    let bytes = model.bytes_a_token(context);
    println!(
        "{shape}: laid out in {laid_out:.1} s, f64 in {:.1} s, {bytes} bytes, floor {:.1} µs",
        begin.elapsed().as_secs_f64() - laid_out,
        bytes as f64 / copy / 1e3
    );
    let mut best = f64::INFINITY;
    for (plan, tuning) in variants(config.family) {
        if left - begin.elapsed().as_secs_f64() < 5.0 && !rows.is_empty() && best.is_finite() && left > 1.0 {
            println!("{shape}: the rest is left out");
            break;
        }
        let made = Engine::new(&model, plan, EngineTuning { slots: 0, ahead: 0, late: false, ..tuning });
        let mut engine = match made {
            Ok(engine) => engine,
            Err(error) => {
                println!("{shape} {}: {error}", plan.name());
                continue;
            }
        };
        let all = engine.tuning().slots;
        let mut tunings = vec![EngineTuning { late: tuning.late, ..engine.tuning() }];
        let sweep = tuning.slots == 1;
        if sweep {
            let with = |slots: usize, ahead: usize, late: bool| EngineTuning { slots, ahead, late, ..engine.tuning() };
            for ahead in [2, 3, 4, 6, 8] {
                if ahead < all {
                    tunings.push(with(all, ahead, false));
                }
            }
            tunings.push(with(all / 2, all / 2, false));
            if plan == EnginePlan::Overlapped {
                tunings.extend([with(all, all, true), with(all, 4, true), with(all, 2, true)]);
            }
        }
        for tuning in tunings {
            engine.tune(tuning)?;
            engine.begin(&[42], context, Some(&caches), (0.0, 0))?;
            engine.step()?;
            let (error, text) = error_of(&engine.logits()?, &exact);
            if !text.is_empty() {
                println!("WRONG: {shape} {} {tuning:?}: {text}", plan.name());
                continue;
            }
            let mut times = Vec::new();
            for _ in 0..SAMPLES {
                times.push(sample(gpu, &mut engine, context)?);
            }
            let Summary { median: us, p10, p90, .. } = Summary::of(&times);
            let kernels = engine.kernels_a_token();
            let row = Row { shape: shape.clone(), plan: plan.name(), tuning: engine.tuning(), kernels, context, us, p10, p90, bytes, error };
            println!("{}", row.text(copy));
            best = best.min(us);
            rows.push(row);
        }
    }
    println!("[{:.1} s]", start.elapsed().as_secs_f64());
    Ok(())
}

/// Plans with the constants that are compiled in; of those with one slot, all others are tried too.
fn variants(family: Family) -> Vec<(EnginePlan, EngineTuning)> {
    let with = |threads: usize, splits: usize, slots: usize| EngineTuning { threads, splits, slots, ahead: 0, late: false };
    let splits = if family == Family::Llama { 4 } else { 5 };
    vec![
        (EnginePlan::Fused, with(256, splits, 0)),
        (EnginePlan::Overlapped, with(256, splits, 1)),
        (EnginePlan::Persistent, with(256, splits, 1)),
        (EnginePlan::Persistent, with(256, 2 * splits, 0)),
        (EnginePlan::Persistent, with(512, splits, 0)),
    ]
}

/// The µs of a token, the mean of a sample.
fn sample(gpu: &Gpu, engine: &mut Engine, context: usize) -> Result<f64> {
    engine.begin(&[42], context - TOKENS / 2 - 2, None, (0.0, 0))?;
    (0..2).try_for_each(|_| engine.step())?;
    gpu.synchronize()?;
    let start = gpu.event()?;
    for _ in 0..TOKENS {
        engine.step()?;
    }
    Ok(gpu.event()?.ms_since(&start)? * 1e3 / TOKENS as f64)
}

/// GB/s of a copy of 1 GiB within the device, bytes read and written both counted.
fn copy_rate(gpu: &Gpu) -> Result<f64> {
    let n = 1 << 28;
    let (from, mut to) = (gpu.zeros::<f32>(n)?, gpu.zeros::<f32>(n)?);
    let time = gpu.time(&Bench::default(), |_| to.copy_from_buffer(&from))?;
    Ok(8.0 * n as f64 / time.median / 1e6)
}
