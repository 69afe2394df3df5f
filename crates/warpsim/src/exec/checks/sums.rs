//! Registers of a warpgroup's products (PTX ISA, "Asynchronous wgmma Proxy Operations"): nobody may touch them until the
//! products are waited for, and `wgmma.fence` comes between ordinary accesses and the next product.
//!
//! Moves between registers are the compiler's own, which ptxas takes away again: they hand on what is known.

use crate::exec::blocks::state::{Env, Warp};
use crate::finding::Kind;
use crate::op::{Left, Op, Wgmma};

/// A group of products, from 1 on, and the instruction.
type Group = (u32, u32);

/// The registers of a warp that products use, by row of the 32-bit file.
#[derive(Debug, Default)]
pub struct Sums {
    /// Groups that were committed, and groups that were waited for.
    committed: u32,
    waited: u32,
    /// Whether the warp has passed a `wgmma.fence`.
    fenced: bool,
    /// The last product that writes a register, or reads one.
    written: Vec<Group>,
    read: Vec<Group>,
    /// Ordinary writes since the last `wgmma.fence`.
    fresh: Vec<bool>,
}

impl Sums {
    /// Before a block.
    pub fn start(&mut self) {
        (self.committed, self.waited, self.fenced) = (0, 0, false);
        self.written.fill((0, 0));
        self.read.fill((0, 0));
        self.fresh.fill(false);
    }

    /// `wgmma.fence`.
    pub fn fence(&mut self) {
        self.fenced = true;
        self.fresh.fill(false);
    }

    /// `wgmma.commit_group`.
    pub fn commit(&mut self) {
        self.committed += 1;
    }

    /// `wgmma.wait_group`.
    pub fn wait(&mut self, pending: u32) {
        self.waited = self.waited.max(self.committed.saturating_sub(pending));
    }

    fn unfinished(&self, (group, pc): Group) -> Option<u32> {
        (group > self.waited).then_some(pc)
    }
}

/// A product begins.
pub fn begin(env: &mut Env, warp: &mut Warp, pc: u32, m: &Wgmma) {
    if !env.machine.checks {
        return;
    }
    let rows = warp.narrow.len();
    let sums = &mut warp.sums;
    if sums.written.is_empty() {
        (sums.written, sums.read, sums.fresh) = (vec![(0, 0); rows], vec![(0, 0); rows], vec![false; rows]);
    }
    let left: &[u32] = if let Left::Registers(rows) = &m.a { rows } else { &[] };
    let fresh = m.d.iter().chain(left).any(|&row| sums.fresh[row as usize]);
    let message = match (sums.fenced, fresh) {
        (false, _) => Some("is the first product of its warpgroup, and no wgmma.fence is before it"),
        (true, true) => Some("uses registers that were written since the last wgmma.fence"),
        _ => None,
    };
    let group = sums.committed + 1;
    m.d.iter().for_each(|&row| sums.written[row as usize] = (group, pc));
    left.iter().for_each(|&row| sums.read[row as usize] = (group, pc));
    if let Some(message) = message {
        let message =
            format!("{message}; next: put wgmma.fence between the last write of its registers and the product");
        env.note(Kind::MissingFence, pc, warp.first, None, message);
    }
}

/// An instruction that reads or writes registers of products.
#[inline(never)]
pub fn look(env: &mut Env, warp: &mut Warp, pc: u32) {
    let kernel = env.machine.kernel;
    let instruction = &kernel.code[pc as usize];
    let sums = &mut warp.sums;
    // The products themselves are looked at where they begin.
    if sums.written.is_empty() || matches!(instruction.op, Op::Wgmma(_)) {
        return;
    }
    if let Op::Mov32 { d, a } = instruction.op {
        let (d, a) = (d as usize, a as usize);
        (sums.written[d], sums.read[d], sums.fresh[d]) = (sums.written[a], (0, 0), sums.fresh[a]);
        return;
    }
    let touches = &kernel.sums[instruction.sums as usize - 1];
    let early = touches.reads.iter().find_map(|&row| sums.unfinished(sums.written[row as usize]));
    let late = touches
        .writes
        .iter()
        .find_map(|&row| sums.unfinished(sums.written[row as usize]).or(sums.unfinished(sums.read[row as usize])));
    touches.writes.iter().for_each(|&row| sums.fresh[row as usize] = true);
    let (Some(product), verb) = (early.or(late), if early.is_some() { "reads" } else { "writes" }) else { return };
    let there = &kernel.code[product as usize];
    let line = match crate::module::source_line(env.machine.files, there.loc) {
        Some(source) => format!("line {}", source.line),
        None => format!("PTX line {}", there.ptx_line),
    };
    let message = format!(
        "{verb} a register of the wgmma at {line} before the product is waited for; next: put wgmma.commit_group and \
         wgmma.wait_group between the two, with few enough groups left"
    );
    env.note(Kind::Unfinished, pc, warp.first, None, message);
}
