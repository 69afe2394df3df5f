//! Models as ONNX files, which other programs run. Feature `export`.
//!
//! [`Graph`] puts nodes, weights, inputs and outputs together; [`Onnx`] is a whole model, which can be written, read back
//! and looked at; [`cnn`], [`network`] and [`gpt`] make one of the course's models. The types of the file are generated from
//! ONNX's own schema (`support-crate/schema/`).
//!
//! ```no_run
//! # fn main() -> gpulab::Result<()> {
//! use gpulab::{export, nn::cnn::Parameters};
//! export::cnn(&Parameters::random(1))?.write("results/cnn.onnx".as_ref())?;
//! println!("{}", export::Onnx::read("results/cnn.onnx".as_ref())?);
//! # Ok(())
//! # }
//! ```

mod attribute;
mod bytes;
mod check;
#[cfg(test)]
mod file_tests;
mod gpt;
mod graph;
mod layers;
mod model;
mod picture;
pub mod quantize;
mod read;
pub mod reference;
// Generated: its fields are explained in ONNX's schema, and its shape is not ours to choose.
#[allow(missing_docs, clippy::all)]
mod schema;
mod show;
mod stream;
#[cfg(test)]
mod tests;
mod trained;
mod value;
mod versions;
mod write;

pub use attribute::Attribute;
pub use gpt::gpt;
pub use graph::Graph;
pub use layers::{cnn, network};
pub use model::{Node, Onnx, Port};
pub use trained::{Int8, trained_cnn, trained_int8};
pub use value::{Dim, Kind, Numbers, Value};
pub use versions::{CUDA_OPSET, IR, OPSET};
pub use write::EXTERNAL_ABOVE;

/// The newest versions that the schema in this repository (ONNX 1.23) describes: operators, and file format.
pub const NEWEST: (i64, i64) = (28, 14);
