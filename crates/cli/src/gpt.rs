//! `gpulab train-gpt`, `gpulab generate` and `gpulab data gpt`.

use crate::options::{Device, Dtype, Generate, GptDtype, GptEngineChoice, GptModel, TrainGpt};
use crate::print;
use crate::train::on_interrupt;
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use gpulab::measurement::{Backend, Measurement, Summary};
use gpulab::{cpu, results};
use gpulab_kernels::bf16_peak;
use gpulab_nn::gpt::train::{
    self, GptCheckpoint, GptEngine, GptFiles, GptLine, GptProgress, GptTrainConfig, GptTrainer, KernelTrainer,
    OperatorTrainer, loss_charts,
};
use gpulab_nn::gpt::{self, Config, LanguageModel, Sampling, Text, Tokenizer, Tokens};
use gpulab_nn::{DType, DeviceKind, Tensor};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Trains and prints a line every twenty steps; gives what came of it.
///
/// # Errors
/// As [`train::run`].
pub fn train(options: TrainGpt) -> Result<String> {
    let path = options.text.clone().unwrap_or_else(|| match options.model {
        GptModel::Bytes => Text::folder().join("text.txt"),
        GptModel::Small | GptModel::Gpt2 => Text::corpus_path(),
    });
    let mut files = GptFiles::new(&options.out.clone().unwrap_or_else(|| results::dir().join("gpt")));
    let checkpoint = if options.resume { Some(kept(&files.checkpoint(), &options)?) } else { None };
    let plan = checkpoint.as_ref().map_or_else(|| plan(&options), |kept| kept.plan);
    // The device first: without it nobody waits for a tokenizer.
    let (target, why) = Target::choose(options.engine, options.device, &plan, &|| open(options.device))?;
    print(format_args!("the steps are made by {why}"));
    let text = Text::read(&path)?;
    print(format_args!(
        "{}: {} bytes to learn from, {} held out",
        path.display(),
        text.train.len(),
        text.held_out.len()
    ));
    if let Some(kept) = &checkpoint {
        let GptCheckpoint { step, engine, .. } = kept;
        print(format_args!("going on after step {step}, which {engine} made"));
    }
    let mut engine: Box<dyn GptEngine> = match (&target, &checkpoint) {
        (Target::Kernels(gpu), Some(kept)) => {
            let trainer = KernelTrainer::from_checkpoint(kept, &text, gpu)?;
            if let Some(note) = trainer.note() {
                print(format_args!("not bit for bit: {note}"));
            } else if !plan.deterministic {
                print("not bit for bit: the run was not begun with --deterministic");
            }
            Box::new(trainer)
        }
        (Target::Kernels(gpu), None) => Box::new(KernelTrainer::new(plan, tokens(&plan, &text, &options)?, gpu)?),
        (Target::Operators(_, device, gpu), Some(kept)) => {
            Box::new(OperatorTrainer::from_checkpoint(kept, &text, gpu, device)?)
        }
        (Target::Operators(_, device, gpu), None) => {
            Box::new(OperatorTrainer::new(plan, tokens(&plan, &text, &options)?, gpu, device)?)
        }
        (Target::Candle(_, device), Some(kept)) => Box::new(GptTrainer::from_checkpoint(kept, &text, device)?),
        (Target::Candle(_, device), None) => Box::new(GptTrainer::new(plan, tokens(&plan, &text, &options)?, device)?),
    };
    // It holds all that the trainer has by now.
    drop(checkpoint);
    let tokens = &engine.run().tokens;
    let (a_token, unigram, bigram) = (tokens.bytes_a_token, tokens.unigram_loss(), tokens.bigram_loss());
    print(format_args!(
        "{} parameters; {} tokens to learn from, {a_token:.2} bytes each; {} tokens per step",
        plan.config.parameter_count(),
        tokens.train.len(),
        plan.tokens_a_step()
    ));
    print(format_args!(
        "counting tokens costs {unigram:.3} nats a token of the held-out part, counting pairs {bigram:.3}"
    ));
    files.peak = target.peak(plan.dtype)?;
    files.every =
        options.every.unwrap_or(if target.backend() == Backend::Cuda && !target.is_candle() { 500 } else { 100 });
    (files.look, files.last_look) = options.held_out.map_or((files.look, files.last_look), |most| (most, most));
    let (mut last, stop) = (None, on_interrupt()?);
    train::run(engine.as_mut(), &files, &|| stop.load(Ordering::Relaxed), &mut |line| {
        print(&line);
        if let GptLine::Progress(progress) = line {
            last = Some(progress);
        }
    })?;
    let machine = target.machine()?;
    let landmarks = [("counting tokens", unigram), ("counting pairs", bigram)];
    let charts = loss_charts(&files.log(), plan.config.parameter_count(), &landmarks, (target.backend(), &machine))?;
    for (name, chart) in ["train-loss-tokens.svg", "train-loss-compute.svg"].into_iter().zip(charts) {
        chart.draw().save(files.folder.join(name))?;
    }
    let (step, folder) = (engine.run().step, files.folder.display());
    let Some(GptProgress { held_out: Some(held_out), rate, .. }) = last.filter(|_| step == plan.steps) else {
        return Ok(match step == plan.steps {
            true => format!(
                "the run in {folder} has all of its {step} steps\nnext: gpulab generate --model {folder} \"The warp\""
            ),
            false => format!(
                "stopped after step {step}; the run is kept in {folder}\nnext: the same command with --resume goes on from there"
            ),
        });
    };
    results::append(&rows(&target, &machine, &plan, held_out / a_token, rate * a_token))?;
    let (apart, word) = ((bigram - held_out).abs(), if held_out < bigram { "better" } else { "worse" });
    let a_byte = held_out / a_token;
    Ok(format!(
        "held out: {held_out:.3} nats a token ({a_byte:.3} a byte), {apart:.3} {word} than counting pairs; the model is kept in {folder}\n\
         next: gpulab generate --model {folder} \"The warp\""
    ))
}

