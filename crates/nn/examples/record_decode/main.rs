//! Times a token of a GPT-2 (124 million parameters, random weights, bf16, batch 1, context 512) on this GPU, in every plan
//! of `gpulab_kernels::engine`, beside PyTorch; writes a table.
//!
//! `cargo run --release -p gpulab-nn --example record_decode -- [--out decode.csv] [--talk FOLDER] [--plans NAME,NAME]`;
//! `env/baselines/record_decode.py` does that and brings PyTorch along. Each plan's logits are compared with PyTorch's in f64
//! before its times count. A sample is 64 tokens, of which the first reads 480 positions.

mod partner;

use gpulab::prelude::*;
use gpulab_kernels::engine::{
    Engine, EngineConfig, EngineConstants, EngineKernels, EngineModel, EnginePlan, EngineTuning, WeightBits, copy_rate,
};
use gpulab_nn::DType;
use gpulab_nn::gpt::{Config, Weights};
use gpulab_nn::tensors::{HostTensor, TensorFile};
use partner::Partner;
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;

const CONFIG: Config = Config::GPT2;
/// Positions that a token reads in the middle of a sample.
const CONTEXT: usize = 512;
/// Tokens of a sample.
const TOKENS: usize = 64;
const ROUNDS: usize = 21;
const TOKEN: u32 = 4242;
/// bf16 weights and f32 sums, against f64: keys and values that round the other way count most.
const WRONG: f64 = 0.02;

/// What is timed.
struct Variant {
    /// Of its plan; in "halves" a layer is two phases, else five.
    name: String,
    queue: &'static str,
    engine: Engine,
    error: f64,
    /// µs per token, round by round.
    samples: Vec<f64>,
}

fn main() -> Result<()> {
    let (mut out, mut talk, mut plans) = ("decode.csv".to_string(), None, EnginePlan::ALL.to_vec());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--out" => out = arguments.next().expect("a path follows"),
            "--talk" => talk = arguments.next(),
            "--plans" => {
                let names = arguments.next().expect("names follow, with commas between");
                plans.retain(|plan| names.split(',').any(|name| name == plan.name()));
            }
            other => panic!("unknown: {other}"),
        }
    }
    let gpu = Gpu::open_index(0)?;
    eprintln!("{gpu}");
    let weights = weights()?;
    let config = EngineConfig::from(CONFIG);
    // Random keys and values for the whole context.
    let caches = cpu::random_bf16(config.cache_len(), 90);
    let mut partner = talk.map(|folder| Partner::start(&folder, &weights, &caches)).transpose()?;
    let five = EngineConstants { splits: 5, slot_steps: 24, ..EngineConstants::default() };
    let mut variants: Vec<Variant> = Vec::new();
    let mut bytes = 0;
    for constants in [five, EngineConstants::GPT2] {
        let halves = constants.merged;
        let mut laid_out: Option<Rc<EngineModel>> = None;
        for &plan in plans.iter().filter(|plan| !halves || **plan != EnginePlan::Operators) {
            let name = format!("{}{}", plan.name(), if halves { " halves" } else { "" });
            let kernels = EngineKernels::compile(&gpu, &config, WeightBits::Bf16, plan, constants)?;
            let model = match laid_out.take().filter(|model| model.suits(&kernels)) {
                Some(model) => model,
                None => Rc::new(EngineModel::new(&gpu, &kernels, &weights)?),
            };
            laid_out = Some(Rc::clone(&model));
            bytes = model.bytes_a_token(CONTEXT);
            for queue in ["one by one", "graph"] {
                let mut engine = Engine::new(&model, &kernels, EngineTuning::default())?;
                if queue == "one by one" {
                    engine.launch_one_by_one();
                }
                match check(&mut engine, &caches, partner.as_ref()) {
                    Ok(error) => {
                        eprintln!("{name} {queue}: error {error:.1e}");
                        variants.push(Variant { name: name.clone(), queue, engine, error, samples: Vec::new() });
                    }
                    Err(error) => eprintln!("{name} {queue}: left out: {error}"),
                }
            }
        }
    }
    let copy = copy_rate(&gpu)?;
    let mut theirs = vec![Vec::new(); partner.as_ref().map_or(0, |partner| partner.names.len())];
    for _ in 0..ROUNDS {
        for variant in &mut variants {
            variant.samples.push(variant.engine.token_us(CONTEXT, TOKENS)?);
        }
        if let Some(partner) = &mut partner {
            gpu.synchronize()?;
            for (at, times) in theirs.iter_mut().enumerate() {
                times.push(partner.sample(at)?);
            }
        }
    }
    let copy = (copy + copy_rate(&gpu)?) / 2.0;
    let mut table =
        "plan,queue,constants,kernels,context,us_a_token,p10,p90,tokens_per_s,GB_per_s,share_of_copy,peer,peer_us,ratio,error\n"
            .to_string();
    for Variant { name, queue, engine, error, samples: times } in &variants {
        let Summary { median, p10, p90, .. } = Summary::of(times);
        let rate = bytes as f64 / median / 1e3;
        let start = format!("{name},{queue},{name},{},{CONTEXT}", engine.kernels_a_token());
        let own = format!("{median:.2},{p10:.2},{p90:.2},{:.0},{rate:.0},{:.3}", 1e6 / median, rate / copy);
        let peers: Vec<(String, f64, f64)> = match &partner {
            None => vec![(String::new(), f64::NAN, f64::NAN)],
            Some(partner) => {
                partner.names.iter().zip(&theirs).map(|(name, theirs)| against(name, times, theirs)).collect()
            }
        };
        for (peer, us, ratio) in peers {
            writeln!(table, "{start},{own},{peer},{us:.1},{ratio:.3},{error:.2e}").expect("a String takes everything");
        }
        let speed = 1e6 / median;
        eprintln!("{name:17} {queue:10} {median:8.1} us {speed:8.0} tokens/s  {:.3} of the copy rate", rate / copy);
    }
    eprintln!("device copy {copy:.0} GB/s");
    for (at, name) in partner.iter().flat_map(|partner| partner.names.iter().enumerate()) {
        let Summary { median, p10, p90, .. } = Summary::of(&theirs[at]);
        let error = partner.as_ref().map_or(f64::NAN, |partner| partner.errors[at]);
        writeln!(table, "{name},,,,{CONTEXT},{median:.2},{p10:.2},{p90:.2},{:.0},,,,,,{error:.2e}", 1e6 / median)
            .expect("a String takes everything");
        eprintln!("{name:39} {median:8.1} us {:8.0} tokens/s  error {error:.1e}", 1e6 / median);
    }
    std::fs::write(&out, table).expect("the table can be written");
    Ok(())
}

