//! Where the memory of a training step goes: predicted from the layers alone, then measured.
//!
//! [`Network`] is a list of layers. [`Network::predict`] says what a step must hold, without running anything;
//! [`measure`] runs that very list on candle, and asks the allocator after each phase. [`Model`] has the ways out of a memory
//! that is too small: gradients of a batch in pieces, and results computed anew instead of kept.

mod measure;
mod model;
mod network;
#[cfg(test)]
mod tests;

pub use measure::{MemoryUse, Meter, StepMemory, measure};
pub use model::{Batch, Gradients, Model};
pub use network::{Activation, Layer, LayerBytes, Loss, Network, Optimiser, Prediction};
