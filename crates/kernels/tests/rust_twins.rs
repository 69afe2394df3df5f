//! The twins in Rust: right in the simulator, without a mistake, and with the counters of the CUDA C beside them.

use gpulab::cpu::{AttentionMask, AttentionShape};
use gpulab::inspect::Counters;
use gpulab::launch::Source;
use gpulab::prelude::*;
use gpulab::sim::BlockOrder;
use gpulab_kernels::ladder::{Leaves, RUNGS, Rung};
use std::collections::BTreeSet;

const LENGTHS: [usize; 5] = [1, 31, 33, 70_000, 100_003];

/// Rows, columns and the length of the sums.
const SHAPES: [(usize, usize, usize); 5] = [(1, 1, 1), (31, 33, 31), (33, 31, 33), (127, 65, 129), (129, 264, 0)];

/// Blocks start in this order at each of them; the last two have several blocks.
const ORDERS: [BlockOrder; 5] =
    [BlockOrder::Forward, BlockOrder::Forward, BlockOrder::Forward, BlockOrder::Random(1), BlockOrder::Reverse];

fn twins() -> Vec<(Rung, Source)> {
    RUNGS.iter().filter_map(|rung| Some((*rung, rung.rust_source().ok()?))).collect()
}

#[test]
fn every_file_is_a_rungs_twin() {
    let known: BTreeSet<String> = twins().iter().map(|(rung, _)| format!("{}.rs", rung.path)).collect();
    let folder = gpulab_kernels::ladder::folder();
    let mut files = BTreeSet::new();
    for topic in ["vector_add", "reduction", "matmul", "matmul_bf16", "softmax", "flash_attention"] {
        for file in std::fs::read_dir(folder.join(topic)).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            files.extend(name.ends_with(".rs").then(|| format!("{topic}/{name}")));
        }
    }
    assert_eq!(files, known);
}

#[test]
fn every_twin_is_right_and_makes_no_mistake() {
    let gpu = Gpu::simulated().unwrap();
    let Gpu::Simulated(simulated) = &gpu else { panic!("the simulator was opened") };
    for (rung, source) in twins() {
        for source in [source.clone(), source.checked()] {
            let compiled = gpu.compile(source).and_then(|module| module.kernel(rung.kernel));
            let kernel = compiled.unwrap_or_else(|error| panic!("{}: {error}", rung.path));
            for ((n, shape), order) in LENGTHS.into_iter().zip(SHAPES).zip(ORDERS) {
                simulated.set_block_order(order);
                drop(run(&gpu, &rung, &kernel, n, shape));
            }
        }
    }
}

/// With the constants for heads of 64 numbers.
#[test]
fn attention_is_right_with_narrow_heads() {
    let gpu = Gpu::simulated_in(BlockOrder::Random(1)).unwrap();
    for (rung, _) in twins().into_iter().filter(|(rung, _)| rung.kernel == "flash_attention") {
        let rung = rung.for_heads_of(64).unwrap();
        let kernel = gpu.compile(rung.rust_source().unwrap()).unwrap().kernel(rung.kernel).unwrap();
        for length in [31, 129] {
            drop(flash_attention(&gpu, &rung, &kernel, length).unwrap());
        }
    }
}

/// What the hardware counts of memory and barriers; instructions differ from compiler to compiler.
fn of_memory(counters: &Counters) -> Vec<(&'static str, u64)> {
    let own = |name: &str| !name.contains("instructions") && !name.contains("branches");
    counters.rows().into_iter().filter(|(name, _)| own(name)).collect()
}

#[test]
fn counters_are_those_of_cuda_c() {
    let gpu = Gpu::simulated().unwrap();
    for (rung, source) in twins() {
        let counters = |source: Source| {
            let kernel = gpu.compile(source).unwrap().kernel(rung.kernel).unwrap();
            run(&gpu, &rung, &kernel, 70_000, (127, 65, 129)).counters
        };
        let (ours, theirs) = (counters(source), counters(rung.source().unwrap()));
        println!(
            "{}: {} instructions in Rust, {} in CUDA C",
            rung.path, ours.warp_instructions, theirs.warp_instructions
        );
        assert_eq!(of_memory(&ours), of_memory(&theirs), "{}", rung.path);
    }
}

