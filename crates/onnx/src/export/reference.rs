//! Random inputs, and what candle makes of them: what every other program that runs the model is compared with.
//!
//! Files as in ONNX's own tests: `FOLDER/SET/input_0.pb`, …, `output_0.pb`, …, each a tensor with its name.

use super::graph::tensor as proto;
use super::quantize::Quantised;
use candle_core::{DType, Device, Tensor};
use gpulab::cpu;
use gpulab::error::Result;
use gpulab_nn::cnn::{Cnn, Kernels, Parameters, Precision};
use gpulab_nn::gpt::{Gpt, KvCache, Weights};
use gpulab_nn::tensors::write_whole;
use prost::Message;
use std::path::Path;

/// Batches that the CNN is asked for.
const BATCHES: [usize; 4] = [1, 2, 7, 64];
/// Texts, tokens that the cache holds, and new tokens. What does not fit into the model's context is left out.
const CALLS: [(usize, usize, usize); 7] =
    [(1, 0, 1), (1, 0, 7), (3, 0, 16), (2, 5, 1), (4, 9, 3), (1, 31, 32), (1, 255, 1)];

/// Images of random pixels, and candle's logits; one set a batch, `batch-7`.
///
/// # Errors
/// As [`Cnn::logits`] and [`write_whole`].
pub fn cnn(parameters: &Parameters, folder: &Path) -> Result<()> {
    let cnn = Cnn::new(parameters, &Device::Cpu, Kernels::Candle, Precision::F32)?;
    for (seed, batch) in BATCHES.into_iter().enumerate() {
        let pixels: Vec<f32> = cpu::random_f32(batch * 784, seed as u64).iter().map(|x| 0.5 + 0.5 * x).collect();
        let images = Tensor::from_vec(pixels, (batch, 1, 28, 28), &Device::Cpu)?;
        let logits = cnn.logits(&images)?;
        let folder = folder.join(format!("batch-{batch}"));
        write(&folder, "input", 0, "images", &images)?;
        write(&folder, "output", 0, "logits", &logits)?;
    }
    Ok(())
}

/// Images with their digits, and what candle computes of them in 8 bits; one set, `test`.
///
/// # Errors
/// As [`Quantised::outputs`] and [`write_whole`].
pub fn int8(quantised: &Quantised, images: &Tensor, digits: &Tensor, folder: &Path) -> Result<()> {
    let folder = folder.join("test");
    write(&folder, "input", 0, "images", images)?;
    write(&folder, "output", 0, "logits", &quantised.outputs(images)?)?;
    write(&folder, "labels", 0, "digits", digits)
}

/// Random texts, and candle's logits and cache; one set a call, `texts-2-past-5-new-1`, and one whose texts differ in length.
///
/// # Errors
/// As [`Gpt::prefill`], [`Gpt::step`] and [`write_whole`].
pub fn gpt(weights: &Weights, folder: &Path) -> Result<()> {
    let gpt = Gpt::new(weights, &Device::Cpu, DType::F32)?;
    for (seed, (texts, past, new)) in CALLS.into_iter().enumerate() {
        if past + new <= gpt.config().n_ctx {
            call(&gpt, &random_texts(&gpt, &vec![past + new; texts], seed), past, folder)?;
        }
    }
    different_lengths(&gpt, &random_texts(&gpt, &[3, 8, 6], 99), folder)
}

fn random_texts(gpt: &Gpt, lengths: &[usize], seed: usize) -> Vec<Vec<u32>> {
    let tokens = gpt.config().vocab_size as f32;
    let text = |(at, &length): (usize, &usize)| {
        let numbers = cpu::random_f32(length, (100 * seed + at) as u64);
        numbers.iter().map(|x| (tokens * (0.5 + 0.5 * x)).min(tokens - 1.0) as u32).collect()
    };
    lengths.iter().enumerate().map(text).collect()
}