/// The checkpoint, with what the options change of its plan.
fn kept(path: &Path, options: &TrainGpt) -> Result<GptCheckpoint> {
    let mut kept = GptCheckpoint::read(path)?;
    kept.plan.rate = options.rate.unwrap_or(kept.plan.rate);
    kept.plan.dtype = options.dtype.map_or(kept.plan.dtype, DType::from);
    Ok(kept)
}

/// Where the course's kernels run: a GPU, or the simulator.
fn open(device: Device) -> Result<Gpu> {
    match device {
        Device::Cuda => Gpu::open_index(0),
        Device::Cpu => Gpu::simulated(),
        Device::Mps => Err(Error::unsupported(
            "the kernels of a GPT's step are CUDA's, and mps is a Mac's GPU",
            "take --engine candle, or --device cuda",
        )),
    }
}

/// Whose steps are run, and on what.
#[derive(Debug)]
enum Target {
    Kernels(Gpu),
    Candle(DeviceKind, gpulab_nn::Device),
    /// With candle's GPU, or for the CPU the simulated one.
    Operators(DeviceKind, gpulab_nn::Device, Gpu),
}

impl Target {
    /// What was asked for; else the kernels where they can do it on an NVIDIA GPU, and candle everywhere else. And why, in words.
    fn choose(
        asked: Option<GptEngineChoice>,
        device: Device,
        plan: &GptTrainConfig,
        open: &dyn Fn() -> Result<Gpu>,
    ) -> Result<(Target, String)> {
        let kernels = || {
            let gpu = open()?;
            KernelTrainer::takes(&gpu, plan)?;
            Ok::<Gpu, Error>(gpu)
        };
        let candle = |why: String| {
            if plan.deterministic && device == Device::Cuda {
                return Err(Error::unsupported(
                    format!(
                        "--deterministic with candle on a GPU ({why}): it adds embeddings' gradients up in any order"
                    ),
                    "take --engine kernels where they take the model, or --device cpu",
                ));
            }
            let kind = DeviceKind::from(device);
            Ok((Target::Candle(kind, kind.open()?), format!("candle: {why}")))
        };
        let named = |gpu: Gpu, why: &str| {
            let text = format!("the course's kernels on {}: {why}", gpu.name());
            (Target::Kernels(gpu), text)
        };
        match (asked, device) {
            (Some(GptEngineChoice::Kernels), _) => Ok(named(kernels()?, "as --engine asks")),
            (Some(GptEngineChoice::Candle), _) => candle("as --engine asks".to_string()),
            (Some(GptEngineChoice::Operators), _) => {
                let kind = DeviceKind::from(device);
                let on = kind.open()?;
                let gpu = if device == Device::Cpu { Gpu::simulated()? } else { gpulab_nn::gpu_of(&on)? };
                OperatorTrainer::takes(&gpu, plan)?;
                let text = format!("candle's autograd and the course's operators on {}: as --engine asks", gpu.name());
                Ok((Target::Operators(kind, on, gpu), text))
            }
            (None, Device::Cuda) => match kernels() {
                Ok(gpu) => Ok(named(gpu, "they take this model")),
                Err(error) => candle(error.to_string().lines().next().unwrap_or_default().to_string()),
            },
            (None, _) => candle("the course's kernels need an NVIDIA GPU".to_string()),
        }
    }

