//! `gpulab train-gpt`, `gpulab generate` and `gpulab data gpt`.

use crate::options::{Dtype, Generate, GptDtype, GptModel, TrainGpt};
use crate::print;
use gpulab::error::Result;
use gpulab::measurement::{Measurement, Summary};
use gpulab::results;
use gpulab_nn::gpt::train::{self, GptTrainConfig, GptTrainer};
use gpulab_nn::gpt::{self, Config, LanguageModel, Sampling, Text, Tokenizer, Tokens};
use gpulab_nn::{DType, DeviceKind};

/// Trains and prints a line every twenty steps; gives what came of it.
///
/// # Errors
/// As [`train::run`].
pub fn train(options: TrainGpt) -> Result<String> {
    let (place, plan) = (DeviceKind::from(options.device), plan(&options));
    let path = options.text.clone().unwrap_or_else(|| match options.model {
        GptModel::Bytes => Text::folder().join("text.txt"),
        GptModel::Small | GptModel::Gpt2 => Text::corpus_path(),
    });
    let folder = options.out.clone().unwrap_or_else(|| results::dir().join("gpt"));
    let (device, text) = (place.open()?, Text::read(&path)?);
    print(format_args!(
        "{}: {} bytes to learn from, {} held out",
        path.display(),
        text.train.len(),
        text.held_out.len()
    ));
    let trainer = match options.resume {
        true => GptTrainer::resume(&folder.join("checkpoint.safetensors"), &text, options.rate, &device)?,
        false => GptTrainer::new(plan, tokens(&plan, &text)?, &device)?,
    };
    let (plan, tokens) = (*trainer.config(), trainer.tokens());
    let (a_token, bigram) = (tokens.bytes_a_token, tokens.bigram_loss());
    print(format_args!(
        "{} parameters; {} tokens to learn from, {:.2} bytes each; {} tokens per step",
        plan.config.parameter_count(),
        tokens.train.len(),
        a_token,
        plan.tokens_a_step()
    ));
    print(format_args!(
        "counting tokens costs {:.3} nats a token of the held-out part, counting pairs {bigram:.3}",
        tokens.unigram_loss()
    ));
    let mut last = None;
    let trainer = train::run(trainer, &folder, &mut |progress| {
        print(progress);
        last = Some(progress);
    })?;
    let held_out = trainer.held_out_loss()?;
    if let Some(progress) = last {
        results::append(&rows(place, progress.step as usize, held_out / a_token, progress.rate * a_token)?)?;
    }
    let (apart, word) = ((bigram - held_out).abs(), if held_out < bigram { "better" } else { "worse" });
    let (folder, a_byte) = (folder.display(), held_out / a_token);
    Ok(format!(
        "held out: {held_out:.3} nats a token ({a_byte:.3} a byte), {apart:.3} {word} than counting pairs; the model is kept in {folder}\n\
         next: gpulab generate --model {folder} \"The warp\""
    ))
}

/// Like that of lesson 22, wider and deeper.
const SMALL: Config = Config { n_layer: 4, n_head: 4, n_embd: 128, n_ctx: 128, vocab_size: 1024 };

fn plan(options: &TrainGpt) -> GptTrainConfig {
    let preset = match options.model {
        GptModel::Bytes => GptTrainConfig::default(),
        GptModel::Small => {
            GptTrainConfig { config: SMALL, batch: 8, steps: 1000, rate: 3e-3, short: 0.0, ..GptTrainConfig::default() }
        }
        GptModel::Gpt2 => GptTrainConfig::GPT2,
    };
    GptTrainConfig {
        steps: options.steps.unwrap_or(preset.steps),
        batch: options.batch_size.unwrap_or(preset.batch),
        accumulate: options.accumulate.unwrap_or(preset.accumulate),
        rate: options.rate.unwrap_or(preset.rate),
        dtype: options.dtype.map_or(preset.dtype, |dtype| match dtype {
            GptDtype::F32 => DType::F32,
            GptDtype::Bf16 => DType::BF16,
        }),
        seed: options.seed,
        ..preset
    }
}

/// The text in bytes, or in the tokens of a tokenizer that learns from its training part.
fn tokens(plan: &GptTrainConfig, text: &Text) -> Result<Tokens> {
    let tokenizer = match plan.config.vocab_size {
        256 => Tokenizer::Bytes,
        // `Text::read` has seen that it is UTF-8, and parts end between paragraphs.
        size => Tokenizer::train_bpe(&String::from_utf8_lossy(&text.train), size)?,
    };
    Tokens::new(text, tokenizer)
}

/// Loss and speed as rows of `metrics.csv`.
fn rows(place: DeviceKind, steps: usize, held_out: f64, rate: f64) -> Result<Vec<Measurement>> {
    let machine = place.machine()?;
    let row = |metric: &str, unit: &str, value: f64| Measurement {
        time: results::now_utc(),
        commit: results::commit(),
        lesson: "train-gpt".to_string(),
        machine: machine.clone(),
        ..Measurement::new("train-gpt", place.backend(), steps, metric, unit, Summary::of(&[value]))
    };
    Ok(vec![row("held-out loss", "nats a byte", held_out), row("speed", "bytes/s", rate)])
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
    fn a_preset_is_changed_by_what_is_named() {
        let of = |more: &[&str]| {
            let Command::TrainGpt(options) = asked(&[&["train-gpt"], more].concat()) else { panic!() };
            plan(&options)
        };
        assert_eq!(of(&["--model", "gpt2"]), GptTrainConfig::GPT2);
        assert_eq!(GptTrainConfig::GPT2.config.parameter_count(), 124_439_808);
        let changed = of(&["--model", "gpt2", "--accumulate", "2", "--dtype", "f32", "--rate", "1e-4", "--steps", "7"]);
        let wanted = GptTrainConfig { accumulate: 2, dtype: DType::F32, rate: 1e-4, steps: 7, ..GptTrainConfig::GPT2 };
        assert_eq!(changed, wanted);
        assert_eq!(of(&["--model", "small", "--batch-size", "2"]).tokens_a_step(), 256);
    }

    #[test]
    fn files_that_are_not_there_are_named_before_anything_is_trained() {
        let Command::TrainGpt(options) = asked(&["train-gpt", "--text", "none.txt"]) else { panic!() };
        assert!(matches!(train(options), Err(Error::File { path, .. }) if path.ends_with("none.txt")));
        let Command::Generate(options) = asked(&["generate", "--model", "none", "x"]) else { panic!() };
        assert!(matches!(generate(&options), Err(Error::File { path, .. }) if path.ends_with("config.json")));
    }
}
