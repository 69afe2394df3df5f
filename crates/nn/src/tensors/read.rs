//! Reading, with each damage named.

use super::{HostTensor, TensorFile, decode};
use gpulab::error::{Error, Result};
use safetensors::tensor::{SafeTensorError, SafeTensors};
use std::path::Path;

impl TensorFile {
    /// Reads a file whole.
    ///
    /// # Errors
    /// [`Error::File`] when it is missing, cut off or damaged, or holds something else than floating-point numbers.
    pub fn read(path: &Path) -> Result<TensorFile> {
        TensorFile::read_some(path, |_| true)
    }

    /// Reads the tensors whose name `wanted` accepts; what other programs keep beside them may be of any kind.
    ///
    /// # Errors
    /// As [`TensorFile::read`].
    pub fn read_some(path: &Path, wanted: impl Fn(&str) -> bool) -> Result<TensorFile> {
        let bytes = std::fs::read(path).map_err(|error| fail(path, error.to_string()))?;
        TensorFile::from_bytes(&bytes, path, wanted)
    }

    pub(super) fn from_bytes(bytes: &[u8], path: &Path, wanted: impl Fn(&str) -> bool) -> Result<TensorFile> {
        let damaged = |error: SafeTensorError| fail(path, what(&error, bytes.len()));
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
        let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
        let mut read = TensorFile::default();
        read.metadata.extend(header.metadata().clone().unwrap_or_default());
        for (name, view) in file.iter().filter(|(name, _)| wanted(name)) {
            let values = decode::numbers(view.dtype(), view.data()).ok_or_else(|| {
                fail(path, format!("`{name}` is kept as {}, and only F32, F16, BF16 and F64 are read", view.dtype()))
            })?;
            read.tensors.insert(name.to_string(), HostTensor::new(view.shape(), values));
        }
        Ok(read)
    }
}

/// What is wrong, for somebody who has never seen the format.
fn what(error: &SafeTensorError, length: usize) -> String {
    match error {
        SafeTensorError::HeaderTooSmall => format!("it is cut off: a safetensors file is longer than {length} bytes"),
        SafeTensorError::MetadataIncompleteBuffer | SafeTensorError::InvalidHeaderLength => {
            format!(
                "its header names more bytes, or fewer, than the {length} that it has: it is cut off, or no safetensors file"
            )
        }
        SafeTensorError::HeaderTooLarge => {
            "its first 8 bytes name an impossible header: it is no safetensors file".to_string()
        }
        other => format!("its header is damaged ({other})"),
    }
}

fn fail(path: &Path, text: String) -> Error {
    Error::File {
        path: path.to_path_buf(),
        during: "read".to_string(),
        text,
        fix: "give the path of a whole safetensors file: copy or fetch it again, or go back to an earlier checkpoint"
            .to_string(),
    }
}
