//! Shuffles, votes, matches, reductions between the lanes of a warp.

use crate::exec::blocks::state::Warp;
use crate::exec::values::lanes::{LANES, each};
use crate::op::{Op, Redux, Shuffle, Vote};

/// The row that holds the member mask, if the operation has one.
pub fn members(op: &Op) -> Option<u32> {
    match op {
        Op::Shuffle { members, .. }
        | Op::VotePred { members, .. }
        | Op::Ballot { members, .. }
        | Op::Match { members, .. }
        | Op::Redux { members, .. }
        | Op::Elect { members, .. }
        | Op::WarpBarrier { members } => Some(*members),
        _ => None,
    }
}

/// Does an exchange among the lanes of `mask`, all of which are active.
pub fn run(warp: &mut Warp, op: &Op, mask: u32) {
    match *op {
        Op::Shuffle { f, d, p, a, lane, clamp, .. } => shuffle(warp, (f, d, p), (a, lane, clamp), mask),
        Op::VotePred { f, d, a, .. } => {
            let holds = warp.pred(a) & mask;
            let answer = match f {
                Vote::All => holds == mask,
                Vote::Any | Vote::Ballot => holds != 0,
                Vote::Uni => holds == mask || holds == 0,
            };
            warp.set_pred(d, if answer { u32::MAX } else { 0 }, mask);
        }
        Op::Ballot { d, a, .. } => {
            let holds = warp.pred(a) & mask;
            each(mask, |lane| warp.narrow[d as usize][lane] = holds);
        }
        Op::Match { all, wide, d, p, a, .. } => {
            let value = |lane: usize| match wide {
                true => warp.wide[a as usize][lane],
                false => warp.narrow[a as usize][lane].into(),
            };
            let values: [u64; LANES] = std::array::from_fn(value);
            let same = |x: u64| (0..LANES).filter(|&l| mask >> l & 1 != 0 && values[l] == x).fold(0, |m, l| m | 1 << l);
            let mut equal = 0;
            each(mask, |lane| {
                let found = same(values[lane]);
                equal |= u32::from(found == mask) << lane;
                warp.narrow[d as usize][lane] = if all && found != mask { 0 } else { found };
            });
            if let Some(p) = p {
                warp.set_pred(p, equal, mask);
            }
        }
        Op::Redux { f, d, a, .. } => {
            let row = warp.narrow[a as usize];
            let lanes = (0..LANES).filter(|&l| mask >> l & 1 != 0).map(|l| row[l]);
            let result = lanes.reduce(|x, y| match f {
                Redux::Add => x.wrapping_add(y),
                Redux::And => x & y,
                Redux::Or => x | y,
                Redux::Xor => x ^ y,
                Redux::Min { signed: false } => x.min(y),
                Redux::Max { signed: false } => x.max(y),
                Redux::Min { signed: true } => (x as i32).min(y as i32) as u32,
                Redux::Max { signed: true } => (x as i32).max(y as i32) as u32,
            });
            each(mask, |lane| warp.narrow[d as usize][lane] = result.unwrap_or(0));
        }
        Op::Elect { d, p, .. } => {
            let leader = mask.trailing_zeros();
            if let Some(d) = d {
                each(mask, |lane| warp.narrow[d as usize][lane] = leader);
            }
            warp.set_pred(p, 1 << leader, mask);
        }
        _ => {}
    }
}

/// The lane that a lane of a shuffle reads, if that lies within its segment.
fn source(f: Shuffle, lane: usize, by: u32, bounds: u32) -> Option<usize> {
    let me = lane as u32;
    let (by, limit, segment) = (by & 31, bounds & 31, bounds >> 8 & 31);
    let most = me & segment | limit & !segment;
    let least = me & segment;
    let (source, ok) = match f {
        Shuffle::Up => (me.wrapping_sub(by), me as i32 - by as i32 >= most as i32),
        Shuffle::Down => (me + by, me + by <= most),
        Shuffle::Butterfly => (me ^ by, (me ^ by) <= most),
        Shuffle::Index => (least | by & !segment, (least | by & !segment) <= most),
    };
    ok.then_some(source as usize & 31)
}

/// Whether a lane of `mask` reads one of `others` in a shuffle.
pub fn reads(warp: &Warp, op: &Op, mask: u32, others: u32) -> bool {
    let Op::Shuffle { f, lane, clamp, .. } = *op else { return false };
    let (steps, bounds) = (&warp.narrow[lane as usize], &warp.narrow[clamp as usize]);
    let from = |l: usize| source(f, l, steps[l], bounds[l]);
    (0..LANES).any(|l| mask >> l & 1 != 0 && from(l).is_some_and(|from| others >> from & 1 != 0))
}

/// `shfl.sync` (PTX ISA, "shfl.sync"): `clamp` holds the clamp value in bits 0–4 and the segment mask in bits 8–12.
fn shuffle(warp: &mut Warp, (f, d, p): (Shuffle, u32, Option<u32>), (a, lane, clamp): (u32, u32, u32), mask: u32) {
    let (from, steps, bounds) = (warp.narrow[a as usize], warp.narrow[lane as usize], warp.narrow[clamp as usize]);
    let mut inside = 0;
    each(mask, |lane| {
        let source = source(f, lane, steps[lane], bounds[lane]);
        inside |= u32::from(source.is_some()) << lane;
        warp.narrow[d as usize][lane] = from[source.unwrap_or(lane)];
    });
    if let Some(p) = p {
        warp.set_pred(p, inside, mask);
    }
}
