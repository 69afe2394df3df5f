//! Adapters in the files that Hugging Face's peft reads and writes: `adapter_config.json` and `adapter_model.safetensors`.
//!
//! peft names a tensor after the module that it stands beside, `base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight`
//! (<https://huggingface.co/docs/peft/developer_guides/checkpoint>). Two things differ between its Llama and one from a GGUF file. The
//! names. And the order of the rows of q and k: Hugging Face turns pairs of numbers that lie half a head apart, GGUF's converter puts the
//! two beside each other. So the rows of their B change places on the way; A reads the same inputs and stays.

use super::model::{LoraConfig, Training, TunedLlama};
use super::{Base, LoraLinear};
use crate::llama::{Llama, LlamaConfig, Projection};
use crate::tensors::{HostTensor, TensorFile, write_whole};
use candle_core::{DType, Tensor};
use gpulab::error::{Error, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";

/// What peft's `target_modules` call a matrix, such as `q_proj`.
pub fn module_name(of: Projection) -> &'static str {
    match of {
        Projection::Q => "q_proj",
        Projection::K => "k_proj",
        Projection::V => "v_proj",
        Projection::Out => "o_proj",
        Projection::Gate => "gate_proj",
        Projection::Up => "up_proj",
        Projection::Down => "down_proj",
    }
}

/// The module's path in Hugging Face's Llama.
fn module_path(layer: usize, of: Projection) -> String {
    let part = match of {
        Projection::Gate | Projection::Up | Projection::Down => "mlp",
        _ => "self_attn",
    };
    format!("model.layers.{layer}.{part}.{}", module_name(of))
}

fn key(layer: usize, of: Projection, matrix: &str) -> String {
    format!("base_model.model.{}.lora_{matrix}.weight", module_path(layer, of))
}

/// For each row in Hugging Face's order, which row it is in GGUF's.
fn row_order(config: &LlamaConfig, of: Projection) -> Option<Vec<usize>> {
    let heads = match of {
        Projection::Q => config.heads,
        Projection::K => config.kv_heads,
        _ => return None,
    };
    let (d, half) = (config.head_dim(), config.head_dim() / 2);
    let row = move |head: usize, at: usize| head * d + 2 * (at % half) + at / half;
    Some((0..heads).flat_map(|head| (0..d).map(move |at| row(head, at))).collect())
}

fn host(tensor: &Tensor) -> Result<HostTensor> {
    Ok(HostTensor::new(tensor.dims(), tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?))
}

/// Rows taken in that order.
fn reordered(tensor: HostTensor, order: Option<&[usize]>) -> HostTensor {
    let Some(order) = order else { return tensor };
    let columns = tensor.shape[1];
    let values = order.iter().flat_map(|row| &tensor.values[row * columns..][..columns]).copied().collect();
    HostTensor::new(&tensor.shape, values)
}

fn inverse(order: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, row)| inverse[*row] = at);
    inverse
}

/// Writes a model's adapters into a folder, whole or not at all. `base_model` is what peft should load under them, such as
/// `HuggingFaceTB/SmolLM2-135M-Instruct`.
///
/// # Errors
/// [`Error::Invalid`] when the model has none; as [`write_whole`].
pub fn save_peft(model: &TunedLlama, base_model: &str, folder: &Path) -> Result<()> {
    let Training::Lora(lora) = model.training() else {
        return Err(Error::invalid(
            "a model that was tuned as a whole has no adapters",
            "train it with `Training::Lora`, or keep the merged weights themselves",
        ));
    };
    let config = model.config();
    let mut file = TensorFile::default();
    file.metadata.insert("format".to_string(), "pt".to_string());
    for (layer, of, adapter) in model.adapters() {
        file.tensors.insert(key(layer, of, "A"), host(adapter.a())?);
        file.tensors.insert(key(layer, of, "B"), reordered(host(adapter.b())?, row_order(&config, of).as_deref()));
    }
    let targets: Vec<&str> = lora.targets.iter().map(|of| module_name(*of)).collect();
    let every = lora.layers == (0..config.layers);
    let json = json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": lora.rank,
        "lora_alpha": if lora.alpha.fract() == 0.0 { json!(lora.alpha as u64) } else { json!(lora.alpha) },
        "lora_dropout": 0.0,
        "target_modules": targets,
        "layers_to_transform": if every { Value::Null } else { json!(lora.layers.clone().collect::<Vec<_>>()) },
        "layers_pattern": Value::Null,
        "bias": "none",
        "fan_in_fan_out": false,
        "init_lora_weights": true,
        "inference_mode": true,
        "use_rslora": false,
        "use_dora": false,
        "rank_pattern": {},
        "alpha_pattern": {},
        "modules_to_save": Value::Null,
        "revision": Value::Null,
    });
    file.write(&folder.join(WEIGHTS), DType::F32)?;
    let text = serde_json::to_string_pretty(&json).expect("plain values");
    write_whole(&folder.join(CONFIG), text.as_bytes())
}

