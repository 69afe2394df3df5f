//! A checkpoint's CNN, with what is known of its training: in f32, and in 8 bits.

use super::graph::Onnx;
use super::models::cnn;
use super::quantize::{Activations, QuantConfig, Quantised, calibrate};
use super::reference;
use candle_core::Device;
use gpulab::error::Result;
use gpulab_nn::cnn::{Checkpoint, batch};
use gpulab_nn::data;
use gpulab_nn::memory::Network;
use std::path::{Path, PathBuf};

/// Images that ranges are taken from.
const EXAMPLES: usize = 500;
/// Test images that show how far each value is off.
const SHOWN: usize = 200;

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

/// How a trained CNN becomes one of 8-bit integers.
#[derive(Debug, Clone, PartialEq)]
pub struct Int8 {
    /// The integers of the values between layers.
    pub activations: Activations,
    /// The share of the numbers at each end of a range that is cut off.
    pub outside: f64,
    /// The folder of the images; `None` is that of [`data::images`].
    pub data: Option<PathBuf>,
    /// Images that the result is judged by, 1 or more.
    pub tests: usize,
}

/// [`trained_cnn`] in 8 bits, by the ranges of images that it was trained on, and its ranges and errors as a table. The test
/// images with candle's outputs go to `folder`.
///
/// # Errors
/// As [`data::first_images`], [`calibrate`], [`Quantised::new`] and [`reference::int8`].
pub fn trained_int8(checkpoint: &Checkpoint, asked: &Int8, folder: Option<&Path>) -> Result<(Onnx, String)> {
    let images = data::first_images(asked.data.as_deref(), EXAMPLES, asked.tests)?;
    let first = |count: usize| (0..count as u32).collect::<Vec<u32>>();
    let (examples, _) = batch(&images.train, &first(EXAMPLES.min(images.train.len())), &Device::Cpu)?;
    let (tests, digits) = batch(&images.test, &first(asked.tests.min(images.test.len())), &Device::Cpu)?;
    let network = Network::cnn();
    let arrays: Vec<&[f32]> = checkpoint.parameters.arrays.iter().map(Vec::as_slice).collect();
    let seen = calibrate(&network, &arrays, &examples, asked.outside)?;
    let settings = QuantConfig { activations: asked.activations, ..QuantConfig::default() };
    let quantised = Quantised::new(&network, &arrays, &seen, settings)?;
    if let Some(folder) = folder {
        reference::int8(&quantised, &tests, &digits, folder)?;
    }
    let mut model = quantised.model("images", "logits")?;
    model.note("trained on", &checkpoint.state.data);
    model.note("ranges", &format!("of {} images of {}", seen.examples, images.name));
    let shown = tests.narrow(0, 0, SHOWN.min(tests.dim(0)?))?;
    Ok((model, quantised.table(&quantised.errors(&shown)?)))
}
