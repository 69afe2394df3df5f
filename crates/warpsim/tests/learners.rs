//! Kernels as learners write them, against the plainest Rust.

mod common;

use common::{Random, clean, download, module, upload};
use warpsim::{Arg, Device, Launch, Report};

/// A launch of kernels of `learners/basics`: buffers first, then numbers.
fn run(device: &mut Device, kernel: &str, launch: Launch, buffers: &[u64], numbers: &[i32]) -> Report {
    let args: Vec<Arg> = buffers.iter().map(|b| Arg::Pointer(*b)).chain(numbers.iter().map(|n| Arg::I32(*n))).collect();
    clean(device, &module("learners/basics"), kernel, launch, &args)
}

fn plane(grid: (u32, u32), block: (u32, u32)) -> Launch {
    Launch { grid: [grid.0, grid.1, 1], block: [block.0, block.1, 1], shared_bytes: 0 }
}

#[test]
fn histogram() {
    let mut random = Random(1);
    let data: Vec<u8> = (0..5000).map(|_| (random.bits() % 97 * 2) as u8).collect();
    let mut expected = [0u32; 256];
    data.iter().for_each(|&x| expected[x as usize] += 1);
    let mut device = Device::new();
    let (x, bins) = (upload(&mut device, &data), upload(&mut device, &[0u32; 256]));
    let args = [Arg::Pointer(x), Arg::Pointer(bins), Arg::I32(5000)];
    clean(&mut device, &module("learners/basics"), "histogram", Launch::linear(4, 128), &args);
    assert_eq!(download::<u32>(&device, bins, 256), expected);
}

#[test]
fn scan_and_sorts() {
    let mut random = Random(2);
    let data: Vec<i32> = (0..256).map(|_| (random.bits() % 2000) as i32 - 1000).collect();
    let mut device = Device::new();
    let (x, out) = (upload(&mut device, &data), upload(&mut device, &[0i32; 256]));
    let launch = Launch { grid: [1, 1, 1], block: [256, 1, 1], shared_bytes: 1024 };
    run(&mut device, "scan", launch, &[x, out], &[200]);
    let sums: Vec<i32> = (1..=200).map(|n| data[..n].iter().sum()).collect();
    assert_eq!(download::<i32>(&device, out, 200), sums);
    let mut sorted = data.clone();
    sorted.sort_unstable();
    run(&mut device, "bitonic", Launch::linear(1, 256), &[x], &[]);
    assert_eq!(download::<i32>(&device, x, 256), sorted);
    let y = upload(&mut device, &data);
    run(&mut device, "local_sort", Launch::linear(1, 32), &[y], &[256]);
    let parts = data.chunks(8).flat_map(|c| {
        let mut c = c.to_vec();
        c.sort_unstable();
        c
    });
    assert_eq!(download::<i32>(&device, y, 256), parts.collect::<Vec<_>>());
}

#[test]
fn stencil_and_blur() {
    let n = 300usize;
    let data = Random(3).floats(n);
    let mut device = Device::new();
    let (x, out) = (upload(&mut device, &data), upload(&mut device, &vec![0f32; n]));
    run(&mut device, "stencil", Launch::linear(3, 128), &[x, out], &[n as i32]);
    for (i, got) in download::<f32>(&device, out, n).into_iter().enumerate() {
        let sum: f32 = (i.saturating_sub(3)..(i + 4).min(n)).map(|k| data[k]).sum();
        assert!((got - sum).abs() < 1e-5, "{i}: {got} for {sum}");
    }
    run(&mut device, "blur", plane((2, 2), (16, 8)), &[x, out], &[25, 12]);
    for (i, got) in download::<f32>(&device, out, n).into_iter().enumerate() {
        let (row, column) = (i / 25 * 25, i % 25);
        let weighted = [1., 4., 6., 4., 1.].iter().zip(-2i32..);
        let sum: f32 = weighted.map(|(w, k)| w * data[row + (column as i32 + k).clamp(0, 24) as usize]).sum();
        assert!((got - sum / 16.0).abs() < 1e-5, "{i}: {got}");
    }
}

