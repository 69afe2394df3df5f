//! Checks and times every rung of flash attention's backward pass on this GPU, with other constants than the table's too:
//! `cargo run --release -p gpulab-kernels --example flash_backward -- [--simulate] [--seconds 240] [--only TEXT] [--long]`,
//! in the repository or in a folder where `crates/kernels` lies.
//!
//! Each is compared with f64 at awkward sizes, with `--simulate` in the simulator, which is all then; then at the timed size,
//! at places spread over the gradients. A time is a whole pass: delta, the kernel itself, and where it adds dq up, zeroing
//! the sums and rounding them to bf16. `--only` takes variants whose name holds that text. Without `--long` the first two rungs are
//! timed at the first size alone. A short table stands at the end.

use gpulab::gpu::TimedWork;
use gpulab::prelude::*;
use gpulab_kernels::topics::{Array, HostArray, Launches, Topic, relative_error};
use gpulab_kernels::*;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::time::Instant;

const PLAN: Bench = Bench { warm_ups: 1, samples: 7, min_sample_ms: 1.0, budget_ms: 500.0 };

/// Heads of all sequences, tokens, head dimension: 16,384 tokens in all, 2048 numbers wide.
const SIZES: [(usize, usize, usize); 4] = [(64, 4096, 128), (16, 16_384, 128), (128, 4096, 64), (32, 16_384, 64)];

/// The path of a rung or the beginning of its name, the head dimension, constants in place of the table's.
type Setting = (&'static str, usize, Constants);
type Constants = &'static [(&'static str, u32)];

/// What is tried beside the table's constants.
const VARIANTS: &[Setting] = &[
    ("02", 128, &[("OTHERS", 64)]),
    ("02", 64, &[("OTHERS", 32)]),
    ("03", 128, &[("WARPS", 4)]),
    ("03", 64, &[("WARPS", 4)]),
    ("04", 128, &[("WARPS", 8), ("STAGES", 2)]),
    ("04", 128, &[("STAGES", 2)]),
    ("04", 64, &[("WARPS", 8), ("QUERIES", 128)]),
    ("04", 64, &[("QUERIES", 32)]),
    ("05", 128, &[("STAGES", 2)]),
    ("05", 64, &[("QUERIES", 64)]),
    ("06", 128, &[("STAGES", 3)]),
    ("06", 64, &[("QUERIES", 64)]),
];

/// A rung, or a variant of one, for one head dimension, without and with a mask.
struct Variant {
    name: String,
    width: usize,
    masked: [FlashBackward; 2],
}

fn main() -> Result<()> {
    let (mut seconds, mut only, mut simulate, mut long) = (240.0, String::new(), false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seconds" => seconds = arguments.next().and_then(|text| text.parse().ok()).expect("a number follows"),
            "--only" => only = arguments.next().expect("a part of a name follows"),
            "--simulate" => simulate = true,
            "--long" => long = true,
            other => panic!("unknown: {other}"),
        }
    }
    let start = Instant::now();
    let gpu = if simulate { Gpu::simulated()? } else { Gpu::open_index(0)? };
    println!("{gpu}");
    // Half of the time at most goes into checks.
    let variants = open(&gpu, &only, &|| start.elapsed().as_secs_f64() > seconds / 2.0);
    println!("{} variants are right at awkward sizes, {:.0} s\n", variants.len(), start.elapsed().as_secs_f64());
    let mut table = String::new();
    for (at, size) in SIZES.into_iter().enumerate().filter(|_| !simulate) {
        for causal in [false, true] {
            if start.elapsed().as_secs_f64() > seconds {
                table += "no time was left for more\n";
                break;
            }
            let slow = |name: &str| name.starts_with("01") || name.starts_with("02");
            let taken = |variant: &&Variant| variant.width == size.2 && (long || at == 0 || !slow(&variant.name));
            let lines = compare(&gpu, size.into(), causal, &variants.iter().filter(taken).collect::<Vec<_>>())?;
            println!("{lines}");
            table += &lines;
        }
    }
    println!("{:.0} s in all\n\n{table}", start.elapsed().as_secs_f64());
    Ok(())
}

