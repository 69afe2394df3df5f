//! safetensors files: numbers by name, with a few words about them. Written whole or not at all.

use candle_core::DType;
use gpulab::error::{Error, Result};
use half::{bf16, f16};
use rayon::prelude::*;
use safetensors::Dtype;
use safetensors::tensor::{SafeTensorError, SafeTensors, TensorView};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

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

// ----------------------------------------------------------------------
// Reading, with each damage named.

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
        let bytes = std::fs::read(path).map_err(|error| unreadable(path, error.to_string()))?;
        TensorFile::from_bytes(&bytes, path, wanted)
    }

    fn from_bytes(bytes: &[u8], path: &Path, wanted: impl Fn(&str) -> bool) -> Result<TensorFile> {
        let damaged = |error: SafeTensorError| unreadable(path, what(&error, bytes.len()));
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
        let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
        let mut read = TensorFile::default();
        read.metadata.extend(header.metadata().clone().unwrap_or_default());
        for (name, view) in file.iter().filter(|(name, _)| wanted(name)) {
            let values = numbers(view.dtype(), view.data()).ok_or_else(|| {
                unreadable(
                    path,
                    format!("`{name}` is kept as {}, and only F32, F16, BF16 and F64 are read", view.dtype()),
                )
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

fn unreadable(path: &Path, text: String) -> Error {
    let fix = "give the path of a whole safetensors file: copy or fetch it again, or go back to an earlier checkpoint";
    Error::file(path, "read", text, fix)
}

// ----------------------------------------------------------------------
// Numbers from a file's bytes.

/// Numbers that one core converts at a time: enough that handing them out costs nothing.
const CHUNK: usize = 1 << 16;

/// The bytes as f32; `None` for kinds that are no floating-point weights.
fn numbers(kind: Dtype, bytes: &[u8]) -> Option<Vec<f32>> {
    Some(match kind {
        Dtype::F32 => each(bytes, f32::from_le_bytes),
        Dtype::F64 => each(bytes, |b| f64::from_le_bytes(b) as f32),
        Dtype::BF16 => each(bytes, |b| bf16::from_le_bytes(b).to_f32()),
        Dtype::F16 => each(bytes, |b| f16::from_le_bytes(b).to_f32()),
        _ => return None,
    })
}

fn each<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f32 + Sync) -> Vec<f32> {
    let (all, rest) = bytes.as_chunks::<N>();
    debug_assert!(rest.is_empty(), "safetensors compares shape and bytes");
    all.par_iter().with_min_len(CHUNK).map(|b| number(*b)).collect()
}

// ----------------------------------------------------------------------
// Writing a safetensors file.

impl TensorFile {
    /// Writes the file whole, under another name first: whoever stops the program finds the old file or the new one. The
    /// numbers are kept as `dtype`: F32 (4 bytes, exact), or BF16 or F16 (2 bytes, rounded to the nearest).
    ///
    /// # Errors
    /// As [`write_whole`], when the folder cannot be written or the disk is full: the old file stays.
    /// [`Error::Unsupported`] for another `dtype`.
    pub fn write(&self, path: &Path, dtype: DType) -> Result<()> {
        write_tensors(self.tensors.iter().map(|(name, tensor)| (name.clone(), tensor)), &self.metadata, path, dtype)
    }
}

/// [`TensorFile::write`] of tensors that lie anywhere.
pub(crate) fn write_tensors<'a>(
    tensors: impl Iterator<Item = (String, &'a HostTensor)>,
    metadata: &BTreeMap<String, String>,
    path: &Path,
    dtype: DType,
) -> Result<()> {
    let bytes = |values: &[f32]| -> Option<(Dtype, Vec<u8>)> {
        let values = values.par_iter().with_min_len(CHUNK);
        Some(match dtype {
            DType::F32 => (Dtype::F32, values.flat_map_iter(|x| x.to_le_bytes()).collect()),
            DType::BF16 => (Dtype::BF16, values.flat_map_iter(|x| bf16::from_f32(*x).to_le_bytes()).collect()),
            DType::F16 => (Dtype::F16, values.flat_map_iter(|x| f16::from_f32(*x).to_le_bytes()).collect()),
            _ => return None,
        })
    };
    let stored = tensors.map(|(name, tensor)| Some((name, &tensor.shape, bytes(&tensor.values)?)));
    let stored = stored.collect::<Option<Vec<_>>>().ok_or_else(|| {
        Error::unsupported(format!("weights in a file as {}", dtype.as_str()), "write them as F32, BF16 or F16")
    })?;
    let views = stored.iter().map(|(name, shape, (dtype, bytes))| {
        let view = TensorView::new(*dtype, shape.to_vec(), bytes);
        (name, view.expect("HostTensor compares shape and numbers"))
    });
    let metadata = metadata.clone().into_iter().collect();
    let file = safetensors::serialize(views, Some(metadata)).map_err(|error| fail(path, error))?;
    write_whole(path, &file)
}

// ----------------------------------------------------------------------
// A file that a stop in the middle cannot damage.

/// Writes `bytes` to a temporary file beside `path` and renames it: `path` is the old file or the new one, never half of it.
///
/// # Errors
/// [`Error::File`]; the old file stays.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    write_whole_by(path, |out| out.write_all(bytes))
}

/// As [`write_whole`], for what need not lie in memory at once: `write` gets where to write it. When that fails, nothing was
/// written.
///
/// # Errors
/// [`Error::File`]; the old file stays.
pub fn write_whole_by(path: &Path, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let failed = |error: std::io::Error| fail(path, error);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Two programs at once must not write into one temporary file.
    let beside = folder.join(format!(".{name}.{}.part", std::process::id()));
    let written = File::create(&beside)
        .and_then(|mut file| {
            write(&mut file)?;
            // The name must not become valid before the bytes are on the disk.
            file.sync_all()
        })
        .and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        // What is left of it is of no use; the first error is the one to tell.
        let _ = std::fs::remove_file(&beside);
        failed(error)
    })
}

fn fail(path: &Path, error: impl ToString) -> Error {
    let fix = "make room, or name a folder that can be written; what was there before is still there";
    Error::file(path, "write", error, fix)
}

#[cfg(test)]
mod tests;
