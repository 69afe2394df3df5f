//! Where the memory of a training step goes: predicted from the layers alone, then measured.
//!
//! [`Network`] is a list of layers. [`Network::predict`] says what a step must hold, without running anything;
//! [`measure`](measure()) runs that very list on candle, and asks the allocator after each phase. [`Model`] has two remedies for a
//! memory that is too small: gradient accumulation over micro-batches, and activation checkpointing.

mod growing;
mod measure;
mod model;
mod network;
#[cfg(test)]
mod tests;

pub use growing::{growing, growing_source};
pub use measure::{MemoryUse, Meter, StepMemory, measure};
pub use model::{Batch, Gradients, Model};
pub use network::{Activation, Layer, LayerBytes, Loss, Network, Optimiser, Prediction};
