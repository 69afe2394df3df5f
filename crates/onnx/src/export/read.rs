//! Reading a file back, with each damage named.

use super::schema::tensor_proto::DataLocation;
use super::schema::{ModelProto, TensorProto};
use super::{NEWEST, Onnx, check};
use gpulab::error::{Error, Result};
use prost::Message;
use prost::bytes::Bytes;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

impl Onnx {
    /// Reads a model with all its weights, of ours or another program's.
    ///
    /// # Errors
    /// [`Error::File`] when it is missing, cut off or damaged, its weights' file is missing or too short, or it asks for
    /// newer operators or a newer format than [`NEWEST`].
    pub fn read(path: &Path) -> Result<Onnx> {
        let bytes = std::fs::read(path).map_err(|error| damaged(path, error.to_string()))?;
        let model = Onnx::from_bytes(Bytes::from(bytes), path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        model.with_external(path, folder)
    }

    /// As [`Onnx::read`], without the weights that lie in another file. The others stay where `bytes` has them.
    pub(super) fn from_bytes(bytes: Bytes, path: &Path) -> Result<Onnx> {
        let proto = ModelProto::decode(bytes)
            .map_err(|error| damaged(path, format!("it is no ONNX model, or is damaged ({error})")))?;
        let model = Onnx { proto };
        let (operators, format) = model.versions();
        if operators == 0 || format == 0 || model.proto.graph.is_none() {
            return Err(damaged(path, "it has no graph or no version: it is cut off, or no ONNX model".to_string()));
        }
        if operators > NEWEST.0 || format > NEWEST.1 {
            return Err(newer(path, operators, format));
        }
        let graph = model.proto.graph.as_ref().expect("looked at above");
        let mut weights = graph.initializer.iter().filter(|weight| weight.data_location() == DataLocation::Default);
        check::edges(graph)
            .and_then(|()| weights.try_for_each(|weight| check::weight(weight, None)))
            .map_err(|what| damaged(path, format!("its graph does not hold together: {what}")))?;
        Ok(model)
    }

    fn with_external(mut self, path: &Path, folder: &Path) -> Result<Onnx> {
        let mut files = BTreeMap::new();
        let weights = self.proto.graph.iter_mut().flat_map(|graph| &mut graph.initializer);
        for weight in weights.filter(|weight| weight.data_location() == DataLocation::External) {
            let bytes = fetch(weight, folder, &mut files).map_err(|what| damaged(path, what))?;
            check::weight(weight, Some(bytes.len() as u64)).map_err(|what| damaged(path, what))?;
            weight.external_data.clear();
            weight.data_location = None;
            weight.raw_data = Some(bytes.into());
        }
        Ok(self)
    }
}

/// A weight's bytes from the file that it names.
fn fetch(weight: &TensorProto, folder: &Path, files: &mut BTreeMap<PathBuf, File>) -> Result<Vec<u8>, String> {
    let told = |key: &str| weight.external_data.iter().find(|entry| entry.key() == key).map(|entry| entry.value());
    let number = |key: &str| told(key).map_or(Ok(None), |text| text.parse::<u64>().map(Some));
    let name = weight.name();
    let place =
        told("location").ok_or_else(|| format!("the weight `{name}` lies in another file, which is not named"))?;
    let inside = Path::new(place).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !inside {
        // A model from the internet must not read what it likes.
        return Err(format!("the weight `{name}` lies in `{place}`, outside the model's folder"));
    }
    let file = folder.join(place);
    let missing = |error: std::io::Error| format!("the weight `{name}` lies in {}: {error}", file.display());
    if !files.contains_key(&file) {
        files.insert(file.clone(), File::open(&file).map_err(missing)?);
    }
    let open = &mut files.get_mut(&file).expect("put there above");
    let whole = open.metadata().map_err(missing)?.len();
    let wrong = |_| format!("offset or length of the weight `{name}` is no number");
    let offset = number("offset").map_err(wrong)?.unwrap_or(0);
    let length = number("length").map_err(wrong)?.unwrap_or(whole.saturating_sub(offset));
    if offset.checked_add(length).is_none_or(|end| end > whole) {
        return Err(format!(
            "the weight `{name}` lies at bytes {offset} to {} of {place}, which has {whole}: it is cut off",
            offset.saturating_add(length)
        ));
    }
    let mut bytes = vec![0; length as usize];
    open.seek(SeekFrom::Start(offset)).and_then(|_| open.read_exact(&mut bytes)).map_err(missing)?;
    Ok(bytes)
}

fn newer(path: &Path, operators: i64, format: i64) -> Error {
    Error::File {
        path: path.to_path_buf(),
        during: "read".to_string(),
        text: format!(
            "it asks for operators of version {operators} and file format {format}, and this program knows them up to \
             {} and {}",
            NEWEST.0, NEWEST.1
        ),
        fix: format!(
            "export it again for an older version (PyTorch: `torch.onnx.export(…, opset_version={})`), or use a newer \
             gpulab",
            super::OPSET
        ),
    }
}

fn damaged(path: &Path, text: String) -> Error {
    Error::File {
        path: path.to_path_buf(),
        during: "read".to_string(),
        text,
        fix:
            "give the path of a whole .onnx file, with its .data file beside it if it has one; export or copy it again"
                .to_string(),
    }
}
