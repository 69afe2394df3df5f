//! The model against a second implementation in f64, and the cache and the batch against the model.

use super::*;
use candle_core::{DType, Device, Tensor};

const SMALL: Config = Config { n_layer: 2, n_head: 3, n_embd: 12, n_ctx: 24, vocab_size: 256 };

/// Weights large enough that a mistake anywhere shows in the logits; biases and scales that are not 0 and 1.
fn weights() -> Weights {
    let mut file = Weights::random(SMALL, 5).unwrap().into_file();
    for (index, tensor) in file.tensors.values_mut().enumerate() {
        let noise = gpulab::cpu::random_f32(tensor.values.len(), 100 + index as u64);
        tensor.values.iter_mut().zip(noise).for_each(|(x, noise)| *x = 5.0 * *x + 0.2 * noise);
    }
    Weights::from_file(SMALL, file).unwrap()
}

fn gpt() -> Gpt {
    Gpt::new(&weights(), &Device::Cpu, DType::F32).unwrap()
}

fn tokens(n: usize, seed: u64) -> Vec<u32> {
    let mut random = SplitMix64::new(seed);
    (0..n).map(|_| (random.bits() % 256) as u32).collect()
}

/// GPT-2 as its formulas stand, in f64, one number at a time: the logits after each token.
fn reference(weights: &Weights, tokens: &[u32]) -> Vec<Vec<f64>> {
    let Config { n_layer, n_head, n_embd: width, vocab_size, .. } = weights.config();
    let get = |name: &str, i: usize| f64::from(weights.get(name).values[i]);
    let linear = |x: &[f64], name: &str, outputs: usize| -> Vec<f64> {
        let sum = |o: usize| (0..x.len()).map(|i| x[i] * get(&format!("{name}.weight"), i * outputs + o)).sum::<f64>();
        (0..outputs).map(|o| sum(o) + get(&format!("{name}.bias"), o)).collect()
    };
    let norm = |x: &[f64], name: &str| -> Vec<f64> {
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
        let scale = |(i, x): (usize, &f64)| {
            (x - mean) / (variance + 1e-5).sqrt() * get(&format!("{name}.weight"), i) + get(&format!("{name}.bias"), i)
        };
        x.iter().enumerate().map(scale).collect()
    };
    let gelu = |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh());
    let embed = |(place, token): (usize, &u32)| -> Vec<f64> {
        (0..width)
            .map(|i| get("wte.weight", *token as usize * width + i) + get("wpe.weight", place * width + i))
            .collect()
    };
    let mut rows: Vec<Vec<f64>> = tokens.iter().enumerate().map(embed).collect();
    for layer in 0..n_layer {
        let of = |part: &str| format!("h.{layer}.{part}");
        let qkv: Vec<Vec<f64>> =
            rows.iter().map(|x| linear(&norm(x, &of("ln_1")), &of("attn.c_attn"), 3 * width)).collect();
        for (place, x) in rows.iter_mut().enumerate() {
            let mut seen = vec![0.0; width];
            for head in 0..n_head {
                let d = width / n_head;
                let dot =
                    |key: usize| (0..d).map(|i| qkv[place][head * d + i] * qkv[key][width + head * d + i]).sum::<f64>();
                let scores: Vec<f64> = (0..=place).map(|key| (dot(key) / (d as f64).sqrt()).exp()).collect();
                let sum: f64 = scores.iter().sum();
                for i in 0..d {
                    seen[head * d + i] =
                        (0..=place).map(|key| scores[key] / sum * qkv[key][2 * width + head * d + i]).sum();
                }
            }
            linear(&seen, &of("attn.c_proj"), width).iter().zip(x.iter_mut()).for_each(|(y, x)| *x += y);
            let inner: Vec<f64> =
                linear(&norm(x, &of("ln_2")), &of("mlp.c_fc"), 4 * width).into_iter().map(gelu).collect();
            linear(&inner, &of("mlp.c_proj"), width).iter().zip(x.iter_mut()).for_each(|(y, x)| *x += y);
        }
    }
    let logit = |x: &[f64], token: usize| (0..width).map(|i| x[i] * get("wte.weight", token * width + i)).sum::<f64>();
    rows.iter().map(|x| norm(x, "ln_f")).map(|x| (0..vocab_size).map(|token| logit(&x, token)).collect()).collect()
}

