//! Whole kernels of the course and their kin, at awkward sizes, against plain Rust.

mod common;

use common::{Random, clean, download, module, upload};
use warpsim::{Arg, Device, Launch};

fn linear(n: usize, block: u32) -> Launch {
    Launch::linear((n as u32).div_ceil(block).max(1), block)
}

#[test]
fn vector_add_at_awkward_sizes() {
    let module = module("vector_add");
    for n in [1usize, 31, 32, 33, 255, 256, 257, 1000, 4097] {
        let mut random = Random(n as u64);
        let (a, b) = (random.floats(n), random.floats(n));
        let mut device = Device::new();
        let (x, y, out) = (upload(&mut device, &a), upload(&mut device, &b), upload(&mut device, &vec![0f32; n]));
        let args = [Arg::Pointer(x), Arg::Pointer(y), Arg::Pointer(out), Arg::I32(n as i32)];
        clean(&mut device, &module, "vector_add", linear(n, 256), &args);
        let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_eq!(download::<f32>(&device, out, n), expected, "n = {n}");
    }
}

/// Both fuse each multiply-add and sum in order of k: the simulator must agree to the bit.
fn matmul_reference(a: &[f32], b: &[f32], n: usize) -> Vec<f32> {
    let element = |i: usize, j: usize| (0..n).fold(0f32, |sum, k| a[i * n + k].mul_add(b[k * n + j], sum));
    (0..n * n).map(|at| element(at / n, at % n)).collect()
}

#[test]
fn matmul_naive_and_tiled() {
    for name in ["matmul_naive", "matmul_tiled", "12/matmul_tiled", "100/matmul_tiled"] {
        let module = module(name);
        for n in [1usize, 7, 16, 33, 50] {
            let mut random = Random(n as u64);
            let (a, b) = (random.floats(n * n), random.floats(n * n));
            let mut device = Device::new();
            let args = [
                Arg::Pointer(upload(&mut device, &a)),
                Arg::Pointer(upload(&mut device, &b)),
                Arg::Pointer(upload(&mut device, &vec![0f32; n * n])),
                Arg::I32(n as i32),
            ];
            let side = (n as u32).div_ceil(16);
            let launch = Launch { grid: [side, side, 1], block: [16, 16, 1], shared_bytes: 0 };
            clean(&mut device, &module, "matmul", launch, &args);
            let Arg::Pointer(out) = args[2] else { unreachable!() };
            assert_eq!(download::<f32>(&device, out, n * n), matmul_reference(&a, &b, n), "{name}, n = {n}");
        }
    }
}

#[test]
fn sums_with_shared_memory_shuffles_and_atomics() {
    for name in ["reduce", "100/reduce"] {
        let module = module(name);
        for n in [1usize, 100, 256, 1000, 5003] {
            let mut device = Device::new();
            let ints: Vec<i32> = (0..n as i32).map(|i| i * 7 - 300).collect();
            let (x, out) = (upload(&mut device, &ints), upload(&mut device, &[5i32]));
            let launch = Launch { shared_bytes: 128 * 4, ..linear(n, 128) };
            let args = [Arg::Pointer(x), Arg::Pointer(out), Arg::I32(n as i32)];
            clean(&mut device, &module, "sum_int", launch, &args);
            assert_eq!(download::<i32>(&device, out, 1)[0], ints.iter().sum::<i32>() + 5, "n = {n}");

            // Small whole numbers add exactly in any order.
            let floats: Vec<f32> = (0..n).map(|i| (i % 17) as f32).collect();
            let (x, out) = (upload(&mut device, &floats), upload(&mut device, &[0f32]));
            let args = [Arg::Pointer(x), Arg::Pointer(out), Arg::I32(n as i32)];
            clean(&mut device, &module, "sum_float", Launch::linear(3, 256), &args);
            assert_eq!(download::<f32>(&device, out, 1)[0], floats.iter().sum::<f32>(), "n = {n}");
        }
    }
}

