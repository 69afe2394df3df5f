//! `gpulab export-onnx`: the trained models as ONNX files; `gpulab export-onnx check FILE`: what such a file holds.

use super::{OPSET, Onnx, cnn, gpt, int8, reference};
use gpulab::error::{Error, Result, bytes};
use gpulab::results;
use gpulab_nn::DeviceKind;
use gpulab_nn::cnn::Checkpoint;
use gpulab_nn::gpt::{Config, Text, Weights};
use gpulab_nn::options::Options;
use std::path::{Path, PathBuf};
use std::time::Instant;

const USAGE: &str = "\
gpulab export-onnx [cnn|gpt|int8] [--checkpoint FILE] [--gpt FOLDER] [--out DIR] [--external-above BYTES] [--opset N]
                    [--reference]
    the trained CNN of lesson 20 as DIR/cnn.onnx, the small GPT as DIR/gpt.onnx, or one of them; DIR is results/ at first,
    FILE the newest results/cnn-DEVICE.safetensors, FOLDER models/course; `--gpt random` is a GPT-2 of 124 million
    random weights, to time. More than BYTES of weights lie in a file of their own;
    N is the version of ONNX's operators, 24 at first; ONNX Runtime's CUDA provider has kernels for all of 21;
    --reference writes random inputs and candle's outputs beside each model, in DIR/cnn.reference and DIR/gpt.reference
    `int8`, which comes with `cnn`, is the CNN in 8 bits, DIR/cnn-int8.onnx, by the ranges of images that it was trained
    on: [--data DIR] [--activations u8|i8] [--outside SHARE] [--images N], judged by N test images
gpulab export-onnx check FILE
    reads an ONNX file whole, and says what it holds, or what is wrong with it";

/// Writes the models, or looks at a file; says what came of it.
///
/// # Errors
/// What an option names that is not there; as [`Checkpoint::read`], [`Onnx::write`] and [`Onnx::read`].
pub fn export(arguments: &[&str]) -> Result<String> {
    let mut options = Options::new(arguments, &["reference"], USAGE)?;
    let out: PathBuf = options.get("out", results::dir())?;
    let checkpoint: PathBuf = options.get("checkpoint", PathBuf::new())?;
    let folder = options.get("gpt", Text::folder())?;
    let above = options.get("external-above", super::EXTERNAL_ABOVE)?;
    let opset = options.get("opset", OPSET)?;
    let with_reference = options.flag("reference");
    let in_8_bits = int8::asked(&mut options)?;
    options.done()?;
    let words: Vec<&str> = options.words.iter().map(String::as_str).collect();
    let from_cnn = || Some(checkpoint.clone()).filter(|path| !path.as_os_str().is_empty()).map_or_else(newest, Ok);
    let cnn = |from: &Path| -> Result<String> {
        let checkpoint = Checkpoint::read(from)?;
        if with_reference {
            reference::cnn(&checkpoint.parameters, &out.join("cnn.reference"))?;
        }
        written(|| trained_cnn(&checkpoint)?.with_opset(opset), &out.join("cnn.onnx"), above)
    };
    let eight = |from: &Path| -> Result<String> {
        let folder = with_reference.then(|| out.join("cnn-int8.reference"));
        let (model, table) = int8::model(&Checkpoint::read(from)?, &in_8_bits, folder.as_deref())?;
        Ok(format!("{}{table}\n", written(|| model.with_opset(opset), &out.join("cnn-int8.onnx"), above)?))
    };
    let gpt = || -> Result<String> {
        let random = folder.as_os_str() == "random";
        let weights = if random { Weights::random(Config::GPT2, 1) } else { Weights::load(&folder) }?;
        if with_reference {
            reference::gpt(&weights, &out.join("gpt.reference"))?;
        }
        written(|| gpt(&weights)?.with_opset(opset), &out.join("gpt.onnx"), above)
    };
    match words.as_slice() {
        ["check", file] => Ok(Onnx::read(Path::new(file))?.to_string()),
        ["cnn"] => cnn(&from_cnn()?),
        ["int8"] => eight(&from_cnn()?),
        ["gpt"] => gpt(),
        // A model that is not trained yet is no reason to leave the other out.
        [] => {
            let first = match from_cnn() {
                Ok(from) => format!("{}{}", cnn(&from)?, eight(&from)?),
                Err(error) => format!("cnn.onnx was not written: {error}\n"),
            };
            Ok(format!("{first}{}", gpt()?))
        }
        other => Err(options.wrong(format!("`{}` is nothing that is exported", other.join(" ")))),
    }
}

/// A checkpoint's network, with what is known of its training.
///
/// # Errors
/// As [`cnn`].
pub fn trained_cnn(checkpoint: &Checkpoint) -> Result<Onnx> {
    let (mut model, state) = (cnn(&checkpoint.parameters)?, &checkpoint.state);
    model.note("trained on", &state.data);
    model.note("steps", &state.step.to_string());
    if let Some(epoch) = state.epochs.last() {
        model.note("accuracy on its test images", &epoch.accuracy.to_string());
    }
    Ok(model)
}

/// The newest checkpoint of `make train-cpu` and its sisters.
fn newest() -> Result<PathBuf> {
    let folder = results::dir();
    let files = DeviceKind::ALL.map(|place| folder.join(format!("cnn-{}.safetensors", place.name())));
    let dated = files.into_iter().filter_map(|file| Some((std::fs::metadata(&file).ok()?.modified().ok()?, file)));
    dated.max().map(|(_, file)| file).ok_or_else(|| Error::Invalid {
        what: format!("no CNN was trained yet: there is no cnn-DEVICE.safetensors in {}", folder.display()),
        fix: "run `make train-cpu` (about a minute), or name one: `make export-onnx ARGS=\"--checkpoint FILE\"`"
            .to_string(),
    })
}

/// The time is that of the export: from weights in memory to a file on the disk.
fn written(make: impl FnOnce() -> Result<Onnx>, path: &Path, external_above: u64) -> Result<String> {
    let started = Instant::now();
    let model = make()?;
    let made = started.elapsed().as_secs_f64();
    model.write_with(path, external_above)?;
    let seconds = started.elapsed().as_secs_f64();
    let size = bytes(std::fs::metadata(path).map_or(0, |file| file.len()));
    let (path, rest) = (path.display(), seconds - made);
    Ok(format!(
        "{model}  written to {path} ({size}) in {seconds:.2} s: {made:.2} for the graph, {rest:.2} for the file\n"
    ))
}
