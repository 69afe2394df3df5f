//! Tensor cores through `nvcuda::wmma`, and the further shapes of `mma.sync`, against sums in whole numbers.

mod common;

use common::{Random, clean, download, module, upload};
use warpsim::{Arg, Device, Kind, Launch};

/// Whole numbers from `least`, `count` different ones: small enough to be exact in every type.
fn numbers(count: usize, seed: u64, (least, kinds): (i32, u64)) -> Vec<i32> {
    let mut random = Random(seed);
    (0..count).map(|_| (random.bits() % kinds) as i32 + least).collect()
}

/// How an element lies in memory.
#[derive(Clone, Copy, PartialEq)]
enum Kept {
    F16,
    Bf16,
    F32,
    F64,
    Byte,
    Word,
}

impl Kept {
    fn put(self, x: i32) -> Vec<u8> {
        match self {
            Self::F16 => half(x).to_le_bytes().to_vec(),
            Self::Bf16 => (((x as f32).to_bits() >> 16) as u16).to_le_bytes().to_vec(),
            Self::F32 => (x as f32).to_le_bytes().to_vec(),
            Self::F64 => f64::from(x).to_le_bytes().to_vec(),
            Self::Byte => vec![x as u8],
            Self::Word => x.to_le_bytes().to_vec(),
        }
    }

    fn all(self, numbers: &[i32]) -> Vec<u8> {
        numbers.iter().flat_map(|&x| self.put(x)).collect()
    }
}

/// Bits of a small whole number as f16.
fn half(x: i32) -> u16 {
    let bits = (x as f32).to_bits();
    let exponent = (bits >> 23 & 255).wrapping_sub(112);
    if x == 0 { 0 } else { (bits >> 16 & 0x8000 | exponent << 10 | bits >> 13 & 0x3ff) as u16 }
}

/// Element (i, j) of a matrix that lies row after row, or column after column.
fn at(matrix: &[i32], (rows, columns): (usize, usize), row_major: bool, i: usize, j: usize) -> i32 {
    matrix[if row_major { i * columns + j } else { j * rows + i }]
}

#[test]
fn wmma_agrees_with_whole_numbers() {
    use Kept::{Bf16, Byte, F16, F32, F64, Word};
    // Kernel, shape, types of factors and sums, whether a, b and c lie row after row.
    let cases = [
        ("f16_rc", (16, 16, 16), F16, F32, [true, false, true]),
        ("f16_cr", (16, 16, 16), F16, F32, [false, true, false]),
        ("f16_tall", (32, 8, 16), F16, F32, [true, true, true]),
        ("f16_wide", (8, 32, 16), F16, F16, [false, false, true]),
        ("f16_half", (16, 16, 16), F16, F16, [true, false, false]),
        ("bf16_rr", (16, 16, 16), Bf16, F32, [true, true, true]),
        ("bf16_tall", (32, 8, 16), Bf16, F32, [true, false, true]),
        ("tf32_rc", (16, 16, 8), F32, F32, [true, false, true]),
        ("s8_rc", (16, 16, 16), Byte, Word, [true, false, true]),
        ("u8_wide", (8, 32, 16), Byte, Word, [true, true, false]),
        ("f64_rc", (8, 8, 4), F64, F64, [true, false, true]),
    ];
    let module = module("wmma");
    for (seed, (kernel, (m, n, k), factor, sum, rows)) in cases.into_iter().enumerate() {
        let range = if kernel.starts_with("u8") { (0, 200) } else { (-4, 9) };
        let seed = 3 * seed as u64;
        let (a, b) = (numbers(m * k, seed, range), numbers(k * n, seed + 1, range));
        let c = numbers(m * n, seed + 2, (-9, 19));
        let mut device = Device::new();
        let buffers = [factor.all(&a), factor.all(&b), sum.all(&c)].map(|bytes| upload(&mut device, &bytes));
        // Nothing has written the result: all of it must be stored.
        let out = device.alloc(sum.all(&c).len()).expect("memory");
        let args = [buffers[0], buffers[1], buffers[2], out].map(Arg::Pointer);
        clean(&mut device, &module, kernel, Launch::linear(1, 32), &args);
        let mut expected = vec![0; m * n];
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let dot: i32 = (0..k).map(|l| at(&a, (m, k), rows[0], i, l) * at(&b, (k, n), rows[1], l, j)).sum();
            let value = 2 * (dot + at(&c, (m, n), rows[2], i, j));
            expected[if rows[2] { i * n + j } else { j * m + i }] = value;
        }
        let expected = sum.all(&expected);
        assert_eq!(download::<u8>(&device, out, expected.len()), expected, "{kernel}");
    }
}

#[test]
fn wmma_matmul_by_tiles() {
    let n = 128usize;
    let (a, b) = (numbers(n * n, 40, (-3, 7)), numbers(n * n, 41, (-3, 7)));
    let mut device = Device::new();
    let [x, y] = [Kept::F16.all(&a), Kept::F16.all(&b)].map(|bytes| upload(&mut device, &bytes));
    let out = device.alloc(4 * n * n).expect("memory");
    let args = [Arg::Pointer(x), Arg::Pointer(y), Arg::Pointer(out), Arg::I32(n as i32), Arg::F32(0.5)];
    let launch = Launch { grid: [2, 8, 1], block: [128, 1, 1], shared_bytes: 0 };
    clean(&mut device, &module("wmma"), "matmul", launch, &args);
    let result = download::<f32>(&device, out, n * n);
    for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let dot: i32 = (0..n).map(|k| a[i * n + k] * b[k * n + j]).sum();
        assert_eq!(result[i * n + j], dot as f32 * 0.5, "({i}, {j})");
    }
}

