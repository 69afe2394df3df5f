//! One half of an exchange with Hugging Face's peft; the other is `env/baselines/peft_exchange.py`, which calls this with a model's name,
//! `practice` or `smollm2`:
//!
//! - `peft_exchange write MODEL FOLDER` writes the model as a checkpoint for transformers, adapters for it as peft's files, and the
//!   logits that this crate computes with them;
//! - `peft_exchange read MODEL FOLDER` reads adapters that peft has written, and the logits that it computed, and compares.

use gpulab_nn::llama::{ChatModel, Projection, WeightDtype};
use gpulab_nn::lora::{Base, LoraConfig, Training, TunedLlama, load_peft, save_peft, write_base};
use gpulab_nn::tensors::{HostTensor, TensorFile};
use gpulab_nn::{DType, Device, Tensor};
use std::path::Path;

/// Known to both models.
const TOKENS: [u32; 12] = [1, 40, 77, 200, 3, 258, 90, 11, 12, 13, 250, 7];

fn logits(chat: &ChatModel, model: &TunedLlama) -> gpulab::Result<Vec<f32>> {
    Ok(model.merged(&chat.llama)?.logits(&TOKENS)?.flatten_all()?.to_vec1()?)
}

fn largest(a: &[f32], b: &[f32]) -> f32 {
    // A maximum that meets a NaN keeps it.
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, |most, x| if x <= most { most } else { x })
}

fn write(chat: &ChatModel, folder: &Path) -> gpulab::Result<()> {
    let layers = 1..chat.llama.config().layers - 1;
    let lora = LoraConfig { rank: 4, alpha: 8.0, targets: Projection::ALL.to_vec(), layers, seed: 1 };
    let model = TunedLlama::new(&chat.llama, Base::F32, Training::Lora(lora))?;
    for (at, (.., adapter)) in model.adapters().enumerate() {
        // B of zeros would hide any mistake.
        let dims = adapter.b().dims();
        let values = gpulab::cpu::random_f32(dims.iter().product(), at as u64).iter().map(|x| 0.1 * x).collect();
        adapter.b().set(&Tensor::from_vec(values, dims, &Device::Cpu)?)?;
    }
    write_base(&chat.llama, &folder.join("base"))?;
    save_peft(&model, "base", &folder.join("ours"))?;
    let mut file = TensorFile::default();
    let tokens = TOKENS.iter().map(|token| *token as f32).collect();
    file.tensors.insert("tokens".to_string(), HostTensor::new(&[TOKENS.len()], tokens));
    for (name, logits) in
        [("logits", logits(chat, &model)?), ("base", chat.llama.logits(&TOKENS)?.flatten_all()?.to_vec1()?)]
    {
        file.tensors.insert(name.to_string(), HostTensor::new(&[TOKENS.len(), logits.len() / TOKENS.len()], logits));
    }
    file.write(&folder.join("ours/logits.safetensors"), DType::F32)
}

fn read(chat: &ChatModel, folder: &Path) -> gpulab::Result<()> {
    let model = load_peft(&chat.llama, Base::F32, &folder.join("theirs"))?;
    let theirs = TensorFile::read(&folder.join("theirs/logits.safetensors"))?;
    let ours = logits(chat, &model)?;
    let base: Vec<f32> = chat.llama.logits(&TOKENS)?.flatten_all()?.to_vec1()?;
    // The other half judges them.
    println!("{:e} {:e}", largest(&ours, &theirs.tensors["logits"].values), largest(&ours, &base));
    Ok(())
}

fn main() -> gpulab::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let refused = |what: &str| Err(gpulab::Error::invalid(what, "write or read; practice or smollm2; FOLDER"));
    let [what, which, folder] = &arguments[..] else { return refused("peft_exchange takes three words") };
    let (device, dtype, folder) = (Device::Cpu, WeightDtype::Dense(DType::F32), Path::new(folder));
    let chat = match which.as_str() {
        "practice" => ChatModel::practice(&device, dtype)?,
        "smollm2" => ChatModel::smollm2(&device, dtype)?,
        _ => return refused("there is no such model"),
    };
    match what.as_str() {
        "write" => write(&chat, folder),
        "read" => read(&chat, folder),
        _ => refused("that is neither write nor read"),
    }
}
