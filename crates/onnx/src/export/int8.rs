//! The trained CNN in 8 bits, as the command writes it.

use super::model::Onnx;
use super::quantize::{Activations, Quantised, Settings, calibrate};
use super::reference;
use gpulab_nn::data;
use gpulab::error::Result;
use gpulab_nn::cnn::{Checkpoint, batch};
use gpulab_nn::memory::Network;
use gpulab_nn::options::Options;
use candle_core::Device;
use std::path::{Path, PathBuf};

/// Images that ranges are taken from, and images that the result is judged by at first.
const EXAMPLES: (usize, usize) = (500, 2000);
/// Of these, as many as show how far each value is off.
const SHOWN: usize = 200;

/// What the command was asked for.
pub(super) struct Asked {
    settings: Settings,
    outside: f64,
    data: Option<PathBuf>,
    tests: usize,
}

pub(super) fn asked(options: &mut Options) -> Result<Asked> {
    let activations = match options.get("activations", "u8".to_string())?.as_str() {
        "u8" => Activations::U8,
        "i8" => Activations::I8,
        other => return Err(options.wrong(format!("`--activations {other}` are no 8-bit integers"))),
    };
    let outside = options.get("outside", 0.0)?;
    if !(0.0..0.5).contains(&outside) {
        return Err(options.wrong(format!("`--outside {outside}` is no share of the numbers at each end")));
    }
    let data: PathBuf = options.get("data", PathBuf::new())?;
    let data = (!data.as_os_str().is_empty()).then_some(data);
    let tests = options.get("images", EXAMPLES.1)?.max(1);
    Ok(Asked { settings: Settings { activations, ..Settings::default() }, outside, data, tests })
}

/// The model, and its ranges and errors as a table; the test images with candle's outputs go to `folder`.
pub(super) fn model(checkpoint: &Checkpoint, asked: &Asked, folder: Option<&Path>) -> Result<(Onnx, String)> {
    let images = data::first_images(asked.data.as_deref(), EXAMPLES.0, asked.tests)?;
    let first = |count: usize| (0..count as u32).collect::<Vec<u32>>();
    let (examples, _) = batch(&images.train, &first(EXAMPLES.0.min(images.train.len())), &Device::Cpu)?;
    let (tests, digits) = batch(&images.test, &first(asked.tests.min(images.test.len())), &Device::Cpu)?;
    let network = Network::cnn();
    let arrays: Vec<&[f32]> = checkpoint.parameters.arrays.iter().map(Vec::as_slice).collect();
    let seen = calibrate(&network, &arrays, &examples, asked.outside)?;
    let quantised = Quantised::new(&network, &arrays, &seen, asked.settings)?;
    if let Some(folder) = folder {
        reference::int8(&quantised, &tests, &digits, folder)?;
    }
    let mut model = quantised.model("images", "logits")?;
    model.note("trained on", &checkpoint.state.data);
    model.note("ranges", &format!("of {} images of {}", seen.examples, images.name));
    let shown = tests.narrow(0, 0, SHOWN.min(tests.dim(0)?))?;
    Ok((model, quantised.table(&quantised.errors(&shown)?)))
}
