//! Who touched each word of shared memory, and when: for data races and reads of what nobody wrote.
//!
//! Two accesses of different threads that nothing orders (see [`super::clocks`]), one of them a write, are a race,
//! unless both are atomic or volatile, or the write leaves the value as it is.

use std::collections::BTreeMap;

use super::clock::WARPS;
use super::clocks::Clocks;
use super::deferred::{Deferred, WHOLE};
use super::past::{Access, Element, Past};
use super::words::Words;
use crate::memory::Span;

/// Beside the bits of bytes with a value: the parts of this word are remembered one by one; it has two writers that nothing
/// orders; its parts are its halves, and not its bytes.
const SPLIT: u8 = 1 << 7;
const MANY: u8 = 1 << 6;
const HALVES: u8 = 1 << 5;
/// The bytes of a half with a value.
const HALF: u8 = 3;

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// Two writers, if the second does not know of the first: atomics, most often.
    writes: [Access; 2],
    /// Two different readers: one of them is another thread than any writer to come.
    readers: [Access; 2],
}

impl Cell {
    /// Keeps a reader: in the first place unless a fresh one of another thread holds it.
    #[inline(always)]
    fn read(&mut self, now: Access, fresh: bool) {
        let first = self.readers[0];
        let other = first.thread != now.thread || first.channel != now.channel;
        let place = usize::from(fresh && first.thread != 0 && other);
        self.readers[place] = now;
    }

    /// Notes an access to all bytes that this cell stands for, of which `written` have a value.
    fn access(&mut self, written: &mut u8, clocks: &Clocks, now: Access, same: bool) -> Option<Access> {
        let fresh = |other: Access| {
            // Copies of one thread to one place come in its order, though PTX does not promise it: pipelines that have
            // nothing to copy fill a place with zeros twice.
            let alone = other.thread == now.thread && (other.channel == 0 || other.channel == now.channel);
            let apart = other.thread != 0 && !alone;
            apart && !clocks.orders(now.warp(), other)
        };
        let hits = |other: &Access| fresh(*other) && !(other.strong && now.strong);
        let [first, second] = self.writes;
        if now.write {
            // What nobody has written has no value that a write could leave as it is.
            let same = same && *written & now.bytes == now.bytes;
            let found = [first, second, self.readers[0], self.readers[1]].iter().copied().find(hits);
            if fresh(first) {
                (self.writes[1], *written) = (now, *written | MANY);
            } else {
                self.writes = [now, if fresh(second) { second } else { Access::default() }];
            }
            *written |= now.bytes;
            found.filter(|_| !same)
        } else {
            let found = [first, second].iter().copied().find(hits);
            let [a, b] = self.readers;
            // A plain reader that not all know of is worth more than one more that is volatile.
            if !(now.strong && fresh(a) && fresh(b) && !b.strong) {
                self.read(now, fresh(a));
            }
            found
        }
    }
}

/// Words that are remembered byte by byte, or half by half in the places of bytes 0 and 2, and which of their bytes have a value. In
/// kernels on 16-bit numbers most words have halves.
#[derive(Debug, Default)]
struct Split {
    /// By word: its place in `parts`, counted from 1; 0 for none.
    numbers: Vec<u32>,
    parts: Vec<[(Cell, u8); 4]>,
}

impl Split {
    fn new(words: usize) -> Self {
        Self { numbers: vec![0; words], parts: Vec::new() }
    }

    fn clear(&mut self) {
        if !self.parts.is_empty() {
            self.numbers.fill(0);
            self.parts.clear();
        }
    }

    fn number(&self, word: usize) -> Option<usize> {
        self.numbers.get(word).and_then(|number| (*number as usize).checked_sub(1))
    }

    fn get(&self, word: usize) -> Option<&[(Cell, u8); 4]> {
        self.number(word).map(|number| &self.parts[number])
    }

    fn get_mut(&mut self, word: usize) -> Option<&mut [(Cell, u8); 4]> {
        self.number(word).map(|number| &mut self.parts[number])
    }

    /// The word must lie in shared memory.
    fn or_insert_with(&mut self, word: usize, parts: impl FnOnce() -> [(Cell, u8); 4]) -> &mut [(Cell, u8); 4] {
        let number = self.number(word).unwrap_or_else(|| {
            self.parts.push(parts());
            self.numbers[word] = self.parts.len() as u32;
            self.parts.len() - 1
        });
        &mut self.parts[number]
    }
}

/// The shadow of a block's shared memory.
#[derive(Debug)]
pub struct Shadow {
    cells: Vec<Cell>,
    /// By word: a bit for each byte with a value, and [`SPLIT`] and [`MANY`].
    written: Vec<u8>,
    split: Split,
    /// What comes before what.
    clocks: Clocks,
    deferred: Deferred,
    /// Races that a later compare-and-swap may show to be none.
    pub pending: Pending,
    /// The word (generic address) that each thread touched last by an instruction, of those that updates are made of.
    pub touched: Words<(u32, u32), u64>,
}

