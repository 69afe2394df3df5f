//! The step in the simulator against f64, and runs beside the other engines'.

use super::super::kernels::tests::{plan as smallest, text, tokens};
use super::super::{GptFiles, GptTrainer, KernelTrainer, run};
use super::*;
use crate::gpt::Config;
use gpulab::cpu::{bf16_from_f32, f32_from_bf16};
use gpulab_kernels::gpt_step::{reference_step, rounded_step, worst_gradient};

fn step_of(shape: GptShape) -> (CandleStep, Vec<f32>) {
    step_on(&Gpu::simulated().unwrap(), &Device::Cpu, shape)
}

fn step_on(gpu: &Gpu, device: &Device, shape: GptShape) -> (CandleStep, Vec<f32>) {
    let mut step = CandleStep::new(gpu, device, shape).unwrap();
    // Parameters that bf16 represents exactly, none of them at its first value.
    let start = shape.start(3);
    let noise = gpulab::cpu::random_f32(start.len(), 5);
    let moved = start.iter().zip(noise).map(|(x, noise)| f32_from_bf16(bf16_from_f32(x * 2.0 + 0.1 * noise)));
    let moved: Vec<f32> = moved.collect();
    step.load(&moved).unwrap();
    (step, moved)
}

#[test]
fn loss_gradients_and_update_agree_with_f64() {
    let gpu = Gpu::simulated().unwrap();
    agrees(&gpu, &Device::Cpu, GptShape { layers: 2, heads: 1, vocabulary: 77, context: 17 }, 2);
    agrees(&gpu, &Device::Cpu, GptShape { layers: 1, heads: 3, vocabulary: 9, context: 5 }, 1);
}

/// Where candle is built with CUDA: `make test-gpu ARGS="-p gpulab-nn"`.
#[cfg(gpulab_cuda)]
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn loss_gradients_and_update_agree_with_f64_on_candles_gpu() {
    let device = Device::new_cuda(0).unwrap();
    let gpu = crate::gpu_of(&device).unwrap();
    agrees(&gpu, &device, GptShape { layers: 2, heads: 1, vocabulary: 77, context: 17 }, 2);
    agrees(&gpu, &device, GptShape { layers: 2, heads: 3, vocabulary: 301, context: 200 }, 3);
}

fn agrees(gpu: &Gpu, device: &Device, shape: GptShape, batch: usize) {
    let (mut step, start) = step_on(gpu, device, shape);
    let tokens = shape.random_tokens(batch, 4);
    let adamw = AdamWConfig::default();
    step.queue(std::slice::from_ref(&tokens), &adamw).unwrap();
    let result = step.result().unwrap();
    let wide: Vec<f64> = start.iter().map(|&x| f64::from(x)).collect();
    let (exact, rounded) = (reference_step(&shape, &wide, &tokens), rounded_step(&shape, &wide, &tokens));
    assert!((f64::from(result.loss) - exact.loss).abs() < 5e-3 * exact.loss, "{} for {}", result.loss, exact.loss);
    let gradients = step.optimizer().gradient().to_host().unwrap();
    let (share, what) = worst_gradient(&shape, &gradients, &exact, &rounded);
    assert!(share <= 1.0, "{shape:?}: {what}");
    let norm = exact.gradients.iter().map(|x| x * x).sum::<f64>().sqrt();
    assert!((f64::from(result.norm) - norm).abs() < 0.01 * norm, "{} for {norm}", result.norm);
    // After one step both corrected moments are the gradient itself.
    let state = step.optimizer().state().unwrap();
    let clip = (f64::from(adamw.clip) / f64::from(result.norm)).min(1.0);
    for tensor in shape.tensors() {
        let decay = if tensor.sides[0] == 1 { 0.0 } else { f64::from(adamw.decay) };
        for at in tensor.range {
            let d = f64::from(gradients[at]) * clip;
            let way = d / (d.abs() + f64::from(adamw.epsilon));
            let exact = wide[at] * (1.0 - f64::from(adamw.rate) * decay) - f64::from(adamw.rate) * way;
            let error = (f64::from(state.parameters[at]) - exact).abs();
            assert!(error <= 2e-6 + 2e-6 * exact.abs(), "{} {at}: {}", tensor.name, state.parameters[at]);
        }
    }
    assert_eq!(state.step, 1);
    // The losses of the tokens alone, by the parameters that the step has left: rounded, as it has moved them by little more.
    let losses = step.losses_of(&tokens).unwrap();
    let now = step.optimizer().weights().to_host().unwrap();
    let now: Vec<f64> = now.into_iter().map(|x| f64::from(f32_from_bf16(x))).collect();
    let (mean, wanted) = (losses.iter().sum::<f32>() / losses.len() as f32, reference_step(&shape, &now, &tokens).loss);
    assert_eq!(losses.len(), batch * shape.context);
    assert!((f64::from(mean) - wanted).abs() < 5e-3 * wanted, "{mean} for {wanted}");
}

#[test]
fn batches_one_by_one_are_one_large_one() {
    let shape = GptShape { layers: 1, heads: 1, vocabulary: 77, context: 9 };
    let tokens = shape.random_tokens(3, 4);
    let texts = tokens.chunks(10).map(<[u32]>::to_vec).collect::<Vec<_>>();
    let gradients = |batches: &[Vec<u32>]| {
        let mut step = step_of(shape).0;
        step.queue(batches, &AdamWConfig::default()).unwrap();
        let result = step.result().unwrap();
        (result.loss, step.optimizer().gradient().to_host().unwrap())
    };
    let ((loss, all), (sum, one_by_one)) = (gradients(&[tokens]), gradients(&texts));
    assert!((loss - sum).abs() < 1e-3 * loss, "{loss} and {sum}");
    let size = all.iter().map(|x| f64::from(x * x)).sum::<f64>().sqrt();
    let apart = all.iter().zip(&one_by_one).map(|(a, b)| f64::from((a - b).powi(2))).sum::<f64>().sqrt();
    assert!(apart < 0.01 * size, "{apart} of {size}");
}

