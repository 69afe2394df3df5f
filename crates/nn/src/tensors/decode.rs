//! Numbers from a file's bytes.

use rayon::prelude::*;
use safetensors::Dtype;

/// Numbers that one core converts at a time: enough that handing them out costs nothing.
const CHUNK: usize = 1 << 16;

/// The bytes as f32; `None` for kinds that are no floating-point weights.
pub(super) fn numbers(kind: Dtype, bytes: &[u8]) -> Option<Vec<f32>> {
    Some(match kind {
        Dtype::F32 => each(bytes, f32::from_le_bytes),
        Dtype::F64 => each(bytes, |b| f64::from_le_bytes(b) as f32),
        Dtype::BF16 => each(bytes, |b| gpulab::cpu::f32_from_bf16(u16::from_le_bytes(b))),
        Dtype::F16 => each(bytes, |b| f32_from_f16(u16::from_le_bytes(b))),
        _ => return None,
    })
}

fn each<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f32 + Sync) -> Vec<f32> {
    let (all, rest) = bytes.as_chunks::<N>();
    debug_assert!(rest.is_empty(), "safetensors holds shape and bytes against each other");
    all.par_iter().with_min_len(CHUNK).map(|b| number(*b)).collect()
}

/// The number that these bits stand for in IEEE 754's 16-bit format, exactly.
pub(super) fn f32_from_f16(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    match exponent {
        // No leading one: multiples of 2⁻²⁴.
        0 => sign * fraction * 2.0f32.powi(-24),
        31 if fraction == 0.0 => sign * f32::INFINITY,
        31 => f32::NAN,
        _ => sign * (1.0 + fraction / 1024.0) * 2.0f32.powi(exponent - 15),
    }
}
