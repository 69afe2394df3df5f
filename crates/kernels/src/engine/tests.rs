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

/// Two steps behind `position` others agree with f64, in every plan.
fn agrees(gpu: &Gpu, config: EngineConfig, bits: WeightBits, position: usize, splits: usize) {
    let weights = RandomWeights { config, seed: 7 };
    let caches = cpu::random_bf16(config.cache_len(), 8);
    let mut reference = EngineReference::new(&config, bits, &weights, position, caches.clone());
    let tokens = [11, 98];
    let exact = tokens.map(|token| reference.step(token));
    let constants = EngineConstants { threads: 128, splits, heads_each: 1, slot_steps: 4 };
    let model = Rc::new(EngineModel::new(gpu, &config, bits, constants.slot_steps, &weights).unwrap());
    for plan in EnginePlan::ALL {
        let place = format!("{} {bits:?} {config:?} at {position}", plan.name());
        let kernels = EngineKernels::compile(gpu, &config, bits, plan, constants).unwrap();
        let tuning = EngineTuning { slots: 5, ahead: 3, late: false };
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

#[test]
fn every_plan_agrees_with_f64_for_both_families_and_makes_no_mistake() {
    let gpu = Gpu::simulated().unwrap();
    for (config, position) in [(llama(64, 4, 2), 77), (llama(128, 2, 1), 9), (gpt2(), 101)] {
        agrees(&gpu, config, WeightBits::Bf16, position, 3);
    }
}

#[test]
fn few_bits_agree_with_f64_too() {
    let gpu = Gpu::simulated().unwrap();
    for bits in [WeightBits::Int8, WeightBits::Int4] {
        for config in [llama(64, 4, 2), gpt2()] {
            agrees(&gpu, config, bits, 5, 2);
        }
    }
}

#[test]
fn the_first_position_has_no_others_and_blocks_come_in_any_order() {
    for order in [BlockOrder::Reverse, BlockOrder::Random(1)] {
        let gpu = Gpu::simulated_in(order).unwrap();
        agrees(&gpu, llama(32, 8, 2), WeightBits::Bf16, 0, 4);
    }
}
