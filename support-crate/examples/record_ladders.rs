//! Times every rung of the vector addition and of the reduction on this GPU, against a copy in device memory and, where
//! its library is given, against CUB, and writes a table of them.
//!
//! `cargo run --release -p gpulab --example record_ladders -- [ladders.csv] [libcub_peer.so]`. Each rung is checked at
//! awkward sizes and at the timed one before its times count. `env/peers/cub.cu` says how to build the library.

use gpulab::gpu::Contestant;
use gpulab::ladder::RUNGS;
use gpulab::prelude::*;
use libloading::Library;
use std::cell::RefCell;
use std::fmt::Write as _;

const SIZES: [usize; 3] = [1_000_003, 1 << 24, 1 << 28];
const COPY: &str = "device copy";
/// A sample holds enough calls to last this long: the gap between two samples then weighs nothing.
const PLAN: Bench = Bench { warm_ups: 1, samples: 31, min_sample_ms: 1.0, budget_ms: 2000.0 };

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| "ladders.csv".to_string());
    // SAFETY: the library was built from `env/peers/cub.cu`, which has no initialisers that could misbehave.
    let cub = arguments.next().map(|path| unsafe { Library::new(&path) }.expect("the peer's library loads"));
    let gpu = Gpu::open_index(0)?;
    println!("{gpu}");
    let mut csv = "topic,rung,dtype,size,metric,value,unit,peer,peer_value,ratio,samples,p10,p90\n".to_string();
    for n in SIZES {
        vector_add(&gpu, n, &mut csv)?;
        reduction(&gpu, n, cub.as_ref(), &mut csv)?;
    }
    std::fs::write(&path, csv).expect("the table can be written");
    println!("{path}");
    Ok(())
}

fn vector_add(gpu: &Gpu, n: usize, csv: &mut String) -> Result<()> {
    let count = gpu.sets_past_cache(12 * n);
    let host: Vec<Vec<f32>> = (0..2 * count as u64).map(|seed| cpu::random_f32(n, seed)).collect();
    let inputs = host.iter().map(|host| gpu.to_device(host)).collect::<Result<Vec<Buffer<f32>>>>()?;
    let outputs = (0..count).map(|_| gpu.poison(n)).collect::<Result<Vec<Buffer<f32>>>>()?;
    let outputs: Vec<RefCell<Buffer<f32>>> = outputs.into_iter().map(RefCell::new).collect();
    let mut names = Vec::new();
    let mut work: Vec<Contestant<'_>> = Vec::new();
    for rung in RUNGS.iter().filter(|rung| rung.path.starts_with("vector_add/")) {
        let add = VectorAdd::new(gpu, rung.path)?;
        outputs[0].borrow_mut().fill_bytes(0xFF)?;
        add.launch(&inputs[0], &inputs[1], &mut outputs[0].borrow_mut())?;
        let given = outputs[0].borrow().to_host()?;
        assert!((0..n).all(|i| given[i] == host[0][i] + host[1][i]), "{} is wrong at {n} elements", rung.path);
        names.push(rung.path);
        let (inputs, outputs) = (&inputs, &outputs);
        work.push(boxed(move |call| {
            let set = call % count;
            add.launch(&inputs[2 * set], &inputs[2 * set + 1], &mut outputs[set].borrow_mut())
        }));
    }
    work.push(boxed(|call| outputs[call % count].borrow_mut().copy_from_buffer(&inputs[2 * (call % count)])));
    let samples = gpu.time_interleaved(&PLAN, &mut work)?;
    rows(csv, &names, n, 12 * n, &[(COPY, 8 * n)], &samples);
    Ok(())
}