    fn is_candle(&self) -> bool {
        matches!(self, Target::Candle(..))
    }

    fn backend(&self) -> Backend {
        match self {
            Target::Kernels(Gpu::Simulated(_)) | Target::Operators(_, _, Gpu::Simulated(_)) => Backend::Simulator,
            Target::Kernels(_) => Backend::Cuda,
            Target::Candle(kind, _) | Target::Operators(kind, ..) => kind.backend(),
        }
    }

    fn machine(&self) -> Result<String> {
        match self {
            Target::Kernels(gpu) | Target::Operators(_, _, gpu) => Ok(gpu.name().to_string()),
            Target::Candle(kind, _) => kind.machine(),
        }
    }

    /// FLOP/s that a utilisation is a share of: of a GPU by its data sheet, in bf16; of a CPU what a large product in f32 reaches here.
    fn peak(&self, dtype: DType) -> Result<Option<f64>> {
        Ok(match self.backend() {
            Backend::Cuda if dtype == DType::BF16 => bf16_peak(&self.machine()?).map(|tera| 1e12 * tera),
            Backend::Cpu => Some(large_product()?),
            _ => None,
        })
    }
}

/// FLOP/s of a product of two matrices of 1024 × 1024 on the CPU, the median of five.
fn large_product() -> Result<f64> {
    let side = 1024;
    let a = Tensor::from_vec(cpu::random_f32(side * side, 1), (side, side), &gpulab_nn::Device::Cpu)?;
    let seconds = || -> Result<f64> {
        let start = Instant::now();
        a.matmul(&a)?;
        Ok(start.elapsed().as_secs_f64())
    };
    seconds()?; // the first one makes threads and their buffers
    let samples = (0..5).map(|_| seconds()).collect::<Result<Vec<f64>>>()?;
    Ok(2.0 * (side as f64).powi(3) / Summary::of(&samples).median)
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
    let config = Config {
        n_layer: options.layers.unwrap_or(preset.config.n_layer),
        n_head: options.heads.unwrap_or(preset.config.n_head),
        n_embd: options.width.unwrap_or(preset.config.n_embd),
        n_ctx: options.context.unwrap_or(preset.config.n_ctx),
        vocab_size: options.vocabulary.unwrap_or(preset.config.vocab_size),
    };
    GptTrainConfig {
        config,
        steps: options.steps.unwrap_or(preset.steps),
        batch: options.batch_size.unwrap_or(preset.batch),
        accumulate: options.accumulate.unwrap_or(preset.accumulate),
        rate: options.rate.unwrap_or(preset.rate),
        dtype: options.dtype.map_or(preset.dtype, DType::from),
        seed: options.seed,
        deterministic: options.deterministic,
        ..preset
    }
}

impl From<GptDtype> for DType {
    fn from(dtype: GptDtype) -> DType {
        match dtype {
            GptDtype::F32 => DType::F32,
            GptDtype::Bf16 => DType::BF16,
        }
    }
}

/// The text in bytes, or in the tokens of a tokenizer: a given one, or one that learns from its training part.
fn tokens(plan: &GptTrainConfig, text: &Text, options: &TrainGpt) -> Result<Tokens> {
    let tokenizer = match (&options.tokenizer, plan.config.vocab_size) {
        (Some(path), _) => {
            let fix = "name a tokenizer.json, such as a run with this text has written";
            Tokenizer::from_json(&std::fs::read_to_string(path).map_err(Error::io(path, "read", fix))?)?
        }
        (None, 256) => Tokenizer::Bytes,
        // `Text::read` has seen that it is UTF-8, and parts end between paragraphs.
        (None, size) => Tokenizer::train_bpe(&String::from_utf8_lossy(&text.train), size)?,
    };
    Tokens::new(text, tokenizer)
}

