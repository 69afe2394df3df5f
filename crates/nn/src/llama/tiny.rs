//! A tiny Llama as a GGUF file, for tests: random weights that a seed names, in Q4_1 and Q8_0 as SmolLM2's, bytes as tokens.

use super::{LlamaConfig, Projection};
use crate::gpt::SplitMix64;
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use std::path::{Path, PathBuf};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

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
const TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + \
                        '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>' }}{% endif %}";

/// Metadata and tensors; a test changes them before they are written.
pub struct Tiny {
    pub metadata: Vec<(String, Value)>,
    pub tensors: Vec<(String, QTensor)>,
}

impl Tiny {
    pub fn new() -> Tiny {
        let mut letters: Vec<char> = ByteLevel::alphabet().into_iter().collect();
        letters.sort_unstable();
        let mut tokens = vec!["<|endoftext|>".to_string(), "<|im_start|>".to_string(), "<|im_end|>".to_string()];
        tokens.extend(letters.iter().map(char::to_string));
        let kinds = (0..tokens.len()).map(|token| Value::I32(if token < 3 { 3 } else { 1 })).collect();
        let text = |text: &str| Value::String(text.to_string());
        let number = |number: usize| Value::U32(number as u32);
        let metadata = [
            ("general.architecture", text("llama")),
            ("llama.block_count", number(CONFIG.layers)),
            ("llama.context_length", number(CONFIG.context)),
            ("llama.embedding_length", number(CONFIG.width)),
            ("llama.feed_forward_length", number(CONFIG.inner)),
            ("llama.attention.head_count", number(CONFIG.heads)),
            ("llama.attention.head_count_kv", number(CONFIG.kv_heads)),
            ("llama.attention.layer_norm_rms_epsilon", Value::F32(CONFIG.epsilon)),
            ("llama.rope.freq_base", Value::F32(CONFIG.rope_base)),
            ("llama.rope.dimension_count", number(CONFIG.head_dim())),
            ("tokenizer.ggml.model", text("gpt2")),
            ("tokenizer.ggml.pre", text("smollm")),
            ("tokenizer.ggml.tokens", Value::Array(tokens.into_iter().map(Value::String).collect())),
            ("tokenizer.ggml.token_type", Value::Array(kinds)),
            ("tokenizer.ggml.merges", Value::Array(Vec::new())),
            ("tokenizer.ggml.eos_token_id", number(2)),
            ("tokenizer.chat_template", text(TEMPLATE)),
        ];
        let mut random = SplitMix64::new(41);
        let mut tensors = Vec::new();
        let mut add = |name: &str, shape: &[usize], kind: GgmlDType, around: f32, spread: f32| {
            let count = shape.iter().product();
            let mut one = || around + spread * (random.unit() as f32 - 0.5);
            let values: Vec<f32> = (0..count).map(|_| one()).collect();
            let tensor = Tensor::from_vec(values, shape, &Device::Cpu).unwrap();
            tensors.push((name.to_string(), QTensor::quantize(&tensor, kind).unwrap()));
        };
        add("token_embd.weight", &[CONFIG.vocabulary, CONFIG.width], GgmlDType::Q8_0, 0.0, 2.0);
        for layer in 0..CONFIG.layers {
            add(&format!("blk.{layer}.attn_norm.weight"), &[CONFIG.width], GgmlDType::F32, 1.0, 0.5);
            add(&format!("blk.{layer}.ffn_norm.weight"), &[CONFIG.width], GgmlDType::F32, 1.0, 0.5);
            for of in Projection::ALL {
                let name = format!("blk.{layer}.{}.weight", of.name());
                add(&name, &of.shape(&CONFIG), GgmlDType::Q4_1, 0.0, 0.6);
            }
        }
        add("output_norm.weight", &[CONFIG.width], GgmlDType::F32, 1.0, 0.5);
        Tiny { metadata: metadata.map(|(key, value)| (key.to_string(), value)).to_vec(), tensors }
    }

    pub fn set(&mut self, key: &str, value: Value) {
        self.metadata.retain(|(own, _)| own != key);
        self.metadata.push((key.to_string(), value));
    }

    pub fn write(&self, path: &Path) {
        let metadata: Vec<(&str, &Value)> = self.metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let tensors: Vec<(&str, &QTensor)> = self.tensors.iter().map(|(key, value)| (key.as_str(), value)).collect();
        gguf_file::write(&mut std::fs::File::create(path).unwrap(), &metadata, &tensors).unwrap();
    }
}

/// A file of its own for a test, which goes when it ends.
pub struct TinyFile(pub PathBuf);

impl TinyFile {
    pub fn new(name: &str, change: impl FnOnce(&mut Tiny)) -> TinyFile {
        let path = std::env::temp_dir().join(format!("gpulab-llama-{}-{name}.gguf", std::process::id()));
        let mut tiny = Tiny::new();
        change(&mut tiny);
        tiny.write(&path);
        TinyFile(path)
    }
}

impl Drop for TinyFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
