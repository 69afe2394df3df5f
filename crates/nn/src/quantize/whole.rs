//! A whole Llama with its matrices in fewer bits, how far off each of them is, and how long a token takes.

use super::{Calibration, Format, Rounded, Share, WeightMatrix, awq, calibration, ggml_stored, gptq};
use crate::gpt::CausalModel;
use crate::llama::{Input, Llama, Projection, WeightDtype};
use candle_core::{DType, Device, Tensor};
use gpulab::error::{Error, Result};
use std::time::Instant;

/// How matrices are rounded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Method {
    /// Each weight by itself.
    Round(Format),
    /// [`gptq`]: later columns make up for the error of earlier ones.
    Gptq {
        /// Of each weight.
        bits: u32,
        /// Whether the grid begins at the least weight.
        zero_point: bool,
        /// Who shares a scale.
        share: Share,
    },
    /// [`awq`]: large inputs get a finer grid.
    Awq {
        /// Of each weight.
        bits: u32,
        /// Whether the grid begins at the least weight.
        zero_point: bool,
        /// Who shares a scale.
        share: Share,
    },
}

/// How far one matrix is off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MatrixError {
    /// The layer's number.
    pub layer: usize,
    /// Which of its matrices.
    pub of: Projection,
    /// The root of the mean square of what the weights are off, over that of the weights.
    pub weights: f64,
    /// The same of the matrix' outputs on the calibration text.
    pub outputs: f64,
}

/// A Llama with fewer bits.
#[derive(Debug, Clone)]
pub struct QuantizedLlama {
    /// The model.
    pub llama: Llama,
    /// What was done to it.
    pub method: Method,
    /// Bits of all the layers' matrices, scales included.
    pub bits: u64,
    /// How far each matrix is off.
    pub errors: Vec<MatrixError>,
}

impl Method {
    /// Its name, such as `GPTQ int4, absmax, a scale a row`.
    pub fn name(&self) -> String {
        let int = |bits, zero_point, share| Format::Int { bits, zero_point, share }.name();
        match *self {
            Method::Round(format) => format.name(),
            Method::Gptq { bits, zero_point, share } => format!("GPTQ {}", int(bits, zero_point, share)),
            Method::Awq { bits, zero_point, share } => format!("AWQ {}", int(bits, zero_point, share)),
        }
    }

    fn round(&self, matrices: &[WeightMatrix], calibration: &Calibration) -> Result<Vec<Rounded>> {
        match *self {
            Method::Round(format) => matrices.iter().map(|weights| format.round(*weights)).collect(),
            Method::Gptq { bits, zero_point, share } => {
                matrices.iter().map(|weights| gptq(*weights, calibration, bits, zero_point, share)).collect()
            }
            Method::Awq { bits, zero_point, share } => Ok(awq(matrices, calibration, bits, zero_point, share)?.0),
        }
    }
}

impl QuantizedLlama {
    /// Bits of a weight of the layers' matrices, scales included. Embedding and norms are as they were.
    pub fn bits_a_weight(&self) -> f64 {
        self.bits as f64 / self.llama.config().projection_count() as f64
    }

    /// Bytes of the layers' matrices.
    pub fn bytes(&self) -> u64 {
        self.bits.div_ceil(8)
    }
}

/// Tokens of the calibration text that are read as one text: a longer one is cut into pieces.
const WINDOW: usize = 512;