fn run(gpu: &Gpu, rung: &Rung, kernel: &Kernel, n: usize, shape: (usize, usize, usize)) -> Inspection {
    let done = match rung.kernel {
        "vector_add" => vector_add(gpu, rung, kernel, n),
        "reduce" => sum(gpu, rung, kernel, n),
        "matmul" => matmul(gpu, rung, kernel, shape),
        "matmul_bf16" => matmul_bf16(gpu, rung, kernel, shape),
        "softmax" => softmax(gpu, rung, kernel, (shape.0, shape.1)),
        "flash_attention" => flash_attention(gpu, rung, kernel, shape.0),
        other => panic!("nobody holds `{other}` against a reference\nnext: add it here"),
    };
    done.unwrap_or_else(|error| panic!("{} at {n} or {shape:?}: {error}", rung.path))
}

fn vector_add(gpu: &Gpu, rung: &Rung, kernel: &Kernel, n: usize) -> Result<Inspection> {
    let (a, b) = (cpu::random_f32(n, 1), cpu::random_f32(n, 2));
    let (on_a, on_b, mut c) = (gpu.to_device(&a)?, gpu.to_device(&b)?, gpu.poison::<f32>(n)?);
    let seen = kernel.inspect(rung.launch(n, 1, gpu.multiprocessors()), (&on_a, &on_b, &mut c, n as i32))?;
    assert_eq!(seen.findings, [], "{}", rung.path);
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(c.to_host()?, expected, "{} at n = {n}", rung.path);
    Ok(seen)
}

/// Of 1, 2, …, 7, 1, …, whose sums are exact: up to two million elements, nothing exceeds 2²⁴.
fn sum(gpu: &Gpu, rung: &Rung, kernel: &Kernel, n: usize) -> Result<Inspection> {
    let a: Vec<f32> = (0..n).map(|i| (1 + i % 7) as f32).collect();
    let mut from = gpu.to_device(&a)?;
    let mut first = None;
    loop {
        let config = rung.launch(from.len(), 1, gpu.multiprocessors());
        let added = rung.leaves == Leaves::Added;
        let room = if added { 1 } else { config.grid.0 as usize };
        let mut partial = if added { gpu.zeros::<f32>(1)? } else { gpu.poison(room)? };
        let seen = kernel.inspect(config, (&from, &mut partial, from.len() as i32))?;
        assert_eq!(seen.findings, [], "{}", rung.path);
        first.get_or_insert(seen);
        from = partial;
        if room == 1 {
            break;
        }
    }
    let exact: f64 = a.iter().copied().map(f64::from).sum();
    assert_eq!(f64::from(from.to_host()?[0]), exact, "{} at n = {n}", rung.path);
    Ok(first.expect("one launch at least"))
}

