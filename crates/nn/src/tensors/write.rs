//! Writing a safetensors file.

use super::whole::{fail, write_whole};
use super::{Stored, TensorFile};
use gpulab::cpu::bf16_from_f32;
use gpulab::error::Result;
use rayon::prelude::*;
use safetensors::tensor::{Dtype, TensorView};
use std::path::Path;

impl TensorFile {
    /// Writes the file whole, under another name first: whoever stops the program finds the old file or the new one.
    ///
    /// # Errors
    /// As [`write_whole`], when the folder cannot be written or the disk is full; the old file stays.
    pub fn write(&self, path: &Path, stored: Stored) -> Result<()> {
        let bytes: Vec<(&str, &[usize], Vec<u8>)> = self
            .tensors
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor.shape.as_slice(), stored.bytes(&tensor.values)))
            .collect();
        let views = bytes.iter().map(|(name, shape, bytes)| {
            let view = TensorView::new(stored.kind(), shape.to_vec(), bytes);
            (*name, view.expect("HostTensor holds shape and numbers against each other"))
        });
        let metadata = self.metadata.clone().into_iter().collect();
        let file = safetensors::serialize(views, Some(metadata)).map_err(|error| fail(path, error.to_string()))?;
        write_whole(path, &file)
    }
}

impl Stored {
    fn kind(self) -> Dtype {
        match self {
            Stored::F32 => Dtype::F32,
            Stored::Bf16 => Dtype::BF16,
        }
    }

    fn bytes(self, values: &[f32]) -> Vec<u8> {
        match self {
            Stored::F32 => values.par_iter().flat_map_iter(|x| x.to_le_bytes()).collect(),
            Stored::Bf16 => values.par_iter().flat_map_iter(|x| bf16_from_f32(*x).to_le_bytes()).collect(),
        }
    }
}
