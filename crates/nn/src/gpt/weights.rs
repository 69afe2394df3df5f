//! What a GPT-2 looks like (`config.json`), and its weights on the host, by GPT-2's names.

use crate::tensors::{HostTensor, TensorFile};
use candle_core::DType;
use gpulab::cpu;
use gpulab::error::{Error, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The shape of a GPT-2. Heads are `n_embd / n_head` numbers wide, the feed-forward layer `4 · n_embd`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Blocks of attention and feed-forward layer.
    pub n_layer: usize,
    /// Attention heads in a block.
    pub n_head: usize,
    /// Width of the residual stream: the numbers that stand for a token (`d_model`, `hidden_size`).
    pub n_embd: usize,
    /// The longest text, in tokens.
    pub n_ctx: usize,
    /// Different tokens.
    pub vocab_size: usize,
}

impl Config {
    /// The smallest of the published GPT-2: 124 million parameters.
    pub const GPT2: Config = Config { n_layer: 12, n_head: 12, n_embd: 768, n_ctx: 1024, vocab_size: 50257 };
    /// The course's own: it reads bytes, and trains on a laptop in minutes.
    pub const COURSE: Config = Config { n_layer: 4, n_head: 4, n_embd: 128, n_ctx: 256, vocab_size: 256 };

    /// Head dimension.
    pub fn head(&self) -> usize {
        self.n_embd / self.n_head
    }

    /// Reads a `config.json` as Hugging Face writes it for GPT-2.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read or is no JSON, [`Error::Unsupported`] when it describes another
    /// architecture, [`Error::Invalid`] when its numbers do not fit each other.
    pub fn load(path: &Path) -> Result<Config> {
        let fix = "fetch the checkpoint's config.json again; it must lie beside model.safetensors";
        let damaged = |text: String| Error::file(path, "read", text, fix);
        let text = std::fs::read_to_string(path).map_err(|error| damaged(error.to_string()))?;
        let json: Value = serde_json::from_str(&text).map_err(|error| damaged(format!("this is no JSON: {error}")))?;
        Config::from_json(&json)
    }

    /// As [`Config::load`], from JSON that was read already.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn from_json(json: &Value) -> Result<Config> {
        known(json)?;
        let number = |names: &[&str]| {
            names.iter().find_map(|name| json[*name].as_u64()).map(|n| n as usize).ok_or_else(|| {
                Error::invalid(
                    format!("config.json has no number `{}`", names.join("` or `")),
                    "use the config.json of a GPT-2, which has it",
                )
            })
        };
        Config {
            n_layer: number(&["n_layer"])?,
            n_head: number(&["n_head"])?,
            n_embd: number(&["n_embd"])?,
            n_ctx: number(&["n_positions", "n_ctx"])?,
            vocab_size: number(&["vocab_size"])?,
        }
        .checked()
    }

    /// The same as `config.json`.
    pub fn to_json(&self) -> Value {
        json!({
            "model_type": "gpt2", "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
            "n_layer": self.n_layer, "n_head": self.n_head, "n_embd": self.n_embd,
            "n_ctx": self.n_ctx, "n_positions": self.n_ctx, "vocab_size": self.vocab_size,
        })
    }

    /// Itself, when its numbers fit each other.
    ///
    /// # Errors
    /// [`Error::Invalid`] says which do not.
    pub fn checked(self) -> Result<Config> {
        let Config { n_layer, n_head, n_embd, n_ctx, vocab_size } = self;
        let named = [
            ("n_layer", n_layer, 1 << 10),
            ("n_head", n_head, 1 << 10),
            ("n_embd", n_embd, 1 << 16),
            ("n_ctx", n_ctx, 1 << 20),
            ("vocab_size", vocab_size, 1 << 24),
        ];
        if let Some((name, value, most)) = named.into_iter().find(|(_, value, most)| !(1..=*most).contains(value)) {
            return Err(Error::invalid(
                format!("`{name}` of the model is {value}"),
                format!("give a number from 1 to {most}"),
            ));
        }
        match n_embd % n_head {
            0 => Ok(self),
            _ => Err(Error::invalid(
                format!("`n_embd` is {n_embd}, which {n_head} heads cannot share evenly"),
                "choose n_head so that it divides n_embd",
            )),
        }
    }

    /// Each parameter's name and shape, in GPT-2's order. A linear layer's weight is `[inputs, outputs]`: GPT-2 keeps it
    /// the other way round than PyTorch's `Linear`. The head is `wte.weight` again.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let width = self.n_embd;
        let mut all = vec![
            ("wte.weight".to_string(), vec![self.vocab_size, width]),
            ("wpe.weight".to_string(), vec![self.n_ctx, width]),
        ];
        for layer in 0..self.n_layer {
            let parts: [(&str, &[usize]); 12] = [
                ("ln_1.weight", &[width]),
                ("ln_1.bias", &[width]),
                ("attn.c_attn.weight", &[width, 3 * width]),
                ("attn.c_attn.bias", &[3 * width]),
                ("attn.c_proj.weight", &[width, width]),
                ("attn.c_proj.bias", &[width]),
                ("ln_2.weight", &[width]),
                ("ln_2.bias", &[width]),
                ("mlp.c_fc.weight", &[width, 4 * width]),
                ("mlp.c_fc.bias", &[4 * width]),
                ("mlp.c_proj.weight", &[4 * width, width]),
                ("mlp.c_proj.bias", &[width]),
            ];
            all.extend(parts.map(|(name, shape)| (format!("h.{layer}.{name}"), shape.to_vec())));
        }
        all.push(("ln_f.weight".to_string(), vec![width]));
        all.push(("ln_f.bias".to_string(), vec![width]));
        all
    }

    /// How many numbers the parameters are.
    pub fn parameter_count(&self) -> usize {
        self.parameters().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
    }
}