/// Texts of one length, whose first `past` tokens are in the cache already.
fn call(gpt: &Gpt, texts: &[Vec<u32>], past: usize, folder: &Path) -> Result<()> {
    let new = texts[0].len() - past;
    let whole = Tensor::from_vec(texts.concat(), (texts.len(), past + new), &Device::Cpu)?;
    // The logits of a text's tokens are the same whether they came at once or in pieces.
    let logits = gpt.logits(&whole)?.narrow(1, past, new)?;
    let prompts = |length: usize| texts.iter().map(|text| text[..length].to_vec()).collect::<Vec<_>>();
    let before = if past > 0 { Some(gpt.prefill(&prompts(past), 0)?.0) } else { None };
    let (after, _) = gpt.prefill(&prompts(past + new), 0)?;
    let places = (0..texts.len()).flat_map(|_| (past..past + new).map(|place| place as i64));
    let inputs = Inputs {
        ids: whole.narrow(1, past, new)?,
        mask: Tensor::ones((texts.len(), past + new), DType::I64, &Device::Cpu)?,
        places: Tensor::from_vec(places.collect::<Vec<i64>>(), (texts.len(), new), &Device::Cpu)?,
    };
    let folder = folder.join(format!("texts-{}-past-{past}-new-{new}", texts.len()));
    inputs.write(gpt, &folder, before.as_ref(), &logits, &after)
}

/// One more token for texts of different lengths, the shorter ones filled up on the left.
fn different_lengths(gpt: &Gpt, texts: &[Vec<u32>], folder: &Path) -> Result<()> {
    let longest = texts.iter().map(Vec::len).max().unwrap_or(0);
    let (mut cache, first) = gpt.prefill(texts, 1)?;
    let (before, _) = gpt.prefill(texts, 1)?;
    let next: Vec<u32> = first.argmax(1)?.to_vec1()?;
    let logits = gpt.step(&next, &mut cache)?.unsqueeze(1)?;
    let mask = texts.iter().flat_map(|text| (0..=longest).map(|at| i64::from(at + text.len() >= longest)));
    let places: Vec<i64> = texts.iter().map(|text| text.len() as i64).collect();
    let count = texts.len();
    let inputs = Inputs {
        ids: Tensor::from_vec(next, (count, 1), &Device::Cpu)?,
        mask: Tensor::from_vec(mask.collect::<Vec<i64>>(), (count, longest + 1), &Device::Cpu)?,
        places: Tensor::from_vec(places, (count, 1), &Device::Cpu)?,
    };
    inputs.write(gpt, &folder.join("texts-of-different-lengths"), Some(&before), &logits, &cache)
}

/// What a call is given beside the cache, in the order of the graph's inputs.
struct Inputs {
    ids: Tensor,
    mask: Tensor,
    places: Tensor,
}

impl Inputs {
    fn write(
        &self,
        gpt: &Gpt,
        folder: &Path,
        past: Option<&KvCache>,
        logits: &Tensor,
        present: &KvCache,
    ) -> Result<()> {
        write(folder, "input", 0, "input_ids", &self.ids)?;
        write(folder, "input", 1, "attention_mask", &self.mask)?;
        write(folder, "input", 2, "position_ids", &self.places)?;
        write(folder, "output", 0, "logits", logits)?;
        let config = gpt.config();
        let nothing = Tensor::zeros((self.ids.dim(0)?, config.n_head, 0, config.head()), DType::F32, &Device::Cpu)?;
        for layer in 0..config.n_layer {
            let (keys, values) =
                past.map_or_else(|| Ok((nothing.clone(), nothing.clone())), |past| past.keys_values(layer))?;
            let (new_keys, new_values) = present.keys_values(layer)?;
            for (part, name, before, after) in [(0, "key", &keys, &new_keys), (1, "value", &values, &new_values)] {
                let at = 2 * layer + part;
                write(folder, "input", 3 + at, &format!("past_key_values.{layer}.{name}"), before)?;
                write(folder, "output", 1 + at, &format!("present.{layer}.{name}"), after)?;
            }
        }
        Ok(())
    }
}

/// A tensor as a file. Whole numbers become i64, as the graphs take them.
fn write(folder: &Path, word: &str, at: usize, name: &str, tensor: &Tensor) -> Result<()> {
    let flat = tensor.flatten_all()?;
    let file = match tensor.dtype() {
        DType::F32 => proto(name, tensor.dims(), &flat.to_vec1::<f32>()?),
        _ => proto(name, tensor.dims(), &flat.to_dtype(DType::I64)?.to_vec1::<i64>()?),
    };
    write_whole(&folder.join(format!("{word}_{at}.pb")), &file.encode_to_vec())
}
