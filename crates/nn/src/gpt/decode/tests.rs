use super::super::Weights;
use super::*;
use crate::tensors::HostTensor;
use crate::tensors::TensorFile;
use gpulab::cpu;
use gpulab::sim::BlockOrder;
use std::collections::BTreeMap;

fn shape(n_embd: usize, n_head: usize) -> Config {
    Config { n_layer: 1, n_head, n_embd, n_ctx: 64, vocab_size: 256 }
}

#[test]
fn every_gpt2_has_a_block_for_its_width() {
    for (width, heads, threads) in
        [(768, 12, Some(384)), (1024, 16, Some(256)), (1280, 20, Some(320)), (128, 4, Some(256))]
    {
        assert_eq!(DecodePlan::threads(&shape(width, heads), 256), threads, "{width}");
        assert_eq!(DecodePlan::HalfLayers.suits(&shape(width, heads)), Ok(()), "{width}");
    }
    assert_eq!([shape(768, 12), shape(64, 2)].map(|model| Tuning::of(&model).units), [24, 8]);
}

#[test]
fn a_shape_that_does_not_fit_is_named() {
    let odd = DecodePlan::Fused.suits(&shape(96, 2)).unwrap_err().to_string();
    assert!(odd.contains("a head of 48 numbers") && odd.contains("\nnext: "), "{odd}");
    // GPT-2 XL: 25 heads of 64, and 200 eights a row.
    assert_eq!(DecodePlan::Fused.suits(&shape(1600, 25)), Ok(()));
    assert!(
        DecodePlan::HalfLayers.suits(&shape(1600, 25)).unwrap_err().to_string().contains("use `DecodePlan::Fused`")
    );
}

#[test]
fn columns_become_rows() {
    assert_eq!(transposed(&[1, 2, 3, 4, 5, 6], 3), [1, 4, 2, 5, 3, 6]);
    assert_eq!(transposed(&[], 0), Vec::<u16>::new());
}

// A GPT-2's step in f64, from the same bf16 weights: what the kernels are compared with.

/// The text so far, as keys and values of each layer: `[position][width]`.
pub(super) struct Reference<'a> {
    weights: &'a Weights,
    /// Tables and matrices, which are bf16 on the GPU.
    matrices: BTreeMap<String, Vec<f64>>,
    keys: Vec<Vec<Vec<f64>>>,
    values: Vec<Vec<Vec<f64>>>,
}

fn rounded(x: f64) -> f64 {
    f64::from(cpu::f32_from_bf16(cpu::bf16_from_f32(x as f32)))
}

