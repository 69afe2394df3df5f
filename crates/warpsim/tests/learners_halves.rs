//! Half-precision kernels as learners write them, against doubles.

mod common;

use common::{Random, clean, download, module, upload};
use warpsim::{Arg, Device, Launch, Report};

/// A launch of kernels of `learners/basics`: buffers first, then numbers.
fn run(device: &mut Device, kernel: &str, launch: Launch, buffers: &[u64], numbers: &[i32]) -> Report {
    let args: Vec<Arg> = buffers.iter().map(|b| Arg::Pointer(*b)).chain(numbers.iter().map(|n| Arg::I32(*n))).collect();
    clean(device, &module("learners/basics"), kernel, launch, &args)
}

/// An f16 as a double, and back to the nearest.
fn widen(bits: u16) -> f64 {
    let (power, digits) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = if power == 0 { digits * 2f64.powi(-24) } else { (1024.0 + digits) * 2f64.powi(power - 25) };
    if bits >> 15 == 1 { -size } else { size }
}

#[test]
fn halves() {
    let n = 64usize;
    let mut random = Random(10);
    // Between 1/16 and 4, of both signs.
    let mut draw = |n: usize| -> Vec<u16> {
        (0..n).map(|_| ((random.bits() % 0x1800 + 0x2c00) | (random.bits() % 2) << 15) as u16).collect()
    };
    let (x, y) = (draw(2 * n), draw(2 * n));
    let mut device = Device::new();
    let (a, b) = (upload(&mut device, &x), upload(&mut device, &y));
    let args = [Arg::Pointer(a), Arg::Pointer(b), Arg::Bytes(0x4200u16.to_le_bytes().to_vec()), Arg::I32(n as i32)];
    clean(&mut device, &module("learners/basics"), "axpy_half2", Launch::linear(2, 32), &args);
    for (i, got) in download::<u16>(&device, b, 2 * n).into_iter().enumerate() {
        let exact = 3.0 * widen(x[i]) + widen(y[i]);
        assert!((widen(got) - exact).abs() <= exact.abs() * 2f64.powi(-11) + 2f64.powi(-25), "{i}");
    }
    run(&mut device, "half_math", Launch::linear(4, 32), &[a, b], &[2 * n as i32]);
    for (i, got) in download::<u16>(&device, b, 2 * n).into_iter().enumerate() {
        let v = widen(x[i]);
        let mut r =
            v.exp() + v.sin() * v.abs().sqrt() - v.tanh() / 2.0 + (v.abs() + 1.0).ln() + 1.0 / (v + 3.0) + v.floor();
        r += v.round_ties_even();
        if v > 0.5 {
            r = r.min(9.0);
        }
        let same = (r - v).abs() < 1e-9;
        r += if same { 0.0 } else { v.trunc() };
        r += f64::from(u8::from(v > 0.25)) + f64::from(u8::from(r > 0.25));
        // Eleven roundings, of values up to 64.
        let got = widen(got);
        assert!((got - r).abs() < 0.4 + r.abs() / 100.0, "{v}: {got} for {r}");
    }
}
