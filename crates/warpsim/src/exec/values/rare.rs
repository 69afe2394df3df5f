//! Rare operations, lane by lane.

use super::compare;
use super::half::widen;
use super::lanes::{Row, each, test};
use crate::exec::blocks::state::Warp;
use crate::exec::warps::warp::logic;
use crate::op::{Carry, CarryOp, Cmp, Logic, More, Parts, PartsOp, Pred, Set, TwoHalves};

/// Executes a rare operation in the lanes of the mask.
#[inline(never)]
pub fn execute(warp: &mut Warp, more: &More, mask: u32) {
    match *more {
        More::Set(s) => set(warp, &s, mask),
        More::SetHalves(ref h, d, yes) => {
            let (low, high) = (halves(warp, h, 0), halves(warp, h, 16));
            each(mask, |lane| {
                let part = |holds: u32| if holds >> lane & 1 != 0 { yes } else { 0 };
                warp.narrow[d as usize][lane] = part(low) | part(high) << 16;
            });
        }
        More::TestHalves(ref h, low, high) => {
            let (first, second) = (halves(warp, h, 0), halves(warp, h, 16));
            warp.set_pred(low, first, mask);
            if let Some(high) = high {
                warp.set_pred(high, second, mask);
            }
        }
        More::Choose { float, wide, d, abc: [a, b, c] } => each(mask, |lane| {
            let word = warp.narrow[c as usize][lane];
            // NaN picks b, and -0 picks a.
            let first = if float { f32::from_bits(word) >= 0.0 } else { word as i32 >= 0 };
            let from = if first { a } else { b } as usize;
            match wide {
                true => warp.wide[d as usize][lane] = warp.wide[from][lane],
                false => warp.narrow[d as usize][lane] = warp.narrow[from][lane],
            }
        }),
        More::Carry(ref c) => carry(warp, c, mask),
        More::FindNth([d, bits, base, nth]) => each(mask, |lane| {
            let [bits, base, nth] = [bits, base, nth].map(|s| warp.narrow[s as usize][lane]);
            warp.narrow[d as usize][lane] = find_nth(bits, base, nth as i32);
        }),
        More::Parts(ref p) => each(mask, |lane| {
            let [a, b, c] = p.abc.map(|s| warp.narrow[s as usize][lane]);
            warp.narrow[p.d as usize][lane] = parts(p, a, b, c);
        }),
    }
}

fn with(warp: &Warp, holds: u32, other: Option<(Logic, Pred)>) -> u32 {
    other.map_or(holds, |(f, p)| logic(f, holds, warp.pred(p)))
}

fn set(warp: &mut Warp, s: &Set, mask: u32) {
    let [a, b] = s.ab.map(|slot| slot as usize);
    let holds = match s.wide {
        true => compare::wide(s.cmp, s.view, &warp.wide[a], &warp.wide[b]),
        false => compare::narrow(s.cmp, s.view, &warp.narrow[a], &warp.narrow[b]),
    };
    let holds = with(warp, holds, s.with);
    each(mask, |lane| {
        let value = if holds >> lane & 1 != 0 { s.yes } else { 0 };
        match s.d.wide {
            true => warp.wide[s.d.slot as usize][lane] = value,
            false => warp.narrow[s.d.slot as usize][lane] = s.d.narrow(value),
        }
    });
}

