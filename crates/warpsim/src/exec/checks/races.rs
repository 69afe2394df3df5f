//! A first look at who uses global memory together, cheap and the same in any order of the blocks.
//!
//! Each word keeps who touched it (one thread, threads of one block, several blocks) and how. Words that nobody shares,
//! that are only read, or that only atomics touch are no race, and no order of the blocks can show in them; then one run
//! on all cores is all. If a word is suspicious, memory is put back as it was and the launch runs again, block after
//! block, with an exact look at those words ([`super::exact`]): so results and findings of a kernel with a race do not
//! depend on the number of cores either.
//!
//! Memory, by the byte of the buffers: 1 for the words' cells, at most 1.13 for what was there before, in pages that
//! were written, and at most 0.63 for the exact look.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::exec::values::lanes::LANES;
use crate::memory::{Allocation, Bytes, DeviceMemory, PIECE, Piece, Span};

/// Bytes of a page, which is put aside as a whole.
const PAGE: usize = 4096;
/// How a word was touched.
pub const READ: u32 = 1;
pub const WRITE: u32 = 2;
pub const ATOMIC: u32 = 4;
/// By whom: nobody is 0.
const THREAD: u32 = 1 << 3;
const BLOCK: u32 = 2 << 3;
const GRID: u32 = 3 << 3;
const WHO: u32 = 3 << 3;
/// Bits above are the thread or the block.
const TAG: u32 = 5;
const TAGS: u64 = 1 << (32 - TAG);

/// What is kept of an allocation.
struct Side {
    cells: Bytes,
    /// Whether each page was put aside.
    saved: Box<[AtomicU8]>,
    before: Bytes,
    written: Bytes,
}

/// The shadow of global memory in a launch.
pub struct Races<'a> {
    memory: &'a DeviceMemory,
    sides: Vec<Side>,
    threads: u64,
    /// Blocks whose threads have numbers of their own; more blocks than that share them, and a race between two that
    /// share all numbers is missed.
    period: u64,
    saving: Mutex<()>,
    suspicion: AtomicBool,
}

impl<'a> Races<'a> {
    /// Nobody has touched anything, in blocks of so many threads. `None` if there is no memory for it.
    pub fn new(memory: &'a DeviceMemory, threads: u32) -> Option<Self> {
        let side = |a: &Allocation| {
            let bytes = a.bytes.len();
            Some(Side {
                cells: Bytes::zeros(bytes.next_multiple_of(4))?,
                saved: (0..bytes.div_ceil(PAGE)).map(|_| AtomicU8::new(0)).collect(),
                before: Bytes::zeros(bytes)?,
                written: Bytes::zeros(a.written.as_ref().map_or(0, Bytes::len))?,
            })
        };
        let sides = (0..).map_while(|number| memory.get(number)).map(side).collect::<Option<Vec<_>>>()?;
        let threads = u64::from(threads);
        let (saving, suspicion) = (Mutex::new(()), AtomicBool::new(false));
        Some(Self { memory, sides, threads, period: TAGS / threads, saving, suspicion })
    }

    /// Before a write: what is there is put aside, page by page.
    #[inline(always)]
    pub fn save(&self, number: usize, at: usize) {
        let Some(side) = self.sides.get(number) else { return };
        let page = at / PAGE;
        if side.saved[page].load(Ordering::Acquire) == 0 {
            self.save_page(number, page);
        }
    }

    /// The same, before a write to at most 32 bytes.
    #[inline(always)]
    pub fn save_run(&self, number: usize, at: usize, len: usize) {
        self.save(number, at);
        self.save(number, at + len - 1);
    }

    #[cold]
    fn save_page(&self, number: usize, page: usize) {
        let (side, Some(allocation)) = (&self.sides[number], self.memory.get(number)) else { return };
        // A core that panicked while it saved has left nothing half done that matters.
        let _guard = self.saving.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if side.saved[page].load(Ordering::Relaxed) == 0 {
            copy(&allocation.bytes, &side.before, page * PAGE, PAGE);
            if let Some(written) = &allocation.written {
                copy(written, &side.written, page * PAGE / 8, PAGE / 8);
            }
            side.saved[page].store(1, Ordering::Release);
        }
    }

    /// Puts memory back as it was, and forgets who touched it.
    pub fn restore(&mut self, forget: bool) -> Option<()> {
        for (number, side) in self.sides.iter_mut().enumerate() {
            let Some(allocation) = self.memory.get(number) else { continue };
            for page in (0..side.saved.len()).filter(|&page| side.saved[page].load(Ordering::Relaxed) != 0) {
                copy(&side.before, &allocation.bytes, page * PAGE, PAGE);
                if let Some(written) = &allocation.written {
                    copy(&side.written, written, page * PAGE / 8, PAGE / 8);
                }
            }
            if forget {
                side.cells = Bytes::zeros(side.cells.len())?;
            }
        }
        Some(())
    }

    /// Notes an access to an element of at most 8 bytes.
    #[inline(always)]
    pub fn touch(&self, number: usize, at: usize, len: u8, (block, thread): (u64, u32), how: u32) {
        let Some(side) = self.sides.get(number) else { return };
        let block = self.number(block);
        let mine = self.mine(block, thread, how);
        for word in at / 4..(at + usize::from(len)).div_ceil(4) {
            self.touch_word(side, word, block, mine);
        }
    }

