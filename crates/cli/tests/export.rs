//! What is exported, with random inputs and candle's outputs beside it: `env/tests/test_export.py` runs these files in ONNX
//! Runtime and compares. Here each file is read back.
#![cfg(feature = "onnx")]

use gpulab_nn::DType;
use gpulab_nn::cnn::Checkpoint;
use gpulab_nn::gpt::{Config, Weights};
use gpulab_onnx::export::{self, Onnx};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `gpulab export-onnx`.
fn command(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpulab")).arg("export-onnx").args(arguments).output().unwrap()
}

fn folder(name: &str) -> PathBuf {
    // Whoever compares names a folder of his own: these tests may run beside.
    let own = std::env::var("GPULAB_EXPORTED").map(PathBuf::from);
    let folder = own.unwrap_or_else(|_| Path::new(env!("CARGO_TARGET_TMPDIR")).join("export")).join(name);
    // What an earlier version wrote must not be compared.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A checkpoint in that folder, of a network that saw no image.
fn untrained(folder: &Path) -> String {
    let checkpoint = folder.join("cnn-cpu.safetensors");
    Checkpoint::new(1, "nothing").write(&checkpoint).unwrap();
    checkpoint.to_str().unwrap().to_string()
}

#[test]
fn the_command_writes_models_that_read_back() {
    let folder = folder("course");
    let (out, checkpoint) = (folder.to_str().unwrap(), untrained(&folder));
    let done = command(&["--out", out, "--checkpoint", &checkpoint, "--reference", "--images", "60"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    // env/onnx/__main__.py takes the files from these lines.
    let told = String::from_utf8(done.stdout).unwrap();
    assert_eq!(told.matches("  written to ").count(), 3, "{told}");
    for (name, sets) in [("cnn", 4), ("cnn-int8", 1), ("gpt", 8)] {
        let model = Onnx::read(&folder.join(format!("{name}.onnx"))).unwrap();
        assert_eq!(model.versions(), (export::OPSET, export::IR));
        assert_eq!(std::fs::read_dir(folder.join(format!("{name}.reference"))).unwrap().count(), sets);
    }
}

/// Each with the oldest version of operators that it can be written with.
#[test]
fn older_versions_of_operators_are_written_as_well() {
    let folder = folder("older");
    let (out, checkpoint) = (folder.to_str().unwrap(), untrained(&folder));
    for (name, file, opset) in [("cnn", "cnn", "13"), ("int8", "cnn-int8", "13"), ("gpt", "gpt", "20")] {
        let asked =
            [name, "--out", out, "--checkpoint", &checkpoint, "--opset", opset, "--reference", "--images", "60"];
        let done = command(&asked);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let model = Onnx::read(&folder.join(format!("{file}.onnx"))).unwrap();
        assert_eq!(model.versions().0.to_string(), opset);
    }
    let refused = command(&["gpt", "--out", out, "--opset", "19"]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && text.contains("is a Gelu") && text.contains("\nnext: "), "{text}");
}

#[test]
fn weights_in_a_file_of_their_own_read_back() {
    let folder = folder("external");
    let config = Config { n_layer: 2, n_head: 3, n_embd: 48, n_ctx: 64, vocab_size: 100 };
    let weights = Weights::random(config, 5).unwrap();
    let (model, path) = (export::gpt(&weights).unwrap(), folder.join("gpt.onnx"));
    model.write_with(&path, 10_000).unwrap();
    assert_eq!(Onnx::read(&path).unwrap(), model);
    export::reference::gpt(&weights, &folder.join("gpt.reference")).unwrap();
    let small = std::fs::metadata(&path).unwrap().len();
    assert!(small < 30_000 && model.weight_bytes() > 200_000, "{small} of {}", model.weight_bytes());
}

/// The system refuses a file's bytes from a place on, as a full disk does.
#[test]
fn a_disk_that_gets_full_in_the_middle_leaves_the_model_before() {
    let folder = folder("full");
    let config = Config { n_layer: 1, n_head: 4, n_embd: 256, n_ctx: 64, vocab_size: 25_000 };
    Weights::random(config, 5).unwrap().save(&folder.join("weights"), DType::F32).unwrap();
    let out = folder.join("out");
    let export = |limit: &str, more: &[&str]| {
        // Without the signal the system answers with an error.
        let limited = format!("trap '' XFSZ && ulimit -f {limit} && exec \"$0\" \"$@\"");
        let mut sh = Command::new("sh");
        sh.args(["-c", &limited, env!("CARGO_BIN_EXE_gpulab"), "export-onnx", "gpt", "--gpt"]);
        sh.arg(folder.join("weights")).arg("--out").arg(&out).args(more).output().unwrap()
    };
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(&out).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    for more in [&[][..], &["--external-above", "0"]] {
        assert!(export("unlimited", more).status.success());
        let (whole, before) = (Onnx::read(&out.join("gpt.onnx")).unwrap(), names());
        assert!(whole.weight_bytes() > 25_000_000);
        // In blocks of 512 bytes, in some shells 1024: within the first part that is written, and behind it.
        for limit in ["2000", "20000"] {
            let refused = export(limit, more);
            let text = String::from_utf8_lossy(&refused.stderr);
            assert!(!refused.status.success() && text.contains("cannot write") && text.contains("next: "), "{text}");
            assert_eq!(Onnx::read(&out.join("gpt.onnx")).unwrap(), whole);
            assert_eq!(names(), before);
        }
    }
    // Nobody compares it.
    std::fs::remove_dir_all(&folder).unwrap();
}
