//! Running an ONNX file by ONNX Runtime, through the crate `ort`. Feature `ort`.
//!
//! The library is loaded at run time (`make setup` brings it for the lessons that need it). [`OnnxModel`] opens a file on
//! a [`Provider`] and runs it; `OnnxModel::bind` keeps inputs and outputs where the provider computes. Which provider took which
//! node is read back from ONNX Runtime ([`OnnxModel::provider_of_nodes`]), and never assumed from what was asked for.

mod benchmark;
mod library;
mod model;
mod provider;

#[cfg(test)]
mod tests;

pub use benchmark::{CandleCnn, Contestant, Entry, Latency, OnnxContestant, Race, RaceChart, Report, race_chart};
pub use library::{OLDEST, version};
pub use model::{Dimension, NodePlace, OnnxData, OnnxModel, OnnxTensor, Port};
pub use provider::{CacheUse, EngineCache, Missing, Provider, ShapeRange, TensorRt, providers};