impl<'a> Reference<'a> {
    pub(super) fn new(weights: &'a Weights) -> Reference<'a> {
        let empty = vec![Vec::new(); weights.config().n_layer];
        let tables = weights.iter().filter(|(_, tensor)| tensor.shape.len() == 2);
        let exact = |values: &[f32]| values.iter().map(|&x| rounded(x.into())).collect();
        let matrices = tables.map(|(name, tensor)| (name.to_string(), exact(&tensor.values))).collect();
        Reference { weights, matrices, keys: empty.clone(), values: empty }
    }

    fn vector(&self, name: &str) -> Vec<f64> {
        self.weights.get(name).values.iter().map(|&x| x.into()).collect()
    }

    fn norm(&self, x: &[f64], name: &str) -> Vec<f64> {
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
        let (weight, bias) = (self.vector(&format!("{name}.weight")), self.vector(&format!("{name}.bias")));
        let scale = (variance + 1e-5).sqrt().recip();
        x.iter().zip(weight.iter().zip(bias)).map(|(x, (weight, bias))| (x - mean) * scale * weight + bias).collect()
    }

    fn linear(&self, x: &[f64], name: &str) -> Vec<f64> {
        let weight = &self.matrices[&format!("{name}.weight")];
        let mut y = self.vector(&format!("{name}.bias"));
        let columns = y.len();
        for (x, row) in x.iter().zip(weight.chunks(columns)) {
            y.iter_mut().zip(row).for_each(|(y, w)| *y += x * w);
        }
        y
    }

    /// The logits behind a token.
    pub(super) fn step(&mut self, token: u32) -> Vec<f64> {
        let config = self.weights.config();
        let (width, head) = (config.n_embd, config.head());
        let position = self.keys[0].len();
        let (tokens, positions) = (&self.matrices["wte.weight"], &self.matrices["wpe.weight"]);
        let row = |table: &[f64], at: usize| table[at * width..(at + 1) * width].to_vec();
        let mut x: Vec<f64> =
            row(tokens, token as usize).iter().zip(row(positions, position)).map(|(a, b)| a + b).collect();
        for layer in 0..config.n_layer {
            let name = |part: &str| format!("h.{layer}.{part}");
            let qkv = self.linear(&self.norm(&x, &name("ln_1")), &name("attn.c_attn"));
            self.keys[layer].push(qkv[width..2 * width].iter().map(|&x| rounded(x)).collect());
            self.values[layer].push(qkv[2 * width..].iter().map(|&x| rounded(x)).collect());
            let mut attended = vec![0.0; width];
            for first in (0..width).step_by(head) {
                let part = first..first + head;
                let score = |key: &Vec<f64>| {
                    let dot: f64 = key[part.clone()].iter().zip(&qkv[part.clone()]).map(|(k, q)| k * q).sum();
                    (dot / (head as f64).sqrt()).exp()
                };
                let scores: Vec<f64> = self.keys[layer].iter().map(score).collect();
                let total: f64 = scores.iter().sum();
                for (score, value) in scores.iter().zip(&self.values[layer]) {
                    part.clone().for_each(|i| attended[i] += score / total * value[i]);
                }
            }
            let added = self.linear(&attended, &name("attn.c_proj"));
            x.iter_mut().zip(added).for_each(|(x, y)| *x += y);
            let mut units = self.linear(&self.norm(&x, &name("ln_2")), &name("mlp.c_fc"));
            let c = (2.0 / std::f64::consts::PI).sqrt();
            units.iter_mut().for_each(|u| *u *= 0.5 * (1.0 + (c * (*u + 0.044715 * u.powi(3))).tanh()));
            let added = self.linear(&units, &name("mlp.c_proj"));
            x.iter_mut().zip(added).for_each(|(x, y)| *x += y);
        }
        let normed = self.norm(&x, "ln_f");
        self.matrices["wte.weight"].chunks(width).map(|row| row.iter().zip(&normed).map(|(a, b)| a * b).sum()).collect()
    }
}

// Every plan against a reference in f64, in the simulator, and on a GPU where there is one.

/// A model whose every parameter matters: no bias is 0, no scale is 1.
pub(super) fn model(config: Config, seed: u64) -> Weights {
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

fn config(n_layer: usize, n_head: usize, n_embd: usize, n_ctx: usize, vocab_size: usize) -> Config {
    Config { n_layer, n_head, n_embd, n_ctx, vocab_size }
}

/// The tokens of the test's text, and the logits behind each of them in f64.
fn exact(weights: &Weights, steps: u32) -> Vec<(u32, Vec<f64>)> {
    let mut reference = Reference::new(weights);
    let tokens = (0..steps).map(|i| (i * 37 + 11) % weights.config().vocab_size as u32);
    tokens.map(|token| (token, reference.step(token))).collect()
}

/// Reads tokens one by one and holds each step's logits against the exact ones. Keys and values are rounded to bf16: one
/// that lies between two may go up on one side and down on the other, 2⁻⁸ of it.
fn agrees(gpu: &Gpu, weights: &Weights, text: &[(u32, Vec<f64>)], plan: DecodePlan, mode: LaunchMode) {
    let place = format!("{} {} {:?}", plan.name(), mode.name(), weights.config());
    let mut decoder = Decoder::with(gpu, weights, plan, mode).unwrap_or_else(|error| panic!("{place}: {error}"));
    let prompt: Vec<u32> = text.iter().map(|(token, _)| *token).collect();
    decoder.begin(&prompt, DecodeSampling::GREEDY).unwrap();
    let mut last = Vec::new();
    for (position, (_, exact)) in text.iter().enumerate() {
        decoder.step().unwrap_or_else(|error| panic!("{place}, position {position}: {error}"));
        let given = decoder.logits().unwrap();
        let size = (exact.iter().map(|x| x * x).sum::<f64>() / exact.len() as f64).sqrt();
        for (row, (given, exact)) in given.iter().zip(exact).enumerate() {
            let error = (f64::from(*given) - exact).abs();
            assert!(error <= 4e-3 * size, "{place}, position {position}, token {row}: {given}, not {exact}");
        }
        last = given;
    }
    let best = (0..last.len()).rev().max_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap() as u32;
    let tokens = decoder.tokens().unwrap();
    assert_eq!((&tokens[..text.len()], tokens[text.len()]), (&prompt[..], best), "{place}");
}

#[test]
fn every_plan_agrees_with_f64_and_makes_no_mistake() {
    let gpu = Gpu::simulated().unwrap();
    // Layers for each of the three roles of the residual's buffers; heads of 8 to 64; a vocabulary that fills no warp.
    for (config, steps) in
        [(config(2, 8, 64, 12, 99), 5), (config(3, 4, 128, 40, 256), 9), (config(1, 12, 768, 8, 101), 2)]
    {
        let weights = model(config, 1);
        let text = exact(&weights, steps);
        for plan in DecodePlan::ALL {
            agrees(&gpu, &weights, &text, plan, LaunchMode::Eager);
        }
    }
}

#[test]
fn every_plan_is_right_in_every_order_of_blocks() {
    let weights = model(config(2, 8, 64, 12, 99), 1);
    let text = exact(&weights, 3);
    for order in [BlockOrder::Reverse, BlockOrder::Random(1)] {
        let gpu = Gpu::simulated_in(order).unwrap();
        for plan in DecodePlan::ALL {
            agrees(&gpu, &weights, &text, plan, LaunchMode::Eager);
        }
    }
}

#[test]
fn a_text_is_continued_and_a_seed_names_it() {
    let gpu = Gpu::simulated().unwrap();
    let weights = model(config(1, 2, 64, 16, 99), 2);
    let mut decoder = Decoder::new(&gpu, &weights).unwrap();
    let mut seen = Vec::new();
    let greedy = decoder.generate(&[5, 6, 7], 8, DecodeSampling::GREEDY, |token| seen.push(token)).unwrap();
    assert_eq!((greedy.len(), &greedy), (8, &seen));
    assert_eq!(decoder.tokens().unwrap(), [&[5, 6, 7][..], &greedy].concat());
    let mut with =
        |temperature, seed| decoder.generate(&[5, 6, 7], 8, DecodeSampling { temperature, seed }, |_| ()).unwrap();
    assert_eq!(with(0.0, 9), greedy);
    let warm = with(1.0, 3);
    assert_eq!(with(1.0, 3), warm);
    assert_ne!((warm.clone(), with(1.0, 4)), (greedy.clone(), warm));
    // As far as the context goes.
    assert_eq!(decoder.generate(&[5, 6, 7], 1000, DecodeSampling::GREEDY, |_| ()).unwrap().len(), 13);
}

/// Of many seeds' first tokens, each comes about as often as its probability says.
#[test]
fn drawn_tokens_follow_the_probabilities() {
    let gpu = Gpu::simulated().unwrap();
    let weights = model(config(1, 1, 8, 4, 3), 3);
    let mut decoder = Decoder::new(&gpu, &weights).unwrap();
    let mut counts = [0_usize; 3];
    const DRAWS: u32 = 200;
    for seed in 0..DRAWS {
        let drawn = decoder.generate(&[1], 1, DecodeSampling { temperature: 2.0, seed }, |_| ()).unwrap();
        counts[drawn[0] as usize] += 1;
    }
    let logits = decoder.logits().unwrap();
    let shares: Vec<f64> = logits.iter().map(|&x| f64::from(x / 2.0).exp()).collect();
    for (count, share) in counts.iter().zip(&shares) {
        let expected = share / shares.iter().sum::<f64>();
        // Four standard deviations.
        let most = 4.0 * (expected * (1.0 - expected) / f64::from(DRAWS)).sqrt();
        assert!((*count as f64 / f64::from(DRAWS) - expected).abs() < most, "{counts:?} {shares:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let gpu = Gpu::simulated().unwrap();
    let weights = model(config(1, 1, 8, 4, 3), 4);
    let mut decoder = Decoder::new(&gpu, &weights).unwrap();
    let early = decoder.step().unwrap_err().to_string();
    assert!(early.contains("nothing to read") && early.contains("\nnext: "), "{early}");
    let cold = DecodeSampling { temperature: -1.0, seed: 0 };
    for (prompt, draw, text) in [
        (&[][..], DecodeSampling::GREEDY, "the prompt is empty"),
        (&[0, 1, 2, 0], DecodeSampling::GREEDY, "4 tokens, and the model's context is 4"),
        (&[3], DecodeSampling::GREEDY, "the token 3, and the vocabulary ends at 2"),
        (&[1], cold, "a temperature of -1"),
    ] {
        let message = decoder.begin(prompt, draw).unwrap_err().to_string();
        assert!(message.contains(text) && message.contains("\nnext: "), "{message}");
    }
    decoder.begin(&[1], DecodeSampling::GREEDY).unwrap();
    (0..4).for_each(|_| decoder.step().unwrap());
    assert!(decoder.step().unwrap_err().to_string().contains("position 4"));
    let graph = Decoder::with(&gpu, &weights, DecodePlan::HalfLayers, LaunchMode::Graph).unwrap_err().to_string();
    assert!(graph.contains("graphs") && graph.contains("\nnext: "), "{graph}");
}

#[test]
fn a_step_reads_each_weight_once() {
    let gpu = Gpu::simulated().unwrap();
    let shape = config(2, 2, 64, 12, 99);
    let decoder = Decoder::new(&gpu, &model(shape, 5)).unwrap();
    let parameters = shape.parameter_count() - shape.n_ctx * shape.n_embd;
    let vectors = shape.n_layer * (9 + 4) * shape.n_embd + 2 * shape.n_embd;
    assert_eq!(decoder.bytes_a_token(0), 2 * parameters + 2 * vectors);
    assert_eq!(decoder.bytes_a_token(10) - decoder.bytes_a_token(0), 2 * 2 * 10 * 64 * 2);
    assert_eq!(decoder.kernels_a_token(), 2 * 2 + 1);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_plan_and_queue_agrees_on_a_gpu() {
    let gpu = Gpu::open_index(0).expect("needs an NVIDIA GPU");
    for (config, steps) in [(config(3, 4, 128, 40, 256), 35), (config(2, 12, 768, 64, 1009), 60)] {
        let weights = model(config, 6);
        let text = exact(&weights, steps);
        for plan in DecodePlan::ALL {
            for mode in [LaunchMode::Eager, LaunchMode::Graph, LaunchMode::Overlapped] {
                agrees(&gpu, &weights, &text, plan, mode);
            }
        }
    }
}
