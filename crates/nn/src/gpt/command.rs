//! `gpulab train-gpt` and `gpulab generate`.

use super::train::{self, Plan};
use super::{LanguageModel, Sampling, Text, best_bigram_loss, unigram_loss};
use crate::Place;
use crate::options::Options;
use candle_core::DType;
use gpulab::cpu;
use gpulab::error::Result;
use gpulab::measurement::{Backend, Measurement, Summary};
use gpulab::results;
use std::path::PathBuf;

const TRAIN: &str = "\
gpulab train-gpt [--device cpu|cuda|mps] [--steps N] [--batch-size N] [--rate X] [--seed N] [--text FILE] [--out DIR] [--resume]
    a small GPT learns the course's own text; --resume goes on from DIR/checkpoint.safetensors";
const GENERATE: &str = "\
gpulab generate [--model DIR] [--device cpu|cuda|mps] [--dtype f32|bf16|f16] [--tokens N] [--greedy] [--temperature X] [--top-p X] [--seed N] PROMPT
    goes on from the prompt, with the course's model or a GPT-2 checkpoint's folder";

/// Trains and prints a line every twenty steps; gives what came of it.
///
/// # Errors
/// What an option names that is not there, and as [`train::run`].
pub fn train(arguments: &[&str]) -> Result<String> {
    let mut options = Options::new(arguments, &["resume"], TRAIN)?;
    let usual = Plan::default();
    let place = Place::from_name(&options.get("device", "cpu".to_string())?)?;
    let plan = Plan {
        steps: options.get("steps", usual.steps)?,
        batch: options.get("batch-size", usual.batch)?,
        rate: options.get("rate", usual.rate)?,
        seed: options.get("seed", usual.seed)?,
        ..usual
    };
    let text = options.get("text", Text::folder().join("text.txt"))?;
    let folder = options.get("out", results::dir().join("gpt"))?;
    let resume = options.flag("resume");
    options.done()?;
    if let Some(word) = options.words.first() {
        return Err(options.wrong(format!("`{word}` is no option")));
    }
    let (device, text) = (place.open()?, Text::read(&text)?);
    let (unigram, bigram) = (unigram_loss(&text), best_bigram_loss(&text));
    println!(
        "{} bytes to learn from, {} held out; {} parameters",
        text.train.len(),
        text.held_out.len(),
        plan.config.parameter_count()
    );
    println!("counting bytes costs {unigram:.3} nats a byte of the held-out part, counting pairs {bigram:.3}");
    let mut last = None;
    let trainer = train::run(plan, text, &device, &folder, resume, &mut |progress| {
        println!("{progress}");
        last = Some(progress);
    })?;
    let held_out = trainer.held_out_loss()?;
    if let Some(progress) = last {
        results::append(&rows(place.backend(), progress.step as usize, held_out, progress.rate))?;
    }
    let (apart, word) = ((bigram - held_out).abs(), if held_out < bigram { "better" } else { "worse" });
    Ok(format!(
        "held out: {held_out:.3} nats a byte, {apart:.3} {word} than counting pairs; the model lies in {}\nnext: gpulab generate --model {} \"The warp\"",
        folder.display(),
        folder.display()
    ))
}

/// Loss and speed as rows of `metrics.csv`.
fn rows(backend: Backend, steps: usize, held_out: f64, rate: f64) -> Vec<Measurement> {
    let row = |metric: &str, unit: &str, value: f64| Measurement {
        time: results::now_utc(),
        commit: results::commit(),
        lesson: "train-gpt".to_string(),
        machine: cpu::info().short_name(),
        ..Measurement::new("train-gpt", backend, steps, metric, unit, Summary::of(&[value]))
    };
    vec![row("held-out loss", "nats a byte", held_out), row("speed", "bytes/s", rate)]
}

/// Fetches a GPT-2 from the Hugging Face hub, where `HF_ENDPOINT` names no other, and reads it once.
///
/// # Errors
/// As [`fetch`](super::fetch()), [`LanguageModel::load`].
pub fn fetch(name: &str) -> Result<String> {
    let folder = super::fetch(name, None)?;
    let model = LanguageModel::load(&folder, &Place::Cpu.open()?, DType::F32)?;
    let (count, folder) = (model.gpt.config().parameter_count(), folder.display());
    Ok(format!("{name}: {count} parameters, in {folder}\nnext: gpulab generate --model {folder} \"The GPU\""))
}

/// Loads a model and prints what it writes, line by line.
///
/// # Errors
/// What an option names that is not there, and as [`LanguageModel::load`] and [`LanguageModel::write`].
pub fn generate(arguments: &[&str]) -> Result<String> {
    let mut options = Options::new(arguments, &["greedy"], GENERATE)?;
    let model: PathBuf = options.get("model", Text::folder())?;
    let device = Place::from_name(&options.get("device", "cpu".to_string())?)?.open()?;
    let kind = match options.get("dtype", "f32".to_string())?.as_str() {
        "f32" => DType::F32,
        "bf16" => DType::BF16,
        "f16" => DType::F16,
        other => return Err(options.wrong(format!("`{other}` is no kind of number that a model is kept as"))),
    };
    let tokens = options.get("tokens", 200)?;
    let (temperature, top_p, seed) =
        (options.get("temperature", 0.8)?, options.get("top-p", 0.9)?, options.get("seed", 1)?);
    let sampling = if options.flag("greedy") { Sampling::Greedy } else { Sampling::top_p(temperature, top_p, seed) };
    options.done()?;
    let prompt = options.words.join(" ");
    let written = LanguageModel::load(&model, &device, kind)?.write(&prompt, tokens, sampling)?;
    let rate = 1e3 * written.step_ms.len() as f64 / written.step_ms.iter().sum::<f64>().max(1e-9);
    Ok(format!(
        "\n{} tokens; the first after {:.1} ms, then {rate:.0} tokens/s",
        written.tokens.len(),
        written.first_ms
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_told_before_anything_is_read() {
        for (arguments, part) in [
            (&["--device", "tpu"][..], "`tpu`"),
            (&["--steps", "x"], "`--steps x`"),
            (&["now"], "`now` is no option"),
            (&["--text", "none.txt"], "none.txt"),
        ] {
            let text = train(arguments).unwrap_err().to_string();
            assert!(text.contains(part) && text.contains("\nnext: "), "{text}");
        }
        let text = generate(&["--dtype", "f8", "x"]).unwrap_err().to_string();
        assert!(text.contains("`f8`") && text.contains("next: use it so"), "{text}");
        let text = generate(&["--model", "none", "x"]).unwrap_err().to_string();
        assert!(text.contains("config.json") && text.contains("\nnext: "), "{text}");
    }
}
