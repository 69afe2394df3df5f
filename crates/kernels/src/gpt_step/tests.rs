//! The step in the simulator against f64, and f64 against differences of the loss.

use super::*;
use gpulab::cpu::{bf16_from_f32, f32_from_bf16};
use gpulab::sim::BlockOrder;

/// Odd sizes: a text is no multiple of a tile, the vocabulary none of 128.
const SMALL: GptShape = GptShape { layers: 2, heads: 1, vocabulary: 77, context: 17 };

/// Parameters that stand for themselves in bf16 too, none of them at rest.
fn parameters(shape: &GptShape) -> Vec<f32> {
    let start = shape.start(3);
    let noise = gpulab::cpu::random_f32(start.len(), 5);
    let moved = start.iter().zip(noise).map(|(x, noise)| x * 2.0 + 0.1 * noise);
    moved.map(|x| f32_from_bf16(bf16_from_f32(x))).collect()
}

fn exact(shape: &GptShape, parameters: &[f32], tokens: &[u32]) -> GptReference {
    let wide: Vec<f64> = parameters.iter().map(|&x| f64::from(x)).collect();
    reference_step(shape, &wide, tokens)
}

#[test]
fn a_target_that_is_no_token_makes_its_row_nan_and_is_not_read() {
    let gpu = Gpu::simulated().unwrap();
    let kernels = GptOperators::new(&gpu, SMALL).unwrap();
    let (columns, vocabulary) = (SMALL.rows(), SMALL.vocabulary as i32);
    let logits: Vec<u16> = gpulab::cpu::random_f32(6 * columns, 7).into_iter().map(bf16_from_f32).collect();
    let run = |targets: &[i32]| {
        let mut rows = gpu.to_device(&logits[..targets.len() * columns]).unwrap();
        let losses = kernels.cross_entropy(&mut rows, &gpu.to_device(targets).unwrap(), 0.5).unwrap();
        let gradients: Vec<f32> = rows.to_host().unwrap().into_iter().map(f32_from_bf16).collect();
        (losses.to_host().unwrap(), gradients)
    };
    // PyTorch's `ignore_index` -100; the first row that only fills the table up; and what lies far outside of all memory.
    let targets = [3, -100, vocabulary - 1, vocabulary, i32::MIN, i32::MAX];
    let ((losses, gradients), (right, right_gradients)) = (run(&targets), run(&[3, 0, vocabulary - 1]));
    for (row, target) in targets.into_iter().enumerate() {
        let (words, fill) = gradients[row * columns..][..columns].split_at(SMALL.vocabulary);
        assert!(fill.iter().all(|x| *x == 0.0), "{target}");
        if (0..vocabulary).contains(&target) {
            assert_eq!((losses[row], words), (right[row], &right_gradients[row * columns..][..SMALL.vocabulary]));
        } else {
            assert!(losses[row].is_nan() && words.iter().all(|x| x.is_nan()), "{target}: {}", losses[row]);
        }
    }
}

#[test]
fn the_reference_is_the_derivative_of_its_own_loss() {
    let shape = GptShape { layers: 1, heads: 1, vocabulary: 11, context: 5 };
    let start = parameters(&shape);
    let tokens = shape.random_tokens(2, 4);
    let given = exact(&shape, &start, &tokens);
    let wide: Vec<f64> = start.iter().map(|&x| f64::from(x)).collect();
    for tensor in shape.tensors() {
        for at in [tensor.range.start + 3, (tensor.range.start + tensor.range.end) / 2] {
            let loss = |by: f64| {
                let mut moved = wide.clone();
                moved[at] += by;
                reference_step(&shape, &moved, &tokens).loss
            };
            let slope = (loss(1e-5) - loss(-1e-5)) / 2e-5;
            let error = (slope - given.gradients[at]).abs();
            assert!(error <= 1e-7 + 1e-5 * slope.abs(), "{} {at}: {} for {slope}", tensor.name, given.gradients[at]);
        }
    }
}

/// A step of that many texts, and its gradients, loss and update against f64.
fn agrees(shape: GptShape, batch: usize, plan: GptPlan, loss_rows: usize) {
    agrees_with(shape, GptSettings { batch, plan, loss_rows, parts: 3, ..GptSettings::default() });
}

