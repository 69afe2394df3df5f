//! What blocks tell each other: through a word that one writes after a fence and another reads, both by atomics or
//! volatile accesses. One block runs at a time while this is looked at.

use super::clock::{Clock, WARPS, join};
use super::words::Words;

/// Words, and how many of the things told there were heard.
pub type Heard = Vec<(u64, usize)>;

/// All that was told through one word, in order.
#[derive(Debug, Default)]
struct Log {
    told: usize,
    /// By block: after how many, and what its warps had done by then, each one's latest.
    blocks: Words<u64, Vec<(usize, Box<Clock>)>>,
    /// What the tellers themselves had heard, by the other word: after how many, and how much of it at most.
    beyond: Words<u64, Vec<(usize, usize)>>,
    /// The last entry, which is not told twice.
    last: Option<(u64, Clock)>,
}

/// What blocks have told each other so far.
#[derive(Debug, Default)]
pub struct Foreign {
    logs: Words<u64, Log>,
    /// By block: what its warps had done by the time of anything that was told, each one's latest.
    told: Words<u64, Clock>,
    /// What each warp of the block that runs has heard.
    heard: [Heard; WARPS],
}

impl Foreign {
    /// Before a block, which has heard nothing.
    pub fn start(&mut self) {
        self.heard = Default::default();
    }

    /// Another block runs, which has heard this; gives what the one before has heard.
    pub fn heard_by(&mut self, heard: [Heard; WARPS]) -> [Heard; WARPS] {
        std::mem::replace(&mut self.heard, heard)
    }

    /// A warp writes a word; others may learn what came before its last fence.
    pub fn tell(&mut self, warp: usize, word: u64, block: u64, fenced: &Clock) {
        let log = self.logs.entry(word).or_default();
        if *fenced == [0; WARPS] || log.last == Some((block, *fenced)) {
            return;
        }
        log.last = Some((block, *fenced));
        let told = log.blocks.entry(block).or_default();
        let mut latest = *fenced;
        if let Some((_, before)) = told.last() {
            join(&mut latest, before);
        }
        if told.last().is_none_or(|(_, before)| **before != latest) {
            told.push((log.told, Box::new(latest)));
        }
        join(self.told.entry(block).or_insert([0; WARPS]), fenced);
        for &(other, until) in self.heard[warp].iter().filter(|(other, _)| *other != word) {
            let heard = log.beyond.entry(other).or_default();
            if heard.last().is_none_or(|&(_, before)| before < until) {
                heard.push((log.told, until));
            }
        }
        log.told += 1;
    }

    /// A warp reads a word.
    pub fn listen(&mut self, warp: usize, word: u64) {
        if let Some(log) = self.logs.get(&word) {
            hear(&mut self.heard[warp], word, log.told);
        }
    }

    /// Warps at a barrier share what they heard.
    pub fn share(&mut self, waiting: &[usize], ended: &[usize]) {
        let mut all = Heard::new();
        for &warp in waiting.iter().chain(ended) {
            self.heard[warp].iter().for_each(|&(word, until)| hear(&mut all, word, until));
        }
        waiting.iter().for_each(|&warp| self.heard[warp].clone_from(&all));
    }

    /// Whether a warp has heard, from anyone, what a warp of another block did at a time.
    pub fn knows(&self, warp: usize, block: u64, theirs: usize, epoch: u32) -> bool {
        // A warp that polls asks for what nobody has told yet.
        if self.told.get(&block).is_none_or(|latest| latest[theirs] < epoch) {
            return false;
        }
        let mut open = self.heard[warp].clone();
        let mut seen: Words<u64, usize> = open.iter().copied().collect();
        while let Some((word, until)) = open.pop() {
            let Some(log) = self.logs.get(&word) else { continue };
            if log.blocks.get(&block).and_then(|told| last(told, until)).is_some_and(|clock| clock[theirs] >= epoch) {
                return true;
            }
            for (&other, heard) in &log.beyond {
                if let Some(&until) = last(heard, until)
                    && seen.get(&other).is_none_or(|&to| to < until)
                {
                    seen.insert(other, until);
                    open.push((other, until));
                }
            }
        }
        false
    }
}

/// The last of some entries, each with the number of those before it, that came before an end.
fn last<T>(entries: &[(usize, T)], until: usize) -> Option<&T> {
    let before = entries.partition_point(|(at, _)| *at < until);
    Some(&entries[before.checked_sub(1)?].1)
}

/// Words through which blocks speak, and how much of what was told there was heard.
fn hear(into: &mut Heard, word: u64, until: usize) {
    match into.iter_mut().find(|(other, _)| *other == word) {
        Some((_, heard)) => *heard = until.max(*heard),
        None => into.push((word, until)),
    }
}
