//! Checks and times a training step of GPT-2 (124 million parameters, 8 × 1024 and 32 × 1024 tokens) by each plan of
//! `gpulab_kernels::gpt_step`:
//!
//! `cargo run --release -p gpulab-kernels --example gpt_step -- [--out gpt_step.csv] [--losses losses.txt] [--seconds 70]
//! [--batches 8,32] [--simulate]`, in the repository or in a folder where `crates/kernels` lies; `--simulate` checks alone, in the simulator.
//!
//! First the gradients of small odd shapes are compared with f64, then the loss of 20 steps at 8 × 1024 is written down, for
//! `python3 -m env.baselines.gpt_step_torch` to compare with PyTorch's from the same parameters and tokens; then each plan is
//! timed. A row of the table: time, commit, machine, driver, command, batch, plan, what, value, unit, samples, p10, p90.

use gpulab::measurement::Summary;
use gpulab::prelude::*;
use gpulab::results;
use gpulab_kernels::gpt_step::*;
use std::fmt::Write as _;
use std::time::Instant;

/// What a step takes on an H200 that reaches its peak in bf16, in operations a second.
const PEAK: f64 = 989e12;
const PLAN: Bench = Bench { warm_ups: 3, samples: 15, min_sample_ms: 1.0, budget_ms: 700.0 };
/// Rounds in which the plans take turns, of three samples each.
const ROUNDS: usize = 4;
/// Steps whose losses are compared.
const STEPS: usize = 20;

/// A plan's name, the samples of its steps, and of each operator.
type Timed = (String, Vec<f64>, Vec<(&'static str, Vec<f64>)>);

struct Table {
    rows: String,
    stamp: String,
    /// Rows of lesson 22a, as `results/h200/recorders.csv` has them.
    lesson: String,
    machine: String,
}

impl Table {
    fn put(&mut self, batch: usize, plan: &str, what: &str, unit: &str, samples: &[f64]) {
        let Summary { median, p10, p90, .. } = Summary::of(samples);
        let stamp = &self.stamp;
        writeln!(self.rows, "{stamp},{batch},{plan},{what},{median:.5},{unit},{},{p10:.5},{p90:.5}", samples.len())
            .expect("a String takes everything");
    }

    /// A row that the lesson shows, too.
    fn show(
        &mut self,
        batch: usize,
        plan: &str,
        what: &str,
        (curve, metric, unit): (&str, &str, &str),
        samples: &[f64],
    ) {
        self.put(batch, plan, what, unit, samples);
        let Summary { median, p10, p90, .. } = Summary::of(samples);
        let (time, commit, tokens) = (results::now_utc(), results::commit(), batch * GptShape::GPT2_124M.context);
        let row = format!("\"{curve}\",cuda,{},bf16,{tokens},{metric},{median:.5},{unit}", self.machine);
        writeln!(self.lesson, "{time},{commit},22a_gpt_step,{row},{},{p10:.5},{p90:.5}", samples.len())
            .expect("a String takes everything");
    }
}

fn main() -> Result<()> {
    let (mut out, mut losses, mut seconds) = ("gpt_step.csv".to_string(), "losses.txt".to_string(), 70.0);
    let (mut simulate, mut batches) = (false, vec![8, 32]);
    let given: Vec<String> = std::env::args().skip(1).collect();
    let mut arguments = given.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} needs a value")).clone();
        match argument.as_str() {
            "--out" => out = value(),
            "--losses" => losses = value(),
            "--seconds" => seconds = value().parse().expect("a number follows"),
            "--batches" => batches = value().split(',').map(|text| text.parse().expect("numbers follow")).collect(),
            "--simulate" => simulate = true,
            other => panic!("unknown: {other}"),
        }
    }
    let start = Instant::now();
    let gpu = if simulate { Gpu::simulated()? } else { Gpu::open_index(0)? };
    println!("{gpu}");
    check(&gpu, simulate)?;
    println!("[{:.1} s] checked", start.elapsed().as_secs_f64());
    if simulate {
        return Ok(());
    }
    let shape = GptShape::GPT2_124M;
    let kernels = GptKernels::compile(&gpu, &shape)?;
    println!("[{:.1} s] compiled", start.elapsed().as_secs_f64());
    let parameters = shape.start(1);
    let driver = gpulab_lessons::machine::detect().nvidia.driver;
    let command = format!("gpt_step {}", given.join(" ")).replace(',', " ");
    let stamp = format!(
        "{},{},{},{},{command}",
        results::now_utc(),
        results::commit(),
        gpu.name(),
        driver.as_deref().unwrap_or("unknown")
    );
    let head = "time,commit,machine,driver,command,batch,plan,what,value,unit,samples,p10,p90\n";
    let machine = gpu.name().to_string();
    let mut table = Table { rows: head.to_string(), stamp, lesson: String::new(), machine };
    let mut shown = String::new();
    for &batch in &batches {
        if start.elapsed().as_secs_f64() > seconds {
            shown += "no time was left for more\n";
            break;
        }
        if let Err(error) = measure(&gpu, &kernels, batch, &parameters, &losses, &mut table, &mut shown) {
            writeln!(shown, "batch {batch}: {error}").expect("a String takes everything");
        }
        println!("[{:.1} s] batch {batch}", start.elapsed().as_secs_f64());
        for (path, text) in [(out.clone(), &table.rows), (format!("{out}.lesson"), &table.lesson)] {
            std::fs::write(&path, text).unwrap_or_else(|error| println!("{path}: {error}"));
        }
    }
    println!("{shown}");
    for (name, constants, settings) in VARIANTS {
        if start.elapsed().as_secs_f64() > seconds {
            break;
        }
        if let Err(error) = vary(&gpu, name, constants, *settings, &parameters) {
            println!("{name}: {error}");
        }
    }
    Ok(())
}

