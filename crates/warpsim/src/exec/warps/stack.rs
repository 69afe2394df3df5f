//! Predicates of a warp, and the stack of lanes that wait for others at meeting points.

use crate::cfg::NEVER;
use crate::exec::blocks::state::{Entry, Status, Warp};
use crate::exec::values::lanes::LANES;
use crate::op::Pred;

impl Warp {
    /// Lanes in which a predicate operand holds.
    #[inline(always)]
    pub fn pred(&self, pred: Pred) -> u32 {
        let mask = self.preds[pred.slot as usize];
        if pred.negated { !mask } else { mask }
    }

    /// Sets a predicate in some lanes.
    #[inline(always)]
    pub fn set_pred(&mut self, slot: u32, value: u32, mask: u32) {
        let row = &mut self.preds[slot as usize];
        *row = *row & !mask | value & mask;
    }

    /// The lanes that run now are through: the next ones go on, or the warp is done.
    pub fn next_lanes(&mut self) {
        loop {
            match self.stack.pop() {
                None => {
                    self.status = Status::Done;
                    self.now.mask = 0;
                    return;
                }
                Some(entry) => {
                    let mask = entry.mask & self.live;
                    if mask != 0 && entry.pc != entry.meet {
                        self.now = Entry { mask, ..entry };
                        return;
                    }
                }
            }
        }
    }

    /// Each lane jumps to the target that its index picks. Whether lanes part; the first lane whose index is outside.
    pub fn spread(&mut self, ends: impl Fn(u32) -> bool, index: u32, targets: &[u32], meet: u32) -> Result<bool, u32> {
        let Entry { mask, meet: outer, .. } = self.now;
        let row = self.narrow[index as usize];
        let meet = if meet == NEVER { outer } else { meet };
        let mut groups: Vec<Entry> = Vec::new();
        for lane in (0..LANES as u32).filter(|l| mask >> l & 1 != 0) {
            let &pc = targets.get(row[lane as usize] as usize).ok_or(lane)?;
            match groups.iter_mut().find(|g| g.pc == pc) {
                Some(group) => group.mask |= 1 << lane,
                None => groups.push(Entry { pc, mask: 1 << lane, meet }),
            }
        }
        if let [only] = groups.as_slice() {
            self.now.pc = only.pc;
            return Ok(false);
        }
        if meet != outer {
            self.stack.push(Entry { pc: meet, mask, meet: outer });
        }
        // Lanes that end now do so first, as in `part`.
        groups.sort_by_key(|g| ends(g.pc));
        self.stack.extend(groups);
        self.next_lanes();
        Ok(true)
    }

    /// Lanes part: `taken` jump, the others go on behind the branch.
    pub fn part(&mut self, code_ends: impl Fn(u32) -> bool, taken: u32, target: u32, meet: u32) {
        let Entry { pc, mask, meet: outer } = self.now;
        let meet = if meet == NEVER { outer } else { meet };
        if meet != outer {
            self.stack.push(Entry { pc: meet, mask, meet: outer });
        }
        let jump = Entry { pc: target, mask: taken, meet };
        let stay = Entry { pc: pc + 1, mask: mask & !taken, meet };
        // Lanes that end now do so first: nobody then waits for them at a barrier.
        let (first, second) = if code_ends(stay.pc) { (stay, jump) } else { (jump, stay) };
        self.stack.push(second);
        self.stack.push(first);
        self.next_lanes();
    }
}