/// The largest difference, in units of the largest logit.
fn apart(ours: &[f32], theirs: &[f64]) -> f64 {
    assert_eq!(ours.len(), theirs.len());
    let largest = theirs.iter().fold(1.0f64, |most, x| most.max(x.abs()));
    ours.iter().zip(theirs).fold(0.0f64, |most, (a, b)| {
        let apart = (f64::from(*a) - b).abs() / largest;
        if apart.is_nan() { f64::INFINITY } else { most.max(apart) }
    })
}

#[test]
fn logits_are_those_of_the_formulas_in_f64() {
    let (weights, text) = (weights(), tokens(17, 1));
    let input = Tensor::from_slice(&text, (1, 17), &Device::Cpu).unwrap();
    let wanted = reference(&weights, &text);
    let tensor = |name: &str| {
        Ok(Tensor::from_slice(&weights.get(name).values, weights.get(name).shape.as_slice(), &Device::Cpu)?)
    };
    for train in [false, true] {
        let gpt = Gpt::build(SMALL, &tensor, train).unwrap();
        let logits = gpt.logits(&input).unwrap().squeeze(0).unwrap().to_vec2::<f32>().unwrap();
        for (ours, theirs) in logits.iter().zip(&wanted) {
            assert!(apart(ours, theirs) < 1e-5, "{}", apart(ours, theirs));
        }
    }
}

#[test]
fn tokens_one_by_one_give_the_logits_of_the_whole_text() {
    let (gpt, text) = (gpt(), tokens(24, 2));
    let wanted = reference(&weights(), &text);
    for prompt in [1, 7, 23] {
        let (mut cache, mut logits) = gpt.prefill(&[text[..prompt].to_vec()], 24 - prompt).unwrap();
        for place in prompt..=24 {
            let row = logits.to_vec2::<f32>().unwrap();
            assert!(apart(&row[0], &wanted[place - 1]) < 1e-5, "{prompt} {place}");
            if place < 24 {
                logits = gpt.step(&[text[place]], &mut cache).unwrap();
            }
        }
        assert_eq!((cache.len(), cache.bytes()), (24, 2 * 2 * 24 * 12 * 4));
        assert!(gpt.step(&[0], &mut cache).unwrap_err().to_string().contains("the cache is full"));
    }
}

#[test]
fn a_padded_text_in_a_batch_is_as_if_it_were_alone() {
    let gpt = gpt();
    let texts: Vec<Vec<u32>> = [3, 1, 12, 7].into_iter().map(|n| tokens(n, n as u64)).collect();
    let (mut cache, mut together) = gpt.prefill(&texts, 5).unwrap();
    let mut alone: Vec<_> = texts.iter().map(|text| gpt.prefill(std::slice::from_ref(text), 5).unwrap()).collect();
    for step in 0..6u32 {
        let rows = together.to_vec2::<f32>().unwrap();
        for (row, (_, logits)) in rows.iter().zip(&alone) {
            let wanted: Vec<f64> = logits.to_vec2::<f32>().unwrap()[0].iter().map(|x| f64::from(*x)).collect();
            assert!(apart(row, &wanted) < 1e-5, "{step}");
        }
        if step < 5 {
            let next: Vec<u32> = (0..4).map(|text| 10 * text + step).collect();
            together = gpt.step(&next, &mut cache).unwrap();
            for (text, (cache, logits)) in alone.iter_mut().enumerate() {
                *logits = gpt.step(&[next[text]], cache).unwrap();
            }
        }
    }
    assert!(gpt.step(&[1], &mut cache).unwrap_err().to_string().contains("4 elements expected, 1 given"));
}

