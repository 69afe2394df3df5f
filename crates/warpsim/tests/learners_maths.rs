//! Functions of CUDA's maths library, text, bytes in words: as its headers compile them, against the host's.

mod common;

use common::{Random, clean, download, module, upload};
use warpsim::{Arg, Device, Launch};

/// The host's functions, in the order of the kernels `doubles` and `singles`; `None` where Rust's library has none.
fn host(v: f64) -> [Option<f64>; 24] {
    let a = v.abs();
    let fmod = |y: f64| v % y;
    // IEEE remainder, by the nearest whole quotient.
    let remainder = v - 1.3 * (v / 1.3).round_ties_even();
    [
        Some(v.sin()),
        Some(v.cos()),
        Some(v.tan()),
        Some(v.exp()),
        Some((a + 1.0).ln()),
        Some((a + 0.5).powf(1.7)),
        None,
        None,
        None,
        Some(v.cbrt()),
        Some(v.atan2(2.0)),
        Some((v / 1000.0).asin()),
        Some((v / 10.0).sinh()),
        Some((a + 1.0).log10()),
        Some((v / 10.0).exp2()),
        Some(fmod(0.7)),
        Some(v.hypot(3.0)),
        Some(a.ln_1p()),
        Some(v.round()),
        Some(remainder),
        Some(1.0 / (a + 1.0).sqrt()),
        Some((v / 100.0).exp_m1()),
        None,
        Some(v * 8.0 + (a.log2().floor())),
    ]
}

#[test]
fn functions_of_doubles() {
    let mut random = Random(1);
    let mut x: Vec<f64> = (0..200).map(|_| f64::from(random.float()) * 20.0).collect();
    x.extend([0.5, -0.5, 1.0, 3.0, 1e-8, 700.0, 1e5, -12345.678]);
    let mut device = Device::new();
    let (a, out) = (upload(&mut device, &x), upload(&mut device, &vec![0f64; 24 * x.len()]));
    let args = [Arg::Pointer(a), Arg::Pointer(out), Arg::I32(x.len() as i32)];
    clean(&mut device, &module("learners/maths"), "doubles", Launch::linear(4, 64), &args);
    let result = download::<f64>(&device, out, 24 * x.len());
    for (i, v) in x.iter().enumerate() {
        let got = &result[24 * i..][..24];
        for (k, expected) in host(*v).into_iter().enumerate() {
            let Some(expected) = expected else { continue };
            // A remainder has the size of the errors of its quotient's multiple.
            let absolute = if k == 19 { v.abs() * 1e-15 } else { 0.0 };
            let close = (got[k] - expected).abs() <= expected.abs() * 2e-15 + absolute || got[k] == expected;
            assert!(close || got[k].is_nan() && expected.is_nan(), "[{k}] of {v}: {} for {expected}", got[k]);
        }
        assert_eq!(got[22], v.next_up());
    }
    // Known values: Γ(1.5) = √π / 2, Γ(4) = 6, erf(0.5).
    let at = |v: f64| x.iter().position(|y| *y == v).expect("there");
    let close = |got: f64, known: f64| assert!((got / known - 1.0).abs() < 1e-14, "{got} for {known}");
    close(result[24 * at(0.5) + 6], std::f64::consts::PI.sqrt() / 2.0);
    close(result[24 * at(3.0) + 6], 6.0);
    close(result[24 * at(3.0) + 7], 6f64.ln());
    close(result[24 * at(0.5) + 8], 0.520_499_877_813_046_5);
}

#[test]
fn functions_of_singles() {
    let mut random = Random(2);
    let mut x: Vec<f32> = (0..200).map(|_| random.float() * 20.0).collect();
    x.extend([0.5, -0.5, 1.0, 3.0, 1e-8, 80.0, 1e5, -12345.678]);
    let mut device = Device::new();
    let (a, out) = (upload(&mut device, &x), upload(&mut device, &vec![0f32; 24 * x.len()]));
    let args = [Arg::Pointer(a), Arg::Pointer(out), Arg::I32(x.len() as i32)];
    clean(&mut device, &module("learners/maths"), "singles", Launch::linear(4, 64), &args);
    let result = download::<f32>(&device, out, 24 * x.len());
    for (i, v) in x.iter().enumerate() {
        let got = &result[24 * i..][..24];
        let v = f64::from(*v);
        for (k, expected) in host(v).into_iter().enumerate() {
            // The operands of these are constants of single precision.
            let expected = match k {
                15 => Some(v % f64::from(0.7f32)),
                19 => Some(v - f64::from(1.3f32) * (v / f64::from(1.3f32)).round_ties_even()),
                22 => Some((std::f64::consts::PI * (v % 2.0)).sin()),
                _ => expected,
            };
            let Some(expected) = expected else { continue };
            let got = f64::from(got[k]);
            // Sums like |v| + 1 are rounded before the function sees them.
            let same = got == expected || got.is_nan() && expected.is_nan();
            let close = (got - expected).abs() <= expected.abs() * 2e-6 + 3e-7 || same;
            let infinite = expected.abs() > f64::from(f32::MAX) && got.is_infinite();
            assert!(close || infinite, "[{k}] of {v}: {got} for {expected}");
        }
    }
    let at = |v: f32| x.iter().position(|y| *y == v).expect("there");
    assert!((result[24 * at(3.0) + 6] - 6.0).abs() < 1e-5);
    assert!((result[24 * at(0.5) + 8] - 0.520_499_9).abs() < 1e-6);
}

