//! A tiny Llama as a GGUF file: random weights that a seed names, in Q4_1 and Q8_0 as SmolLM2's, bytes as tokens. Tests use one;
//! lesson 41 a larger one, where SmolLM2 is not there.

use super::{ChatModel, LlamaConfig, Projection, WeightDtype};
use crate::gpt::SplitMix64;
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use gpulab::error::{Error, Result};
use std::path::{Path, PathBuf};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

#[cfg(test)]
pub const CONFIG: LlamaConfig = LlamaConfig {
    layers: 2,
    heads: 8,
    kv_heads: 2,
    width: 128,
    inner: 192,
    context: 64,
    vocabulary: 259,
    rope_base: 10_000.0,
    epsilon: 1e-5,
};
/// The practice model's: rows of whole k-quant blocks (256).
const PRACTICE: LlamaConfig = LlamaConfig {
    layers: 4,
    heads: 8,
    kv_heads: 2,
    width: 256,
    inner: 512,
    context: 1024,
    vocabulary: 259,
    rope_base: 10_000.0,
    epsilon: 1e-5,
};
/// Its channels that every norm of a layer makes loud.
const LOUD: [usize; 3] = [17, 101, 230];
const TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + \
                        '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>' }}{% endif %}";

/// Metadata and tensors; a test changes them before they are written.
pub struct Tiny {
    pub metadata: Vec<(String, Value)>,
    pub tensors: Vec<(String, QTensor)>,
}

impl Tiny {
    #[cfg(test)]
    pub fn new() -> Tiny {
        let mut random = SplitMix64::new(41);
        Tiny::drawn(&CONFIG, |name, count| {
            let (around, spread) = match name {
                "token_embd.weight" => (0.0, 2.0),
                name if name.contains("norm") => (1.0, 0.5),
                _ => (0.0, 0.6),
            };
            (0..count).map(|_| around + spread * (random.unit() as f32 - 0.5)).collect()
        })
        .unwrap()
    }

    /// Weights around 0 that are roughly normal, as a trained model's, and three loud channels.
    fn practice() -> Result<Tiny> {
        let mut random = SplitMix64::new(41);
        Tiny::drawn(&PRACTICE, |name, count| {
            // The sum of six uniform numbers has a standard deviation of √½.
            let mut normal = || (0..6).map(|_| random.unit() as f32 - 0.5).sum::<f32>() * 2.0_f32.sqrt();
            let mut values: Vec<f32> = match name.contains("norm") {
                true => (0..count).map(|_| 1.0 + 0.1 * normal()).collect(),
                false => (0..count).map(|_| normal() / (PRACTICE.width as f32).sqrt()).collect(),
            };
            if name.contains("attn_norm") || name.contains("ffn_norm") {
                LOUD.iter().for_each(|channel| values[*channel] *= 15.0);
            }
            values
        })
    }

