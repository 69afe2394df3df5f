//! Arithmetic kernels as two compilers print them, against plain Rust.

mod common;

use common::{Random, clean, download, module, upload};
use warpsim::{Arg, Device, Launch};

const PRINTS: [&str; 3] = ["arithmetic", "12/arithmetic", "100/arithmetic"];

fn integers() -> (Vec<i32>, Vec<i32>) {
    let edges = [0, 1, -1, 2, 31, 32, 33, 255, -128, 0x7fff, -0x8000, i32::MAX, i32::MIN, i32::MIN + 1, 0x00ff_ff00];
    let mut pairs: Vec<(i32, i32)> = edges.iter().flat_map(|&a| edges.iter().map(move |&b| (a, b))).collect();
    let mut random = Random(1);
    pairs.extend((0..300).map(|_| (random.bits() as i32, random.bits() as i32)));
    pairs.into_iter().unzip()
}

fn byte_permute(x: u32, y: u32, selector: u32) -> u32 {
    let bytes: Vec<u8> = [x.to_le_bytes(), y.to_le_bytes()].concat();
    u32::from_le_bytes(std::array::from_fn(|i| bytes[(selector >> (4 * i) & 7) as usize]))
}

fn integer_row(x: i32, y: i32) -> [i32; 16] {
    let (u, v) = (x as u32, y as u32);
    let dot = x.to_le_bytes().into_iter().zip(y.to_le_bytes()).map(|(a, b)| i32::from(a as i8) * i32::from(b as i8));
    let wide = ((i64::from(x) * i64::from(y)) >> 20) as i32;
    let by = v & 31;
    [
        x.wrapping_add(y),
        x.wrapping_mul(y),
        if y == 0 { 0 } else { x.wrapping_div(y) },
        if v == 0 { 0 } else { (u % v) as i32 },
        x.min(y),
        u.max(v) as i32,
        ((i64::from(x) * i64::from(y)) >> 32) as i32,
        ((u64::from(u) * u64::from(v)) >> 32) as i32,
        (u.count_ones() + u.leading_zeros() * 100) as i32,
        u.reverse_bits() as i32,
        byte_permute(u, v, 0x3715) as i32,
        (x >> by) ^ (u >> by) as i32 ^ (u << by) as i32,
        if x == 0 { 0 } else { x.trailing_zeros() as i32 + 1 },
        ((u64::from(v) << 32 | u64::from(u)) << 13 >> 32) as i32,
        dot.sum::<i32>() + 7,
        wide.wrapping_add(x.wrapping_abs()).wrapping_add(i32::from(x as i16)).wrapping_add(i32::from(y as i8)),
    ]
}

#[test]
fn integers_agree() {
    let (a, b) = integers();
    let n = a.len();
    for name in PRINTS {
        let mut device = Device::new();
        let out = upload(&mut device, &vec![0i32; n * 16]);
        let (x, y) = (upload(&mut device, &a), upload(&mut device, &b));
        let args = [Arg::Pointer(x), Arg::Pointer(y), Arg::Pointer(out), Arg::I32(n as i32)];
        let launch = Launch::linear((n as u32).div_ceil(96), 96);
        clean(&mut device, &module(name), "integers", launch, &args);
        let result = download::<i32>(&device, out, n * 16);
        for i in 0..n {
            assert_eq!(result[i * 16..][..16], integer_row(a[i], b[i]), "{name}: {:#x}, {:#x}", a[i], b[i]);
        }
    }
}

fn float_row(x: f32, y: f32) -> [f64; 16] {
    let (a, b) = (f64::from(x), f64::from(y));
    [
        f64::from(x / y),
        f64::from(x.abs().sqrt()),
        f64::from(x.mul_add(y, 1.0)),
        a / b,
        a.exp(),
        (a.abs() + 1.0).ln(),
        a.sin(),
        b.cos(),
        a.tanh(),
        1.0 / (b.abs() + 1.0).sqrt(),
        f64::from(x.min(y) - x.max(y)),
        f64::from(x.floor() + y.ceil() + x.round_ties_even() + y.trunc()),
        f64::from(x as i32 as f32 + y.abs() as u32 as f32),
        f64::from((a * b + 0.5) as f32),
        a.exp(),
        (a.abs() + 0.5).powf(1.5),
    ]
}

