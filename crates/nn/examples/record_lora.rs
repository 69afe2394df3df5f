//! SmolLM2 (`make model`) tuned to answer requests with one line of JSON, in several ways: adapters of several ranks on f32 and on NF4, and
//! the same layers as a whole. Losses, and answers to held-out requests. Writes two CSV files as it goes, and a page that says where and how:
//!
//! `cargo run --release -p gpulab-nn --example record_lora -- results/lora [cuda]`, on a GPU with the second argument, where candle
//! is built with CUDA.
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
}

fn runs() -> Vec<Run> {
    let lora = |base: Base, rank: usize, targets: &[Projection], name: String| Run {
        name,
        base,
        training: Training::Lora(LoraConfig { rank, alpha: 16.0, targets: targets.to_vec(), layers: LAYERS, seed: 1 }),
        rate: ADAPTER_RATE,
    };
    let all = Projection::ALL;
    let rank = |rank: usize| lora(Base::F32, rank, &all, format!("LoRA, rank {rank}"));
    let full = Run { name: "full".to_string(), base: Base::F32, training: Training::Full(LAYERS), rate: FULL_RATE };
    vec![
        rank(8),
        lora(Base::Nf4, 8, &all, "QLoRA, rank 8".to_string()),
        full,
        rank(1),
        rank(32),
        rank(4),
        lora(Base::F32, 8, &[Projection::Q, Projection::V], "LoRA, rank 8, q and v".to_string()),
        rank(2),
        rank(16),
    ]
}

const HEADER: &str = "run,rank,base,trainable,steps,loss,cases,parsed,right";

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
    let (table, curves) = (folder.join("smollm2.csv"), folder.join("losses.csv"));
    let device = match std::env::args().nth(2).as_deref() {
        None | Some("cpu") => DeviceKind::Cpu,
        Some("cuda") => DeviceKind::Cuda,
        Some(other) => return Err(gpulab::Error::invalid(format!("the device {other}"), "name cpu or cuda, or none")),
    };
    let chat = ChatModel::smollm2(&device.open()?, WeightDtype::Dense(DType::F32))?;
    let (examples, cases) = (bookings(Split::Training, EXAMPLES, 1), bookings(Split::HeldOut, CASES, 1));
    let mut done = recorded(&table);
    if done.is_empty() {
        let before = score(&chat, &cases)?;
        println!("before: {} parsed, {} right of {CASES}; {:?}", before.parsed, before.right, &before.answers[..3]);
        append(&table, HEADER, &[format!("\"before\",0,f32,0,0,,{CASES},{},{}", before.parsed, before.right)])?;
        done.push("before".to_string());
    }
    for run in runs().into_iter().filter(|run| !done.contains(&run.name)) {
        tune(&chat, run, (&examples, &cases), (&table, &curves), &folder)?;
        page(&folder, device)?;
    }
    Ok(())
}

fn tune(
    chat: &ChatModel,
    run: Run,
    (examples, cases): (&[Example], &[Example]),
    (table, curves): (&Path, &Path),
    folder: &Path,
) -> gpulab::Result<()> {
    let Run { name, base, training, rate } = run;
    let rank = if let Training::Lora(lora) = &training { lora.rank } else { 0 };
    let model = TunedLlama::new(&chat.llama, base, training)?;
    let trainable = model.trainable();
    let plan = TunePlan { batch: BATCH, steps: STEPS, rate, seed: 1 };
    let mut tuner = Tuner::new(chat, model, examples, plan)?;
    for step in 0..STEPS {
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
    append(curves, "run,step,loss", &losses)?;
    if name == "LoRA, rank 8" {
        save_peft(&tuner.model, "HuggingFaceTB/SmolLM2-135M-Instruct", &folder.join("adapter"))?;
    }
    let numbers = format!("{rank},{},{trainable},{STEPS},{after:.4},{CASES}", base.name());
    append(table, HEADER, &[format!("\"{name}\",{numbers},{},{}", score.parsed, score.right)])
}

fn page(folder: &Path, device: DeviceKind) -> gpulab::Result<()> {
    let text = format!(
        "# SmolLM2 tuned to answer with JSON\n\nWritten by the example `record_lora`; nothing here is typed by hand. The rows are in \
         [smollm2.csv](smollm2.csv), the loss of each step in [losses.csv](losses.csv).\n\n| what | |\n| --- | --- |\n\
         | commit | {} |\n| ended (UTC) | {} |\n| command | `cargo run --release -p gpulab-nn --example record_lora -- results/lora{}` |\n\
         | machine | {} |\n| model | SmolLM2-135M-Instruct, Q4_1 unpacked to f32 |\n\
         | learns from | {EXAMPLES} requests, {BATCH} in a step, {STEPS} steps |\n\
         | held out | {CASES} requests with names that no training example has, a third of them in sentences that none has |\n\
         | layers that learn | the last {} of 30 |\n| adapters | alpha 16 at every rank; all seven matrices of a layer, where the name says \
         nothing else |\n| highest rate | {ADAPTER_RATE:e} for adapters, {FULL_RATE:e} for whole matrices; AdamW without weight decay |\n\n\
         `loss` is that of the answers' tokens of {LOSS_CASES} of the held-out cases, in nats. Nothing was timed.\n",
        gpulab::results::commit(),
        gpulab::results::now_utc(),
        if device == DeviceKind::Cpu { "" } else { " cuda" },
        device.machine()?,
        LAYERS.len()
    );
    gpulab_nn::tensors::write_whole(&folder.join("smollm2.md"), text.as_bytes())
}
