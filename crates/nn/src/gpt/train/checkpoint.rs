//! What a run needs to go on, as a file that every engine writes and reads.

use super::plan::GptTrainConfig;
use super::run::GptRun;
use crate::gpt::{Config, Text, Tokenizer, Tokens, Weights};
use crate::tensors::{HostTensor, TensorFile, write_tensors};
use candle_core::DType;
use gpulab::error::{Error, Result};
use gpulab_kernels::gpt_step::ChosenAlgorithms;
use std::collections::BTreeMap;
use std::path::Path;

/// What the names of both moments begin with.
const MOMENTS: [&str; 2] = ["adamw.m.", "adamw.v."];

/// All that a run needs to go on, on the host. Its file is in the safetensors format: parameters in f32 by GPT-2's names and in the shapes of
/// [`Config::parameters`], the moments by the same names behind `adamw.m.` and `adamw.v.`, `losses`, and plan, step and tokenizer as
/// metadata.
///
/// # Examples
/// ```no_run
/// use gpulab_nn::gpt::train::GptCheckpoint;
/// let checkpoint = GptCheckpoint::read("results/gpt/checkpoint.safetensors".as_ref())?;
/// println!("step {} of {}, by {}", checkpoint.step, checkpoint.plan.steps, checkpoint.engine);
/// # Ok::<(), gpulab::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct GptCheckpoint {
    /// What is trained, how long and how.
    pub plan: GptTrainConfig,
    /// Steps that were made.
    pub step: u64,
    /// The loss of each step.
    pub losses: Vec<f32>,
    /// [`Tokens::fingerprint`] of what it learned from.
    pub text: String,
    /// How the text became tokens.
    pub tokenizer: Tokenizer,
    /// Whose steps they were: `candle`, `kernels` or `operators`.
    pub engine: String,
    /// The parameters.
    pub parameters: Weights,
    /// AdamW's first moments, each in its parameter's shape.
    pub m: Weights,
    /// AdamW's second moments.
    pub v: Weights,
    /// How the kernels' products were computed: with these algorithms the next steps have the same bits.
    pub algorithms: Option<ChosenAlgorithms>,
}

impl GptCheckpoint {
    /// A run as it stands: parameters and both moments.
    pub(super) fn of(run: &GptRun, engine: &str, [parameters, m, v]: [Weights; 3]) -> GptCheckpoint {
        GptCheckpoint {
            plan: run.plan,
            step: run.step,
            losses: run.losses.clone(),
            text: run.tokens.fingerprint.clone(),
            tokenizer: run.tokens.tokenizer.clone(),
            engine: engine.to_string(),
            parameters,
            m,
            v,
            algorithms: None,
        }
    }

    /// Where the run stood, on the text that it learned from.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another text, and as [`Tokens::new`] and [`GptRun::new`].
    pub fn run(&self, text: &Text) -> Result<GptRun> {
        let tokens = Tokens::new(text, self.tokenizer.clone())?;
        if self.text != tokens.fingerprint {
            return Err(Error::invalid(
                "the checkpoint's run learned from another text than the one given",
                "name its text with --text, or begin again without --resume",
            ));
        }
        let (step, losses) = (self.step, self.losses.clone());
        Ok(GptRun { step, losses, ..GptRun::new(self.plan, tokens)? })
    }

