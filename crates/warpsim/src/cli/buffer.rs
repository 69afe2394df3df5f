//! Arguments of a kernel from their specifications.

use super::options::wrong;
use crate::exec::narrow_half;
use crate::{Arg, Device};

/// The bytes that a buffer may have.
const LARGEST: u64 = 1 << 36;

/// Address and size of a buffer.
pub type Buffer = (u64, usize);

/// Makes the arguments; for each, its buffer if it is one.
pub fn prepare(device: &mut Device, specs: &[String]) -> Result<(Vec<Arg>, Vec<Option<Buffer>>), String> {
    let (mut values, mut buffers) = (Vec::new(), Vec::new());
    for spec in specs {
        if let Some((ty, value)) = spec.split_once(':').filter(|(ty, _)| !ty.contains('[')) {
            values.push(scalar(spec, ty, value)?);
            buffers.push(None);
        } else {
            let bytes = contents(spec)?;
            let address = device.alloc(bytes.len()).map_err(|e| e.to_string())?;
            device.write(address, &bytes).map_err(|e| e.to_string())?;
            values.push(Arg::Pointer(address));
            buffers.push(Some((address, bytes.len())));
        }
    }
    Ok((values, buffers))
}

fn scalar(spec: &str, ty: &str, value: &str) -> Result<Arg, String> {
    let bad = || wrong("--arg", spec, "i32:5, u32:5, i64:5, f32:1.5 or f64:1.5");
    let number = value.strip_prefix('-').unwrap_or(value);
    if !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()) {
        let fits = match ty {
            "i32" => value.parse::<i32>().is_ok(),
            "u32" => value.parse::<u32>().is_ok(),
            "i64" => value.parse::<i64>().is_ok(),
            _ => true,
        };
        if !fits {
            return Err(format!("--arg {spec}: {value} does not fit into {ty}\nnext: give another type or number"));
        }
    }
    Ok(match ty {
        "i32" => Arg::I32(value.parse().map_err(|_| bad())?),
        "u32" => Arg::Bytes(value.parse::<u32>().map_err(|_| bad())?.to_le_bytes().to_vec()),
        "i64" => Arg::I64(value.parse().map_err(|_| bad())?),
        "f32" => Arg::F32(value.parse().map_err(|_| bad())?),
        "f64" => Arg::F64(value.parse().map_err(|_| bad())?),
        _ => return Err(bad()),
    })
}

fn contents(spec: &str) -> Result<Vec<u8>, String> {
    let bad = || wrong("--arg", spec, "TYPE[N]=zeros, =ones, =iota, =rand:SEED or =@FILE");
    let (ty, rest) = spec.split_once('[').ok_or_else(bad)?;
    let (count, kind) = rest.split_once("]=").ok_or_else(bad)?;
    let count: usize = count.parse().map_err(|_| bad())?;
    let size = match ty {
        "i8" | "u8" => 1,
        "f16" | "bf16" => 2,
        "i32" | "u32" | "f32" => 4,
        "i64" | "f64" => 8,
        _ => return Err(bad()),
    };
    let bytes = count.checked_mul(size).filter(|&bytes| bytes as u64 <= LARGEST);
    let bytes =
        bytes.ok_or_else(|| format!("--arg {spec}: more than {} GiB\nnext: use a smaller buffer", LARGEST >> 30))?;
    if let Some(path) = kind.strip_prefix('@') {
        let data = std::fs::read(path).map_err(|e| format!("{path}: {e}\nnext: check the path"))?;
        if data.len() != bytes {
            return Err(format!("{path} has {} bytes, {spec} asks for {bytes}\nnext: match the two", data.len()));
        }
        return Ok(data);
    }
    let mut random = match kind.strip_prefix("rand:") {
        Some(seed) => seed.parse().map_err(|_| bad())?,
        None => 0u64,
    };
    let mut out = Vec::with_capacity(bytes);
    for index in 0..count {
        let element = match kind {
            "zeros" => number(ty, 0.0, 0),
            "ones" => number(ty, 1.0, 1),
            "iota" => number(ty, index as f64, index as u64),
            _ if kind.starts_with("rand:") => {
                let bits = next(&mut random);
                // 24 bits below 1: exact in single precision; the halves round, but not up to 1 in f16's eleven bits.
                let digits = match ty {
                    "f16" => 11,
                    "bf16" => 8,
                    "f32" => 24,
                    _ => 53,
                };
                number(ty, (bits >> (64 - digits)) as f64 / (1u64 << digits) as f64, bits)
            }
            _ => return Err(bad()),
        };
        out.extend_from_slice(&element.to_le_bytes()[..size]);
    }
    Ok(out)
}

/// Bits of an element: the float value for float types, the integer for the others.
fn number(ty: &str, float: f64, integer: u64) -> u64 {
    match ty {
        "f16" | "bf16" => narrow_half(float, ty == "bf16").into(),
        "f32" => (float as f32).to_bits().into(),
        "f64" => float.to_bits(),
        _ => integer,
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