#[test]
fn a_step_that_cannot_be_made_says_why_and_changes_nothing() {
    let shape = GptShape { layers: 1, heads: 1, vocabulary: 9, context: 5 };
    let (mut step, mut start) = step_of(shape);
    let refused = |step: &mut CandleStep, batches: &[Vec<u32>]| {
        step.queue(batches, &AdamWConfig::default()).unwrap_err().to_string()
    };
    assert!(refused(&mut step, &[]).contains("without a batch"));
    assert!(refused(&mut step, &[vec![0; 7]]).contains("the batch's tokens"));
    assert!(refused(&mut step, &[vec![9; 6]]).contains("the token 9"));
    assert_eq!(step.optimizer().state().unwrap().parameters, start);
    // A number that is none, in the last norm.
    *start.last_mut().unwrap() = f32::NAN;
    step.load(&start).unwrap();
    step.queue(&[vec![1; 6]], &AdamWConfig::default()).unwrap();
    assert!(step.result().unwrap_err().to_string().contains("step 1: loss NaN"));
    let state = step.optimizer().state().unwrap();
    assert_eq!((state.step, state.parameters[0]), (0, start[0]));
}

/// The smallest that the kernels take, for fewer and smaller steps.
fn plan() -> GptTrainConfig {
    GptTrainConfig { steps: 3, rate: 3e-3, ..smallest() }
}

fn trainer(plan: GptTrainConfig) -> OperatorTrainer {
    OperatorTrainer::new(plan, tokens(), &Gpu::simulated().unwrap(), &Device::Cpu).unwrap()
}

#[test]
fn a_run_has_the_kernels_losses_and_goes_on_bit_for_bit() {
    let gpu = Gpu::simulated().unwrap();
    let (mut own, mut kernels) = (trainer(plan()), KernelTrainer::new(plan(), tokens(), &gpu).unwrap());
    let mut kept = None;
    for step in 0..3 {
        if step == 2 {
            kept = Some(own.checkpoint().unwrap());
        }
        let (loss, wanted) = (GptEngine::step(&mut own).unwrap(), kernels.step().unwrap());
        assert!((loss - wanted).abs() < 5e-3 * wanted, "step {step}: {loss} for {wanted}");
        let [norm, wanted] = [own.run(), kernels.run()].map(|run| run.norms[step]);
        assert!((norm - wanted).abs() < 0.02 * wanted, "step {step}: {norm} for {wanted}");
    }
    let (held_out, wanted) = (own.held_out_loss_of(30).unwrap(), kernels.held_out_loss_of(30).unwrap());
    assert!((held_out - wanted).abs() < 5e-3 * wanted, "{held_out} for {wanted}");
    assert!((own.run().losses[2] - own.run().losses[0]).abs() > 0.1, "a wrong update would not show");
    // Stopped after two steps, and resumed.
    let kept = kept.unwrap();
    assert_eq!((kept.step, kept.engine.as_str()), (2, "operators"));
    let mut resumed = OperatorTrainer::from_checkpoint(&kept, &text(), &gpu, &Device::Cpu).unwrap();
    while resumed.run().step < 3 {
        GptEngine::step(&mut resumed).unwrap();
    }
    let (first, second) = (own.checkpoint().unwrap(), resumed.checkpoint().unwrap());
    assert_eq!((first.losses, first.parameters, first.m), (second.losses, second.parameters, second.m));
    // candle goes on from it too.
    let candle = GptTrainer::from_checkpoint(&kept, &text(), &Device::Cpu).unwrap();
    assert_eq!(candle.weights().unwrap(), kept.parameters);
}

#[test]
fn a_whole_run_can_be_generated_with() {
    let folder = std::env::temp_dir().join(format!("gpulab-gpt-operators-{}", std::process::id()));
    let config = Config { vocab_size: 256, ..plan().config };
    let mut own = trainer(GptTrainConfig { config, steps: 1, accumulate: 1, ..plan() });
    let files = GptFiles { every: 1, look: 13, last_look: 13, ..GptFiles::new(&folder) };
    run(&mut own, &files, &|| false, &mut |_| ()).unwrap();
    let model = crate::gpt::LanguageModel::load(&folder, &Device::Cpu, DType::F32).unwrap();
    assert_eq!(model.generate(&["warp"], 4, crate::gpt::Sampling::Greedy, &mut |_, _| {}).unwrap()[0].tokens.len(), 4);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn plans_that_it_does_not_take_are_refused() {
    let gpu = Gpu::simulated().unwrap();
    let refused = |plan: GptTrainConfig| OperatorTrainer::takes(&gpu, &plan).unwrap_err().to_string();
    assert!(refused(GptTrainConfig { dtype: DType::F32, ..plan() }).contains("in bf16"));
    assert!(refused(GptTrainConfig { short: 0.5, ..plan() }).contains("shorter pieces"));
    let config = Config { n_head: 2, ..plan().config };
    assert!(refused(GptTrainConfig { config, ..plan() }).contains("heads of 64"));
    OperatorTrainer::takes(&gpu, &plan()).unwrap();
}