#[test]
fn floats_agree_within_the_error_of_the_library() {
    let mut random = Random(2);
    let mut a: Vec<f32> = (0..200).map(|_| random.float() * 20.0).collect();
    let mut b: Vec<f32> = (0..200).map(|_| random.float() * 3.0 + 4.0).collect();
    a.extend([0.0, -0.0, 0.5, 1.5, 2.5, -2.5, 1e-3, 80.0]);
    b.extend([1.0, -1.0, 0.5, -1.5, 2.5, -2.5, 1e-3, 3.0]);
    let n = a.len();
    for name in PRINTS {
        let mut device = Device::new();
        let out = upload(&mut device, &vec![0f32; n * 16]);
        let (x, y) = (upload(&mut device, &a), upload(&mut device, &b));
        let args = [Arg::Pointer(x), Arg::Pointer(y), Arg::Pointer(out), Arg::I32(n as i32)];
        clean(&mut device, &module(name), "floats", Launch::linear((n as u32).div_ceil(64), 64), &args);
        let result = download::<f32>(&device, out, n * 16);
        for i in 0..n {
            for (k, expected) in float_row(a[i], b[i]).into_iter().enumerate() {
                // Exact where CUDA rounds correctly; a few units of the last place for its functions.
                let bound = match k {
                    0 | 1 | 2 | 10 | 11 | 12 | 13 => 0.0,
                    // `__expf` multiplies first, so its error grows with the argument.
                    14 => expected.abs() * (2e-7 + 2e-7 * f64::from(a[i].abs())),
                    _ => (expected.abs() * 1e-6).max(4e-7),
                };
                let got = f64::from(result[i * 16 + k]);
                assert!((got - expected).abs() <= bound, "{name}: {} {} [{k}]: {got} for {expected}", a[i], b[i]);
            }
        }
    }
}

#[test]
fn doubles_agree() {
    let mut random = Random(4);
    let mut a: Vec<f64> = (0..200).map(|_| f64::from(random.float()) * 1e6 + 1e-7).collect();
    let mut b: Vec<f64> = (0..200).map(|_| f64::from(random.float()) * 10.0 + 11.0).collect();
    a.extend([0.0, -0.0, 1e300, -1e-300, f64::INFINITY, 4.5]);
    b.extend([1.0, -1.0, 1e300, 1e-300, 2.0, f64::NAN]);
    let n = a.len();
    for name in PRINTS {
        let mut device = Device::new();
        let out = upload(&mut device, &vec![0f64; n * 8]);
        let (x, y) = (upload(&mut device, &a), upload(&mut device, &b));
        let args = [Arg::Pointer(x), Arg::Pointer(y), Arg::Pointer(out), Arg::I32(n as i32)];
        clean(&mut device, &module(name), "doubles", Launch::linear((n as u32).div_ceil(64), 64), &args);
        let result = download::<f64>(&device, out, n * 8);
        for i in 0..n {
            let (x, y) = (a[i], b[i]);
            let expected = [
                x + y,
                x.mul_add(y, -1.0),
                x / y,
                x.abs().sqrt(),
                x.mul_add(y, x),
                x as i64 as f64,
                f64::from(x as f32),
                x.min(y.floor()),
            ];
            for (k, expected) in expected.into_iter().enumerate() {
                let got = result[i * 8 + k];
                let same = got == expected || got.is_nan() && expected.is_nan();
                assert!(same, "{name}: {x} {y} [{k}]: {got} for {expected}");
            }
        }
    }
}

#[test]
fn lanes_exchange() {
    for name in ["warps", "100/warps"] {
        let mut random = Random(6);
        // The block's last lanes read nothing.
        let n = 90usize;
        let data: Vec<i32> = (0..n).map(|_| (random.bits() % 2000) as i32).collect();
        let mut device = Device::new();
        let (x, out) = (upload(&mut device, &data), upload(&mut device, &[0u32; 96 * 12]));
        let args = [Arg::Pointer(x), Arg::Pointer(out), Arg::I32(n as i32)];
        clean(&mut device, &module(name), "warp_ops", Launch::linear(1, 96), &args);
        let result = download::<u32>(&device, out, 96 * 12);
        let value = |i: usize| data.get(i).copied().unwrap_or(-1);
        let odd = (0..96).filter(|&i| value(i) & 1 != 0).count() as u32;
        for i in 0..96usize {
            let (warp, lane) = (i / 32 * 32, i % 32);
            let at = |lane: usize| value(warp + lane) as u32;
            let mask = |f: &dyn Fn(i32) -> bool| (0..32).filter(|&l| f(value(warp + l))).fold(0u32, |m, l| m | 1 << l);
            let me = value(i);
            let down = if lane % 16 + 7 < 16 { lane + 7 } else { lane };
            let expected = [
                at(5),
                at(if lane >= 3 { lane - 3 } else { lane }),
                at(down),
                at(lane ^ 9),
                mask(&|x| x & 1 != 0),
                u32::from(mask(&|x| x == 3) != 0) + 2 * u32::from(mask(&|x| x >= 1000) == 0),
                mask(&|x| x & 3 == me & 3),
                if lane & 4 != 0 { 0xf0f0_f0f0 } else { 0 },
                (0..32).fold(0u32, |s, l| s.wrapping_add(at(l))),
                (0..32).map(at).max().unwrap_or(0),
                odd,
                0,
            ];
            assert_eq!(result[i * 12..][..12], expected, "{name}: thread {i}");
        }
    }
}

