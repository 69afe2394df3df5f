//! Writing: a file that a stop in the middle cannot damage.

use super::{Stored, TensorFile};
use crate::cpu::bf16_from_f32;
use crate::error::{Error, Result};
use rayon::prelude::*;
use safetensors::tensor::{Dtype, TensorView};
use std::fs::File;
use std::io::Write;
use std::path::Path;

impl TensorFile {
    /// Writes the file whole, under another name first: whoever stops the program finds the old file or the new one.
    ///
    /// # Errors
    /// [`Error::File`] when the folder cannot be written or the disk is full; the old file stays.
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

/// Writes `bytes` to a temporary file beside `path` and renames it: `path` is the old file or the new one, never half of it.
///
/// # Errors
/// [`Error::File`]; the old file stays.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |error: std::io::Error| fail(path, error.to_string());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Two programs at once must not write into one temporary file.
    let beside = folder.join(format!(".{name}.{}.part", std::process::id()));
    let written = File::create(&beside)
        // The name must not become valid before the bytes are on the disk.
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        // What is left of it is of no use; the first error is the one to tell.
        let _ = std::fs::remove_file(&beside);
        failed(error)
    })
}

fn fail(path: &Path, text: String) -> Error {
    Error::File {
        path: path.to_path_buf(),
        during: "write".to_string(),
        text,
        fix: "make room, or name a folder that can be written; what was there before is still there".to_string(),
    }
}
