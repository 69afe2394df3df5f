//! A model that answers: the weights, the tokenizer and the template of one GGUF file, and a conversation with it.

use super::{ChatMessage, ChatTemplate, GgufFile, Llama, WeightDtype, tokenizer};
use crate::gpt::generate::{self, Printed};
use crate::gpt::{CausalModel, Generated, KvCache, Sampler, Sampling, Text, Tokenizer};
use candle_core::Device;
use gpulab::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::Instant;
/// Where `make model` puts it, below `models/hub`.
const SMOLLM2: &str = "SmolLM2-135M-Instruct/SmolLM2-135M-Instruct.Q4_1.gguf";

/// Where `make model` puts SmolLM2-135M-Instruct, whether it lies there or not.
pub fn model_path() -> PathBuf {
    Text::folder().with_file_name("hub").join(SMOLLM2)
}

/// A model, and the tokenizer and chat template that belong to it.
#[derive(Debug, Clone)]
pub struct ChatModel {
    /// The model, on its device.
    pub llama: Llama,
    /// Between text and tokens.
    pub tokenizer: Tokenizer,
    /// From messages to the text that the model was tuned on; nothing where the file has none.
    pub template: Option<ChatTemplate>,
    /// After one of these tokens a text is over.
    ends: Vec<u32>,
}

impl ChatModel {
    /// SmolLM2-135M-Instruct, which `make model` has fetched.
    ///
    /// # Errors
    /// [`Error::File`] that says `make model` where it is missing; else as [`ChatModel::load`].
    pub fn smollm2(device: &Device, precision: WeightDtype) -> Result<ChatModel> {
        let path = model_path();
        match path.exists() {
            true => ChatModel::load(&path, device, precision),
            false => Err(Error::file(
                &path,
                "open the language model",
                "it was not fetched yet",
                "`make model` fetches it (98 MB), once; in its place lesson 40 takes the course's small GPT, and lesson 41 a practice model",
            )),
        }
    }

    /// Loads a GGUF file whose architecture is llama and whose tokenizer is byte-level BPE.
    ///
    /// # Errors
    /// As [`GgufFile::open`], [`Llama::load`] and [`ChatTemplate::new`].
    pub fn load(path: &Path, device: &Device, precision: WeightDtype) -> Result<ChatModel> {
        let file = GgufFile::open(path)?;
        let llama = Llama::load(&file, device, precision)?;
        let (tokenizer, ends, template) = ChatModel::text_of(&file)?;
        Ok(ChatModel { llama, tokenizer, template, ends })
    }

    /// A file's tokenizer, the tokens after which a text is over, and its chat template, where it has one.
    ///
    /// # Errors
    /// [`Error::File`] when the tokenizer is missing or of another kind; as [`ChatTemplate::new`].
    pub fn text_of(file: &GgufFile) -> Result<(Tokenizer, Vec<u32>, Option<ChatTemplate>)> {
        let (tokenizer, ends) = tokenizer::load(file)?;
        let template = match file.knows("tokenizer.chat_template") {
            true => Some(ChatTemplate::new(file.text("tokenizer.chat_template")?)?),
            false => None,
        };
        Ok((tokenizer, ends, template))
    }

    /// Goes on from the prompt, without a template, by at most `new` tokens, and prints the text line by line as it comes.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the prompt is empty or does not fit into the context; as [`Sampler::new`].
    pub fn write(&self, prompt: &str, new: usize, sampling: Sampling) -> Result<Generated> {
        generate::write(&self.llama, (&self.tokenizer, &self.ends), prompt, (new, sampling))
    }

    /// Goes on from several prompts at once, the shorter ones filled up on the left. `tell` hears of each token as it comes, with the
    /// number of its text.
    ///
    /// # Errors
    /// As [`ChatModel::write`].
    pub fn generate(
        &self,
        prompts: &[&str],
        new: usize,
        sampling: Sampling,
        tell: &mut dyn FnMut(usize, u32),
    ) -> Result<Vec<Generated>> {
        generate::generate(&self.llama, (&self.tokenizer, &self.ends), prompts, (new, sampling), tell)
    }

