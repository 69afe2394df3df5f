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
    let constants = EngineConstants { threads: 128, splits, slot_steps: 4, ..EngineConstants::default() };
    agrees_with(gpu, config, bits, position, constants, plans);
}

fn agrees_with(
    gpu: &Gpu,
    config: EngineConfig,
    bits: WeightBits,
    position: usize,
    constants: EngineConstants,
    plans: &[EnginePlan],
) {
    let weights = RandomWeights { config, seed: 7 };
    let caches = cpu::random_bf16(config.cache_len(), 8);
    let mut reference = EngineReference::new(&config, bits, &weights, position, caches.clone());
    let tokens = [11, 98];
    let exact = tokens.map(|token| reference.step(token));
    for &plan in plans {
        let place = format!("{} {bits:?} {config:?} at {position}", plan.name());
        let kernels = EngineKernels::compile(gpu, &config, bits, plan, constants).unwrap();
        let model = Rc::new(EngineModel::new(gpu, &kernels, &weights).unwrap());
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

/// Constants of layers with fewer phases, for the simulator's two blocks.
const FEWER: EngineConstants =
    EngineConstants { threads: 128, splits: 2, slot_steps: 8, cluster: 2, ..EngineConstants::GPT2 };

#[test]
fn phases_that_are_one_for_two_matrices_agree_with_f64() {
    let gpu = Gpu::simulated().unwrap();
    // Two layers: the residual goes once around its three places.
    let small = EngineConfig { inner: 192, ..gpt2() };
    agrees_with(&gpu, small, WeightBits::Bf16, 41, FEWER, &TWO);
    let attention = EngineConstants { merged: false, ..FEWER };
    agrees_with(&gpu, EngineConfig { layers: 1, ..small }, WeightBits::Bf16, 0, attention, &TWO[1..]);
    let mlp = EngineConstants { cluster: 1, ..FEWER };
    agrees_with(&gpu, EngineConfig { layers: 1, ..small }, WeightBits::Bf16, 3, mlp, &TWO[1..]);
}

#[test]
fn wide_heads_and_few_bits_agree_with_f64_too() {
    let gpu = Gpu::simulated().unwrap();
    agrees(&gpu, llama(128, 2, 1), WeightBits::Bf16, 9, 2, &TWO);
    agrees(&gpu, llama(64, 4, 2), WeightBits::Int8, 5, 2, &TWO);
    agrees(&gpu, gpt2(), WeightBits::Int4, 5, 2, &TWO);
}

/// Rows that are whole stages of as many steps for each warp, and others.
#[test]
fn phases_with_code_of_their_own_and_with_shared_code_agree_with_f64() {
    let gpu = Gpu::simulated_in(BlockOrder::Random(2)).unwrap();
    let own =
        EngineConstants { threads: 128, splits: 3, slot_steps: 4, own_code: Some(true), ..EngineConstants::default() };
    // 384 columns of 4 bits are three steps: no whole stage of four.
    let wide = EngineConfig { width: 512, heads: 8, kv_heads: 4, layers: 1, ..llama(64, 4, 2) };
    agrees_with(&gpu, wide, WeightBits::Int4, 3, own, &TWO);
    agrees_with(&gpu, wide, WeightBits::Int8, 3, EngineConstants { threads: 64, ..own }, &TWO);
    let shared = EngineConstants { own_code: Some(false), ..own };
    agrees_with(&gpu, gpt2(), WeightBits::Bf16, 41, shared, &TWO);
    let small = EngineConfig { inner: 192, ..gpt2() };
    agrees_with(&gpu, small, WeightBits::Bf16, 41, EngineConstants { own_code: Some(false), ..FEWER }, &TWO[1..]);
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
    let constants = EngineConstants { threads: 64, splits: 1, slot_steps: 4, ..EngineConstants::default() };
    let weights = Broken(RandomWeights { config, seed: 2 });
    for bits in [WeightBits::Bf16, WeightBits::Int8] {
        let kernels = EngineKernels::compile(&gpu, &config, bits, EnginePlan::Persistent, constants).unwrap();
        let model = Rc::new(EngineModel::new(&gpu, &kernels, &weights).unwrap());
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
    let constants = EngineConstants { threads: 64, splits: 1, slot_steps: 4, ..EngineConstants::default() };
    let weights = RandomWeights { config, seed: 2 };
    let kernels = EngineKernels::compile(&gpu, &config, WeightBits::Bf16, EnginePlan::Persistent, constants).unwrap();
    let model = Rc::new(EngineModel::new(&gpu, &kernels, &weights).unwrap());
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
    let other = EngineKernels::compile(&gpu, &config, WeightBits::Int8, EnginePlan::Persistent, constants).unwrap();
    let message = Engine::new(&model, &other, EngineTuning::default()).unwrap_err().to_string();
    assert!(message.contains("another model") && message.contains("\nnext: "), "{message}");
}

/// A small model to be run by one kernel.
fn small(gpu: &Gpu, vocabulary: usize, context: usize) -> Engine {
    let config = EngineConfig { layers: 1, width: 32, inner: 32, vocabulary, context, ..gpt2() };
    let config = EngineConfig { heads: 2, kv_heads: 2, head: 16, ..config };
    let constants = EngineConstants { threads: 64, splits: 1, slot_steps: 2, ..EngineConstants::default() };
    let weights = RandomWeights { config, seed: 3 };
    let kernels = EngineKernels::compile(gpu, &config, WeightBits::Bf16, EnginePlan::Persistent, constants).unwrap();
    let model = Rc::new(EngineModel::new(gpu, &kernels, &weights).unwrap());
    Engine::new(&model, &kernels, EngineTuning::default()).unwrap()
}

#[test]
fn a_text_is_continued_and_a_seed_names_it() {
    let gpu = Gpu::simulated().unwrap();
    let mut engine = small(&gpu, 99, 16);
    let mut seen = Vec::new();
    let greedy = engine.generate(&[5, 6, 7], 8, (0.0, 0), |token| seen.push(token)).unwrap();
    assert_eq!((greedy.len(), &greedy), (8, &seen));
    assert_eq!(engine.tokens().unwrap(), [&[5, 6, 7][..], &greedy].concat());
    let mut with = |temperature, seed| engine.generate(&[5, 6, 7], 8, (temperature, seed), |_| ()).unwrap();
    assert_eq!(with(0.0, 9), greedy);
    let warm = with(1.0, 3);
    assert_eq!(with(1.0, 3), warm);
    assert_ne!((warm.clone(), with(1.0, 4)), (greedy.clone(), warm));
    // As far as the context goes, and no further.
    assert_eq!(engine.generate(&[5, 6, 7], 1000, (0.0, 0), |_| ()).unwrap().len(), 13);
    engine.step().unwrap();
    assert!(engine.step().unwrap_err().to_string().contains("position 16"));
}

/// Of many seeds' first tokens, each comes about as often as its probability says.
#[test]
fn drawn_tokens_follow_the_probabilities() {
    let gpu = Gpu::simulated().unwrap();
    let mut engine = small(&gpu, 3, 4);
    let early = engine.step().unwrap_err().to_string();
    assert!(early.contains("nothing to read") && early.contains("\nnext: "), "{early}");
    let mut counts = [0_usize; 3];
    const DRAWS: u32 = 200;
    for seed in 0..DRAWS {
        let drawn = engine.generate(&[1], 1, (2.0, seed), |_| ()).unwrap();
        counts[drawn[0] as usize] += 1;
    }
    let logits = engine.logits().unwrap();
    let shares: Vec<f64> = logits.iter().map(|&x| f64::from(x / 2.0).exp()).collect();
    for (count, share) in counts.iter().zip(&shares) {
        let expected = share / shares.iter().sum::<f64>();
        // Four standard deviations.
        let most = 4.0 * (expected * (1.0 - expected) / f64::from(DRAWS)).sqrt();
        assert!((*count as f64 / f64::from(DRAWS) - expected).abs() < most, "{counts:?} {shares:?}");
    }
}

#[test]
fn clusters_that_do_not_fit_a_shape_are_refused() {
    let gpu = Gpu::simulated().unwrap();
    let own = FEWER;
    for (plan, bits, constants, text) in [
        (EnginePlan::Operators, WeightBits::Bf16, own, "no plan by operators"),
        (EnginePlan::Persistent, WeightBits::Bf16, EngineConstants { splits: 3, ..own }, "in 3 parts"),
        (EnginePlan::Persistent, WeightBits::Bf16, EngineConstants { slot_steps: 4, ..own }, "and a slot 4"),
        (
            EnginePlan::Persistent,
            WeightBits::Bf16,
            EngineConstants { blocks: 1, ..own },
            "1 blocks are no clusters of 2",
        ),
        (EnginePlan::Persistent, WeightBits::Int8, own, "for GPT-2 in bf16"),
    ] {
        let error = EngineKernels::compile(&gpu, &gpt2(), bits, plan, constants).unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("\nnext: "), "{error}");
    }
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
    let two = EngineConstants { splits: 8, cluster: 8, ..FEWER };
    agrees_with(&gpu, gpt2(), WeightBits::Bf16, 101, two, &EnginePlan::ALL[1..]);
}

/// A text as the batched engine sees it, and the reference that reads it token by token.
struct Told<'a> {
    tokens: Vec<u32>,
    blocks: Vec<u32>,
    reference: EngineReference<'a, RandomWeights>,
    exact: Vec<Vec<f64>>,
}

fn told<'a>(config: &EngineConfig, weights: &'a RandomWeights, tokens: &[u32], blocks: &[u32]) -> Told<'a> {
    let mut reference = EngineReference::new(config, WeightBits::Bf16, weights, 0, vec![0; config.cache_len()]);
    let exact = tokens.iter().map(|token| reference.step(*token)).collect();
    Told { tokens: tokens.to_vec(), blocks: blocks.to_vec(), reference, exact }
}