/// Reads adapters from a folder, and puts them into a model, whose weights are kept as `base` says.
///
/// # Errors
/// [`Error::File`] when a file is missing, cut off or no JSON; [`Error::Unsupported`] for another kind of adapter; [`Error::Invalid`]
/// when the adapters belong to another model.
pub fn load_peft(llama: &Llama, base: Base, folder: &Path) -> Result<TunedLlama> {
    let (path, model) = (folder.join(CONFIG), llama.config());
    let (lora, scale) = read_config(&path, &model)?;
    let mut file = TensorFile::read(&folder.join(WEIGHTS))?;
    let other = |what: String| {
        Error::invalid(
            format!("{}: {what}", folder.join(WEIGHTS).display()),
            format!(
                "these adapters belong to another model, or to another {CONFIG}: this one has {} layers, width {}, {} and {} heads of {}",
                model.layers,
                model.width,
                model.heads,
                model.kv_heads,
                model.head_dim()
            ),
        )
    };
    let targets = lora.targets.clone();
    let (rank, layers) = (lora.rank, lora.layers.clone());
    if layers.is_empty() || layers.end > model.layers {
        return Err(other(format!("adapters for the layers {layers:?}")));
    }
    // Before any weight is touched: all that is missing, and all that is too much.
    let mut expected = BTreeMap::new();
    for layer in layers {
        for of in &targets {
            let [outputs, inputs] = of.shape(&model);
            expected.insert(key(layer, *of, "A"), [rank, inputs]);
            expected.insert(key(layer, *of, "B"), [outputs, rank]);
        }
    }
    for (name, shape) in &expected {
        match file.tensors.get(name) {
            None => return Err(other(format!("`{name}` is missing"))),
            Some(tensor) if tensor.shape != shape => {
                return Err(other(format!("`{name}` is {:?}, and should be {shape:?}", tensor.shape)));
            }
            Some(tensor) => {
                if let Some(bad) = tensor.values.iter().find(|x| !x.is_finite()) {
                    return Err(other(format!("`{name}` holds {bad}")));
                }
            }
        }
    }
    if let Some(name) = file.tensors.keys().find(|name| !expected.contains_key(*name)) {
        return Err(other(format!("`{name}` has no place in it")));
    }
    let mut tuned = TunedLlama::new(llama, base, Training::Lora(lora))?;
    for (layer, of, adapter) in tuned.adapters_mut() {
        let mut take = |matrix: &str| file.tensors.remove(&key(layer, of, matrix)).expect("looked for above");
        let (a, b) = (take("A"), take("B"));
        let order = row_order(&model, of).map(|order| inverse(&order));
        set(adapter, a, reordered(b, order.as_deref()))?;
        adapter.set_scale(scale);
    }
    Ok(tuned)
}

fn set(adapter: &mut LoraLinear, a: HostTensor, b: HostTensor) -> Result<()> {
    for (var, host) in [(adapter.a(), a), (adapter.b(), b)] {
        var.set(&Tensor::from_vec(host.values, host.shape, var.device())?)?;
    }
    Ok(())
}