/// Value of an f16 in the simplest way.
fn half(bits: u16) -> f64 {
    let magnitude = match (bits >> 10 & 31, bits & 1023) {
        (0, digits) => f64::from(digits) * 2f64.powi(-24),
        (31, 0) => f64::INFINITY,
        (31, _) => f64::NAN,
        (e, digits) => f64::from(1024 + digits) * 2f64.powi(i32::from(e) - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// The nearest f16 by search, ties to even.
fn to_half(x: f64) -> u16 {
    let sign = u16::from(x.is_sign_negative()) << 15;
    let (mut low, mut high) = (0u16, 0x7c00u16);
    // 65520 is half way to the next value after the largest.
    if x.abs() >= 65520.0 {
        return sign | 0x7c00;
    }
    while high - low > 1 {
        let middle = (low + high) / 2;
        if half(middle) <= x.abs() { low = middle } else { high = middle }
    }
    let (below, above) = (x.abs() - half(low), if high == 0x7c00 { 65536.0 } else { half(high) } - x.abs());
    let up = above < below || above == below && low & 1 == 1;
    sign | if up { high } else { low }
}

#[test]
fn halves_agree() {
    let mut random = Random(8);
    let n = 500usize;
    let finite = |bits: u16| if bits & 0x7c00 == 0x7c00 { bits ^ 0x4000 } else { bits };
    let mut a: Vec<u16> = (0..n).map(|_| finite(random.bits() as u16)).collect();
    let mut b: Vec<u16> = (0..n).map(|_| finite(random.bits() as u16)).collect();
    a[..4].copy_from_slice(&[0x7bff, 0x0001, 0x8001, 0x3c00]);
    b[..4].copy_from_slice(&[0x7bff, 0x0001, 0x0001, 0xbc00]);
    for name in ["warps", "100/warps"] {
        let mut device = Device::new();
        let out = upload(&mut device, &vec![0u16; n * 8]);
        let (x, y) = (upload(&mut device, &a), upload(&mut device, &b));
        let args = [Arg::Pointer(x), Arg::Pointer(y), Arg::Pointer(out), Arg::I32(n as i32)];
        clean(&mut device, &module(name), "halves", Launch::linear((n as u32).div_ceil(64), 64), &args);
        let result = download::<u16>(&device, out, n * 8);
        for i in 0..n {
            let (x, y) = (half(a[i]), half(b[i]));
            // Sums and products of two halves are exact in double precision.
            let expected = [
                to_half(x + y),
                to_half(x * y),
                // x·y + x: exact, as both terms share x's digits and few bits lie between.
                to_half(x * y + x),
                to_half(f64::from(x as f32 * 0.1f32)),
                if x > y { a[i] } else { b[i] },
                if x > y { a[i] } else { b[i] ^ 0x8000 },
                to_half(x + 0.5),
                to_half(y + 0.5),
            ];
            for (k, expected) in expected.into_iter().enumerate() {
                let got = result[i * 8 + k];
                let zeros = got & 0x7fff == 0 && expected & 0x7fff == 0;
                assert!(got == expected || zeros, "{name}: {x} {y} [{k}]: {:#x} for {expected:#x}", got);
            }
        }
    }
}

#[test]
fn bfloats_agree() {
    let widen = |bits: u16| f32::from_bits(u32::from(bits) << 16);
    // Round to nearest, ties to even, on the bits of a single.
    let narrow = |x: f32| ((x.to_bits() + 0x7fff + (x.to_bits() >> 16 & 1)) >> 16) as u16;
    let mut random = Random(10);
    let n = 300usize;
    let draw = |random: &mut Random| narrow(random.float() * 50.0);
    let a: Vec<u16> = (0..n).map(|_| draw(&mut random)).collect();
    let b: Vec<u16> = (0..n).map(|_| draw(&mut random)).collect();
    for name in ["warps", "100/warps"] {
        let mut device = Device::new();
        let out = upload(&mut device, &vec![0u16; n * 4]);
        let (x, y) = (upload(&mut device, &a), upload(&mut device, &b));
        let args = [Arg::Pointer(x), Arg::Pointer(y), Arg::Pointer(out), Arg::I32(n as i32)];
        clean(&mut device, &module(name), "bfloats", Launch::linear((n as u32).div_ceil(64), 64), &args);
        let result = download::<u16>(&device, out, n * 4);
        for i in 0..n {
            let (x, y) = (widen(a[i]), widen(b[i]));
            let expected = [narrow(x * y), narrow(x * 0.1)];
            assert_eq!([result[i * 4 + 1], result[i * 4 + 3]], expected, "{name}: {x} {y}");
            // Sums may be cut twice by this reference: one unit of the last place.
            for (got, exact) in [(result[i * 4], x + y), (result[i * 4 + 2], x.mul_add(y, x))] {
                assert!((widen(got) - exact).abs() <= exact.abs() / 256.0, "{name}: {x} {y}: {}", widen(got));
            }
        }
    }
}
