//! `gpulab export-onnx`: the trained models as ONNX files; `gpulab export-onnx check FILE`: what such a file holds.

use crate::options::{ActivationChoice, Check, ExportOnnx, ModelChoice};
use gpulab::error::{Error, Result, bytes};
use gpulab::results;
use gpulab_nn::DeviceKind;
use gpulab_nn::cnn::Checkpoint;
use gpulab_nn::gpt::{Config, Text, Weights};
use gpulab_onnx::export::{self, EXTERNAL_ABOVE, Int8, OPSET, Onnx, quantize, reference, trained_cnn, trained_int8};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Writes the models, or looks at a file; says what came of it.
///
/// # Errors
/// As [`Checkpoint::read`], [`Onnx::write`] and [`Onnx::read`].
pub fn export(options: ExportOnnx) -> Result<String> {
    if let Some(Check::Check { file }) = &options.check {
        return Ok(Onnx::read(file)?.to_string());
    }
    let out = options.out.unwrap_or_else(results::dir);
    let above = options.external_above.unwrap_or(EXTERNAL_ABOVE);
    let opset = options.opset.unwrap_or(OPSET);
    let in_8_bits = Int8 {
        activations: match options.activations {
            ActivationChoice::U8 => quantize::Activations::U8,
            ActivationChoice::I8 => quantize::Activations::I8,
        },
        outside: options.outside,
        data: options.data,
        tests: options.images,
    };
    let from_cnn = || options.checkpoint.clone().map_or_else(newest, Ok);
    let cnn = |from: &Path| -> Result<String> {
        let checkpoint = Checkpoint::read(from)?;
        if options.reference {
            reference::cnn(&checkpoint.parameters, &out.join("cnn.reference"))?;
        }
        written(|| trained_cnn(&checkpoint)?.with_opset(opset), &out.join("cnn.onnx"), above)
    };
    let int8 = |from: &Path| -> Result<String> {
        let folder = options.reference.then(|| out.join("cnn-int8.reference"));
        let (model, table) = trained_int8(&Checkpoint::read(from)?, &in_8_bits, folder.as_deref())?;
        Ok(format!("{}{table}\n", written(|| model.with_opset(opset), &out.join("cnn-int8.onnx"), above)?))
    };
    let gpt = || -> Result<String> {
        let weights = match &options.gpt {
            Some(random) if random.as_os_str() == "random" => Weights::random(Config::GPT2, 1),
            Some(folder) => Weights::load(folder),
            None => Weights::load(&Text::folder()),
        }?;
        if options.reference {
            reference::gpt(&weights, &out.join("gpt.reference"))?;
        }
        written(|| export::gpt(&weights)?.with_opset(opset), &out.join("gpt.onnx"), above)
    };
    match options.model {
        Some(ModelChoice::Cnn) => cnn(&from_cnn()?),
        Some(ModelChoice::Int8) => int8(&from_cnn()?),
        Some(ModelChoice::Gpt) => gpt(),
        // A model that is not trained yet is no reason to leave the other out.
        None => {
            let first = match from_cnn() {
                Ok(from) => format!("{}{}", cnn(&from)?, int8(&from)?),
                Err(error) => format!("cnn.onnx was not written: {error}\n"),
            };
            Ok(format!("{first}{}", gpt()?))
        }
    }
}

/// The newest checkpoint of `make train-cpu` and its sisters.
fn newest() -> Result<PathBuf> {
    let folder = results::dir();
    let files = DeviceKind::ALL.map(|device| folder.join(format!("cnn-{}.safetensors", device.name())));
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