#[test]
fn histogram_and_tickets() {
    for name in ["reduce", "100/reduce"] {
        let module = module(name);
        let mut random = Random(3);
        let n = 3001;
        let bytes: Vec<u8> = (0..n).map(|_| random.bits() as u8).collect();
        let mut device = Device::new();
        let (x, counts) = (upload(&mut device, &bytes), upload(&mut device, &[0u32; 256]));
        let args = [Arg::Pointer(x), Arg::Pointer(counts), Arg::I32(n)];
        clean(&mut device, &module, "histogram", Launch::linear(5, 192), &args);
        let mut expected = vec![0u32; 256];
        bytes.iter().for_each(|&b| expected[b as usize] += 1);
        assert_eq!(download::<u32>(&device, counts, 256), expected);

        // Blocks run in order when the result of an atomic is used: each thread gets its own index.
        let (next, taken) = (upload(&mut device, &[0u32]), upload(&mut device, &vec![0u32; n as usize]));
        let args = [Arg::Pointer(next), Arg::Pointer(taken), Arg::I32(n)];
        clean(&mut device, &module, "tickets", linear(n as usize, 96), &args);
        assert_eq!(download::<u32>(&device, taken, n as usize), (0..n as u32).collect::<Vec<_>>());
    }
}

#[test]
fn transpose_of_awkward_shapes() {
    let module = module("transpose");
    for (rows, cols) in [(1usize, 1usize), (32, 32), (33, 65), (70, 45)] {
        for kernel in ["transpose_plain", "transpose_padded"] {
            let data: Vec<f32> = (0..rows * cols).map(|i| i as f32).collect();
            let mut device = Device::new();
            let (x, out) = (upload(&mut device, &data), upload(&mut device, &vec![0f32; rows * cols]));
            let grid = [(cols as u32).div_ceil(32), (rows as u32).div_ceil(32), 1];
            let args = [Arg::Pointer(x), Arg::Pointer(out), Arg::I32(rows as i32), Arg::I32(cols as i32)];
            clean(&mut device, &module, kernel, Launch { grid, block: [32, 32, 1], shared_bytes: 0 }, &args);
            let result = download::<f32>(&device, out, rows * cols);
            for (at, value) in result.into_iter().enumerate() {
                assert_eq!(value, data[at % rows * cols + at / rows], "{kernel} {rows} × {cols} at {at}");
            }
        }
    }
}

#[test]
fn divergent_loops_with_breaks() {
    for name in ["patterns", "12/patterns"] {
        let module = module(name);
        let n = 500;
        let mut device = Device::new();
        let out = upload(&mut device, &vec![-1i32; n]);
        let args = [Arg::Pointer(out), Arg::I32(n as i32)];
        let report = clean(&mut device, &module, "divergent", linear(n, 64), &args);
        let expected: Vec<i32> = (0..n as i32).map(divergent_reference).collect();
        assert_eq!(download::<i32>(&device, out, n), expected);
        let counters = report.counters;
        assert!(counters.divergent_branches > 0 && counters.divergent_branches < counters.branches);
        assert!(counters.active_lanes_per_instruction() < 32.0);
    }
}

fn divergent_reference(i: i32) -> i32 {
    let mut sum = 0;
    for k in 0..=(i & 31) {
        if (k ^ i) & 1 != 0 {
            sum += k * 3;
            if sum > 100 {
                sum -= i;
            }
        } else {
            sum ^= k << 2;
        }
        if sum == 77 {
            break;
        }
    }
    sum
}

