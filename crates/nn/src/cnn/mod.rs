//! A small CNN that reads digits: model, training, and what lies on disk between two runs.
//!
//! `x [B, 1, 28, 28]` → conv 3×3, 1→32 → ReLU → conv 3×3, 32→64 → ReLU → max-pool 2 → 9216 → 128 → ReLU → 10.

mod adamw;
mod backend;
mod candle;
mod checkpoint;
mod clock;
mod config;
mod engine;
mod fast;
mod images;
mod max_pool;
mod model;
mod nan_case;
mod report;
mod target;
mod trainer;

pub use adamw::AdamW;
pub use checkpoint::{Checkpoint, Epoch, TrainingState};
pub use clock::StepClock;
pub use config::TrainConfig;
pub use engine::{CnnEngine, EngineSettings};
pub use images::{batch, order};
pub use max_pool::max_pool2;
pub use model::{Cnn, Kernels, Parameters, Precision, gradients, share_lost};
pub use nan_case::nan_case;
pub use report::{TrainingReport, loss_chart, newest_times, time_chart};
pub use trainer::{Ended, Progress, Trainer};

#[cfg(test)]
mod tests;
