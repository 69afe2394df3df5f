//! A whole training run with its files and lines of progress.

use super::checkpoint::GptCheckpoint;
use super::engine::GptEngine;
use super::log::{GptProgress, HEAD, Lines};
use crate::gpt::{Gpt, LanguageModel, Sampling};
use crate::tensors::write_whole;
use candle_core::{DType, Device};
use gpulab::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Steps between two looks at the held-out part.
const LOOK: u64 = 100;
/// Steps between two lines.
const LINE: u64 = 20;
/// What a sample goes on from, and its tokens.
const SAMPLE: (&str, usize) = ("The kernel", 40);

/// Where a run is kept, and how often.
#[derive(Debug, Clone, PartialEq)]
pub struct GptFiles {
    /// The folder of all its files.
    pub folder: PathBuf,
    /// Steps from one checkpoint to the next.
    pub every: u64,
    /// Held-out tokens that are looked at while it trains.
    pub look: usize,
    /// The same at the end.
    pub last_look: usize,
    /// The device's peak in FLOP/s, where it is known: what the utilisation is a share of.
    pub peak: Option<f64>,
}

impl GptFiles {
    /// In that folder, a checkpoint every hundred steps; 131,072 held-out tokens while it trains, and all of them at the end.
    pub fn new(folder: &Path) -> GptFiles {
        GptFiles { folder: folder.to_path_buf(), every: 100, look: 1 << 17, last_look: usize::MAX, peak: None }
    }

    /// What a run goes on from.
    pub fn checkpoint(&self) -> PathBuf {
        self.folder.join("checkpoint.safetensors")
    }

    /// A row for each line of progress.
    pub fn log(&self) -> PathBuf {
        self.folder.join("log.csv")
    }
}

/// What a run tells on its way.
#[derive(Debug, Clone, PartialEq)]
pub enum GptLine {
    /// How far it is.
    Progress(GptProgress),
    /// How the model goes on from a few words, after that many steps.
    Sample(u64, String),
}

impl std::fmt::Display for GptLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GptLine::Progress(progress) => progress.fmt(f),
            GptLine::Sample(step, text) => write!(f, "after {step} steps: {text}"),
        }
    }
}

/// Trains to the plan's end, or until `stop` says so after a step: the run is kept then, too. In between and at the end the folder gets
/// `checkpoint.safetensors` (to go on from); `config.json`, `model.safetensors` (in bf16) and, unless it reads bytes, `tokenizer.json` (to
/// generate with); a row of `log.csv` every twenty steps, with the held-out loss every hundred; a line of `samples.txt` for each checkpoint.
///
/// A program that is killed loses the steps since the last checkpoint. Rows of those are dropped when the run goes on.
///
/// # Errors
/// As [`GptEngine::step`], with the step after which the run is kept; [`Error::File`].
pub fn run(
    engine: &mut dyn GptEngine,
    files: &GptFiles,
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(GptLine),
) -> Result<()> {
    let (plan, begun) = (engine.run().plan, engine.run().step);
    if let Some(json) = engine.run().tokens.tokenizer.to_json() {
        write_whole(&files.folder.join("tokenizer.json"), json.as_bytes())?;
    }
    let log = Lines::open(files.log(), HEAD, begun)?;
    let samples = Lines::open(files.folder.join("samples.txt"), "", begun)?;
    let mut kept = Some(begun).filter(|step| *step > 0);
    let (mut seconds, mut told) = (0.0, begun);
    while engine.run().step < plan.steps {
        let start = Instant::now();
        engine.step().map_err(|error| ended(error, kept, &files.checkpoint()))?;
        seconds += start.elapsed().as_secs_f64();
        let step = engine.run().step;
        let (last, asked) = (step == plan.steps, stop());
        let keeps = last || asked || step.is_multiple_of(files.every);
        // Of a model that has read short pieces only, a loss over whole contexts would say nothing.
        let looks = last || (keeps || step.is_multiple_of(LOOK)) && !asked && engine.run().reads_whole_contexts();
        let most = if last { files.last_look } else { files.look };
        let held_out = if looks { Some(engine.held_out_loss_of(most)?) } else { None };
        if keeps || step.is_multiple_of(LINE) {
            let progress = progress(engine, (step - told) as usize, seconds, held_out, files.peak);
            log.push(&progress.row(engine.name()))?;
            tell(GptLine::Progress(progress));
            (seconds, told) = (0.0, step);
        }
        if keeps {
            let checkpoint = engine.checkpoint()?;
            // The sample first: a run that goes on from the file has every line of before it.
            let sample = if asked { Ok(None) } else { sample(&checkpoint, &engine.device()) };
            if let Ok(Some(text)) = &sample {
                samples.push(&format!("{step}: {text}"))?;
            }
            checkpoint.write(&files.checkpoint())?;
            checkpoint.parameters.save(&files.folder, DType::BF16)?;
            kept = Some(step);
            if let Some(text) = sample? {
                tell(GptLine::Sample(step, text));
            }
            if asked {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The last so many steps, which took so long.
fn progress(
    engine: &dyn GptEngine,
    steps: usize,
    seconds: f64,
    held_out: Option<f64>,
    peak: Option<f64>,
) -> GptProgress {
    let run = engine.run();
    let mean = |all: &[f32]| all[all.len() - steps..].iter().map(|x| f64::from(*x)).sum::<f64>() / steps as f64;
    let (plan, each) = (run.plan, seconds / steps as f64);
    let rate = plan.tokens_a_step() as f64 / each;
    GptProgress {
        step: run.step,
        steps: plan.steps,
        tokens: run.step * plan.tokens_a_step() as u64,
        loss: mean(&run.losses),
        held_out,
        learning_rate: plan.rate_at(run.step - 1),
        norm: mean(&run.norms),
        ms: 1e3 * each,
        rate,
        utilisation: peak.map(|peak| 6.0 * plan.config.parameter_count() as f64 * rate / peak),
        left: each * (plan.steps - run.step) as f64,
    }
}

/// How the model goes on from a few words, with the same seed each time; `None` where its context has no room for them.
fn sample(checkpoint: &GptCheckpoint, device: &Device) -> Result<Option<String>> {
    let (prompt, most) = SAMPLE;
    let tokenizer = checkpoint.tokenizer.clone();
    let new = most.min(checkpoint.plan.config.n_ctx.saturating_sub(tokenizer.encode(prompt)?.len()));
    if new == 0 {
        return Ok(None);
    }
    let model = LanguageModel { gpt: Gpt::new(&checkpoint.parameters, device, DType::F32)?, tokenizer };
    let written = model.generate(&[prompt], new, Sampling::top_p(0.8, 0.9, 1), &mut |_, _| {})?;
    Ok(Some(format!("{prompt}{}", written[0].text.replace(['\n', '\r'], " "))))
}

/// What ended the run, and where it may go on.
fn ended(error: Error, kept: Option<u64>, checkpoint: &Path) -> Error {
    let Error::Invalid { what, .. } = error else { return error };
    match kept {
        Some(step) => Error::invalid(
            format!("{what}: the run was stopped, and {} holds it after step {step}", checkpoint.display()),
            "go on from there with --resume and a smaller --rate",
        ),
        None => Error::invalid(
            format!("{what}: the run was stopped before its first checkpoint"),
            "begin again with a smaller --rate",
        ),
    }
}