#[test]
fn a_seed_names_its_text_and_a_batch_writes_what_single_texts_do() {
    let model = LanguageModel { gpt: gpt(), tokenizer: Tokenizer::Bytes };
    let generate =
        |prompts: &[&str], seed| model.generate(prompts, 8, Sampling::top_p(1.0, 0.9, seed), &mut |_, _| {}).unwrap();
    let tokens = |all: Vec<Generated>| all.into_iter().map(|one| one.tokens).collect::<Vec<_>>();
    assert_eq!(tokens(generate(&["the warp"], 3)), tokens(generate(&["the warp"], 3)));
    assert_ne!(tokens(generate(&["the warp"], 3)), tokens(generate(&["the warp"], 4)));
    let greedy = |prompts: &[&str]| tokens(model.generate(prompts, 8, Sampling::Greedy, &mut |_, _| {}).unwrap());
    assert_eq!(greedy(&["a", "some more"]), [greedy(&["a"]), greedy(&["some more"])].concat());
    let mut heard = Vec::new();
    let all = model.generate(&["x", "yz"], 4, Sampling::Greedy, &mut |text, token| heard.push((text, token))).unwrap();
    assert_eq!(heard.iter().filter(|(text, _)| *text == 1).map(|(_, token)| *token).collect::<Vec<_>>(), all[1].tokens);
    assert_eq!(all[0].step_ms.len(), 3);
}

#[test]
fn a_prompt_that_does_not_fit_is_refused_with_the_numbers() {
    let error = |prompts: &[Vec<u32>], new| gpt().prefill(prompts, new).unwrap_err().to_string();
    let text = error(&[tokens(20, 1)], 5);
    assert!(
        text.contains("25 tokens do not fit into the model's context of 24") && text.contains("\nnext: "),
        "{text}"
    );
    assert!(error(&[vec![1], vec![]], 1).contains("no tokens") && error(&[], 1).contains("no tokens"));
    assert!(error(&[vec![256]], 1).contains("token 256, and the model has 256"));
    let long = Tensor::zeros((1, 25), DType::U32, &Device::Cpu).unwrap();
    assert!(gpt().logits(&long).unwrap_err().to_string().contains("context of 24"));
}

#[test]
fn dropout_is_random_in_training_mode_and_gone_in_evaluation() {
    let input = Tensor::from_slice(&tokens(12, 5), (1, 12), &Device::Cpu).unwrap();
    let of = |gpt: &Gpt| gpt.logits(&input).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let (eval, train) = (gpt(), gpt().with_dropout(0.1).unwrap());
    assert_eq!(of(&eval), of(&eval));
    assert_ne!(of(&train), of(&train));
    assert_eq!(of(&train.with_dropout(0.0).unwrap()), of(&eval));
    for share in [-0.1, 1.0, f32::NAN] {
        assert!(gpt().with_dropout(share).unwrap_err().to_string().contains("\nnext: "));
    }
}

#[test]
fn a_detached_model_computes_the_same_and_keeps_nothing_for_a_backward_pass() {
    let input = Tensor::from_slice(&tokens(12, 6), (1, 12), &Device::Cpu).unwrap();
    let tracked = Gpt::tracked(&weights(), &Device::Cpu).unwrap();
    let [with, without] = [&tracked, &tracked.detached()].map(|gpt| gpt.logits(&input).unwrap());
    assert!(with.track_op() && !without.track_op());
    let numbers = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    assert_eq!(numbers(&with), numbers(&without));
}

#[test]
fn half_precision_is_near_where_the_device_has_it() {
    let text = tokens(10, 4);
    let wanted = reference(&weights(), &text);
    let half = Gpt::new(&weights(), &Device::Cpu, DType::F16).unwrap();
    let (_, logits) = half.prefill(&[text], 1).unwrap();
    let apart = apart(&logits.to_vec2::<f32>().unwrap()[0], &wanted[9]);
    assert!(apart > 0.0 && apart < 0.01, "{apart}");
    assert_eq!(half.bytes() * 2, gpt().bytes());
}

#[test]
fn the_kept_model_is_half_a_nat_better_than_pairs_on_words_that_it_never_read() {
    let text = Text::course().unwrap();
    let model = LanguageModel::course(&Device::Cpu).unwrap();
    assert_eq!((model.gpt.config(), model.gpt.config().vocab_size), (Config::COURSE, 256));
    let some = Text { held_out: text.held_out[..4000].to_vec(), ..text };
    let (ours, pairs) = (model.gpt.loss(&some.held_out).unwrap(), best_bigram_loss(&some));
    assert!(ours < pairs - 0.5, "{ours} {pairs}");
}
