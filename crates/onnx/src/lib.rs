//! Models as ONNX files, written and read, and ONNX Runtime to run them.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`export`] | the CNN and the GPT as ONNX files; files read and checked; 8-bit integers |
//! | [`runtime`] | an ONNX file run by ONNX Runtime: CPU, CUDA, TensorRT, CoreML |

pub mod export;
pub mod runtime;

/// ONNX Runtime in Rust, as this crate uses it: [`runtime::OnnxModel::session`] hands out its session, and
/// [`runtime::OnnxModel::from_session`] takes one.
pub use ort;