#[test]
fn spaces_structs_and_generic_addresses() {
    let module = module("spaces");
    let n = 70;
    let bytes: Vec<u8> = (0..n).map(|i| (i * 37 % 256) as u8).collect();
    let mut device = Device::new();
    let (x, out) = (upload(&mut device, &bytes), upload(&mut device, &vec![0f64; n]));
    let mut pair = Vec::new();
    pair.extend(3i32.to_le_bytes());
    pair.extend(2.5f32.to_le_bytes());
    pair.extend((-4i64).to_le_bytes());
    let args = [Arg::Bytes(pair), Arg::Pointer(x), Arg::Pointer(out), Arg::I32(n as i32)];
    clean(&mut device, &module, "spaces", linear(n, 32), &args);
    let table = [1.5f32, -2.0, 3.25, 0.125];
    let expected: Vec<f64> = (0..n)
        .map(|i| {
            let byte = i32::from(bytes[i]);
            let scratch: Vec<i32> = (0..8).map(|k| k * 3 + byte).collect();
            let generic = if i & 1 == 1 { 9 } else { scratch[3] };
            let whole = (scratch[byte as usize & 7] + generic) as f32;
            let sum = f64::from(2.5f32.mul_add(table[i & 3], whole)) - 4.0;
            match byte & 3 {
                0 => sum + 1.0,
                1 => sum * 2.0,
                2 => sum - 3.0,
                _ => sum + 40.0,
            }
        })
        .collect();
    assert_eq!(download::<f64>(&device, out, n), expected);
}

#[test]
fn every_atomic() {
    let module = module("atomics");
    let mut device = Device::new();
    let s = upload(&mut device, &[0i32, 0, 0, 1000]);
    let u = upload(&mut device, &[u32::MAX, 0, 0, 0, 3, 0, 5]);
    let l = upload(&mut device, &[0u64, 0]);
    let (f, d) = (upload(&mut device, &[0f32]), upload(&mut device, &[0f64]));
    let args = [s, u, l, f, d].map(Arg::Pointer);
    let n = 100u32;
    let report = clean(&mut device, &module, "atomics", Launch::linear(2, 50), &args);
    assert_eq!(download::<i32>(&device, s, 4), [-7, 99, -4950, 800]);
    let xor = (0..n).fold(0, |x, i| x ^ (i * 7));
    let (mut inc, mut dec) = (0u32, 3u32);
    for _ in 0..n {
        inc = if inc >= 10 { 0 } else { inc + 1 };
        dec = if dec == 0 || dec > 10 { 10 } else { dec - 1 };
    }
    assert_eq!(download::<u32>(&device, u, 7), [0, u32::MAX, xor, inc, dec, 99, 305]);
    assert_eq!(download::<u64>(&device, l, 2), [100 * 0x1_0000_0001, 99 << 33]);
    assert_eq!(download::<f32>(&device, f, 1), [50.0]);
    assert_eq!(download::<f64>(&device, d, 1), [25.0]);
    assert!(report.counters.global_atomics >= 14 * 4);
}

#[test]
fn kernels_that_rustc_prints() {
    let module = module("rust");
    let n = 150usize;
    let mut random = Random(11);
    let (a, b) = (random.floats(n), random.floats(n));
    let mut device = Device::new();
    let (x, y, out) = (upload(&mut device, &a), upload(&mut device, &b), upload(&mut device, &vec![0f32; n]));
    let args = [Arg::Pointer(x), Arg::Pointer(y), Arg::Pointer(out), Arg::I32(n as i32)];
    clean(&mut device, &module, "add", linear(n, 64), &args);
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(download::<f32>(&device, out, n), expected);

    // A loop, a remainder, and a `match` that becomes a jump by table.
    let values: Vec<i64> = (0..n).map(|_| random.bits() as i64).collect();
    let words: Vec<u64> = values.iter().map(|&v| v as u64).collect();
    let (x, out) = (upload(&mut device, &words), upload(&mut device, &vec![0i32; n]));
    let args = [Arg::Pointer(x), Arg::Pointer(out), Arg::I64(n as i64)];
    clean(&mut device, &module, "classify", linear(n, 64), &args);
    let expected: Vec<i32> = (0..n)
        .map(|i| {
            let sum = values[..=i].iter().fold(0i64, |sum, v| sum.wrapping_mul(31).wrapping_add(v % 7));
            match sum & 7 {
                0 => 10,
                1 => -3,
                2 => sum.count_ones() as i32,
                3 => (sum >> 40) as i32,
                5 => 99,
                _ => sum as i32,
            }
        })
        .collect();
    assert_eq!(download::<i32>(&device, out, n), expected);
}