fn agrees_with(shape: GptShape, settings: GptSettings) {
    let GptSettings { batch, plan, .. } = settings;
    let gpu = Gpu::simulated().unwrap();
    let tokens = shape.random_tokens(batch, 4);
    let start = parameters(&shape);
    let exact = exact(&shape, &start, &tokens);
    let mut trainer = GptTraining::new(&gpu, shape, settings).unwrap();
    trainer.load(&start).unwrap();
    assert!(trainer.step(&AdamWConfig::default()).unwrap_err().to_string().contains("no batch yet"));
    trainer.set_batch(&tokens).unwrap();
    let adamw = AdamWConfig::default();
    let result = trainer.step(&adamw).unwrap_or_else(|error| panic!("{shape:?} {}: {error}", plan.name()));
    assert!((f64::from(result.loss) - exact.loss).abs() < 5e-3 * exact.loss, "{} for {}", result.loss, exact.loss);
    let gradients = trainer.gradients().unwrap();
    let wide: Vec<f64> = start.iter().map(|&x| f64::from(x)).collect();
    let (share, what) = worst_gradient(&shape, &gradients, &exact, &rounded_step(&shape, &wide, &tokens));
    assert!(share <= 1.0, "{shape:?} {}: {what}", plan.name());
    let norm = exact.gradients.iter().map(|x| x * x).sum::<f64>().sqrt();
    assert!((f64::from(result.norm) - norm).abs() < 0.01 * norm, "{} for {norm}", result.norm);
    updated_by(&trainer, &start, &gradients, &adamw, f64::from(result.norm));
    assert_eq!(gpu.memory().unwrap().used as usize, settings.planned_in_simulator(&shape));
}

impl GptSettings {
    /// Without the library's own.
    fn planned_in_simulator(&self, shape: &GptShape) -> usize {
        GptSettings { plain_products: true, ..*self }.memory(shape).bytes()
    }
}

#[test]
fn a_wrong_gradient_is_the_worst() {
    let shape = GptShape { layers: 1, heads: 1, vocabulary: 11, context: 5 };
    let (start, tokens) = (parameters(&shape), shape.random_tokens(1, 4));
    let exact = exact(&shape, &start, &tokens);
    let mut given: Vec<f32> = exact.gradients.iter().map(|&x| x as f32).collect();
    assert!(worst_gradient(&shape, &given, &exact, &exact).0 < 1e-3);
    let begin = shape.layer(0).start;
    for wrong in [f32::NAN, -given[begin]] {
        given[begin..begin + 5000].fill(wrong);
        let (share, what) = worst_gradient(&shape, &given, &exact, &exact);
        assert!((share.is_nan() || share > 1.0) && what.starts_with("h.0.attn.c_attn.weight"), "{share} {what}");
    }
}

#[test]
fn a_step_agrees_with_f64_and_holds_the_memory_that_was_planned() {
    agrees(SMALL, 2, GptPlan::Fused, 0);
    // Logits in two pieces, a row of no whole 256 numbers.
    agrees(GptShape { layers: 1, heads: 3, vocabulary: 9, context: 5 }, 1, GptPlan::Operators, 3);
    // Texts that are longer than a tile of attention.
    agrees(GptShape { layers: 1, heads: 1, vocabulary: 5, context: 131 }, 1, GptPlan::Fused, 0);
}

/// The first update, in f64 from the gradients that the kernels gave.
fn updated_by(trainer: &GptTraining, start: &[f32], gradients: &[f32], adamw: &AdamWConfig, norm: f64) {
    let state = trainer.state().unwrap();
    assert_eq!(state.step, 1);
    let clip = if norm > f64::from(adamw.clip) { f64::from(adamw.clip) / norm } else { 1.0 };
    for tensor in trainer.shape().tensors() {
        let decay = if tensor.sides[0] == 1 { 0.0 } else { f64::from(adamw.decay) };
        for at in tensor.range.clone() {
            let d = f64::from(gradients[at]) * clip;
            // After one step both corrected moments are the gradient itself.
            let step = d / (d.abs() + f64::from(adamw.epsilon));
            let rate = f64::from(adamw.rate);
            let exact = f64::from(start[at]) * (1.0 - rate * decay) - rate * step;
            let error = (f64::from(state.parameters[at]) - exact).abs();
            assert!(error <= 2e-6 + 2e-6 * exact.abs(), "{} {at}: {} for {exact}", tensor.name, state.parameters[at]);
        }
    }
}

