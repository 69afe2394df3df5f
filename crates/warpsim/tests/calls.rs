//! Device functions that stay calls in the PTX.

mod common;

use common::{Random, clean, download, module, upload};
use warpsim::{Arg, Device, Kind, Launch, PtxModule};

fn poly(x: f32, n: i32) -> f32 {
    (0..n).fold(0f32, |s, i| s.mul_add(x, i as f32))
}

fn collatz(mut n: i32) -> i32 {
    let mut steps = 0;
    while n > 1 {
        n = if n & 1 != 0 { 3 * n + 1 } else { n / 2 };
        steps += 1;
    }
    steps
}

#[test]
fn calls_within_calls() {
    let n = 180usize;
    let mut random = Random(12);
    let input = random.floats(n);
    let mut device = Device::new();
    let (x, out) = (upload(&mut device, &input), upload(&mut device, &vec![0f32; n]));
    let args = [Arg::Pointer(x), Arg::Pointer(out), Arg::I32(n as i32)];
    let report = clean(&mut device, &module("calls"), "calls", Launch::linear(3, 64), &args);
    // The threads of a warp leave the inner loop at different times, and meet again.
    assert!(report.counters.divergent_branches > 0);
    let result = download::<f32>(&device, out, n);
    for (i, got) in result.into_iter().enumerate() {
        let (x, i) = (input[i], i as i32);
        let second = poly(x, i & 3) + collatz(i + 1) as f32;
        let first = poly(x, i & 7) + (collatz(i) + 1) as f32;
        let neighbour = i ^ 1;
        let expected = neighbour as f32 * 0.5 + (first + second) + (2 * neighbour) as f32;
        assert!((got - expected).abs() <= 1e-3, "thread {i}: {got} for {expected}");
    }
}

/// Runs a kernel of `recursion` with a word a thread.
fn recursion(kernel: &str, threads: u32) -> Vec<i32> {
    let mut device = Device::new();
    let out = upload(&mut device, &vec![0i32; threads as usize]);
    clean(&mut device, &module("recursion"), kernel, Launch::linear(1, threads), &[Arg::Pointer(out)]);
    download(&device, out, threads as usize)
}

#[test]
fn functions_call_themselves() {
    let fib = |n: i32| (0..n).fold((0, 1), |(a, b), _| (b, a + b)).0;
    assert_eq!(recursion("fibonacci", 70), (0..70).map(|i| fib(i % 11)).collect::<Vec<_>>());
    // A(0, n) = n + 1, A(1, n) = n + 2, A(2, n) = 2 n + 3.
    let ackermann = |m: i32, n: i32| [n + 1, n + 2, 2 * n + 3][m as usize];
    assert_eq!(recursion("ackermann", 32), (0..32).map(|i| ackermann(i % 3, i / 3)).collect::<Vec<_>>());
    assert_eq!(recursion("parity", 40), (0..40).map(|i| i % 2).collect::<Vec<_>>());
    // Every move of the towers once: 2^n - 1 of them, and the sum of what the moves are worth.
    fn towers(n: i32, from: i32, to: i32, by: i32) -> i32 {
        if n == 0 { 0 } else { towers(n - 1, from, by, to) + n * (10 * from + to) + towers(n - 1, by, to, from) }
    }
    assert_eq!(recursion("towers", 32), (0..32).map(|i| towers(i % 7, 1, 3, 2)).collect::<Vec<_>>());
    // A tree of calls from within a loop, and lanes that end inside a call.
    fn tree(n: i32) -> i32 {
        if n <= 0 { 1 } else { (1..=3).map(|k| k * tree(n - k)).sum() }
    }
    let expected = (0..48).map(|i| if i % 8 == 7 { 0 } else { tree(i % 8) });
    assert_eq!(recursion("trees", 48), expected.collect::<Vec<_>>());
}

#[test]
fn recursion_that_cannot_end_or_run_is_named() {
    let mut device = Device::new();
    let out = upload(&mut device, &[0i32; 32]);
    let report = device.launch(&module("recursion"), "endless", Launch::linear(1, 32), &[Arg::Pointer(out)]);
    let findings = report.expect("it runs").findings;
    assert_eq!(findings.iter().map(|f| f.kind).collect::<Vec<_>>(), [Kind::StepBudget]);
    assert!(findings[0].message.contains("calls are open within each other"), "{}", findings[0]);
    let path = format!("{}/tests/ptx/recursion_arrays.ptx", env!("CARGO_MANIFEST_DIR"));
    let error = PtxModule::load(&std::fs::read_to_string(path).expect("the fixture")).expect_err("an array");
    let text = error.to_string();
    assert!(text.contains("has an array of its own and is called by itself") && text.contains("next: "), "{text}");
}

#[test]
fn printf_prints_block_after_block() {
    for cores in [1, 4] {
        let mut device = Device::new();
        device.set_cores(cores);
        let report = clean(&mut device, &module("printing"), "printing", Launch::linear(3, 4), &[Arg::I32(10)]);
        let line = |i: i32| {
            let (half, letter) = (f64::from(i) * 0.5, char::from(b'a' + i as u8));
            format!(
                "thread {i} of all: {half:5.2}|{i:<6}|{:06}|{:x}|-5000000000|{letter}|%|1e-07|1.234568e+04\n",
                -i,
                255 + i
            )
        };
        let expected = [line(0), line(3), "no arguments\n".into(), line(6), line(9)].concat();
        assert_eq!(report.printed, expected);
    }
}

#[test]
fn calls_through_pointers() {
    let pointers = module("pointers");
    let mut device = Device::new();
    let out = upload(&mut device, &[0f32; 40]);
    clean(&mut device, &pointers, "shapes", Launch::linear(1, 40), &[Arg::Pointer(out)]);
    let area = |i: usize| [(i * i) as f32, 3.0 * ((i + 1) * (i + 1)) as f32, 0.0][i % 3];
    assert_eq!(download::<f32>(&device, out, 40), (0..40).map(area).collect::<Vec<_>>());
    clean(&mut device, &pointers, "tables", Launch::linear(1, 40), &[Arg::Pointer(out)]);
    let apply = |i: usize| (0..i % 4).fold(i as f32, |x, k| [2.0 * x, x * x, x * x * (x * x)][(i + k) % 3] / 8.0);
    assert_eq!(download::<f32>(&device, out, 40), (0..40).map(apply).collect::<Vec<_>>());
    let data: Vec<i32> = (0..36).map(|i| i * 37 % 23).collect();
    let (x, y) = (upload(&mut device, &data), upload(&mut device, &[0i32; 32]));
    clean(&mut device, &pointers, "ends", Launch::linear(1, 32), &[Arg::Pointer(x), Arg::Pointer(y)]);
    let ends = data.windows(5).enumerate().map(|(i, w)| if i % 2 == 1 { w.iter().min() } else { w.iter().max() });
    assert_eq!(download::<i32>(&device, y, 32), ends.flatten().copied().collect::<Vec<_>>());
    let args = [Arg::Pointer(4096), Arg::Pointer(out)];
    let report = device.launch(&pointers, "nowhere", Launch::linear(1, 32), &args).expect("it runs");
    assert_eq!(report.findings.iter().map(|f| f.kind).collect::<Vec<_>>(), [Kind::OutOfBounds]);
    assert!(report.findings[0].message.contains("a call through a pointer"), "{}", report.findings[0]);
}