fn reduction(gpu: &Gpu, n: usize, cub: Option<&Library>, csv: &mut String) -> Result<()> {
    let count = gpu.sets_past_cache(4 * n);
    let host: Vec<Vec<f32>> = (0..count as u64).map(|seed| cpu::random_f32(n, seed)).collect();
    let arrays = host.iter().map(|host| gpu.to_device(host)).collect::<Result<Vec<Buffer<f32>>>>()?;
    let exact: f64 = host[0].iter().copied().map(f64::from).sum();
    let mut names = Vec::new();
    let mut work: Vec<Contestant<'_>> = Vec::new();
    for rung in RUNGS.iter().filter(|rung| rung.path.starts_with("reduction/")) {
        let sum = Reduction::new(gpu, rung.path)?;
        let mut partial = sum.partials(n)?;
        sum.launch(&arrays[0], &mut partial)?;
        let given = f64::from(partial[partial.len() - 1].to_host()?[0]);
        assert!(given.is_finite(), "{} at {n} elements: {given}", rung.path);
        println!("{} at {n}: error {:.1e} against f64", rung.path, (given - exact).abs());
        names.push(rung.path);
        let arrays = &arrays;
        work.push(boxed(move |call| sum.launch(&arrays[call % count], &mut partial)));
    }
    let (arrays, mut to) = (&arrays, gpu.alloc::<f32>(n)?);
    work.push(boxed(move |call| to.copy_from_buffer(&arrays[call % count])));
    let mut peers = vec![(COPY, 8 * n)];
    if let Some(cub) = cub {
        let run = open_cub(cub, &host, n, exact);
        work.push(boxed(move |call| {
            run(call);
            Ok(())
        }));
        peers.push(("CUB", 4 * n));
    }
    let samples = gpu.time_interleaved(&PLAN, &mut work)?;
    rows(csv, &names, n, 4 * n, &peers, &samples);
    Ok(())
}

/// CUB's sum over the same arrays; its library shares this process's context and default stream.
fn open_cub<'a>(cub: &'a Library, host: &[Vec<f32>], n: usize, exact: f64) -> impl Fn(usize) + 'a {
    type Open = unsafe extern "C" fn(*const *const f32, i32, i32) -> i32;
    type Run = unsafe extern "C" fn(i32) -> i32;
    type Take = unsafe extern "C" fn(*mut f32) -> i32;
    let pointers: Vec<*const f32> = host.iter().map(|array| array.as_ptr()).collect();
    // SAFETY: the three functions have these types in `env/peers/cub.cu`; every array holds n floats, and `peer_open`
    // keeps none of the pointers; no sum runs before it.
    let (run, error) = unsafe {
        let open = cub.get::<Open>(b"peer_open").expect("env/peers/cub.cu has it");
        let run = cub.get::<Run>(b"peer_run").expect("env/peers/cub.cu has it");
        let take = cub.get::<Take>(b"peer_result").expect("env/peers/cub.cu has it");
        assert_eq!(open(pointers.as_ptr(), pointers.len() as i32, n as i32), 0, "CUB has no room");
        assert_eq!(run(0), 0, "CUB does not run");
        let mut given = 0.0;
        assert_eq!(take(&mut given), 0, "CUB's sum cannot be read");
        (run, (f64::from(given) - exact).abs())
    };
    println!("CUB at {n}: error {error:.1e} against f64");
    // SAFETY: as above; the arrays were copied by `peer_open`.
    move |call| assert_eq!(unsafe { run((call % 1024) as i32) }, 0, "CUB does not run")
}

/// A row for each rung and peer: rates in GB/s; the ratio is the median of the rounds' own (above 1: the rung is faster).
fn rows(csv: &mut String, names: &[&str], n: usize, bytes: usize, peers: &[(&str, usize)], samples: &[Vec<f64>]) {
    let rates = |samples: &[f64], bytes: usize| samples.iter().map(|ms| bytes as f64 / ms / 1e6).collect::<Vec<_>>();
    for (name, ours) in names.iter().zip(samples) {
        let (topic, rung) = name.split_once('/').expect("a folder and a file");
        let ours = rates(ours, bytes);
        let summary = Summary::of(&ours);
        print!("{n:>10} {name:32} {:9.2} us {:7.1} GB/s", bytes as f64 / summary.median / 1e3, summary.median);
        for ((peer, bytes), theirs) in peers.iter().zip(&samples[names.len()..]) {
            let theirs = rates(theirs, *bytes);
            let ratio = Summary::of(&ours.iter().zip(&theirs).map(|(a, b)| a / b).collect::<Vec<_>>()).median;
            let peer_value = Summary::of(&theirs).median;
            print!("  {ratio:.4} of {peer}");
            let Summary { median, p10, p90, samples } = summary;
            let measured =
                format!("bandwidth,{median:.2},GB/s,{peer},{peer_value:.2},{ratio:.4},{samples},{p10:.2},{p90:.2}");
            writeln!(csv, "{topic},{rung},f32,{n},{measured}").expect("a String takes everything");
        }
        println!();
    }
}

fn boxed<'a>(work: impl FnMut(usize) -> Result<()> + 'a) -> Contestant<'a> {
    Contestant::Calls(Box::new(work))
}
