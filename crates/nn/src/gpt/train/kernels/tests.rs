//! The run on kernels in the simulator, beside candle's.

use super::super::{GptFiles, GptTrainer, run};
use super::*;
use crate::gpt::Tokenizer;

/// The smallest that the kernels take; its vocabulary is no multiple of 128.
pub(in super::super) fn plan() -> GptTrainConfig {
    let config = Config { n_layer: 1, n_head: 1, n_embd: 64, n_ctx: 12, vocab_size: 257 };
    let plan =
        GptTrainConfig { config, batch: 1, accumulate: 2, steps: 4, rate: 1e-2, warm_up: 2, ..GptTrainConfig::GPT2 };
    GptTrainConfig { seed: 3, ..plan }
}

pub(in super::super) fn text() -> Text {
    let part = |n| "the warp waits for the memory. ".repeat(n).into_bytes();
    Text { train: part(40), held_out: part(2), fingerprint: "test".to_string() }
}

pub(in super::super) fn tokens() -> Tokens {
    Tokens::new(&text(), Tokenizer::Bytes).unwrap()
}

fn trainer(plan: GptTrainConfig) -> KernelTrainer {
    KernelTrainer::new(plan, tokens(), &Gpu::simulated().unwrap()).unwrap()
}

fn folder(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("gpulab-gpt-kernels-{name}-{}", std::process::id()))
}

#[test]
fn the_flat_array_and_tensors_by_name_are_the_same_numbers() {
    let config = Config { n_layer: 2, n_head: 2, n_embd: 128, n_ctx: 5, vocab_size: 130 };
    let weights = Weights::random(config, 7).unwrap();
    let shape = shape(config).unwrap();
    let all = flat(&shape, &weights);
    assert_eq!(named(&shape, config, &all).unwrap(), weights);
    // Matrices of layers are turned: `[inputs, outputs]` to `[outputs, inputs]`.
    let place = |name: &str| shape.tensors().into_iter().find(|tensor| tensor.name == name).unwrap().range.start;
    for (name, inputs, outputs) in [("h.1.attn.c_attn.weight", 128, 384), ("h.0.mlp.c_proj.weight", 512, 128)] {
        let (own, begin) = (&weights.get(name).values, place(name));
        for (input, output) in [(0, 0), (3, 0), (0, 3), (inputs - 1, outputs - 1), (17, 100)] {
            assert_eq!(all[begin + output * inputs + input], own[input * outputs + output], "{name} {input} {output}");
        }
    }
    // The table is not, and its further rows are 0.
    assert_eq!(all[128 * 3 + 5], weights.get("wte.weight").values[128 * 3 + 5]);
    assert!(all[130 * 128..256 * 128].iter().all(|x| *x == 0.0));
    assert!(named(&shape, config, &vec![f32::NAN; all.len()]).is_err());
}

/// The same bits, NaN included.
fn bits(checkpoint: &GptCheckpoint) -> Vec<u32> {
    let state = [&checkpoint.parameters, &checkpoint.m, &checkpoint.v];
    let numbers = state.into_iter().flat_map(Weights::iter).flat_map(|(_, tensor)| &tensor.values);
    numbers.chain(&checkpoint.losses).map(|x| x.to_bits()).collect()
}