/// Its name, constants, and what else is set.
type Variant = (&'static str, &'static [GptConstant], fn(GptSettings) -> GptSettings);

/// What is tried beside the usual settings and constants, at 8 × 1024.
const VARIANTS: &[Variant] = &[
    ("as usual", &[], |usual| usual),
    ("2 warpgroups forward", &[(AHEAD, "GROUPS", 2), (AHEAD, "REGISTERS", 240), (AHEAD, "SPARE", 24)], |usual| usual),
    ("64 queries backward", &[(BACK, "QUERIES", 64)], |usual| usual),
    ("8192 rows of logits", &[], |usual| GptSettings { loss_rows: 8192, ..usual }),
    ("264 parts", &[], |usual| GptSettings { parts: 264, ..usual }),
    ("64 queries, 4 stages backward", &[(BACK, "QUERIES", 64), (BACK, "STAGES", 4)], |usual| usual),
    ("as usual once more", &[], |usual| usual),
];
const AHEAD: &str = "gpt_step/attention";
const BACK: &str = "gpt_step/attention_backward";

fn vary(
    gpu: &Gpu,
    name: &str,
    constants: &[GptConstant],
    settings: fn(GptSettings) -> GptSettings,
    parameters: &[f32],
) -> Result<()> {
    let shape = GptShape::GPT2_124M;
    let kernels = GptKernels::compile_with(gpu, &shape, constants)?;
    let settings = settings(GptSettings::default());
    let mut trainer = GptTraining::with(gpu, &kernels, settings)?;
    trainer.load(parameters)?;
    trainer.set_batch(&shape.random_tokens(settings.batch, 100))?;
    let adamw = AdamWConfig::default();
    let first = trainer.step(&adamw)?;
    let samples =
        gpu.time_interleaved(&PLAN, &mut [gpulab::gpu::TimedWork::Calls(Box::new(|_| trainer.queue(&adamw)))])?;
    let times = trainer.timed_step(&adamw)?;
    let line: String = times.iter().map(|(operator, ms)| format!(" {operator} {ms:.3};")).collect();
    println!(
        "{name}: {:.3} ms; first loss {:.4}, norm {:.4};{line}",
        Summary::of(&samples[0]).median,
        first.loss,
        first.norm
    );
    Ok(())
}

