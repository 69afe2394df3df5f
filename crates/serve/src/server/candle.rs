//! Models on candle: a Llama from a GGUF file, or a GPT-2 checkpoint, such as the course's own. Keys and values lie in candle tensors,
//! in the very blocks that the scheduler hands out.

use super::model::{SamplingParams, ServedModel, TextCodec, Turn};
use super::options::Options;
use crate::scheduler::{RequestId, Step};
use gpulab_measure::{Error, Result};
use gpulab_nn::gpt::{Gpt, LanguageModel, Sampler, Sampling as Choice, Tokenizer};
use gpulab_nn::llama::{ChatMessage, ChatModel, ChatTemplate, GgufFile, Llama, WeightDtype};
use gpulab_nn::{DType, Device, PagedCache, TextPart};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// A model that was loaded, before its cache is there.
pub struct CandleModel {
    network: Network,
    text: CandleText,
}

enum Network {
    Llama(Llama),
    Gpt(Gpt),
}

#[derive(Debug)]
pub(super) struct CandleText {
    name: String,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    ends: Vec<u32>,
    context: usize,
    vocabulary: usize,
}

/// A model, its cache, and how the tokens of each request are chosen.
struct Served {
    network: Network,
    cache: PagedCache,
    samplers: HashMap<RequestId, Sampler>,
}

impl CandleModel {
    /// Loads a GGUF file of a Llama, in the file's own bits, or the folder of a GPT-2 checkpoint, in f32. Clients see the file's or
    /// folder's name.
    ///
    /// # Errors
    /// As [`ChatModel::load`] and [`LanguageModel::load`].
    pub fn load(path: &Path, device: &Device) -> Result<CandleModel> {
        if path.is_dir() {
            let LanguageModel { gpt, tokenizer } = LanguageModel::load(path, device, DType::F32)?;
            let config = gpt.config();
            let text = CandleText {
                name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                ends: tokenizer.end().into_iter().collect(),
                tokenizer,
                template: None,
                context: config.n_ctx,
                vocabulary: config.vocab_size,
            };
            return Ok(CandleModel { network: Network::Gpt(gpt), text });
        }
        let file = GgufFile::open(path)?;
        let llama = Llama::load(&file, device, WeightDtype::AsStored)?;
        let text = CandleText::of_llama(&file, llama.config().context, llama.config().vocabulary)?;
        Ok(CandleModel { network: Network::Llama(llama), text })
    }

    /// The longest text that it reads, in tokens.
    pub fn context(&self) -> usize {
        self.text.context
    }

    /// Bytes of a token's keys and values.
    pub fn cache_bytes_a_token(&self) -> usize {
        match &self.network {
            Network::Llama(llama) => llama.config().cache_bytes_a_token(DType::F32.size_in_bytes()),
            Network::Gpt(gpt) => 2 * gpt.config().n_layer * gpt.config().n_embd * gpt.dtype().size_in_bytes(),
        }
    }

    /// The two halves that [`super::Server::start`] takes, with a cache of `options.blocks` blocks of `options.block_size` tokens.
    ///
    /// # Errors
    /// What candle says, out of memory above all.
    pub fn with_cache(self, options: &Options) -> Result<(Box<dyn ServedModel>, Arc<dyn TextCodec>)> {
        let cache = match &self.network {
            Network::Llama(llama) => llama.paged_cache(options.blocks, options.block_size)?,
            Network::Gpt(gpt) => gpt.paged_cache(options.blocks, options.block_size)?,
        };
        Ok((Box::new(Served { network: self.network, cache, samplers: HashMap::new() }), Arc::new(self.text)))
    }
}

/// A step's pieces as models take them.
pub(super) fn parts(step: &Step) -> Vec<TextPart<'_>> {
    let pieces = step.pieces.iter();
    pieces
        .map(|piece| TextPart {
            tokens: &piece.tokens,
            first: piece.first,
            blocks: &piece.blocks,
            samples: piece.samples,
        })
        .collect()
}

impl ServedModel for Served {
    fn begin(&mut self, id: RequestId, sampling: SamplingParams) -> Result<()> {
        let choice = match sampling.temperature == 0.0 {
            true => Choice::Greedy,
            false => Choice::top_p(sampling.temperature, sampling.top_p, sampling.seed),
        };
        self.samplers.insert(id, Sampler::new(choice, 0)?);
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<Vec<Result<u32>>> {
        let parts = parts(step);
        let logits = match &self.network {
            Network::Llama(llama) => llama.paged_step(&parts, &self.cache)?,
            Network::Gpt(gpt) => gpt.paged_step(&parts, &self.cache)?,
        };
        let asked = step.pieces.iter().filter(|piece| piece.samples);
        let pick = |(id, logits): (RequestId, Vec<f32>)| match self.samplers.get_mut(&id) {
            Some(sampler) => sampler.pick(&logits),
            None => Err(Error::invalid("a request that never began", "send it again")),
        };
        Ok(asked.map(|piece| piece.id).zip(logits.to_vec2()?).map(pick).collect())
    }

    fn end(&mut self, id: RequestId) {
        self.samplers.remove(&id);
    }

    fn cache_bytes(&self) -> u64 {
        self.cache.bytes() as u64
    }
}

impl CandleText {
    /// Of a GGUF file.
    pub(super) fn of_llama(file: &GgufFile, context: usize, vocabulary: usize) -> Result<CandleText> {
        let name = file.path().file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (tokenizer, ends, template) = ChatModel::text_of(file)?;
        Ok(CandleText { name, tokenizer, template, ends, context, vocabulary })
    }
}

impl TextCodec for CandleText {
    fn name(&self) -> &str {
        &self.name
    }

    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn context(&self) -> usize {
        self.context
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.tokenizer.encode(text)
    }

    fn decode(&self, tokens: &[u32]) -> String {
        self.tokenizer.decode(tokens)
    }

    fn chat(&self, turns: &[Turn]) -> Result<String> {
        let Some(template) = &self.template else {
            return Err(Error::unsupported(
                format!("a chat with `{}`, which was not tuned to answer", self.name),
                "let it continue a text: POST /v1/completions",
            ));
        };
        let messages: Vec<ChatMessage> = turns.iter().map(|turn| ChatMessage::new(&turn.role, &turn.content)).collect();
        template.render(&messages)
    }

    fn ends(&self, token: u32) -> bool {
        self.ends.contains(&token)
    }
}
