//! Adapters against sums by hand, gradients against differences, files against peft's documented names.

use super::*;
use crate::llama::tiny::{CONFIG, TinyFile};
use crate::llama::{ChatModel, Llama, LlamaConfig, Projection, WeightDtype};
use crate::quantize::{Nf4Matrix, WeightMatrix};
use crate::tensors::TensorFile;
use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{DType, Device, Module, Tensor, Var};
use gpulab_kernels::gpt_step::AdamWConfig;
use gpulab_kernels::lora_step::LoraSettings;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn random(shape: &[usize], seed: u64) -> Tensor {
    let values = gpulab::cpu::random_f32(shape.iter().product(), seed);
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn apart(a: &Tensor, b: &Tensor) -> f32 {
    assert_eq!(a.dims(), b.dims());
    values(a).iter().zip(values(b)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn tiny() -> (ChatModel, TinyFile) {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let file = TinyFile::new(&format!("lora-{}", NEXT.fetch_add(1, Ordering::Relaxed)), |_| ());
    (ChatModel::load(&file.0, &Device::Cpu, WeightDtype::Dense(DType::F32)).unwrap(), file)
}

fn practice() -> ChatModel {
    ChatModel::practice(&Device::Cpu, WeightDtype::Dense(DType::F32)).unwrap()
}

fn lora(rank: usize, targets: &[Projection], layers: std::ops::Range<usize>) -> Training {
    Training::Lora(LoraConfig { rank, alpha: 2.0 * rank as f64, targets: targets.to_vec(), layers, seed: 3 })
}

// ----------------------------------------------------------------------
// Frozen weights and what they pass on.

#[test]
fn a_frozen_product_passes_the_inputs_gradient_on_and_stores_no_other() {
    // More outputs and inputs than a panel has, and not a multiple of it.
    let (outputs, inputs) = (300, 320);
    let weight = random(&[outputs, inputs], 1);
    let x = Var::from_tensor(&random(&[2, 3, inputs], 2)).unwrap();
    let way = random(&[2, 3, outputs], 3);
    for base in [Base::F32, Base::Bf16, Base::Nf4] {
        let frozen = FrozenWeight::new(&weight, base).unwrap();
        let dense = frozen.dense(&weight).unwrap();
        let plain =
            x.reshape((6, inputs)).unwrap().matmul(&dense.t().unwrap()).unwrap().reshape((2, 3, outputs)).unwrap();
        let y = frozen.product(&x).unwrap();
        assert!(apart(&y, &plain) < 1e-4, "{}", base.name());
        let gradients = (&y * &way).unwrap().sum_all().unwrap().backward().unwrap();
        let theirs = (&plain * &way).unwrap().sum_all().unwrap().backward().unwrap();
        assert!(apart(gradients.get(&x).unwrap(), theirs.get(&x).unwrap()) < 1e-4, "{}", base.name());
        // x's, and that of `way`, which candle computes for the product of elements.
        assert_eq!(gradients.get_ids().count(), 2, "{}", base.name());
    }
    let text = FrozenWeight::new(&weight, Base::F32).unwrap().product(&random(&[2, 300], 4)).unwrap_err().to_string();
    assert!(text.contains("matrix with 320 inputs") && text.contains("\nnext: "), "{text}");
}

#[test]
fn the_two_traps_of_candle_are_still_there() {
    // 1: a plain product stores a gradient for a weight that is no variable.
    let (weight, x) = (random(&[4, 64], 1), Var::from_tensor(&random(&[2, 64], 2)).unwrap());
    let loss = x.matmul(&weight.t().unwrap()).unwrap().sum_all().unwrap();
    assert_eq!(loss.backward().unwrap().get_ids().count(), 2);
    // 2: the quantized product, and other fast operators, cut the gradient and say nothing.
    let quantized = QMatMul::from_arc(Arc::new(QTensor::quantize(&weight, GgmlDType::Q8_0).unwrap())).unwrap();
    assert!(quantized.forward(&x).unwrap().sum_all().unwrap().backward().unwrap().get(&x).is_none());
    let factor = random(&[64], 3);
    let normed = candle_nn::ops::rms_norm(&x, &factor, 1e-5).unwrap();
    assert!(normed.sum_all().unwrap().backward().unwrap().get(&x).is_none());
    let soft = candle_nn::ops::softmax_last_dim(&x).unwrap();
    assert!(soft.sum_all().unwrap().backward().unwrap().get(&x).is_none());
}

#[test]
fn merged_and_beside_it_an_adapter_computes_the_same_and_unmerging_gives_the_weight_back() {
    let (weight, bias, x) = (random(&[40, 64], 1), random(&[40], 2), random(&[3, 5, 64], 3));
    let layer = candle_nn::Linear::new(weight.clone(), Some(bias));
    let mut adapted = LoraLinear::of(&layer, 4, 8.0, 1).unwrap();
    // B is 0 at first.
    assert!(apart(&adapted.forward(&x).unwrap(), &layer.forward(&x).unwrap()) < 1e-5);
    assert_eq!((adapted.trainable(), adapted.scale()), (4 * (64 + 40), 2.0));
    let bound = 1.0 / 8.0;
    assert!(
        values(adapted.a()).iter().all(|a| a.abs() <= bound)
            && values(adapted.a()).iter().any(|a| a.abs() > 0.8 * bound)
    );
    adapted.b().set(&random(&[40, 4], 4)).unwrap();
    let beside = adapted.forward(&x).unwrap();
    assert!(apart(&beside, &layer.forward(&x).unwrap()) > 0.1);
    let whole = adapted.merged_weight().unwrap();
    adapted.merge().unwrap();
    adapted.merge().unwrap();
    assert!(apart(&adapted.forward(&x).unwrap(), &beside) < 1e-4);
    assert_eq!(values(&adapted.merged_weight().unwrap()), values(&whole));
    adapted.unmerge().unwrap();
    let FrozenWeight::Dense(back) = adapted.weight() else { panic!() };
    assert!(apart(back, &weight) < 1e-6 && apart(&adapted.forward(&x).unwrap(), &beside) < 1e-5);
    // The reader's own layer was never touched.
    assert_eq!(values(layer.weight()), values(&weight));

    let four_bits = FrozenWeight::new(&weight, Base::Nf4).unwrap();
    let mut adapted = LoraLinear::new(four_bits, None, 4, 8.0, 1).unwrap();
    adapted.b().set(&random(&[40, 4], 4)).unwrap();
    let text = adapted.merge().unwrap_err().to_string();
    assert!(text.contains("four bits") && text.contains("merged_weight"), "{text}");
    let y = x.reshape((15, 64)).unwrap().matmul(&adapted.merged_weight().unwrap().t().unwrap()).unwrap();
    assert!(apart(&adapted.forward(&x).unwrap().reshape((15, 40)).unwrap(), &y) < 1e-4);
}

#[test]
fn a_rank_above_the_matrix_and_an_alpha_that_is_none_are_refused() {
    let layer = candle_nn::Linear::new(random(&[40, 64], 1), None);
    for rank in [0, 41, 64] {
        let text = LoraLinear::of(&layer, rank, 8.0, 1).unwrap_err().to_string();
        assert!(text.contains("40 × 64") && text.contains("next: take a rank of 1 to 40"), "{text}");
    }
    assert!(LoraLinear::of(&layer, 40, 8.0, 1).is_ok());
    for alpha in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(LoraLinear::of(&layer, 4, alpha, 1).unwrap_err().to_string().contains("alpha is"));
    }
}

// ----------------------------------------------------------------------
// The model.

#[test]
fn the_trained_forward_pass_is_the_llamas() {
    let (chat, _file) = tiny();
    let tokens = [1_u32, 40, 77, 200, 3, 258, 90];
    let wanted = chat.llama.logits(&tokens).unwrap();
    for training in
        [lora(2, &[Projection::Q, Projection::Down], 1..2), lora(2, &[Projection::V], 0..2), Training::Full(0..2)]
    {
        let model = TunedLlama::new(&chat.llama, Base::F32, training).unwrap();
        let input = Tensor::from_slice(&tokens, (1, 7), &Device::Cpu).unwrap();
        let rows = Tensor::arange(0_u32, 7, &Device::Cpu).unwrap();
        let logits = model.logits(&model.behind(&model.before(&input).unwrap()).unwrap(), &rows).unwrap();
        let off = apart(&logits, &wanted);
        assert!(off < 2e-3, "{off}");
    }
}

/// The loss as a function of one parameter's number against its gradient.
#[test]
fn gradients_are_those_of_differences() {
    let (chat, _file) = tiny();
    let every: Vec<Projection> = Projection::ALL.to_vec();
    for (base, training) in
        [(Base::F32, lora(2, &every, 0..2)), (Base::Nf4, lora(2, &every, 0..2)), (Base::F32, Training::Full(0..2))]
    {
        let model = TunedLlama::new(&chat.llama, base, training).unwrap();
        // B away from 0, or A's gradients would all be 0.
        for (at, (_, _, adapter)) in model.adapters().enumerate() {
            let b = (random(adapter.b().dims(), at as u64) * 0.2).unwrap();
            adapter.b().set(&b).unwrap();
        }
        let tokens = Tensor::new(&[[1_u32, 40, 77, 200, 3, 258], [5, 9, 1, 4, 250, 17]], &Device::Cpu).unwrap();
        let rows = Tensor::new(&[2_u32, 3, 4, 8, 9, 10], &Device::Cpu).unwrap();
        let targets = Tensor::new(&[200_u32, 3, 258, 4, 250, 17], &Device::Cpu).unwrap();
        let before = model.before(&tokens).unwrap();
        let loss = || cross_entropy(&model.logits(&model.behind(&before).unwrap(), &rows).unwrap(), &targets).unwrap();
        let gradients = loss().backward().unwrap();
        let vars = model.vars();
        assert_eq!(
            vars.len(),
            if base == Base::Nf4 || matches!(model.training(), Training::Lora(_)) { 28 } else { 14 }
        );
        for (which, var) in vars.iter().enumerate() {
            let gradient = gradients.get(var.as_tensor()).expect("each has one");
            // Along a random direction: one number for the whole matrix.
            let direction = random(var.dims(), 100 + which as u64);
            let along = f64::from((gradient * &direction).unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap());
            let (own, step) = (var.as_detached_tensor().copy().unwrap(), 2e-3);
            let at = |way: f64| {
                var.set(&(&own + (&direction * way).unwrap()).unwrap()).unwrap();
                f64::from(loss().to_scalar::<f32>().unwrap())
            };
            let difference = (at(step) - at(-step)) / (2.0 * step);
            var.set(&own).unwrap();
            let bound = 0.03 * along.abs().max(difference.abs()) + 4e-3;
            assert!((along - difference).abs() < bound, "{base:?} {which}: {along} {difference}");
        }
    }
}

#[test]
fn only_what_learns_has_a_gradient() {
    let (chat, _file) = tiny();
    let model = TunedLlama::new(&chat.llama, Base::F32, lora(2, &[Projection::Q, Projection::V], 0..2)).unwrap();
    let tokens = Tensor::new(&[[1_u32, 40, 77]], &Device::Cpu).unwrap();
    let rows = Tensor::new(&[0_u32, 1], &Device::Cpu).unwrap();
    let targets = Tensor::new(&[40_u32, 77], &Device::Cpu).unwrap();
    let x = model.behind(&model.before(&tokens).unwrap()).unwrap();
    let gradients = cross_entropy(&model.logits(&x, &rows).unwrap(), &targets).unwrap().backward().unwrap();
    let weights: usize =
        [Projection::Q, Projection::V].iter().map(|of| of.shape(&CONFIG).iter().product::<usize>()).sum();
    // candle stores more than the adapters' gradients: that of their transposed views, and of the input that nothing learns from.
    // A frozen matrix is not among them.
    let largest = gradients.get_ids().map(|id| gradients.get_id(*id).unwrap().elem_count()).max().unwrap();
    assert!(largest < weights / 2, "{largest} of {weights}");
    for var in model.vars() {
        assert!(gradients.get(var.as_tensor()).is_some());
    }
}

#[test]
fn layers_targets_and_counts() {
    let (chat, _file) = tiny();
    let model = TunedLlama::new(&chat.llama, Base::F32, lora(4, &[Projection::Q, Projection::K], 1..2)).unwrap();
    // Q: 128 × 128, K: 32 × 128.
    assert_eq!(model.trainable(), 4 * (128 + 128) + 4 * (32 + 128));
    assert_eq!(model.frozen_bytes(), 4 * CONFIG.parameter_count());
    let full = TunedLlama::new(&chat.llama, Base::F32, Training::Full(1..2)).unwrap();
    assert_eq!(full.trainable(), CONFIG.projection_count() / 2);
    assert_eq!(full.frozen_bytes() + 4 * full.trainable(), 4 * CONFIG.parameter_count());
    let four = TunedLlama::new(&chat.llama, Base::Nf4, lora(4, &[Projection::Q], 0..2)).unwrap();
    let saved = model.frozen_bytes() - four.frozen_bytes();
    assert!((saved as f64 / CONFIG.projection_count() as f64 - (4.0 - 4.127 / 8.0)).abs() < 0.02, "{saved}");
    for layers in [0..3, 2..2, 5..6] {
        let text = TunedLlama::new(&chat.llama, Base::F32, Training::Full(layers)).unwrap_err().to_string();
        assert!(text.contains("of a model that has 2") && text.contains("0..2"), "{text}");
    }
    let text = TunedLlama::new(&chat.llama, Base::F32, lora(4, &[], 0..2)).unwrap_err().to_string();
    assert!(text.contains("beside no matrix"), "{text}");
    let text = TunedLlama::new(&chat.llama, Base::F32, lora(33, &[Projection::K], 0..2)).unwrap_err().to_string();
    assert!(text.contains("32 × 128"), "{text}");
}

// ----------------------------------------------------------------------
// The task.

#[test]
fn right_answers_are_right_and_the_parts_share_no_name() {
    let (training, held_out) = (bookings(Split::Training, 60, 1), bookings(Split::HeldOut, 60, 1));
    let names =
        |part: &[Example]| part.iter().map(|one| one.booking.name.clone()).collect::<std::collections::BTreeSet<_>>();
    assert!(names(&training).is_disjoint(&names(&held_out)) && names(&training).len() > 20);
    for one in training.iter().chain(&held_out) {
        assert_eq!(Booking::read(&one.booking.json()).unwrap(), one.booking);
        assert!(one.request.contains(&one.booking.name) && one.request.contains(&one.booking.day), "{}", one.request);
        assert!(!one.request.contains('{'), "{}", one.request);
    }
    assert_eq!(training, bookings(Split::Training, 60, 1));
    assert_ne!(training, bookings(Split::Training, 60, 2));
    let has = |part: &[Example], text: &str| part.iter().any(|one| one.request.contains(text));
    assert!(has(&held_out, "Is there room") && !has(&training, "Is there room"));
}

#[test]
fn an_answer_is_judged_to_the_letter() {
    let right = r#"{"name": "Ada L", "guests": 2, "day": "Monday", "time": "19:00"}"#;
    assert!(Booking::read(right).is_ok() && Booking::read(&format!(" {right}\n")).is_ok());
    for (wrong, says) in [
        ("", "no JSON"),
        ("Sure! Here it is:", "no JSON"),
        (&right[..40], "no JSON"),
        (&format!("{right} Enjoy!"), "no JSON"),
        (&format!("```json\n{right}\n```"), "no JSON"),
        (&format!("[{right}]"), "no object"),
        (&right.replace("2", "\"two\""), "`guests`"),
        (&right.replace("2", "2.5"), "`guests`"),
        (&right.replace("\"19:00\"", "19"), "`time`"),
        (&right.replace("day", "date"), "`date` that nobody"),
        (r#"{"name": "Ada"}"#, "`guests`"),
    ] {
        let text = Booking::read(wrong).unwrap_err().to_string();
        assert!(text.contains(says) && text.contains("\nnext: "), "{wrong}: {text}");
    }
}

// ----------------------------------------------------------------------
// Training.

fn plan(steps: usize, rate: f64) -> TunePlan {
    TunePlan { batch: 4, steps, rate, seed: 1 }
}

#[test]
fn a_few_steps_lower_the_loss_and_the_merged_model_has_learned_them() {
    let chat = practice();
    let examples = bookings(Split::Training, 8, 1);
    let targets = [Projection::Q, Projection::V, Projection::Down];
    for (base, training, rate) in [
        (Base::F32, lora(8, &targets, 2..4), 1e-2),
        (Base::Nf4, lora(8, &targets, 2..4), 1e-2),
        (Base::F32, Training::Full(3..4), 2e-3),
    ] {
        let model = TunedLlama::new(&chat.llama, base, training).unwrap();
        let mut tuner = Tuner::new(&chat, model, &examples, plan(12, rate)).unwrap();
        let before = tuner.loss_on(&chat, &examples).unwrap();
        for _ in 0..12 {
            tuner.step().unwrap();
        }
        let after = tuner.loss_on(&chat, &examples).unwrap();
        assert!(after < 0.8 * before, "{base:?}: {before} {after}");
        assert_eq!(tuner.losses().len(), 12);
        // The Llama that all else works with gives the same loss.
        let merged = tuner.model.merged(&chat.llama).unwrap();
        let (tokens, prompt) = examples[0].tokens(&chat).unwrap();
        let rows = merged.logits(&tokens).unwrap().to_vec2::<f32>().unwrap();
        let surprise = |row: &[f32], token: u32| {
            let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
            sum.ln() - f64::from(row[token as usize])
        };
        let mean = (prompt..tokens.len()).map(|at| surprise(&rows[at - 1], tokens[at])).sum::<f64>()
            / (tokens.len() - prompt) as f64;
        let alone = tuner.loss_on(&chat, &examples[..1]).unwrap();
        assert!((mean - alone).abs() < 1e-2 * alone, "{base:?}: {mean} {alone}");
    }
}

#[test]
fn a_loss_that_is_no_number_stops_the_run_and_the_last_good_state_is_kept() {
    let chat = practice();
    let examples = bookings(Split::Training, 4, 1);
    let model = TunedLlama::new(&chat.llama, Base::F32, lora(4, &[Projection::Q, Projection::K], 3..4)).unwrap();
    // A step moves B by about the rate, and scores are products of q and k: 10^60 is beyond f32, and ∞ − ∞ is NaN. (Beside other matrices
    // the next norm would hide it: a number divided by ∞ is 0.)
    let mut tuner = Tuner::new(&chat, model, &examples, plan(10, 1e30)).unwrap();
    let before = tuner.loss_on(&chat, &examples).unwrap();
    let mut outcome = Ok(0.0);
    for _ in 0..4 {
        outcome = tuner.step();
        if outcome.is_err() {
            break;
        }
    }
    let text = outcome.unwrap_err().to_string();
    assert!(text.contains("the loss is") && text.contains("smaller rate than 1e30"), "{text}");
    let after = tuner.loss_on(&chat, &examples).unwrap();
    assert!(after.is_finite() && (after - before).abs() < 1e-3, "{before} {after}");
    for (batch, steps, count, rate) in
        [(0, 1, 1, 1e-3), (1, 0, 1, 1e-3), (1, 1, 0, 1e-3), (1, 1, 1, 0.0), (1, 1, 1, f64::NAN)]
    {
        let model = TunedLlama::new(&chat.llama, Base::F32, lora(4, &[Projection::Down], 3..4)).unwrap();
        assert!(Tuner::new(&chat, model, &examples[..count], TunePlan { batch, steps, rate, seed: 1 }).is_err());
    }
}

#[test]
fn rates_rise_and_fall() {
    let plan = plan(20, 1.0);
    let rates: Vec<f64> = (0..20).map(|step| plan.rate_at(step)).collect();
    assert!(
        (rates[0] - 0.5).abs() < 1e-9 && (rates[1] - 1.0).abs() < 1e-9 && (rates[19] - 0.15).abs() < 0.01,
        "{rates:?}"
    );
    assert!(rates[2..].windows(2).all(|two| two[0] > two[1]));
}

// ----------------------------------------------------------------------
// peft's files.

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("gpulab-peft-{}-{name}", std::process::id()));
    drop(std::fs::remove_dir_all(&path));
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// By hand, after peft's documentation ("PEFT checkpoint format", and `LoraConfig`): names, shapes, and the fields that are read.
const BY_HAND: [(&str, [usize; 2]); 4] = [
    ("base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight", [4, 128]),
    ("base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight", [128, 4]),
    ("base_model.model.model.layers.1.mlp.down_proj.lora_A.weight", [4, 192]),
    ("base_model.model.model.layers.1.mlp.down_proj.lora_B.weight", [128, 4]),
];
const CONFIG_BY_HAND: &str = r#"{"alpha_pattern": {}, "auto_mapping": null, "base_model_name_or_path": "x/y", "bias": "none",
    "fan_in_fan_out": false, "inference_mode": true, "init_lora_weights": true, "layers_pattern": null, "layers_to_transform": [1],
    "lora_alpha": 8, "lora_dropout": 0.05, "modules_to_save": null, "peft_type": "LORA", "r": 4, "rank_pattern": {}, "revision": null,
    "target_modules": ["down_proj", "q_proj"], "task_type": "CAUSAL_LM", "use_dora": false, "use_rslora": false}"#;

#[test]
fn what_is_written_has_pefts_names_shapes_and_fields() {
    let (chat, _file) = tiny();
    let model = TunedLlama::new(&chat.llama, Base::F32, lora(4, &[Projection::Q, Projection::Down], 1..2)).unwrap();
    let folder = folder("names");
    save_peft(&model, "x/y", &folder).unwrap();
    let file = TensorFile::read(&folder.join("adapter_model.safetensors")).unwrap();
    let mut shapes: Vec<(&str, Vec<usize>)> =
        file.tensors.iter().map(|(name, one)| (name.as_str(), one.shape.clone())).collect();
    let mut wanted: Vec<(&str, Vec<usize>)> = BY_HAND.iter().map(|(name, shape)| (*name, shape.to_vec())).collect();
    shapes.sort();
    wanted.sort();
    assert_eq!(shapes, wanted);
    assert_eq!(file.metadata["format"], "pt");
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let (ours, theirs) =
        (json(&std::fs::read_to_string(folder.join("adapter_config.json")).unwrap()), json(CONFIG_BY_HAND));
    for field in [
        "peft_type",
        "task_type",
        "base_model_name_or_path",
        "r",
        "layers_to_transform",
        "bias",
        "fan_in_fan_out",
        "use_dora",
        "use_rslora",
    ] {
        assert_eq!(ours[field], theirs[field], "{field}");
    }
    assert_eq!(ours["lora_alpha"].as_f64(), theirs["lora_alpha"].as_f64());
    let text = save_peft(&TunedLlama::new(&chat.llama, Base::F32, Training::Full(0..1)).unwrap(), "x/y", &folder)
        .unwrap_err()
        .to_string();
    assert!(text.contains("has no adapters"), "{text}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_fixture_by_hand_is_read_and_what_is_read_is_what_was_written() {
    let (chat, _file) = tiny();
    let path = folder("fixture");
    std::fs::write(path.join("adapter_config.json"), CONFIG_BY_HAND).unwrap();
    let mut file = TensorFile::default();
    for (at, (name, shape)) in BY_HAND.iter().enumerate() {
        let values = gpulab::cpu::random_f32(shape[0] * shape[1], at as u64);
        file.tensors.insert((*name).to_string(), crate::tensors::HostTensor::new(shape, values));
    }
    file.write(&path.join("adapter_model.safetensors"), DType::F32).unwrap();
    let model = load_peft(&chat.llama, Base::F32, &path).unwrap();
    let (_, of, q) = model.adapters().next().unwrap();
    assert_eq!((of, q.scale(), model.adapters().count()), (Projection::Q, 2.0, 2));
    assert_eq!(values(q.a()), file.tensors[BY_HAND[0].0].values);
    // Rows of q's B: Hugging Face's row 1 of a head of 16 is GGUF's row 2, and its row 8 GGUF's row 1.
    let (theirs, ours) = (&file.tensors[BY_HAND[1].0].values, values(q.b()));
    for (hf, gguf) in [(0, 0), (1, 2), (8, 1), (9, 3), (15, 15), (16 + 8, 16 + 1)] {
        assert_eq!(theirs[hf * 4..][..4], ours[gguf * 4..][..4], "{hf}");
    }
    let again = folder("again");
    save_peft(&model, "x/y", &again).unwrap();
    assert_eq!(TensorFile::read(&again.join("adapter_model.safetensors")).unwrap().tensors, file.tensors);
    let text = CONFIG_BY_HAND.replace("\"use_rslora\": false", "\"use_rslora\": true");
    std::fs::write(path.join("adapter_config.json"), text).unwrap();
    assert!(
        (load_peft(&chat.llama, Base::Nf4, &path).unwrap().adapters().next().unwrap().2.scale() - 4.0).abs() < 1e-9
    );
    std::fs::remove_dir_all(path).unwrap();
    std::fs::remove_dir_all(again).unwrap();
}

/// Written by peft, with what transformers and peft computed: `peft_fixture/README.md`.
#[test]
fn adapters_that_peft_wrote_give_the_logits_that_it_computed() {
    let chat = practice();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lora/peft_fixture");
    let file = TensorFile::read(&path.join("logits.safetensors")).unwrap();
    let tokens: Vec<u32> = file.tensors["tokens"].values.iter().map(|token| *token as u32).collect();
    let last = |llama: &Llama| llama.logits(&tokens).unwrap().get(tokens.len() - 1).unwrap();
    let model = load_peft(&chat.llama, Base::F32, &path).unwrap();
    let ours = last(&model.merged(&chat.llama).unwrap());
    let theirs = Tensor::new(file.tensors["logits"].values.as_slice(), &Device::Cpu).unwrap();
    assert!(apart(&ours, &theirs) < 1e-3, "{}", apart(&ours, &theirs));
    assert!(apart(&last(&chat.llama), &theirs) > 0.5);
    // With q's and k's rows as they stand in the file it would be another model.
    for (_, of, adapter) in model.adapters().filter(|(_, of, _)| [Projection::Q, Projection::K].contains(of)) {
        let heads = if of == Projection::Q { chat.llama.config().heads } else { chat.llama.config().kv_heads };
        let (d, rank) = (chat.llama.config().head_dim(), adapter.a().dim(0).unwrap());
        let b = adapter.b().as_detached_tensor().reshape((heads, d / 2, 2, rank)).unwrap();
        adapter.b().set(&b.transpose(1, 2).unwrap().contiguous().unwrap().reshape((heads * d, rank)).unwrap()).unwrap();
    }
    let wrong = last(&model.merged(&chat.llama).unwrap());
    assert!(apart(&wrong, &theirs) > 0.01, "{}", apart(&wrong, &theirs));
}

/// Hugging Face's RoPE on rows in its order gives the scores of GGUF's on rows in GGUF's: the order is the right one.
#[test]
fn the_order_of_rows_is_the_one_that_rope_asks_for() {
    let (chat, _file) = tiny();
    let path = folder("rope");
    write_base(&chat.llama, &path).unwrap();
    let file = TensorFile::read(&path.join("model.safetensors")).unwrap();
    let hf = |name: &str| {
        let host = &file.tensors[&format!("model.layers.0.self_attn.{name}.weight")];
        Tensor::from_slice(&host.values, host.shape.as_slice(), &Device::Cpu).unwrap()
    };
    let x = random(&[5, CONFIG.width], 1);
    let (cos, sin) = chat.llama.rope(5).unwrap();
    let heads = |weight: &Tensor| {
        let y = x.matmul(&weight.t().unwrap()).unwrap().reshape((1, 5, (), CONFIG.head_dim())).unwrap();
        y.transpose(1, 2).unwrap().contiguous().unwrap()
    };
    let scores =
        |q: Tensor, k: Tensor| q.narrow(1, 0, 2).unwrap().contiguous().unwrap().matmul(&k.t().unwrap()).unwrap();
    let ours = |of| candle_nn::rotary_emb::rope_i(&heads(&chat.llama.weight(0, of).unwrap()), &cos, &sin).unwrap();
    let theirs = |name: &str| candle_nn::rotary_emb::rope(&heads(&hf(name)), &cos, &sin).unwrap();
    let (a, b) = (scores(ours(Projection::Q), ours(Projection::K)), scores(theirs("q_proj"), theirs("k_proj")));
    assert!(apart(&a, &b) < 1e-3, "{}", apart(&a, &b));
    // In one order on both sides it would be another sum.
    let wrong = |of| candle_nn::rotary_emb::rope(&heads(&chat.llama.weight(0, of).unwrap()), &cos, &sin).unwrap();
    assert!(apart(&a, &scores(wrong(Projection::Q), wrong(Projection::K))) > 0.1);
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn adapters_of_another_model_and_damaged_ones_are_named() {
    let (chat, _file) = tiny();
    let path = folder("damaged");
    let model = TunedLlama::new(&chat.llama, Base::F32, lora(4, &[Projection::Q, Projection::Down], 1..2)).unwrap();
    save_peft(&model, "x/y", &path).unwrap();
    assert!(load_peft(&chat.llama, Base::F32, &path).is_ok());
    let (config, weights) = (path.join("adapter_config.json"), path.join("adapter_model.safetensors"));
    let (text, bytes) = (std::fs::read_to_string(&config).unwrap(), std::fs::read(&weights).unwrap());
    let refused = |says: &str| {
        let error = load_peft(&chat.llama, Base::F32, &path).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("\nnext: "), "{says}: {error}");
    };
    for keep in [0, 5, 100, bytes.len() - 40] {
        std::fs::write(&weights, &bytes[..keep]).unwrap();
        refused("cut off");
    }
    std::fs::write(&weights, &bytes).unwrap();
    std::fs::write(&config, &text[..text.len() / 2]).unwrap();
    refused("no JSON, or cut off");
    let with = |field: &str, value: serde_json::Value| {
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        json[field] = value;
        std::fs::write(&config, json.to_string()).unwrap();
    };
    use serde_json::json;
    for (field, value, says) in [
        ("peft_type", json!("IA3"), "the kind IA3"),
        ("use_dora", json!(true), "`use_dora` is true"),
        ("bias", json!("all"), "`bias`"),
        ("lora_bias", json!(true), "`lora_bias` is true"),
        ("rank_pattern", json!({"q_proj": 8}), "`rank_pattern`"),
        ("alora_invocation_tokens", json!([5]), "`alora_invocation_tokens`"),
        ("modules_to_save", json!(["lm_head"]), "`modules_to_save`"),
        ("target_modules", json!(["q_proj", "c_attn"]), "the target \"c_attn\""),
        ("target_modules", json!(".*"), "`target_modules`"),
        ("layers_to_transform", json!([0, 2]), "`layers_to_transform`"),
        ("layers_to_transform", json!([5]), "adapters for the layers 5..6"),
        ("layers_to_transform", json!([0]), "layers.0.mlp.down_proj.lora_A.weight` is missing"),
        ("target_modules", json!(["q_proj"]), "down_proj.lora_A.weight` has no place"),
        ("r", json!(8), "is [4, 192], and should be [8, 192]"),
        ("r", json!("8"), "`r` is no whole number"),
    ] {
        with(field, value);
        refused(says);
    }
    std::fs::write(&config, &text).unwrap();
    // A model of other widths.
    let other = practice();
    let error = load_peft(&other.llama, Base::F32, &path).unwrap_err().to_string();
    assert!(error.contains("another model") && error.contains("width 256"), "{error}");
    let mut file = TensorFile::read(&weights).unwrap();
    file.tensors.get_mut(BY_HAND[0].0).unwrap().values[3] = f32::NAN;
    file.write(&weights, DType::F32).unwrap();
    refused("holds NaN");
    std::fs::remove_file(&weights).unwrap();
    refused("adapter_model.safetensors");
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn four_bits_cost_what_the_format_says() {
    let values = gpulab::cpu::random_f32(256 * 256, 1);
    let matrix = Nf4Matrix::new(WeightMatrix { values: &values, columns: 256 }, true).unwrap();
    let frozen = FrozenWeight::Nf4(Arc::new(matrix.clone()), Device::Cpu);
    assert_eq!((frozen.bytes(), frozen.shape()), (matrix.bytes(), [256, 256]));
}

// ----------------------------------------------------------------------
// The same on the course's own kernels.

/// Heads of 64, and matrices of which NF4's blocks and the kernels' tiles are no divisors of the whole.
const NARROW: LlamaConfig = LlamaConfig {
    layers: 2,
    heads: 3,
    kv_heads: 1,
    width: 192,
    inner: 320,
    context: 64,
    vocabulary: 101,
    rope_base: 10_000.0,
    epsilon: 1e-5,
};

#[test]
fn kernels_have_the_gradients_of_candle_within_rounding() {
    let llama = Llama::random(NARROW, &Device::Cpu, 5).unwrap();
    let training = lora(4, &Projection::ALL, 0..2);
    let (batch, length) = (2, 33);
    let tokens: Vec<u32> = (0..batch * (length + 1)).map(|at| (at * at + 7 * at) as u32 % 101).collect();
    let part = |from: usize| -> Vec<u32> {
        tokens.chunks(length + 1).flat_map(|text| &text[from..from + length]).copied().collect()
    };
    for base in [Base::Bf16, Base::Nf4] {
        let model = TunedLlama::new(&llama, base, training.clone()).unwrap();
        for (at, (.., adapter)) in model.adapters().enumerate() {
            // Of zeros in B the gradients of A would be 0.
            let b = (random(adapter.b().dims(), at as u64) * 0.1).unwrap();
            adapter.b().set(&b).unwrap();
        }
        let settings = LoraSettings { batch, length, graph: false, plain_products: true };
        // Results must not depend on which block starts first.
        let gpu = gpulab::gpu::Gpu::simulated_in(gpulab::sim::BlockOrder::Random(1)).unwrap();
        let mut own = KernelTuner::new(&gpu, &model, settings).unwrap();
        own.set_batch(&tokens).unwrap();
        let adamw = AdamWConfig { rate: 1e-2, betas: (0.9, 0.999), epsilon: 1e-8, decay: 0.0, clip: 0.0 };
        let result = own.step(&adamw).unwrap();
        // candle, in f32 throughout.
        let input = Tensor::from_vec(part(0), (batch, length), &Device::Cpu).unwrap();
        let rows = Tensor::arange(0, (batch * length) as u32, &Device::Cpu).unwrap();
        let targets = Tensor::from_vec(part(1), batch * length, &Device::Cpu).unwrap();
        let logits = model.logits(&model.behind(&model.before(&input).unwrap()).unwrap(), &rows).unwrap();
        let loss = cross_entropy(&logits, &targets).unwrap();
        let gradients = loss.backward().unwrap();
        let loss = loss.to_scalar::<f32>().unwrap();
        assert!((result.loss - loss).abs() < 0.01 * loss, "{}: {} for {loss}", base.name(), result.loss);
        let given = own.training().gradients().unwrap();
        let (mut squares, before) = (0.0_f64, model.adapters().map(|(.., one)| values(one.a())).collect::<Vec<_>>());
        for (layer, of, adapter) in model.adapters() {
            let (a, b) = &given[layer][of as usize];
            for (what, var, own) in [("A", adapter.a(), a), ("B", adapter.b(), b)] {
                let exact = values(gradients.get(var).unwrap());
                let size = exact.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
                let off = exact.iter().zip(own).map(|(x, y)| f64::from(x - y).powi(2)).sum::<f64>();
                squares += size;
                assert!(
                    size > 0.0 && (off / size).sqrt() < 0.03,
                    "{} {what} {layer} {of:?}: {}",
                    base.name(),
                    (off / size).sqrt()
                );
            }
        }
        let norm = squares.sqrt();
        assert!((f64::from(result.norm) - norm).abs() < 0.02 * norm, "{} for {norm}", result.norm);
        // AdamW's first step goes as far as the rate, against each gradient's sign; the same numbers come back to the model.
        own.write_back(&model).unwrap();
        for ((.., adapter), before) in model.adapters().zip(before) {
            let moved = values(adapter.a()).iter().zip(&before).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
            assert!((moved - 1e-2).abs() < 1e-3, "{moved}");
        }
        // And the next step sees them, among the weights too.
        let next = own.step(&adamw).unwrap();
        assert!(next.loss < result.loss, "{} after {}", next.loss, result.loss);
        let logits = model.logits(&model.behind(&model.before(&input).unwrap()).unwrap(), &rows).unwrap();
        let wanted = cross_entropy(&logits, &targets).unwrap().to_scalar::<f32>().unwrap();
        assert!((next.loss - wanted).abs() < 0.01 * wanted, "{} for {wanted}", next.loss);
    }
    let some = TunedLlama::new(&llama, Base::Bf16, lora(4, &[Projection::Q], 0..2)).unwrap();
    let settings = LoraSettings { batch, length, graph: false, plain_products: true };
    let text = KernelTuner::new(&gpulab::gpu::Gpu::simulated().unwrap(), &some, settings).unwrap_err().to_string();
    assert!(text.contains("each matrix of each layer"), "{text}");
}
