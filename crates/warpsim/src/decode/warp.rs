//! Control flow, barriers, exchange between lanes.

use super::fail::Fail;
use super::modifiers::Modifiers;
use super::operands::{count, out};
use super::slots::Slots;
use crate::op::{BarrierReduce, Op, Redux, Shuffle, Vote};
use crate::ptx::ast::Operand;
use crate::ptx::types::Type;

/// Decodes an instruction of this group.
pub fn decode(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    match m.base {
        "ret" | "exit" => {
            m.take("uni");
            Ok(Op::Exit)
        }
        "trap" => Ok(Op::Trap),
        // Memory is coherent; a fence tells what is meant to be seen in order.
        "membar" | "fence" => {
            let far = !m.take("cta");
            let proxy = m.take("async") || m.take("async::generic") || m.take("async.global");
            m.ignore(&["gl", "sys", "gpu", "cluster", "sc", "acq_rel", "acquire", "release"]);
            m.ignore(&["proxy", "alias", "shared::cta", "shared::cluster", "global", "tensormap::generic"]);
            m.ignore(&["mbarrier_init", "sync_restrict::shared::cta", "sync_restrict::shared::cluster"]);
            Ok(if proxy { Op::ProxyFence } else { Op::Fence { far } })
        }
        // Nobody waits for time to pass. A launch starts when the one in front has ended, so that `griddepcontrol.wait` has
        // nothing to wait for, and nobody is there whom `launch_dependents` could let start.
        "nanosleep" | "pmevent" | "griddepcontrol" => {
            m.ignore(&["u32", "wait", "launch_dependents"]);
            Ok(Op::Nop)
        }
        "elect" => {
            sync(m)?;
            let [Operand::Pair(d, p), members] = operands else { return Err(count(2)) };
            let d = match super::memory::sink(slots, d)? {
                Some(row) if row.wide => return Err(Fail::new("the result has 32 bits")),
                row => row.map(|r| r.slot),
            };
            let p = slots.pred_out(p)?.ok_or_else(|| Fail::new("a predicate is needed"))?;
            Ok(Op::Elect { d, p, members: slots.source(members, false)? })
        }
        "bar" | "barrier" => barrier(slots, m, operands),
        "shfl" => shuffle(slots, m, operands),
        "vote" => vote(slots, m, operands),
        "match" => find_same(slots, m, operands),
        "activemask" => {
            m.ty()?;
            let [d] = operands else { return Err(count(1)) };
            Ok(Op::ActiveMask { d: out(slots, d, false)? })
        }
        "redux" => {
            let ty = m.ty()?;
            let signed = ty.signed();
            sync(m)?;
            let ops = [
                ("add", Redux::Add),
                ("min", Redux::Min { signed }),
                ("max", Redux::Max { signed }),
                ("and", Redux::And),
                ("or", Redux::Or),
                ("xor", Redux::Xor),
            ];
            let f = m.choice(&ops).ok_or_else(|| Fail::new("its operation is unknown"))?;
            let [d, a, members] = operands else { return Err(count(3)) };
            if ty.float() || ty.bytes() != 4 {
                return Err(Fail::new("the type is an integer of 32 bits"));
            }
            let d = out(slots, d, false)?;
            Ok(Op::Redux { f, d, a: slots.source(a, false)?, members: slots.source(members, false)? })
        }
        _ => Err(Fail::new("the simulator does not know this instruction")),
    }
}

fn sync(m: &mut Modifiers) -> Result<(), Fail> {
    if m.take("sync") { Ok(()) } else { Err(Fail::new("the form without `.sync` is gone from current GPUs")) }
}

fn barrier(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    if m.take("warp") {
        sync(m)?;
        let [members] = operands else { return Err(count(1)) };
        return Ok(Op::WarpBarrier { members: slots.source(members, false)? });
    }
    m.ignore(&["cta", "aligned"]);
    if m.take("cluster") {
        m.ignore(&["release", "acquire", "relaxed"]);
        return match (m.choice(&[("wait", true), ("arrive", false)]), operands) {
            (Some(true), []) => Ok(Op::ClusterWait),
            (Some(false), []) => Ok(Op::ClusterArrive),
            _ => Err(Fail::new("its form is unknown")),
        };
    }
    if m.take("red") {
        let ops = [("popc", BarrierReduce::Popc), ("and", BarrierReduce::And), ("or", BarrierReduce::Or)];
        let f = m.choice(&ops).ok_or_else(|| Fail::new("its operation is unknown"))?;
        let ty = m.ty()?;
        let [d, id, a] = operands else { return Err(Fail::new("a reduction over part of the block")) };
        let (id, a) = (slots.source(id, false)?, slots.pred(a)?);
        let d = match (f, ty) {
            (BarrierReduce::Popc, Type::U32) => out(slots, d, false)?,
            (BarrierReduce::And | BarrierReduce::Or, Type::Pred) => {
                slots.pred_out(d)?.ok_or_else(|| Fail::new("a result is needed"))?
            }
            _ => return Err(Fail::new("the type does not fit the operation")),
        };
        return Ok(Op::BarrierReduce { f, id, d, a });
    }
    let wait = m.choice(&[("sync", true), ("arrive", false)]).ok_or_else(|| Fail::new("its form is unknown"))?;
    let (id, threads) = match operands {
        [id] if wait => (id, None),
        [id, threads] => (id, Some(slots.source(threads, false)?)),
        _ => return Err(Fail::new("the number of operands does not fit")),
    };
    Ok(Op::Barrier { id: slots.source(id, false)?, threads, wait })
}

fn shuffle(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    m.ty()?;
    sync(m)?;
    let kinds = [("up", Shuffle::Up), ("down", Shuffle::Down), ("bfly", Shuffle::Butterfly), ("idx", Shuffle::Index)];
    let f = m.choice(&kinds).ok_or_else(|| Fail::new("its mode is unknown"))?;
    let [d, a, lane, clamp, members] = operands else { return Err(count(5)) };
    let (d, p) = match d {
        Operand::Pair(d, p) => (out(slots, d, false)?, slots.pred_out(p)?),
        d => (out(slots, d, false)?, None),
    };
    let mut source = |o| slots.source(o, false);
    Ok(Op::Shuffle { f, d, p, a: source(a)?, lane: source(lane)?, clamp: source(clamp)?, members: source(members)? })
}

fn vote(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    m.ty()?;
    sync(m)?;
    let kinds = [("all", Vote::All), ("any", Vote::Any), ("uni", Vote::Uni), ("ballot", Vote::Ballot)];
    let f = m.choice(&kinds).ok_or_else(|| Fail::new("its mode is unknown"))?;
    let [d, a, members] = operands else { return Err(count(3)) };
    let (a, members) = (slots.pred(a)?, slots.source(members, false)?);
    if f == Vote::Ballot {
        return Ok(Op::Ballot { d: out(slots, d, false)?, a, members });
    }
    let d = slots.pred_out(d)?.ok_or_else(|| Fail::new("a result is needed"))?;
    Ok(Op::VotePred { f, d, a, members })
}

fn find_same(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    let wide = m.ty()?.bytes() == 8;
    sync(m)?;
    let all = m.choice(&[("all", true), ("any", false)]).ok_or_else(|| Fail::new("its mode is unknown"))?;
    let [d, a, members] = operands else { return Err(count(3)) };
    let (d, p) = match d {
        Operand::Pair(d, p) if all => (out(slots, d, false)?, slots.pred_out(p)?),
        d => (out(slots, d, false)?, None),
    };
    Ok(Op::Match { all, wide, d, p, a: slots.source(a, wide)?, members: slots.source(members, false)? })
}
