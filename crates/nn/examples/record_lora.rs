//! SmolLM2 (`make model`) tuned to answer requests with one line of JSON, in several ways: adapters of several ranks on f32 and on NF4,
//! the same layers as a whole, adapters for ten times the steps, the short runs again from other seeds, and two of them at other rates.
//! Losses, and answers to held-out requests. Writes three files as it goes (`smollm2.csv`, `losses.csv`, and each answer in `answers.tsv`), and a page that says
//! where and how:
//!
//! `cargo run --release -p gpulab-nn --example record_lora -- results/lora [cpu|cuda] [part of a name]`, on a GPU with `cuda`, where
//! candle is built with CUDA. With the third argument only the runs are made whose names contain it, such as "600 steps", "seed 2", or "the rate".
//!
//! Stopped and started again it goes on: runs that the file has are not made anew. Nothing is timed.

use gpulab_nn::llama::{ChatModel, Projection, WeightDtype};
use gpulab_nn::lora::{
    Base, Example, LoraConfig, Split, Training, TunePlan, TunedLlama, Tuner, bookings, save_peft, score,
};
use gpulab_nn::{DType, DeviceKind};
use std::path::{Path, PathBuf};

/// Examples to learn from, cases that are held out, and how many of these the loss is taken on.
const EXAMPLES: usize = 96;
const CASES: usize = 48;
const LOSS_CASES: usize = 24;
const STEPS: usize = 60;
/// Of the longer runs; the last of them also has more examples.
const MORE_STEPS: usize = 600;
const MORE_EXAMPLES: usize = 960;
const BATCH: usize = 4;
/// The layers that learn, of 30.
const LAYERS: std::ops::Range<usize> = 22..30;
const ADAPTER_RATE: f64 = 2e-3;
const FULL_RATE: f64 = 2e-4;

struct Run {
    name: String,
    base: Base,
    training: Training,
    rate: f64,
    steps: usize,
    examples: usize,
    /// Of the adapters' first numbers, and of which examples a step draws.
    seed: u64,
}

/// Runs of the first seed have none in their names; the short ones are made with the others, too.
const FIRST_SEED: u64 = 1;
const OTHER_SEEDS: [u64; 2] = [2, 3];

fn lora(base: Base, rank: usize, targets: &[Projection], name: &str, seed: u64) -> Run {
    let suffix = if seed == FIRST_SEED { String::new() } else { format!(", seed {seed}") };
    Run {
        name: format!("{name}{suffix}"),
        base,
        training: Training::Lora(LoraConfig { rank, alpha: 16.0, targets: targets.to_vec(), layers: LAYERS, seed }),
        rate: ADAPTER_RATE,
        steps: STEPS,
        examples: EXAMPLES,
        seed,
    }
}

fn short_runs(seed: u64) -> Vec<Run> {
    let all = Projection::ALL;
    let rank = |rank: usize| lora(Base::F32, rank, &all, &format!("LoRA, rank {rank}"), seed);
    vec![
        rank(8),
        lora(Base::Nf4, 8, &all, "QLoRA, rank 8", seed),
        Run { training: Training::Full(LAYERS), rate: FULL_RATE, ..lora(Base::F32, 8, &all, "full", seed) },
        rank(1),
        rank(32),
        rank(4),
        lora(Base::F32, 8, &[Projection::Q, Projection::V], "LoRA, rank 8, q and v", seed),
        rank(2),
        rank(16),
    ]
}

/// Adapters and whole layers at other rates: at each of them a comparison of the two may come out otherwise.
fn other_rates(seed: u64) -> Vec<Run> {
    let of = |(what, factor): (&str, f64)| {
        let adapters = |name: &str| lora(Base::F32, 8, &Projection::ALL, &format!("{name}, {what} the rate"), seed);
        let whole = Run { training: Training::Full(LAYERS), rate: factor * FULL_RATE, ..adapters("full") };
        [Run { rate: factor * ADAPTER_RATE, ..adapters("LoRA, rank 8") }, whole]
    };
    [("half", 0.5), ("twice", 2.0)].into_iter().flat_map(of).collect()
}

fn runs() -> Vec<Run> {
    let longer = |name: &str, examples: usize| Run {
        steps: MORE_STEPS,
        examples,
        ..lora(Base::F32, 8, &Projection::ALL, name, FIRST_SEED)
    };
    let mut all = short_runs(FIRST_SEED);
    all.push(longer(&format!("LoRA, rank 8, {MORE_STEPS} steps"), EXAMPLES));
    all.push(longer(&format!("LoRA, rank 8, {MORE_STEPS} steps, {MORE_EXAMPLES} examples"), MORE_EXAMPLES));
    all.extend(OTHER_SEEDS.into_iter().flat_map(short_runs));
    all.extend([FIRST_SEED].into_iter().chain(OTHER_SEEDS).flat_map(other_rates));
    all
}

const HEADER: &str = "run,rank,base,trainable,steps,loss,cases,parsed,right";

/// A line for each case: what was asked, what is right, and what was answered; line breaks and tabs become blanks.
fn keep(path: &Path, run: &str, cases: &[Example], answers: &[String]) -> gpulab::Result<()> {
    let plain = |text: &str| text.replace(['\t', '\n', '\r'], " ");
    let lines: Vec<String> = cases
        .iter()
        .zip(answers)
        .map(|(case, answer)| format!("{run}\t{}\t{}\t{}", plain(&case.request), case.booking.json(), plain(answer)))
        .collect();
    append(path, "run\trequest\tright\tanswer", &lines)
}

