//! What a GPT-2 looks like: the numbers in its `config.json`, and the parameters that follow from them.

use gpulab::error::{Error, Result};
use serde_json::{Value, json};
use std::path::Path;

/// The shape of a GPT-2. Heads are `n_embd / n_head` numbers wide, the feed-forward layer `4 · n_embd`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Blocks of attention and feed-forward layer.
    pub n_layer: usize,
    /// Attention heads in a block.
    pub n_head: usize,
    /// Numbers that stand for a token on its way through the model.
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

    /// Numbers in a head.
    pub fn head(&self) -> usize {
        self.n_embd / self.n_head
    }

    /// Reads a `config.json` as Hugging Face writes it for GPT-2.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read or is no JSON, [`Error::Unsupported`] when it describes another
    /// architecture, [`Error::Invalid`] when its numbers do not fit each other.
    pub fn load(path: &Path) -> Result<Config> {
        let damaged = |text: String| Error::File {
            path: path.to_path_buf(),
            during: "read".to_string(),
            text,
            fix: "fetch the checkpoint's config.json again; it must lie beside model.safetensors".to_string(),
        };
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
            names.iter().find_map(|name| json[*name].as_u64()).map(|n| n as usize).ok_or_else(|| Error::Invalid {
                what: format!("config.json has no number `{}`", names.join("` or `")),
                fix: "use the config.json of a GPT-2, which has it".to_string(),
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
            return Err(Error::Invalid {
                what: format!("`{name}` of the model is {value}"),
                fix: format!("give a number from 1 to {most}"),
            });
        }
        match n_embd % n_head {
            0 => Ok(self),
            _ => Err(Error::Invalid {
                what: format!("`n_embd` is {n_embd}, which {n_head} heads cannot share evenly"),
                fix: "choose n_head so that it divides n_embd".to_string(),
            }),
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
    let refuse = |what: String| Err(Error::Unsupported { what, fix: "load a GPT-2 checkpoint".to_string() });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_model_has_124_million_parameters() {
        assert_eq!(Config::GPT2.parameter_count(), 124_439_808);
        assert_eq!(Config::GPT2.parameters().len(), 148);
    }

    #[test]
    fn a_config_survives_its_file() {
        assert_eq!(Config::from_json(&Config::COURSE.to_json()).unwrap(), Config::COURSE);
    }

    #[test]
    fn what_is_no_gpt2_is_named() {
        for (key, value, part) in [
            ("model_type", json!("llama"), "`llama`"),
            ("activation_function", json!("relu"), "`relu`"),
            ("layer_norm_epsilon", json!(1e-6), "layer_norm_epsilon"),
            ("n_inner", json!(64), "n_inner 64"),
            ("tie_word_embeddings", json!(false), "tie_word_embeddings to false"),
            ("n_head", json!(3), "3 heads cannot share"),
            ("n_layer", json!(0), "`n_layer` of the model is 0"),
            ("vocab_size", json!("many"), "no number `vocab_size`"),
        ] {
            let mut json = Config::COURSE.to_json();
            json[key] = value;
            let text = Config::from_json(&json).unwrap_err().to_string();
            assert!(text.contains(part) && text.contains("\nnext: "), "{key}: {text}");
        }
    }

    #[test]
    fn a_missing_or_broken_file_is_named() {
        let folder = std::env::temp_dir().join(format!("gpulab-config-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("config.json");
        let text = Config::load(&path).unwrap_err().to_string();
        assert!(text.contains("config.json") && text.contains("\nnext: "), "{text}");
        std::fs::write(&path, "{\"n_layer\": 12,").unwrap();
        assert!(Config::load(&path).unwrap_err().to_string().contains("no JSON"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
