use super::*;
use gpulab::cpu;
use gpulab::sim::BlockOrder;

fn llama(head: usize, heads: usize, kv_heads: usize) -> EngineConfig {
    EngineConfig {
        family: Family::Llama,
        layers: 2,
        width: 128,
        heads,
        kv_heads,
        head,
        inner: 384,
        vocabulary: 203,
        context: 150,
        rope_base: 10_000.0,
    }
}

fn gpt2() -> EngineConfig {
    EngineConfig { family: Family::Gpt2, kv_heads: 4, vocabulary: 99, ..llama(32, 4, 4) }
}

/// Two steps behind `position` others agree with f64, in each of these plans.
fn agrees(gpu: &Gpu, config: EngineConfig, bits: WeightBits, position: usize, splits: usize, plans: &[EnginePlan]) {
    let weights = RandomWeights { config, seed: 7 };
    let caches = cpu::random_bf16(config.cache_len(), 8);
    let mut reference = EngineReference::new(&config, bits, &weights, position, caches.clone());
    let tokens = [11, 98];
    let exact = tokens.map(|token| reference.step(token));
    let constants = EngineConstants { threads: 128, splits, heads_each: 1, slot_steps: 4 };
    let model = Rc::new(EngineModel::new(gpu, &config, bits, constants.slot_steps, &weights).unwrap());
    for &plan in plans {
        let place = format!("{} {bits:?} {config:?} at {position}", plan.name());
        let kernels = EngineKernels::compile(gpu, &config, bits, plan, constants).unwrap();
        let tuning = EngineTuning { slots: 5, ahead: 3 };
        let mut engine = Engine::new(&model, &kernels, tuning).unwrap_or_else(|error| panic!("{place}: {error}"));
        engine.begin(&tokens, position, Some(&caches), (0.0, 0)).unwrap();
        for (at, exact) in exact.iter().enumerate() {
            engine.step().unwrap_or_else(|error| panic!("{place}, step {at}: {error}"));
            let given = engine.logits().unwrap();
            let size = (exact.iter().map(|x| x * x).sum::<f64>() / exact.len() as f64).sqrt();
            assert!(size > 0.1, "logits that are all small prove little");
            for (row, (given, exact)) in given.iter().zip(exact).enumerate() {
                let error = (f64::from(*given) - exact).abs();
                assert!(error <= 4e-3 * size, "{place}, step {at}, token {row}: {given}, not {exact}");
            }
            let best = (0..given.len()).rev().max_by(|&a, &b| given[a].total_cmp(&given[b])).unwrap() as u32;
            let next = if at == 0 { tokens[1] } else { best };
            assert_eq!(engine.next().unwrap(), (position + at + 1, Some(next)), "{place}");
        }
    }
}

/// Of these two, one has all phases in one kernel and the other each in its own.
const TWO: [EnginePlan; 2] = [EnginePlan::Overlapped, EnginePlan::Persistent];

#[test]
fn every_plan_agrees_with_f64_for_both_families_and_makes_no_mistake() {
    let gpu = Gpu::simulated().unwrap();
    agrees(&gpu, llama(64, 4, 2), WeightBits::Bf16, 77, 3, &EnginePlan::ALL);
    agrees(&gpu, gpt2(), WeightBits::Bf16, 101, 3, &EnginePlan::ALL);
}

#[test]
fn wide_heads_and_few_bits_agree_with_f64_too() {
    let gpu = Gpu::simulated().unwrap();
    agrees(&gpu, llama(128, 2, 1), WeightBits::Bf16, 9, 2, &TWO);
    agrees(&gpu, llama(64, 4, 2), WeightBits::Int8, 5, 2, &TWO);
    agrees(&gpu, gpt2(), WeightBits::Int4, 5, 2, &TWO);
}

#[test]
fn the_first_position_has_no_others_and_blocks_come_in_any_order() {
    for order in [BlockOrder::Reverse, BlockOrder::Random(1)] {
        let gpu = Gpu::simulated_in(order).unwrap();
        agrees(&gpu, llama(32, 8, 2), WeightBits::Bf16, 0, 4, &TWO[1..]);
    }
}

#[test]
fn stored_rows_are_close_to_what_they_were() {
    let config = llama(64, 4, 2);
    let weights = RandomWeights { config, seed: 3 };
    let mut row = vec![0.0; config.width];
    weights.row(Matrix::Gate, 1, 5, &mut row);
    for (bits, most) in [(WeightBits::Bf16, 0.004), (WeightBits::Int8, 0.01), (WeightBits::Int4, 0.12)] {
        let mut rounded = row.clone();
        bits.rounded(&mut rounded);
        let norm = |x: &[f32]| x.iter().map(|x| x * x).sum::<f32>().sqrt();
        let off: Vec<f32> = row.iter().zip(&rounded).map(|(a, b)| a - b).collect();
        let error = norm(&off) / norm(&row);
        assert!(error > 0.0 && error < most, "{bits:?}: {error}");
    }
}