impl Told<'_> {
    fn part(&self, range: std::ops::Range<usize>) -> TextPart<'_> {
        TextPart { tokens: &self.tokens[range.clone()], first: range.start, blocks: &self.blocks, samples: true }
    }

    /// The logits behind that token, on the GPU and in f64.
    fn agrees(&self, at: usize, given: &[f32]) {
        let exact = &self.exact[at];
        let size = (exact.iter().map(|x| x * x).sum::<f64>() / exact.len() as f64).sqrt();
        assert!(size > 0.1, "logits that are all small prove little");
        // Activations pass from kernel to kernel in bf16.
        let squares: f64 = given.iter().zip(exact).map(|(given, exact)| (f64::from(*given) - exact).powi(2)).sum();
        let error = (squares / exact.len() as f64).sqrt() / size;
        assert!(error <= 1.5e-2, "behind token {at}: off by {error:.4} of the logits' size");
    }
}

#[test]
fn texts_in_one_step_agree_with_each_alone_in_f64() {
    let gpu = Gpu::simulated_in(BlockOrder::Random(3)).unwrap();
    for config in [llama(64, 8, 2), llama(32, 6, 2), llama(16, 3, 1), EngineConfig { layers: 1, ..llama(128, 6, 2) }] {
        let weights = RandomWeights { config, seed: 7 };
        let limits = BatchLimits { rows: 40, texts: 3, blocks: 12, block_size: 16 };
        let mut engine = BatchEngine::new(&gpu, &config, &weights, limits).unwrap();
        let tokens = |seed: u32, count: u32| (0..count).map(|i| (seed + 37 * i) % 203).collect::<Vec<u32>>();
        // Blocks anywhere in the pool; the third text begins as the first one does, and shares its first block.
        let (one, two) = (tokens(5, 37), tokens(90, 18));
        let three: Vec<u32> = one[..16].iter().copied().chain(tokens(60, 4)).collect();
        let texts = [
            told(&config, &weights, &one, &[7, 2, 11]),
            told(&config, &weights, &two, &[0, 9]),
            told(&config, &weights, &three, &[7, 4]),
        ];
        // A prompt's first part, beside another text's first tokens; then their rest, and what stands behind a prefix that is there already.
        engine.step(&[texts[0].part(0..20), texts[1].part(0..17)]).unwrap();
        texts[0].agrees(19, &engine.logits(0).unwrap());
        texts[1].agrees(16, &engine.logits(1).unwrap());
        let silent = TextPart { samples: false, ..texts[1].part(17..18) };
        engine.step(&[texts[0].part(20..36), silent, texts[2].part(16..19)]).unwrap();
        texts[0].agrees(35, &engine.logits(0).unwrap());
        let last = engine.logits(1).unwrap();
        texts[2].agrees(18, &last);
        let best = (0..last.len()).rev().max_by(|&a, &b| last[a].total_cmp(&last[b])).map(|at| at as u32);
        assert_eq!(engine.likeliest().unwrap()[1], best);
        // One token of each.
        engine.step(&[texts[2].part(19..20), texts[0].part(36..37)]).unwrap();
        texts[2].agrees(19, &engine.logits(0).unwrap());
        texts[0].agrees(36, &engine.logits(1).unwrap());
        drop(texts.map(|text| text.reference));
    }
}

