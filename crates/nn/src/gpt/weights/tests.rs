use super::*;
use candle_core::DType;
use std::path::PathBuf;

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

const SMALL: Config = Config { n_layer: 2, n_head: 2, n_embd: 8, n_ctx: 16, vocab_size: 11 };

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("gpulab-weights-{name}-{}", std::process::id()))
}

#[test]
fn random_weights_have_gpt_2s_spread_and_their_seed() {
    let weights = Weights::random(Config { n_embd: 64, ..SMALL }, 3).unwrap();
    let spread = |name: &str| {
        let values = &weights.get(name).values;
        (values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32).sqrt()
    };
    assert!((spread("h.0.attn.c_attn.weight") / 0.02 - 1.0).abs() < 0.05);
    assert!((spread("h.1.mlp.c_proj.weight") / 0.01 - 1.0).abs() < 0.05);
    assert_eq!((spread("ln_f.weight"), spread("ln_f.bias")), (1.0, 0.0));
    assert_eq!(Weights::random(SMALL, 3).unwrap(), Weights::random(SMALL, 3).unwrap());
    assert_ne!(Weights::random(SMALL, 3).unwrap(), Weights::random(SMALL, 4).unwrap());
    assert_ne!(weights.get("h.0.mlp.c_fc.weight").values, weights.get("h.1.mlp.c_fc.weight").values);
}

#[test]
fn a_checkpoint_comes_back_with_or_without_the_prefix() {
    let folder = folder("back");
    let weights = Weights::random(SMALL, 1).unwrap();
    weights.save(&folder, DType::F32).unwrap();
    assert_eq!(Weights::load(&folder).unwrap(), weights);

    let mut file = weights.clone().into_file();
    file.tensors = file.tensors.into_iter().map(|(name, t)| (format!("transformer.{name}"), t)).collect();
    // As real checkpoints have it: the causal mask as a tensor.
    file.tensors.insert("transformer.h.0.attn.bias".to_string(), HostTensor::new(&[1, 1], vec![1.0]));
    file.write(&folder.join("model.safetensors"), DType::F32).unwrap();
    assert_eq!(Weights::load(&folder).unwrap(), weights);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_parameter_that_is_missing_misshapen_or_nan_is_named() {
    let whole = Weights::random(SMALL, 1).unwrap().into_file();
    let error = |file: TensorFile| Weights::from_file(SMALL, file).unwrap_err().to_string();

    let mut file = whole.clone();
    file.tensors.remove("h.1.ln_2.bias");
    assert!(error(file).contains("no parameter `h.1.ln_2.bias`"));

    let mut file = whole.clone();
    file.tensors.get_mut("h.0.attn.c_attn.weight").unwrap().shape = vec![24, 8];
    let text = error(file);
    assert!(text.contains("[24, 8]") && text.contains("[8, 24]") && text.contains("\nnext: "), "{text}");

    let mut file = whole;
    file.tensors.get_mut("wpe.weight").unwrap().values[5] = f32::NAN;
    assert!(error(file).contains("number 5 of `wpe.weight` is NaN"));
}

#[test]
fn a_checkpoint_in_several_files_is_told_apart_from_a_missing_one() {
    let folder = folder("pieces");
    Weights::random(SMALL, 1).unwrap().save(&folder, DType::BF16).unwrap();
    std::fs::remove_file(folder.join("model.safetensors")).unwrap();
    assert!(Weights::load(&folder).unwrap_err().to_string().contains("cannot read"));
    std::fs::write(folder.join("model.safetensors.index.json"), "{}").unwrap();
    assert!(Weights::load(&folder).unwrap_err().to_string().contains("several files"));
    std::fs::remove_dir_all(&folder).unwrap();
}