#[test]
fn text_search_and_checksums() {
    let text = b"the quick brown fox jumps over the lazy dog, and over the quick one";
    let mut device = Device::new();
    let what = b"over the quick";
    let (x, y, found) = (upload(&mut device, text), upload(&mut device, what), upload(&mut device, &[i32::MAX]));
    let lengths = [Arg::I32(text.len() as i32), Arg::I32(what.len() as i32)];
    let args = [Arg::Pointer(x), lengths[0].clone(), Arg::Pointer(y), lengths[1].clone(), Arg::Pointer(found)];
    clean(&mut device, &module("learners/basics"), "search", Launch::linear(3, 32), &args);
    assert_eq!(download::<i32>(&device, found, 1), [49]);
    let check = upload(&mut device, b"123456789123456789");
    let out = upload(&mut device, &[0u32; 2]);
    let args = [Arg::Pointer(check), Arg::I32(9), Arg::Pointer(out), Arg::I32(2)];
    clean(&mut device, &module("learners/basics"), "crc32", Launch::linear(1, 32), &args);
    // The check value of CRC-32 (ISO-HDLC).
    assert_eq!(download::<u32>(&device, out, 2), [0xcbf4_3926; 2]);
}

#[test]
fn numbers_one_by_one() {
    let n = 500usize;
    let mut device = Device::new();
    let out = upload(&mut device, &vec![0u32; n]);
    run(&mut device, "xorshift", Launch::linear(8, 64), &[out], &[n as i32, 99]);
    let expected = (0..n as u32).map(|i| {
        (0..10).fold(99 ^ i.wrapping_mul(2_654_435_761), |x, _| {
            let x = x ^ x << 13;
            let x = x ^ x >> 17;
            x ^ x << 5
        })
    });
    assert_eq!(download::<u32>(&device, out, n), expected.collect::<Vec<_>>());
    run(&mut device, "primes", Launch::linear(8, 64), &[out], &[n as i32]);
    let prime = |i: u32| u32::from(i >= 2 && (2..i).all(|d| !i.is_multiple_of(d)));
    assert_eq!(download::<u32>(&device, out, n), (0..n as u32).map(prime).collect::<Vec<_>>());
    let mut random = Random(4);
    let (a, b): (Vec<u32>, Vec<u32>) =
        (0..n).map(|_| ((random.bits() % 5000) as u32, (random.bits() % 5000) as u32)).unzip();
    let (x, y) = (upload(&mut device, &a), upload(&mut device, &b));
    run(&mut device, "gcd", Launch::linear(8, 64), &[x, y, out], &[n as i32]);
    let gcd = |(a, b): (u32, u32)| match (a, b) {
        (0, b) => b,
        (a, 0) => a,
        (a, b) => (1..=a.min(b)).rev().find(|d| a % d == 0 && b % d == 0).unwrap_or(1),
    };
    let expected: Vec<u32> = a.into_iter().zip(b).map(gcd).collect();
    assert_eq!(download::<u32>(&device, out, n), expected);
    let best = upload(&mut device, &[0i32]);
    run(&mut device, "collatz_most", Launch::linear(4, 64), &[best], &[250]);
    let steps = |mut x: u64| {
        let mut steps = 0;
        while x != 1 {
            x = if x % 2 == 1 { 3 * x + 1 } else { x / 2 };
            steps += 1;
        }
        steps
    };
    assert_eq!(download::<i32>(&device, best, 1), [(1..=250).map(steps).max().unwrap_or(0)]);
}