#[test]
fn text_of_every_kind() {
    let mut device = Device::new();
    let x = upload(&mut device, &[0.0, -1.5, 1234.5678]);
    let report =
        clean(&mut device, &module("learners/maths"), "text", Launch::linear(1, 32), &[Arg::Pointer(x), Arg::I32(3)]);
    let expected = "0     0|0    |00000 ff FF 0 a even 0 0 1099511627776 0.000000 0.000 0.000000e+00 0 0x0 % 0 +0 4\n\
                    1     1|1    |00001 100 100 1 b odd 4294967295 -5000000000 2199023255552 -1.500000 -1.500 -1.500000e+00 -1.5 0x0 % -1 +1 4\n\
                    2     2|2    |00002 101 101 2 c even 4294967294 -10000000000 4398046511104 1234.567800 1234.568 1.234568e+03 1234.57 0x0 % -2 +2 4\n";
    assert_eq!(report.printed, expected);
}

#[test]
fn clocks_bytes_and_lambdas() {
    let mut device = Device::new();
    let out = upload(&mut device, &[0u64; 96]);
    clean(&mut device, &module("learners/maths"), "timed", Launch::linear(1, 32), &[Arg::Pointer(out), Arg::I32(5)]);
    let result = download::<u64>(&device, out, 96);
    assert_eq!(result[32..64], [1; 32]);
    assert_eq!(result[64..], (0..32).map(|lane| (1u64 << lane) - 1).collect::<Vec<_>>());

    let mut random = Random(3);
    let pixels: Vec<u8> = (0..400).map(|_| random.bits() as u8).collect();
    let (x, y) = (upload(&mut device, &pixels), upload(&mut device, &[0u8; 400]));
    let args = [Arg::Pointer(x), Arg::Pointer(y), Arg::I32(100)];
    clean(&mut device, &module("learners/maths"), "packed", Launch::linear(2, 64), &args);
    let result = download::<u8>(&device, y, 400);
    for (i, p) in pixels.chunks(4).enumerate() {
        let [r, g, b, a] = [p[0], p[1], p[2], p[3]].map(i32::from);
        let grey = ((r * 77 + g * 150 + b * 29) >> 8) as u8;
        // Bytes wrap; the other terms are whole words.
        let last = (r as u8).wrapping_add(g as u8) as i32 + (b - a).abs() + (r - g).abs() + r + (r - g).abs() + 3;
        assert_eq!(result[4 * i..][..4], [grey, grey, grey, last as u8], "pixel {i}");
    }

    let words: Vec<u32> = (0..100).map(|_| random.bits() as u32).collect();
    let (x, y) = (upload(&mut device, &words), upload(&mut device, &[0u32; 100]));
    let args = [Arg::Pointer(x), Arg::Pointer(y), Arg::I32(100)];
    clean(&mut device, &module("learners/maths"), "bits", Launch::linear(2, 64), &args);
    for (i, got) in download::<u32>(&device, y, 100).into_iter().enumerate() {
        let x = words[i];
        let y = u64::from(x) << 17 | u64::from(x);
        let first = |bits: u64| if bits == 0 { 0 } else { bits.trailing_zeros() + 1 };
        // Byte selectors 1, 6, 4, 2 of x and its complement, from the lowest.
        let all: Vec<u8> = [x.to_le_bytes(), (!x).to_le_bytes()].concat();
        let permuted = u32::from_le_bytes([all[1], all[6], all[4], all[2]]);
        let third = (0..32).filter(|bit| x >> bit & 1 == 1).nth(2).unwrap_or(u32::MAX);
        let terms = [
            x.count_ones(),
            x.leading_zeros(),
            first(x.into()),
            x.reverse_bits(),
            y.count_ones(),
            y.leading_zeros(),
            first(y),
            y.reverse_bits() as u32,
            ((u64::from(!x) << 32 | u64::from(x)) >> 9) as u32,
            permuted,
            // Rounded up for signed words; halved sums do not overflow.
            ((i64::from(x as i32) + 5 + 1) >> 1) as u32,
            ((i64::from(x as i32) + 7) >> 1) as u32,
            (x & 0xff_ffff).wrapping_mul(3),
            ((i64::from(x as i32) * 17) >> 32) as u32,
            third,
        ];
        assert_eq!(got, terms.into_iter().fold(0, u32::wrapping_add), "{x:#x}");
    }
    let out = upload(&mut device, &[0f32; 32]);
    clean(&mut device, &module("learners/maths"), "lambdas", Launch::linear(1, 32), &[Arg::Pointer(out), Arg::I32(4)]);
    assert_eq!(download::<f32>(&device, out, 32), [85.0; 32]);
}
