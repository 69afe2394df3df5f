//! Where the memory of a training step goes: predicted from the layers alone, then measured.
//!
//! [`Network`] is a list of layers. [`Network::predict`] says what a step must hold, without running anything;
//! [`measure`] runs that very list on candle, and asks the allocator after each phase. [`Model`] has the ways out of a memory
//! that is too small: gradients of a batch in pieces, and results computed anew instead of kept.

mod kept;
mod layer;
mod measure;
mod meter;
mod model;
mod network;
mod numbers;
mod prediction;
mod recompute;
#[cfg(test)]
mod tests;

pub use kept::Kept;
pub use layer::Layer;
pub use measure::{Measured, measure};
pub use meter::{Meter, Seen};
pub use model::{Batch, Gradients, Model};
pub use network::{Goal, Network, Optimiser};
pub use numbers::Numbers;
pub use prediction::{LayerBytes, Prediction};
