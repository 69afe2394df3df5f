//! The step in the simulator against f64, and f64 against differences of the loss.

use super::*;
use gpulab::cpu::{bf16_from_f32, f32_from_bf16};

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
    let gpu = Gpu::simulated().unwrap();
    let tokens = shape.random_tokens(batch, 4);
    let start = parameters(&shape);
    let exact = exact(&shape, &start, &tokens);
    let settings = GptSettings { batch, plan, loss_rows, parts: 3, ..GptSettings::default() };
    let mut trainer = GptTrainer::new(&gpu, shape, settings).unwrap();
    trainer.load(&start).unwrap();
    assert!(trainer.step(&AdamW::default()).unwrap_err().to_string().contains("no batch yet"));
    trainer.set_batch(&tokens).unwrap();
    let adamw = AdamW::default();
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
fn updated_by(trainer: &GptTrainer, start: &[f32], gradients: &[f32], adamw: &AdamW, norm: f64) {
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
        let text = GptTrainer::new(&gpu, shape, GptSettings::default()).unwrap_err().to_string();
        assert!(text.contains("\nnext: "), "{text}");
    }
    let mut trainer = GptTrainer::new(&gpu, SMALL, GptSettings { batch: 1, ..GptSettings::default() }).unwrap();
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
    let text = trainer.step(&AdamW::default()).unwrap_err().to_string();
    assert!(text.contains("step 1: loss NaN") && text.contains("\nnext: "), "{text}");
    let state = trainer.state().unwrap();
    let bits = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!((state.step, bits(&state.parameters)), (0, bits(&parameters)));
    assert_eq!(GptShape::GPT2_124M.layer(0).start, 50_304 * 768 + 1024 * 768);
    assert_eq!(GptShape::GPT2_124M.parameter_count(), 124_475_904);
}
