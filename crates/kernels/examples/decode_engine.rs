//! Checks and times every plan of `gpulab_kernels::engine` on this GPU: a token of a Llama with 1.2 billion parameters at context 1024 in
//! bf16, int8 and int4, and of a GPT-2 with 124 million at context 512; random weights, a batch of one.
//!
//! `cargo run --release -p gpulab-kernels --example decode_engine -- [--out decode_engine.csv] [--seconds 100] [--only SHAPE]
//! [--variants FILE] [--simulate]`, in the repository or in a folder where `crates/kernels` lies. First every plan is compared with
//! f64 at awkward shapes (with `--simulate` that is all), then, at the timed shape and position, against f64 as well. A sample
//! is 32 tokens around the context; the table has medians of nine. `--variants` names a file of plans and constants as `VARIANTS` below.
//!
//! A row of the table: `shape`, `bits`, `plan`; the constants `threads`, `splits`, `heads_each`, `slot_steps`, `slots`, `ahead`;
//! `kernels` a token; `context`; `us_a_token`, `p10`, `p90`; the `bytes` that a token reads, `share_of_copy` (bytes ÷ time ÷
//! the rate of a device copy in the same run, bytes read and written both counted); `error`: ‖given − exact‖ ÷ ‖exact‖.

use gpulab::prelude::*;
use gpulab_kernels::engine::{
    Engine, EngineConfig, EngineConstants, EngineKernels, EngineModel, EnginePlan, EngineReference, EngineTuning,
    Family, RandomWeights, WeightBits, copy_rate,
};
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Instant;

/// Tokens of a sample, and how many samples.
const TOKENS: usize = 32;
const SAMPLES: usize = 9;