fn append(path: &Path, header: &str, lines: &[String]) -> gpulab::Result<()> {
    let before = std::fs::read_to_string(path).unwrap_or_else(|_| format!("{header}\n"));
    let text = lines.iter().fold(before, |text, line| text + line + "\n");
    gpulab_nn::tensors::write_whole(path, text.as_bytes())
}

fn recorded(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().skip(1).filter_map(|line| Some(line.strip_prefix('"')?.split_once('"')?.0.to_string())).collect()
}

fn main() -> gpulab::Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "results/lora".to_string()));
    let files = Files {
        table: folder.join("smollm2.csv"),
        curves: folder.join("losses.csv"),
        answers: folder.join("answers.tsv"),
        folder,
    };
    let device = match std::env::args().nth(2).as_deref() {
        None | Some("cpu") => DeviceKind::Cpu,
        Some("cuda") => DeviceKind::Cuda,
        Some(other) => return Err(gpulab::Error::invalid(format!("the device {other}"), "name cpu or cuda, or none")),
    };
    let chat = ChatModel::smollm2(&device.open()?, WeightDtype::Dense(DType::F32))?;
    let part = std::env::args().nth(3).unwrap_or_default();
    let (examples, cases) = (bookings(Split::Training, MORE_EXAMPLES, 1), bookings(Split::HeldOut, CASES, 1));
    let mut done = recorded(&files.table);
    if done.is_empty() {
        let before = score(&chat, &cases)?;
        println!("before: {} parsed, {} right of {CASES}; {:?}", before.parsed, before.right, &before.answers[..3]);
        keep(&files.answers, "before", &cases, &before.answers)?;
        append(&files.table, HEADER, &[format!("\"before\",0,f32,0,0,,{CASES},{},{}", before.parsed, before.right)])?;
        done.push("before".to_string());
    }
    for run in runs().into_iter().filter(|run| run.name.contains(&part) && !done.contains(&run.name)) {
        tune(&chat, run, (&examples, &cases), &files)?;
        page(&files.folder, device)?;
    }
    Ok(())
}

struct Files {
    table: PathBuf,
    curves: PathBuf,
    answers: PathBuf,
    folder: PathBuf,
}

fn tune(chat: &ChatModel, run: Run, (examples, cases): (&[Example], &[Example]), files: &Files) -> gpulab::Result<()> {
    let Run { name, base, training, rate, steps, examples: count, seed } = run;
    let rank = if let Training::Lora(lora) = &training { lora.rank } else { 0 };
    let model = TunedLlama::new(&chat.llama, base, training)?;
    let trainable = model.trainable();
    let plan = TunePlan { batch: BATCH, steps, rate, seed };
    let mut tuner = Tuner::new(chat, model, &examples[..count], plan)?;
    for step in 0..steps {
        let loss = tuner.step()?;
        if step % 10 == 0 {
            println!("{name}: step {step}, loss {loss:.4}");
        }
    }
    let after = tuner.loss_on(chat, &cases[..LOSS_CASES])?;
    let mut tuned = chat.clone();
    tuned.llama = tuner.model.merged(&chat.llama)?;
    let score = score(&tuned, cases)?;
    println!("{name}: loss {after:.4}, {} parsed, {} right of {CASES}", score.parsed, score.right);
    let losses: Vec<String> =
        tuner.losses().iter().enumerate().map(|(step, loss)| format!("\"{name}\",{},{loss:.5}", step + 1)).collect();
    append(&files.curves, "run,step,loss", &losses)?;
    if name == "LoRA, rank 8" {
        save_peft(&tuner.model, "HuggingFaceTB/SmolLM2-135M-Instruct", &files.folder.join("adapter"))?;
    }
    keep(&files.answers, &name, cases, &score.answers)?;
    let numbers = format!("{rank},{},{trainable},{steps},{after:.4},{CASES}", base.name());
    append(&files.table, HEADER, &[format!("\"{name}\",{numbers},{},{}", score.parsed, score.right)])
}

fn page(folder: &Path, device: DeviceKind) -> gpulab::Result<()> {
    let text = format!(
        "# SmolLM2 tuned to answer with JSON\n\nWritten by the example `record_lora`; nothing here is typed by hand. The rows are in \
         [smollm2.csv](smollm2.csv), the loss of each step in [losses.csv](losses.csv), and single answers, for runs since they are kept, in \
         [answers.tsv](answers.tsv).\n\n| what | |\n| --- | --- |\n\
         | commit of the last runs | {} |\n| these ended (UTC) | {} |\n\
         | command | `cargo run --release -p gpulab-nn --example record_lora -- results/lora{}` |\n\
         | machine | {} |\n| model | SmolLM2-135M-Instruct, Q4_1 unpacked to f32 |\n\
         | learns from | {EXAMPLES} requests, {BATCH} in a step, {STEPS} steps, where the name says nothing else |\n\
         | held out | {CASES} requests with names that no training example has, a third of them in sentences that none has |\n\
         | layers that learn | the last {} of 30 |\n| adapters | alpha 16 at every rank; all seven matrices of a layer, where the name says \
         nothing else |\n| highest rate | {ADAPTER_RATE:e} for adapters, {FULL_RATE:e} for whole matrices; AdamW without weight decay; \
         half and twice as much where the name says so |\n\n\
         `loss` is that of the answers' tokens of {LOSS_CASES} of the held-out cases, in nats. Nothing was timed.\n",
        gpulab::results::commit(),
        gpulab::results::now_utc(),
        if device == DeviceKind::Cpu { "" } else { " cuda" },
        device.machine()?,
        LAYERS.len()
    );
    gpulab_nn::tensors::write_whole(&folder.join("smollm2.md"), text.as_bytes())
}