#[test]
fn pictures_and_planes() {
    let (w, h) = (40usize, 24usize);
    let mut device = Device::new();
    let out = upload(&mut device, &vec![0i32; w * h]);
    let report = run(&mut device, "mandelbrot", plane((3, 3), (16, 8)), &[out], &[w as i32, h as i32, 60]);
    assert!(report.counters.divergent_branches > 0);
    let result = download::<i32>(&device, out, w * h);
    let escape = |x: usize, y: usize| {
        let (cr, ci) = (-2.0 + 3.0 * x as f64 / w as f64, -1.5 + 3.0 * y as f64 / h as f64);
        let (mut zr, mut zi, mut i) = (0f64, 0f64, 0);
        while i < 60 && zr * zr + zi * zi < 4.0 {
            (zr, zi) = (zr * zr - zi * zi + cr, 2.0 * zr * zi + ci);
            i += 1;
        }
        i
    };
    // Singles and doubles part ways in few pixels at the edge of the set.
    let same = (0..w * h).filter(|i| (result[*i] - escape(i % w, i / w)).abs() <= 1).count();
    assert!(same > w * h * 97 / 100, "{same} of {}", w * h);

    let mut random = Random(6);
    let cells: Vec<u8> = (0..w * h).map(|_| u8::from(random.bits().is_multiple_of(3))).collect();
    let (x, y) = (upload(&mut device, &cells), upload(&mut device, &vec![9u8; w * h]));
    run(&mut device, "life", plane((3, 3), (16, 8)), &[x, y], &[w as i32, h as i32]);
    let alive = |i: usize| {
        let (x, y) = (i % w, i / w);
        let around = (0..9).filter(|k| *k != 4).map(|k| cells[(y + k / 3 + h - 1) % h * w + (x + k % 3 + w - 1) % w]);
        let count: u8 = around.sum();
        u8::from(count == 3 || count == 2 && cells[i] == 1)
    };
    assert_eq!(download::<u8>(&device, y, w * h), (0..w * h).map(alive).collect::<Vec<_>>());

    let size = [5i32, 4, 3];
    let out = upload(&mut device, &[0i32; 60]);
    let launch = Launch { grid: [2, 2, 2], block: [4, 2, 2], shared_bytes: 0 };
    let bytes = size.iter().flat_map(|n| n.to_le_bytes()).collect();
    let args = [Arg::Pointer(out), Arg::Bytes(bytes)];
    clean(&mut device, &module("learners/basics"), "volume", launch, &args);
    let expected = (0..60).map(|i| i % 5 + 10 * (i / 5 % 4) + 100 * (i / 20));
    assert_eq!(download::<i32>(&device, out, 60), expected.collect::<Vec<_>>());
}

#[test]
fn bodies_and_products() {
    let n = 100usize;
    let data = Random(7).floats(4 * n);
    let mut device = Device::new();
    let (x, out) = (upload(&mut device, &data), upload(&mut device, &vec![0f32; 4 * n]));
    run(&mut device, "nbody", Launch::linear(2, 64), &[x, out], &[n as i32]);
    let result = download::<f32>(&device, out, 4 * n);
    for i in 0..n {
        let at = |k: usize, c: usize| f64::from(data[4 * k + c]);
        let mut force = [0f64; 3];
        for k in 0..n {
            let d: [f64; 3] = std::array::from_fn(|c| at(k, c) - at(i, c));
            let r = 1.0 / (d.iter().map(|x| x * x).sum::<f64>() + 1e-3).sqrt();
            (0..3).for_each(|c| force[c] += d[c] * at(k, 3) * r * r * r);
        }
        for c in 0..3 {
            let got = f64::from(result[4 * i + c]);
            assert!((got - force[c]).abs() < 1e-3 * (1.0 + force[c].abs()), "{i}: {got} for {}", force[c]);
        }
    }
    let sum = upload(&mut device, &[0f32]);
    run(&mut device, "dot", Launch::linear(2, 96), &[x, x, sum], &[4 * n as i32]);
    let expected: f64 = data.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    let got = f64::from(download::<f32>(&device, sum, 1)[0]);
    assert!((got / expected - 1.0).abs() < 1e-5, "{got} for {expected}");
    let most = upload(&mut device, &[f32::MIN]);
    run(&mut device, "max_float", Launch::linear(4, 128), &[x, most], &[4 * n as i32]);
    assert_eq!(download::<f32>(&device, most, 1)[0], data.iter().copied().fold(f32::MIN, f32::max));
    let matrix = [1f32, 2., 3., 0., 1., 4., 5., 6., 0.];
    let bytes = matrix.iter().flat_map(|x| x.to_le_bytes()).collect();
    let args = [Arg::Bytes(bytes), Arg::Pointer(x), Arg::Pointer(out), Arg::I32(130)];
    clean(&mut device, &module("learners/basics"), "by_value", Launch::linear(3, 64), &args);
    for (i, got) in download::<f32>(&device, out, 390).into_iter().enumerate() {
        let row: f32 = (0..3).map(|c| matrix[i % 3 * 3 + c] * data[i / 3 * 3 + c]).sum();
        assert!((got - row).abs() < 1e-5, "{i}: {got} for {row}");
    }
}