#[test]
fn what_cannot_be_trained_is_refused_with_a_way_out() {
    let gpu = Gpu::simulated().unwrap();
    for shape in [GptShape { heads: 0, ..SMALL }, GptShape { heads: 40, ..SMALL }] {
        let text = GptTraining::new(&gpu, shape, GptSettings::default()).unwrap_err().to_string();
        assert!(text.contains("\nnext: "), "{text}");
    }
    let mut trainer = GptTraining::new(&gpu, SMALL, GptSettings { batch: 1, ..GptSettings::default() }).unwrap();
    let long = trainer.set_batch(&[0; 17]).unwrap_err();
    assert!(matches!(long, Error::LengthMismatch { expected: 18, given: 17, .. }), "{long}");
    let unknown = trainer.set_batch(&[77; 18]).unwrap_err().to_string();
    assert!(unknown.contains("the vocabulary ends at 76"), "{unknown}");
    assert!(matches!(trainer.load(&[0.0; 5]), Err(Error::LengthMismatch { given: 5, .. })));
    // A parameter that is no number: nothing is updated, and the step does not count.
    let mut parameters = SMALL.start(1);
    parameters[SMALL.layer(0).start] = f32::NAN;
    trainer.load(&parameters).unwrap();
    trainer.set_batch(&SMALL.random_tokens(1, 2)).unwrap();
    let text = trainer.step(&AdamWConfig::default()).unwrap_err().to_string();
    assert!(text.contains("step 1: loss NaN") && text.contains("\nnext: "), "{text}");
    let state = trainer.state().unwrap();
    let bits = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!((state.step, bits(&state.parameters)), (0, bits(&parameters)));
    assert_eq!(GptShape::GPT2_124M.layer(0).start, 50_304 * 768 + 1024 * 768);
    assert_eq!(GptShape::GPT2_124M.parameter_count(), 124_475_904);
}

/// Ranks as threads, whose sums are made by the host.
struct Threads<'a> {
    rank: usize,
    shared: &'a std::sync::Mutex<Vec<(Vec<f32>, Vec<u16>)>>,
    all: &'a std::sync::Barrier,
    joined: usize,
}

impl Threads<'_> {
    /// What all ranks have put in, once all have.
    fn exchange(&self, numbers: Vec<f32>, rows: Vec<u16>) -> Vec<(Vec<f32>, Vec<u16>)> {
        self.shared.lock().unwrap()[self.rank] = (numbers, rows);
        self.all.wait();
        let everything = self.shared.lock().unwrap().clone();
        self.all.wait();
        everything
    }
}

impl GptRanks for Threads<'_> {
    fn add_up(&mut self, gradient: &mut Buffer<f32>, range: Range<usize>) -> Result<()> {
        assert_eq!(self.joined, 0, "a range after the end");
        let mut own = gradient.to_host()?;
        let all = self.exchange(own[range.clone()].to_vec(), Vec::new());
        for (at, to) in range.enumerate() {
            own[to] = all.iter().map(|(numbers, _)| numbers[at]).sum();
        }
        gradient.copy_from(&own)
    }

    fn gather(&mut self, own: &Buffer<u16>, all: &mut Buffer<u16>) -> Result<()> {
        let rows = self.exchange(Vec::new(), own.to_host()?);
        all.copy_from(&rows.into_iter().flat_map(|(_, rows)| rows).collect::<Vec<_>>())
    }

    fn join(&mut self) -> Result<()> {
        self.joined += 1;
        Ok(())
    }
}