#[test]
fn a_run_that_was_stopped_goes_on_bit_for_bit() {
    let path = folder("resume").join("checkpoint.safetensors");
    let mut whole = trainer(plan());
    for step in 0..4 {
        if step == 2 {
            whole.checkpoint().unwrap().write(&path).unwrap();
        }
        whole.step().unwrap();
    }
    let kept = GptCheckpoint::read(&path).unwrap();
    assert_eq!((kept.step, kept.engine.as_str(), kept.plan), (2, "kernels", plan()));
    let mut resumed = KernelTrainer::from_checkpoint(&kept, &text(), &Gpu::simulated().unwrap()).unwrap();
    assert!(bits(&resumed.checkpoint().unwrap()) == bits(&kept), "the state was not restored");
    while resumed.run().step < 4 {
        resumed.step().unwrap();
    }
    assert!(bits(&resumed.checkpoint().unwrap()) == bits(&whole.checkpoint().unwrap()), "the runs' ends differ");
    assert!(bits(&kept) != bits(&whole.checkpoint().unwrap()));
    let other = Text { fingerprint: "other".to_string(), ..text() };
    let error = KernelTrainer::from_checkpoint(&kept, &other, &Gpu::simulated().unwrap()).unwrap_err().to_string();
    assert!(error.contains("another text") && error.contains("\nnext: "), "{error}");
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn losses_are_those_of_candle_within_rounding() {
    // A rate at which a run does not jump about: there a rounding would grow with each step.
    let plan = GptTrainConfig { rate: 3e-3, ..plan() };
    let mut own = trainer(plan);
    let candle = |dtype| GptTrainer::new(GptTrainConfig { dtype, ..plan }, tokens(), &Device::Cpu).unwrap();
    let (mut exact, mut rounded) = (candle(DType::F32), candle(DType::BF16));
    for step in 0..4 {
        let (loss, wanted, near) = (own.step().unwrap(), exact.step().unwrap(), rounded.step().unwrap());
        // What bf16 does to candle's own losses, twice, and a thousandth.
        let allowed = 2.0 * (near - wanted).abs() + 1e-3 * wanted;
        assert!((loss - wanted).abs() < allowed, "step {step}: {loss} for {wanted}, {allowed} allowed");
        let [norm, wanted, near] = [&own.run().norms, exact.norms(), rounded.norms()].map(|norms| norms[step]);
        let allowed = 2.0 * (near - wanted).abs() + 0.01 * wanted;
        assert!((norm - wanted).abs() < allowed, "step {step}: {norm} for {wanted}, {allowed} allowed");
    }
    let (held_out, wanted) = (own.held_out_loss_of(30).unwrap(), exact.held_out_loss_of(30).unwrap());
    assert!((held_out - wanted).abs() < 0.01 * wanted, "{held_out} for {wanted}");
    let far = (own.run().losses[3] - own.run().losses[0]).abs();
    assert!(far > 0.1, "the losses hardly change, so a wrong update would not show: {far}");
}

#[test]
fn each_engine_goes_on_from_the_other_ones_checkpoint() {
    let gpu = Gpu::simulated().unwrap();
    let mut candle = GptTrainer::new(plan(), tokens(), &Device::Cpu).unwrap();
    candle.step().unwrap();
    candle.step().unwrap();
    let kept = candle.checkpoint().unwrap();
    let mut own = KernelTrainer::from_checkpoint(&kept, &text(), &gpu).unwrap();
    // What was handed over is the same to the bit, and so is what comes back.
    let back = own.checkpoint().unwrap();
    assert!(bits(&back) == bits(&kept), "candle's state was not taken over");
    assert_eq!((back.step, back.plan), (2, kept.plan));
    let mut again = GptTrainer::from_checkpoint(&back, &text(), &Device::Cpu).unwrap();
    assert!(bits(&again.checkpoint().unwrap()) == bits(&kept), "the kernels' state was not taken over");
    // And so is the next step, within rounding: moments and their corrections too.
    let before = candle.weights().unwrap();
    let (loss, wanted) = (own.step().unwrap(), again.step().unwrap());
    assert!((loss - wanted).abs() < 5e-3 * wanted, "{loss} for {wanted}");
    let (ours, theirs) = (own.checkpoint().unwrap(), again.checkpoint().unwrap());
    let (mut apart, mut moved) = (0.0, 0.0);
    for (name, tensor) in theirs.parameters.iter() {
        let (was, is) = (&before.get(name).values, &ours.parameters.get(name).values);
        for ((their, our), was) in tensor.values.iter().zip(is).zip(was) {
            apart += f64::from(their - our).powi(2);
            moved += f64::from(their - was).powi(2);
        }
    }
    assert!((apart / moved).sqrt() < 0.05, "updates are apart by {}", (apart / moved).sqrt());
}

#[test]
fn a_whole_run_on_kernels_can_be_generated_with() {
    let folder = folder("whole");
    // It reads bytes.
    let config = Config { vocab_size: 256, ..plan().config };
    let mut own = trainer(GptTrainConfig { config, steps: 2, ..plan() });
    let mut lines = 0;
    let files = GptFiles { every: 1, look: 13, last_look: 13, ..GptFiles::new(&folder) };
    run(&mut own, &files, &|| false, &mut |_| lines += 1).unwrap();
    // Two of progress, two samples.
    assert_eq!(lines, 4);
    let model = crate::gpt::LanguageModel::load(&folder, &Device::Cpu, DType::F32).unwrap();
    assert_eq!(model.generate(&["warp"], 4, crate::gpt::Sampling::Greedy, &mut |_, _| {}).unwrap()[0].tokens.len(), 4);
    assert_eq!(Weights::load(&folder).unwrap(), {
        let kept = GptCheckpoint::read(&files.checkpoint()).unwrap().parameters;
        let round = |x: f32| half::bf16::from_f32(x).to_f32();
        let config = kept.config();
        let mut file = kept.into_file();
        file.tensors.values_mut().flat_map(|tensor| &mut tensor.values).for_each(|x| *x = round(*x));
        Weights::from_file(config, file).unwrap()
    });
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_deterministic_run_on_a_gpu_goes_on_bit_for_bit() {
    let gpu = Gpu::open_index(0).unwrap();
    let config = Config { n_layer: 4, n_head: 6, n_embd: 384, n_ctx: 512, vocab_size: 257 };
    let plan = GptTrainConfig { config, batch: 4, steps: 40, rate: 1e-3, deterministic: true, ..plan() };
    let text = Text { train: text().train.repeat(20), held_out: text().held_out.repeat(20), ..text() };
    let path = folder("gpu").join("checkpoint.safetensors");
    let mut whole = KernelTrainer::new(plan, Tokens::new(&text, Tokenizer::Bytes).unwrap(), &gpu).unwrap();
    for step in 0..plan.steps {
        if step == plan.steps / 2 {
            whole.checkpoint().unwrap().write(&path).unwrap();
        }
        whole.step().unwrap();
    }
    let kept = GptCheckpoint::read(&path).unwrap();
    assert!(kept.algorithms.is_some() && kept.plan.deterministic);
    // Nothing is timed anew: the algorithms come from the file. Twice, so that chance would have to be right twice.
    for _ in 0..2 {
        let mut resumed = KernelTrainer::from_checkpoint(&kept, &text, &gpu).unwrap();
        assert_eq!(resumed.note(), None);
        while resumed.run().step < plan.steps {
            resumed.step().unwrap();
        }
        assert_eq!(resumed.checkpoint().unwrap().algorithms, whole.checkpoint().unwrap().algorithms);
        assert!(bits(&resumed.checkpoint().unwrap()) == bits(&whole.checkpoint().unwrap()), "the runs' ends differ");
    }
    // Another version of the library is named.
    let chosen = kept.algorithms.as_ref().unwrap();
    let mut other = chosen.clone();
    other.version = 1;
    let other = GptCheckpoint { algorithms: Some(other), ..kept };
    let resumed = KernelTrainer::from_checkpoint(&other, &text, &gpu).unwrap();
    assert!(resumed.note().unwrap().contains("with cuBLASLt 1"), "{:?}", resumed.note());
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn a_checkpoint_says_whether_and_how_a_run_is_the_same_each_time() {
    let path = folder("deterministic").join("checkpoint.safetensors");
    let plan = GptTrainConfig { deterministic: true, ..plan() };
    let mut own = trainer(plan);
    own.step().unwrap();
    let mut kept = own.checkpoint().unwrap();
    // Of plain products there is none.
    assert_eq!(kept.algorithms, None);
    kept.algorithms = Some("NVIDIA H200\n130100\n1x2x3 1 2 3 4 5 6 7 8\n".parse().unwrap());
    kept.write(&path).unwrap();
    let read = GptCheckpoint::read(&path).unwrap();
    assert_eq!((read.plan, &read.algorithms), (plan, &kept.algorithms));
    let resumed = KernelTrainer::from_checkpoint(&read, &text(), &Gpu::simulated().unwrap()).unwrap();
    assert_eq!(resumed.note(), None);
    assert!(resumed.training().settings().deterministic);
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}
