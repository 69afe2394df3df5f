use super::super::{GptFiles, GptLine, GptProgress, loss_charts, run};
use super::*;
use crate::gpt::{Config, Sampling, Tokenizer};
use candle_core::DType;

fn plan() -> GptTrainConfig {
    let config = Config { n_layer: 1, n_head: 2, n_embd: 16, n_ctx: 16, vocab_size: 256 };
    GptTrainConfig { config, steps: 40, rate: 1e-2, seed: 3, ..GptTrainConfig::default() }
}

fn text() -> Text {
    let part = |n| "the warp waits for the memory. ".repeat(n).into_bytes();
    Text { train: part(40), held_out: part(5), fingerprint: "test".to_string() }
}

fn tokens() -> Tokens {
    Tokens::new(&text(), Tokenizer::Bytes).unwrap()
}

fn trainer(plan: GptTrainConfig) -> GptTrainer {
    GptTrainer::new(plan, tokens(), &Device::Cpu).unwrap()
}

#[test]
fn a_loss_begins_at_that_of_a_guess_and_falls() {
    let mut trainer = trainer(plan());
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
    let mut whole = trainer(plan());
    for step in 0..8 {
        if step == 5 {
            whole.save(&path).unwrap();
        }
        whole.step().unwrap();
    }
    let mut resumed = GptTrainer::resume(&path, &text(), None, &Device::Cpu).unwrap();
    assert_eq!((resumed.steps_made(), *resumed.config()), (5, plan()));
    while resumed.steps_made() < 8 {
        resumed.step().unwrap();
    }
    assert_eq!(resumed.losses(), whole.losses());
    assert_eq!(resumed.weights().unwrap(), whole.weights().unwrap());

    let other = Text { fingerprint: "other".to_string(), ..text() };
    let error = GptTrainer::resume(&path, &other, None, &Device::Cpu).unwrap_err().to_string();
    assert!(error.contains("another text") && error.contains("\nnext: "), "{error}");
    whole.weights().unwrap().save(&folder, candle_core::DType::F32).unwrap();
    let error =
        GptTrainer::resume(&folder.join("model.safetensors"), &text(), None, &Device::Cpu).unwrap_err().to_string();
    assert!(error.contains("has no `tokenizer`"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_loss_that_is_no_number_stops_the_run_and_names_the_step() {
    let mut trainer = trainer(plan());
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
    let refused = |plan: GptTrainConfig| GptTrainer::new(plan, tokens(), &Device::Cpu).unwrap_err().to_string();
    assert!(refused(GptTrainConfig { batch: 0, ..plan() }).contains("trains nothing"));
    assert!(refused(GptTrainConfig { accumulate: 0, ..plan() }).contains("trains nothing"));
    for clip in [0.0, -1.0, f64::NAN] {
        assert!(refused(GptTrainConfig { clip, ..plan() }).contains("move nothing"));
    }
    assert!(refused(GptTrainConfig { dtype: DType::F16, ..plan() }).contains("loss scale"));
    let of = |n_ctx, vocab_size| GptTrainConfig { config: Config { n_ctx, vocab_size, ..plan().config }, ..plan() };
    assert!(refused(of(500, 256)).contains("context is 500"));
    assert!(refused(of(16, 200)).contains("knows 256 tokens, and the model 200"));
}

/// The largest difference between two sets of gradients, in units of the largest gradient.
fn apart(a: &Gradients, b: &Gradients) -> f64 {
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    let flat = |all: &Gradients| -> Vec<f32> {
        all.values().flat_map(|one| one.flatten_all().unwrap().to_vec1::<f32>().unwrap()).collect()
    };
    let (a, b) = (flat(a), flat(b));
    let largest = b.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let off = a
        .iter()
        .zip(&b)
        .fold(0.0_f32, |most, (a, b)| if (a - b).is_nan() { f32::NAN } else { most.max((a - b).abs()) });
    f64::from(off / largest)
}

#[test]
fn accumulated_gradients_are_the_mean_over_all_batches() {
    let whole = GptTrainConfig { accumulate: 3, batch: 2, short: 0.0, ..plan() };
    let run = trainer(whole);
    let (loss, sum) = run.gradients().unwrap();
    // The same pieces in one batch.
    let all: Vec<(usize, Tensor, Tensor)> = (0..3).map(|batch| run.batch(batch).unwrap()).collect();
    let inputs = Tensor::cat(&all.iter().map(|one| &one.1).collect::<Vec<_>>(), 0).unwrap();
    let targets = Tensor::cat(&all.iter().map(|one| &one.2).collect::<Vec<_>>(), 0).unwrap();
    let logits = run.model.logits_from(0, &inputs).unwrap().flatten_to(1).unwrap();
    let at_once = candle_nn::loss::cross_entropy(&logits, &targets).unwrap();
    let mut gradients = Gradients::new();
    run.add(&mut gradients, &at_once.backward().unwrap()).unwrap();
    assert!((loss - at_once.to_scalar::<f32>().unwrap()).abs() < 1e-5);
    assert!(apart(&sum, &gradients) < 1e-5, "{}", apart(&sum, &gradients));
    // And no two of its batches are the same.
    let first = |at: usize| all[at].1.to_vec2::<u32>().unwrap();
    assert!(first(0) != first(1) && first(1) != first(2));
}

#[test]
fn bf16_gradients_come_back_to_f32_parameters_and_a_loss_falls() {
    let half = GptTrainConfig { dtype: DType::BF16, short: 0.0, ..plan() };
    let (exact, mut run) = (trainer(GptTrainConfig { dtype: DType::F32, ..half }), trainer(half));
    let ((loss, wanted), (near, gradients)) = (exact.gradients().unwrap(), run.gradients().unwrap());
    assert!((loss - near).abs() < 0.02 && loss != near, "{loss} {near}");
    assert!(gradients.values().all(|one| one.dtype() == DType::F32));
    let off = apart(&gradients, &wanted);
    assert!(off > 1e-4 && off < 0.05, "{off}");
    for _ in 0..40 {
        run.step().unwrap();
    }
    assert!(run.losses()[39] < 0.6 * run.losses()[0], "{:?}", run.losses());
    assert!(run.vars().values().all(|var| var.dtype() == DType::F32));
}

#[test]
fn a_long_gradient_is_made_as_long_as_the_clip() {
    let clipped = |clip| {
        let mut run = trainer(GptTrainConfig { clip, ..plan() });
        (run.step().unwrap(), run.norms()[0], run.optimiser.m["wte.weight"].clone())
    };
    let ((_, norm, free), (_, same, held)) = (clipped(1e9), clipped(0.5));
    assert!(norm > 0.5 && norm == same);
    let length = |m: &Tensor| m.sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap().sqrt();
    let ratio = length(&held) / length(&free);
    assert!((ratio * norm / 0.5 - 1.0).abs() < 1e-4, "{ratio} {norm}");
}

#[test]
fn a_run_with_a_tokenizer_goes_on_with_it_and_can_be_generated_with() {
    let folder = std::env::temp_dir().join(format!("gpulab-gpt-bpe-{}", std::process::id()));
    let tokenizer = Tokenizer::train_bpe(std::str::from_utf8(&text().train).unwrap(), 270).unwrap();
    let config = Config { vocab_size: tokenizer.vocab_size(), ..plan().config };
    let bpe = GptTrainConfig { config, steps: 6, accumulate: 2, ..plan() };
    let tokens = Tokens::new(&text(), tokenizer).unwrap();
    let mut whole = GptTrainer::new(bpe, tokens, &Device::Cpu).unwrap();
    run(&mut whole, &GptFiles::new(&folder), &|| false, &mut |_| ()).unwrap();
    let checkpoint = folder.join("checkpoint.safetensors");
    let again = GptTrainer::resume(&checkpoint, &text(), Some(1e-4), &Device::Cpu).unwrap();
    assert_eq!((again.steps_made(), *again.config()), (6, GptTrainConfig { rate: 1e-4, ..bpe }));
    assert_eq!(again.losses(), whole.losses());
    let model = LanguageModel::load(&folder, &Device::Cpu, DType::F32).unwrap();
    assert_eq!(model.tokenizer.vocab_size(), config.vocab_size);
    assert!(!model.generate(&["the warp"], 4, Sampling::Greedy, &mut |_, _| {}).unwrap().is_empty());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_whole_run_leaves_a_log_samples_and_a_checkpoint_and_goes_on_behind_it() {
    let folder = std::env::temp_dir().join(format!("gpulab-gpt-whole-{}", std::process::id()));
    let files = GptFiles { every: 8, look: 20, peak: Some(1e12), ..GptFiles::new(&folder) };
    let plan = GptTrainConfig { steps: 24, short: 0.0, ..plan() };
    let mut told = Vec::new();
    let mut first = trainer(plan);
    run(&mut first, &files, &|| false, &mut |line| told.push(line)).unwrap();
    let steps =
        |lines: &str| lines.lines().filter_map(|line| line.split([',', ':']).next()?.parse::<u64>().ok()).collect();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    // A line every 20 steps, and with each checkpoint.
    let of = |name: &str| -> Vec<u64> { steps(&read(name)) };
    assert_eq!((of("log.csv"), of("samples.txt")), (vec![8, 16, 20, 24], vec![8, 16, 24]));
    let lines: Vec<&GptProgress> = told
        .iter()
        .filter_map(|line| if let GptLine::Progress(progress) = line { Some(progress) } else { None })
        .collect();
    let mean = |losses: &[f32]| losses.iter().map(|x| f64::from(*x)).sum::<f64>() / losses.len() as f64;
    assert_eq!((lines[2].loss, lines[2].norm), (mean(&first.losses()[16..20]), mean(&first.norms()[16..20])));
    assert_eq!((lines[3].tokens, lines[3].held_out), (24 * 4 * 16, Some(first.held_out_loss().unwrap())));
    assert_eq!(lines[2].learning_rate, plan.rate_at(19));
    let share = 6.0 * plan.config.parameter_count() as f64 * lines[0].rate / 1e12;
    assert_eq!(lines.iter().map(|line| line.held_out.is_some()).collect::<Vec<_>>(), [true, true, false, true]);
    assert!((lines[0].utilisation.unwrap() / share - 1.0).abs() < 1e-12);
    assert!(read("samples.txt").starts_with("8: The kernel"));
    let row: Vec<f64> =
        read("log.csv").lines().nth(4).unwrap().split(',').take(4).map(|x| x.parse().unwrap()).collect();
    assert!((row[2] - lines[3].loss).abs() < 1e-5 && (row[3] - lines[3].held_out.unwrap()).abs() < 1e-5);
    let charts = loss_charts(
        &files.log(),
        plan.config.parameter_count(),
        &[("counting", 3.0)],
        (gpulab::measurement::Backend::Cpu, "a CPU"),
    );
    let [tokens, compute] = charts.unwrap().map(|chart| chart.draw().svg());
    assert!(tokens.contains("tokens read") && compute.contains("TFLOP") && compute.contains("counting"));

    // The same run, stopped after step 8 in a state that a kill leaves: rows of later steps, and half of one.
    let keep = |engine: &GptTrainer| engine.save(&files.checkpoint()).unwrap();
    let mut again = trainer(plan);
    run(&mut again, &files, &|| true, &mut |_| ()).unwrap();
    assert_eq!((again.steps_made(), of("samples.txt")), (1, vec![]), "stopped after its first step, and kept");
    while again.steps_made() < 8 {
        again.step().unwrap();
    }
    keep(&again);
    std::fs::write(files.log(), "step,tokens\n8,512,1.0\n16,1024,0.9\n24,1").unwrap();
    let mut resumed = GptTrainer::resume(&files.checkpoint(), &text(), None, &Device::Cpu).unwrap();
    run(&mut resumed, &files, &|| false, &mut |_| ()).unwrap();
    assert_eq!(resumed.losses(), first.losses());
    assert_eq!(resumed.weights().unwrap(), first.weights().unwrap());
    assert_eq!(of("log.csv"), [8, 16, 20, 24]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_loss_that_is_no_number_leaves_the_last_checkpoint_as_it_was() {
    let folder = std::env::temp_dir().join(format!("gpulab-gpt-nan-{}", std::process::id()));
    let files = GptFiles { every: 2, ..GptFiles::new(&folder) };
    let mut broken = trainer(plan());
    let ended = |broken: &mut GptTrainer| {
        let bias = broken.parameters["ln_f.bias"].clone();
        let mut damage = |line: GptLine| {
            if matches!(line, GptLine::Sample(2, _)) {
                bias.set(&(bias.as_tensor().detach() * f64::NAN).unwrap()).unwrap();
            }
        };
        run(broken, &files, &|| false, &mut damage).unwrap_err().to_string()
    };
    let text = ended(&mut broken);
    assert!(text.contains("step 3: the loss is NaN") && text.contains("holds it after step 2"), "{text}");
    let kept = GptCheckpoint::read(&files.checkpoint()).unwrap();
    assert_eq!((kept.step, kept.losses.len(), kept.engine.as_str()), (2, 2, "candle"));
    // And without one it says so.
    let text = run(&mut broken, &files, &|| false, &mut |_| ()).unwrap_err().to_string();
    assert!(text.contains("holds it after step 2"), "{text}");
    let mut fresh = trainer(plan());
    let bias = &fresh.parameters["ln_f.bias"];
    bias.set(&(bias.as_tensor().detach() * f64::NAN).unwrap()).unwrap();
    let text = run(&mut fresh, &files, &|| false, &mut |_| ()).unwrap_err().to_string();
    assert!(
        text.contains("before its first checkpoint") && text.ends_with("next: begin again with a smaller --rate"),
        "{text}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}