    /// A model of that shape; `draw` gives the numbers of the array of that name.
    fn drawn(config: &LlamaConfig, mut draw: impl FnMut(&str, usize) -> Vec<f32>) -> Result<Tiny> {
        let mut letters: Vec<char> = ByteLevel::alphabet().into_iter().collect();
        letters.sort_unstable();
        let mut tokens = vec!["<|endoftext|>".to_string(), "<|im_start|>".to_string(), "<|im_end|>".to_string()];
        tokens.extend(letters.iter().map(char::to_string));
        let kinds = (0..tokens.len()).map(|token| Value::I32(if token < 3 { 3 } else { 1 })).collect();
        let text = |text: &str| Value::String(text.to_string());
        let number = |number: usize| Value::U32(number as u32);
        let metadata = [
            ("general.architecture", text("llama")),
            ("llama.block_count", number(config.layers)),
            ("llama.context_length", number(config.context)),
            ("llama.embedding_length", number(config.width)),
            ("llama.feed_forward_length", number(config.inner)),
            ("llama.attention.head_count", number(config.heads)),
            ("llama.attention.head_count_kv", number(config.kv_heads)),
            ("llama.attention.layer_norm_rms_epsilon", Value::F32(config.epsilon)),
            ("llama.rope.freq_base", Value::F32(config.rope_base)),
            ("llama.rope.dimension_count", number(config.head_dim())),
            ("tokenizer.ggml.model", text("gpt2")),
            ("tokenizer.ggml.pre", text("smollm")),
            ("tokenizer.ggml.tokens", Value::Array(tokens.into_iter().map(Value::String).collect())),
            ("tokenizer.ggml.token_type", Value::Array(kinds)),
            ("tokenizer.ggml.merges", Value::Array(Vec::new())),
            ("tokenizer.ggml.eos_token_id", number(2)),
            ("tokenizer.chat_template", text(TEMPLATE)),
        ];
        let mut tensors = Vec::new();
        let mut add = |name: &str, shape: &[usize], kind: GgmlDType| -> Result<()> {
            let values = draw(name, shape.iter().product());
            let tensor = Tensor::from_vec(values, shape, &Device::Cpu)?;
            tensors.push((name.to_string(), QTensor::quantize(&tensor, kind)?));
            Ok(())
        };
        add("token_embd.weight", &[config.vocabulary, config.width], GgmlDType::Q8_0)?;
        for layer in 0..config.layers {
            add(&format!("blk.{layer}.attn_norm.weight"), &[config.width], GgmlDType::F32)?;
            add(&format!("blk.{layer}.ffn_norm.weight"), &[config.width], GgmlDType::F32)?;
            for of in Projection::ALL {
                add(&format!("blk.{layer}.{}.weight", of.name()), &of.shape(config), GgmlDType::Q4_1)?;
            }
        }
        add("output_norm.weight", &[config.width], GgmlDType::F32)?;
        Ok(Tiny { metadata: metadata.map(|(key, value)| (key.to_string(), value)).to_vec(), tensors })
    }

    #[cfg(test)]
    pub fn set(&mut self, key: &str, value: Value) {
        self.metadata.retain(|(own, _)| own != key);
        self.metadata.push((key.to_string(), value));
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let metadata: Vec<(&str, &Value)> = self.metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let tensors: Vec<(&str, &QTensor)> = self.tensors.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let file = std::fs::File::create(path);
        let file = file.map_err(|error| Error::file(path, "write", error, "name a file that can be written"))?;
        Ok(gguf_file::write(&mut std::io::BufWriter::new(file), &metadata, &tensors)?)
    }
}

/// Writes the practice model as a GGUF file: a Llama of four layers with random weights, roughly normal, three of whose channels are
/// made loud on purpose. It knows nothing: texts and losses of it mean nothing, errors of rounding do.
///
/// # Errors
/// [`Error::File`] when the file cannot be written; what candle says.
///
/// ```
/// # use gpulab_nn::llama::{GgufFile, write_practice};
/// let path = std::env::temp_dir().join(format!("gpulab-practice-{}.gguf", std::process::id()));
/// write_practice(&path)?;
/// assert_eq!(GgufFile::open(&path)?.number("llama.block_count")?, 4);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), gpulab::Error>(())
/// ```
pub fn write_practice(path: &Path) -> Result<()> {
    Tiny::practice()?.write(path)
}

impl ChatModel {
    /// The practice model of [`write_practice`], through a file that is removed again.
    ///
    /// # Errors
    /// As [`write_practice`] and [`ChatModel::load`].
    pub fn practice(device: &Device, precision: WeightDtype) -> Result<ChatModel> {
        let once = format!("gpulab-practice-{}-{:?}.gguf", std::process::id(), std::thread::current().id());
        let file = TinyFile(std::env::temp_dir().join(once));
        write_practice(&file.0)?;
        ChatModel::load(&file.0, device, precision)
    }
}

/// A file that goes when this does.
pub struct TinyFile(pub PathBuf);

#[cfg(test)]
impl TinyFile {
    pub fn new(name: &str, change: impl FnOnce(&mut Tiny)) -> TinyFile {
        let path = std::env::temp_dir().join(format!("gpulab-llama-{}-{name}.gguf", std::process::id()));
        let mut tiny = Tiny::new();
        change(&mut tiny);
        tiny.write(&path).unwrap();
        TinyFile(path)
    }
}

impl Drop for TinyFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
