//! Products of matrices in the registers of a warp: `mma.sync`, `wmma`.

use super::float::canon;
use super::half::{narrow, widen, widen_e4m3, widen_e5m2};
use super::lanes::LANES;
use super::wgmma::place;
use crate::exec::access::memory::{addresses, by_space, count, find};
use crate::exec::blocks::state::{Env, Warp};
use crate::exec::checks::{check, past};
use crate::op::{Element, Fragment, Mma, Tile};
use crate::ptx::types::Space;
use std::array::from_fn;

/// Elements of the largest matrix, a of m16n8k64.
const MOST: usize = 1024;

/// d = a × b + c. Sums of floats are rounded once, closer than hardware promises; doubles after each step.
pub fn mma(warp: &mut Warp, m: &Mma) {
    let (mut a, mut b, mut sum) = ([0.0; MOST], [0.0; MOST], [0.0; MOST]);
    gather(warp, &m.a, &mut a);
    gather(warp, &m.b, &mut b);
    gather(warp, &m.c, &mut sum);
    let (stored, columns) = (m.a.shape.1, m.b.shape.1);
    let exact = m.a.element != Element::F64;
    for (row, out) in sum[..m.a.shape.0 * columns].chunks_exact_mut(columns).enumerate() {
        for at in 0..stored {
            let x = a[row * stored + at];
            let k = m.sparse.map_or(at, |sparse| place(warp, sparse, m.a.element, row, at));
            let right = &b[k * columns..][..columns];
            if exact {
                out.iter_mut().zip(right).for_each(|(sum, y)| *sum += x * y);
            } else {
                out.iter_mut().zip(right).for_each(|(sum, y)| *sum = x.mul_add(*y, *sum));
            }
        }
    }
    if m.saturate {
        sum.iter_mut().for_each(|x| *x = x.clamp(i32::MIN.into(), i32::MAX.into()));
    }
    scatter(warp, &m.d, &sum);
}

/// Elements row after row; an element that is there several times comes from the last place.
fn gather(warp: &Warp, f: &Fragment, out: &mut [f64; MOST]) {
    let per = f.element.per_register();
    for (register, &slot) in f.registers.iter().enumerate() {
        for lane in 0..LANES {
            let word = match f.element {
                Element::F64 => warp.wide[slot as usize][lane],
                _ => warp.narrow[slot as usize][lane].into(),
            };
            for part in 0..per {
                let (row, column) = f.place(lane, register, part);
                out[row * f.shape.1 + column] = value(f.element, word, part);
            }
        }
    }
}

/// Puts elements into all their places.
fn scatter(warp: &mut Warp, f: &Fragment, from: &[f64; MOST]) {
    let per = f.element.per_register();
    for (register, &slot) in f.registers.iter().enumerate() {
        for lane in 0..LANES {
            let word = (0..per).fold(0, |word, part| {
                let (row, column) = f.place(lane, register, part);
                word | bits(f.element, from[row * f.shape.1 + column]) << (16 * part)
            });
            put(warp, f, slot, lane, word);
        }
    }
}

