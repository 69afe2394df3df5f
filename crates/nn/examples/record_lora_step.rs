//! Times a step of LoRA and of QLoRA on SmolLM2-135M's shape on this GPU beside Hugging Face's peft, alternating, and writes a table.
//!
//! `cargo run --release -p gpulab-nn --example record_lora_step -- [--out lora_step.csv] [--talk FOLDER] [--work 8x512,4x128]
//! [--ways eager,…] [--quick]`; `env/baselines/record_lora_step.py` does that and brings peft along. Where `make model` has put SmolLM2 its weights
//! are taken, else random ones of its shape; peft loads the same from a checkpoint that is written here. Before a time counts, gradients are
//! compared with candle's in f32 on the CPU, and the losses of the first steps with peft's, from the same adapters on the same tokens.

use gpulab::gpu::TimedWork;
use gpulab::prelude::*;
use gpulab::talk::{ask, unexpected};
use gpulab_kernels::gpt_step::AdamWConfig;
use gpulab_kernels::lora_step::LoraSettings;
use gpulab_nn::llama::{Llama, LlamaConfig, Projection};
use gpulab_nn::lora::{Base, KernelTuner, LoraConfig, Training, TunedLlama, cross_entropy, save_peft, write_base};
use gpulab_nn::{Device, Tensor};
#[cfg(gpulab_cuda)]
use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::Path;

const RANK: usize = 8;
const ALPHA: f64 = 16.0;
/// Steps whose losses are compared; batches take turns.
const COMPARED: usize = 20;
const BATCHES: usize = 4;
const ADAMW: AdamWConfig = AdamWConfig { rate: 1e-3, betas: (0.9, 0.999), epsilon: 1e-8, decay: 0.0, clip: 1.0 };
const PLAN: Bench = Bench { warm_ups: 2, samples: 21, min_sample_ms: 60.0, budget_ms: 60_000.0 };
const QUICK: Bench = Bench { samples: 5, ..PLAN };
/// What an H200 reaches in bf16 by its data sheet, in operations a second.
const PEAK: f64 = 989e12;
const APART: &str = "largest difference of a loss from peft's first way";
/// Texts and tokens of each at which gradients are compared with candle's.
const CHECKED: (usize, usize) = (2, 128);

struct Asked {
    out: String,
    talk: Option<String>,
    work: Vec<(usize, usize)>,
    ways: String,
    quick: bool,
}

fn asked() -> Asked {
    let mut asked = Asked {
        out: "lora_step.csv".to_string(),
        talk: None,
        work: vec![(8, 512), (4, 128)],
        ways: "eager,bf16,compiled,graphs".to_string(),
        quick: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} needs a value"));
        match argument.as_str() {
            "--out" => asked.out = value(),
            "--talk" => asked.talk = Some(value()),
            "--ways" => asked.ways = value(),
            "--quick" => asked.quick = true,
            "--work" => {
                let sides = |word: &str| -> Option<(usize, usize)> {
                    let (batch, length) = word.split_once('x')?;
                    Some((batch.parse().ok()?, length.parse().ok()?))
                };
                let words = value();
                asked.work = words.split(',').map(|word| sides(word).expect("such as 8x512: texts x tokens")).collect();
            }
            other => panic!("there is no option {other}"),
        }
    }
    asked
}

struct Table(String);

impl Table {
    fn row(&mut self, work: &str, what: &str, metric: &str, unit: &str, samples: &[f64], ratio: Option<f64>) {
        let Summary { median, p10, p90, .. } = Summary::of(samples);
        let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"));
        let line =
            format!("{work},\"{what}\",\"{metric}\",{median:.5},{unit},{ratio},{},{p10:.5},{p90:.5}", samples.len());
        eprintln!("{line}");
        writeln!(self.0, "{line}").expect("a String takes everything");
    }
}

