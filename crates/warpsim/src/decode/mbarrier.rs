//! Barriers that lie in shared memory (PTX ISA, "mbarrier").

use super::fail::Fail;
use super::memory::{address, sink};
use super::modifiers::Modifiers;
use super::operands::count;
use super::slots::Slots;
use crate::op::{MBarrier, MBarrierOp, Op};
use crate::ptx::ast::Operand;
use crate::ptx::types::{Space, Type};

/// Decodes an `mbarrier`.
pub fn decode(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    if m.ty()? != Type::B64 {
        return Err(Fail::new("an `mbarrier` has 64 bits"));
    }
    m.ignore(&["release", "acquire", "relaxed", "cta", "cluster"]);
    // Named in parts: `.arrive.expect_tx` announces bytes and arrives.
    let bytes = match (m.take("expect_tx"), m.take("complete_tx")) {
        (true, _) if m.take("arrive") => Some(MBarrierOp::ArriveExpect),
        (true, _) => Some(MBarrierOp::Expect),
        (_, true) => Some(MBarrierOp::Complete),
        _ => None,
    };
    let space = if m.take("shared::cluster") || m.take("shared") || m.take("shared::cta") {
        Space::Shared
    } else {
        Space::Generic
    };
    let kinds = [
        ("init", Some(MBarrierOp::Init)),
        ("arrive", Some(MBarrierOp::Arrive { drop: false })),
        ("arrive_drop", Some(MBarrierOp::Arrive { drop: true })),
        ("test_wait", Some(MBarrierOp::Wait { parity: false })),
        ("try_wait", Some(MBarrierOp::Wait { parity: false })),
        ("inval", None),
    ];
    let kind = bytes.map(Some).or_else(|| m.choice(&kinds)).ok_or_else(|| Fail::new("this form of an `mbarrier`"))?;
    let Some(f) = kind else { return Ok(Op::Nop) };
    // An arrival that does not complete the phase is an arrival.
    m.take("noComplete");
    let f = if m.take("parity") { MBarrierOp::Wait { parity: true } } else { f };
    let barrier = match (f, operands) {
        (MBarrierOp::Init, [place, arrivals]) => {
            MBarrier { operand: Some(slots.source(arrivals, false)?), ..at(slots, f, place, space)? }
        }
        (MBarrierOp::Arrive { .. }, [state, place, rest @ ..]) => {
            let mut out = at(slots, f, place, space)?;
            out.state = match sink(slots, state)? {
                Some(row) if !row.wide => return Err(Fail::new("the state has 64 bits")),
                row => row.map(|r| r.slot),
            };
            out.operand = match rest {
                [] => None,
                [arrivals] => Some(slots.source(arrivals, false)?),
                _ => return Err(count(3)),
            };
            out
        }
        (MBarrierOp::ArriveExpect, [state, place, bytes]) => {
            let mut out = at(slots, f, place, space)?;
            out.state = sink(slots, state)?.map(|r| r.slot);
            out.operand = Some(slots.source(bytes, false)?);
            out
        }
        (MBarrierOp::Expect | MBarrierOp::Complete, [place, bytes]) => {
            MBarrier { operand: Some(slots.source(bytes, false)?), ..at(slots, f, place, space)? }
        }
        // The last operand says how long a thread may sleep.
        (MBarrierOp::Wait { parity }, [done, place, phase] | [done, place, phase, _]) => {
            let mut out = at(slots, f, place, space)?;
            out.done = slots.pred_out(done)?;
            out.operand = Some(slots.source(phase, !parity)?);
            out
        }
        _ => return Err(Fail::new("the number of operands does not fit")),
    };
    Ok(Op::MBarrier(Box::new(barrier)))
}

fn at(slots: &mut Slots, f: MBarrierOp, place: &Operand, space: Space) -> Result<MBarrier, Fail> {
    Ok(MBarrier { f, address: address(slots, place, space)?, state: None, done: None, operand: None })
}

/// `cp.async.mbarrier.arrive`: the phase does not end before the thread's copies. Without `.noinc` the barrier expects one
/// arrival more and gets it.
pub fn copied(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand]) -> Result<Op, Fail> {
    m.ty()?;
    let counted = m.take("noinc");
    if !m.take("arrive") {
        return Err(Fail::new("this form of an `mbarrier`"));
    }
    let space = if m.take("shared") || m.take("shared::cta") { Space::Shared } else { Space::Generic };
    let [place] = operands else { return Err(count(1)) };
    let address = address(slots, place, space)?;
    let f = MBarrierOp::Copied { arrives: counted };
    Ok(Op::MBarrier(Box::new(MBarrier { f, address, state: None, done: None, operand: None })))
}
