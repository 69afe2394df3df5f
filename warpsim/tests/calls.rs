//! Device functions that stay calls in the PTX.

mod common;

use common::{Random, clean, download, module, upload};
use warpsim::{Arg, Device, Launch, Module};

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

#[test]
fn recursion_is_refused_by_name() {
    let path = format!("{}/tests/ptx/recursion.ptx", env!("CARGO_MANIFEST_DIR"));
    let error = Module::load(&std::fs::read_to_string(path).expect("the fixture")).expect_err("recursion");
    let text = error.to_string();
    assert!(text.contains("recursion.cu:2") && text.contains("`_Z3fibi` calls itself"), "{text}");
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
