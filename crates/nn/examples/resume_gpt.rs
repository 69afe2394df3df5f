//! Whether a run on the course's kernels that was killed goes on with the same bits: trains GPT-2's shape on this GPU, and prints each step's loss
//! and norm as their bits.
//!
//! `cargo run --release -p gpulab-nn --example resume_gpt -- FOLDER STEPS [--resume] [--any-order]`: a checkpoint after every 20 steps; with
//! `--resume` it goes on from there. Run it whole in one folder; in another kill it in the middle (`kill -9`), and resume it: the lines
//! of the same steps are to be equal. With `--any-order` the plan is not deterministic, and they need not.

use gpulab_nn::gpt::train::{GptCheckpoint, GptEngine, GptTrainConfig, KernelTrainer};
use gpulab_nn::gpt::{Config, Text, Tokenizer, Tokens};
use std::path::Path;

const EVERY: u64 = 20;

/// A text of words that a seed draws, in bytes.
fn text() -> Text {
    let words = ["the ", "warp ", "waits ", "for ", "memory ", "and ", "a ", "block ", "ends. "];
    let part = |count: usize, seed: u64| -> Vec<u8> {
        let draws = gpulab::cpu::random_f32(count, seed);
        let word = |x: f32| words[((0.5 * (x + 1.0)) * words.len() as f32) as usize % words.len()];
        draws.into_iter().flat_map(|x| word(x).bytes()).collect()
    };
    Text { train: part(200_000, 1), held_out: part(2_000, 2), fingerprint: "resume_gpt".to_string() }
}

fn main() -> gpulab::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    let [folder, steps, ..] = &arguments[..] else {
        return Err(gpulab::Error::invalid("resume_gpt takes a folder and steps", "see the head of its file"));
    };
    let steps = steps.parse().map_err(|_| gpulab::Error::invalid(format!("{steps} steps"), "give a number"))?;
    let (gpu, path) = (gpulab::gpu::Gpu::open_index(0)?, Path::new(folder).join("checkpoint.safetensors"));
    let config = Config { vocab_size: 256, ..Config::GPT2 };
    let deterministic = !has("--any-order");
    let plan = GptTrainConfig { config, steps, accumulate: 2, deterministic, ..GptTrainConfig::GPT2 };
    let mut trainer = match has("--resume") {
        true => KernelTrainer::from_checkpoint(&GptCheckpoint::read(&path)?, &text(), &gpu)?,
        false => KernelTrainer::new(plan, Tokens::new(&text(), Tokenizer::Bytes)?, &gpu)?,
    };
    if let Some(note) = trainer.note() {
        eprintln!("not bit for bit: {note}");
    }
    let begun = std::time::Instant::now();
    let first = trainer.run().step;
    while trainer.run().step < steps {
        let loss = trainer.step()?;
        let (step, norm) = (trainer.run().step, trainer.run().norms.last().copied().unwrap_or(f32::NAN));
        println!("{step} {:08x} {:08x} {loss}", loss.to_bits(), norm.to_bits());
        if step.is_multiple_of(EVERY) {
            trainer.checkpoint()?.write(&path)?;
        }
    }
    let ms = begun.elapsed().as_secs_f64() * 1e3 / (steps - first).max(1) as f64;
    eprintln!("{ms:.1} ms per step, checkpoints with it");
    Ok(())
}
