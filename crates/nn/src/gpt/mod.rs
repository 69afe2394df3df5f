//! GPT-2's architecture on candle: loading, training on the course's own text, generating.

mod decode;
pub(crate) mod generate;
mod hub;
mod locked;
pub(crate) mod model;
mod operators;
#[cfg(test)]
mod tests;
mod text;
pub mod train;
mod weights;

pub use generate::{CausalModel, Generated, LanguageModel, Sampler, Sampling, SplitMix64, nucleus, probabilities};
pub use hub::fetch;
pub use locked::{LockedRun, locked_source};
pub use model::{Gpt, KvCache};
pub use operators::CandleOperators;
pub use text::{LineWrapper, Text, TextStream, Tokenizer, Tokens, best_bigram_loss, unigram_loss};
pub use weights::{Config, Weights};
