//! Deep learning: models on candle, and the same models on the course's own kernels. Feature `candle`.
//!
//! The notebooks name that feature in their `:dep` line, and are the same file on every machine: with CUDA or Metal
//! candle is built for it by the set-up, in one place (`env/warm/candle.py`).

mod attention;
pub mod cnn;
mod fault;
pub mod gpt;
mod ids;
pub mod memory;
pub mod options;
mod place;
mod resident;
pub mod tensors;

pub use attention::CandleAttention;
pub use candle_core::{DType, Device, Tensor};
pub use ids::{count_on_behind, renumbered};
pub use place::Place;
pub use resident::resident_bytes;
