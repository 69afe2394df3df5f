//! What the server needs of a model: its text and its steps.

use crate::scheduler::{RequestId, Step};
use gpulab_measure::Result;

/// How tokens are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingParams {
    /// What logits are divided by; at 0 the likeliest token is taken.
    pub temperature: f64,
    /// Only the likeliest tokens that together have this probability are chosen from; 1 for all.
    pub top_p: f64,
    /// The same seed gives the same text.
    pub seed: u64,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// What is said.
    pub content: String,
}

/// A model's text: what all threads may ask for at any time.
pub trait TextCodec: Send + Sync {
    /// The model's name.
    fn name(&self) -> &str;

    /// Different tokens.
    fn vocabulary(&self) -> usize;

    /// The longest text that the model reads, in tokens.
    fn context(&self) -> usize;

    /// The text's tokens.
    ///
    /// # Errors
    /// When the tokenizer cannot read it.
    fn encode(&self, text: &str) -> Result<Vec<u32>>;

    /// The tokens' text; a letter of which bytes are missing becomes `�`.
    fn decode(&self, tokens: &[u32]) -> String;

    /// A conversation as the model reads it, up to where its answer begins.
    ///
    /// # Errors
    /// When the model's template does not allow these messages.
    fn chat(&self, turns: &[Turn]) -> Result<String>;

    /// Whether a text is over at this token.
    fn ends(&self, token: u32) -> bool;
}

/// A model's steps, which one thread makes. It holds the keys and values of the cache's blocks.
pub trait ServedModel: Send {
    /// A request begins; its tokens are to be chosen like this.
    ///
    /// # Errors
    /// When nothing can be chosen like this.
    fn begin(&mut self, id: RequestId, sampling: SamplingParams) -> Result<()>;

    /// Computes a step, writes the keys and values of its tokens into their blocks, and chooses a token after each piece that asks
    /// for one, in their order. A step that failed may come again, with fewer pieces.
    ///
    /// # Errors
    /// For the whole step when it cannot be computed, out of memory above all; within for one text, such as logits that are NaN.
    fn step(&mut self, step: &Step) -> Result<Vec<Result<u32>>>;

    /// A request is over.
    fn end(&mut self, id: RequestId);

    /// Bytes of all blocks of the cache.
    fn cache_bytes(&self) -> u64;
}
