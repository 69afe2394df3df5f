//! Training a GPT on a text: batches, AdamW, a checkpoint to go on from, the loss on what was held out.
//!
//! [`GptTrainer`] makes the steps on candle, [`KernelTrainer`] on the course's own kernels. A [`GptRun`] says what both read, and a
//! [`GptCheckpoint`] what both go on from, each from the other's too.

mod candle;
mod checkpoint;
mod engine;
mod held_out;
mod kernels;
mod log;
mod plan;
mod run;
mod whole;

pub use candle::GptTrainer;
pub use checkpoint::GptCheckpoint;
pub use engine::GptEngine;
pub use kernels::KernelTrainer;
pub use log::{GptProgress, loss_charts};
pub use plan::GptTrainConfig;
pub use run::GptRun;
pub use whole::{GptFiles, GptLine, run};
