//! Times every rung of every ladder on this GPU beside its peers, in one process and in rounds, and writes a table.
//!
//! `cargo run --release -p gpulab-kernels --example record_ladders -- [--out ladders.csv] [--errors errors.csv] [--quick]
//! [--rust] [--cub libcub_peer.so] [--talk FOLDER] [--sweep SECONDS[:TOPIC[:VARIANT]]] [topics]`; `env/baselines/record_ladders.py` does that and brings
//! PyTorch and CUB along. With `--rust` the twins in Rust run beside their CUDA C (that takes rustc). Each rung is
//! checked at awkward sizes and at the timed one before its times count. With `--talk`, another process times PyTorch
//! on the same arrays, a sample in each repetition: see `partner.rs`. With `--sweep` nothing of this is done, but the
//! quantized products are timed with other constants: see `sweep.rs`.

mod cub;
mod partner;
mod sweep;

use gpulab::prelude::*;
use gpulab_kernels::run::{Languages, Peer, PeerWork, Workload};
use gpulab_kernels::topics::relative_error;
use gpulab_kernels::*;
use libloading::Library;
use partner::Partner;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::time::Instant;

/// A sample holds enough calls to last 1 ms: the gap between two samples then weighs nothing.
const PLAN: Bench = Bench { warm_ups: 1, samples: 31, min_sample_ms: 1.0, budget_ms: 15_000.0 };
/// The first rungs of attention take a hundred times as long as the last ones.
const LONG: Bench = Bench { samples: 11, budget_ms: 8000.0, ..PLAN };
const QUICK: Bench = Bench { samples: 5, budget_ms: 500.0, ..PLAN };
const ONE_CORE: &str = "cpu, 1 core";
/// A result that is one unit in the last place off is as good as any.
const LAST_PLACE: f64 = 1.0 / (1 << 23) as f64;

fn main() -> Result<()> {
    let (mut out, mut errors, mut cub, mut talk, mut quick, mut topics) =
        ("ladders.csv".to_string(), "errors.csv".to_string(), None, None, false, Vec::new());
    let mut languages = Languages::CudaC;
    let mut sweep = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("this option is followed by a path");
        match argument.as_str() {
            "--out" => out = value(),
            "--errors" => errors = value(),
            "--cub" => cub = Some(value()),
            "--talk" => talk = Some(value()),
            "--quick" => quick = true,
            "--sweep" => sweep = Some(value()),
            "--rust" => languages = Languages::WithRust,
            topic => topics.push(Ladder::of(topic)?),
        }
    }
    // SAFETY: the library was built from `env/baselines/cub.cu`, which has no initialisers that could misbehave.
    let cub = cub.map(|path| unsafe { Library::new(&path) }.expect("the peer's library loads"));
    let partner = talk.map(|folder| RefCell::new(Partner::new(&folder)));
    let gpu = Gpu::open_index(0)?;
    eprintln!("{gpu}");
    if let Some(text) = sweep {
        // SECONDS, or SECONDS:TOPIC.
        let (seconds, only) = text.split_once(':').unwrap_or((&text, ""));
        return sweep::sweep(&gpu, seconds.parse().expect("seconds, such as 80"), only);
    }
    let mut table = "topic,rung,dtype,size,metric,value,unit,peer,peer_value,ratio,samples,p10,p90\n".to_string();
    let mut off = "topic,rung,dtype,size,error,peer,peer_error,ratio\n".to_string();
    for &ladder in Ladder::ALL.iter().filter(|ladder| topics.is_empty() || topics.contains(ladder)) {
        for size in sizes(ladder, quick) {
            let begin = Instant::now();
            let plan = match (quick, ladder) {
                (true, _) => QUICK,
                (_, ladder) if ladder.topic().starts_with("flash_") => LONG,
                _ => PLAN,
            };
            let run =
                ladder.run_with(&gpu, size, &plan, languages, &mut |job| peers(job, cub.as_ref(), partner.as_ref()));
            match run {
                Ok(run) => {
                    rows(&run, &mut table, &mut off);
                    eprintln!("{run}{:.1} s\n", begin.elapsed().as_secs_f64());
                }
                // The other ladders are measured all the same; the exit status tells.
                Err(error) => {
                    eprintln!("FAILED: {} at {size}: {error}\n", ladder.topic());
                    off += &format!("# {} at {}: failed\n", ladder.topic(), size.name());
                }
            }
            std::fs::write(&out, &table).expect("the table can be written");
            std::fs::write(&errors, &off).expect("the table can be written");
        }
    }
    if off.contains("failed") {
        std::process::exit(1)
    }
    Ok(())
}