#[test]
fn blocks_work_together() {
    let n = 700usize;
    let mut random = Random(8);
    let data: Vec<i32> = (0..n).map(|_| (random.bits() % 100) as i32).collect();
    let mut device = Device::new();
    let (x, out, count) =
        (upload(&mut device, &data), upload(&mut device, &vec![-1i32; n]), upload(&mut device, &[0i32]));
    run(&mut device, "compact", Launch::linear(6, 128), &[x, out, count], &[n as i32]);
    let kept: Vec<i32> = data.iter().copied().filter(|x| x % 3 == 0).collect();
    assert_eq!(download::<i32>(&device, count, 1)[0] as usize, kept.len());
    let mut got = download::<i32>(&device, out, kept.len());
    let mut expected = kept;
    got.sort_unstable();
    expected.sort_unstable();
    assert_eq!(got, expected);
    let (partial, done, sum) =
        (upload(&mut device, &[0i32; 11]), upload(&mut device, &[0u32]), upload(&mut device, &[0i32]));
    run(&mut device, "reduce_last_block", Launch::linear(11, 64), &[x, partial, done, sum], &[n as i32]);
    assert_eq!(download::<i32>(&device, sum, 1), [data.iter().sum::<i32>()]);
}

#[test]
fn a_switch_over_long_numbers() {
    let ops = b"+-*/%&<>uh?";
    let mut random = Random(9);
    let n = ops.len() * 20;
    let which: Vec<u8> = (0..n).map(|i| ops[i % ops.len()]).collect();
    let mut draw = || (random.bits() as i64) >> (random.bits() % 60);
    let (a, b): (Vec<i64>, Vec<i64>) = (0..n).map(|_| (draw(), draw())).unzip();
    let mut device = Device::new();
    let longs = |device: &mut Device, x: &[i64]| upload(device, &x.iter().map(|x| *x as u64).collect::<Vec<_>>());
    let (x, y, out) = (longs(&mut device, &a), longs(&mut device, &b), upload(&mut device, &vec![0u64; n]));
    let op = upload(&mut device, &which);
    run(&mut device, "calculator", Launch::linear(4, 64), &[op, x, y, out], &[n as i32]);
    for (i, got) in download::<u64>(&device, out, n).into_iter().enumerate() {
        let (x, y) = (a[i], b[i]);
        let expected = match which[i] {
            b'+' => x.wrapping_add(y),
            b'-' => x.wrapping_sub(y),
            b'*' => x.wrapping_mul(y),
            b'/' => x.checked_div(y).unwrap_or(0),
            b'%' => x.checked_rem(y).unwrap_or(0),
            b'&' => x & y,
            b'<' => x << (y & 63),
            b'>' => x >> (y & 63),
            b'u' => (x as u64 / if y == 0 { 1 } else { y as u64 }) as i64,
            b'h' => ((i128::from(x) * i128::from(y)) >> 64) as i64,
            _ => -1,
        };
        assert_eq!(got as i64, expected, "{} of {x} and {y}", which[i] as char);
    }
}
