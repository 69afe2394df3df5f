//! Exchanges between lanes that are at different places (PTX ISA, "shfl.sync": it waits for all threads of the member
//! mask that have not ended to execute it with the same qualifiers and the same mask).

use super::exchange::{self, members};
use crate::exec::blocks::state::{Env, Warp};
use crate::exec::values::lanes::{LANES, each};
use crate::finding::Kind;
use crate::op::{Op, Pred};

/// Whether an exchange can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gathered {
    /// Lanes that exchange with each other, by group.
    Groups(Vec<u32>),
    /// A lane whose mask does not name itself.
    Wrong(u32),
    /// Lanes that are named are not there yet.
    Missing,
}

/// Whether two places are the same exchange.
fn matches(a: &Op, b: &Op) -> bool {
    match (a, b) {
        (Op::Shuffle { f, .. }, Op::Shuffle { f: g, .. }) => f == g,
        (Op::VotePred { f, .. }, Op::VotePred { f: g, .. }) => f == g,
        (Op::Match { all, wide, .. }, Op::Match { all: a, wide: w, .. }) => all == a && wide == w,
        (Op::Redux { f, .. }, Op::Redux { f: g, .. }) => f == g,
        (Op::Elect { .. }, Op::Elect { .. }) => true,
        (Op::Ballot { .. }, Op::Ballot { .. }) | (Op::WarpBarrier { .. }, Op::WarpBarrier { .. }) => true,
        _ => false,
    }
}

/// Where each lane is that stands before the same exchange as the one at `pc`: its member mask and its place.
fn standing(env: &Env, warp: &Warp, pc: u32) -> [Option<(u32, u32)>; LANES] {
    let code = &env.machine.kernel.code;
    let mut out = [None; LANES];
    for strand in &warp.apart.strands {
        let there = &code[strand.pc as usize];
        let Some(row) = members(&there.op).filter(|_| matches(&code[pc as usize].op, &there.op)) else { continue };
        let lanes = there.guard.map_or(strand.mask, |guard| warp.pred(guard)) & strand.mask;
        each(lanes, |lane| out[lane] = Some((warp.narrow[row as usize][lane], strand.pc)));
    }
    out
}

/// The groups of the lanes before the exchange at `pc`.
pub fn groups(env: &Env, warp: &Warp, pc: u32, lanes: u32) -> Gathered {
    let standing = standing(env, warp, pc);
    let mut groups = Vec::new();
    let mut rest = lanes;
    while rest != 0 {
        let lane = rest.trailing_zeros();
        let Some((wanted, _)) = standing[lane as usize] else { return Gathered::Missing };
        let here = (0..LANES).filter(|&l| standing[l].is_some_and(|s| s.0 == wanted)).fold(0u32, |m, l| m | 1 << l);
        if here & !wanted != 0 {
            return Gathered::Wrong((here & !wanted).trailing_zeros());
        }
        if wanted & warp.live & !here != 0 {
            return Gathered::Missing;
        }
        groups.push(here);
        rest &= !here;
    }
    Gathered::Groups(groups)
}

/// Does the exchange for the strand at `pc` and all that take part; false if it cannot.
pub fn exchange(env: &mut Env, warp: &mut Warp, pc: u32, lanes: u32) -> bool {
    let groups = match groups(env, warp, pc, lanes) {
        Gathered::Groups(groups) => groups,
        Gathered::Wrong(lane) => {
            let message = "the member mask does not name the lane itself; next: name all lanes that execute this";
            env.note(Kind::BarrierDivergence, pc, warp.first + lane, None, message.into());
            return false;
        }
        // It was looked at when the strand was picked.
        Gathered::Missing => return false,
    };
    for group in groups {
        if !one(env, warp, pc, group) {
            return false;
        }
        count(env, warp, group);
        advance(warp, pc, group, env);
    }
    true
}

/// Counts the instruction once at each place.
fn count(env: &mut Env, warp: &Warp, group: u32) {
    for strand in &warp.apart.strands {
        let lanes = strand.mask & group;
        if lanes != 0 {
            if env.machine.counters {
                let tally = &mut env.tally[strand.pc as usize];
                tally.warps += 1;
                tally.lanes += u64::from(lanes.count_ones());
            }
            env.steps += 1;
        }
    }
}

/// The lanes of a group go on behind their instruction; lanes that stood with them and are in no group stay.
fn advance(warp: &mut Warp, pc: u32, group: u32, env: &Env) {
    let mut gone = Vec::new();
    for strand in &mut warp.apart.strands {
        let lanes = strand.mask & group;
        if lanes != 0 {
            strand.mask &= !group;
            gone.push(super::strands::Strand { pc: strand.pc + 1, mask: lanes, last: env.steps, ..*strand });
        }
    }
    debug_assert!(gone.iter().any(|s| s.pc == pc + 1), "the strand that asked goes on");
    warp.apart.strands.retain(|s| s.mask != 0);
    warp.apart.strands.extend(gone);
}