/// The sizes of each ladder's table: those that a model or a library meets, and one that is awkward.
fn sizes(ladder: Ladder, quick: bool) -> Vec<Size> {
    match (ladder.topic(), quick) {
        ("vector_add" | "reduction", true) => vec![(1 << 20).into()],
        ("vector_add" | "reduction", false) => vec![1_000_003.into(), (1 << 24).into(), (1 << 28).into()],
        ("matmul" | "matmul_bf16", true) => vec![1024.into()],
        ("matmul", false) => vec![(1000, 1100, 1200).into(), 4096.into(), 8192.into()],
        ("matmul_bf16", false) => vec![(1000, 1104, 1200).into(), 4096.into(), 8192.into()],
        // A table's rows, their width, and how many are looked up.
        ("embedding", true) => vec![(1000, 64, 5000).into()],
        ("embedding", false) => vec![(131_072, 4096, 32_768).into(), (8_388_608, 64, 2_097_152).into()],
        // Heads of all sequences, tokens, and head dimension: 16,384 tokens in all, 2048 numbers wide.
        (topic, true) if topic.starts_with("flash_") => vec![(4, 1000, 128).into()],
        (topic, false) if topic.starts_with("flash_") => {
            [(64, 4096, 128), (16, 16_384, 128), (128, 4096, 64), (32, 16_384, 64)].map(Size::from).into()
        }
        // Rows and columns of the weights; the second are those of a wide layer.
        ("quantized_gemv" | "quantized_gemv_int8", true) => vec![(1024, 8192).into()],
        ("quantized_gemv" | "quantized_gemv_int8", false) => vec![(8192, 8192).into(), (8192, 81_920).into()],
        ("quantized_matmul", true) => vec![(16, 1024, 8192).into()],
        ("quantized_matmul", false) => [1, 16, 64].map(|batch| (batch, 8192, 8192).into()).into(),
        // Rows and columns, of which one in 64 has an entry, and one in 1024.
        ("spmv" | "spmv_power_law", true) => vec![(2048, 2048, 65_536).into()],
        ("spmv" | "spmv_power_law", false) => vec![(32_768, 32_768, 1 << 24).into(), (32_768, 32_768, 1 << 20).into()],
        // Side, width, entries: densities around those where the dense product is as fast.
        ("spmm", true) => vec![(1024, 128, 65_536).into()],
        ("spmm", false) => [256, 64, 16, 4].map(|part| (8192, 256, (8192 * 8192) / part).into()).into(),
        ("block_sparse", true) => vec![(1024, 128, 262_144).into()],
        ("block_sparse", false) => [16, 8, 4, 2].map(|part| (8192, 4096, (8192 * 8192) / part).into()).into(),
        ("two_four", true) => vec![(1024, 1024, 1024).into()],
        ("two_four", false) => vec![(4096, 4096, 4096).into(), (8192, 8192, 8192).into()],
        // Rows and columns: the tokens of a batch in a model of that width.
        (_, true) => vec![(1000, 8192).into()],
        (_, false) => vec![(32_768, 8192).into()],
    }
}

/// What takes part beside the rungs, the device copy and cuBLAS.
fn peers<'a>(
    job: &Workload<'_>,
    cub: Option<&'a Library>,
    partner: Option<&'a RefCell<Partner>>,
) -> Result<Vec<Peer<'a>>> {
    let mut peers = Vec::new();
    if job.ladder == Ladder::Reduction {
        peers.extend(cub.map(|cub| cub::open(cub, job)));
        peers.push(one_core(job));
    }
    if let Some(partner) = partner {
        peers.extend(Partner::prepare(partner, job)?);
    }
    Ok(peers)
}

/// The sum on one core of the CPU, by the host's clock.
fn one_core<'a>(job: &Workload<'_>) -> Peer<'a> {
    let sets: Vec<Vec<f32>> = job
        .sets
        .iter()
        .map(|set| match &set[0] {
            gpulab_kernels::topics::HostArray::F32(numbers) => numbers.clone(),
            other => panic!("a sum of {}", other.dtype()),
        })
        .collect();
    let error = relative_error(job.exact, |set| {
        Ok(vec![gpulab_kernels::topics::HostArray::F32(vec![cpu::sum_one_core(&sets[set])])])
    });
    let mut call = 0;
    let sample = move || {
        call += 1;
        let begin = Instant::now();
        std::hint::black_box(cpu::sum_one_core(&sets[call % sets.len()]));
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    };
    Peer { name: ONE_CORE.to_string(), error: error.ok(), work: PeerWork::Clocked(Box::new(sample)) }
}

/// A row for each rung and peer: its rate, and how many times the peer's it is (the median of the rounds' own ratios).
fn rows(run: &LadderRun, table: &mut String, off: &mut String) {
    let start = |rung: &str| format!("{},{rung},{},{}", run.ladder.topic(), run.dtype, run.size.name());
    for rung in run.rungs() {
        let metric = if rung.unit == "GB/s" { "bandwidth" } else { "throughput" };
        let Summary { median, p10, p90, .. } = rung.rate;
        for (name, ratio) in &rung.against {
            let theirs = run.peer(name);
            let Summary { median: ratio, samples, .. } = ratio;
            let name = if name.contains(',') { format!("\"{name}\"") } else { name.clone() };
            let measured =
                format!("{metric},{median:.2},{},{name},{theirs:.2},{ratio:.4},{samples},{p10:.2},{p90:.2}", rung.unit);
            writeln!(table, "{},{measured}", start(&rung.name)).expect("a String takes everything");
        }
        for peer in run.peers() {
            if let (Some(ours), Some(theirs)) = (rung.error, peer.error) {
                let name = if peer.name.contains(',') { format!("\"{}\"", peer.name) } else { peer.name.clone() };
                // Of two results without an error, neither is the better one.
                let ratio = if ours == theirs { 1.0 } else { ours / theirs };
                writeln!(off, "{},{ours:.3e},{name},{theirs:.3e},{ratio:.3}", start(&rung.name))
                    .expect("a String takes everything");
                if peer.name != ONE_CORE && ours > (2.0 * theirs).max(LAST_PLACE) {
                    eprintln!("NOTE: {} is off by {ours:.1e}, {} by {theirs:.1e}", rung.name, peer.name);
                }
            }
        }
    }
}
