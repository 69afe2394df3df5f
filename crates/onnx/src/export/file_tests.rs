//! Files on disk: whole or not at all, and each damage named.

use super::schema::ModelProto;
use super::*;
use gpulab_nn::gpt::{Config, Weights};
use prost::Message;
use std::path::{Path, PathBuf};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("gpulab-onnx-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
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
        let told = |key: &str| weight.external_data.iter().find(|entry| entry.key() == key).map(|entry| entry.value());
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
