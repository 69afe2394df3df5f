//! Checks `gpulab_kernels::engine::BatchEngine` on this GPU, and times its steps at the shape of Llama-3.2-1B (random weights, bf16).
//!
//! `cargo run --release -p gpulab-kernels --example batch_engine -- [--out batch_engine.csv] [--only TEXT] [--once] [--mixed]`, in the repository
//! or in a folder where `crates/kernels` lies. First the logits of steps with many texts are compared with f64 at awkward shapes, launched
//! and as graphs. Then each kind of step is timed until its tokens are on the host; with `--mixed` steps of 64 single tokens beside a part of a prompt too, which are
//! printed alone. `--only` names the steps that are timed, such as `64 x 1 at 576`; with
//! `--once` each runs once more without a clock, for a profiler.
//!
//! A row of the table: the `step`, `texts` × `tokens` of each at a `context`; `ms`, `p10`, `p90` of it by the host's clock; `gb` that must move (weights
//! once, keys and values of the context) and `tflop`; `bound_ms`, the larger of bytes ÷ `copy_gb_s` and operations ÷ `product_tflop_s`,
//! both measured in the same run; `share`: bound ÷ median.

use gpulab::cudarc::driver::{profiler_start, profiler_stop};
use gpulab::gpu::{CublasLt, LtEpilogue, LtExtra, LtShape};
use gpulab::prelude::*;
use gpulab::results;
use gpulab_kernels::engine::{
    BatchEngine, BatchLimits, EngineConfig, EngineReference, Family, RandomWeights, TextPart, WeightBits, copy_rate,
};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Texts, tokens that are read of each, and the tokens of a text when they are read.
const STEPS: [(usize, usize, usize); 10] = [
    (1, 1, 576),
    (1, 1, 1024),
    (8, 1, 576),
    (32, 1, 576),
    (64, 1, 576),
    (64, 1, 1024),
    (1, 512, 512),
    (4, 512, 512),
    (1, 2048, 2048),
    (16, 128, 1024),
];
const BLOCK: usize = 16;

fn main() -> Result<()> {
    let (mut out, mut only, mut once, mut mixed) = ("batch_engine.csv".to_string(), String::new(), false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--out" => out = arguments.next().expect("a path follows"),
            "--only" => only = arguments.next().expect("a step follows, such as 64 x 1 at 576"),
            "--once" => once = true,
            "--mixed" => mixed = true,
            other => panic!("unknown: {other}"),
        }
    }
    let gpu = Gpu::open()?;
    println!("{gpu}");
    if !once {
        checked(&gpu)?;
    }
    let (copy, product) = (copy_rate(&gpu)?, product_rate(&gpu)?);
    println!("a copy of 1 GiB: {copy:.0} GB/s; a product of 8192 x 8192 x 8192 in bf16: {product:.0} TFLOP/s");
    let config = EngineConfig { context: 2048, ..EngineConfig::LLAMA_1B };
    let limits = BatchLimits { rows: 2048, texts: 64, blocks: 64 * 1024 / BLOCK, block_size: BLOCK };
    let start = Instant::now();
    let mut engine = BatchEngine::new(&gpu, &config, &RandomWeights { config, seed: 1 }, limits)?;
    println!("the model is there after {:.1} s", start.elapsed().as_secs_f64());
    let driver = gpulab_lessons::machine::detect().nvidia.driver;
    let typed: Vec<String> = std::env::args().skip(1).collect();
    let stamp = format!(
        "{},{},{},{},batch_engine {}",
        results::now_utc(),
        results::commit(),
        gpu.name(),
        driver.as_deref().unwrap_or("unknown"),
        typed.join(" ")
    );
    let mut table =
        "time,commit,machine,driver,command,step,texts,tokens,context,ms,p10,p90,gb,tflop,bound_ms,share,copy_gb_s,product_tflop_s\n".to_string();
    for (texts, tokens, context) in STEPS {
        let name = format!("{texts} x {tokens} at {context}");
        if !name.contains(&only) {
            continue;
        }
        let words: Vec<u32> = (0..tokens as u32).map(|i| (i * 7919 + 13) % config.vocabulary as u32).collect();
        let of_text = context.div_ceil(BLOCK);
        let blocks: Vec<Vec<u32>> =
            (0..texts).map(|text| (0..of_text).map(|i| (text + i * texts) as u32).collect()).collect();
        let parts: Vec<TextPart<'_>> = blocks
            .iter()
            .map(|blocks| TextPart { tokens: &words, first: context - tokens, blocks, samples: true })
            .collect();
        step(&mut engine, &parts)?;
        if once {
            // As `ncu --profile-from-start off --graph-profiling node` wants it.
            profiler_start().expect("the driver has a profiler's switch");
            step(&mut engine, &parts)?;
            profiler_stop().expect("the driver has a profiler's switch");
            continue;
        }
        let times = timed(&mut engine, &parts)?;
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        let table_weights = config.vocabulary * config.width;
        let weights = config.parameter_count();
        let bytes = 2.0 * weights as f64 + (texts * config.cache_bytes(context)) as f64;
        // The last matrix is multiplied with one row of each text; scores and sums of queries with all that stands before them.
        let pairs: usize = (context - tokens + 1..=context).sum::<usize>() * texts;
        let heads = 4 * config.layers * config.heads * config.head;
        let operations =
            2.0 * ((weights - table_weights) * texts * tokens + table_weights * texts) as f64 + (pairs * heads) as f64;
        let bound = (bytes / copy / 1e6).max(operations / product / 1e9);
        let (gb, tflop, ms) = (bytes / 1e9, operations / 1e12, at(0.5));
        println!(
            "{name:>18}: {ms:7.3} ms, {:.0} tokens/s; {gb:.2} GB, {tflop:.2} TFLOP, bound {bound:.3} ms, share {:.3}",
            (texts * tokens) as f64 / ms * 1e3,
            bound / ms
        );
        let _ = writeln!(
            table,
            "{stamp},{name},{texts},{tokens},{context},{ms:.4},{:.4},{:.4},{gb:.3},{tflop:.3},{bound:.4},{:.3},{copy:.0},{product:.0}",
            at(0.1),
            at(0.9),
            bound / ms
        );
    }
    std::fs::write(&out, table).expect("the table can be written");
    if mixed { mixed_steps(&mut engine) } else { Ok(()) }
}