/// The gradients of small shapes against f64, and a run of few steps, whose loss must fall.
fn check(gpu: &Gpu, simulate: bool) -> Result<()> {
    let small = GptShape { layers: 2, heads: 1, vocabulary: 77, context: 17 };
    let odd = GptShape { layers: 2, heads: 3, vocabulary: 301, context: 200 };
    let shapes: &[(GptShape, usize)] = if simulate { &[(small, 2)] } else { &[(small, 2), (odd, 3)] };
    for &(shape, batch) in shapes {
        let kernels = GptKernels::compile(gpu, &shape)?;
        let mut start = shape.start(3);
        let noise = cpu::random_f32(start.len(), 5);
        for (x, noise) in start.iter_mut().zip(noise) {
            *x = cpu::f32_from_bf16(cpu::bf16_from_f32(*x * 2.0 + 0.1 * noise));
        }
        let tokens = shape.random_tokens(batch, 4);
        let wide: Vec<f64> = start.iter().map(|&x| f64::from(x)).collect();
        let (exact, rounded) = (reference_step(&shape, &wide, &tokens), rounded_step(&shape, &wide, &tokens));
        let mut variants = vec![(GptPlan::Operators, false, true), (GptPlan::Fused, false, true)];
        if !simulate {
            variants.extend(GptPlan::ALL.map(|plan| (plan, false, false)));
            variants.push((GptPlan::Graph, true, false));
        }
        for (plan, gelu_in_product, plain_products) in variants {
            let settings = GptSettings {
                batch,
                plan,
                gelu_in_product,
                plain_products,
                loss_rows: 40,
                parts: 5,
                ..GptSettings::default()
            };
            let mut trainer = GptTraining::with(gpu, &kernels, settings)?;
            trainer.load(&start)?;
            trainer.set_batch(&tokens)?;
            let first = trainer.step(&AdamWConfig::default())?;
            let gradients = trainer.gradients()?;
            let (share, worst) = worst_gradient(&shape, &gradients, &exact, &rounded);
            let more = if simulate { 1 } else { 8 };
            let last = (0..more).map(|_| trainer.step(&AdamWConfig::default())).last().unwrap_or(Ok(first))?;
            let good = share <= 1.0 && (f64::from(first.loss) - exact.loss).abs() < 5e-3 * exact.loss;
            println!(
                "{}: {} {}{}{}: loss {:.4} for {:.4}, then {:.4}; worst gradient: {worst}",
                if good && last.loss < first.loss { "right" } else { "WRONG" },
                format_args!("{shape:?} × {batch}"),
                plan.name(),
                if trainer.gelu_in_product() { ", GELU in the product" } else { "" },
                if plain_products { ", plain products" } else { "" },
                first.loss,
                exact.loss,
                last.loss
            );
        }
    }
    Ok(())
}

