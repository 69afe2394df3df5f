//! A small CNN that reads digits: model, training, and what lies on disk between two runs.
//!
//! `x [B, 1, 28, 28]` → conv 3×3, 1→32 → ReLU → conv 3×3, 32→64 → ReLU → max-pool 2 → 9216 → 128 → ReLU → 10.

mod checkpoint;
mod order;
mod parameters;
mod safetensors;

pub use checkpoint::{Checkpoint, Epoch, State};
pub use order::order;
pub use parameters::Parameters;
