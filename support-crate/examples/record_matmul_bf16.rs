//! Times every rung of the bf16 matmul that this GPU runs against cuBLAS, in one process and in rounds, and writes a table.
//!
//! `cargo run --release -p gpulab --example record_matmul_bf16 -- TABLE.csv LIBRARY.so`; `env/peers/cublas_bf16.cu` says
//! how to build the library. A rung counts only if its error against f64 is at most twice cuBLAS's own on the same data.

use gpulab::gpu::Contestant;
use gpulab::ladder::RUNGS;
use gpulab::prelude::*;
use libloading::Library;
use std::cell::RefCell;
use std::fmt::Write as _;

const SIZES: [(usize, usize, usize); 4] =
    [(1000, 1104, 1200), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192)];
/// Rows of the product that are compared with f64, spread over it.
const CHECKED_ROWS: usize = 8;
const PLAN: Bench = Bench { warm_ups: 1, samples: 31, min_sample_ms: 1.0, budget_ms: 3000.0 };

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(library)) = (arguments.next(), arguments.next()) else {
        panic!("usage: record_matmul_bf16 TABLE.csv LIBRARY.so");
    };
    // SAFETY: the library was built from `env/peers/cublas_bf16.cu`, which has no initialisers that could misbehave.
    let peer = unsafe { Library::new(&library) }.expect("the peer's library loads");
    let gpu = Gpu::open_index(0)?;
    println!("{gpu}");
    let mut csv = "topic,rung,dtype,size,metric,value,unit,peer,peer_value,ratio,samples,p10,p90\n".to_string();
    for shape in SIZES {
        record(&gpu, &peer, shape, &mut csv)?;
    }
    std::fs::write(&path, csv).expect("the table can be written");
    println!("{path}");
    Ok(())
}

fn record(gpu: &Gpu, peer: &Library, (m, n, k): (usize, usize, usize), csv: &mut String) -> Result<()> {
    let count = gpu.sets_past_cache(2 * (m * k + k * n + m * n));
    let host: Vec<Vec<u16>> =
        (0..2 * count).map(|at| cpu::random_bf16(if at % 2 == 0 { m * k } else { k * n }, at as u64)).collect();
    let inputs = host.iter().map(|host| gpu.to_device(host)).collect::<Result<Vec<Buffer<u16>>>>()?;
    let outputs = (0..count).map(|_| gpu.poison(m * n)).collect::<Result<Vec<Buffer<u16>>>>()?;
    let outputs: Vec<RefCell<Buffer<u16>>> = outputs.into_iter().map(RefCell::new).collect();
    let (run, product) = open(peer, &host, (m, n, k));
    let theirs = error(&product, &host[0], &host[1], (m, n, k));
    println!("cuBLAS at {m}x{n}x{k}: error {theirs:.2e}");
    let mut names = Vec::new();
    let mut work: Vec<Contestant<'_>> = Vec::new();
    for rung in RUNGS.iter().filter(|rung| rung.kernel == "matmul_bf16") {
        if let Err(error) = rung.runs_on(gpu.compute_capability()?) {
            println!("left out: {error}");
            continue;
        }
        let matmul = MatmulBf16::new(gpu, rung.path)?;
        outputs[0].borrow_mut().fill_bytes(0xFF)?;
        matmul.launch(&inputs[0], &inputs[1], &mut outputs[0].borrow_mut(), Shape { m, n, k })?;
        let ours = error(&outputs[0].borrow().to_host()?, &host[0], &host[1], (m, n, k));
        assert!(ours <= 2.0 * theirs, "{} at {m}x{n}x{k}: error {ours:.2e}, cuBLAS {theirs:.2e}", rung.path);
        names.push(rung.path);
        let (inputs, outputs) = (&inputs, &outputs);
        work.push(boxed(move |call| {
            let set = call % count;
            matmul.launch(&inputs[2 * set], &inputs[2 * set + 1], &mut outputs[set].borrow_mut(), Shape { m, n, k })
        }));
    }
    work.push(boxed(|call| {
        run(call);
        Ok(())
    }));
    let samples = gpu.time_interleaved(&PLAN, &mut work)?;
    let rate = |ms: &f64| 2.0 * (m * n * k) as f64 / ms / 1e9;
    let peer: Vec<f64> = samples[names.len()].iter().map(rate).collect();
    for (name, ours) in names.iter().zip(&samples) {
        let (topic, rung) = name.split_once('/').expect("a folder and a file");
        let ours: Vec<f64> = ours.iter().map(rate).collect();
        let Summary { median, p10, p90, samples } = Summary::of(&ours);
        let ratio = Summary::of(&ours.iter().zip(&peer).map(|(a, b)| a / b).collect::<Vec<_>>()).median;
        let theirs = Summary::of(&peer).median;
        println!("{m}x{n}x{k} {name:32} {median:7.1} TFLOP/s  {ratio:.4} of cuBLAS ({theirs:.1})");
        let measured = format!("{median:.2},TFLOP/s,cuBLAS,{theirs:.2},{ratio:.4},{samples},{p10:.2},{p90:.2}");
        writeln!(csv, "{topic},{rung},bf16,{m}x{n}x{k},throughput,{measured}").expect("a String takes everything");
    }
    Ok(())
}

