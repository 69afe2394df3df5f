//! The file: written whole or not at all, with weights beside it from 2 GiB on; read back with each damage named.

use super::graph::{OPSET, Onnx, check_edges, check_weight};
use super::schema::tensor_proto::DataLocation;
use super::schema::{ModelProto, StringStringEntryProto, TensorProto};
use gpulab::error::{Error, Result};
use gpulab_nn::tensors::{write_whole, write_whole_by};
use prost::Message;
use prost::bytes::Bytes;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

/// The newest versions that the schema in this repository (ONNX 1.23) describes: operators, and file format.
pub const NEWEST: (i64, i64) = (28, 14);

/// Bytes of weights from which on they lie in a file of their own: no protobuf message may be longer than 2 GiB, and
/// the graph needs some bytes, too.
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
    /// As [`write_whole`]: when the folder cannot be written, or the disk is full.
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
            write_whole(path, &self.proto.encode_to_vec())?;
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
        write_whole(path, &light.encode_to_vec())
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
        check_edges(graph)
            .and_then(|()| weights.try_for_each(|weight| check_weight(weight, None)))
            .map_err(|what| damaged(path, format!("its graph does not hold together: {what}")))?;
        Ok(model)
    }

    fn with_external(mut self, path: &Path, folder: &Path) -> Result<Onnx> {
        let mut files = BTreeMap::new();
        let weights = self.proto.graph.iter_mut().flat_map(|graph| &mut graph.initializer);
        for weight in weights.filter(|weight| weight.data_location() == DataLocation::External) {
            let bytes = fetch(weight, folder, &mut files).map_err(|what| damaged(path, what))?;
            check_weight(weight, Some(bytes.len() as u64)).map_err(|what| damaged(path, what))?;
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
            OPSET
        ),
    }
}

