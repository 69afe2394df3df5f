//! `gpulab train-gpt`, `gpulab generate` and `gpulab data gpt`.

use crate::options::{Dtype, Generate, TrainGpt};
use crate::print;
use gpulab::cpu;
use gpulab::error::Result;
use gpulab::measurement::{Backend, Measurement, Summary};
use gpulab::results;
use gpulab_nn::gpt::train::{self, GptTrainConfig};
use gpulab_nn::gpt::{self, LanguageModel, Sampling, Text, best_bigram_loss, unigram_loss};
use gpulab_nn::{DType, DeviceKind};

/// Trains and prints a line every twenty steps; gives what came of it.
///
/// # Errors
/// As [`train::run`].
pub fn train(options: TrainGpt) -> Result<String> {
    let (place, plan) = (DeviceKind::from(options.device), plan(&options));
    let text = options.text.unwrap_or_else(|| Text::folder().join("text.txt"));
    let folder = options.out.unwrap_or_else(|| results::dir().join("gpt"));
    let (device, text) = (place.open()?, Text::read(&text)?);
    let (unigram, bigram) = (unigram_loss(&text), best_bigram_loss(&text));
    print(format_args!(
        "{} bytes to learn from, {} held out; {} parameters",
        text.train.len(),
        text.held_out.len(),
        plan.config.parameter_count()
    ));
    print(format_args!(
        "counting bytes costs {unigram:.3} nats a byte of the held-out part, counting pairs {bigram:.3}"
    ));
    let mut last = None;
    let trainer = train::run(plan, text, &device, &folder, options.resume, &mut |progress| {
        print(progress);
        last = Some(progress);
    })?;
    let held_out = trainer.held_out_loss()?;
    if let Some(progress) = last {
        results::append(&rows(place.backend(), progress.step as usize, held_out, progress.rate))?;
    }
    let (apart, word) = ((bigram - held_out).abs(), if held_out < bigram { "better" } else { "worse" });
    let folder = folder.display();
    Ok(format!(
        "held out: {held_out:.3} nats a byte, {apart:.3} {word} than counting pairs; the model is kept in {folder}\n\
         next: gpulab generate --model {folder} \"The warp\""
    ))
}

fn plan(options: &TrainGpt) -> GptTrainConfig {
    GptTrainConfig {
        steps: options.steps,
        batch: options.batch_size,
        rate: options.rate,
        seed: options.seed,
        ..GptTrainConfig::default()
    }
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
/// As [`gpt::fetch`] and [`LanguageModel::load`].
pub fn fetch(name: &str) -> Result<String> {
    let folder = gpt::fetch(name, None)?;
    let model = LanguageModel::load(&folder, &DeviceKind::Cpu.open()?, DType::F32)?;
    let (count, folder) = (model.gpt.config().parameter_count(), folder.display());
    Ok(format!("{name}: {count} parameters, in {folder}\nnext: gpulab generate --model {folder} \"The GPU\""))
}

/// Loads a model and prints what it writes, line by line.
///
/// # Errors
/// As [`LanguageModel::load`] and [`LanguageModel::write`].
pub fn generate(options: &Generate) -> Result<String> {
    let device = DeviceKind::from(options.device).open()?;
    let kind = match options.dtype {
        Dtype::F32 => DType::F32,
        Dtype::Bf16 => DType::BF16,
        Dtype::F16 => DType::F16,
    };
    let sampling = match options.greedy {
        true => Sampling::Greedy,
        false => Sampling::top_p(options.temperature, options.top_p, options.seed),
    };
    let model = options.model.clone().unwrap_or_else(Text::folder);
    let prompt = options.prompt.join(" ");
    let written = LanguageModel::load(&model, &device, kind)?.write(&prompt, options.tokens, sampling)?;
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
    use crate::options::{Command, Gpulab};
    use clap::Parser;
    use gpulab::error::Error;

    fn asked(arguments: &[&str]) -> Command {
        Gpulab::try_parse_from([&["gpulab"], arguments].concat()).unwrap().command
    }

    #[test]
    fn without_options_it_is_the_usual_plan() {
        let Command::TrainGpt(options) = asked(&["train-gpt"]) else { panic!() };
        assert_eq!(plan(&options), GptTrainConfig::default());
    }

    #[test]
    fn files_that_are_not_there_are_named_before_anything_is_trained() {
        let Command::TrainGpt(options) = asked(&["train-gpt", "--text", "none.txt"]) else { panic!() };
        assert!(matches!(train(options), Err(Error::File { path, .. }) if path.ends_with("none.txt")));
        let Command::Generate(options) = asked(&["generate", "--model", "none", "x"]) else { panic!() };
        assert!(matches!(generate(&options), Err(Error::File { path, .. }) if path.ends_with("config.json")));
    }
}
