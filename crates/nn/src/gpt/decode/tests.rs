use crate::gpt::{Config, Gpt, Text, Weights};
use crate::tensors::{HostTensor, TensorFile};
use candle_core::{DType, Device};
use gpulab::cpu;
use gpulab::prelude::*;
use gpulab_kernels::engine::{
    Engine, EngineConfig, EngineConstants, EngineKernels, EngineModel, EnginePlan, EngineTuning, WeightBits,
};
use std::rc::Rc;

/// A model whose every parameter matters: no bias is 0, no scale is 1.
fn model(config: Config, seed: u64) -> Weights {
    let make = |(at, (name, shape)): (usize, (String, Vec<usize>))| {
        let mut values = cpu::random_f32(shape.iter().product(), seed * 1000 + at as u64);
        let (scale, centre) = match () {
            _ if name.contains("ln_") && name.ends_with("weight") => (0.3, 1.0),
            _ if name.ends_with("bias") => (0.2, 0.0),
            _ if name.starts_with("wpe") => (0.5, 0.0),
            _ => (1.5 / (shape[0] as f32).sqrt().min(16.0), 0.0),
        };
        values.iter_mut().for_each(|x| *x = *x * scale + centre);
        (name, HostTensor { shape, values })
    };
    let tensors = config.parameters().into_iter().enumerate().map(make).collect();
    Weights::from_file(config, TensorFile { tensors, metadata: Default::default() }).unwrap()
}

fn engine(gpu: &Gpu, weights: &Weights, plan: EnginePlan, constants: EngineConstants) -> Result<Engine> {
    let config = EngineConfig::from(weights.config());
    let kernels = EngineKernels::compile(gpu, &config, WeightBits::Bf16, plan, constants)?;
    let laid_out = Rc::new(EngineModel::new(gpu, &kernels, weights)?);
    Engine::new(&laid_out, &kernels, EngineTuning::default())
}

/// Candle's most likely tokens, and the logits behind the last of them.
fn greedy(gpt: &Gpt, prompt: &[u32], count: usize) -> (Vec<u32>, Vec<f32>) {
    let (mut cache, mut logits) = gpt.prefill(&[prompt.to_vec()], count).unwrap();
    let mut tokens = Vec::new();
    loop {
        let row = logits.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        if tokens.len() == count {
            return (tokens, row);
        }
        let best = (0..row.len()).rev().max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as u32;
        tokens.push(best);
        logits = gpt.step(&[best], &mut cache).unwrap();
    }
}

/// The engine goes on with a prompt as candle does.
fn agrees(gpu: &Gpu, weights: Weights, prompt: &[u32], count: usize, plan: EnginePlan, constants: EngineConstants) {
    let weights = weights.rounded_to_bf16();
    let place = format!("{} {constants:?}, a prompt of {}", plan.name(), prompt.len());
    let (tokens, logits) = greedy(&Gpt::new(&weights, &Device::Cpu, DType::F32).unwrap(), prompt, count);
    let mut engine = engine(gpu, &weights, plan, constants).unwrap();
    let mut seen = Vec::new();
    let given = engine.generate(prompt, count, (0.0, 0), |token| seen.push(token)).unwrap();
    assert_eq!((&given, &seen), (&tokens, &tokens), "{place}");
    assert_eq!(engine.tokens().unwrap(), [prompt, &tokens].concat(), "{place}");
    engine.step().unwrap();
    let size = (logits.iter().map(|x| x * x).sum::<f32>() / logits.len() as f32).sqrt();
    for (row, (given, exact)) in engine.logits().unwrap().iter().zip(&logits).enumerate() {
        // Keys and values that lie between two bf16 may go up here and down there: 2⁻⁸ of them.
        assert!((given - exact).abs() <= 1e-2 * size, "{place}, token {row}: {given}, not {exact}");
    }
}

#[test]
fn the_engine_goes_on_with_a_prompt_of_any_length_as_candle_does() {
    let gpu = Gpu::simulated().unwrap();
    let config = Config { n_layer: 2, n_head: 4, n_embd: 64, n_ctx: 24, vocab_size: 99 };
    let five = EngineConstants { threads: 64, splits: 2, slot_steps: 8, ..EngineConstants::default() };
    let two = EngineConstants { cluster: 2, merged: true, ..five };
    let prompt: Vec<u32> = (0..9).map(|i| (i * 37 + 11) % 33).collect();
    let small = Config { n_layer: 1, n_head: 2, vocab_size: 33, ..config };
    for (config, length, plan, constants) in [
        (config, 1, EnginePlan::Overlapped, five),
        (config, 9, EnginePlan::Fused, five),
        (config, 4, EnginePlan::Operators, five),
        (small, 3, EnginePlan::Persistent, two),
    ] {
        agrees(&gpu, model(config, 1), &prompt[..length], 3, plan, constants);
    }
}

#[test]
fn the_course_s_model_says_the_same() {
    let gpu = Gpu::simulated().unwrap();
    let weights = Weights::load(&Text::folder()).unwrap();
    let constants = EngineConstants { threads: 128, splits: 2, ..EngineConstants::default() };
    agrees(&gpu, weights, &b"The ".map(u32::from), 4, EnginePlan::Fused, constants);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_course_s_model_says_the_same_on_a_gpu() {
    let gpu = Gpu::open_index(0).expect("needs an NVIDIA GPU");
    for (plan, constants) in EnginePlan::ALL
        .map(|plan| (plan, EngineConstants::default()))
        .into_iter()
        .chain([(EnginePlan::Overlapped, EngineConstants::GPT2), (EnginePlan::Persistent, EngineConstants::GPT2)])
    {
        agrees(&gpu, Weights::load(&Text::folder()).unwrap(), &b"The warp".map(u32::from), 40, plan, constants);
    }
}
