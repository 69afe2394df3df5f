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
const PLAN: Bench = Bench { warm_ups: 3, samples: 15, min_sample_ms: 1.0, budget_ms: 2500.0 };
/// Steps whose losses are compared.
const STEPS: usize = 20;

struct Table {
    rows: String,
    stamp: String,
}

impl Table {
    fn put(&mut self, batch: usize, plan: &str, what: &str, unit: &str, samples: &[f64]) {
        let Summary { median, p10, p90, .. } = Summary::of(samples);
        let stamp = &self.stamp;
        writeln!(self.rows, "{stamp},{batch},{plan},{what},{median:.5},{unit},{},{p10:.5},{p90:.5}", samples.len())
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
    let driver = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let driver = driver.split_whitespace().find(|word| word.contains('.') && word.starts_with(char::is_numeric));
    let command = format!("gpt_step {}", given.join(" ")).replace(',', " ");
    let stamp = format!(
        "{},{},{},{},{command}",
        results::now_utc(),
        results::commit(),
        gpu.name(),
        driver.unwrap_or("unknown")
    );
    let head = "time,commit,machine,driver,command,batch,plan,what,value,unit,samples,p10,p90\n";
    let mut table = Table { rows: head.to_string(), stamp };
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
        std::fs::write(&out, &table.rows).unwrap_or_else(|error| println!("{out}: {error}"));
    }
    println!("{shown}");
    Ok(())
}

/// The gradients of small shapes against f64, and a run of few steps, whose loss must fall.
fn check(gpu: &Gpu, simulate: bool) -> Result<()> {
    let small = GptShape { layers: 2, heads: 2, vocabulary: 77, context: 33 };
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
        let exact = reference_step(&shape, &wide, &tokens);
        let mut ways = vec![(GptPlan::Operators, false, true), (GptPlan::Fused, false, true)];
        if !simulate {
            ways.extend(GptPlan::ALL.map(|plan| (plan, false, false)));
            ways.push((GptPlan::Graph, true, false));
        }
        for (plan, gelu_in_product, plain_products) in ways {
            let settings = GptSettings { batch, plan, gelu_in_product, plain_products, loss_rows: 40, parts: 5 };
            let mut trainer = GptTrainer::with(gpu, &kernels, settings)?;
            trainer.load(&start)?;
            trainer.set_batch(&tokens)?;
            let first = trainer.step(&AdamW::default())?;
            let gradients = trainer.gradients()?;
            let mut worst = (0.0, String::new());
            for tensor in shape.tensors() {
                let pairs = || gradients[tensor.range.clone()].iter().zip(&exact.gradients[tensor.range.clone()]);
                let error: f64 = pairs().map(|(given, exact)| (f64::from(*given) - exact).powi(2)).sum();
                let size: f64 = pairs().map(|(_, exact)| exact * exact).sum();
                let error = (error / size).sqrt();
                if !(error <= worst.0) {
                    worst = (error, tensor.name);
                }
            }
            let last = (0..8).map(|_| trainer.step(&AdamW::default())).last().unwrap_or(Ok(first))?;
            let good = worst.0 < 0.03 && (f64::from(first.loss) - exact.loss).abs() < 5e-3 * exact.loss;
            println!(
                "{}: {} {}{}{}: loss {:.4} for {:.4}, then {:.4}; gradients off by at most {:.1e} ({})",
                if good && last.loss < first.loss { "right" } else { "WRONG" },
                format_args!("{shape:?} × {batch}"),
                plan.name(),
                if trainer.gelu_in_product() { ", GELU in the product" } else { "" },
                if plain_products { ", plain products" } else { "" },
                first.loss,
                exact.loss,
                last.loss,
                worst.0,
                worst.1
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
    let mut trainer = GptTrainer::with(gpu, kernels, settings)?;
    trainer.load(parameters)?;
    let adamw = AdamW::default();
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
    table.put(batch, "graph", "memory at the peak", "GiB", &[gib(peak)]);
    for (plan, gelu) in
        [(GptPlan::Operators, false), (GptPlan::Fused, false), (GptPlan::Graph, false), (GptPlan::Graph, true)]
    {
        trainer.set_plan(plan, gelu)?;
        let name = format!("{}{}", plan.name(), if trainer.gelu_in_product() { " with GELU in products" } else { "" });
        if gelu && !trainer.gelu_in_product() {
            writeln!(shown, "  GELU in products: cuBLASLt refuses").expect("a String takes everything");
            continue;
        }
        trainer.step(&adamw)?;
        let samples =
            gpu.time_interleaved(&PLAN, &mut [gpulab::gpu::TimedWork::Calls(Box::new(|_| trainer.queue(&adamw)))])?;
        let ms = Summary::of(&samples[0]).median;
        let used = shape.operations(batch) / ms * 1e3 / PEAK;
        table.put(batch, &name, "a step", "ms", &samples[0]);
        table.put(batch, &name, "tokens a second", "1/s", &[tokens / ms * 1e3]);
        table.put(batch, &name, "model FLOP utilisation", "%", &[100.0 * used]);
        let nodes = trainer.nodes().map_or(String::new(), |nodes| format!(", {nodes} kernels"));
        writeln!(shown, "  {name:30} {ms:8.3} ms {:9.0} tokens/s {:5.1} %{nodes}", tokens / ms * 1e3, 100.0 * used)
            .expect("a String takes everything");
        // The clock of operators, without the graph.
        let mut all: Vec<(&str, Vec<f64>)> = Vec::new();
        for _ in 0..5 {
            for (operator, ms) in trainer.timed_step(&adamw)? {
                match all.iter_mut().find(|(known, _)| *known == operator) {
                    Some((_, samples)) => samples.push(ms),
                    None => all.push((operator, vec![ms])),
                }
            }
        }
        let mut line = String::new();
        for (operator, samples) in &all {
            table.put(batch, &name, &format!("operator: {}", operator.replace(',', "")), "ms", samples);
            write!(line, " {operator} {:.3};", Summary::of(samples).median).expect("a String takes everything");
        }
        writeln!(shown, "   {line}").expect("a String takes everything");
    }
    for choice in trainer.choices() {
        println!("{choice}");
    }
    Ok(())
}