/// The peer's time, and how many times its speed ours is: the median of the rounds' own ratios.
fn against(name: &str, ours: &[f64], theirs: &[f64]) -> (String, f64, f64) {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| theirs / ours).collect();
    (name.to_string(), Summary::of(theirs).median, Summary::of(&ratios).median)
}

/// Random weights, no bias 0 and no scale 1; rounded to bf16, so that all contestants have the same numbers.
fn weights() -> Result<Weights> {
    let make = |(at, (name, shape)): (usize, (String, Vec<usize>))| {
        let (scale, centre) = match () {
            _ if name.contains("ln_") && name.ends_with("weight") => (0.2, 1.0),
            _ if name.ends_with("bias") => (0.1, 0.0),
            _ if name.starts_with("wpe") => (0.1, 0.0),
            _ => (0.06, 0.0),
        };
        let values = cpu::random_f32(shape.iter().product(), 7000 + at as u64);
        let values = values.into_iter().map(|x| cpu::f32_from_bf16(cpu::bf16_from_f32(x * scale + centre))).collect();
        (name, HostTensor { shape, values })
    };
    let tensors = CONFIG.parameters().into_iter().enumerate().map(make).collect();
    Weights::from_file(CONFIG, TensorFile { tensors, metadata: Default::default() })
}

/// Holds the logits at the last position of the context against the partner's in f64.
fn check(engine: &mut Engine, caches: &[u16], partner: Option<&Partner>) -> Result<f64> {
    let wrong = |what: String| Error::invalid(what, "see crates/kernels/engine/");
    engine.begin(&[TOKEN], CONTEXT - 1, Some(caches), (0.0, 0))?;
    engine.step()?;
    let given = engine.logits()?;
    let best = (0..given.len()).rev().max_by(|&a, &b| given[a].total_cmp(&given[b])).unwrap_or(0) as u32;
    let next = engine.next()?.1;
    if next != Some(best) {
        return Err(wrong(format!("the next token is {next:?}, and the best logit is that of {best}")));
    }
    let error = partner.map_or(f64::NAN, |partner| partner.error(&given));
    if error > WRONG {
        return Err(wrong(format!("the logits are off by {error:.2e}")));
    }
    Ok(error)
}

/// The weights as a file that the partner reads.
fn save(weights: &Weights, folder: &Path) -> Result<()> {
    weights.clone().into_file().write(&folder.join("model.safetensors"), DType::BF16)
}