#[test]
fn wmma_past_the_end_of_a_buffer_is_found() {
    let mut device = Device::new();
    let bytes = Kept::F16.all(&numbers(256, 1, (0, 3)));
    let (a, b) = (upload(&mut device, &bytes[..500]), upload(&mut device, &bytes));
    let (c, out) = (upload(&mut device, &[0f32; 256]), upload(&mut device, &[0f32; 256]));
    let mut find = |a: u64| {
        let args = [a, b, c, out].map(Arg::Pointer);
        let report = device.launch(&module("wmma"), "f16_rc", Launch::linear(1, 32), &args).expect("it runs");
        report.findings.first().map(|f| (f.kind, f.source.as_ref().is_some_and(|s| s.line > 0)))
    };
    assert_eq!(find(a), Some((Kind::OutOfBounds, true)));
    assert_eq!(find(b), None);
    assert_eq!(find(b + 4), Some((Kind::Misaligned, true)));
}

/// Numbers of 4 or 8 bits, packed from the lowest bits up.
fn packed(numbers: &[i32], bits: usize) -> Vec<u8> {
    match bits {
        8 => numbers.iter().map(|&x| x as u8).collect(),
        _ => numbers.chunks(2).map(|x| (x[0] & 15 | (x[1] & 15) << 4) as u8).collect(),
    }
}

#[test]
fn integer_shapes_of_mma() {
    let (s8, u8, s4, u4) = ((-128, 256), (0, 256), (-8, 16), (0, 16));
    // Kernel, rows, depth, bits, ranges of a and b.
    let cases = [
        ("u8_s8_k16", 16, 16, 8, u8, s8),
        ("s8_u8_k32", 16, 32, 8, s8, u8),
        ("u8_u8_sat", 16, 32, 8, u8, u8),
        ("s4_u4_k32", 16, 32, 4, s4, u4),
        ("u4_s4_k64", 16, 64, 4, u4, s4),
        ("s8_s8_small", 8, 16, 8, s8, s8),
        ("s4_s4_small", 8, 32, 4, s4, s4),
    ];
    for (kernel, rows, depth, bits, left, right) in cases {
        // a row after row, b column after column.
        let (a, b) = (numbers(rows * depth, 50, left), numbers(8 * depth, 51, right));
        let mut device = Device::new();
        let (x, y) = (upload(&mut device, &packed(&a, bits)), upload(&mut device, &packed(&b, bits)));
        let out = upload(&mut device, &vec![0i32; rows * 8]);
        clean(&mut device, &module("shapes"), kernel, Launch::linear(1, 32), &[x, y, out].map(Arg::Pointer));
        let expected: Vec<i32> = (0..rows * 8)
            .map(|place| (place / 8, place % 8))
            .map(|(i, j)| {
                let dot: i32 = (0..depth).map(|k| a[i * depth + k] * b[j * depth + k]).sum();
                dot + 1 + (j % 2) as i32 + 2 * (i / 8) as i32
            })
            .collect();
        assert_eq!(download::<i32>(&device, out, rows * 8), expected, "{kernel}");
    }
}

#[test]
fn halves_and_doubles_as_sums_of_mma() {
    for (kernel, depth) in [("half_k8", 8), ("half_k16", 16)] {
        let (a, b) = (numbers(16 * depth, 60, (-4, 9)), numbers(8 * depth, 61, (-4, 9)));
        let mut device = Device::new();
        let [x, y] = [Kept::F16.all(&a), Kept::F16.all(&b)].map(|bytes| upload(&mut device, &bytes));
        let out = upload(&mut device, &[0u16; 128]);
        clean(&mut device, &module("shapes"), kernel, Launch::linear(1, 32), &[x, y, out].map(Arg::Pointer));
        let expected = (0..128).map(|place| (place / 8, place % 8)).map(|(i, j)| {
            let dot: i32 = (0..depth).map(|k| a[i * depth + k] * b[j * depth + k]).sum();
            half(dot + 1 + (j % 2) as i32 + 2 * (i / 8) as i32)
        });
        assert_eq!(download::<u16>(&device, out, 128), expected.collect::<Vec<_>>(), "{kernel}");
    }
    let mut random = Random(62);
    let mut draw = |count: usize| (0..count).map(|_| f64::from(random.float())).collect::<Vec<_>>();
    let (a, b) = (draw(32), draw(32));
    let mut device = Device::new();
    let (x, y, out) = (upload(&mut device, &a), upload(&mut device, &b), upload(&mut device, &[0f64; 64]));
    clean(&mut device, &module("shapes"), "doubles", Launch::linear(1, 32), &[x, y, out].map(Arg::Pointer));
    for (place, got) in download::<f64>(&device, out, 64).into_iter().enumerate() {
        let (i, j) = (place / 8, place % 8);
        let sum: f64 = (0..4).map(|k| a[i * 4 + k] * b[j * 4 + k]).sum::<f64>() + 1.0 + (j % 2) as f64;
        assert!((got - sum).abs() < 1e-12, "({i}, {j}): {got} for {sum}");
    }
}