fn damaged(path: &Path, text: String) -> Error {
    let fix =
        "give the path of a whole .onnx file, with its .data file beside it if it has one; export or copy it again";
    Error::file(path, "read", text, fix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::{IR, gpt, schema};
    use gpulab_nn::gpt::{Config, Weights};

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let folder = std::env::temp_dir().join(format!("gpulab-onnx-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Folder(folder)
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(&self.0).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn small(seed: u64) -> Onnx {
        let config = Config { n_layer: 1, n_head: 2, n_embd: 16, n_ctx: 24, vocab_size: 30 };
        gpt(&Weights::random(config, seed).unwrap()).unwrap()
    }

    fn refused(path: &Path) -> String {
        let text = Onnx::read(path).unwrap_err().to_string();
        assert!(text.contains("cannot read ") && text.contains("\nnext: "), "{text}");
        text
    }

    #[test]
    fn what_is_written_comes_back_inside_or_beside() {
        let folder = Folder::new("back");
        let path = folder.0.join("m.onnx");
        for above in [EXTERNAL_ABOVE, 0, 2000, EXTERNAL_ABOVE] {
            let model = small(above);
            model.write_with(&path, above).unwrap();
            assert_eq!(Onnx::read(&path).unwrap(), model);
            // The weights of the version before are gone.
            let names = folder.names();
            assert_eq!(names.len(), if above == EXTERNAL_ABOVE { 1 } else { 2 }, "{names:?}");
            assert!(names.iter().all(|name| name == "m.onnx" || name.starts_with("m-") && name.ends_with(".data")));
        }
    }

    #[test]
    fn weights_lie_on_pages_and_small_ones_stay_in_the_graph() {
        let folder = Folder::new("pages");
        let path = folder.0.join("m.onnx");
        small(1).write_with(&path, 0).unwrap();
        let graph = ModelProto::decode(std::fs::read(&path).unwrap().as_slice()).unwrap().graph.unwrap();
        let (mut outside, mut inside) = (0, 0);
        for weight in &graph.initializer {
            let told =
                |key: &str| weight.external_data.iter().find(|entry| entry.key() == key).map(|entry| entry.value());
            match told("offset") {
                Some(offset) => {
                    outside += 1;
                    assert_eq!(offset.parse::<u64>().unwrap() % 4096, 0);
                    assert!(weight.raw_data.is_none() && told("length").unwrap().parse::<u64>().unwrap() >= 1024);
                }
                None => {
                    inside += 1;
                    assert!(weight.raw_data().len() < 1024);
                }
            }
        }
        assert!(outside > 4 && inside > 10, "{outside}, {inside}");
    }

    #[test]
    fn a_file_cut_off_anywhere_is_an_error_or_lacks_only_words() {
        let folder = Folder::new("cut");
        let path = folder.0.join("m.onnx");
        let mut model = small(1);
        model.write(&path).unwrap();
        let whole = std::fs::read(&path).unwrap();
        // The notes are the last that is written.
        model.proto.metadata_props.clear();
        let end = model.proto.encoded_len();
        for length in (0..whole.len()).step_by(13).chain(end - 40..whole.len()) {
            std::fs::write(&path, &whole[..length]).unwrap();
            match Onnx::read(&path) {
                Err(error) => assert!(error.to_string().contains("\nnext: "), "{error}"),
                Ok(read) => assert!(length >= end && read.nodes() == model.nodes(), "{length} of {end}"),
            }
        }
        for other in [&b"\x89PNG\r\n\x1a\nhello, this is a picture"[..], &[], &[0; 64], &[255; 64]] {
            std::fs::write(&path, other).unwrap();
            refused(&path);
        }
        assert!(refused(&folder.0.join("none.onnx")).contains("none.onnx"));
    }

    #[test]
    fn flipped_bytes_never_panic() {
        let folder = Folder::new("flip");
        let path = folder.0.join("m.onnx");
        let whole = small(1).proto.encode_to_vec();
        for place in (0..whole.len()).step_by(7) {
            let mut bytes = whole.clone();
            bytes[place] ^= 1 << (place % 8);
            // A flipped weight is still a model; all that counts is that nothing breaks.
            if let Ok(model) = Onnx::from_bytes(bytes.into(), &path) {
                let _ = (model.to_string(), model.inputs(), model.weights());
            }
        }
    }

    #[test]
    fn newer_versions_are_named_with_those_that_are_known() {
        let folder = Folder::new("newer");
        let path = folder.0.join("m.onnx");
        let write = |change: fn(&mut ModelProto)| {
            let mut model = small(1);
            change(&mut model.proto);
            std::fs::write(&path, model.proto.encode_to_vec()).unwrap();
        };
        write(|proto| proto.opset_import[0].version = Some(99));
        let text = refused(&path);
        assert!(text.contains("operators of version 99") && text.contains("up to 28 and 14"), "{text}");
        assert!(text.contains("opset_version=24"), "{text}");
        write(|proto| proto.ir_version = Some(15));
        assert!(refused(&path).contains("file format 15"));
        // A newer set of operators of somebody else is not ours to judge.
        write(|proto| {
            let other = schema::OperatorSetIdProto { domain: Some("com.example".into()), version: Some(99) };
            proto.opset_import.insert(0, other);
        });
        assert_eq!(Onnx::read(&path).unwrap().versions(), (OPSET, IR));
    }

    #[test]
    fn a_weight_that_lacks_numbers_is_named() {
        let folder = Folder::new("weight");
        let path = folder.0.join("m.onnx");
        let mut model = small(1);
        let weights = &mut model.proto.graph.as_mut().unwrap().initializer;
        let wte = weights.iter_mut().find(|weight| weight.name() == "wte.weight").unwrap();
        let cut = wte.raw_data().len() - 1;
        wte.raw_data.as_mut().unwrap().truncate(cut);
        std::fs::write(&path, model.proto.encode_to_vec()).unwrap();
        let text = refused(&path);
        assert!(text.contains("`wte.weight` of shape [30, 16] takes 1920 bytes and has 1919"), "{text}");
    }

    #[test]
    fn the_weights_file_missing_cut_off_or_elsewhere_is_named() {
        let folder = Folder::new("data");
        let path = folder.0.join("m.onnx");
        small(1).write_with(&path, 0).unwrap();
        let data = folder.0.join(folder.names().into_iter().find(|name| name.ends_with(".data")).unwrap());
        let bytes = std::fs::read(&data).unwrap();
        std::fs::write(&data, &bytes[..bytes.len() - 1]).unwrap();
        let text = refused(&path);
        assert!(text.contains("it is cut off") && text.contains(&format!("which has {}", bytes.len() - 1)), "{text}");
        std::fs::remove_file(&data).unwrap();
        assert!(refused(&path).contains(".data"));
        // A model from the internet must not read what it likes.
        let mut proto = ModelProto::decode(std::fs::read(&path).unwrap().as_slice()).unwrap();
        for weight in &mut proto.graph.as_mut().unwrap().initializer {
            for entry in weight.external_data.iter_mut().filter(|entry| entry.key() == "location") {
                entry.value = Some("../secret".to_string());
            }
        }
        std::fs::write(&path, proto.encode_to_vec()).unwrap();
        assert!(refused(&path).contains("`../secret`, outside the model's folder"));
    }

    #[test]
    fn a_model_that_cannot_be_written_leaves_the_old_one() {
        let folder = Folder::new("full");
        let path = folder.0.join("m.onnx");
        std::fs::create_dir(&path).unwrap();
        for above in [0, EXTERNAL_ABOVE] {
            let text = small(1).write_with(&path, above).unwrap_err().to_string();
            assert!(text.contains("cannot write") && text.contains("still there"), "{text}");
            assert_eq!(folder.names(), ["m.onnx"]);
        }
    }
}