/// Rounds the matrices of a model that is kept in f32, layer after layer. The calibration text runs through each layer as it was
/// rounded, so that a layer meets the inputs that the ones before it will give it. Embedding and norms stay. A text of more than 512
/// tokens, or than the model's context, is read in pieces of that length, and what is left over is not read.
///
/// # Errors
/// [`Error::Invalid`] when the model is not kept in f32, the text has fewer than 128 tokens, or a group does not divide a row.
pub fn quantize(model: &Llama, method: Method, text: &[u32]) -> Result<QuantizedLlama> {
    if model.precision() != WeightDtype::Dense(DType::F32) {
        return Err(Error::invalid(
            "a model that is not kept in f32 cannot be rounded exactly",
            "load it with WeightDtype::Dense(DType::F32)",
        ));
    }
    calibration::enough(text.len())?;
    let mut llama = model.clone();
    let window = text.len().min(WINDOW).min(llama.config().context);
    let pieces = text.chunks_exact(window).map(|piece| llama.embed(piece)).collect::<Result<Vec<_>>>()?;
    let mut x = Tensor::cat(&pieces, 0)?;
    let (mut bits, mut errors) = (0, Vec::new());
    for layer in 0..llama.config().layers {
        let mut inputs: Vec<(Input, Calibration)> = Vec::new();
        llama.layer(layer, &x, &mut |input, x| {
            inputs.push((input, Calibration::of(x)?));
            Ok(())
        })?;
        for (input, calibration) in &inputs {
            let readers: Vec<Projection> = Projection::ALL.into_iter().filter(|of| of.input() == *input).collect();
            let own = readers.iter().map(|of| Ok(llama.weight(layer, *of)?.flatten_all()?.to_vec1::<f32>()?));
            let own = own.collect::<Result<Vec<_>>>()?;
            let columns = calibration.mean_abs.len();
            let matrices: Vec<WeightMatrix> = own.iter().map(|values| WeightMatrix { values, columns }).collect();
            let rounded = method.round(&matrices, calibration)?;
            for ((of, weights), rounded) in readers.iter().zip(&matrices).zip(&rounded) {
                bits += rounded.bits;
                errors.push(MatrixError {
                    layer,
                    of: *of,
                    weights: off(weights.values, &rounded.values),
                    outputs: calibration.output_error(*weights, &rounded.values)?.max(0.0).sqrt(),
                });
                match method {
                    // candle multiplies with these bits themselves.
                    Method::Round(Format::Ggml(kind)) => {
                        llama.replace_quantized(layer, *of, ggml_stored(*weights, kind)?)?;
                    }
                    _ => {
                        let shape = (weights.rows(), columns);
                        let tensor = Tensor::from_slice(&rounded.values, shape, &Device::Cpu)?;
                        llama.replace(layer, *of, &tensor)?;
                    }
                }
            }
        }
        x = llama.layer(layer, &x, &mut |_, _| Ok(()))?;
    }
    Ok(QuantizedLlama { llama, method, bits, errors })
}

fn off(own: &[f32], rounded: &[f32]) -> f64 {
    let square = |x: f32| f64::from(x) * f64::from(x);
    let sum: f64 = own.iter().map(|x| square(*x)).sum();
    let off: f64 = own.iter().zip(rounded).map(|(a, b)| square(a - b)).sum();
    (off / sum.max(f64::MIN_POSITIVE)).sqrt()
}

