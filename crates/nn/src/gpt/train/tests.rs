use super::*;
use candle_core::Device;

fn plan() -> GptTrainConfig {
    let config = Config { n_layer: 1, n_head: 2, n_embd: 16, n_ctx: 16, vocab_size: 256 };
    GptTrainConfig { config, batch: 4, steps: 40, rate: 1e-2, seed: 3 }
}

fn text() -> Text {
    let part = |n| "the warp waits for the memory. ".repeat(n).into_bytes();
    Text { train: part(40), held_out: part(5), fingerprint: "test".to_string() }
}

#[test]
fn a_loss_begins_at_that_of_a_guess_and_falls() {
    let mut trainer = GptTrainer::new(plan(), text(), &Device::Cpu).unwrap();
    let first = trainer.step().unwrap();
    assert!((first - 256f32.ln()).abs() < 0.1, "{first}");
    let before = trainer.held_out_loss().unwrap();
    for _ in 0..39 {
        trainer.step().unwrap();
    }
    let after = trainer.held_out_loss().unwrap();
    assert!(after < 0.6 * before, "{before} to {after}");
}

#[test]
fn a_run_that_was_stopped_goes_on_bit_for_bit() {
    let folder = std::env::temp_dir().join(format!("gpulab-gpt-resume-{}", std::process::id()));
    let path = folder.join("checkpoint.safetensors");
    let mut whole = GptTrainer::new(plan(), text(), &Device::Cpu).unwrap();
    for step in 0..8 {
        if step == 5 {
            whole.save(&path).unwrap();
        }
        whole.step().unwrap();
    }
    let mut resumed = GptTrainer::resume(&path, text(), &Device::Cpu).unwrap();
    assert_eq!((resumed.steps_made(), *resumed.config()), (5, plan()));
    while resumed.steps_made() < 8 {
        resumed.step().unwrap();
    }
    assert_eq!(resumed.losses(), whole.losses());
    assert_eq!(resumed.weights().unwrap(), whole.weights().unwrap());

    let other = Text { fingerprint: "other".to_string(), ..text() };
    let error = GptTrainer::resume(&path, other, &Device::Cpu).unwrap_err().to_string();
    assert!(error.contains("another text") && error.contains("\nnext: "), "{error}");
    whole.weights().unwrap().save(&folder, candle_core::DType::F32).unwrap();
    let error = GptTrainer::resume(&folder.join("model.safetensors"), text(), &Device::Cpu).unwrap_err().to_string();
    assert!(error.contains("has no `text`"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_loss_that_is_no_number_stops_the_run_and_names_the_step() {
    let mut trainer = GptTrainer::new(plan(), text(), &Device::Cpu).unwrap();
    trainer.step().unwrap();
    let before = trainer.weights().unwrap();
    let bias = &trainer.parameters["ln_f.bias"];
    bias.set(&(bias.as_tensor().detach() * f64::NAN).unwrap()).unwrap();
    let error = trainer.step().unwrap_err().to_string();
    assert!(error.contains("step 2: the loss is NaN") && error.contains("\nnext: "), "{error}");
    let kept = trainer.parameters["wte.weight"].flatten_all().unwrap().to_vec1::<f32>().unwrap();
    assert_eq!(kept, before.get("wte.weight").values);
}

#[test]
fn the_learning_rate_rises_and_falls() {
    let plan = GptTrainConfig { steps: 1000, rate: 1.0, ..plan() };
    let rates: Vec<f64> = (0..1000).map(|step| plan.rate_at(step)).collect();
    assert!(rates[..100].is_sorted() && rates[100..].iter().rev().is_sorted());
    assert!((rates[100] - 1.0).abs() < 0.01 && (rates[999] - 0.1).abs() < 0.01 && rates[0] < 0.02);
}

#[test]
fn a_plan_that_cannot_be_is_refused() {
    let refused = |plan: GptTrainConfig| GptTrainer::new(plan, text(), &Device::Cpu).unwrap_err().to_string();
    assert!(refused(GptTrainConfig { batch: 0, ..plan() }).contains("trains nothing"));
    assert!(
        refused(GptTrainConfig { config: Config { n_ctx: 500, ..plan().config }, ..plan() }).contains("context is 500")
    );
    assert!(
        refused(GptTrainConfig { config: Config { vocab_size: 300, ..plan().config }, ..plan() })
            .contains("read bytes")
    );
}
