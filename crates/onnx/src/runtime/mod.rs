//! Running an ONNX file by ONNX Runtime, through the crate `ort`.
//!
//! The library is loaded at run time (`make setup` brings it for the lessons that need it). [`OnnxModel`] opens a file on
//! a [`ExecutionProvider`] and runs it; `OnnxModel::bind` keeps inputs and outputs where the provider computes. Which provider took which
//! node is read back from ONNX Runtime ([`OnnxModel::node_assignments`]), and never assumed from what was asked for; how long
//! each node took is in [`NodeProfile`].

mod benchmark;
mod library;
mod model;
mod profile;
mod provider;

#[cfg(test)]
mod tests;

pub use benchmark::{
    Benchmark, BenchmarkChart, BenchmarkEntry, BenchmarkReport, CandleCnn, Implementation, Latency, OnnxImplementation,
    benchmark_chart,
};
pub use library::{OLDEST, environment, version};
pub use model::{CpuThreads, NodeAssignment, OnnxData, OnnxModel, OnnxTensor};
pub use profile::{NodeProfile, NodeTime};
pub use provider::{CacheUse, EngineCache, ExecutionProvider, MissingProvider, ShapeRange, TensorRt, providers};