/// Lanes in which the comparison of one of the halves holds.
fn halves(warp: &Warp, h: &TwoHalves, shift: u32) -> u32 {
    let [a, b]: [&Row<u32>; 2] = h.ab.map(|slot| &warp.narrow[slot as usize]);
    let holds = test(a, b, |x, y| {
        let [x, y] = [x, y].map(|w| widen((w >> shift) as u16, h.kind.brain, false));
        let order = x.partial_cmp(&y);
        match h.cmp {
            Cmp::Num => order.is_some(),
            Cmp::Nan => order.is_none(),
            Cmp::Eq => order.is_some_and(|o| o.is_eq()),
            Cmp::Ne => order.is_some_and(|o| o.is_ne()),
            Cmp::Lt => order.is_some_and(|o| o.is_lt()),
            Cmp::Le => order.is_some_and(|o| o.is_le()),
            Cmp::Gt => order.is_some_and(|o| o.is_gt()),
            Cmp::Ge => order.is_some_and(|o| o.is_ge()),
            Cmp::Equ => order.is_none_or(|o| o.is_eq()),
            Cmp::Neu => order.is_none_or(|o| o.is_ne()),
            Cmp::Ltu => order.is_none_or(|o| o.is_lt()),
            Cmp::Leu => order.is_none_or(|o| o.is_le()),
            Cmp::Gtu => order.is_none_or(|o| o.is_gt()),
            Cmp::Geu => order.is_none_or(|o| o.is_ge()),
        }
    });
    with(warp, holds, h.with)
}

/// Sums and differences of words that leave a carry or borrow (PTX ISA, "Extended-Precision Integer Arithmetic").
fn carry(warp: &mut Warp, c: &Carry, mask: u32) {
    let bits = if c.wide { 64 } else { 32 };
    let held = if c.takes { warp.preds[c.flag as usize] } else { 0 };
    let mut left = 0;
    each(mask, |lane| {
        let [x, y, z] = c.abc.map(|slot| match c.wide {
            true => warp.wide[slot as usize][lane],
            false => warp.narrow[slot as usize][lane].into(),
        });
        let flag = u128::from(held >> lane & 1);
        let low = |x: u128| x & ((1u128 << bits) - 1);
        let product = |signed: bool| match (signed, c.wide) {
            (true, true) => (i128::from(x as i64) * i128::from(y as i64)) as u128,
            (true, false) => i128::from(i64::from(x as i32) * i64::from(y as i32)) as u128,
            (false, _) => u128::from(x) * u128::from(y),
        };
        let sum = match c.f {
            CarryOp::Add => u128::from(x) + u128::from(y) + flag,
            // A borrow shows in the bits above.
            CarryOp::Sub => u128::from(x).wrapping_sub(u128::from(y) + flag),
            CarryOp::MadLow => low(product(false)) + u128::from(z) + flag,
            CarryOp::MadHigh { signed } => low(product(signed) >> bits) + u128::from(z) + flag,
        };
        left |= u32::from(sum >> bits & 1 != 0) << lane;
        match c.wide {
            true => warp.wide[c.d as usize][lane] = sum as u64,
            false => warp.narrow[c.d as usize][lane] = sum as u32,
        }
    });
    if c.gives {
        warp.set_pred(c.flag, left, mask);
    }
}

/// `fns`: the |n|-th set bit from the base upwards (n > 0) or downwards (n < 0), the base itself for 0; or all ones.
fn find_nth(mask: u32, base: u32, nth: i32) -> u32 {
    let set = |bit: &u32| mask >> bit & 1 != 0;
    let found = match nth {
        0 => Some(base).filter(|b| *b < 32).filter(set),
        1.. => (base..32).filter(set).nth(nth as usize - 1),
        _ => (0..=base.min(31)).rev().filter(set).nth(nth.unsigned_abs() as usize - 1),
    };
    found.unwrap_or(u32::MAX)
}

fn parts(p: &Parts, a: u32, b: u32, c: u32) -> u32 {
    let most = (1u32 << p.bits) - 1;
    let part = |word: u32, at: u32| {
        let bits = word >> at & most;
        let spare = 32 - p.bits;
        if p.signed { i64::from((bits << spare) as i32 >> spare) } else { i64::from(bits) }
    };
    let (mut packed, mut sum) = (0, 0i64);
    for at in (0..32).step_by(p.bits as usize) {
        let (x, y) = (part(a, at), part(b, at));
        let value = match p.f {
            PartsOp::Add => x + y,
            PartsOp::Sub => x - y,
            PartsOp::Difference => (x - y).abs(),
            PartsOp::Min => x.min(y),
            PartsOp::Max => x.max(y),
        };
        packed |= (value as u32 & most) << at;
        sum += value;
    }
    if p.sum { c.wrapping_add(sum as u32) } else { packed }
}
