//! Tensor-core instructions against a plain product.

mod common;

use common::{Random, clean, download, module, upload};
use warpsim::{Arg, Device, Kind, Launch};

/// 16 × 8 results of a (rows of k) and b (columns of k), plus the kernel's start values.
fn product(a: &[i32], b: &[i32], k: usize) -> Vec<f32> {
    let dot = |i: usize, j: usize| (0..k).map(|n| a[i * k + n] * b[j * k + n]).sum::<i32>();
    // Registers 0 to 3 start as 1 to 4: even and odd columns, upper and lower half.
    (0..128)
        .map(|at| (at / 8, at % 8))
        .map(|(i, j)| (dot(i, j) + 1 + (j % 2) as i32 + 2 * (i / 8) as i32) as f32)
        .collect()
}

/// Small whole numbers, exact in every type.
fn numbers(count: usize, seed: u64) -> Vec<i32> {
    let mut random = Random(seed);
    (0..count).map(|_| (random.bits() % 17) as i32 - 8).collect()
}

/// Bits of a small whole number as f16 or bf16.
fn half(x: i32, brain: bool) -> u16 {
    let bits = (x as f32).to_bits();
    if brain || x == 0 {
        return (bits >> 16) as u16;
    }
    let exponent = (bits >> 23 & 255) - 127 + 15;
    ((bits >> 16 & 0x8000) | exponent << 10 | bits >> 13 & 0x3ff) as u16
}

fn run(kernel: &str, a: Vec<u8>, b: Vec<u8>) -> (Device, u64) {
    let mut device = Device::new();
    let (x, y) = (upload(&mut device, &a), upload(&mut device, &b));
    let out = upload(&mut device, &[0u32; 128]);
    let args = [x, y, out].map(Arg::Pointer);
    clean(&mut device, &module("matrix"), kernel, Launch::linear(1, 32), &args);
    (device, out)
}

fn bytes<T>(numbers: &[i32], f: impl Fn(i32) -> T, to: impl Fn(T) -> Vec<u8>) -> Vec<u8> {
    numbers.iter().flat_map(|&x| to(f(x))).collect()
}

#[test]
fn halves_and_tf32() {
    let (a, b) = (numbers(16 * 16, 1), numbers(8 * 16, 2));
    for (kernel, brain) in [("mma_f16", false), ("mma_bf16", true)] {
        let pack = |x: &[i32]| bytes(x, |x| half(x, brain), |h| h.to_le_bytes().to_vec());
        let (device, out) = run(kernel, pack(&a), pack(&b));
        assert_eq!(download::<f32>(&device, out, 128), product(&a, &b, 16), "{kernel}");
    }
    let (a, b) = (numbers(16 * 8, 3), numbers(8 * 8, 4));
    // The low bits of a tf32 do not count.
    let pack = |x: &[i32]| bytes(x, |x| (x as f32).to_bits() | 0x1fff, |w| w.to_le_bytes().to_vec());
    let (device, out) = run("mma_tf32", pack(&a), pack(&b));
    assert_eq!(download::<f32>(&device, out, 128), product(&a, &b, 8));
}

#[test]
fn bytes_sum_in_integers() {
    let (a, b) = (numbers(16 * 32, 5), numbers(8 * 32, 6));
    let pack = |x: &[i32]| bytes(x, |x| x as i8, |x| x.to_le_bytes().to_vec());
    let (device, out) = run("mma_s8", pack(&a), pack(&b));
    let expected: Vec<i32> = product(&a, &b, 32).into_iter().map(|x| x as i32).collect();
    assert_eq!(download::<i32>(&device, out, 128), expected);
}

#[test]
fn copies_and_matrix_loads() {
    let (a, b) = (numbers(16 * 16, 7), numbers(8 * 16, 8));
    // b row by row.
    let rows: Vec<i32> = (0..128).map(|at| b[at % 8 * 16 + at / 8]).collect();
    let pack = |x: &[i32]| bytes(x, |x| half(x, false), |h| h.to_le_bytes().to_vec());
    let (device, out) = run("mma_tiles", pack(&a), pack(&rows));
    assert_eq!(download::<f32>(&device, out, 128), product(&a, &b, 16));
}

#[test]
fn part_of_a_warp_is_a_finding() {
    let mut device = Device::new();
    let buffer = upload(&mut device, &[0u32; 256]);
    let args = [buffer; 3].map(Arg::Pointer);
    let report = device.launch(&module("matrix"), "mma_f16", Launch::linear(1, 20), &args).expect("the call is right");
    assert_eq!(report.findings.iter().map(|f| f.kind).collect::<Vec<_>>(), [Kind::BarrierDivergence]);
}