#[test]
fn ranks_that_train_together_have_the_gradients_of_the_whole_batch() {
    let shape = GptShape { layers: 2, heads: 1, vocabulary: 77, context: 17 };
    let (start, tokens) = (parameters(&shape), shape.random_tokens(2, 4));
    let settings =
        |batch, ranks| GptSettings { batch, ranks, parts: 3, plan: GptPlan::Fused, ..GptSettings::default() };
    let made = |settings| {
        let mut trainer = GptTraining::new(&Gpu::simulated().unwrap(), shape, settings).unwrap();
        trainer.load(&start).unwrap();
        trainer
    };
    let mut whole = made(settings(2, 1));
    whole.set_batch(&tokens).unwrap();
    let loss = whole.step(&AdamWConfig::default()).unwrap().loss;
    let (shared, all) = (std::sync::Mutex::new(vec![Default::default(); 2]), std::sync::Barrier::new(2));
    let one = |rank: usize| {
        let mut trainer = made(settings(1, 2));
        trainer.set_batch_of(&tokens, rank).unwrap();
        let text = trainer.queue(&AdamWConfig::default()).unwrap_err().to_string();
        assert!(text.contains("one of 2 ranks") && text.contains("\nnext: "), "{text}");
        let mut threads = Threads { rank, shared: &shared, all: &all, joined: 0 };
        trainer.queue_with(&AdamWConfig::default(), &mut threads).unwrap();
        assert_eq!(threads.joined, 1);
        assert_eq!(trainer.gpu.memory().unwrap().used as usize, trainer.settings.memory(&shape).bytes());
        (trainer.result().unwrap().loss, trainer.gradients().unwrap(), trainer.state().unwrap())
    };
    let ranks: Vec<(f32, Vec<f32>, GptState)> = std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = [0, 1].map(|rank| scope.spawn(move || one(rank))).into_iter().collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(((ranks[0].0 + ranks[1].0) / 2.0 - loss).abs() < 1e-5 * loss);
    assert!(ranks[0].1 == ranks[1].1 && ranks[0].2 == ranks[1].2, "the ranks differ");
    let exact = whole.gradients().unwrap();
    for tensor in shape.tensors() {
        let pairs = || ranks[0].1[tensor.range.clone()].iter().zip(&exact[tensor.range.clone()]);
        let error: f64 = pairs().map(|(own, exact)| f64::from(own - exact).powi(2)).sum();
        let size: f64 = pairs().map(|(_, exact)| f64::from(*exact).powi(2)).sum();
        assert!((error / size).sqrt() < 1e-5, "{}: {}", tensor.name, (error / size).sqrt());
    }
}

/// Of a step whose batches are accumulated: against f64, and the memory.
#[test]
fn accumulated_batches_give_the_gradients_of_the_whole() {
    // Results must not depend on which block starts first, here and in the next test.
    let gpu = Gpu::simulated_in(BlockOrder::Reverse).unwrap();
    let (start, tokens) = (parameters(&SMALL), SMALL.random_tokens(3, 4));
    let exact = exact(&SMALL, &start, &tokens);
    let settings = GptSettings { batch: 1, accumulate: 3, parts: 3, ..GptSettings::default() };
    let mut trainer = GptTraining::new(&gpu, SMALL, settings).unwrap();
    trainer.load(&start).unwrap();
    let short = trainer.set_batch(&tokens[..18]).unwrap_err();
    assert!(matches!(short, Error::LengthMismatch { expected: 54, given: 18, .. }), "{short}");
    // What an earlier step has left is no part of the sums.
    trainer.set_batch(&SMALL.random_tokens(3, 9)).unwrap();
    trainer.step(&AdamWConfig::default()).unwrap();
    trainer.load(&start).unwrap();
    trainer.set_batch(&tokens).unwrap();
    let result = trainer.step(&AdamWConfig::default()).unwrap();
    assert!((f64::from(result.loss) - exact.loss).abs() < 5e-3 * exact.loss, "{} for {}", result.loss, exact.loss);
    let wide: Vec<f64> = start.iter().map(|&x| f64::from(x)).collect();
    let gradients = trainer.gradients().unwrap();
    let (share, what) = worst_gradient(&SMALL, &gradients, &exact, &rounded_step(&SMALL, &wide, &tokens));
    assert!(share <= 1.0, "{what}");
    assert_eq!(gpu.memory().unwrap().used as usize, trainer.settings().memory(&SMALL).bytes());
    for settings in [GptSettings { accumulate: 0, ..settings }, GptSettings { ranks: 2, ..settings }] {
        let text = GptTraining::new(&gpu, SMALL, settings).unwrap_err().to_string();
        assert!(text.contains("\nnext: "), "{text}");
    }
}

