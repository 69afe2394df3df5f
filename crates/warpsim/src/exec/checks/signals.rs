//! What blocks tell each other: through a word that one writes after a fence and another reads, both by atomics or
//! volatile accesses. One block runs at a time while this is looked at.

use std::collections::HashMap;

use super::clock::{Clock, WARPS};

/// Words, and how many of the things told there were heard.
pub type Heard = Vec<(u64, usize)>;

/// All that was told through one word, in order.
#[derive(Debug, Default)]
struct Log {
    told: usize,
    /// By block: after how many, and what its warps had done by then.
    blocks: HashMap<u64, Vec<(usize, Box<Clock>)>>,
    /// What the tellers themselves had heard at other words.
    beyond: Vec<(usize, Heard)>,
    /// The last entry, which is not told twice.
    last: Option<(u64, Clock)>,
}

/// What blocks have told each other so far.
#[derive(Debug, Default)]
pub struct Foreign {
    logs: HashMap<u64, Log>,
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
        log.blocks.entry(block).or_default().push((log.told, Box::new(*fenced)));
        let beyond: Heard = self.heard[warp].iter().copied().filter(|(other, _)| *other != word).collect();
        if !beyond.is_empty() {
            log.beyond.push((log.told, beyond));
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
        let mut open = self.heard[warp].clone();
        let mut seen = Heard::new();
        while let Some((word, until)) = open.pop() {
            if seen.iter().any(|&(other, to)| other == word && to >= until) {
                continue;
            }
            hear(&mut seen, word, until);
            let Some(log) = self.logs.get(&word) else { continue };
            let told = log.blocks.get(&block).into_iter().flatten();
            if told.take_while(|(at, _)| *at < until).any(|(_, clock)| clock[theirs] >= epoch) {
                return true;
            }
            open.extend(log.beyond.iter().take_while(|(at, _)| *at < until).flat_map(|(_, heard)| heard));
        }
        false
    }
}

/// Words through which blocks speak, and how much of what was told there was heard.
fn hear(into: &mut Heard, word: u64, until: usize) {
    match into.iter_mut().find(|(other, _)| *other == word) {
        Some((_, heard)) => *heard = until.max(*heard),
        None => into.push((word, until)),
    }
}
