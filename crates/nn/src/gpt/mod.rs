//! GPT-2's architecture on candle: loading, training on the course's own text, generating.

pub mod decode;
mod generate;
mod hub;
mod model;
#[cfg(test)]
mod tests;
mod text;
pub mod train;
mod weights;

pub use generate::{Generated, LanguageModel, Sampler, Sampling, SplitMix64, nucleus, probabilities};
pub use hub::fetch;
pub use model::{Gpt, KvCache};
pub use text::{LineWrapper, Text, TextStream, Tokenizer, best_bigram_loss, unigram_loss};
pub use weights::{Config, Weights};
