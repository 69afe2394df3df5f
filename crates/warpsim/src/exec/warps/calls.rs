//! Calls of functions that call themselves: the lanes of a call run until all of them are at the function's end, as they
//! run to a meeting point.

use super::warp::Stop;
use crate::exec::blocks::state::{Entry, Env, Warp};
use crate::exec::values::lanes::{LANES, Row, each};
use crate::finding::Kind;
use crate::op::{Call, Kept, Return};

/// Calls within calls at most; a GPU's stack of 1 KiB a thread holds far fewer.
const MAX_DEPTH: usize = 1 << 12;
/// Bytes that a warp's callers keep at most.
const MAX_KEPT: usize = 64 << 20;

/// What a caller keeps while its call runs.
#[derive(Debug)]
pub struct Frame {
    kept: Kept,
    /// Entries of the warp's stack below the call's own.
    depth: usize,
    narrow: Vec<Row<u32>>,
    wide: Vec<Row<u64>>,
    preds: Vec<u32>,
    local: Vec<u8>,
}

/// Byte of local memory of a lane.
fn byte(warp: &Warp, lane: usize, at: u64) -> usize {
    lane * (warp.local.len() / LANES) + at as usize
}

/// The lanes go into the function; false if they cannot.
pub fn enter(env: &mut Env, warp: &mut Warp, pc: u32, call: &Call) -> bool {
    let mask = warp.now.mask;
    let thread = warp.first + mask.trailing_zeros();
    if warp.apart.active {
        cannot(env, warp);
        return false;
    }
    let kept = &call.kept;
    let local: u64 = kept.local.iter().map(|r| r.end - r.start).sum();
    let size = (4 * kept.narrow.len() + 8 * kept.wide.len() + local as usize) * LANES;
    if warp.frames.len() >= MAX_DEPTH || warp.frames.len() * size > MAX_KEPT {
        let depth = warp.frames.len();
        let message = format!(
            "{depth} calls are open within each other; next: look for the case in which the function does not call \
             itself"
        );
        env.note(Kind::StepBudget, pc, thread, None, message);
        return false;
    }
    let mut local = Vec::new();
    for range in &call.kept.local {
        for lane in 0..LANES {
            local.extend(range.clone().map(|at| warp.local.load(byte(warp, lane, at), 1) as u8));
        }
    }
    warp.frames.push(Frame {
        depth: warp.stack.len(),
        narrow: warp.narrow[call.kept.narrow.clone()].to_vec(),
        wide: warp.wide[call.kept.wide.clone()].to_vec(),
        preds: warp.preds[call.kept.preds.clone()].to_vec(),
        local,
        kept: call.kept.clone(),
    });
    copy(warp, &call.arguments, mask);
    warp.stack.push(Entry { pc: pc + 1, mask, meet: warp.now.meet });
    warp.now = Entry { pc: call.code.start, mask, meet: call.code.end };
    true
}

fn copy(warp: &Warp, pairs: &[(u64, u64, u64)], mask: u32) {
    let mut bytes = Vec::new();
    each(mask, |lane| {
        bytes.clear();
        for &(from, _, count) in pairs {
            bytes.extend((from..from + count).map(|at| warp.local.load(byte(warp, lane, at), 1)));
        }
        let places = pairs.iter().flat_map(|&(_, to, count)| to..to + count);
        places.zip(&bytes).for_each(|(at, value)| warp.local.store(byte(warp, lane, at), 1, *value));
    });
}

/// The lanes are back: what the caller kept is there again, and the results are the caller's.
pub fn leave(warp: &mut Warp, back: &Return, mask: u32) {
    // Calls whose lanes have all ended never came back.
    while warp.frames.last().is_some_and(|f| f.depth > warp.stack.len()) {
        warp.frames.pop();
    }
    let Some(frame) = warp.frames.pop() else { return };
    let results: Vec<u64> = back.results.iter().flat_map(|&(from, _, count)| from..from + count).collect();
    let mut values = vec![0; results.len() * LANES];
    each(mask, |lane| {
        for (i, &at) in results.iter().enumerate() {
            values[lane * results.len() + i] = warp.local.load(byte(warp, lane, at), 1);
        }
    });
    let Frame { kept, narrow, wide, preds, local, .. } = frame;
    for (row, old) in warp.narrow[kept.narrow].iter_mut().zip(narrow) {
        each(mask, |lane| row[lane] = old[lane]);
    }
    for (row, old) in warp.wide[kept.wide].iter_mut().zip(wide) {
        each(mask, |lane| row[lane] = old[lane]);
    }
    for (row, old) in warp.preds[kept.preds].iter_mut().zip(preds) {
        *row = *row & !mask | old & mask;
    }
    let mut local = local.into_iter();
    for range in kept.local {
        for lane in 0..LANES {
            for (at, value) in range.clone().zip(local.by_ref()) {
                if mask >> lane & 1 != 0 {
                    warp.local.store(byte(warp, lane, at), 1, value.into());
                }
            }
        }
    }
    each(mask, |lane| {
        let places = back.results.iter().flat_map(|&(_, to, count)| to..to + count);
        for (i, at) in places.enumerate() {
            warp.local.store(byte(warp, lane, at), 1, values[lane * results.len() + i]);
        }
    });
}

/// Lanes at different places of functions that call themselves.
#[cold]
pub fn cannot(env: &mut Env, warp: &Warp) -> Stop {
    let message = "lanes of a function that calls itself would have to meet from different places, which is not \
                   simulated; next: move the exchange out of the function";
    let thread = warp.first + warp.now.mask.trailing_zeros();
    env.note(Kind::BarrierDivergence, warp.now.pc, thread, None, message.into());
    Stop::Fault
}