/// Of small whole numbers, so that every order of the additions gives the same.
fn matmul(gpu: &Gpu, rung: &Rung, kernel: &Kernel, (m, n, k): (usize, usize, usize)) -> Result<Inspection> {
    let whole = |len: usize, step: usize| -> Vec<f32> { (0..len).map(|i| (i * step % 7) as f32 - 3.0).collect() };
    let (a, b) = (whole(m * k, 3), whole(k * n, 5));
    let (on_a, on_b, mut c) = (gpu.to_device(&a)?, gpu.to_device(&b)?, gpu.poison::<f32>(m * n)?);
    let config = rung.launch(n, m, gpu.multiprocessors());
    let seen = kernel.inspect(config, (&on_a, &on_b, &mut c, m as i32, n as i32, k as i32))?;
    assert_eq!(seen.findings, [], "{}", rung.path);
    for (at, given) in c.to_host()?.into_iter().enumerate() {
        let exact: f32 = (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum();
        assert_eq!(given, exact, "{} at {m}, {n}, {k}, element {at}", rung.path);
    }
    Ok(seen)
}

/// Of rows with infinities and large numbers, each sum 1 and each number within what bf16 rounds.
fn softmax(gpu: &Gpu, rung: &Rung, kernel: &Kernel, (rows, columns): (usize, usize)) -> Result<Inspection> {
    let bf16 = |x: f32| f32::from_bits(x.to_bits() & 0xffff_0000);
    let number = |i: usize| match i % columns {
        0 => 300.0,
        7 => f32::NEG_INFINITY,
        at => bf16(300.0 - (at * 5 % 17) as f32 * 0.7),
    };
    let x: Vec<f32> = (0..rows * columns).map(number).collect();
    let bits: Vec<u16> = x.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
    let (on_x, mut y) = (gpu.to_device(&bits)?, gpu.poison::<u16>(rows * columns)?);
    let config = rung.launch(columns, rows, gpu.multiprocessors());
    let seen = kernel.inspect(config, (&on_x, &mut y, rows as i32, columns as i32))?;
    assert_eq!(seen.findings, [], "{}", rung.path);
    let given: Vec<f64> = y.to_host()?.iter().map(|&y| f64::from(f32::from_bits(u32::from(y) << 16))).collect();
    for (row, given) in x.chunks(columns).zip(given.chunks(columns)) {
        let exps: Vec<f64> = row.iter().map(|&x| f64::from(x - 300.0).exp()).collect();
        let sum: f64 = exps.iter().sum();
        for (at, (given, exp)) in given.iter().zip(&exps).enumerate() {
            let exact = exp / sum;
            assert!((given - exact).abs() <= exact * 0.005 + 1e-9, "{}: column {at}: {given} for {exact}", rung.path);
        }
    }
    Ok(seen)
}

/// Of small whole numbers, exact in f32; c is rounded to bf16.
fn matmul_bf16(gpu: &Gpu, rung: &Rung, kernel: &Kernel, (m, n, k): (usize, usize, usize)) -> Result<Inspection> {
    let bits = |x: f32| (x.to_bits() >> 16) as u16;
    let whole = |len: usize, step: usize| -> Vec<f32> { (0..len).map(|i| (i * step % 3) as f32 - 1.0).collect() };
    let (a, b) = (whole(m * k, 7), whole(k * n, 5));
    let on = |x: &[f32]| gpu.to_device(&x.iter().map(|&x| bits(x)).collect::<Vec<u16>>());
    let (on_a, on_b, mut c) = (on(&a)?, on(&b)?, gpu.poison::<u16>(m * n)?);
    let config = rung.launch(n, m, gpu.multiprocessors());
    let seen = kernel.inspect(config, (&on_a, &on_b, &mut c, m as i32, n as i32, k as i32))?;
    assert_eq!(seen.findings, [], "{}", rung.path);
    for (at, given) in c.to_host()?.into_iter().enumerate() {
        // Sums of at most 129 numbers from -1 to 1 have eight bits: bf16 holds them.
        let exact = (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).fold(0.0, |sum: f32, x| sum + x);
        assert_eq!(given, bits(exact), "{} at {m}, {n}, {k}, element {at}", rung.path);
    }
    Ok(seen)
}

/// Two heads of q that share one of k and v, without a mask and with one, against f64.
fn flash_attention(gpu: &Gpu, rung: &Rung, kernel: &Kernel, length: usize) -> Result<Inspection> {
    let (_, width) = rung.defines.iter().find(|(name, _)| *name == "HEAD").expect("a head's numbers");
    let shape = AttentionShape { batch: 1, q_heads: 2, kv_heads: 1, length, width: *width as usize };
    let inputs =
        cpu::attention_inputs(shape, 3, 4.0).map(|x| x.into_iter().map(cpu::bf16_from_f32).collect::<Vec<_>>());
    let number = |bits: &[u16], at: usize| f64::from(cpu::f32_from_bf16(bits[at]));
    let [q, k, v] = &inputs;
    let [on_q, on_k, on_v] = [gpu.to_device(q)?, gpu.to_device(k)?, gpu.to_device(v)?];
    let config = rung.launch(length * shape.width, shape.q_heads, gpu.multiprocessors());
    let scale = std::f32::consts::LOG2_E / (shape.width as f32).sqrt();
    let run = |causal: bool| {
        let mut o = gpu.poison::<u16>(shape.q_numbers())?;
        let seen = kernel.inspect(config, (&on_q, &on_k, &on_v, &mut o, length as i32, 2, scale, i32::from(causal)))?;
        assert_eq!(seen.findings, [], "{}", rung.path);
        let (o, rows) = (o.to_host()?, (0..shape.rows()).collect::<Vec<_>>());
        let (of_q, of_k, of_v) = (|at| number(q, at), |at| number(k, at), |at| number(v, at));
        let (mask, inputs) =
            (AttentionMask { causal, ..AttentionMask::default() }, (&of_q as _, &of_k as _, &of_v as _));
        let off = cpu::attention_wrong(&|at| number(&o, at), inputs, shape, &mask, &rows, cpu::Rounding::Bf16);
        assert_eq!(off, None, "{} at {length}, causal: {causal}", rung.path);
        Ok(seen)
    };
    // What is asked of memory is compared under the mask.
    let _whole = run(false)?;
    run(true)
}