fn main() -> Result<()> {
    let (mut out, mut seconds, mut only) = ("decode_engine.csv".to_string(), 100.0, String::new());
    let (mut simulate, mut variants) = (false, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--out" => out = arguments.next().expect("a path follows"),
            "--seconds" => seconds = arguments.next().and_then(|text| text.parse().ok()).expect("a number follows"),
            "--simulate" => simulate = true,
            "--variants" => variants = arguments.next(),
            "--only" => only = arguments.next().expect("a shape follows, such as gpt2 or Int4"),
            other => panic!("unknown: {other}"),
        }
    }
    let start = Instant::now();
    let variants =
        variants.map_or(Ok(VARIANTS.to_string()), std::fs::read_to_string).expect("the file of variants can be read");
    let variants = parsed(&variants);
    let gpu = if simulate { Gpu::simulated()? } else { Gpu::open_index(0)? };
    println!("{gpu}");
    let shapes: Vec<Shape> = SHAPES
        .into_iter()
        .filter(|(name, _, _, bits)| only.is_empty() || format!("{name} {bits:?}").contains(&only))
        .map(|(name, config, context, bits)| Shape { name: format!("{name} {bits:?}"), config, context, bits })
        .collect();
    // Everything is compiled first, side by side: most of a short run is NVRTC's.
    let timed = shapes.iter().map(|shape| (shape, compiled_in(shape, &variants)));
    let checked = awkward_shapes(simulate);
    let checks = checked.iter().map(|shape| (shape, checked_variants(shape, simulate)));
    let timed = timed.filter(|_| !simulate);
    let wanted: Vec<_> = checks
        .chain(timed)
        .flat_map(|(shape, variants)| variants.into_iter().map(move |variant| (shape, variant)))
        .collect();
    let compiled: Vec<_> = std::thread::scope(|scope| {
        let compile = |&(shape, (plan, constants)): &(&Shape, (EnginePlan, EngineConstants))| {
            let (gpu, config, bits) = (gpu.clone(), shape.config, shape.bits);
            scope.spawn(move || EngineKernels::compile(&gpu, &config, bits, plan, constants))
        };
        let threads: Vec<_> = wanted.iter().map(compile).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let kernels: Vec<_> = wanted.iter().zip(compiled).collect();
    println!("[{:.1} s] {} programs compiled", start.elapsed().as_secs_f64(), kernels.len());
    let copy = if simulate { f64::NAN } else { copy_rate(&gpu)? };
    println!("copy rate {copy:.0} GB/s");
    let (mut rows, mut clocks) = (Vec::new(), String::new());
    let mut exact = vec![Vec::new(); shapes.len()];
    // A kernel that fails takes the GPU's context along: layers of five phases come first, those of fewer behind all of them.
    for fewer in [false, true] {
        for shape in &checked {
            if let Err(error) = check(&gpu, shape, &kernels, fewer) {
                println!("{}: {error}", shape.name);
            }
        }
        println!("[{:.1} s] awkward shapes done", start.elapsed().as_secs_f64());
        for (shape, exact) in shapes.iter().zip(&mut exact).filter(|_| !simulate) {
            let left = seconds - start.elapsed().as_secs_f64();
            if left < 6.0 {
                println!("{}: no time left", shape.name);
            } else if let Err(error) =
                time(&gpu, shape, &kernels, fewer, &variants, copy, exact, &mut rows, &mut clocks)
            {
                println!("{}: {error}", shape.name);
            }
            println!("[{:.1} s]", start.elapsed().as_secs_f64());
        }
        // What was timed without a part is no time of a token.
        for (path, whole) in [(out.clone(), true), (out.replace(".csv", "_parts.csv"), false)] {
            let of_file = rows.iter().filter(|row: &&Row| (row.constants.without == 0) == whole);
            let lines: Vec<String> = of_file.map(|row| row.csv(copy)).collect();
            std::fs::write(&path, format!("{ROW}\n{}\n", lines.join("\n")))
                .unwrap_or_else(|error| println!("{path}: {error}"));
        }
        let path = out.replace(".csv", "_phases.csv");
        std::fs::write(&path, format!("{PHASES}\n{clocks}")).unwrap_or_else(|error| println!("{path}: {error}"));
    }
    if simulate {
        return Ok(());
    }
    match copy_rate(&gpu) {
        Ok(rate) => println!("copy rate at the end {rate:.0} GB/s; {:.1} s", start.elapsed().as_secs_f64()),
        Err(error) => println!("{error}"),
    }
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

const ROW: &str = "shape,bits,plan,threads,splits,heads_each,slot_steps,cluster,merged,blocks,slots,ahead,kernels,context,us_a_token,p10,p90,bytes,share_of_copy,error,without,own_code";

/// A shape that is timed or checked, and the positions in front of the token.
struct Shape {
    name: String,
    config: EngineConfig,
    context: usize,
    bits: WeightBits,
}

const SHAPES: [(&str, EngineConfig, usize, WeightBits); 5] = [
    ("gpt2-124M", EngineConfig::GPT2, 512, WeightBits::Bf16),
    ("llama-1.2B", EngineConfig::LLAMA_1B, 1024, WeightBits::Int4),
    ("llama-1.2B", EngineConfig::LLAMA_1B, 1024, WeightBits::Bf16),
    ("llama-1.2B", EngineConfig::LLAMA_1B, 1024, WeightBits::Int8),
    ("gpt2-124M", EngineConfig::GPT2, 512, WeightBits::Int4),
];

/// A plan with its constants, of a shape, and what became of it.
type Compiled<'a> = (&'a (&'a Shape, (EnginePlan, EngineConstants)), Result<EngineKernels>);

struct Row {
    shape: String,
    plan: &'static str,
    constants: EngineConstants,
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
        let EngineConstants {
            threads, splits, heads_each, slot_steps, cluster, merged, blocks, without, own_code, ..
        } = self.constants;
        let EngineTuning { slots, ahead } = self.tuning;
        let (merged, own_code) = (i32::from(merged), i32::from(own_code == Some(true)));
        let Row { shape, plan, kernels, context, us, p10, p90, bytes, error, .. } = self;
        let shape = shape.replace(' ', ",");
        let share = self.share(copy);
        format!(
            "{shape},{plan},{threads},{splits},{heads_each},{slot_steps},{cluster},{merged},{blocks},{slots},{ahead},{kernels},{context},{us:.2},{p10:.2},{p90:.2},{bytes},{share:.3},{error:.1e},{without},{own_code}"
        )
    }

    fn text(&self, copy: f64) -> String {
        let EngineConstants {
            threads, splits, heads_each, slot_steps, cluster, merged, blocks, without, own_code, ..
        } = self.constants;
        let EngineTuning { slots, ahead } = self.tuning;
        let (merged, own_code) = (i32::from(merged), i32::from(own_code == Some(true)));
        let tuning = format!(
            "threads {threads} splits {splits} heads {heads_each} steps {slot_steps} cluster {cluster} merged {merged} \
             blocks {blocks} without {without} slots {slots} ahead {ahead} own_code {own_code}"
        );
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

/// Of the checks: a ring with fewer slots, parts of the context that are no power of two.
const ODD: EngineConstants =
    EngineConstants { splits: 3, slot_steps: 8, cluster: 1, merged: false, ..EngineConstants::GPT2 };

/// The plans and constants of a check: also layers of fewer phases, which are GPT-2's.
fn checked_variants(shape: &Shape, simulate: bool) -> Vec<(EnginePlan, EngineConstants)> {
    let mut variants = EnginePlan::ALL.map(|plan| (plan, ODD)).to_vec();
    let [own, shared] = [true, false].map(|own| EngineConstants { own_code: Some(own), ..ODD });
    variants.extend([
        (EnginePlan::Persistent, own),
        (EnginePlan::Overlapped, shared),
        (EnginePlan::Persistent, shared),
    ]);
    if shape.config.family == Family::Gpt2 {
        // The simulator has two blocks, with many steps each.
        let cluster = if simulate { 2 } else { 8 };
        let two = EngineConstants { slot_steps: 24, cluster, splits: cluster, merged: true, ..ODD };
        variants.extend([EnginePlan::Fused, EnginePlan::Overlapped, EnginePlan::Persistent].map(|plan| (plan, two)));
        variants.push((EnginePlan::Persistent, EngineConstants { merged: true, slot_steps: 24, ..ODD }));
        variants.push((EnginePlan::Persistent, EngineConstants { merged: false, ..two }));
    }
    variants
}

/// Shapes that fill nothing evenly.
fn awkward_shapes(simulate: bool) -> Vec<Shape> {
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
    // The simulator takes its time.
    let llama = if simulate {
        EngineConfig { layers: 2, width: 128, heads: 4, inner: 384, vocabulary: 303, ..llama }
    } else {
        llama
    };
    let wide =
        EngineConfig { head: 128, heads: 4, kv_heads: 1, layers: 2, width: 5 * llama.width / 3 / 128 * 128, ..llama };
    let gpt2 = EngineConfig { family: Family::Gpt2, heads: 4, kv_heads: 4, width: 2 * llama.width, ..llama };
    let shape = |name: &str, config, context, bits| Shape { name: format!("{name} {bits:?}"), config, context, bits };
    vec![
        shape("grouped heads", llama, 613, WeightBits::Bf16),
        shape("grouped heads", llama, 38, WeightBits::Int4),
        shape("wide heads", wide, 0, WeightBits::Bf16),
        shape("wide heads", wide, 333, WeightBits::Int8),
        shape("biases", gpt2, 331, WeightBits::Bf16),
    ]
}

/// What was compiled for a shape: layers of five phases, or of fewer.
fn of_shape<'a>(
    shape: &'a Shape,
    kernels: &'a [Compiled<'a>],
    fewer: bool,
) -> impl Iterator<Item = (EnginePlan, EngineConstants, EngineKernels)> {
    let own = move |constants: &EngineConstants| (constants.cluster > 1 || constants.merged) == fewer;
    let all = kernels.iter().filter(move |((of, (_, constants)), _)| std::ptr::eq(*of, shape) && own(constants));
    all.filter_map(|((shape, (plan, constants)), kernels)| match kernels {
        Ok(kernels) => Some((*plan, *constants, kernels.clone())),
        Err(error) => {
            println!("{} {} {constants:?}: {error}", shape.name, plan.name());
            None
        }
    })
}

/// Compares every plan with f64.
fn check(gpu: &Gpu, shape: &Shape, kernels: &[Compiled<'_>], fewer: bool) -> Result<()> {
    let &Shape { ref name, config, context, bits } = shape;
    let weights = RandomWeights { config, seed: 5 };
    let caches = cpu::random_bf16(config.cache_len(), 6);
    let mut reference = EngineReference::new(&config, bits, &weights, context, caches.clone());
    let tokens = [11, 98, 302];
    let exact = tokens.map(|token| reference.step(token));
    let mut line = format!("{name}:");
    for (plan, constants, kernels) in of_shape(shape, kernels, fewer) {
        let model = Rc::new(EngineModel::new(gpu, &kernels, &weights)?);
        let mut engine = match Engine::new(&model, &kernels, EngineTuning { slots: 7, ..EngineTuning::default() }) {
            Ok(engine) => engine,
            Err(error) => {
                println!("{name} {} {constants:?}: {error}", plan.name());
                continue;
            }
        };
        engine.begin(&tokens, context, Some(&caches), (0.0, 0))?;
        let mut worst = 0.0_f64;
        for (at, exact) in exact.iter().enumerate() {
            engine.step()?;
            let (error, text) = error_of(&engine.logits()?, exact);
            worst = worst.max(error);
            if !text.is_empty() {
                println!("WRONG: {} {name}, step {at}: {text}", plan.name());
            }
        }
        let EngineConstants { cluster, merged, own_code, .. } = constants;
        write!(line, " {} {cluster} {merged} {own_code:?} {worst:.1e};", plan.name())
            .expect("a String takes everything");
    }
    println!("{line}");
    Ok(())
}

#[allow(clippy::too_many_arguments)] // one call
fn time(
    gpu: &Gpu,
    shape: &Shape,
    kernels: &[Compiled<'_>],
    fewer: bool,
    variants: &[Variant],
    copy: f64,
    exact: &mut Vec<f64>,
    rows: &mut Vec<Row>,
    clocks: &mut String,
) -> Result<()> {
    let begin = Instant::now();
    let &Shape { ref name, config, context, bits } = shape;
    let weights = RandomWeights { config, seed: 9 };
    let caches = cpu::random_bf16(config.cache_len(), 10);
    if exact.is_empty() {
        *exact = EngineReference::new(&config, bits, &weights, context, caches.clone()).step(42);
        println!("{name}: f64 in {:.1} s", begin.elapsed().as_secs_f64());
    }
    // Weights are laid out anew only for constants that need another order.
    let mut laid_out: Vec<Rc<EngineModel>> = Vec::new();
    let mut engines = Vec::new();
    for (plan, constants, kernels) in of_shape(shape, kernels, fewer) {
        let model = match laid_out.iter().find(|model| model.suits(&kernels)) {
            Some(model) => Rc::clone(model),
            None => {
                let begin = Instant::now();
                let model = Rc::new(EngineModel::new(gpu, &kernels, &weights)?);
                let bytes = model.bytes_a_token(context);
                let floor = bytes as f64 / copy / 1e3;
                let seconds = begin.elapsed().as_secs_f64();
                println!("{name}: laid out in {seconds:.1} s, {bytes} bytes, floor {floor:.1} µs");
                laid_out.push(Rc::clone(&model));
                model
            }
        };
        let own = |variant: &&Variant| variant.is_of(shape) && (variant.plan, variant.constants) == (plan, constants);
        for variant in variants.iter().filter(own) {
            let tuning = variant.tuning;
            let run = || -> Result<(Engine, Vec<f32>)> {
                let mut engine = Engine::new(&model, &kernels, tuning)?;
                engine.begin(&[42], context, Some(&caches), (0.0, 0))?;
                engine.step()?;
                let given = engine.logits()?;
                Ok((engine, given))
            };
            let (engine, given) = match run() {
                Ok(both) => both,
                Err(error) => {
                    println!("{name} {} {constants:?}: {error}", plan.name());
                    continue;
                }
            };
            let (error, text) = error_of(&given, exact);
            if !text.is_empty() && constants.without == 0 {
                println!("WRONG: {name} {} {tuning:?}: {text}", plan.name());
                continue;
            }
            engines.push((plan, constants, engine, model.bytes_a_token(context), error, Vec::new()));
        }
    }
    // In each repetition every variant takes a sample.
    for _ in 0..SAMPLES {
        for (_, _, engine, _, _, times) in &mut engines {
            times.push(engine.token_us(context, TOKENS)?);
        }
    }
    for (plan, constants, engine, bytes, error, times) in engines {
        let Summary { median: us, p10, p90, .. } = Summary::of(&times);
        let (tuning, kernels) = (engine.tuning(), engine.kernels_a_token());
        let constants = EngineConstants { own_code: Some(constants.has_own_code(plan, bits)), ..constants };
        let (shape, plan) = (name.clone(), plan.name());
        let row = Row { shape, plan, constants, tuning, kernels, context, us, p10, p90, bytes, error };
        println!("{}", row.text(copy));
        if constants.clocks {
            phases(&engine.clocks()?, constants, us, &row.csv(copy), clocks);
        } else {
            rows.push(row);
        }
    }
    Ok(())
}

const PHASES: &str = "shape,bits,threads,cluster,merged,us_a_token,phase,meeting,meeting_least,input,input_most,work,work_most,weights,weights_most";

/// What the blocks' clocks say of each kind of phase, in µs: the median of the layers' medians over the blocks, and for the
/// meeting the least of a layer's blocks (the last one to come waits only for the meeting itself), else the most.
fn phases(clocks: &[Vec<[u64; 5]>], constants: EngineConstants, us: f64, row: &str, to: &mut String) {
    let kinds = constants.phases().len();
    // From the first phase's begin to the last one's end is a token.
    let cycles = (clocks[clocks.len() - 1][0][3] - clocks[0][0][0]) as f64;
    let words: Vec<&str> = row.split(',').collect();
    for kind in 0..=kinds {
        let of_kind: Vec<_> = match kind == kinds {
            true => vec![&clocks[clocks.len() - 1]],
            false => clocks[..clocks.len() - 1].iter().skip(kind).step_by(kinds).collect(),
        };
        let mut line = [words[0], words[1], words[3], words[7], words[8], &format!("{us:.2},{kind}")].join(",");
        for which in 1..=4 {
            let most = which > 1;
            let (mut medians, mut ends) = (Vec::new(), Vec::new());
            for blocks in &of_kind {
                let figure = |at: &[u64; 5]| if which < 4 { at[which].saturating_sub(at[which - 1]) } else { at[4] };
                let all: Vec<f64> = blocks.iter().map(|at| figure(at) as f64 * us / cycles).collect();
                medians.push(Summary::of(&all).median);
                ends.push(all.iter().copied().reduce(if most { f64::max } else { f64::min }).expect("blocks"));
            }
            write!(line, ",{:.3},{:.3}", Summary::of(&medians).median, Summary::of(&ends).median)
                .expect("a String takes everything");
        }
        println!("{line}");
        to.push_str(&line);
        to.push('\n');
    }
}

/// A plan with its constants, for the shapes that are named so.
struct Variant {
    shape: String,
    plan: EnginePlan,
    constants: EngineConstants,
    tuning: EngineTuning,
}

impl Variant {
    fn is_of(&self, shape: &Shape) -> bool {
        shape.name.contains(&self.shape)
    }
}

/// What is timed: shape, plan, threads, splits, heads_each, slot_steps; slots, ahead (0: all); and, where they are not 1, 0,
/// 0 each, cluster, merged, blocks, without (a sum of parts that are left out), clocks; own_code, where it is not as usual.
const VARIANTS: &str = "
gpt2-124M_Bf16 operators  256 5 1 24 0 0
gpt2-124M_Bf16 fused      256 5 1 24 0 0
gpt2-124M_Bf16 overlapped 256 5 1 24 0 0
gpt2-124M_Bf16 persistent 256 5 1 24 0 0
gpt2-124M_Bf16 persistent 256 8 1 24 0 0 8 1
gpt2-124M_Bf16 persistent 256 4 1 24 0 0 4 1
gpt2-124M_Bf16 fused      256 8 1 24 0 0 8 1
gpt2-124M_Bf16 overlapped 256 8 1 24 0 0 8 1
gpt2-124M_Bf16 overlapped 256 8 1 24 0 0 8 0
gpt2-124M_Bf16 overlapped 384 8 1 24 0 0 8 1
gpt2-124M_Bf16 persistent 256 8 1 24 0 2 8 1
gpt2-124M_Bf16 persistent 256 8 1 24 0 4 8 1
gpt2-124M_Bf16 persistent 384 8 1 24 0 0 8 1
gpt2-124M_Bf16 persistent 384 4 1 24 0 0 4 1
gpt2-124M_Bf16 persistent 256 8 1 12 0 0 8 1
gpt2-124M_Bf16 persistent 256 5 1 24 0 0 1 1
gpt2-124M_Bf16 persistent 256 8 1 24 0 0 8 0
llama-1.2B_Int4 operators  256 4 1 16 0 0
llama-1.2B_Int4 fused      256 4 1 16 0 0
llama-1.2B_Int4 overlapped 256 4 1 16 0 0
llama-1.2B_Int4 persistent 256 4 1 16 0 3
llama-1.2B_Int4 persistent 384 4 1 16 0 3
llama-1.2B_Int4 persistent 512 4 1 16 0 3
llama-1.2B_Bf16 operators  256 4 1 16 0 0
llama-1.2B_Bf16 fused      256 4 1 16 0 0
llama-1.2B_Bf16 overlapped 256 4 1 16 0 0
llama-1.2B_Bf16 persistent 256 4 1 16 0 3
llama-1.2B_Bf16 persistent 512 4 1 16 0 3
llama-1.2B_Int8 operators  256 4 1 16 0 0
llama-1.2B_Int8 fused      256 4 1 16 0 0
llama-1.2B_Int8 overlapped 256 4 1 16 0 0
llama-1.2B_Int8 persistent 256 4 1 16 0 3
llama-1.2B_Int8 persistent 512 4 1 16 0 3
gpt2-124M_Int4 operators  256 5 1 16 0 0
gpt2-124M_Int4 fused      256 5 1 16 0 0
gpt2-124M_Int4 overlapped 256 5 1 16 0 0
gpt2-124M_Int4 persistent 256 5 1 16 0 0
";

fn parsed(text: &str) -> Vec<Variant> {
    let variant = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse().unwrap_or_else(|_| panic!("no number: {line}"));
        let further = |at: usize, usual: usize| if at < words.len() { number(at) } else { usual };
        let plan = EnginePlan::ALL.into_iter().find(|plan| plan.name() == words[1]);
        Variant {
            shape: words[0].replace('_', " "),
            plan: plan.unwrap_or_else(|| panic!("no plan: {line}")),
            constants: EngineConstants {
                threads: number(2),
                splits: number(3),
                heads_each: number(4),
                slot_steps: number(5),
                cluster: further(8, 1),
                merged: further(9, 0) != 0,
                blocks: further(10, 0),
                without: further(11, 0) as u32,
                clocks: further(12, 0) != 0,
                own_code: (words.len() > 13).then(|| number(13) != 0),
            },
            tuning: EngineTuning { slots: number(6), ahead: number(7) },
        }
    };
    text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).map(variant).collect()
}

/// What has to be compiled for a shape.
fn compiled_in(shape: &Shape, variants: &[Variant]) -> Vec<(EnginePlan, EngineConstants)> {
    let mut all = Vec::new();
    for variant in variants.iter().filter(|variant| variant.is_of(shape)) {
        if !all.contains(&(variant.plan, variant.constants)) {
            all.push((variant.plan, variant.constants));
        }
    }
    all
}
