//! Models as ONNX files, which other programs run.
//!
//! [`GraphBuilder`] puts nodes, weights, inputs and outputs together; [`Onnx`] is a whole model, which can be written, read back
//! and looked at; [`cnn`], [`network`] and [`gpt`] make one of the course's models. The types of the file are generated from
//! ONNX's own schema (`crates/onnx/schema/`).
//!
//! ```no_run
//! # fn main() -> gpulab::Result<()> {
//! use gpulab_nn::cnn::Parameters;
//! use gpulab_onnx::export;
//! export::cnn(&Parameters::random(1))?.write("results/cnn.onnx".as_ref())?;
//! println!("{}", export::Onnx::read("results/cnn.onnx".as_ref())?);
//! # Ok(())
//! # }
//! ```

mod format;
mod graph;
mod models;
pub mod quantize;
pub mod reference;
// Generated: its fields are explained in ONNX's schema, and its shape is not ours to choose.
#[allow(missing_docs, clippy::all)]
mod schema;
mod show;
mod trained;

pub use format::{EXTERNAL_ABOVE, NEWEST};
pub use graph::{
    Attribute, CUDA_OPSET, DataType, Dim, GraphBuilder, IR, Node, OPSET, Onnx, Value, ValueInfo, WeightNumber,
};
pub use models::{cnn, gpt, network};
pub use trained::{Int8, trained_cnn, trained_int8};