/// An error when the file describes what this code does not compute.
fn known(json: &Value) -> Result<()> {
    let refuse = |what: String| Err(Error::unsupported(what, "load a GPT-2 checkpoint"));
    let (kind, width) = (json["model_type"].as_str(), json["n_embd"].as_u64());
    if kind.is_some_and(|kind| kind != "gpt2") {
        return refuse(format!("config.json is of a `{}`, and this code computes GPT-2", kind.unwrap_or_default()));
    }
    if let Some(other) =
        json["activation_function"].as_str().filter(|name| !["gelu_new", "gelu_pytorch_tanh"].contains(name))
    {
        return refuse(format!("config.json asks for the activation `{other}`, and this code has GPT-2's `gelu_new`"));
    }
    if json["layer_norm_epsilon"].as_f64().is_some_and(|epsilon| (epsilon - 1e-5).abs() > 1e-9) {
        return refuse(format!(
            "config.json has layer_norm_epsilon {}, and GPT-2 has 1e-5",
            json["layer_norm_epsilon"]
        ));
    }
    if json["n_inner"].as_u64().is_some_and(|inner| Some(inner) != width.map(|width| 4 * width)) {
        return refuse(format!("config.json has n_inner {}, and this code has 4 · n_embd", json["n_inner"]));
    }
    for (name, usual) in [
        ("tie_word_embeddings", true),
        ("scale_attn_weights", true),
        ("scale_attn_by_inverse_layer_idx", false),
        ("reorder_and_upcast_attn", false),
        ("add_cross_attention", false),
    ] {
        if json[name].as_bool().is_some_and(|set| set != usual) {
            return refuse(format!("config.json sets {name} to {}, which this code does not compute", !usual));
        }
    }
    Ok(())
}

// ----------------------------------------------------------------------
// A GPT's weights on the host, by GPT-2's names. Who holds a [`Weights`] has every parameter, in its shape.

/// All parameters as f32, each in the shape that [`Config::parameters`] gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    config: Config,
    // Shared, so that what holds the same numbers (a copy of the weights, an export) takes no memory of its own.
    tensors: BTreeMap<String, Arc<HostTensor>>,
}

impl Weights {
    /// Random weights as GPT-2 starts training with: a standard deviation of 0.02, less by √(2 · layers) where a result
    /// is added to what it came from; biases 0, scales 1. The same for the same `seed`. (Uniform, not normal: it makes no difference to training that we could see.)
    ///
    /// # Errors
    /// As [`Config::checked`].
    pub fn random(config: Config, seed: u64) -> Result<Weights> {
        let config = config.checked()?;
        let make = |(index, (name, shape)): (usize, (String, Vec<usize>))| {
            let count = shape.iter().product();
            let values = match name.as_str() {
                _ if name.ends_with(".bias") => vec![0.0; count],
                _ if name.contains("ln_") => vec![1.0; count],
                _ => {
                    let share = if name.ends_with("c_proj.weight") { 2.0 * config.n_layer as f32 } else { 1.0 };
                    // Numbers in [-1, 1) have a standard deviation of 1/√3.
                    let scale = 0.02 * (3.0 / share).sqrt();
                    let mut values = cpu::random_f32(count, seed.wrapping_mul(1000).wrapping_add(index as u64));
                    values.iter_mut().for_each(|x| *x *= scale);
                    values
                }
            };
            (name, Arc::new(HostTensor { shape, values }))
        };
        Ok(Weights { config, tensors: config.parameters().into_iter().enumerate().map(make).collect() })
    }

