//! The exact look at words of global memory that several threads share: who touched each byte, and when.
//!
//! One block runs at a time here. The rule is that of shared memory ([`super::shadow`]); what orders threads of
//! different blocks is what they tell each other ([`super::signals`]).

use std::collections::hash_map::Entry;

use super::clocks::Clocks;
use super::past::Past;
use super::words::Words;

/// Bytes that a remembered word takes, with its place in the table.
pub const WORD_BYTES: usize = 288;

/// Two accesses of each class, read or write, plain or strong: the earliest that a later one did not know of, and the
/// last. Whoever does not know of all that came before does not know of one of the two.
#[derive(Clone, Copy, Debug, Default)]
struct Cell([[[Past; 2]; 2]; 2]);

/// Words that are remembered; bytes of a word are told apart from the first access to a part of it.
#[derive(Debug, Default)]
pub struct Exact {
    /// Words that only one block touches, forgotten after it; and words that several do.
    words: [Words<u64, Vec<(u8, Cell)>>; 2],
    room: usize,
}

impl Exact {
    /// Remembers at most this many words; races in words that come later are not seen.
    pub fn new(room: usize) -> Self {
        Self { words: Default::default(), room }
    }

    /// Before a block.
    pub fn start(&mut self) {
        self.words[0].clear();
    }

    /// Forgets that a thread of a block read a word; gives the instructions that did.
    pub fn excuse(&mut self, word: u64, block: u64, thread: u32) -> Vec<u32> {
        let parts = self.words.iter_mut().filter_map(|words| words.get_mut(&word)).flatten();
        let readers = parts.flat_map(|(_, cell)| &mut cell.0[0][0]);
        let own = readers.filter(|r| (r.block, r.access.thread) == (block, thread + 1));
        own.map(|reader| std::mem::take(reader).access.pc).collect()
    }

    /// The atomic and volatile writes of a word that are remembered.
    pub fn strong_writes(&self, word: u64) -> impl Iterator<Item = Past> {
        let parts = self.words.iter().filter_map(move |words| words.get(&word)).flatten();
        parts.flat_map(|(_, cell)| cell.0[1][1])
    }

    /// Notes an access to some bytes of a word; `same` if a write changes nothing. Gives the access it races with.
    pub fn access(&mut self, clocks: &Clocks, word: u64, across: bool, now: Past, same: bool) -> Option<Past> {
        let full = self.words[0].len() + self.words[1].len() >= self.room;
        let parts = match self.words[usize::from(across)].entry(word) {
            Entry::Vacant(_) if full => return None,
            entry => entry.or_insert_with(|| vec![(15, Cell::default())]),
        };
        let bytes = now.access.bytes;
        for at in 0..parts.len() {
            let (mask, cell) = parts[at];
            if mask & bytes != 0 && mask & !bytes != 0 {
                parts[at].0 = mask & bytes;
                parts.push((mask & !bytes, cell));
            }
        }
        let touched = parts.iter_mut().filter(|(mask, _)| mask & bytes != 0);
        touched.fold(None, |race, (_, cell)| race.or(cell.access(clocks, now, same)))
    }
}

impl Cell {
    fn access(&mut self, clocks: &Clocks, now: Past, same: bool) -> Option<Past> {
        let apart = |other: Past| {
            let (then, new) = (other.access, now.access);
            then.thread != 0 && (then.thread, other.block) != (new.thread, now.block)
        };
        let knows = |other: Past| match &clocks.foreign {
            _ if other.block == now.block => clocks.knows(now.access.warp(), other.access.warp(), other.access.epoch),
            Some(foreign) => foreign.knows(now.access.warp(), other.block, other.access.warp(), other.access.epoch),
            None => false,
        };
        let (write, strong) = (now.access.write, now.access.strong);
        let meets = |other: &Past| {
            let harmless = same || strong && other.access.strong || !write && !other.access.write;
            !harmless && apart(*other) && !knows(*other)
        };
        let found = self.0.iter().rev().flatten().flatten().copied().find(meets);
        let kept = &mut self.0[usize::from(write)][usize::from(strong)];
        kept[usize::from(apart(kept[0]) && !knows(kept[0]))] = now;
        found
    }
}
