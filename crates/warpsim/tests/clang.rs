//! CUDA C++ and OpenCL C that clang compiled by itself (`fixtures/clang`), against plain loops.

mod common;

use common::{Random, clean, download, load, upload};
use warpsim::{Arg, Device, Launch, PtxModule};

fn cuda() -> PtxModule {
    load(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/clang/kernels_cu.ptx"))
}

fn opencl() -> PtxModule {
    load(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/clang/kernels_cl.ptx"))
}

/// Numbers whose sums and products are exact.
fn whole(random: &mut Random, count: usize) -> Vec<f32> {
    (0..count).map(|_| (random.bits() % 15) as f32 - 7.0).collect()
}

#[test]
fn a_structure_by_value() {
    let module = cuda();
    for n in [1, 33, 1000] {
        let mut device = Device::new();
        let x = Random(1).floats(n);
        let (on_x, y) = (upload(&mut device, &x), upload(&mut device, &vec![f64::NAN; n]));
        let (factor, offset) = (1.5_f32, 0.1_f64);
        // The second member begins at a multiple of 8.
        let line = [factor.to_le_bytes().to_vec(), vec![0; 4], offset.to_le_bytes().to_vec()].concat();
        let args = [Arg::Pointer(on_x), Arg::Pointer(y), Arg::I32(n as i32), Arg::Bytes(line)];
        clean(&mut device, &module, "line", Launch::linear(3, 64), &args);
        let exact: Vec<f64> = x.iter().map(|x| f64::from(factor * x) + offset).collect();
        assert_eq!(download::<f64>(&device, y, n), exact);
    }
}

#[test]
fn transpose() {
    let module = cuda();
    for (rows, columns) in [(1, 1), (31, 33), (65, 127)] {
        let mut device = Device::new();
        let from = Random(2).floats(rows * columns);
        let (on_from, to) = (upload(&mut device, &from), upload(&mut device, &vec![f32::NAN; rows * columns]));
        let args = [Arg::Pointer(on_from), Arg::Pointer(to), Arg::I32(rows as i32), Arg::I32(columns as i32)];
        let grid = [columns.div_ceil(32) as u32, rows.div_ceil(32) as u32, 1];
        let report =
            clean(&mut device, &module, "transpose", Launch { grid, block: [32, 8, 1], shared_bytes: 0 }, &args);
        assert_eq!(report.counters.shared_load_bank_conflicts, 0);
        let given: Vec<f32> = download(&device, to, rows * columns);
        (0..rows * columns).for_each(|at| assert_eq!(given[at % columns * rows + at / columns], from[at]));
    }
}

#[test]
fn sum() {
    let module = cuda();
    for (n, threads) in [(1, 32), (31, 64), (10_007, 1024), (10_007, 96)] {
        let (mut device, mut random) = (Device::new(), Random(3));
        let x: Vec<i32> = (0..n).map(|_| random.bits() as i32).collect();
        let (on_x, total) = (upload(&mut device, &x), upload(&mut device, &[0]));
        let args = [Arg::Pointer(on_x), Arg::Pointer(total), Arg::I32(n)];
        clean(&mut device, &module, "sum", Launch::linear(3, threads), &args);
        let exact = x.iter().fold(0_i32, |sum, &x| sum.wrapping_add(x));
        assert_eq!(download::<i32>(&device, total, 1), [exact]);
    }
}

#[test]
fn histogram() {
    let module = cuda();
    let (mut device, mut random) = (Device::new(), Random(4));
    let x: Vec<u8> = (0..5003).map(|_| (random.bits() % 200) as u8).collect();
    let (on_x, counts) = (upload(&mut device, &x), upload(&mut device, &[0_i32; 256]));
    let args = [Arg::Pointer(on_x), Arg::Pointer(counts), Arg::I32(x.len() as i32)];
    clean(&mut device, &module, "histogram", Launch::linear(4, 128), &args);
    let mut exact = vec![0; 256];
    x.iter().for_each(|&x| exact[usize::from(x)] += 1);
    assert_eq!(download::<i32>(&device, counts, 256), exact);
}

fn mixed_of(i: i32) -> i32 {
    let (mut digits, mut rest) = (Vec::new(), i);
    while rest > 0 {
        digits.push(rest % 7);
        rest /= 7;
    }
    let (mut value, mut x) = (0, i64::from(i) + 1);
    while x != 1 {
        x = if x % 2 != 0 { 3 * x + 1 } else { x / 2 };
        value += 1;
    }
    match i % 6 {
        0 => value + [2, 3, 5, 7, 11, 13, 17, 19][i as usize / 6 % 8],
        1 => value * 3,
        2 => value ^ 0x55,
        3 => value - digits.last().unwrap_or(&0),
        4 => -value,
        _ => digits[i as usize % digits.len()],
    }
}

#[test]
fn calls_switches_local_and_constant_memory() {
    let module = cuda();
    for n in [1, 31, 1025] {
        let mut device = Device::new();
        let out = upload(&mut device, &vec![i32::MIN; n]);
        let args = [Arg::Pointer(out), Arg::I32(n as i32)];
        clean(&mut device, &module, "mixed", Launch::linear(n.div_ceil(128) as u32, 128), &args);
        assert_eq!(download::<i32>(&device, out, n), (0..n as i32).map(mixed_of).collect::<Vec<_>>());
    }
}

#[test]
fn opencl_c() {
    let module = opencl();
    for (rows, columns) in [(1, 1), (31, 33), (7, 257)] {
        let (mut device, mut random) = (Device::new(), Random(5));
        let (matrix, x) = (whole(&mut random, rows * columns), whole(&mut random, columns));
        let [on_matrix, on_x] = [&matrix, &x].map(|x| upload(&mut device, x));
        let y = upload(&mut device, &vec![f32::NAN; rows]);
        let args = [Arg::Pointer(on_matrix), Arg::Pointer(on_x), Arg::Pointer(y), Arg::I32(columns as i32)];
        clean(&mut device, &module, "matrix_vector", Launch::linear(rows as u32, 64), &args);
        let product = |row: &[f32]| row.iter().zip(&x).map(|(a, b)| a * b).sum::<f32>();
        assert_eq!(download::<f32>(&device, y, rows), matrix.chunks(columns).map(product).collect::<Vec<_>>());
    }
    let (mut device, n) = (Device::new(), 33);
    let x = Random(6).floats(n * 4);
    let on_x = upload(&mut device, &x);
    let args = [Arg::Pointer(on_x), Arg::F32(0.3), Arg::I32(n as i32)];
    let report = clean(&mut device, &module, "scale_4", Launch::linear(2, 32), &args);
    // Two warps, of which the second has one thread inside: 33 vectors of 16 bytes in sectors of 32.
    assert_eq!((report.counters.global_load_requests, report.counters.global_load_sectors), (2, 17));
    assert_eq!(download::<f32>(&device, on_x, n * 4), x.iter().map(|x| x * 0.3).collect::<Vec<_>>());
}
