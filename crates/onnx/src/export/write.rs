//! Writing: one file, or a small one with the weights in another beside it.

use super::Onnx;
use super::schema::tensor_proto::DataLocation;
use super::schema::{ModelProto, StringStringEntryProto, TensorProto};
use super::stream;
use gpulab::error::Result;
use gpulab_nn::tensors::write_whole_by;
use prost::Message;
use std::path::{Path, PathBuf};

/// Bytes of weights from which on they lie in a file of their own: no protobuf message may be longer than 2 GiB, and
/// the graph needs some room, too.
pub const EXTERNAL_ABOVE: u64 = (1 << 31) - (1 << 24);
/// Smaller weights stay in the graph's file, where tools that fold constants find them.
const WORTH_IT: usize = 1024;
/// Bytes that no graph of ours reaches without its weights.
const LONGEST_GRAPH: u64 = 1 << 24;
/// Weights begin on a page of memory, so that a runtime can map the file and need not read it.
const PAGE: u64 = 4096;

impl Onnx {
    /// Writes the model; weights of more than 2 GiB go to a file beside it. Whole or not at all: a model of that name stays as
    /// it was until the new one is complete.
    ///
    /// # Errors
    /// As [`write_whole_by`]: when the folder cannot be written, or the disk is full.
    pub fn write(&self, path: &Path) -> Result<()> {
        self.write_with(path, EXTERNAL_ABOVE)
    }

    /// As [`Onnx::write`], with another limit in bytes from which on weights lie in a file of their own.
    ///
    /// # Errors
    /// As [`Onnx::write`].
    pub fn write_with(&self, path: &Path, external_above: u64) -> Result<()> {
        let before = data_file(path);
        if self.weight_bytes() <= external_above.min(EXTERNAL_ABOVE) {
            write_whole_by(path, |out| stream::encode(&self.proto, out))?;
        } else {
            let data = new_data_file(path);
            let written = self.write_apart(path, &data);
            if written.is_err() {
                // Nothing refers to it.
                let _ = std::fs::remove_file(&data);
            }
            written?;
        }
        // Only now does nothing refer to the old weights.
        if let Some(old) = before.filter(|old| data_file(path).as_ref() != Some(old)) {
            let _ = std::fs::remove_file(old);
        }
        Ok(())
    }

    fn write_apart(&self, path: &Path, data: &Path) -> Result<()> {
        let place = data.file_name().unwrap_or_default().to_string_lossy();
        // The weights' bytes are shared: this copies names and nodes.
        let mut light = self.proto.clone();
        let weights = light.graph.iter_mut().flat_map(|graph| &mut graph.initializer);
        let heavy = weights.filter(|weight| weight.raw_data().len() >= WORTH_IT);
        // The graph must not name bytes that are not on the disk yet.
        write_whole_by(data, |out| {
            let mut at = 0u64;
            for weight in heavy {
                let gap = at.next_multiple_of(PAGE) - at;
                out.write_all(&[0; PAGE as usize][..gap as usize])?;
                out.write_all(weight.raw_data())?;
                let length = weight.raw_data().len() as u64;
                *weight = elsewhere(weight, &place, at + gap, length);
                at += gap + length;
            }
            Ok(())
        })?;
        write_whole_by(path, |out| stream::encode(&light, out))
    }
}

/// A weight without its bytes, and with the place where they lie.
fn elsewhere(weight: &TensorProto, file: &str, offset: u64, length: u64) -> TensorProto {
    let entry = |key: &str, value: String| StringStringEntryProto { key: Some(key.to_string()), value: Some(value) };
    let mut light = TensorProto {
        name: weight.name.clone(),
        dims: weight.dims.clone(),
        data_type: weight.data_type,
        external_data: vec![
            entry("location", file.to_string()),
            entry("offset", offset.to_string()),
            entry("length", length.to_string()),
        ],
        ..TensorProto::default()
    };
    light.set_data_location(DataLocation::External);
    light
}

/// `model.onnx` keeps its weights in `model-NUMBER.data`. Each writing takes another number: the old graph keeps the old
/// weights until the new one takes its place.
fn new_data_file(path: &Path) -> PathBuf {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{:x}.data", since.as_nanos() as u64 ^ u64::from(std::process::id())))
}

/// The file that a model of ours, if it is one, keeps its weights in.
fn data_file(path: &Path) -> Option<PathBuf> {
    let stem = path.file_stem()?.to_string_lossy().into_owned();
    // A graph without its weights is small: a longer file has them inside.
    if std::fs::metadata(path).ok()?.len() > LONGEST_GRAPH {
        return None;
    }
    let model = ModelProto::decode(std::fs::read(path).ok()?.as_slice()).ok()?;
    let external = model.graph?.initializer.into_iter().flat_map(|weight| weight.external_data);
    let place = external.into_iter().find(|entry| entry.key() == "location")?.value?;
    let ours = place.strip_prefix(&format!("{stem}-")).and_then(|rest| rest.strip_suffix(".data"));
    ours.filter(|number| number.chars().all(|c| c.is_ascii_hexdigit())).map(|_| path.with_file_name(&place))
}
