//! Which loads and stores of a basic block go through the same, unchanged address register: its lanes are measured once.

use crate::cfg;
use crate::op::{Instruction, Measured, Op, Row, SPANS, Slot};

/// Gives each load and store its span.
///
/// Within a basic block all instructions without a guard run with the same lanes, so a span stays right until its row
/// is written. Blocks, guards and instructions not listed in [`written`] start anew.
pub fn place_spans(code: &mut [Instruction]) {
    let leads = cfg::leaders(code);
    let mut held: [Option<(bool, Slot)>; SPANS] = [None; SPANS];
    let mut next = 0;
    for (instruction, leads) in code.iter_mut().zip(leads) {
        if leads {
            held = [None; SPANS];
        }
        let guarded = instruction.guard.is_some();
        match &mut instruction.op {
            Op::Load(t) | Op::Store(t) => {
                let base = (t.address.base.wide, t.address.base.slot);
                match held.iter().position(|h| *h == Some(base) && !guarded) {
                    Some(number) => t.span = Measured { number: number as u8, stale: false },
                    None => {
                        t.span = Measured { number: next as u8, stale: true };
                        held[next] = if guarded { None } else { Some(base) };
                        next = (next + 1) % SPANS;
                    }
                }
                let rows = t.rows;
                if matches!(instruction.op, Op::Load(_)) {
                    rows.iter().flatten().for_each(|row| forget(&mut held, *row));
                }
            }
            op => match written(op) {
                Some(row) => row.into_iter().for_each(|row| forget(&mut held, row)),
                None => held = [None; SPANS],
            },
        }
    }
}

fn forget(held: &mut [Option<(bool, Slot)>], row: Row) {
    held.iter_mut().filter(|h| **h == Some((row.wide, row.slot))).for_each(|h| *h = None);
}

/// The one row that an instruction writes, at most; `None` where it may be more, or is not known here.
fn written(op: &Op) -> Option<Option<Row>> {
    let row = |wide: bool, slot: Slot| Some(Some(Row { slot, wide, short: false }));
    match *op {
        Op::Mov32 { d, .. }
        | Op::Un32 { d, .. }
        | Op::Bin32 { d, .. }
        | Op::Tri32 { d, .. }
        | Op::Select32 { d, .. } => row(false, d),
        Op::Mov64 { d, .. }
        | Op::Un64 { d, .. }
        | Op::Bin64 { d, .. }
        | Op::Tri64 { d, .. }
        | Op::MulWide { narrow: false, d, .. } => row(true, d),
        Op::Convert(c) => row(c.d.wide, c.d.slot),
        Op::AddressOf { d, .. } => row(true, d.slot),
        Op::Compare32(_)
        | Op::Compare64(_)
        | Op::PredLogic { .. }
        | Op::Barrier { .. }
        | Op::Nop
        | Op::Fence { .. } => Some(None),
        _ => None,
    }
}