/// Everything that runs here, compiled side by side, and checked; what does not is named.
fn open(gpu: &Gpu, only: &str, late: &dyn Fn() -> bool) -> Vec<Variant> {
    let rungs = Ladder::FlashBackward.rungs();
    let mut wanted: Vec<Setting> = Vec::new();
    for width in gpulab_kernels::topics::WIDTHS {
        wanted.extend(rungs.iter().map(|rung| (rung.path, width, &[][..])));
    }
    for &(name, width, constants) in VARIANTS {
        let rung = Ladder::FlashBackward.rung(name).expect("a rung of the ladder");
        wanted.push((rung.path, width, constants));
    }
    let named = |path: &str, constants: Constants| {
        let letters: String = constants.iter().map(|(name, value)| format!(" {}{value}", &name[..1])).collect();
        path.rsplit('/').next().unwrap_or(path).to_string() + &letters
    };
    wanted.retain(|(path, _, constants)| named(path, constants).contains(only));
    let compiled: Vec<_> = std::thread::scope(|scope| {
        let compile = |&(path, width, constants): &Setting| {
            let gpu = gpu.clone();
            scope.spawn(move || FlashBackward::compile(&gpu, path, width, constants))
        };
        let threads: Vec<_> = wanted.iter().map(compile).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    println!("{} programs compiled", compiled.len());
    let mut variants = Vec::new();
    for (&(path, width, constants), compiled) in wanted.iter().zip(compiled) {
        let name = named(path, constants);
        if late() {
            println!("no time was left for {name}, heads of {width}");
            continue;
        }
        match compiled.and_then(|compiled| Ok([compiled.checked(false)?, compiled.checked(true)?])) {
            Ok(masked) => {
                println!("right: {name}, heads of {width}{}", resources(&masked[0], width));
                variants.push(Variant { name, width, masked });
            }
            Err(error) => println!("LEFT OUT: {name}, heads of {width}: {}", error.to_string().replace('\n', " ")),
        }
    }
    variants
}

/// Registers and what did not fit into them, where a driver tells.
fn resources(backward: &FlashBackward, width: usize) -> String {
    let size = Size::Three(1, 256, width);
    let needs = || -> Result<String> {
        let mut launches = Launches::resources();
        let (inputs, mut outputs) = backward.arrays(size, 1)?;
        backward.call(&inputs, &mut outputs, size, &mut launches)?;
        let (_, needs) = &launches.resources[0];
        let shared = needs.shared_bytes + needs.dynamic_shared_bytes;
        Ok(format!(
            ": {} registers, {} bytes spilled, {shared} bytes shared, {} blocks a multiprocessor",
            needs.registers, needs.local_bytes, needs.blocks
        ))
    };
    needs().unwrap_or_default()
}

/// All of them at one size, on the same arrays, fastest first.
fn compare(gpu: &Gpu, size: Size, causal: bool, variants: &[&Variant]) -> Result<String> {
    let mut table = format!("{size}{}\n", if causal { ", causal" } else { "" });
    let Some(first) = variants.first().map(|variant| &variant.masked[usize::from(causal)]) else { return Ok(table) };
    let work = first.work(size)?;
    let hosts: Vec<HostArray> = first.inputs(size, 1)?;
    let exact = [first.exact(&hosts, size)?];
    let inputs = hosts.iter().map(|host| Array::new(gpu, host)).collect::<Result<Vec<_>>>()?;
    drop(hosts);
    let mut arrays = Vec::new();
    let mut errors = Vec::new();
    for variant in variants {
        let backward = &variant.masked[usize::from(causal)];
        let outputs = backward.outputs(size)?;
        let mut outputs =
            outputs.iter().map(|&allocation| Array::poisoned(gpu, allocation)).collect::<Result<Vec<_>>>()?;
        backward.call(&inputs, &mut outputs, size, &mut Launches::queue())?;
        errors.push(relative_error(&exact, |_| outputs.iter().take(3).map(Array::to_host).collect())?);
        // All calls write the same arrays; the largest set serves all.
        if outputs.len() > arrays.len() {
            arrays = outputs;
        }
    }
    let arrays = RefCell::new(arrays);
    let mut timed: Vec<TimedWork<'_>> = Vec::new();
    for variant in variants {
        let backward = &variant.masked[usize::from(causal)];
        let count = backward.outputs(size)?.len();
        let (arrays, inputs) = (&arrays, &inputs);
        timed.push(TimedWork::Calls(Box::new(move |_| {
            backward.call(inputs, &mut arrays.borrow_mut()[..count], size, &mut Launches::queue())
        })));
    }
    let samples = gpu.time_interleaved(&PLAN, &mut timed)?;
    drop(timed);
    let mut lines: Vec<(String, f64, f64)> = variants
        .iter()
        .zip(samples)
        .zip(errors)
        .map(|((variant, ms), error)| (variant.name.clone(), Summary::of(&ms).median, error))
        .collect();
    lines.sort_by(|a, b| a.1.total_cmp(&b.1));
    for (name, ms, error) in lines {
        let wrong = if error < 0.02 { "" } else { "  WRONG" };
        let rate = work.rate(ms);
        writeln!(table, "{name:28} {:10.3} ms {rate:7.1} TFLOP/s  off by {error:.1e}{wrong}", ms)
            .expect("a String takes everything");
    }
    Ok(table + "\n")
}