fn main() -> Result<()> {
    let asked = asked();
    let gpu = &Gpu::open_index(0)?;
    eprintln!("{gpu}");
    let mut table = Table("work,what,metric,value,unit,ratio,samples,p10,p90\n".to_string());
    let (llama, weights) = match gpulab_nn::llama::model_path().is_file() {
        true => {
            let dense = gpulab_nn::llama::WeightDtype::Dense(gpulab_nn::DType::F32);
            (gpulab_nn::llama::ChatModel::smollm2(&Device::Cpu, dense)?.llama, "SmolLM2-135M-Instruct's")
        }
        false => (Llama::random(LlamaConfig::SMOLLM2_135M, &Device::Cpu, 1)?, "random"),
    };
    eprintln!("weights: {weights}");
    check(gpu, &mut table)?;
    let lora = tuned(&llama, Base::Bf16)?;
    let qlora = tuned(&llama, Base::Nf4)?;
    if let Some(folder) = &asked.talk {
        let folder = Path::new(folder);
        write_base(&llama, &folder.join("base"))?;
        save_peft(&lora, "base", &folder.join("adapter"))?;
    }
    for &(batch, length) in &asked.work {
        measure(gpu, &asked, [&lora, &qlora], &llama, (batch, length), &mut table)?;
        std::fs::write(&asked.out, &table.0).map_err(|error| unexpected(&error.to_string()))?;
    }
    Ok(())
}

/// Adapters beside each matrix. B is not 0, so that all gradients are there from the first step on.
fn tuned(llama: &Llama, base: Base) -> Result<TunedLlama> {
    let layers = 0..llama.config().layers;
    let config = LoraConfig { rank: RANK, alpha: ALPHA, targets: Projection::ALL.to_vec(), layers, seed: 1 };
    let model = TunedLlama::new(llama, base, Training::Lora(config))?;
    for (at, (.., adapter)) in model.adapters().enumerate() {
        let dims = adapter.b().dims();
        let values: Vec<f32> = cpu::random_f32(dims.iter().product(), at as u64).iter().map(|x| 0.02 * x).collect();
        adapter.b().set(&Tensor::from_vec(values, dims, adapter.b().device())?)?;
    }
    Ok(model)
}

fn tokens_of(vocabulary: usize, batch: usize, length: usize, seed: u64) -> Vec<u32> {
    let random = cpu::random_f32(batch * (length + 1), 1000 + seed);
    // Few tokens are frequent, as in a text.
    let token = |x: f32| ((0.5 * (x + 1.0)).powi(3) * vocabulary as f32) as u32;
    random.into_iter().map(|x| token(x).min(vocabulary as u32 - 1)).collect()
}

/// Inputs, or what follows them.
fn part(tokens: &[u32], length: usize, from: usize) -> Vec<u32> {
    tokens.chunks(length + 1).flat_map(|text| &text[from..from + length]).copied().collect()
}

/// Loss and gradients of both bases against candle's in f32 on the CPU, from the same bf16 or four bits. Of random weights: with SmolLM2's
/// own, on tokens that are no text, bf16 by itself is off by 0.13 to 0.14 (peft on a CPU, autocast against f32; these kernels: 0.15), which
/// would hide a mistake.
fn check(gpu: &Gpu, table: &mut Table) -> Result<()> {
    let llama = &Llama::random(LlamaConfig::SMOLLM2_135M, &Device::Cpu, 1)?;
    let (batch, length) = CHECKED;
    let tokens = tokens_of(llama.config().vocabulary, batch, length, 99);
    for (base, name) in [(Base::Bf16, "LoRA"), (Base::Nf4, "QLoRA")] {
        let model = tuned(llama, base)?;
        let settings = LoraSettings { batch, length, graph: true, plain_products: false };
        let mut own = KernelTuner::new(gpu, &model, settings)?;
        own.set_batch(&tokens)?;
        let result = own.step(&ADAMW)?;
        let given = own.training().gradients()?;
        let input = Tensor::from_vec(part(&tokens, length, 0), (batch, length), &Device::Cpu)?;
        let rows = Tensor::arange(0, (batch * length) as u32, &Device::Cpu)?;
        let targets = Tensor::from_vec(part(&tokens, length, 1), batch * length, &Device::Cpu)?;
        let loss = cross_entropy(&model.logits(&model.behind(&model.before(&input)?)?, &rows)?, &targets)?;
        let gradients = loss.backward()?;
        let (mut size, mut off, mut worst) = (0.0, 0.0, 0.0_f64);
        for (layer, of, adapter) in model.adapters() {
            let (a, b) = &given[layer][of as usize];
            for (var, own) in [(adapter.a(), a), (adapter.b(), b)] {
                let exact = gradients.get(var).expect("it has one").flatten_all()?.to_vec1::<f32>()?;
                let squares = |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x).powi(2)).sum::<f64>();
                let (here, apart) =
                    (squares(&mut exact.iter().copied()), squares(&mut exact.iter().zip(own).map(|(x, y)| x - y)));
                worst = worst.max((apart / here).sqrt());
                size += here;
                off += apart;
            }
        }
        let (loss, work) = (f64::from(loss.to_scalar::<f32>()?), format!("{batch}x{length}"));
        let what = format!("ours, {name}");
        let off = (off / size).sqrt();
        table.row(&work, &what, "loss", "nats a token", &[f64::from(result.loss)], None);
        table.row(&work, "candle, f32 on the CPU", &format!("loss ({name})"), "nats a token", &[loss], None);
        table.row(&work, &what, "gradients off candle's in f32 by", "1", &[off], None);
        table.row(&work, &what, "the worst gradient off by", "1", &[worst], None);
        if !((f64::from(result.loss) - loss).abs() < 0.01 * loss && off < 0.05) {
            return Err(Error::invalid(
                format!("{name}: the step computes something else than candle in f32"),
                "see crates/kernels/lora_step, and run the tests of gpulab-nn's module lora",
            ));
        }
    }
    Ok(())
}