/// Weights of which one is no number.
struct Broken(RandomWeights);

impl EngineWeights for Broken {
    fn row(&self, matrix: Matrix, layer: usize, row: usize, to: &mut [f32]) {
        self.0.row(matrix, layer, row, to);
    }

    fn vectors(&self) -> Vec<f32> {
        let mut all = self.0.vectors();
        all[5] = f32::NAN;
        all
    }
}

#[test]
fn what_is_no_number_does_not_come_out_as_one() {
    let gpu = Gpu::simulated().unwrap();
    let config = EngineConfig { layers: 1, ..gpt2() };
    let constants = EngineConstants { threads: 64, splits: 1, heads_each: 1, slot_steps: 4 };
    let weights = Broken(RandomWeights { config, seed: 2 });
    for bits in [WeightBits::Bf16, WeightBits::Int8] {
        let model = Rc::new(EngineModel::new(&gpu, &config, bits, constants.slot_steps, &weights).unwrap());
        let kernels = EngineKernels::compile(&gpu, &config, bits, EnginePlan::Persistent, constants).unwrap();
        let mut engine = Engine::new(&model, &kernels, EngineTuning::default()).unwrap();
        engine.begin(&[1], 0, None, (0.0, 0)).unwrap();
        engine.step().unwrap();
        assert!(engine.logits().unwrap().iter().all(|logit| logit.is_nan()), "{bits:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let gpu = Gpu::simulated().unwrap();
    let compile = |config: EngineConfig, bits: WeightBits| {
        let plan = EnginePlan::Persistent;
        let error =
            EngineKernels::compile(&gpu, &config, bits, plan, EngineConstants::default()).unwrap_err().to_string();
        assert!(error.contains("\nnext: "), "{error}");
        error
    };
    let odd = llama(48, 4, 2);
    assert!(compile(odd, WeightBits::Bf16).contains("a head of 48 numbers"));
    assert!(compile(EngineConfig { inner: 352, ..gpt2() }, WeightBits::Int4).contains("no multiple of 128"));
    assert!(compile(EngineConfig { kv_heads: 3, ..llama(64, 4, 2) }, WeightBits::Bf16).contains("3 heads of keys"));
    let config = EngineConfig { layers: 1, ..gpt2() };
    let constants = EngineConstants { threads: 64, splits: 1, heads_each: 1, slot_steps: 4 };
    let weights = RandomWeights { config, seed: 2 };
    let model = Rc::new(EngineModel::new(&gpu, &config, WeightBits::Bf16, constants.slot_steps, &weights).unwrap());
    let kernels = EngineKernels::compile(&gpu, &config, WeightBits::Bf16, EnginePlan::Persistent, constants).unwrap();
    let mut engine = Engine::new(&model, &kernels, EngineTuning::default()).unwrap();
    for (tokens, position, temperature, text) in [
        (&[][..], 0, 0.0, "0 tokens from position 0"),
        (&[1, 2], 149, 0.0, "2 tokens from position 149 on, and the context is 150"),
        (&[99], 0, 0.0, "the token 99, and the vocabulary ends at 98"),
        (&[1], 0, f32::NAN, "a temperature of NaN"),
    ] {
        let message = engine.begin(tokens, position, None, (temperature, 0)).unwrap_err().to_string();
        assert!(message.contains(text) && message.contains("\nnext: "), "{message}");
    }
    let other = EngineModel::new(&gpu, &config, WeightBits::Int8, constants.slot_steps, &weights).unwrap();
    let message = Engine::new(&Rc::new(other), &kernels, EngineTuning::default()).unwrap_err().to_string();
    assert!(message.contains("another model") && message.contains("\nnext: "), "{message}");
}

/// A GPU has more blocks than these matrices have pairs of rows: some have none.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_plan_agrees_on_a_gpu() {
    let gpu = Gpu::open_index(0).expect("needs an NVIDIA GPU");
    for bits in [WeightBits::Bf16, WeightBits::Int8, WeightBits::Int4] {
        for (config, position) in [(llama(64, 4, 2), 77), (llama(128, 2, 1), 0), (gpt2(), 101)] {
            agrees(&gpu, config, bits, position, 3, &EnginePlan::ALL);
        }
    }
}