/// One group exchanges: operands of all places come together in spare rows, results go back. False after a finding.
fn one(env: &mut Env, warp: &mut Warp, pc: u32, group: u32) -> bool {
    let code = &env.machine.kernel.code;
    let places: Vec<(u32, u32)> =
        warp.apart.strands.iter().map(|s| (s.pc, s.mask & group)).filter(|p| p.1 != 0).collect();
    let (narrow, wide, preds) = (warp.narrow.len(), warp.wide.len(), warp.preds.len());
    warp.narrow.resize(narrow + 5, [0; LANES]);
    warp.wide.resize(wide + 1, [0; LANES]);
    warp.preds.resize(preds + 2, 0);
    let (n, w, p) = (narrow as u32, wide as u32, preds as u32);
    let source = Pred { slot: p + 1, negated: false };
    let spare = match code[pc as usize].op {
        Op::Shuffle { f, .. } => {
            Op::Shuffle { f, d: n, p: Some(p), a: n + 1, lane: n + 2, clamp: n + 3, members: n + 4 }
        }
        Op::VotePred { f, .. } => Op::VotePred { f, d: p, a: source, members: n + 4 },
        Op::Ballot { .. } => Op::Ballot { d: n, a: source, members: n + 4 },
        Op::Match { all, wide, .. } => {
            Op::Match { all, wide, d: n, p: all.then_some(p), a: if wide { w } else { n + 1 }, members: n + 4 }
        }
        Op::Redux { f, .. } => Op::Redux { f, d: n, a: n + 1, members: n + 4 },
        Op::Elect { .. } => Op::Elect { d: Some(n), p, members: n + 4 },
        _ => Op::WarpBarrier { members: n + 4 },
    };
    for &(pc, lanes) in &places {
        let mut bring =
            |from: u32, to: u32| each(lanes, |l| warp.narrow[to as usize][l] = warp.narrow[from as usize][l]);
        match code[pc as usize].op {
            Op::Shuffle { a, lane, clamp, .. } => {
                [a, lane, clamp].into_iter().zip(n + 1..).for_each(|(x, y)| bring(x, y))
            }
            Op::Match { a, wide: true, .. } => each(lanes, |l| warp.wide[w as usize][l] = warp.wide[a as usize][l]),
            Op::Match { a, .. } | Op::Redux { a, .. } => bring(a, n + 1),
            Op::VotePred { a, .. } | Op::Ballot { a, .. } => {
                let holds = warp.pred(a);
                warp.set_pred(p + 1, holds, lanes);
            }
            _ => {}
        }
    }
    let absent = warp.apart.all & !group;
    let right = !matches!(spare, Op::Shuffle { .. }) || from_present(env, warp, pc, &spare, (group, absent));
    exchange::run(warp, &spare, group);
    for &(pc, lanes) in &places {
        let mut hand = |to: u32| each(lanes, |l| warp.narrow[to as usize][l] = warp.narrow[n as usize][l]);
        match code[pc as usize].op {
            Op::Shuffle { d, p: out, .. } | Op::Match { d, p: out, .. } => {
                hand(d);
                if let Some(out) = out {
                    let holds = warp.preds[preds];
                    warp.set_pred(out, holds, lanes);
                }
            }
            Op::Ballot { d, .. } | Op::Redux { d, .. } => hand(d),
            Op::Elect { d, p: out, .. } => {
                d.into_iter().for_each(hand);
                let holds = warp.preds[preds];
                warp.set_pred(out, holds, lanes);
            }
            Op::VotePred { d, .. } => {
                let holds = warp.preds[preds];
                warp.set_pred(d, holds, lanes);
            }
            _ => {}
        }
    }
    warp.narrow.truncate(narrow);
    warp.wide.truncate(wide);
    warp.preds.truncate(preds);
    if let (Op::WarpBarrier { .. }, Some(shadow)) = (&spare, &mut env.shadow) {
        shadow.clocks_mut().warp_barrier(warp.first as usize / LANES);
    }
    right
}

/// Whether no lane reads one that ended instead of coming here; a shuffle of the lanes' numbers shows who reads whom.
fn from_present(env: &mut Env, warp: &mut Warp, pc: u32, op: &Op, (group, absent): (u32, u32)) -> bool {
    let Op::Shuffle { d, a, .. } = *op else { return true };
    let values = warp.narrow[a as usize];
    warp.narrow[a as usize] = std::array::from_fn(|lane| lane as u32);
    exchange::run(warp, op, group);
    warp.narrow[a as usize] = values;
    let sources = warp.narrow[d as usize];
    let reads = (0..LANES).find(|&l| group >> l & 1 != 0 && absent >> sources[l] & 1 != 0);
    if let Some(lane) = reads {
        let message = format!(
            "lane {lane} reads lane {}, which ended without executing this; \
             next: use it where the whole group is, or name the group's lanes",
            sources[lane]
        );
        env.note(Kind::BarrierDivergence, pc, warp.first + lane as u32, None, message);
    }
    reads.is_none()
}