/// cuBLAS's product of the first set, and what queues one more; the library shares this process's context.
fn open<'a>(peer: &'a Library, host: &[Vec<u16>], (m, n, k): (usize, usize, usize)) -> (impl Fn(usize) + 'a, Vec<u16>) {
    type Open = unsafe extern "C" fn(*const *const u16, i32, i32, i32, i32) -> i32;
    type Run = unsafe extern "C" fn(i32) -> i32;
    type Take = unsafe extern "C" fn(*mut u16) -> i32;
    let pointers: Vec<*const u16> = host.iter().map(|matrix| matrix.as_ptr()).collect();
    let mut product = vec![0; m * n];
    // SAFETY: the three functions have these types in `env/peers/cublas_bf16.cu`; the matrices have these sizes, and
    // `peer_open` keeps none of the pointers; no product runs before it.
    let run = unsafe {
        let open = peer.get::<Open>(b"peer_open").expect("env/peers/cublas_bf16.cu has it");
        let run = peer.get::<Run>(b"peer_run").expect("env/peers/cublas_bf16.cu has it");
        let take = peer.get::<Take>(b"peer_result").expect("env/peers/cublas_bf16.cu has it");
        let sets = (pointers.len() / 2) as i32;
        assert_eq!(open(pointers.as_ptr(), sets, m as i32, n as i32, k as i32), 0, "cuBLAS has no room");
        assert_eq!(run(0), 0, "cuBLAS does not run");
        assert_eq!(take(product.as_mut_ptr()), 0, "cuBLAS's product cannot be read");
        run
    };
    // SAFETY: as above; the matrices were copied by `peer_open`.
    (move |call| assert_eq!(unsafe { run((call % 1024) as i32) }, 0, "cuBLAS does not run"), product)
}

/// ‖given − exact‖ ÷ ‖exact‖ over some of the rows, in f64. NaN, which was never written, makes it NaN.
fn error(given: &[u16], a: &[u16], b: &[u16], (m, n, k): (usize, usize, usize)) -> f64 {
    let number = |&bits: &u16| f64::from(cpu::f32_from_bf16(bits));
    let (mut off, mut all) = (0.0, 0.0);
    for row in (0..m).step_by(m.div_ceil(CHECKED_ROWS)) {
        let mut exact = vec![0.0; n];
        for (x, b_row) in a[row * k..(row + 1) * k].iter().map(number).zip(b.chunks_exact(n)) {
            exact.iter_mut().zip(b_row).for_each(|(sum, y)| *sum += x * number(y));
        }
        for (exact, given) in exact.iter().zip(&given[row * n..(row + 1) * n]) {
            off += (number(given) - exact).powi(2);
            all += exact * exact;
        }
    }
    (off / all).sqrt()
}

fn boxed<'a>(work: impl FnMut(usize) -> Result<()> + 'a) -> Contestant<'a> {
    Contestant::Calls(Box::new(work))
}