/// Loads or stores a matrix; bounds, races and missing values are looked for element by element.
pub fn tile(env: &mut Env, warp: &mut Warp, pc: u32, t: &Tile) {
    let f = &t.fragment;
    let bytes = f.element.bytes();
    let base = addresses(warp, &t.address);
    let shared = std::mem::take(&mut env.shared);
    let local = std::mem::take(&mut warp.local);
    let step = |row: u64, column: u64, lane: usize, warp: &Warp| {
        let (across, along) = if t.columns_first { (column, row) } else { (row, column) };
        let packed = if t.columns_first { f.shape.0 } else { f.shape.1 } as u64;
        let stride = t.stride.map_or(packed, |s| warp.narrow[s as usize][lane].into());
        (across * stride + along) * bytes
    };
    by_space(t.address.space, &base, u32::MAX, |space, base, mask| {
        // "wmma.load": the address is aligned to 32 bytes; shared arrays of halves rarely promise it.
        let align = if space == Space::Shared { bytes } else { 32 };
        if let Some(lane) = (0..LANES).find(|&l| mask >> l & 1 != 0 && base[l] & (align - 1) != 0) {
            return crate::exec::checks::report::access(
                env,
                warp.first + lane as u32,
                pc,
                (space, base[lane]),
                align,
                t.load,
            );
        }
        for piece in crate::exec::access::wmma::of(t).iter().filter(|_| env.machine.counters) {
            let place = |lane: usize| piece.places[lane];
            let at = from_fn(|lane| base[lane].wrapping_add(step(place(lane).0, place(lane).1, lane, warp)));
            match t.load {
                true => count::<true>(env, pc, (space, t.address.space), &at, mask, piece.bytes),
                false => count::<false>(env, pc, (space, t.address.space), &at, mask, piece.bytes),
            }
        }
        for (register, &slot) in f.registers.iter().enumerate() {
            for lane in (0..LANES).filter(|l| mask >> l & 1 != 0) {
                let mut word = 0;
                for part in 0..f.element.per_register() {
                    let (row, column) = f.place(lane, register, part);
                    let at = base[lane].wrapping_add(step(row as u64, column as u64, lane, warp));
                    let thread = warp.first + lane as u32;
                    let Some((memory, offset)) = find(env, &local, &shared, space, (lane, at), bytes) else {
                        return crate::exec::checks::report::access(env, thread, pc, (space, at), bytes, t.load);
                    };
                    let len = bytes as u8;
                    let (read, write) = (t.load, !t.load);
                    let mut same = false;
                    let shift = 8 * bytes as usize * part;
                    if t.load {
                        word |= memory.load(offset, len) << shift;
                    } else {
                        let value = match f.element {
                            Element::F64 => warp.wide[slot as usize][lane],
                            _ => u64::from(warp.narrow[slot as usize][lane]) >> shift,
                        };
                        same = memory.load(offset, len) == value & (u64::MAX >> (64 - 8 * bytes));
                        memory.store(offset, len, value);
                    }
                    if env.machine.checks {
                        let strong = false;
                        let e = past::Element { thread, pc, space, address: at, len, read, write, strong, same };
                        check::element(env, e);
                    }
                }
                if t.load {
                    put(warp, f, slot, lane, word);
                }
            }
        }
    });
    env.shared = shared;
    warp.local = local;
}

fn put(warp: &mut Warp, f: &Fragment, slot: u32, lane: usize, word: u64) {
    match f.element {
        Element::F64 => warp.wide[slot as usize][lane] = word,
        _ => warp.narrow[slot as usize][lane] = word as u32,
    }
}

/// An element of a register as a number.
#[inline(always)]
pub fn value(element: Element, word: u64, part: usize) -> f64 {
    match element {
        Element::E4m3 => widen_e4m3((word >> (8 * part)) as u8),
        Element::E5m2 => widen_e5m2((word >> (8 * part)) as u8),
        Element::F16 => widen((word >> (16 * part)) as u16, false, false),
        Element::Bf16 => widen((word >> (16 * part)) as u16, true, false),
        // The low 13 bits of a tf32 do not count.
        Element::Tf32 => f32::from_bits(word as u32 & !0x1fff).into(),
        Element::F32 => f32::from_bits(word as u32).into(),
        Element::F64 => f64::from_bits(word),
        Element::S8 => f64::from((word >> (8 * part)) as i8),
        Element::U8 => f64::from((word >> (8 * part)) as u8),
        Element::S4 => f64::from(((word >> (4 * part)) as i8) << 4 >> 4),
        Element::U4 => f64::from((word >> (4 * part)) as u8 & 15),
        Element::S32 => f64::from(word as i32),
    }
}

/// A sum as an element of a result.
#[inline(always)]
fn bits(element: Element, x: f64) -> u64 {
    match element {
        Element::F16 => narrow(x, false).into(),
        Element::F64 => x.to_bits(),
        // Exact below 2^53, and past the range they wrap.
        Element::S32 => u64::from(x as i64 as u32),
        _ => canon(x as f32).to_bits().into(),
    }
}
