//! Times a token of a GPT-2 (124 million parameters, random weights, bf16, batch 1, context 512) on this GPU, in every plan
//! of `nn::gpt::decode`, beside PyTorch; writes a table.
//!
//! `cargo run --release -p gpulab-nn --example record_decode -- [--out decode.csv] [--talk FOLDER]
//! [--tunings] [--plans NAME,NAME] [--once PLAN]`; `env/baselines/record_decode.py` does that and brings PyTorch along. Each plan's
//! logits are compared with PyTorch's in f64 before its times count. A sample is 64 tokens, of which the first reads 480
//! positions.

mod partner;

use gpulab::prelude::*;
use gpulab_nn::DType;
use gpulab_nn::gpt::decode::{DecodePlan, Decoder, LaunchMode, Tuning};
use gpulab_nn::gpt::{Config, Weights};
use gpulab_nn::tensors::{HostTensor, TensorFile};
use partner::Partner;
use std::fmt::Write as _;
use std::path::Path;

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
struct Way {
    name: String,
    plan: DecodePlan,
    mode: LaunchMode,
    /// Number of the decoder.
    at: usize,
    error: f64,
    /// µs per token, round by round.
    samples: Vec<f64>,
}

fn main() -> Result<()> {
    let (mut out, mut talk, mut tunings, mut once, mut plans) =
        ("decode.csv".to_string(), None, false, None, DecodePlan::ALL.to_vec());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--out" => out = arguments.next().expect("a path follows"),
            "--talk" => talk = arguments.next(),
            "--once" => once = arguments.next(),
            "--tunings" => tunings = true,
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
    // Random keys and values for the whole context.
    let caches = cpu::random_bf16(CONFIG.n_layer * 2 * CONFIG.n_embd * CONFIG.n_ctx, 90);
    if let Some(name) = once {
        return steps(&gpu, &weights, &caches, &name);
    }
    let mut partner = talk.map(|folder| Partner::start(&folder, &weights, &caches)).transpose()?;
    let mut decoders = Vec::new();
    let mut ways: Vec<Way> = Vec::new();
    for (name, plan, queues, tuning) in variants(tunings).into_iter().filter(|way| plans.contains(&way.1)) {
        let decoder = Decoder::tuned(&gpu, &weights, plan, LaunchMode::Eager, tuning);
        match decoder.and_then(|decoder| check(decoder, queues, &caches, partner.as_ref())) {
            Ok((decoder, errors)) => {
                let at = decoders.len();
                for (&mode, &error) in queues.iter().zip(&errors) {
                    eprintln!("{name} {}: error {error:.1e}", mode.name());
                    ways.push(Way { name: name.clone(), plan, mode, at, error, samples: Vec::new() });
                }
                decoders.push(decoder);
            }
            Err(error) => eprintln!("{name}: left out: {error}"),
        }
    }
    let copy = copy_rate(&gpu)?;
    let mut theirs = vec![Vec::new(); partner.as_ref().map_or(0, |partner| partner.names.len())];
    for _ in 0..ROUNDS {
        for way in &mut ways {
            way.samples.push(sample(&gpu, &mut decoders[way.at], way.mode)?);
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
    for Way { name, plan, mode, at, error, samples: times } in &ways {
        let decoder = &decoders[*at];
        let Summary { median, p10, p90, .. } = Summary::of(times);
        let rate = decoder.bytes_a_token(CONTEXT) as f64 / median / 1e3;
        let start = format!("{},{},{name},{},{CONTEXT}", plan.name(), mode.name(), decoder.kernels_a_token());
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
        let (mode, speed) = (mode.name(), 1e6 / median);
        eprintln!("{name:28} {mode:10} {median:8.1} us {speed:8.0} tokens/s  {:.3} of the copy rate", rate / copy);
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

/// What is timed: every plan in every mode; with `tunings`, other constants too.
fn variants(tunings: bool) -> Vec<(String, DecodePlan, &'static [LaunchMode], Tuning)> {
    let plain = Tuning::of(&CONFIG);
    let all_queues: &[LaunchMode] = &[LaunchMode::Eager, LaunchMode::Graph, LaunchMode::Overlapped];
    let mut all: Vec<_> =
        DecodePlan::ALL.iter().map(|&plan| (plan.name().to_string(), plan, all_queues, plain)).collect();
    // Its kernels say nothing about when the next may start, and of one kernel none is next.
    (all[0].2, all[3].2) = (&all_queues[..2], &all_queues[..2]);
    if tunings {
        let mut halves =
            |name: &str, tuning| all.push((name.to_string(), DecodePlan::HalfLayers, &all_queues[2..], tuning));
        halves("own carve-out", Tuning { max_shared_carveout: false, ..plain });
        halves("resident 1", Tuning { resident: 1, ..plain });
        halves("units 12", Tuning { units: 12, ..plain });
        for (name, run_ahead) in [("ahead 5M", 5 << 20), ("ahead 14M", 14 << 20), ("ahead 28M", 28 << 20)] {
            halves(name, Tuning { run_ahead, ..plain });
        }
        halves("units 12 ahead 14M", Tuning { units: 12, run_ahead: 14 << 20, ..plain });
        let mut whole =
            |name: &str, tuning| all.push((name.to_string(), DecodePlan::Megakernel, &all_queues[1..2], tuning));
        for (name, run_ahead) in [("ahead 5M", 5 << 20), ("ahead 14M", 14 << 20), ("ahead 28M", 28 << 20)] {
            whole(name, Tuning { run_ahead, ..plain });
        }
        whole("lines 2", Tuning { lines: 2, ..plain });
        whole("lines 2 ahead 14M", Tuning { lines: 2, run_ahead: 14 << 20, ..plain });
        whole("15 clusters", Tuning { clusters: 15, units: 26, ..plain });
        whole("threads 768 lines 2", Tuning { threads: 768, lines: 2, ..plain });
        whole("threads 192", Tuning { threads: 192, ..plain });
        whole("not cooperative", Tuning { cooperative: false, ..plain });
    }
    all
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

/// Holds the logits at the last position of the context against the partner's in f64, in each mode.
fn check(
    mut decoder: Decoder,
    queues: &[LaunchMode],
    caches: &[u16],
    partner: Option<&Partner>,
) -> Result<(Decoder, Vec<f64>)> {
    let wrong = |what: String| Error::Invalid { what, fix: "see kernels/decode/".to_string() };
    let mut errors = Vec::new();
    for &mode in queues {
        decoder.set_launch_mode(mode)?;
        decoder.begin_at(TOKEN, CONTEXT - 1, Some(caches))?;
        decoder.step()?;
        let given = decoder.logits()?;
        let best = (0..given.len()).rev().max_by(|&a, &b| given[a].total_cmp(&given[b])).unwrap_or(0) as u32;
        let next = decoder.tokens()?.last().copied();
        if next != Some(best) {
            return Err(wrong(format!("the next token is {next:?}, and the best logit is that of {best}")));
        }
        let error = partner.map_or(f64::NAN, |partner| partner.error(&given));
        if error > WRONG {
            return Err(wrong(format!("{}: the logits are off by {error:.2e}", mode.name())));
        }
        errors.push(error);
    }
    Ok((decoder, errors))
}

/// The µs of a token, the mean of a sample.
fn sample(gpu: &Gpu, decoder: &mut Decoder, mode: LaunchMode) -> Result<f64> {
    decoder.set_launch_mode(mode)?;
    decoder.begin_at(TOKEN, CONTEXT - TOKENS / 2 - 9, None)?;
    (0..8).try_for_each(|_| decoder.step())?;
    gpu.synchronize()?;
    let start = gpu.event()?;
    for _ in 0..TOKENS {
        decoder.step()?;
    }
    Ok(gpu.event()?.ms_since(&start)? * 1e3 / TOKENS as f64)
}

/// GB/s of a copy of 1 GiB within the device, bytes read and written both counted.
fn copy_rate(gpu: &Gpu) -> Result<f64> {
    let n = 1 << 28;
    let (from, mut to) = (gpu.zeros::<f32>(n)?, gpu.zeros::<f32>(n)?);
    let time = gpu.time(&Bench::default(), |_| to.copy_from_buffer(&from))?;
    Ok(8.0 * n as f64 / time.median / 1e6)
}

/// A few steps and no more, for a profiler.
fn steps(gpu: &Gpu, weights: &Weights, caches: &[u16], name: &str) -> Result<()> {
    let plan = DecodePlan::ALL.into_iter().find(|plan| plan.name() == name).expect("operators, fused or halves");
    let mut decoder = Decoder::with(gpu, weights, plan, LaunchMode::Eager)?;
    decoder.begin_at(TOKEN, CONTEXT - 3, Some(caches))?;
    (0..3).try_for_each(|_| decoder.step())?;
    gpu.synchronize()
}

/// The weights as a file that the partner reads.
fn save(weights: &Weights, folder: &Path) -> Result<()> {
    weights.clone().into_file().write(&folder.join("model.safetensors"), DType::BF16)
}
