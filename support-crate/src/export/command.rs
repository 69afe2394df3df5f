//! `gpulab export-onnx`: the trained models as ONNX files; `gpulab export-onnx check FILE`: what such a file holds.

use super::{Onnx, cnn};
use crate::error::{Error, Result, bytes};
use crate::nn::Place;
use crate::nn::cnn::Checkpoint;
use crate::nn::options::Options;
use crate::results;
use std::path::{Path, PathBuf};
use std::time::Instant;

const USAGE: &str = "\
gpulab export-onnx [cnn] [--checkpoint FILE] [--out DIR] [--external-above BYTES]
    the trained CNN of lesson 20 as DIR/cnn.onnx; DIR is results/ at first. FILE is the newest results/cnn-DEVICE.safetensors
gpulab export-onnx check FILE
    reads an ONNX file whole, and says what it holds, or what is wrong with it";

/// Writes the models, or looks at a file; says what came of it.
///
/// # Errors
/// What an option names that is not there; as [`Checkpoint::read`], [`Onnx::write`] and [`Onnx::read`].
pub fn export(arguments: &[&str]) -> Result<String> {
    let mut options = Options::new(arguments, &[], USAGE)?;
    let out: PathBuf = options.get("out", results::dir())?;
    let checkpoint: PathBuf = options.get("checkpoint", PathBuf::new())?;
    let external_above = options.get("external-above", super::EXTERNAL_ABOVE)?;
    options.done()?;
    let words: Vec<&str> = options.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["check", file] => Ok(Onnx::read(Path::new(file))?.to_string()),
        [] | ["cnn"] => {
            let from = Some(checkpoint).filter(|path| !path.as_os_str().is_empty()).map_or_else(newest, Ok)?;
            written(&trained_cnn(&from)?, &out.join("cnn.onnx"), external_above)
        }
        other => Err(options.wrong(format!("`{}` is nothing that is exported", other.join(" ")))),
    }
}

/// A checkpoint's network, with what is known of its training.
///
/// # Errors
/// As [`Checkpoint::read`].
pub fn trained_cnn(checkpoint: &Path) -> Result<Onnx> {
    let Checkpoint { parameters, state, .. } = Checkpoint::read(checkpoint)?;
    let mut model = cnn(&parameters)?;
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
    let files = Place::ALL.map(|place| folder.join(format!("cnn-{}.safetensors", place.name())));
    let dated = files.into_iter().filter_map(|file| Some((std::fs::metadata(&file).ok()?.modified().ok()?, file)));
    dated.max().map(|(_, file)| file).ok_or_else(|| Error::Invalid {
        what: format!("no CNN was trained yet: there is no cnn-DEVICE.safetensors in {}", folder.display()),
        fix: "run `make train-cpu` (about a minute), or name one: `make export-onnx ARGS=\"--checkpoint FILE\"`"
            .to_string(),
    })
}

fn written(model: &Onnx, path: &Path, external_above: u64) -> Result<String> {
    let started = Instant::now();
    model.write_with(path, external_above)?;
    let seconds = started.elapsed().as_secs_f64();
    let size = bytes(std::fs::metadata(path).map_or(0, |file| file.len()));
    Ok(format!("{model}  written to {} ({size}) in {seconds:.2} s\n", path.display()))
}