fn measure(
    gpu: &Gpu,
    asked: &Asked,
    models: [&TunedLlama; 2],
    llama: &Llama,
    (batch, length): (usize, usize),
    table: &mut Table,
) -> Result<()> {
    let work = format!("{batch}x{length}");
    let vocabulary = llama.config().vocabulary;
    let batches: Vec<Vec<u32>> = (0..BATCHES as u64).map(|seed| tokens_of(vocabulary, batch, length, seed)).collect();
    let mut theirs = Vec::new();
    if let Some(folder) = &asked.talk {
        let bytes: Vec<u8> = batches.concat().iter().flat_map(|token| token.to_le_bytes()).collect();
        std::fs::write(Path::new(folder).join("tokens.bin"), bytes).map_err(|error| unexpected(&error.to_string()))?;
        let ways: Vec<&str> = asked.ways.split(',').filter(|way| !way.is_empty()).collect();
        let question = serde_json::json!({
            "batch": batch, "length": length, "batches": BATCHES, "steps": COMPARED, "ways": ways,
            "rate": ADAMW.rate, "clip": ADAMW.clip,
        });
        let answer: serde_json::Value = ask(&question.to_string())?;
        theirs = answer.as_array().cloned().ok_or_else(|| unexpected(&answer.to_string()))?;
    }
    let losses_of = |way: &serde_json::Value| -> Vec<f64> {
        way["losses"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_f64).collect()
    };
    let name_of = |way: &serde_json::Value| way["name"].as_str().unwrap_or("?").to_string();
    let first = theirs.first().map(losses_of);
    let apart = |own: &[f64]| {
        let theirs = first.as_ref()?;
        Some(own.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max))
    };
    let mut names = Vec::new();
    let mut tuners = Vec::new();
    for (model, name, graph) in [
        (models[0], "ours, LoRA, graph", true),
        (models[0], "ours, LoRA, launches", false),
        (models[1], "ours, QLoRA, graph", true),
    ] {
        gpu.synchronize()?;
        let before = gpu.memory()?;
        gpu.reset_high_water()?;
        let settings = LoraSettings { batch, length, graph, plain_products: false };
        let mut tuner = KernelTuner::new(gpu, model, settings)?;
        let mut losses = Vec::new();
        for step in 0..COMPARED {
            tuner.set_batch(&batches[step % BATCHES])?;
            losses.push(f64::from(tuner.step(&ADAMW)?.loss));
        }
        let peak = (gpu.memory()?.used_high - before.used) as f64 / f64::from(1 << 30);
        table.row(&work, name, "memory at the peak", "GiB", &[peak], None);
        table.row(&work, name, "first loss", "nats a token", &losses[..1], None);
        table.row(&work, name, "last loss", "nats a token", &losses[COMPARED - 1..], None);
        if let Some(nodes) = tuner.training().nodes() {
            table.row(&work, name, "kernels", "1", &[nodes as f64], None);
        }
        if name.contains(", LoRA")
            && let Some(apart) = apart(&losses)
        {
            table.row(&work, name, APART, "nats a token", &[apart], None);
            if apart.is_nan() || apart >= 0.02 * losses[0] {
                return Err(Error::invalid(
                    format!("{work}: losses are apart from peft's by {apart}: ours {losses:?}, theirs {first:?}"),
                    "compare the adapters' scale, RoPE's pairs and the targets on both sides",
                ));
            }
        }
        names.push(name.to_string());
        tuners.push(tuner);
    }
    for way in &theirs {
        let losses = losses_of(way);
        if losses.is_empty() {
            eprintln!("{}: left out: {}", name_of(way), way["error"]);
            continue;
        }
        table.row(&work, &name_of(way), "first loss", "nats a token", &losses[..1], None);
        table.row(&work, &name_of(way), "last loss", "nats a token", &losses[losses.len() - 1..], None);
        if let Some(apart) = apart(&losses) {
            table.row(&work, &name_of(way), APART, "nats a token", &[apart], None);
        }
        if let Some(peak) = way["memory"].as_f64() {
            table.row(&work, &name_of(way), "memory at the peak", "GiB", &[peak], None);
        }
    }
    let shape = *tuners[0].training().shape();
    let settings = *tuners[0].training().settings();
    #[cfg(gpulab_cuda)]
    let candle = RefCell::new(by_candle::Step::new(llama, &batches[0], (batch, length))?);
    let mut contestants: Vec<TimedWork<'_>> = Vec::new();
    for tuner in &mut tuners {
        contestants.push(TimedWork::Calls(Box::new(move |_| tuner.queue(&ADAMW))));
    }
    #[cfg(gpulab_cuda)]
    {
        gpu.set_release_threshold(u64::MAX)?;
        let losses = candle.borrow_mut().losses(4)?;
        eprintln!("candle's losses on the first batch: {losses:?}");
        names.push("candle, f32 (`TunedLlama`, `AdamW`)".to_string());
        contestants.push(TimedWork::Calls(Box::new(|_| candle.borrow_mut().step().map(drop))));
    }
    for (at, way) in theirs.iter().enumerate() {
        if losses_of(way).is_empty() {
            continue;
        }
        names.push(name_of(way));
        contestants.push(TimedWork::Clocked(Box::new(move || ask(&format!("go {at}")))));
    }
    // What is known by now is not lost, should a time be missing.
    std::fs::write(&asked.out, &table.0).map_err(|error| unexpected(&error.to_string()))?;
    let samples = gpu.time_interleaved(if asked.quick { &QUICK } else { &PLAN }, &mut contestants)?;
    drop(contestants);
    let tokens = (batch * length) as f64;
    for (name, times) in names.iter().zip(&samples) {
        // How many times as fast as that one our graph is: the median of the rounds' own ratios. QLoRA's is beside it.
        let ratios = |own: &[f64]| Summary::of(&times.iter().zip(own).map(|(a, b)| a / b).collect::<Vec<_>>()).median;
        table.row(&work, name, "a step", "ms", times, Some(ratios(&samples[0])));
        let ms = Summary::of(times).median;
        table.row(&work, name, "a step, by QLoRA's", "1", &[ratios(&samples[2])], None);
        table.row(&work, name, "tokens a second", "1/s", &[tokens / ms * 1e3], None);
        table.row(&work, name, "of 989 TFLOP/s", "%", &[100.0 * shape.operations(&settings) / ms * 1e3 / PEAK], None);
    }
    Ok(())
}