/// What the config asks for, and the scale, where every field that would change the result is understood.
fn read_config(path: &Path, model: &LlamaConfig) -> Result<(LoraConfig, f64)> {
    let fail = |text: String| {
        Error::file(path, "read", text, "name a folder that peft's `save_pretrained` or `save_peft` has written, whole")
    };
    let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    let json: Value =
        serde_json::from_str(&text).map_err(|error| fail(format!("it is no JSON, or cut off: {error}")))?;
    let unsupported = |what: String| {
        Error::unsupported(
            format!("{}: {what}", path.display()),
            "save the adapters as plain LoRA: one rank, no bias, no DoRA, targets by name",
        )
    };
    let kind = json["peft_type"].as_str().unwrap_or("nothing");
    if kind != "LORA" {
        return Err(unsupported(format!("adapters of the kind {kind}")));
    }
    for (field, plain) in [
        ("use_dora", json!(false)),
        ("fan_in_fan_out", json!(false)),
        ("bias", json!("none")),
        ("lora_bias", json!(false)),
        ("use_bdlora", json!(false)),
        ("use_qalora", json!(false)),
    ] {
        if !json[field].is_null() && json[field] != plain {
            return Err(unsupported(format!("`{field}` is {}", json[field])));
        }
    }
    for field in [
        "rank_pattern",
        "alpha_pattern",
        "modules_to_save",
        "layer_replication",
        "target_parameters",
        "trainable_token_indices",
        "alora_invocation_tokens",
        "arrow_config",
    ] {
        let empty = match &json[field] {
            Value::Null => true,
            Value::Object(map) => map.is_empty(),
            Value::Array(list) => list.is_empty(),
            _ => false,
        };
        if !empty {
            return Err(unsupported(format!("`{field}` is {}", json[field])));
        }
    }
    let rank = json["r"].as_u64().ok_or_else(|| fail("`r` is no whole number".to_string()))? as usize;
    let alpha = json["lora_alpha"].as_f64().ok_or_else(|| fail("`lora_alpha` is no number".to_string()))?;
    let named = |name: &Value| Projection::ALL.into_iter().find(|of| Some(module_name(*of)) == name.as_str());
    let mut targets = match &json["target_modules"] {
        Value::String(text) if text == "all-linear" => Projection::ALL.to_vec(),
        Value::Array(names) => names
            .iter()
            .map(|name| named(name).ok_or_else(|| unsupported(format!("the target {name}"))))
            .collect::<Result<Vec<_>>>()?,
        other => return Err(unsupported(format!("`target_modules` is {other}"))),
    };
    targets.sort();
    targets.dedup();
    let layers = match &json["layers_to_transform"] {
        Value::Null => 0..model.layers,
        one if one.is_u64() => {
            let layer = one.as_u64().unwrap_or(0) as usize;
            layer..layer + 1
        }
        Value::Array(list) => {
            let mut layers: Vec<usize> = list.iter().filter_map(|layer| Some(layer.as_u64()? as usize)).collect();
            layers.sort_unstable();
            match (layers.first(), layers.last()) {
                (Some(first), Some(last)) if layers.len() == list.len() && last - first + 1 == layers.len() => {
                    *first..last + 1
                }
                _ => return Err(unsupported(format!("`layers_to_transform` is {}", json["layers_to_transform"]))),
            }
        }
        other => return Err(unsupported(format!("`layers_to_transform` is {other}"))),
    };
    let divisor = if json["use_rslora"].as_bool().unwrap_or(false) { (rank as f64).sqrt() } else { rank as f64 };
    Ok((LoraConfig { rank, alpha, targets, layers, seed: 0 }, alpha / divisor))
}

/// Writes a Llama as a checkpoint that Hugging Face's transformers opens (`config.json`, `model.safetensors`, in f32, rows of q and k
/// in its order): what peft's side of a comparison loads under the adapters, so that both sides have the same weights.
///
/// # Errors
/// What candle says; as [`write_whole`].
pub fn write_base(llama: &Llama, folder: &Path) -> Result<()> {
    let config = llama.config();
    let mut file = TensorFile::default();
    file.metadata.insert("format".to_string(), "pt".to_string());
    let [embedding, last_norm, last] = llama.ends()?;
    let tied = embedding.id() == last.id();
    file.tensors.insert("model.embed_tokens.weight".to_string(), host(&embedding)?);
    file.tensors.insert("model.norm.weight".to_string(), host(&last_norm)?);
    if !tied {
        file.tensors.insert("lm_head.weight".to_string(), host(&last)?);
    }
    for layer in 0..config.layers {
        let [norm_1, norm_2] = llama.norms(layer)?;
        file.tensors.insert(format!("model.layers.{layer}.input_layernorm.weight"), host(&norm_1)?);
        file.tensors.insert(format!("model.layers.{layer}.post_attention_layernorm.weight"), host(&norm_2)?);
        for of in Projection::ALL {
            let weight = reordered(host(&llama.weight(layer, of)?)?, row_order(&config, of).as_deref());
            file.tensors.insert(format!("{}.weight", module_path(layer, of)), weight);
        }
    }
    let json = json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": config.width,
        "intermediate_size": config.inner,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim(),
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.context,
        "rms_norm_eps": config.epsilon,
        "rope_theta": config.rope_base,
        "hidden_act": "silu",
        "tie_word_embeddings": tied,
        "attention_bias": false,
        "mlp_bias": false,
        "torch_dtype": "float32",
    });
    file.write(&folder.join("model.safetensors"), DType::F32)?;
    write_whole(&folder.join("config.json"), serde_json::to_string_pretty(&json).expect("plain values").as_bytes())
}
