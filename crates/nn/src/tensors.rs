//! safetensors files: numbers by name, with a few words about them. Written whole or not at all.

mod decode;
mod disk;
mod read;
#[cfg(test)]
mod tests;
mod whole;
mod write;

pub use whole::{write_whole, write_whole_by};

use std::collections::BTreeMap;

/// Numbers and their shape, on the host.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostTensor {
    /// How many numbers along each axis.
    pub shape: Vec<usize>,
    /// The numbers, row after row.
    pub values: Vec<f32>,
}

/// What a safetensors file holds, as f32 whatever it was stored as.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TensorFile {
    /// The tensors by name.
    pub tensors: BTreeMap<String, HostTensor>,
    /// Words about them, such as the step of a training run.
    pub metadata: BTreeMap<String, String>,
}

/// How a file keeps its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// 4 bytes, exact.
    F32,
    /// 2 bytes, 8 bits of precision.
    Bf16,
}

impl HostTensor {
    /// A tensor of that shape.
    ///
    /// # Panics
    /// When there are more or fewer numbers than the shape has room for.
    pub fn new(shape: &[usize], values: Vec<f32>) -> HostTensor {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "shape {shape:?}");
        HostTensor { shape: shape.to_vec(), values }
    }
}