#[test]
fn losses_alone_are_those_of_the_step_and_change_nothing() {
    let gpu = Gpu::simulated_in(BlockOrder::Random(1)).unwrap();
    let settings = GptSettings { batch: 2, accumulate: 2, parts: 3, loss_rows: 20, ..GptSettings::default() };
    let mut trainer = GptTraining::new(&gpu, SMALL, settings).unwrap();
    trainer.load(&parameters(&SMALL)).unwrap();
    let tokens = SMALL.random_tokens(4, 4);
    let (before, half) = (trainer.state().unwrap(), tokens.len() / 2);
    trainer.set_batch(&tokens).unwrap();
    let [first, second] = [&tokens[..half], &tokens[half..]].map(|texts| trainer.losses_of(texts).unwrap());
    assert_eq!((first.len(), trainer.state().unwrap()), (2 * 17, before));
    assert!(trainer.queue(&AdamWConfig::default()).unwrap_err().to_string().contains("no batch yet"));
    trainer.set_batch(&tokens).unwrap();
    let loss = trainer.step(&AdamWConfig::default()).unwrap().loss;
    let mean = first.iter().chain(&second).sum::<f32>() / (4 * 17) as f32;
    assert!((mean - loss).abs() < 1e-6 * loss, "{mean} {loss}");
    assert!(trainer.losses_of(&tokens).is_err());
}

#[test]
fn a_run_that_was_stopped_goes_on_bit_for_bit_in_another_trainer() {
    let gpu = Gpu::simulated().unwrap();
    let settings = GptSettings { batch: 1, accumulate: 2, parts: 3, ..GptSettings::default() };
    let made = || GptTraining::new(&gpu, SMALL, settings).unwrap();
    // The learning rate is another one in each step.
    let step = |trainer: &mut GptTraining, at: u64| {
        trainer.set_batch(&SMALL.random_tokens(2, at)).unwrap();
        trainer.step(&AdamWConfig { rate: 1e-3 * at as f32, ..AdamWConfig::default() }).unwrap()
    };
    let (mut whole, mut start) = (made(), SMALL.start(1));
    let filled = SMALL.vocabulary * SMALL.width()..SMALL.positions();
    start[filled.clone()].fill(0.0);
    whole.load(&start).unwrap();
    step(&mut whole, 1);
    let kept = whole.state().unwrap();
    assert_eq!((kept.step, &kept.parameters), (1, &whole.parameters().unwrap()));
    let rest = [2, 3].map(|at| step(&mut whole, at));
    let mut other = made();
    other.restore(&kept).unwrap();
    assert_eq!([2, 3].map(|at| step(&mut other, at)), rest);
    assert_eq!(other.state().unwrap(), whole.state().unwrap());
    // Rows that fill the table up stay 0, so a file may leave them out.
    let GptState { parameters, m, v, .. } = other.state().unwrap();
    assert!([parameters, m, v].iter().all(|all| all[filled.clone()].iter().all(|x| *x == 0.0)));
}

#[test]
fn dq_in_one_order_is_the_same_sum() {
    // Two blocks of keys, of which the first queries see one.
    let shape = GptShape { layers: 1, heads: 1, vocabulary: 77, context: 150 };
    let settings = GptSettings { batch: 2, deterministic: true, parts: 3, ..GptSettings::default() };
    assert!(settings.memory(&shape).bytes() > GptSettings { deterministic: false, ..settings }.memory(&shape).bytes());
    agrees_with(shape, settings);
    let gpu = Gpu::simulated().unwrap();
    let kernels = GptKernels::compile(&gpu, &SMALL).unwrap();
    let text = GptTraining::with(&gpu, &kernels, settings).unwrap_err().to_string();
    assert!(text.contains("compile_deterministic"), "{text}");
}
