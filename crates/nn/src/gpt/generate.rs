//! A model that is loaded once and writes text, one text or a batch of them.

use super::{Gpt, KvCache, LineWrapper, Text, TextStream, Tokenizer, Weights};
use candle_core::{DType, Device, Tensor};
use gpulab::cpu::random::mix;
use gpulab::error::{Error, Result};
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
    pub fn load(folder: &Path, device: &Device, dtype: DType) -> Result<LanguageModel> {
        let weights = Weights::load(folder)?;
        let tokenizer = Tokenizer::load(folder, weights.config())?;
        Ok(LanguageModel { gpt: Gpt::new(&weights, device, dtype)?, tokenizer })
    }

    /// Goes on from the prompt by at most `new` tokens, and prints the text line by line as it comes, the prompt first.
    ///
    /// # Errors
    /// As [`Gpt::prefill`] (a prompt that does not fit into the context) and [`Sampler::new`].
    pub fn write(&self, prompt: &str, new: usize, sampling: Sampling) -> Result<Generated> {
        let ends: Vec<u32> = self.tokenizer.end().into_iter().collect();
        write(&self.gpt, (&self.tokenizer, &ends), prompt, (new, sampling))
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
        let ends: Vec<u32> = self.tokenizer.end().into_iter().collect();
        generate(&self.gpt, (&self.tokenizer, &ends), prompts, (new, sampling), tell)
    }
}

/// Text as it is generated, in whole lines: a notebook shows no others.
pub(crate) struct Printed {
    stream: TextStream,
    lines: LineWrapper,
}

impl Default for Printed {
    fn default() -> Printed {
        Printed { stream: TextStream::default(), lines: LineWrapper::new(WIDTH) }
    }
}

impl Printed {
    pub(crate) fn push(&mut self, text: &str) {
        self.lines.push(text).iter().for_each(show);
    }

    pub(crate) fn token(&mut self, tokenizer: &Tokenizer, token: u32) {
        let text = self.stream.push(tokenizer, token);
        self.push(&text);
    }

    pub(crate) fn finish(mut self, tokenizer: &Tokenizer) {
        let text = self.stream.finish(tokenizer);
        self.push(&text);
        self.lines.finish().iter().for_each(show);
    }
}

/// A reader that ended (`gpulab generate … | head -1`) is no reason to panic.
fn show(line: &String) {
    drop(writeln!(std::io::stdout(), "{line}"));
}

// ----------------------------------------------------------------------
// Token after token, for every model that keeps its keys and values.

/// A model that reads prompts into a cache, and then a token of each text at a time.
pub trait CausalModel {
    /// Reads the prompts, with room for `new` tokens behind them: the cache, and the logits of what may come next.
    ///
    /// # Errors
    /// When a prompt is empty, names unknown tokens, or does not fit; what candle says.
    fn prefill(&self, prompts: &[Vec<u32>], new: usize) -> Result<(KvCache, Tensor)>;

    /// One more token of each text: the logits of what may come after it, `[texts, vocabulary]` in f32.
    ///
    /// # Errors
    /// When there are not as many tokens as texts, or the cache is full.
    fn step(&self, tokens: &[u32], cache: &mut KvCache) -> Result<Tensor>;
}

impl CausalModel for Gpt {
    fn prefill(&self, prompts: &[Vec<u32>], new: usize) -> Result<(KvCache, Tensor)> {
        Gpt::prefill(self, prompts, new)
    }

    fn step(&self, tokens: &[u32], cache: &mut KvCache) -> Result<Tensor> {
        Gpt::step(self, tokens, cache)
    }
}

/// Goes on from one prompt, and prints the text line by line as it comes, the prompt first.
pub(crate) fn write(
    model: &dyn CausalModel,
    (tokenizer, ends): (&Tokenizer, &[u32]),
    prompt: &str,
    plan: (usize, Sampling),
) -> Result<Generated> {
    let mut printed = Printed::default();
    printed.push(prompt);
    let all = generate(model, (tokenizer, ends), &[prompt], plan, &mut |_, token| printed.token(tokenizer, token))?;
    printed.finish(tokenizer);
    Ok(all.into_iter().next().expect("one prompt, one text"))
}