/// Loss and speed as rows of `metrics.csv`; what the simulator takes says nothing.
fn rows(target: &Target, machine: &str, plan: &GptTrainConfig, held_out: f64, rate: f64) -> Vec<Measurement> {
    let experiment = match target {
        Target::Kernels(_) => "train-gpt, the course's kernels",
        Target::Operators(..) => "train-gpt, candle with the course's operators",
        Target::Candle(..) => "train-gpt",
    };
    let row = |metric: &str, unit: &str, value: f64| Measurement {
        time: results::now_utc(),
        commit: results::commit(),
        lesson: "train-gpt".to_string(),
        machine: machine.to_string(),
        dtype: plan.dtype.as_str().to_string(),
        ..Measurement::new(experiment, target.backend(), plan.steps as usize, metric, unit, Summary::of(&[value]))
    };
    let mut rows = vec![row("held-out loss", "nats a byte", held_out)];
    if target.backend() != Backend::Simulator {
        rows.push(row("speed", "bytes/s", rate));
    }
    rows
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
        let tiny = of(&["--layers", "1", "--heads", "1", "--width", "64", "--context", "16", "--vocabulary", "300"]);
        assert_eq!(tiny.config, Config { n_layer: 1, n_head: 1, n_embd: 64, n_ctx: 16, vocab_size: 300 });
    }

    #[test]
    fn the_kernels_make_the_steps_where_they_can_and_the_program_says_why() {
        let simulated = || Gpu::simulated();
        let none = || Err(Error::unsupported("no GPU here", "buy one"));
        let (kernels, candle) = (Some(GptEngineChoice::Kernels), Some(GptEngineChoice::Candle));
        let tiny = Config { n_layer: 1, n_head: 1, n_embd: 64, n_ctx: 16, vocab_size: 300 };
        let plan = GptTrainConfig { config: tiny, ..GptTrainConfig::GPT2 };
        let of = |asked, device, plan: &GptTrainConfig, open: &dyn Fn() -> Result<Gpu>| {
            Target::choose(asked, device, plan, open).map(|(target, why)| (matches!(target, Target::Kernels(_)), why))
        };
        // Without being asked: on an NVIDIA GPU, for which the simulated one stands here.
        assert!(of(None, Device::Cuda, &plan, &simulated).unwrap().1.ends_with(": they take this model"));
        let (own, why) = of(None, Device::Cpu, &plan, &simulated).unwrap();
        assert!(!own && why == "candle: the course's kernels need an NVIDIA GPU", "{why}");
        assert!(of(candle, Device::Cpu, &plan, &simulated).unwrap().1.contains("as --engine asks"));
        assert!(of(kernels, Device::Cpu, &plan, &simulated).unwrap().0);
        // What they do not take: in place of them candle, whose CUDA this machine may lack, or an error.
        for (wrong, says) in [
            (GptTrainConfig { dtype: DType::F32, ..plan }, "compute in bf16"),
            (GptTrainConfig { config: Config { n_head: 2, ..tiny }, ..plan }, "heads of 64"),
            (GptTrainConfig { short: 0.5, ..plan }, "shorter pieces"),
            (GptTrainConfig { batch: 1 << 20, ..plan }, "take fewer texts"),
        ] {
            let text = of(kernels, Device::Cpu, &wrong, &simulated).unwrap_err().to_string();
            assert!(text.contains(says) && text.contains("\nnext: "), "{text}");
            match of(None, Device::Cuda, &wrong, &simulated) {
                Ok((own, why)) => assert!(!own && why.starts_with("candle: "), "{why}"),
                Err(error) => assert!(error.to_string().contains("an NVIDIA GPU for candle"), "{error}"),
            }
        }
        // Operators of candle's: on the CPU in the simulator.
        let operators = Some(GptEngineChoice::Operators);
        let (target, why) = Target::choose(operators, Device::Cpu, &plan, &none).unwrap();
        assert!(target.backend() == Backend::Simulator && why.contains("autograd"), "{why}");
        let wrong = GptTrainConfig { dtype: DType::F32, ..plan };
        assert!(of(operators, Device::Cpu, &wrong, &none).unwrap_err().to_string().contains("compute in bf16"));
        assert!(of(kernels, Device::Cuda, &plan, &none).unwrap_err().to_string().contains("no GPU here"));
        assert!(
            of(kernels, Device::Mps, &plan, &|| open(Device::Mps)).unwrap_err().to_string().contains("a Mac's GPU")
        );
    }

    #[test]
    fn files_that_are_not_there_are_named_before_anything_is_trained() {
        let Command::TrainGpt(options) = asked(&["train-gpt", "--text", "none.txt"]) else { panic!() };
        assert!(matches!(train(options), Err(Error::File { path, .. }) if path.ends_with("none.txt")));
        let Command::Generate(options) = asked(&["generate", "--model", "none", "x"]) else { panic!() };
        assert!(matches!(generate(&options), Err(Error::File { path, .. }) if path.ends_with("config.json")));
    }
}
