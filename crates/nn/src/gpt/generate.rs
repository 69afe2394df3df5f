//! A model that is loaded once and writes text, one text or a batch of them.

use super::{Gpt, Lines, Sampler, Sampling, Text, TextStream, Tokenizer, Weights};
use gpulab::error::Result;
use candle_core::{DType, Device, Tensor};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// Letters in a line of streamed text.
const WIDTH: usize = 100;

/// A model and the tokenizer that belongs to it.
#[derive(Debug, Clone)]
pub struct LanguageModel {
    /// The model, on its device.
    pub gpt: Gpt,
    /// Between text and tokens.
    pub tokenizer: Tokenizer,
}

/// What a model wrote, and how long it took.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// The new text, without the prompt.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Milliseconds until the first token was there: reading the prompt.
    pub first_ms: f64,
    /// Milliseconds of each token after it.
    pub step_ms: Vec<f64>,
}

impl LanguageModel {
    /// The course's own small model, which has read the course's text: `models/course`.
    ///
    /// # Errors
    /// As [`LanguageModel::load`].
    pub fn course(device: &Device) -> Result<LanguageModel> {
        LanguageModel::load(&Text::folder(), device, DType::F32)
    }

    /// Loads a checkpoint's folder: `config.json`, `model.safetensors`, and `tokenizer.json` unless the model reads bytes. Real GPT-2
    /// checkpoints from the Hugging Face hub are such folders.
    ///
    /// # Errors
    /// As [`Weights::load`], [`Tokenizer::load`] and [`Gpt::new`].
    pub fn load(folder: &Path, device: &Device, kind: DType) -> Result<LanguageModel> {
        let weights = Weights::load(folder)?;
        let tokenizer = Tokenizer::load(folder, weights.config())?;
        Ok(LanguageModel { gpt: Gpt::new(&weights, device, kind)?, tokenizer })
    }

    /// Goes on from the prompt by at most `new` tokens, and prints the text line by line as it comes, the prompt first.
    ///
    /// # Errors
    /// As [`Gpt::read`] (a prompt that does not fit into the context) and [`Sampler::new`].
    pub fn write(&self, prompt: &str, new: usize, sampling: Sampling) -> Result<Generated> {
        let (mut stream, mut lines) = (TextStream::default(), Lines::new(WIDTH));
        // A reader that ended (`gpulab generate … | head -1`) is no reason to panic.
        let print = |line: &String| drop(writeln!(std::io::stdout(), "{line}"));
        lines.push(prompt).iter().for_each(print);
        let all = self.generate(&[prompt], new, sampling, &mut |_, token| {
            lines.push(&stream.push(&self.tokenizer, token)).iter().for_each(print);
        })?;
        lines.push(&stream.finish(&self.tokenizer)).iter().for_each(print);
        lines.finish().iter().for_each(print);
        Ok(all.into_iter().next().expect("one prompt, one text"))
    }

    /// Goes on from several prompts at once. `tell` hears of each token as it comes, with the number of its text.
    ///
    /// # Errors
    /// As [`LanguageModel::write`].
    pub fn generate(
        &self,
        prompts: &[&str],
        new: usize,
        sampling: Sampling,
        tell: &mut dyn FnMut(usize, u32),
    ) -> Result<Vec<Generated>> {
        let prompts = prompts.iter().map(|prompt| self.tokenizer.encode(prompt)).collect::<Result<Vec<_>>>()?;
        let mut samplers = (0..prompts.len()).map(|text| Sampler::new(sampling, text)).collect::<Result<Vec<_>>>()?;
        let mut all = vec![Vec::new(); prompts.len()];
        let mut over = vec![false; prompts.len()];
        let (mut first_ms, mut step_ms, mut start) = (0.0, Vec::new(), Instant::now());
        let (mut cache, mut logits) = self.gpt.read(&prompts, new)?;
        for step in 0..new {
            let tokens = choose(&mut samplers, &logits)?;
            let ms = 1e3 * start.elapsed().as_secs_f64();
            if step == 0 {
                first_ms = ms
            } else {
                step_ms.push(ms)
            }
            for (text, token) in tokens.iter().copied().enumerate().filter(|(text, _)| !over[*text]).collect::<Vec<_>>()
            {
                over[text] = Some(token) == self.tokenizer.end();
                if !over[text] {
                    all[text].push(token);
                    tell(text, token);
                }
            }
            if step + 1 == new || over.iter().all(|over| *over) {
                break;
            }
            start = Instant::now();
            logits = self.gpt.step(&tokens, &mut cache)?;
        }
        let generated = |tokens: Vec<u32>| Generated {
            text: self.tokenizer.decode(&tokens),
            tokens,
            first_ms,
            step_ms: step_ms.clone(),
        };
        Ok(all.into_iter().map(generated).collect())
    }
}

/// A token for each text: the logits come to the host, which waits for the device by that.
fn choose(samplers: &mut [Sampler], logits: &Tensor) -> Result<Vec<u32>> {
    let rows = logits.to_vec2::<f32>()?;
    samplers.iter_mut().zip(rows).map(|(sampler, row)| sampler.pick(&row)).collect()
}