/// Milliseconds of each of `count` tokens of one text, with `context` tokens in the cache at first.
///
/// # Errors
/// As [`CausalModel::prefill`].
pub fn token_ms(model: &Llama, context: usize, count: usize) -> Result<Vec<f64>> {
    let (mut cache, _) = model.prefill(&[vec![0; context]], count + 1)?;
    let mut ms = Vec::new();
    for at in 0..=count {
        let start = Instant::now();
        // On the host: the device is done then.
        model.step(&[0], &mut cache)?.to_vec2::<f32>()?;
        // The first one warms up: memory is touched, weights are packed.
        if at > 0 {
            ms.push(1e3 * start.elapsed().as_secs_f64());
        }
    }
    Ok(ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llama::tiny::{CONFIG, TinyFile};
    use crate::llama::{ChatModel, model_path};
    use candle_core::quantized::GgmlDType;

    fn tiny(name: &str) -> (Llama, Vec<u32>) {
        // A longer context than the other tests need: calibration asks for 128 tokens.
        let longer = candle_core::quantized::gguf_file::Value::U32(256);
        let file = TinyFile::new(name, |tiny| tiny.set("llama.context_length", longer));
        let llama = ChatModel::load(&file.0, &Device::Cpu, WeightDtype::Dense(DType::F32)).unwrap().llama;
        let mut random = crate::gpt::SplitMix64::new(8);
        (llama, (0..200).map(|_| (random.bits() % CONFIG.vocabulary as u64) as u32).collect())
    }

    const INT4: (u32, bool, Share) = (4, false, Share::Row);

    #[test]
    fn methods_that_look_at_the_inputs_are_closer() {
        let (llama, text) = tiny("methods");
        let (bits, zero_point, share) = INT4;
        let mean = |method| {
            let done = quantize(&llama, method, &text).unwrap();
            assert_eq!(done.errors.len(), 7 * CONFIG.layers);
            assert!((done.bits_a_weight() - 4.0 - 16.0 / 128.0).abs() < 0.05, "{}", done.bits_a_weight());
            done.errors.iter().map(|error| error.outputs).sum::<f64>() / done.errors.len() as f64
        };
        let plain = mean(Method::Round(Format::Int { bits, zero_point, share }));
        let (gptq, awq) =
            (mean(Method::Gptq { bits, zero_point, share }), mean(Method::Awq { bits, zero_point, share }));
        assert!(gptq < 0.8 * plain && awq < 1.001 * plain, "{plain} {gptq} {awq}");
    }

    #[test]
    fn a_long_text_is_read_in_pieces() {
        let (llama, text) = tiny("pieces");
        let method = Method::Round(Format::Int { bits: 4, zero_point: false, share: Share::Row });
        // The context is 256: the rest of 300 tokens is left over.
        let long: Vec<u32> = text.iter().chain(&text).copied().collect();
        let (one, same) =
            (quantize(&llama, method, &long[..256]).unwrap(), quantize(&llama, method, &long[..300]).unwrap());
        assert_eq!(one.errors, same.errors);
        let twice: Vec<u32> = long[..256].iter().chain(&long[..256]).copied().collect();
        let twice = quantize(&llama, method, &twice).unwrap();
        let near = |(a, b): (&MatrixError, &MatrixError)| (a.outputs / b.outputs - 1.0).abs() < 0.2;
        assert!(one.errors.iter().zip(&twice.errors).all(near), "{:?} {:?}", one.errors, twice.errors);
    }

    #[test]
    fn requantizing_to_the_files_own_kind_changes_nearly_nothing() {
        let (llama, text) = tiny("own-kind");
        let done = quantize(&llama, Method::Round(Format::Ggml(GgmlDType::Q4_1)), &text).unwrap();
        assert!(done.errors.iter().all(|error| error.weights < 2e-3), "{:?}", done.errors);
        assert_eq!(done.bits_a_weight(), 5.0);
        assert_eq!(done.bytes(), CONFIG.projection_count() as u64 / 32 * 20);
        let two =
            quantize(&llama, Method::Round(Format::Int { bits: 2, zero_point: true, share: Share::Group(64) }), &text);
        assert!(two.unwrap().errors.iter().all(|error| error.weights > 0.1));
    }

    #[test]
    fn what_cannot_be_quantized_is_refused() {
        let (llama, text) = tiny("refused");
        let (bits, zero_point, share) = INT4;
        let says = |llama: &Llama, method, text: &[u32], word: &str| {
            let error = quantize(llama, method, text).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("\nnext: "), "{error}");
        };
        let method = Method::Gptq { bits, zero_point, share };
        says(&llama, method, &text[..100], "100 tokens is too short");
        says(&llama, Method::Awq { bits, zero_point, share: Share::Group(100) }, &text, "groups of 100");
        let file = TinyFile::new("stored", |_| ());
        let stored = ChatModel::load(&file.0, &Device::Cpu, WeightDtype::AsStored).unwrap().llama;
        says(&stored, method, &text, "not kept in f32");
        assert_eq!(token_ms(&stored, 4, 3).unwrap().len(), 3);
    }

    #[test]
    fn smollm2_keeps_its_loss_in_eight_bits_and_loses_it_in_two() {
        if !model_path().exists() {
            println!("skipped: SmolLM2 is not here; `make model` fetches it");
            return;
        }
        let model = ChatModel::smollm2(&Device::Cpu, WeightDtype::Dense(DType::F32)).unwrap();
        let text = crate::gpt::Text::course().unwrap();
        let tokens = model.tokenizer.encode(&String::from_utf8_lossy(&text.held_out[..1500])).unwrap();
        let loss = |bits| {
            let format = Format::Int { bits, zero_point: true, share: Share::Row };
            let done = quantize(&model.llama, Method::Round(format), &tokens[..130]).unwrap();
            done.llama.loss(&tokens[..256], 256).unwrap()
        };
        let own = model.llama.loss(&tokens[..256], 256).unwrap();
        assert!(own > 1.0 && own < 5.0, "{own}");
        assert!((loss(8) - own).abs() < 0.05 && loss(2) > own + 1.0, "{own}");
    }
}