/// Goes on from several prompts at once. A text is over at one of `ends`. `tell` hears of each token as it comes, with the number of
/// its text.
pub(crate) fn generate(
    model: &dyn CausalModel,
    (tokenizer, ends): (&Tokenizer, &[u32]),
    prompts: &[&str],
    (new, sampling): (usize, Sampling),
    tell: &mut dyn FnMut(usize, u32),
) -> Result<Vec<Generated>> {
    let prompts = prompts.iter().map(|prompt| tokenizer.encode(prompt)).collect::<Result<Vec<_>>>()?;
    let texts = prompts.len();
    Sampler::new(sampling, 0)?;
    let mut start = Instant::now();
    let (mut cache, mut logits) = model.prefill(&prompts, new)?;
    let mut samplers = (0..texts).map(|text| Sampler::new(sampling, text)).collect::<Result<Vec<_>>>()?;
    let mut all = vec![Vec::new(); texts];
    let mut over = vec![false; texts];
    let (mut first_ms, mut step_ms) = (0.0, Vec::new());
    for step in 0..new {
        let tokens = choose(&mut samplers, &logits)?;
        let ms = 1e3 * start.elapsed().as_secs_f64();
        if step == 0 {
            first_ms = ms
        } else {
            step_ms.push(ms)
        }
        for (text, token) in tokens.iter().copied().enumerate().filter(|(text, _)| !over[*text]).collect::<Vec<_>>() {
            over[text] = ends.contains(&token);
            if !over[text] {
                all[text].push(token);
                tell(text, token);
            }
        }
        if step + 1 == new || over.iter().all(|over| *over) {
            break;
        }
        start = Instant::now();
        logits = model.step(&tokens, &mut cache)?;
    }
    let generated =
        |tokens: Vec<u32>| Generated { text: tokenizer.decode(&tokens), tokens, first_ms, step_ms: step_ms.clone() };
    Ok(all.into_iter().map(generated).collect())
}

/// A token for each text: the logits come to the host, which waits for the device by that.
fn choose(samplers: &mut [Sampler], logits: &Tensor) -> Result<Vec<u32>> {
    let rows = logits.to_vec2::<f32>()?;
    samplers.iter_mut().zip(rows).map(|(sampler, row)| sampler.pick(&row)).collect()
}

// ----------------------------------------------------------------------
// Which token comes next: from logits to one of them.

/// How the next token is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sampling {
    /// Always the likeliest.
    Greedy,
    /// At random, by probability.
    Random {
        /// What logits are divided by: below 1 likely tokens become likelier, above 1 all become alike.
        temperature: f64,
        /// Only the likeliest tokens that together have this probability are chosen from (the nucleus): 1 for all.
        top_p: f64,
        /// The same seed gives the same text.
        seed: u64,
    },
}

impl Sampling {
    /// At random from the likeliest tokens that together have probability `top_p`.
    pub fn top_p(temperature: f64, top_p: f64, seed: u64) -> Sampling {
        Sampling::Random { temperature, top_p, seed }
    }

    fn checked(self) -> Result<Sampling> {
        if let Sampling::Random { temperature, top_p, .. } = self {
            let sound = temperature.is_finite() && temperature > 0.0 && (0.0..=1.0).contains(&top_p);
            if !sound {
                return Err(Error::invalid(
                    format!("a temperature of {temperature} with top_p {top_p} chooses nothing"),
                    "give a temperature above 0 and a top_p from 0 to 1, or Sampling::Greedy",
                ));
            }
        }
        Ok(self)
    }
}

/// Chooses tokens, one after the other.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    random: SplitMix64,
}

impl Sampler {
    /// For the text with that number in a batch: each has random numbers of its own, whatever texts are beside it.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] when the temperature is not above 0, or `top_p` not from 0 to 1.
    pub fn new(sampling: Sampling, text: usize) -> Result<Sampler> {
        let seed = match sampling.checked()? {
            Sampling::Greedy => 0,
            Sampling::Random { seed, .. } => SplitMix64::new(seed ^ (text as u64) << 32).bits(),
        };
        Ok(Sampler { sampling, random: SplitMix64::new(seed) })
    }

    /// The next token, from a logit for each.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] when there are none, or one is NaN.
    pub fn pick(&mut self, logits: &[f32]) -> Result<u32> {
        if logits.is_empty() || logits.iter().any(|logit| logit.is_nan()) {
            return Err(Error::invalid(
                "the model's logits are NaN",
                "its weights are damaged, or too large for this dtype: load it as F32 or BF16",
            ));
        }
        Ok(match self.sampling {
            Sampling::Greedy => likeliest(logits),
            Sampling::Random { temperature, top_p, .. } => {
                let nucleus = nucleus(&probabilities(logits, temperature), top_p);
                let mut left = self.random.unit() * nucleus.iter().map(|(_, p)| p).sum::<f64>();
                let found = nucleus.iter().find(|(_, p)| {
                    left -= p;
                    left < 0.0
                });
                // Rounding may leave a trace of `left` behind the last one.
                found.unwrap_or(&nucleus[nucleus.len() - 1]).0
            }
        })
    }
}

