//! Training a GPT on a text: batches, AdamW, a checkpoint to go on from, the loss on what was held out.
//!
//! [`GptTrainer`] makes the steps on candle, [`KernelTrainer`] on the course's own kernels, [`OperatorTrainer`] by candle's autograd with
//! operators of the course's. A [`GptRun`] says what they read, and a [`GptCheckpoint`] what they go on from, each from the others' too.

mod candle;
mod checkpoint;
mod engine;
mod held_out;
mod kernels;
mod log;
mod operators;
mod plan;
mod run;
mod whole;

pub use candle::GptTrainer;
pub use checkpoint::GptCheckpoint;
pub use engine::GptEngine;
pub use kernels::KernelTrainer;
pub use log::{GptProgress, loss_charts};
pub use operators::{CandleStep, OperatorTrainer};
pub use plan::GptTrainConfig;
pub use run::GptRun;
pub use whole::{GptFiles, GptLine, run};