/// A step until its tokens are on the host, in ms.
fn step(engine: &mut BatchEngine, parts: &[TextPart<'_>]) -> Result<f64> {
    let start = Instant::now();
    engine.step(parts)?;
    engine.likeliest()?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// Times of many of them, sorted.
fn timed(engine: &mut BatchEngine, parts: &[TextPart<'_>]) -> Result<Vec<f64>> {
    let (mut times, begin) = (Vec::new(), Instant::now());
    while times.len() < 20 || begin.elapsed() < Duration::from_millis(700) {
        times.push(step(engine, parts)?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Steps of a token of each of 63 texts at 576 beside the beginning of a prompt: what `prefill_policies` of `gpulab-serve` foretells.
fn mixed_steps(engine: &mut BatchEngine) -> Result<()> {
    const CONTEXT: usize = 576;
    let blocks: Vec<Vec<u32>> =
        (0..64).map(|text| (0..CONTEXT.div_ceil(BLOCK)).map(|i| (text + i * 64) as u32).collect()).collect();
    let words: Vec<u32> = (0..512).map(|i| (i * 7919 + 13) % 128_000).collect();
    for beside in [0, 64, 128, 193, 257, 321, 449] {
        let answers = blocks[1..].iter();
        let answers = answers.map(|blocks| TextPart { tokens: &words[..1], first: CONTEXT - 1, blocks, samples: true });
        let prompt = TextPart { tokens: &words[..beside], first: 0, blocks: &blocks[0], samples: false };
        let parts: Vec<TextPart<'_>> = answers.chain((beside > 0).then_some(prompt)).collect();
        // The first one is launched kernel by kernel, the others are a graph.
        let (launched, times) = (step(engine, &parts)?, timed(engine, &parts)?);
        println!(
            "63 x 1 at {CONTEXT} and {beside} of a prompt: {:.3} ms, p10 {:.3}, p90 {:.3}; the first one {launched:.3} ms",
            times[times.len() / 2],
            times[times.len() / 10],
            times[times.len() * 9 / 10]
        );
    }
    Ok(())
}

/// TFLOP/s of a large product by cuBLASLt.
fn product_rate(gpu: &Gpu) -> Result<f64> {
    let n = 8192;
    let numbers: Vec<u16> =
        (0..n * n).map(|i: usize| 0x3f00 ^ ((i.wrapping_mul(2_654_435_761) >> 16) as u16 & 0x807f)).collect();
    let (a, b, mut c) = (gpu.to_device(&numbers)?, gpu.to_device(&numbers)?, gpu.zeros::<u16>(n * n)?);
    let shape = LtShape {
        rows: n,
        columns: n,
        terms: n,
        a_transposed: false,
        b_transposed: true,
        f32_result: false,
        adds: false,
        epilogue: LtEpilogue::None,
        strides: [0; 3],
    };
    let mut product = CublasLt::new(gpu)?.product(shape, 1)?;
    let time = gpu.time(&Bench::default(), |_| product.queue((&a, 0), (&b, 0), (&mut c, 0), LtExtra::default()))?;
    Ok(2.0 * (n as f64).powi(3) / time.median / 1e9)
}

/// Compares steps of three texts with f64, token for token.
fn checked(gpu: &Gpu) -> Result<()> {
    for (head, heads, kv_heads) in [(64, 8, 2), (128, 3, 1), (256, 2, 1), (64, 9, 3), (32, 8, 1)] {
        let config = EngineConfig {
            family: Family::Llama,
            layers: 2,
            width: 128,
            heads,
            kv_heads,
            head,
            inner: 384,
            vocabulary: 203,
            context: 320,
            rope_base: 10_000.0,
        };
        let weights = RandomWeights { config, seed: 7 };
        let limits = BatchLimits { rows: 300, texts: 3, blocks: 60, block_size: 16 };
        let mut engine = BatchEngine::new(gpu, &config, &weights, limits)?;
        let lengths = [300, 171, 33];
        let texts: Vec<Vec<u32>> =
            (0..3).map(|text| (0..lengths[text] as u32).map(|i| (text as u32 * 50 + 37 * i) % 203).collect()).collect();
        let blocks: Vec<Vec<u32>> =
            (0..3).map(|text| (0..20).map(|i| ((i * 3 + text) * 7 % 60) as u32).collect()).collect();
        let exact: Vec<Vec<Vec<f64>>> = texts
            .iter()
            .map(|tokens| {
                let mut reference =
                    EngineReference::new(&config, WeightBits::Bf16, &weights, 0, vec![0; config.cache_len()]);
                tokens.iter().map(|token| reference.step(*token)).collect()
            })
            .collect();
        let mut worst: f64 = 0.0;
        // Tokens that are read of each text in a step: parts of prompts, beside single tokens, and single tokens alone.
        for ends in [[140, 100, 1], [260, 101, 30], [290, 102, 31], [291, 103, 32], [300, 171, 33]]
            .iter()
            .scan([0; 3], |before, ends| Some((std::mem::replace(before, *ends), *ends)))
        {
            let parts: Vec<TextPart<'_>> = (0..3)
                .map(|text| TextPart {
                    tokens: &texts[text][ends.0[text]..ends.1[text]],
                    first: ends.0[text],
                    blocks: &blocks[text],
                    samples: true,
                })
                .collect();
            // Kernel by kernel; captured as a graph; the same graph for the texts in another order. What a step writes stays the same.
            let orders = [[0, 1, 2], [1, 2, 0], [2, 0, 1]];
            for order in orders {
                engine.step(&order.map(|text| parts[text]))?;
            }
            let likeliest = engine.likeliest()?;
            for (at, text) in orders[2].into_iter().enumerate() {
                let (given, exact) = (engine.logits(at)?, &exact[text][ends.1[text] - 1]);
                let size = exact.iter().map(|x| x * x).sum::<f64>().sqrt();
                let off =
                    given.iter().zip(exact).map(|(given, exact)| (f64::from(*given) - exact).powi(2)).sum::<f64>();
                worst = worst.max(off.sqrt() / size);
                let best = (0..given.len()).rev().max_by(|&a, &b| given[a].total_cmp(&given[b])).map(|at| at as u32);
                assert_eq!(likeliest[at], best, "the likeliest token of text {text}");
            }
        }
        println!(
            "{heads} heads of {head}, {kv_heads} of keys: off by {:.2} % of the logits' size at most",
            100.0 * worst
        );
        assert!(worst <= 1.5e-2, "the logits are not right");
    }
    Ok(())
}
