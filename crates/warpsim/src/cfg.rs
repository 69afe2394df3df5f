//! Where lanes that diverge reconverge: at the immediate post-dominator of each branch.

use crate::op::{Instruction, Op};

/// No reconvergence point before the end of the kernel.
pub const NEVER: u32 = u32::MAX;

/// Fills in the reconvergence point of every branch.
///
/// A path that only ends threads (a jump to `ret`) does not move the reconvergence point of the others: lanes that stay
/// meet where they would without it, as they do on hardware. Nor does a path that can only lead to a `trap`, on which
/// nobody is waited for: each index that Rust checks has one.
pub fn place_reconvergence(code: &mut [Instruction]) {
    let graph = Graph::new(code);
    let post = graph.post_dominators();
    for (block, meet) in post.into_iter().enumerate().take(graph.starts.len()) {
        let last = graph.end(block, code.len()) - 1;
        if let Op::Branch { reconverge, .. } | Op::BranchTable { reconverge, .. } = &mut code[last].op {
            *reconverge = match meet {
                Some(to) if to < graph.starts.len() => graph.starts[to] as u32,
                _ => NEVER,
            };
        }
    }
}

/// Whether a basic block starts at each instruction, and behind the last.
pub fn leaders(code: &[Instruction]) -> Vec<bool> {
    let mut leads = vec![false; code.len() + 1];
    leads[0] = true;
    for (at, instruction) in code.iter().enumerate() {
        match &instruction.op {
            Op::Branch { target, .. } => (leads[*target as usize], leads[at + 1]) = (true, true),
            Op::BranchTable { targets, .. } => {
                leads[at + 1] = true;
                targets.iter().for_each(|&target| leads[target as usize] = true);
            }
            Op::Exit | Op::Trap | Op::End => leads[at + 1] = true,
            Op::Call(call) => {
                leads[call.code.start as usize] = true;
                leads[call.code.end as usize] = true;
            }
            _ => {}
        }
    }
    leads
}

/// Paths that do not move a reconvergence point.
#[derive(Clone, Copy, PartialEq)]
enum Skip {
    Nothing,
    /// To a `trap`.
    Stops,
    /// To a `trap` or a `ret`.
    Ends,
}

/// Basic blocks; the number of blocks stands for the exit.
struct Graph {
    starts: Vec<usize>,
    next: Vec<Vec<usize>>,
    /// Blocks from which every path leads to a `trap`.
    stops: Vec<bool>,
}

impl Graph {
    fn new(code: &[Instruction]) -> Self {
        let leads = leaders(code);
        let starts: Vec<usize> = (0..code.len()).filter(|&at| leads[at]).collect();
        let mut graph = Self { next: Vec::new(), stops: vec![false; starts.len()], starts };
        let blocks = graph.starts.len();
        let all: Vec<Vec<usize>> = (0..blocks).map(|b| graph.successors(code, b, Skip::Nothing)).collect();
        graph.find_stops(code, &all);
        graph.next = (0..blocks).map(|b| graph.successors(code, b, Skip::Ends)).collect();
        // A loop that only a `ret` leaves needs that way out to have a post-dominator; one that only a `trap` leaves, that.
        let stops = (0..blocks).map(|b| graph.successors(code, b, Skip::Stops)).collect();
        for more in [stops, all] {
            let reaches = graph.reaches_exit();
            for (block, successors) in more.into_iter().enumerate().filter(|(block, _)| !reaches[*block]) {
                graph.next[block] = successors;
            }
        }
        graph
    }

