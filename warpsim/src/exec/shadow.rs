//! Who touched each word of shared memory, and when: for data races and reads of what nobody wrote.
//!
//! Time is a vector clock a warp: a barrier of the block lets its warps know each other's past, `bar.warp` a warp its
//! own lanes'. Two accesses of different threads that no barrier orders, one of them a write, are a race, unless both
//! are atomic or volatile, or the write leaves the value as it is.

use std::collections::BTreeMap;

/// Warps of a block at most.
const WARPS: usize = 32;

/// An access as a word remembers it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Access {
    /// Linear index in the block, plus 1; 0 is nobody.
    pub thread: u32,
    /// Instruction.
    pub pc: u32,
    /// Clock of the thread's warp.
    epoch: u32,
    /// Bytes of the word.
    pub bytes: u8,
    /// Atomic or volatile.
    pub strong: bool,
    /// Whether it writes.
    pub write: bool,
}

impl Access {
    /// An access of now.
    pub fn new(thread: u32, pc: u32, strong: bool, write: bool) -> Self {
        Self { thread: thread + 1, pc, epoch: 0, bytes: 0, strong, write }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    write: Access,
    /// Two different readers: one of them is another thread than any writer to come.
    readers: [Access; 2],
    written: u8,
}

impl Cell {
    /// Keeps a reader: in the first place unless a fresh one of another thread holds it.
    #[inline(always)]
    fn read(&mut self, now: Access, fresh: bool) {
        let place = usize::from(fresh && self.readers[0].thread != 0 && self.readers[0].thread != now.thread);
        self.readers[place] = now;
    }
}

/// The shadow of a block's shared memory.
#[derive(Debug)]
pub struct Shadow {
    cells: Vec<Cell>,
    /// What each warp knows of the others.
    clocks: [[u32; WARPS]; WARPS],
    /// What warps that only arrived have left at each barrier.
    arrived: [[u32; WARPS]; 16],
    /// What warps have left at barriers that lie in shared memory, by address.
    left: BTreeMap<u64, [u32; WARPS]>,
}

impl Shadow {
    /// The shadow of so many bytes.
    pub fn new(bytes: u64) -> Self {
        let cells = vec![Cell::default(); bytes.div_ceil(4) as usize];
        Self { cells, clocks: [[0; WARPS]; WARPS], arrived: [[0; WARPS]; 16], left: BTreeMap::new() }
    }

    /// Before a block: nothing written, nobody was here.
    pub fn start(&mut self) {
        self.cells.fill(Cell::default());
        self.clocks = [[0; WARPS]; WARPS];
        (0..WARPS).for_each(|w| self.clocks[w][w] = 1);
        self.arrived = [[0; WARPS]; 16];
        self.left.clear();
    }

    /// Lanes of a warp came together.
    pub fn warp_barrier(&mut self, warp: usize) {
        self.clocks[warp][warp] += 1;
    }

    /// A warp passes a barrier of the block without waiting.
    pub fn arrive(&mut self, warp: usize, id: u32) {
        join(&mut self.arrived[id as usize & 15], &self.clocks[warp]);
        self.clocks[warp][warp] += 1;
    }

    /// A warp leaves what it knows at a barrier in shared memory.
    pub fn leave(&mut self, warp: usize, address: u64) {
        join(self.left.entry(address).or_default(), &self.clocks[warp]);
        self.clocks[warp][warp] += 1;
    }

    /// A warp has waited for such a barrier: it knows what was left there.
    pub fn learn(&mut self, warp: usize, address: u64) {
        if let Some(left) = self.left.get(&address) {
            join(&mut self.clocks[warp], left);
        }
    }

    /// A word with a value that only barriers look at.
    pub fn written(&mut self, at: usize) {
        self.cells.iter_mut().skip(at / 4).take(2).for_each(|cell| cell.written = 15);
    }

    /// A barrier of the block is complete: the waiting warps know what all of them did.
    pub fn release(&mut self, waiting: &[usize], ended: &[usize], id: u32) {
        let mut all = std::mem::take(&mut self.arrived[id as usize & 15]);
        waiting.iter().chain(ended).for_each(|&w| join(&mut all, &self.clocks[w]));
        for &warp in waiting {
            self.clocks[warp] = all;
            self.clocks[warp][warp] += 1;
        }
    }

    /// Notes a read of a whole word when nothing can be wrong with it; false if that needs a closer look.
    #[inline(always)]
    pub fn plain_read(&mut self, at: usize, thread: u32, pc: u32) -> bool {
        let warp = thread as usize / 32 % WARPS;
        let clocks = &self.clocks[warp];
        let now = Access { thread: thread + 1, pc, epoch: clocks[warp], bytes: 15, strong: false, write: false };
        let Some(cell) = self.cells.get_mut(at / 4) else { return false };
        // Written by the thread itself, or before a barrier that this warp has passed.
        let behind = |other: &Access| {
            let theirs = (other.thread.wrapping_sub(1) / 32) as usize % WARPS;
            other.thread == now.thread || clocks[theirs] >= other.epoch + u32::from(theirs == warp)
        };
        if cell.written != 15 || !behind(&cell.write) {
            return false;
        }
        let fresh = !behind(&cell.readers[0]);
        cell.read(now, fresh);
        true
    }

    /// Notes an access to `len` bytes that do not cross 8; `same` if a write changes nothing.
    /// Gives the access it races with, and whether it reads what nobody wrote.
    pub fn access(&mut self, at: usize, len: usize, mut now: Access, same: bool) -> (Option<Access>, bool) {
        let warp = ((now.thread as usize - 1) / 32) % WARPS;
        let clocks = &self.clocks[warp];
        now.epoch = clocks[warp];
        let (mut race, mut unwritten) = (None, false);
        for word in at / 4..(at + len).div_ceil(4) {
            let (from, to) = (at.max(word * 4), (at + len).min(word * 4 + 4));
            now.bytes = ((1u16 << (to - word * 4)) - (1u16 << (from - word * 4))) as u8;
            let Some(cell) = self.cells.get_mut(word) else { continue };
            let hits = |other: Access| {
                let theirs = (other.thread.wrapping_sub(1) / 32) as usize;
                let apart = other.thread != 0 && other.thread != now.thread && other.bytes & now.bytes != 0;
                let known = theirs == warp && other.epoch < now.epoch;
                let known = known || theirs != warp && theirs < WARPS && clocks[theirs] >= other.epoch;
                apart && !known && !(other.strong && now.strong)
            };
            if now.write {
                if !same {
                    race = race.or([cell.write, cell.readers[0], cell.readers[1]].into_iter().find(|&o| hits(o)));
                }
                cell.write = now;
                cell.written |= now.bytes;
            } else {
                race = race.or(Some(cell.write).filter(|&o| hits(o)));
                unwritten |= cell.written & now.bytes != now.bytes;
                cell.read(now, hits(cell.readers[0]));
            }
        }
        (race, unwritten)
    }
}

fn join(into: &mut [u32; WARPS], from: &[u32; WARPS]) {
    into.iter_mut().zip(from).for_each(|(x, y)| *x = (*x).max(*y));
}