#[test]
fn a_step_that_does_not_fit_is_refused_and_the_engine_goes_on() {
    let gpu = Gpu::simulated().unwrap();
    let config = EngineConfig { layers: 1, ..llama(64, 4, 2) };
    let weights = RandomWeights { config, seed: 7 };
    let limits = BatchLimits { rows: 4, texts: 2, blocks: 3, block_size: 8 };
    let mut engine = BatchEngine::new(&gpu, &config, &weights, limits).unwrap();
    let part = |tokens: &'static [u32], first: usize, blocks: &'static [u32]| TextPart {
        tokens,
        first,
        blocks,
        samples: true,
    };
    let good = part(&[1], 0, &[0]);
    for (parts, wanted) in [
        (vec![], "without a text"),
        (vec![part(&[], 0, &[0])], "0 tokens at position 0"),
        (vec![part(&[1, 2], 7, &[0])], "2 tokens at position 7"),
        (vec![part(&[1], 0, &[3])], "do not fit into its 1 blocks"),
        (vec![part(&[203], 0, &[0])], "the token 203"),
        (vec![part(&[1, 2, 3, 4, 5], 0, &[0])], "more than 4 tokens"),
        (vec![good, good, good], "3 texts"),
    ] {
        let error = engine.step(&parts).unwrap_err().to_string();
        assert!(error.contains(wanted) && error.contains("next: "), "{wanted}: {error}");
    }
    engine.step(&[good]).unwrap();
    assert!(engine.logits(1).unwrap_err().to_string().contains("1 asked"));
    assert!(engine.logits(0).unwrap().iter().all(|x| x.is_finite()));
    for (config, limits, wanted) in [
        (gpt2(), limits, "serve others with candle"),
        (EngineConfig { heads: 18, kv_heads: 2, ..config }, limits, "at most 8 heads"),
        (EngineConfig { head: 48, ..config }, limits, "heads of 16, 32"),
        (config, BatchLimits { texts: 0, ..limits }, "at least 1 of each"),
    ] {
        let weights = RandomWeights { config, seed: 7 };
        let error = BatchEngine::new(&gpu, &config, &weights, limits).unwrap_err().to_string();
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
}
