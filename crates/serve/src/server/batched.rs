//! A Llama on the course's own kernels: all texts of a step are one matrix, keys and values stay in the scheduler's blocks.

use super::candle::{CandleText, parts};
use super::model::{SamplingParams, ServedModel, TextCodec, Turn};
use super::options::Options;
use crate::scheduler::{RequestId, Step};
use gpulab_measure::{Error, Result};
use gpulab_nn::Gpu;
use gpulab_nn::engine::{BatchEngine, BatchLimits, EngineConfig, RandomWeights};
use gpulab_nn::gpt::{Sampler, Sampling as Choice};
use gpulab_nn::llama::{GgufFile, UnpackedLlama};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// A Llama in bf16 on a GPU, before its cache is there.
pub struct BatchedModel {
    weights: Weights,
    text: Arc<dyn TextCodec>,
    gpu: Gpu,
}

enum Weights {
    Unpacked(UnpackedLlama),
    Random(RandomWeights),
}

/// The text of a model that was never trained: a byte is a token, and a token is written as its number.
struct NumberedTokens {
    name: String,
    config: EngineConfig,
}

/// A model with its cache, and how the tokens of each request are chosen; nothing where the likeliest is taken.
struct Served {
    engine: BatchEngine,
    samplers: HashMap<RequestId, Option<Sampler>>,
    /// Whether the log says that steps run without graphs.
    told: bool,
}

impl BatchedModel {
    /// Random weights in that shape: to measure, not to read. What it answers is numbers.
    pub fn random(name: &str, config: EngineConfig, gpu: &Gpu) -> BatchedModel {
        let weights = Weights::Random(RandomWeights { config, seed: 1 });
        BatchedModel { weights, text: Arc::new(NumberedTokens { name: name.to_string(), config }), gpu: gpu.clone() }
    }

    /// Loads a GGUF file of a Llama for texts of at most `context` tokens. Clients see the file's name.
    ///
    /// # Errors
    /// As [`GgufFile::open`], [`UnpackedLlama::load`] and [`gpulab_nn::llama::ChatModel::text_of`].
    pub fn load(path: &Path, gpu: &Gpu, context: usize) -> Result<BatchedModel> {
        let file = GgufFile::open(path)?;
        let weights = UnpackedLlama::load(&file, context)?;
        let config = weights.config();
        let text = CandleText::of_llama(&file, config.context, config.vocabulary)?;
        Ok(BatchedModel { weights: Weights::Unpacked(weights), text: Arc::new(text), gpu: gpu.clone() })
    }

    fn config(&self) -> EngineConfig {
        match &self.weights {
            Weights::Unpacked(weights) => weights.config(),
            Weights::Random(weights) => weights.config,
        }
    }

    /// The longest text that it reads, in tokens.
    pub fn context(&self) -> usize {
        self.config().context
    }

    /// Bytes of a token's keys and values.
    pub fn cache_bytes_a_token(&self) -> usize {
        self.config().cache_bytes(1)
    }

    /// The two halves that [`super::Server::start`] takes, with a cache of `options.blocks` blocks of `options.block_size` tokens.
    ///
    /// # Errors
    /// As [`BatchEngine::new`].
    pub fn with_cache(self, options: &Options) -> Result<(Box<dyn ServedModel>, Arc<dyn TextCodec>)> {
        let limits = BatchLimits {
            rows: options.limits.step_tokens,
            texts: options.limits.sequences,
            blocks: options.blocks,
            block_size: options.block_size,
        };
        let config = self.config();
        let engine = match &self.weights {
            Weights::Unpacked(weights) => BatchEngine::new(&self.gpu, &config, weights, limits),
            Weights::Random(weights) => BatchEngine::new(&self.gpu, &config, weights, limits),
        }?;
        Ok((Box::new(Served { engine, samplers: HashMap::new(), told: false }), self.text))
    }
}

impl std::fmt::Debug for BatchedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchedModel").field("config", &self.config()).finish_non_exhaustive()
    }
}

impl TextCodec for NumberedTokens {
    fn name(&self) -> &str {
        &self.name
    }

    fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    fn context(&self) -> usize {
        self.config.context
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn decode(&self, tokens: &[u32]) -> String {
        tokens.iter().map(|token| format!("{token} ")).collect()
    }

    fn chat(&self, _turns: &[Turn]) -> Result<String> {
        Err(Error::unsupported(
            format!("a chat with `{}`, whose weights are random", self.name),
            "let it continue a text, to measure: POST /v1/completions",
        ))
    }

    fn ends(&self, _token: u32) -> bool {
        false
    }
}

impl ServedModel for Served {
    fn begin(&mut self, id: RequestId, sampling: SamplingParams) -> Result<()> {
        let sampler = match sampling.temperature == 0.0 {
            true => None,
            false => Some(Sampler::new(Choice::top_p(sampling.temperature, sampling.top_p, sampling.seed), 0)?),
        };
        self.samplers.insert(id, sampler);
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<Vec<Result<u32>>> {
        self.engine.step(&parts(step))?;
        if self.engine.graph_failures() > 0 && !self.told {
            self.told = true;
            tracing::warn!(
                "the GPU has no memory for a CUDA graph: such steps are launched kernel by kernel, and take longer; \
                 give the server a smaller cache (--cache-mib), or end what else takes this GPU's memory"
            );
        }
        let likeliest = self.engine.likeliest()?;
        let mut chosen = Vec::new();
        let asked = step.pieces.iter().filter(|piece| piece.samples);
        for (at, (piece, likeliest)) in asked.zip(likeliest).enumerate() {
            chosen.push(match (self.samplers.get_mut(&piece.id), likeliest) {
                (None, _) => Err(Error::invalid("a request that never began", "send it again")),
                (_, None) => Err(Error::invalid(
                    "logits that are NaN",
                    "send another text; if that fails too, tell whoever runs this server: the model's weights are damaged",
                )),
                (Some(None), Some(token)) => Ok(token),
                (Some(Some(sampler)), _) => sampler.pick(&self.engine.logits(at)?),
            });
        }
        Ok(chosen)
    }

    fn end(&mut self, id: RequestId) {
        self.samplers.remove(&id);
    }

    fn cache_bytes(&self) -> u64 {
        self.engine.cache_bytes() as u64
    }
}