fn measure(
    gpu: &Gpu,
    kernels: &GptKernels,
    batch: usize,
    parameters: &[f32],
    losses: &str,
    table: &mut Table,
    shown: &mut String,
) -> Result<()> {
    let shape = GptShape::GPT2_124M;
    let begin = Instant::now();
    let before = gpu.memory()?;
    gpu.reset_high_water()?;
    let settings = GptSettings { batch, ..GptSettings::default() };
    let mut trainer = GptTraining::with(gpu, kernels, settings)?;
    trainer.load(parameters)?;
    let adamw = AdamWConfig::default();
    // The first batch times the products.
    trainer.set_batch(&shape.random_tokens(batch, 100))?;
    trainer.step(&adamw)?;
    let memory = gpu.memory()?;
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    let planned = settings.memory(&shape);
    let peak = (memory.used_high - before.used) as f64;
    println!("[{:.1} s] set up; planned {planned:?}, measured {memory}", begin.elapsed().as_secs_f64());
    trainer.load(parameters)?;
    if batch == 8 {
        let mut text = String::new();
        for step in 0..STEPS {
            trainer.set_batch(&shape.random_tokens(batch, 100 + step as u64))?;
            let StepResult { loss, norm } = trainer.step(&adamw)?;
            writeln!(text, "{loss} {norm}").expect("a String takes everything");
            table.put(batch, &format!("step {step}"), "loss", "nats a token", &[f64::from(loss)]);
        }
        std::fs::write(losses, text).unwrap_or_else(|error| println!("{losses}: {error}"));
    }
    let tokens = (batch * shape.context) as f64;
    writeln!(shown, "batch {batch}: planned {:.2} GiB, peak {:.2} GiB", gib(planned.bytes() as f64), gib(peak))
        .expect("a String takes everything");
    table.put(batch, "graph", "memory planned", "GiB", &[gib(planned.bytes() as f64)]);
    table.show(batch, "graph", "memory at the peak", ("GPT-2 memory: graph", "memory", "GiB"), &[gib(peak)]);
    let variants =
        [(GptPlan::Operators, false), (GptPlan::Fused, false), (GptPlan::Fused, true), (GptPlan::Graph, true)];
    let mut timed: Vec<Timed> = Vec::new();
    // In turn, so that what changes with time (clocks, heat, what has been learned) is the same for all.
    for _ in 0..ROUNDS {
        for (variant, (plan, gelu)) in variants.into_iter().enumerate() {
            trainer.set_plan(plan, gelu)?;
            let in_products = if trainer.gelu_in_product() { ", GELU in products" } else { "" };
            if timed.len() == variant {
                timed.push((format!("{}{in_products}", plan.name()), Vec::new(), Vec::new()));
            }
            let (_, samples, operators) = &mut timed[variant];
            (0..2).try_for_each(|_| trainer.queue(&adamw))?;
            for _ in 0..3 {
                gpu.synchronize()?;
                let start = gpu.event()?;
                (0..4).try_for_each(|_| trainer.queue(&adamw))?;
                samples.push(gpu.event()?.ms_since(&start)? / 4.0);
            }
            for (operator, ms) in trainer.timed_step(&adamw)? {
                match operators.iter_mut().find(|(known, _)| *known == operator) {
                    Some((_, samples)) => samples.push(ms),
                    None => operators.push((operator, vec![ms])),
                }
            }
            if let Some(nodes) = trainer.nodes().filter(|_| samples.len() == 3) {
                table.put(batch, plan.name(), "kernels", "1", &[nodes as f64]);
            }
        }
    }
    for ((plan, gelu), (name, samples, operators)) in variants.into_iter().zip(&timed) {
        let ms = Summary::of(samples).median;
        let used = shape.operations(batch) / ms * 1e3 / PEAK;
        let quoted = format!("\"{name}\"");
        table.show(batch, &quoted, "a step", (&format!("GPT-2 step: {name}"), "time", "ms"), samples);
        table.put(batch, &quoted, "tokens a second", "1/s", &[tokens / ms * 1e3]);
        table.put(batch, &quoted, "model FLOP utilisation", "%", &[100.0 * used]);
        writeln!(shown, "  {name:30} {ms:8.3} ms {:9.0} tokens/s {:5.1} %", tokens / ms * 1e3, 100.0 * used)
            .expect("a String takes everything");
        let mut line = String::new();
        for (operator, samples) in operators {
            let (what, curve) =
                (format!("\"operator: {operator}\""), format!("GPT-2 operators {}: {operator}", plan.name()));
            // A graph's kernels cannot be timed one by one: its operators are those of the plan in front of it.
            match plan == GptPlan::Operators || plan == GptPlan::Fused && gelu {
                true => table.show(batch, &quoted, &what, (&curve, "time", "ms"), samples),
                false => table.put(batch, &quoted, &what, "ms", samples),
            }
            write!(line, " {operator} {:.3};", Summary::of(samples).median).expect("a String takes everything");
        }
        writeln!(shown, "   {line}").expect("a String takes everything");
    }
    for choice in trainer.choices() {
        println!("{choice}");
    }
    Ok(())
}