/// Races between a plain read and an atomic, by the reader's word (generic address) and thread: its instruction, and the
/// race.
pub type Pending = BTreeMap<(u64, u32), (u32, Element, Past)>;

impl Shadow {
    /// The shadow of so many bytes. `simple`: neither asynchronous operations, which barriers do not order, nor
    /// compare-and-swap, which looks back behind them.
    pub fn new(bytes: u64, clocks: Clocks, simple: bool) -> Self {
        Self {
            cells: vec![Cell::default(); bytes.div_ceil(4) as usize],
            written: vec![0; bytes.div_ceil(4) as usize],
            split: Split::new(bytes.div_ceil(4) as usize),
            clocks,
            deferred: Deferred::new(bytes, simple),
            pending: Pending::new(),
            touched: Words::default(),
        }
    }

    /// Before a block: nothing written, nobody was here.
    pub fn start(&mut self) {
        self.cells.fill(Cell::default());
        self.written.fill(0);
        self.split.clear();
        self.touched.clear();
        self.clocks.start();
        self.deferred.forget();
    }

    /// What comes before what.
    pub fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    /// The same, to change it: first, what was put off is worked in as of now.
    pub fn clocks_mut(&mut self) -> &mut Clocks {
        self.settle();
        &mut self.clocks
    }

    /// A barrier of the block is complete, of which these warps wait or have ended, out of `all`.
    pub fn release(&mut self, (waiting, ended, all): (&[usize], &[usize], usize), id: u32) {
        match waiting.len() + ended.len() == all {
            true => self.deferred.forget(),
            false => self.settle(),
        }
        self.clocks.release(waiting, ended, id);
    }

    /// A warp reads a word by an atomic or a volatile load.
    pub fn listen(&mut self, warp: usize, word: u64) {
        if self.clocks.hears(word) {
            self.settle();
        }
        self.clocks.listen(warp, word);
    }

    /// A warp writes a word by an atomic or a volatile store, which changes nothing that it knows itself.
    pub fn tell(&mut self, warp: usize, word: u64, block: u64) {
        self.clocks.tell(warp, word, block);
    }

    /// Works in what was put off.
    #[inline(never)]
    fn settle(&mut self) {
        let kept = self.deferred.take();
        for plain in &kept {
            for (lane, word) in plain.lanes() {
                let thread = plain.first + lane as u32;
                for word in word..word + usize::from(plain.words) {
                    let (epoch, warp) = self.now(thread);
                    let now = Access { epoch, bytes: WHOLE, ..Access::new(thread, plain.pc, false, plain.write) };
                    let (Some(cell), Some(written)) = (self.cells.get_mut(word), self.written.get_mut(word)) else {
                        continue;
                    };
                    if plain.write {
                        cell.access(written, &self.clocks, now, false);
                    } else {
                        let fresh = cell.readers[0].thread != now.thread && !self.clocks.orders(warp, cell.readers[0]);
                        cell.read(now, fresh);
                    }
                }
            }
        }
        self.deferred.give_back(kept);
    }

    /// The clock of a thread's warp, and the warp.
    #[inline(always)]
    fn now(&self, thread: u32) -> (u32, usize) {
        let warp = thread as usize / 32 % WARPS;
        (self.clocks.of(warp)[warp], warp)
    }

    /// Before a word is looked at.
    #[inline(always)]
    fn touch(&mut self, word: usize, write: bool) {
        if self.deferred.touch(word, write) {
            self.settle();
        }
    }

    /// A word with a value that only barriers look at.
    pub fn written(&mut self, at: usize) {
        self.written.iter_mut().skip(at / 4).take(2).for_each(|written| *written = WHOLE);
    }

    /// Bytes that have a value, whoever wrote it.
    pub fn mark(&mut self, at: usize, len: usize) {
        for byte in at..at + len {
            let Some(written) = self.written.get_mut(byte / 4) else { return };
            match self.split.get_mut(byte / 4) {
                Some(parts) if *written & HALVES != 0 => parts[(byte % 4) & 2].1 |= 1 << (byte % 2),
                Some(parts) => parts[byte % 4].1 |= 1,
                None => *written |= 1 << (byte % 4),
            }
        }
    }

    /// What the TMA brings for another block of the cluster: who reads it must wait for the phase.
    pub fn deposit(&mut self, at: usize, len: usize, access: Access) {
        self.mark(at, len);
        for word in at / 4..(at + len).div_ceil(4) {
            let Some(cell) = self.cells.get_mut(word) else { return };
            let parts = self.split.get_mut(word).into_iter().flatten().map(|(cell, _)| cell);
            parts.chain([cell]).for_each(|cell| cell.writes = [Access { bytes: 15, ..access }, Access::default()]);
        }
    }