/// The first of the largest.
fn likeliest(logits: &[f32]) -> u32 {
    let first = |best: usize, i: usize| if logits[i] > logits[best] { i } else { best };
    (1..logits.len()).fold(0, first) as u32
}

/// softmax(logits / temperature).
pub fn probabilities(logits: &[f32], temperature: f64) -> Vec<f64> {
    let most = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let exps: Vec<f64> = logits.iter().map(|logit| ((f64::from(*logit) - most) / temperature).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.into_iter().map(|x| x / sum).collect()
}

/// The likeliest tokens that together have at least the probability `top_p`, likeliest first, and never none.
pub fn nucleus(probabilities: &[f64], top_p: f64) -> Vec<(u32, f64)> {
    let mut sorted: Vec<(u32, f64)> = (0..).zip(probabilities.iter().copied()).collect();
    // A stable sort: of two that are equally likely, the first stays first.
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut sum = 0.0;
    let inside = sorted.iter().take_while(|(_, p)| {
        let before = sum;
        sum += p;
        before < top_p
    });
    let count = inside.count().max(1);
    sorted.truncate(count);
    sorted
}

// ----------------------------------------------------------------------
// Random numbers that a seed names, the same on every machine.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
#[derive(Debug, Clone, PartialEq)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The numbers of that seed.
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64 { state: seed }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// The next number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 5] = [0.0, 2.0, -1.0, 1.0, -3.0];

    fn picked(sampling: Sampling, count: usize) -> Vec<u32> {
        let mut sampler = Sampler::new(sampling, 0).unwrap();
        (0..count).map(|_| sampler.pick(&LOGITS).unwrap()).collect()
    }

    #[test]
    fn greedy_is_what_a_narrow_nucleus_and_a_low_temperature_come_to() {
        assert_eq!(picked(Sampling::Greedy, 3), [1, 1, 1]);
        assert_eq!(picked(Sampling::top_p(1.0, 0.0, 1), 100), picked(Sampling::Greedy, 100));
        assert_eq!(picked(Sampling::top_p(1e-3, 1.0, 1), 100), picked(Sampling::Greedy, 100));
    }

    #[test]
    fn a_seed_names_its_tokens() {
        assert_eq!(picked(Sampling::top_p(1.0, 1.0, 7), 100), picked(Sampling::top_p(1.0, 1.0, 7), 100));
        assert_ne!(picked(Sampling::top_p(1.0, 1.0, 7), 100), picked(Sampling::top_p(1.0, 1.0, 8), 100));
        let mut other = Sampler::new(Sampling::top_p(1.0, 1.0, 7), 1).unwrap();
        let second: Vec<u32> = (0..100).map(|_| other.pick(&LOGITS).unwrap()).collect();
        assert_ne!(second, picked(Sampling::top_p(1.0, 1.0, 7), 100));
    }

    #[test]
    fn tokens_come_as_often_as_their_probability_says_and_none_from_outside_the_nucleus() {
        let all = probabilities(&LOGITS, 1.0);
        assert!((all.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        for top_p in [0.3, 0.7, 0.9, 1.0] {
            let inside = nucleus(&all, top_p);
            let weight: f64 = inside.iter().map(|(_, p)| p).sum();
            assert!(weight >= top_p - 1e-12 && weight - inside[inside.len() - 1].1 < top_p);
            let picked = picked(Sampling::top_p(1.0, top_p, 5), 20_000);
            for token in 0..5u32 {
                let share = picked.iter().filter(|own| **own == token).count() as f64 / 20_000.0;
                let wanted = inside.iter().find(|(own, _)| *own == token).map_or(0.0, |(_, p)| p / weight);
                assert!((share - wanted).abs() < 0.015, "{top_p}: {token} came {share}, not {wanted}");
                assert!(wanted > 0.0 || share == 0.0);
            }
        }
    }

    #[test]
    fn what_chooses_nothing_is_refused() {
        for (temperature, top_p) in [(0.0, 0.5), (-1.0, 0.5), (f64::NAN, 0.5), (1.0, 1.5), (1.0, f64::NAN)] {
            let error = Sampler::new(Sampling::top_p(temperature, top_p, 1), 0).unwrap_err().to_string();
            assert!(error.contains("chooses nothing") && error.contains("\nnext: "), "{error}");
        }
        let mut greedy = Sampler::new(Sampling::Greedy, 0).unwrap();
        assert!(greedy.pick(&[0.0, f32::NAN]).is_err() && greedy.pick(&[]).is_err());
        // Infinite logits are no damage: a mask makes them.
        assert_eq!(greedy.pick(&[f32::NEG_INFINITY, -5.0]).unwrap(), 1);
    }

    #[test]
    fn the_generator_is_splitmix64() {
        let mut random = SplitMix64::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.unit())));
    }
}
