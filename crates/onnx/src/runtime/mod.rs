//! Running an ONNX file by ONNX Runtime, through the crate `ort`. Feature `ort`.
//!
//! The library is loaded at run time (`make setup` brings it for the lessons that need it). [`OnnxModel`] opens a file on
//! a [`Provider`] and runs it; `OnnxModel::bind` keeps inputs and outputs where the provider computes. Which provider took which
//! node is read back from ONNX Runtime ([`OnnxModel::provider_of_nodes`]), and never assumed from what was asked for.

mod binding;
mod candle;
mod contestant;
mod cuda_libraries;
mod latency;
mod library;
mod lineup;
mod log;
mod model;
mod nodes;
mod open;
mod port;
mod provider;
mod race;
mod report;
mod said;
mod tensor;
mod tensorrt;

#[cfg(test)]
mod tests;

pub use candle::CandleCnn;
pub use contestant::{Contestant, OnnxContestant};
pub use latency::Latency;
pub use library::{OLDEST, version};
pub use model::OnnxModel;
pub use nodes::NodePlace;
pub use port::{Dimension, Port};
pub use provider::{Missing, Provider, providers};
pub use race::{Entry, Race};
pub use report::{RaceChart, Report, race_chart};
pub use tensor::{OnnxData, OnnxTensor};
pub use tensorrt::{CacheUse, EngineCache, ShapeRange, TensorRt};