    /// Notes an asynchronous read of a whole word when nothing can be wrong with it; false if that needs a closer look.
    pub fn engine_read(&mut self, at: usize, now: Access) -> bool {
        let (warp, clocks) = (now.warp(), &self.clocks);
        let Some(cell) = self.cells.get_mut(at / 4) else { return false };
        let write = cell.writes[0];
        if self.written[at / 4] != WHOLE || !clocks.orders(warp, write) || !clocks.fenced(warp, write) {
            return false;
        }
        let fresh = !clocks.orders(warp, cell.readers[0]);
        cell.read(Access { bytes: 15, ..now }, fresh);
        true
    }

    /// What is remembered of a word, together or part by part.
    fn of(&self, at: usize) -> impl Iterator<Item = &Cell> {
        let parts = self.split.get(at / 4).into_iter().flatten().map(|(cell, _)| cell);
        self.cells.get(at / 4).into_iter().chain(parts)
    }

    /// The ordinary write that an asynchronous read of a thread sees without a proxy fence between, if there is one.
    pub fn unfenced(&self, at: usize, len: usize, thread: u32) -> Option<Access> {
        let cells = (at / 4..(at + len).div_ceil(4)).flat_map(|word| self.of(4 * word));
        let mut writes = cells.flat_map(|cell| cell.writes).filter(|write| write.thread != 0);
        writes.find(|write| !self.clocks.fenced(thread as usize / 32, *write))
    }

    /// Notes plain accesses of a warp's lanes to words, when nothing can be wrong with them: `size` bytes each, from
    /// `lowest` and the lane's distance on. False if that needs a closer look.
    #[inline(always)]
    pub fn plain<const WRITE: bool>(&mut self, span: (&Span, u64), size: usize, lanes: (u32, u32), pc: u32) -> bool {
        if self.deferred.is_full() {
            self.settle();
        }
        self.deferred.plain::<WRITE>(&mut self.written, span, size, lanes, pc)
    }

    /// Notes a read of a whole word when nothing can be wrong with it; false if that needs a closer look.
    #[inline(always)]
    pub fn plain_read(&mut self, at: usize, thread: u32, pc: u32) -> bool {
        self.touch(at / 4, false);
        let warp = thread as usize / 32 % WARPS;
        let clocks = self.clocks.of(warp);
        let epoch = clocks[warp];
        let now =
            Access { thread: thread + 1, pc, epoch, bytes: 15, strong: false, write: false, channel: 0, began: 0 };
        let all = &self.clocks;
        let Some(cell) = self.cells.get_mut(at / 4) else { return false };
        // Written by the thread itself, or before a barrier that this warp has passed.
        let behind = |other: &Access| {
            let theirs = other.warp();
            if other.channel != 0 {
                return all.orders(warp, *other);
            }
            other.thread == now.thread || clocks[theirs] >= other.epoch + u32::from(theirs == warp)
        };
        if self.written[at / 4] != WHOLE || !behind(&cell.writes[0]) {
            return false;
        }
        let fresh = !behind(&cell.readers[0]);
        cell.read(now, fresh);
        true
    }

    /// The atomic and volatile writes of a word that are remembered.
    pub fn strong_writes(&self, at: usize) -> Vec<Access> {
        self.of(at).flat_map(|cell| cell.writes).filter(|write| write.strong).collect()
    }

    /// Forgets that a thread read a word; gives the instructions that did.
    pub fn excuse(&mut self, at: usize, thread: u32) -> Vec<u32> {
        let parts = self.split.get_mut(at / 4).into_iter().flatten().map(|(cell, _)| cell);
        let readers = self.cells.get_mut(at / 4).into_iter().chain(parts).flat_map(|cell| &mut cell.readers);
        let own = readers.filter(|r| r.thread == thread + 1 && !r.strong);
        own.map(|reader| std::mem::take(reader).pc).collect()
    }