    /// Begins a conversation of at most `capacity` tokens, with what the model should keep to.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the file has no chat template, [`Error::Invalid`] when the context is shorter than `capacity`.
    pub fn chat(&self, system: Option<&str>, capacity: usize) -> Result<Chat> {
        if self.template.is_none() {
            return Err(Error::unsupported(
                "a chat with a model whose file has no chat template",
                "let it go on from a text with `write`, or take a model that was tuned to answer (Instruct)",
            ));
        }
        let most = self.llama.config().context;
        if capacity > most || capacity == 0 {
            return Err(Error::invalid(
                format!("a conversation of {capacity} tokens does not fit into the model's context of {most}"),
                format!("give 1 to {most} tokens"),
            ));
        }
        let messages = system.map(|text| ChatMessage::new("system", text)).into_iter().collect();
        Ok(Chat { messages, read: Vec::new(), cache: self.llama.empty_cache(vec![0], capacity)? })
    }
}

/// A conversation: what was said, and the keys and values of all of it, so that each answer reads only what is new.
#[derive(Debug)]
pub struct Chat {
    messages: Vec<ChatMessage>,
    /// The tokens whose keys and values are in the cache.
    read: Vec<u32>,
    cache: KvCache,
}

impl Chat {
    /// What was said so far.
    pub fn messages(&self) -> &[ChatMessage] {
        &self.messages
    }

    /// The cache of keys and values.
    pub fn cache(&self) -> &KvCache {
        &self.cache
    }

    /// Says something, and prints the answer line by line as it comes, at most `new` tokens of it.
    ///
    /// # Errors
    /// As [`Chat::ask`].
    pub fn say(&mut self, model: &ChatModel, text: &str, new: usize, sampling: Sampling) -> Result<Generated> {
        let mut printed = Printed::default();
        let answer = self.ask(model, text, new, sampling, &mut |token| printed.token(&model.tokenizer, token))?;
        printed.finish(&model.tokenizer);
        Ok(answer)
    }

    /// Says something; `tell` hears of each token of the answer as it comes. When it fails, the conversation is as it was before.
    ///
    /// # Errors
    /// [`Error::Invalid`] when nothing is said, or the conversation with `new` tokens has outgrown its capacity.
    pub fn ask(
        &mut self,
        model: &ChatModel,
        text: &str,
        new: usize,
        sampling: Sampling,
        tell: &mut dyn FnMut(u32),
    ) -> Result<Generated> {
        Sampler::new(sampling, 0)?;
        if text.trim().is_empty() || new == 0 {
            return Err(Error::invalid("nothing was said, or no token asked for", "say something, and ask for tokens"));
        }
        let template = model.template.as_ref().expect("`chat` has asked for it");
        let mut messages = self.messages.clone();
        messages.push(ChatMessage::new("user", text));
        let tokens = model.tokenizer.encode(&template.render(&messages)?)?;
        if tokens.len() + new > self.cache.capacity() {
            return Err(Error::invalid(
                format!(
                    "{} tokens of conversation and {new} new ones do not fit into this chat's {}",
                    tokens.len(),
                    self.cache.capacity()
                ),
                "begin a new one with `chat`, with more room, or ask for a shorter answer",
            ));
        }
        // All but the last token at most: the logits come from reading one.
        let alike = self.read.iter().zip(&tokens[..tokens.len() - 1]).take_while(|(old, new)| old == new).count();
        self.cache.truncate(alike);
        self.read.truncate(alike);
        let start = Instant::now();
        let mut logits = model.llama.extend(&tokens[alike..], &mut self.cache)?;
        self.read = tokens;

        let mut sampler = Sampler::new(sampling, 0)?;
        let (mut answer, mut first_ms, mut step_ms, mut last) = (Vec::new(), 0.0, Vec::new(), start);
        for step in 0..new {
            let token = sampler.pick(&logits.to_vec2::<f32>()?[0])?;
            let ms = 1e3 * last.elapsed().as_secs_f64();
            last = Instant::now();
            if step == 0 {
                first_ms = ms
            } else {
                step_ms.push(ms)
            }
            if model.ends.contains(&token) {
                break;
            }
            answer.push(token);
            tell(token);
            if step + 1 < new {
                logits = model.llama.step(&[token], &mut self.cache)?;
                self.read.push(token);
            }
        }
        let text = model.tokenizer.decode(&answer);
        messages.push(ChatMessage::new("assistant", &text));
        self.messages = messages;
        Ok(Generated { text, tokens: answer, first_ms, step_ms })
    }
}
