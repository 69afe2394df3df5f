//! Instructions that are rare enough to stay out of the fast path.

use crate::exec::blocks::state::{Env, Warp};
use crate::exec::values::alu32;
use crate::exec::values::alu64;
use crate::exec::values::half;
use crate::exec::values::lanes::{LANES, each};
use crate::exec::values::tensor;
use crate::op::{Element, Op, Row, Un};

/// Executes an instruction in the lanes of the mask.
#[inline(never)]
pub fn execute(env: &Env, warp: &mut Warp, op: &Op, mask: u32) {
    match *op {
        Op::Un64 { f, d, a } => alu64::un(&mut warp.wide, mask, f, d, a),
        Op::Tri64 { f, d, a, b, c } => alu64::tri(&mut warp.wide, mask, f, d, [a, b, c]),
        Op::Count64 { f, d, a } => each(mask, |lane| {
            let x = warp.wide[a as usize][lane];
            warp.narrow[d as usize][lane] = match f {
                Un::Popc => x.count_ones(),
                Un::Clz => x.leading_zeros(),
                Un::Find { signed, shift } => {
                    let bits = if signed && (x as i64) < 0 { !x } else { x };
                    alu32::find(bits.leading_zeros(), 64, shift)
                }
                _ => unreachable!("the decoder makes these three alone"),
            };
        }),
        Op::MulWide { signed, d, a, b, c, .. } => each(mask, |lane| {
            let (x, y) = (warp.narrow[a as usize][lane], warp.narrow[b as usize][lane]);
            let product = match signed {
                true => (i32::from(x as i16) * i32::from(y as i16)) as u32,
                false => (x & 0xffff) * (y & 0xffff),
            };
            let plus = c.map_or(0, |c| warp.narrow[c as usize][lane]);
            warp.narrow[d as usize][lane] = product.wrapping_add(plus);
        }),
        Op::Bfi32 { d, a, b, position, length } => each(mask, |lane| {
            let [x, y, p, l] = [a, b, position, length].map(|s| warp.narrow[s as usize][lane]);
            warp.narrow[d as usize][lane] = alu32::bfi64(x.into(), y.into(), p, l, 32) as u32;
        }),
        Op::Bfi64 { d, a, b, position, length } => each(mask, |lane| {
            let [p, l] = [position, length].map(|s| warp.narrow[s as usize][lane]);
            let [x, y] = [a, b].map(|s| warp.wide[s as usize][lane]);
            warp.wide[d as usize][lane] = alu32::bfi64(x, y, p, l, 64);
        }),
        Op::Bfe64 { signed, d, a, position, length } => each(mask, |lane| {
            let [p, l] = [position, length].map(|s| warp.narrow[s as usize][lane]);
            warp.wide[d as usize][lane] = alu32::bfe64(warp.wide[a as usize][lane], p, l, signed, 63);
        }),
        Op::Select64 { d, a, b, p } => {
            let picks = warp.pred(p);
            each(mask, |lane| {
                let from = if picks >> lane & 1 != 0 { a } else { b };
                warp.wide[d as usize][lane] = warp.wide[from as usize][lane];
            });
        }
        Op::PredMov { d, a } => {
            let value = warp.pred(a);
            warp.set_pred(d, value, mask);
        }
        Op::PredConst { d, value } => warp.set_pred(d, if value { u32::MAX } else { 0 }, mask),
        Op::Pack { d, parts, count, part } => each(mask, |lane| {
            let low = |word: u32| u64::from(word) & ((1 << part) - 1);
            let parts = parts[..count as usize].iter().rev();
            let value = parts.fold(0, |v, &s| v << part | low(warp.narrow[s as usize][lane]));
            put(warp, d, lane, value);
        }),
        Op::Unpack { rows, count, part, a } => {
            let values: [u64; LANES] = std::array::from_fn(|lane| get(warp, a, lane));
            for (k, row) in rows[..count as usize].iter().enumerate() {
                let Some(row) = *row else { continue };
                each(mask, |lane| put(warp, row, lane, values[lane] >> (k * part as usize) & ((1 << part) - 1)));
            }
        }
        Op::PackFloats { from, to, relu, d, high, low } => {
            let width = 8 * to.bytes();
            each(mask, |lane| {
                let [h, l] = [(high, 1), (low, 0)].map(|(s, part)| {
                    let x = tensor::value(from, warp.narrow[s as usize][lane].into(), part);
                    let x = if relu && !(x > 0.0 || x.is_nan()) { 0.0 } else { x };
                    match to {
                        Element::E4m3 | Element::E5m2 => half::narrow_small(x, to == Element::E5m2),
                        _ => half::finish(x, to == Element::Bf16, crate::op::FloatMode::default()),
                    }
                });
                warp.narrow[d as usize][lane] = h << width | l;
            });
        }
        // Instructions of the block so far stand for time.
        Op::Clock { d } => each(mask, |lane| put(warp, d, lane, env.steps)),
        Op::IsSpace { space, d, a } => {
            let row = &warp.wide[a as usize];
            let holds = (0..LANES).fold(0, |m, l| m | u32::from(super::warp::in_space(space, row[l])) << l);
            warp.set_pred(d, holds, mask);
        }
        Op::ActiveMask { d } => each(mask, |lane| warp.narrow[d as usize][lane] = mask),
        Op::Callee { d, a, ref addresses } => each(mask, |lane| {
            let pointer = warp.wide[a as usize][lane];
            let number = addresses.iter().position(|&x| x == pointer);
            warp.narrow[d as usize][lane] = number.map_or(u32::MAX, |n| n as u32);
        }),
        Op::Map { wide, d, a, rank } => {
            let own = env.block.0 % env.machine.cluster_size();
            each(mask, |lane| {
                let rank = u64::from(warp.narrow[rank as usize][lane]);
                let here = match wide {
                    true => warp.wide[a as usize][lane],
                    false => warp.narrow[a as usize][lane].into(),
                };
                // No cluster has so many blocks; using the address is a mistake all the same.
                let there = if rank == own { here } else { crate::memory::in_block(here, rank.min(200)) };
                match wide {
                    true => warp.wide[d as usize][lane] = there,
                    false => warp.narrow[d as usize][lane] = there as u32,
                }
            });
        }
        Op::RankOf { wide, d, a } => {
            let own = env.block.0 % env.machine.cluster_size();
            each(mask, |lane| {
                let address = match wide {
                    true => warp.wide[a as usize][lane] & u64::from(u32::MAX),
                    false => warp.narrow[a as usize][lane].into(),
                };
                warp.narrow[d as usize][lane] = crate::memory::of_block(address).0.unwrap_or(own) as u32;
            });
        }
        Op::More(ref more) => crate::exec::values::rare::execute(warp, more, mask),
        Op::Nop => {}
        ref other => unreachable!("executed elsewhere: {other:?}"),
    }
}

fn get(warp: &Warp, row: Row, lane: usize) -> u64 {
    if row.wide { warp.wide[row.slot as usize][lane] } else { warp.narrow[row.slot as usize][lane].into() }
}

fn put(warp: &mut Warp, row: Row, lane: usize, value: u64) {
    if row.wide {
        warp.wide[row.slot as usize][lane] = value;
    } else {
        warp.narrow[row.slot as usize][lane] = row.narrow(value);
    }
}