    /// Loads `config.json` and `model.safetensors` from a folder: our own checkpoint, or GPT-2's from the Hugging Face hub.
    ///
    /// # Errors
    /// As [`Config::load`] and [`TensorFile::read`]; [`Error::Invalid`] names a parameter that is missing, has another
    /// shape, or is no finite number.
    pub fn load(folder: &Path) -> Result<Weights> {
        let config = Config::load(&folder.join("config.json"))?;
        let path = folder.join("model.safetensors");
        if !path.exists() && folder.join("model.safetensors.index.json").exists() {
            return Err(Error::unsupported(
                format!("the checkpoint in {} is cut into several files", folder.display()),
                "use a checkpoint with one model.safetensors, as all GPT-2 have",
            ));
        }
        // Real checkpoints keep masks and, some, a copy of the head beside the parameters.
        let wanted: Vec<String> = config.parameters().into_iter().map(|(name, _)| name).collect();
        let file = TensorFile::read_some(&path, |name| wanted.iter().any(|own| own == plain(name)))?;
        Weights::from_file(config, file)
    }

    /// Takes the parameters out of a file that was read; other tensors in it are left.
    ///
    /// # Errors
    /// As [`Weights::load`], for the parameters.
    pub fn from_file(config: Config, file: TensorFile) -> Result<Weights> {
        let mut found: BTreeMap<String, HostTensor> =
            file.tensors.into_iter().map(|(name, tensor)| (plain(&name).to_string(), tensor)).collect();
        let mut tensors = BTreeMap::new();
        for (name, shape) in config.checked()?.parameters() {
            let tensor =
                found.remove(&name).ok_or_else(|| wrong(format!("the checkpoint has no parameter `{name}`")))?;
            if tensor.shape != shape {
                let given = &tensor.shape;
                return Err(wrong(format!("`{name}` has the shape {given:?}, and config.json asks for {shape:?}")));
            }
            if let Some(at) = tensor.values.iter().position(|x| !x.is_finite()) {
                return Err(wrong(format!("number {at} of `{name}` is {}", tensor.values[at])));
            }
            tensors.insert(name, Arc::new(tensor));
        }
        Ok(Weights { config, tensors })
    }

    /// Writes `config.json` and `model.safetensors` into a folder, which is made if it is missing.
    ///
    /// # Errors
    /// As [`TensorFile::write`].
    pub fn save(&self, folder: &Path, dtype: DType) -> Result<()> {
        let config = serde_json::to_string_pretty(&self.config.to_json()).expect("made of numbers and strings");
        crate::tensors::write_whole(&folder.join("config.json"), config.as_bytes())?;
        self.clone().into_file().write(&folder.join("model.safetensors"), dtype)
    }

    /// The parameters as a file's content.
    pub fn into_file(self) -> TensorFile {
        // Other programs ask for this word before they load a file.
        let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
        let own = |(name, tensor)| (name, Arc::unwrap_or_clone(tensor));
        TensorFile { tensors: self.tensors.into_iter().map(own).collect(), metadata }
    }

    /// The same, tables and matrices rounded to bf16: what kernels compute with that keep them so.
    #[must_use]
    pub fn rounded_to_bf16(&self) -> Weights {
        let mut rounded = self.clone();
        for tensor in rounded.tensors.values_mut().filter(|tensor| tensor.shape.len() == 2) {
            let values = &mut Arc::make_mut(tensor).values;
            values.iter_mut().for_each(|x| *x = cpu::f32_from_bf16(cpu::bf16_from_f32(*x)));
        }
        rounded
    }

    /// The shape of the model.
    pub fn config(&self) -> Config {
        self.config
    }

    /// A parameter by its name, such as `h.0.attn.c_attn.weight`.
    ///
    /// # Panics
    /// When [`Config::parameters`] has no such name.
    pub fn get(&self, name: &str) -> &HostTensor {
        self.shared(name)
    }

    /// The same, for those who keep it: the numbers are not copied.
    ///
    /// # Panics
    /// As [`Weights::get`].
    pub fn shared(&self, name: &str) -> &Arc<HostTensor> {
        self.tensors.get(name).unwrap_or_else(|| panic!("GPT-2 has no parameter `{name}`"))
    }

    /// All parameters, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &HostTensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), &**tensor))
    }
}

/// The name without the prefix that some programs write.
fn plain(name: &str) -> &str {
    name.strip_prefix("transformer.").unwrap_or(name)
}

fn wrong(what: String) -> Error {
    Error::invalid(what, "take config.json and model.safetensors from the same checkpoint, or fetch both again")
}

#[cfg(test)]
mod tests;