    /// Notes accesses of a warp's lanes to `size` bytes each, aligned, from `at` and a lane's distance on.
    #[inline(always)]
    pub fn touch_lanes(
        &self,
        number: usize,
        (span, at): (&Span, usize),
        size: usize,
        (block, first, mask): (u64, u32, u32),
        how: u32,
    ) {
        let Some(side) = self.sides.get(number) else { return };
        let block = self.number(block);
        let mine = self.mine(block, first, how);
        for p in 0..LANES / PIECE {
            let members = mask >> (p * PIECE) & 0xff;
            let word = |i: usize| (at + span.distance()[p * PIECE + i] as usize) / 4;
            let mine = |i: usize| mine + (((p * PIECE + i) as u32) << TAG);
            if (size, members, span.piece(p)) == (4, 0xff, Piece::Step) && word(0).is_multiple_of(2) {
                for i in (0..PIECE).step_by(2) {
                    self.touch_pair(side, word(0) + i, block, [mine(i), mine(i + 1)]);
                }
                continue;
            }
            for i in 0..PIECE {
                if members >> i & 1 != 0 {
                    (word(i)..word(i) + size.div_ceil(4)).for_each(|word| self.touch_word(side, word, block, mine(i)));
                }
            }
        }
    }

    /// A block's number among those whose threads have numbers of their own.
    #[inline(always)]
    fn number(&self, block: u64) -> u32 {
        if block < self.period { block as u32 } else { (block % self.period) as u32 }
    }

    /// What an access of a thread leaves in a cell that nobody has touched.
    #[inline(always)]
    fn mine(&self, block: u32, thread: u32, how: u32) -> u32 {
        THREAD | how | (block * self.threads as u32 + thread) << TAG
    }

    #[inline(always)]
    fn touch_word(&self, side: &Side, word: usize, block: u32, mine: u32) {
        if !knows(side.cells.load(4 * word, 4) as u32, mine) {
            self.join(side, word, block, mine);
        }
    }

    /// Two words, of which the first has an even number, in one step.
    #[inline(always)]
    fn touch_pair(&self, side: &Side, word: usize, block: u32, [first, second]: [u32; 2]) {
        let both = side.cells.load(4 * word, 8);
        if !(knows(both as u32, first) && knows((both >> 32) as u32, second)) {
            self.join_pair(side, word, block, [first, second]);
        }
    }

    #[inline(never)]
    fn join(&self, side: &Side, word: usize, block: u32, mine: u32) {
        let old = side.cells.update(4 * word, 4, |old| self.joined(old as u32, block, mine).into()) as u32;
        self.suspect(self.joined(old, block, mine));
    }

    #[inline(never)]
    fn join_pair(&self, side: &Side, word: usize, block: u32, [first, second]: [u32; 2]) {
        let low = |both: u64| self.joined(both as u32, block, first);
        let high = |both: u64| self.joined((both >> 32) as u32, block, second);
        let old = side.cells.update(4 * word, 8, |both| u64::from(low(both)) | u64::from(high(both)) << 32);
        self.suspect(low(old));
        self.suspect(high(old));
    }

    /// A cell after an access of a block's thread.
    #[inline(always)]
    fn joined(&self, old: u32, block: u32, mine: u32) -> u32 {
        let owner = |cell: u32| match cell & WHO {
            THREAD => (cell >> TAG) / self.threads as u32,
            _ => cell >> TAG,
        };
        let how = (old | mine) & 7;
        how | match old & WHO {
            0 => mine & !7,
            GRID => GRID,
            _ if old & !7 == mine & !7 => mine & !7,
            _ if owner(old) == block => BLOCK | block << TAG,
            _ => GRID,
        }
    }

    #[inline(always)]
    fn suspect(&self, cell: u32) {
        if suspicious(cell) {
            self.suspicion.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a closer look is needed.
    pub fn suspected(&self) -> bool {
        self.suspicion.load(Ordering::Relaxed)
    }

    /// Whether a word needs a closer look; and whether more than one block touched it.
    pub fn suspects(&self, number: usize, word: usize) -> Option<bool> {
        let cell = self.sides.get(number)?.cells.load(4 * word, 4) as u32;
        suspicious(cell).then_some(cell & WHO == GRID)
    }

    /// Words that the exact look may remember.
    pub fn room(&self) -> usize {
        let bytes: usize = self.sides.iter().map(|side| side.cells.len()).sum();
        (bytes / super::exact::WORD_BYTES * 5 / 8).max(1024)
    }
}

/// Whether a cell stays as it is after an access.
#[inline(always)]
fn knows(cell: u32, mine: u32) -> bool {
    (cell & WHO == GRID || cell & !7 == mine & !7) && cell & mine & 7 == mine & 7
}

/// Shared, and written by other means than atomics or read beside them.
fn suspicious(cell: u32) -> bool {
    let shared = matches!(cell & WHO, BLOCK | GRID);
    shared && (cell & WRITE != 0 || cell & (ATOMIC | READ) == ATOMIC | READ)
}

/// Copies a stretch, as far as there is one.
fn copy(from: &Bytes, to: &Bytes, at: usize, len: usize) {
    let end = (at + len).min(from.len());
    let words = at..end / 8 * 8;
    words.clone().step_by(8).for_each(|at| to.store(at, 8, from.load(at, 8)));
    (words.end.max(at)..end).for_each(|at| to.store(at, 1, from.load(at, 1)));
}
