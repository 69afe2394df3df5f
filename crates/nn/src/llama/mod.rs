//! Llama's architecture on candle, from a GGUF file: reading it, its tokenizer and chat template, the model, and a chat.
//!
//! `make model` fetches such a file: SmolLM2-135M-Instruct, which [`ChatModel::smollm2`] opens.

mod chat;
mod config;
mod cpu;
mod engine;
mod gguf;
mod model;
mod product;
mod team;
mod template;
#[cfg(test)]
mod tests;
pub(crate) mod tiny;
mod tokenizer;

pub use chat::{Chat, ChatModel, model_path};
pub use config::{Input, LlamaConfig, Projection};
pub use engine::UnpackedLlama;
pub use gguf::GgufFile;
pub use model::{Llama, WeightDtype};
pub use product::QuantizedMatrix;
pub use template::{ChatMessage, ChatTemplate};
pub use tiny::write_practice;
