//! GPT-2's architecture: its configuration and weights, on candle for training and inference.

mod config;
mod weights;

pub use config::Config;
pub use weights::Weights;
