//! A small CNN that reads digits: model, training, and what lies on disk between two runs.
//!
//! `x [B, 1, 28, 28]` → conv 3×3, 1→32 → ReLU → conv 3×3, 32→64 → ReLU → max-pool 2 → 9216 → 128 → ReLU → 10.

mod adamw;
mod checkpoint;
mod engine;
mod fast;
mod images;
mod memory;
mod model;
mod on_candle;
mod order;
mod parameters;
mod plan;
mod precision;
mod progress;
mod report;
mod run;
mod sixteen;
mod stages;
mod target;
mod trainer;
mod way;

pub use adamw::AdamW;
pub use checkpoint::{Checkpoint, Epoch, State};
pub use engine::{CnnEngine, EngineSettings};
pub use images::batch;
pub use model::{Cnn, Kernels};
pub use order::order;
pub use parameters::Parameters;
pub use plan::Plan;
pub use precision::Precision;
pub use progress::Progress;
pub use report::{Report, loss_chart, newest_times, time_chart};
pub use run::Ended;
pub use sixteen::{gradients, share_lost};
pub use trainer::Trainer;

#[cfg(test)]
mod tests;
