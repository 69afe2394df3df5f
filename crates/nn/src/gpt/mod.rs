//! GPT-2's architecture on candle: loading, training on the course's own text, generating.

mod cache;
mod config;
pub mod decode;
mod generate;
mod hub;
mod layers;
mod model;
mod ngram;
mod random;
mod room;
mod sample;
mod stream;
#[cfg(test)]
mod tests;
mod text;
mod tokenizer;
pub mod train;
mod weights;

pub use cache::Cache;
pub use config::Config;
pub use generate::{Generated, LanguageModel};
pub use hub::fetch;
pub use model::Gpt;
pub use ngram::{best_bigram_loss, bigram_loss, unigram_loss};
pub use random::Random;
pub use sample::{Sampler, Sampling, nucleus, probabilities};
pub use stream::{Lines, TextStream};
pub use text::Text;
pub use tokenizer::Tokenizer;
pub use weights::Weights;