    /// Writes it into one file, whole or not at all.
    ///
    /// # Errors
    /// As [`TensorFile::write`].
    pub fn write(&self, path: &Path) -> Result<()> {
        let losses = HostTensor::new(&[self.losses.len()], self.losses.clone());
        let parts = [("", &self.parameters), (MOMENTS[0], &self.m), (MOMENTS[1], &self.v)];
        let tensors = parts
            .into_iter()
            .flat_map(|(prefix, all)| all.iter().map(move |(name, tensor)| (format!("{prefix}{name}"), tensor)));
        let all = tensors.chain([("losses".to_string(), &losses)]);
        write_tensors(all, &self.metadata(), path, DType::F32)
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        let GptTrainConfig { config, batch, accumulate, steps, rate, warm_up, clip, short, dtype, seed, deterministic } =
            self.plan;
        // `{:e}` gives the same f64 back.
        let numbers = [("rate", format!("{rate:e}")), ("clip", format!("{clip:e}")), ("short", format!("{short:e}"))];
        let counts = [
            ("step", self.step),
            ("batch", batch as u64),
            ("accumulate", accumulate as u64),
            ("steps", steps),
            ("warm_up", warm_up),
            ("seed", seed),
        ];
        let words = [
            ("config", config.to_json().to_string()),
            ("text", self.text.clone()),
            ("dtype", dtype.as_str().to_string()),
            ("tokenizer", self.tokenizer.to_json().unwrap_or_default()),
            ("engine", self.engine.clone()),
            ("deterministic", deterministic.to_string()),
        ];
        let algorithms = self.algorithms.iter().map(|chosen| ("algorithms", chosen.to_string()));
        let counts = counts.map(|(name, count)| (name, count.to_string()));
        counts
            .into_iter()
            .chain(numbers)
            .chain(words)
            .chain(algorithms)
            .map(|(name, value)| (name.to_string(), value))
            .collect()
    }

    /// Reads what [`GptCheckpoint::write`] wrote.
    ///
    /// # Errors
    /// As [`TensorFile::read`]; [`Error::Invalid`] when it is no checkpoint of a run, or a tensor is missing or has another shape.
    pub fn read(path: &Path) -> Result<GptCheckpoint> {
        let file = TensorFile::read(path)?;
        let wrong = |what: String| {
            Error::invalid(
                format!("{}: {what}", path.display()),
                "name the checkpoint.safetensors that `gpulab train-gpt` wrote, or begin again without --resume",
            )
        };
        let word = |name: &str| file.metadata.get(name).ok_or_else(|| wrong(format!("its metadata has no `{name}`")));
        let number = |name: &str| word(name)?.parse::<f64>().map_err(|_| wrong(format!("`{name}` is no number")));
        let tokenizer = match word("tokenizer")?.as_str() {
            "" => Tokenizer::Bytes,
            json => Tokenizer::from_json(json)?,
        };
        let config = serde_json::from_str(word("config")?).map_err(|_| wrong("`config` is no JSON".to_string()))?;
        let plan = GptTrainConfig {
            config: Config::from_json(&config)?,
            batch: number("batch")? as usize,
            accumulate: number("accumulate")? as usize,
            steps: number("steps")? as u64,
            rate: number("rate")?,
            warm_up: number("warm_up")? as u64,
            clip: number("clip")?,
            short: number("short")?,
            dtype: if word("dtype")? == DType::BF16.as_str() { DType::BF16 } else { DType::F32 },
            seed: word("seed")?.parse().map_err(|_| wrong("`seed` is no number".to_string()))?,
            // Files of before there was a choice have none.
            deterministic: file.metadata.get("deterministic").is_some_and(|word| word == "true"),
        };
        let (text, step) = (word("text")?.clone(), number("step")? as u64);
        // Of before there was another one.
        let engine = file.metadata.get("engine").map_or("candle", String::as_str).to_string();
        let mut parts = [(); 3].map(|()| TensorFile::default());
        let mut losses = Vec::new();
        for (name, tensor) in file.tensors {
            let moment = MOMENTS.iter().position(|prefix| name.starts_with(prefix));
            match moment {
                Some(at) => parts[at + 1].tensors.insert(name[MOMENTS[at].len()..].to_string(), tensor),
                None if name == "losses" => {
                    losses = tensor.values;
                    None
                }
                None => parts[0].tensors.insert(name, tensor),
            };
        }
        let [parameters, m, v] = parts.map(|part| Weights::from_file(plan.config, part));
        let (parameters, m, v) = (parameters?, m?, v?);
        let algorithms = file.metadata.get("algorithms").map(|text| text.parse()).transpose()?;
        Ok(GptCheckpoint { plan, step, losses, text, tokenizer, engine, parameters, m, v, algorithms })
    }
}