    fn find_stops(&mut self, code: &[Instruction], all: &[Vec<usize>]) {
        let last = |block| &code[self.end(block, code.len()) - 1];
        let trap = |block| matches!(last(block).op, Op::Trap) && last(block).guard.is_none();
        let mut stops: Vec<bool> = (0..all.len()).map(trap).collect();
        loop {
            let mut changed = false;
            for block in (0..all.len()).rev() {
                let leads = all[block].iter().all(|&next| stops.get(next).copied().unwrap_or(false));
                if leads && !std::mem::replace(&mut stops[block], true) {
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        self.stops = stops;
    }

    fn end(&self, block: usize, length: usize) -> usize {
        self.starts.get(block + 1).copied().unwrap_or(length)
    }

    fn block_of(&self, at: usize) -> usize {
        self.starts.partition_point(|&s| s <= at) - 1
    }

    fn successors(&self, code: &[Instruction], block: usize, skip: Skip) -> Vec<usize> {
        let exit = self.starts.len();
        let end = self.end(block, code.len());
        let last = &code[end - 1];
        let follow = if end < code.len() { self.block_of(end) } else { exit };
        let skipped = |b: usize| match skip {
            Skip::Nothing => false,
            Skip::Stops => self.stops.get(b).copied().unwrap_or(false),
            Skip::Ends if b == exit || self.stops[b] => true,
            Skip::Ends => {
                let first = &code[self.starts[b]];
                matches!(first.op, Op::Exit | Op::Trap) && first.guard.is_none()
            }
        };
        let mut out = match (&last.op, last.guard) {
            (Op::Branch { target, .. }, None) => vec![self.block_of(*target as usize)],
            (Op::Branch { target, .. }, Some(_)) => vec![self.block_of(*target as usize), follow],
            (Op::BranchTable { targets, .. }, _) => {
                let mut blocks: Vec<usize> = targets.iter().map(|&t| self.block_of(t as usize)).collect();
                blocks.sort_unstable();
                blocks.dedup();
                blocks
            }
            (Op::Exit | Op::Trap | Op::End, None) => vec![exit],
            (Op::Exit | Op::Trap, Some(_)) => vec![exit, follow],
            _ => vec![follow],
        };
        if out.iter().any(|&b| !skipped(b)) && out.len() >= 2 {
            out.retain(|&b| !skipped(b));
        }
        out
    }

    fn predecessors(&self) -> Vec<Vec<usize>> {
        let mut before = vec![Vec::new(); self.starts.len() + 1];
        for (block, next) in self.next.iter().enumerate() {
            next.iter().for_each(|&n| before[n].push(block));
        }
        before
    }

    fn reaches_exit(&self) -> Vec<bool> {
        let before = self.predecessors();
        let mut seen = vec![false; before.len()];
        let mut work = vec![self.starts.len()];
        while let Some(block) = work.pop() {
            if !std::mem::replace(&mut seen[block], true) {
                work.extend(&before[block]);
            }
        }
        seen
    }

    /// Immediate post-dominators by iteration to a fixed point (Cooper, Harvey, Kennedy 2001, on the reverse graph).
    fn post_dominators(&self) -> Vec<Option<usize>> {
        let exit = self.starts.len();
        let before = self.predecessors();
        // Post-order of the reverse graph from the exit.
        let mut rank = vec![usize::MAX; exit + 1];
        let mut order = Vec::new();
        let mut seen = vec![false; exit + 1];
        let mut stack = vec![(exit, 0)];
        seen[exit] = true;
        while let Some((block, child)) = stack.pop() {
            match before[block].get(child) {
                Some(&next) => {
                    stack.push((block, child + 1));
                    if !std::mem::replace(&mut seen[next], true) {
                        stack.push((next, 0));
                    }
                }
                None => {
                    rank[block] = order.len();
                    order.push(block);
                }
            }
        }
        let mut post: Vec<Option<usize>> = vec![None; exit + 1];
        post[exit] = Some(exit);
        let meet = |post: &[Option<usize>], mut a: usize, mut b: usize| {
            while a != b {
                let low = if rank[a] < rank[b] { &mut a } else { &mut b };
                *low = post[*low].unwrap_or(exit);
            }
            a
        };
        loop {
            let mut changed = false;
            for &block in order.iter().rev().filter(|&&b| b != exit) {
                let mut new = None;
                for &next in self.next[block].iter().filter(|&&n| post[n].is_some()) {
                    new = Some(new.map_or(next, |n| meet(&post, n, next)));
                }
                changed |= new != post[block];
                post[block] = new;
            }
            if !changed {
                return post;
            }
        }
    }
}
