//! Atomics and reductions (PTX ISA, "atom"): lane after lane, lowest first.

use super::cluster::{parts, visit};
use super::memory::{addresses, at_home, by_space, find};
use crate::exec::blocks::state::{Env, Warp};
use crate::exec::checks::{check, past};
use crate::exec::values::float::{canon, op_half};
use crate::exec::values::lanes::{LANES, Row};
use crate::op::{Atomic, AtomicOp, FloatMode, FloatOp, Halves};
use crate::ptx::types::Space;
use crate::traffic::atomic_wavefronts;

/// Does an atomic in the lanes of the mask.
pub fn run(env: &mut Env, warp: &mut Warp, pc: u32, a: &Atomic, mask: u32) {
    let all = addresses(warp, &a.address);
    let Some(parts) = parts(env, a.address.space, &all, mask) else { return within(env, warp, pc, a, (&all, mask)) };
    for (rank, all, mask) in parts {
        let thread = warp.first + mask.trailing_zeros();
        visit(env, (thread, pc), rank, |env| within(env, warp, pc, a, (&all, mask)));
    }
}

/// The same, of lanes that address no other block of the cluster, or all the same one.
fn within(env: &mut Env, warp: &mut Warp, pc: u32, a: &Atomic, (all, mask): (&Row<u64>, u32)) {
    let len = u64::from(a.len());
    let shared = std::mem::take(&mut env.shared);
    let local = std::mem::take(&mut warp.local);
    by_space(a.address.space, all, mask, |space, at, mask| {
        let mut served = 0;
        if a.release {
            check::fence(env, warp.first, true);
        }
        for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
            let place = match at[lane] & (len - 1) == 0 && at_home(space, a.home, at[lane], len) {
                true => find(env, &local, &shared, space, (lane, at[lane]), len),
                false => None,
            };
            let Some((bytes, offset)) = place else {
                let thread = warp.first + lane as u32;
                crate::exec::checks::report::beyond(env, thread, pc, (space, at[lane], a.home), len, false);
                continue;
            };
            served |= 1 << lane;
            let rows = std::iter::once((a.d, a.a)).chain(a.more.iter().copied());
            for (k, (d, x)) in rows.enumerate() {
                let step = k * a.bytes as usize;
                if env.machine.checks {
                    let thread = warp.first + lane as u32;
                    let (address, len) = (at[lane] + step as u64, a.bytes);
                    let (read, write, strong, same) = (true, true, true, false);
                    check::element(env, past::Element { thread, pc, space, address, len, read, write, strong, same });
                    if a.op == AtomicOp::CompareSwap {
                        check::swapped(env, thread, (space, address), len.into());
                    }
                }
                let operand = |slot: u32| match a.wide {
                    true => warp.wide[slot as usize][lane],
                    false => warp.narrow[slot as usize][lane].into(),
                };
                let (x, y) = (operand(x), operand(a.b));
                let old = bytes.update(offset + step, a.bytes, |old| match (a.op, a.bytes) {
                    (AtomicOp::AddHalf(kind), _) => half(kind, old as u32, x as u32).into(),
                    (op, 8) => new64(op, old, x, y),
                    (op, 4) => new32(op, old as u32, x as u32, y as u32).into(),
                    (op, _) => new32(op, old as u32, x as u32 & 0xffff, y as u32 & 0xffff).into(),
                });
                match (d, a.wide) {
                    (Some(d), true) => warp.wide[d as usize][lane] = old,
                    (Some(d), false) => warp.narrow[d as usize][lane] = old as u32,
                    (None, _) => {}
                }
            }
        }
        count(env, pc, a, space, at, served);
    });
    env.shared = shared;
    warp.local = local;
}

fn count(env: &mut Env, pc: u32, a: &Atomic, space: Space, at: &Row<u64>, served: u32) {
    let tally = &mut env.tally[pc as usize];
    if space != Space::Shared {
        tally.requests += 1;
        return;
    }
    tally.shared += 1;
    if served != 0 && env.machine.counters {
        let merged = a.counts && a.d.is_none();
        let (waves, conflicts) = atomic_wavefronts(at, served, a.len(), merged, a.op == AtomicOp::CompareSwap);
        tally.wavefronts += waves;
        tally.conflicts += conflicts;
    }
}

/// Sum of halves, each rounded to nearest.
fn half(kind: Halves, x: u32, y: u32) -> u32 {
    op_half(FloatOp::Add, FloatMode::default(), kind, x, y)
}

/// What an atomic leaves in memory, for one width; `$add` adds two floats of that width.
macro_rules! updated {
    ($name:ident, $word:ty, $signed:ty, $add:expr) => {
        fn $name(op: AtomicOp, old: $word, x: $word, y: $word) -> $word {
            match op {
                AtomicOp::Add => old.wrapping_add(x),
                AtomicOp::AddF => $add(old, x),
                AtomicOp::Min { signed: true } => (old as $signed).min(x as $signed) as $word,
                AtomicOp::Max { signed: true } => (old as $signed).max(x as $signed) as $word,
                AtomicOp::Min { signed: false } => old.min(x),
                AtomicOp::Max { signed: false } => old.max(x),
                AtomicOp::And => old & x,
                AtomicOp::Or => old | x,
                AtomicOp::Xor => old ^ x,
                AtomicOp::Exchange => x,
                AtomicOp::CompareSwap if old == x => y,
                AtomicOp::CompareSwap => old,
                AtomicOp::Inc if old >= x => 0,
                AtomicOp::Inc => old + 1,
                AtomicOp::Dec if old == 0 || old > x => x,
                AtomicOp::Dec => old - 1,
                AtomicOp::AddHalf(_) => unreachable!("added as halves"),
            }
        }
    };
}

updated!(new32, u32, i32, |old, x| canon(f32::from_bits(old) + f32::from_bits(x)).to_bits());
updated!(new64, u64, i64, |old, x| (f64::from_bits(old) + f64::from_bits(x)).to_bits());
