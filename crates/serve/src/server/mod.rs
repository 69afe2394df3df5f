//! The HTTP server: OpenAI's interface over a [`ServedModel`], with the scheduler between them.

mod api;
mod babble;
#[cfg(feature = "candle")]
mod batched;
#[cfg(feature = "candle")]
mod candle;
mod connection;
mod engine;
mod http;
mod metrics;
mod model;
mod options;
mod run;
mod writer;

pub use babble::Babble;
#[cfg(feature = "candle")]
pub use batched::BatchedModel;
#[cfg(feature = "candle")]
pub use candle::CandleModel;
pub use model::{SamplingParams, ServedModel, TextCodec, Turn};
pub use options::{GpuReading, Options};
pub use run::{Server, log_to_stderr};