    /// Notes an access to `len` bytes that do not cross 8; `same` if a write changes nothing.
    /// Gives the access it races with, and whether it reads what nobody wrote.
    pub fn access(&mut self, at: usize, len: usize, mut now: Access, same: bool) -> (Option<Access>, bool) {
        let warp = now.warp();
        if now.channel == 0 {
            now.epoch = self.clocks.of(warp)[warp];
        }
        let (mut race, mut unwritten) = (None, false);
        for word in at / 4..(at + len).div_ceil(4) {
            let (from, to) = (at.max(word * 4) - word * 4, (at + len).min(word * 4 + 4) - word * 4);
            now.bytes = ((1u16 << to) - (1u16 << from)) as u8;
            self.touch(word, now.write);
            let (Some(cell), Some(written)) = (self.cells.get_mut(word), self.written.get_mut(word)) else { continue };
            if now.bytes == WHOLE && *written & SPLIT == 0 {
                unwritten |= !now.write && *written & WHOLE != WHOLE;
                race = race.or(cell.access(written, &self.clocks, now, same));
                continue;
            }
            // From the first access to a half each half is remembered by itself, from the first one to less than that each byte.
            let halves = from % 2 == 0 && to % 2 == 0;
            let (before, whole) = (*written, *cell);
            if before & SPLIT == 0 {
                *written = SPLIT | if halves { HALVES } else { 0 };
            }
            let parts = self.split.or_insert_with(word, || {
                std::array::from_fn(|byte| match (halves, byte % 2) {
                    (true, 0) => (whole, before & MANY | before >> byte & HALF),
                    (true, _) => (Cell::default(), 0),
                    (false, _) => (whole, before & MANY | before >> byte & 1),
                })
            });
            if *written & HALVES != 0 && !halves {
                *written = SPLIT;
                for half in [0, 2] {
                    let (cell, both) = parts[half];
                    parts[half].1 = both & !2;
                    parts[half + 1] = (cell, both & MANY | both >> 1 & 1);
                }
            }
            let (step, whole) = if *written & HALVES != 0 { (2, HALF) } else { (1, 1) };
            for (part, written) in parts[from..to].iter_mut().step_by(step) {
                unwritten |= !now.write && *written & whole != whole;
                race = race.or(part.access(written, &self.clocks, Access { bytes: whole, ..now }, same));
            }
        }
        (race, unwritten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a read of these bytes by another thread races, and whether nobody wrote them.
    fn read(shadow: &mut Shadow, at: usize, len: usize) -> (bool, bool) {
        let (race, unwritten) = shadow.access(at, len, Access::new(40, 2, false, false), false);
        (race.is_some(), unwritten)
    }

    #[test]
    fn halves_and_bytes_of_a_word_are_told_apart() {
        let mut shadow = Shadow::new(16, Clocks::new(None, false), false);
        shadow.start();
        let write = |shadow: &mut Shadow, at, len| shadow.access(at, len, Access::new(0, 1, false, true), false);
        write(&mut shadow, 0, 2);
        assert_eq!(read(&mut shadow, 0, 2), (true, false));
        assert_eq!(read(&mut shadow, 2, 2), (false, true));
        assert_eq!(read(&mut shadow, 0, 4), (true, true));
        // A byte of a half that was touched as one: its neighbour keeps what was known of the half.
        write(&mut shadow, 3, 1);
        assert_eq!(read(&mut shadow, 2, 1), (false, true));
        assert_eq!(read(&mut shadow, 3, 1), (true, false));
        assert_eq!(read(&mut shadow, 1, 1), (true, false));
        // First a byte, then its half.
        write(&mut shadow, 5, 1);
        assert_eq!(read(&mut shadow, 4, 2), (true, true));
        shadow.mark(4, 1);
        assert_eq!(read(&mut shadow, 4, 2), (true, false));
        // First a whole word, then a half of it.
        write(&mut shadow, 8, 4);
        assert_eq!(read(&mut shadow, 10, 2), (true, false));
        // What has a value from elsewhere.
        write(&mut shadow, 14, 2);
        shadow.mark(13, 1);
        assert_eq!((read(&mut shadow, 12, 2), read(&mut shadow, 13, 1)), ((false, true), (false, false)));
        shadow.mark(12, 1);
        assert_eq!(read(&mut shadow, 12, 4), (true, false));
    }

    #[test]
    fn a_word_is_split_once_and_forgotten_at_the_next_block() {
        let bytes = |written| [(Cell::default(), written); 4];
        let written = |split: &Split, word| split.get(word).map(|parts| parts.each_ref().map(|(_, written)| *written));
        let mut split = Split::new(3);
        assert_eq!(written(&split, 2), None);
        split.or_insert_with(2, || bytes(1));
        split.or_insert_with(0, || bytes(0))[3].1 = 5;
        // It is there, so nothing is made.
        split.or_insert_with(2, || unreachable!())[0].1 = 7;
        assert_eq!([0, 1, 2].map(|word| written(&split, word)), [Some([0, 0, 0, 5]), None, Some([7, 1, 1, 1])]);
        split.get_mut(0).unwrap()[1].1 = 9;
        assert_eq!(written(&split, 0), Some([0, 9, 0, 5]));
        // An address beyond shared memory has no word.
        assert!(split.get(3).is_none() && split.get_mut(3).is_none());
        split.clear();
        assert_eq!([0, 1, 2].map(|word| written(&split, word)), [None; 3]);
        split.or_insert_with(1, || bytes(2));
        assert_eq!([0, 1, 2].map(|word| written(&split, word)), [None, Some([2; 4]), None]);
    }
}