/// The same step as candle's users write it, on this GPU.
#[cfg(gpulab_cuda)]
mod by_candle {
    use super::*;
    use gpulab_nn::DeviceKind;
    use gpulab_nn::candle_nn::{AdamW, Optimizer as _, ParamsAdamW};

    pub struct Step {
        model: TunedLlama,
        input: Tensor,
        rows: Tensor,
        targets: Tensor,
        adamw: AdamW,
    }

    impl Step {
        pub fn new(llama: &Llama, tokens: &[u32], (batch, length): (usize, usize)) -> Result<Step> {
            let device = DeviceKind::Cuda.open()?;
            let model = tuned(&llama.on(&device)?, Base::F32)?;
            let settings = ParamsAdamW { lr: 1e-3, weight_decay: 0.0, ..ParamsAdamW::default() };
            let adamw = AdamW::new(model.vars(), settings)?;
            Ok(Step {
                input: Tensor::from_vec(part(tokens, length, 0), (batch, length), &device)?,
                rows: Tensor::arange(0, (batch * length) as u32, &device)?,
                targets: Tensor::from_vec(part(tokens, length, 1), batch * length, &device)?,
                model,
                adamw,
            })
        }

        pub fn step(&mut self) -> Result<Tensor> {
            let hidden = self.model.behind(&self.model.before(&self.input)?)?;
            let loss = cross_entropy(&self.model.logits(&hidden, &self.rows)?, &self.targets)?;
            self.adamw.backward_step(&loss)?;
            Ok(loss.detach())
        }

        pub fn losses(&mut self, steps: usize) -> Result<Vec<f32>> {
            (0..steps).map(|_| Ok(self.step()?.to_scalar::<f32>()?)).collect()
        }
    }
}
