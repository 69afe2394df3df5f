//! What the 32 banks of shared memory do for one access: which lanes are served at once, and which words wait.

use super::{Access, AccessKind};
use std::ops::Range;

const BANKS: u64 = 32;
/// Bytes of a word: what a bank serves in a wavefront.
const WORD: u64 = 4;

/// A word, and the lanes that want it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    number: u64,
    pub lanes: Vec<usize>,
}

/// Lanes that are served together, and what each bank does for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub lanes: Range<usize>,
    /// For each bank its words, one a wavefront.
    pub banks: Vec<Vec<Word>>,
}

impl Part {
    /// Wavefronts that this part takes.
    pub(super) fn wavefronts(&self) -> usize {
        self.banks.iter().map(Vec::len).max().unwrap_or(0)
    }
}

/// The parts of the warp that have something to do.
pub(super) fn parts(access: &Access) -> Vec<Part> {
    let mut parts = Vec::new();
    for lanes in split(access) {
        let mut banks: Vec<Vec<Word>> = vec![Vec::new(); BANKS as usize];
        for lane in lanes.clone() {
            let Some(offset) = access.offsets[lane] else { continue };
            let at = access.base.saturating_add(offset).min(u64::MAX - 512);
            for number in at / WORD..(at + u64::from(access.bytes.min(512))).div_ceil(WORD) {
                let bank = &mut banks[(number % BANKS) as usize];
                match bank.iter_mut().find(|word| word.number == number) {
                    Some(word) => word.lanes.push(lane),
                    None => bank.push(Word { number, lanes: vec![lane] }),
                }
            }
        }
        if banks.iter().any(|bank| !bank.is_empty()) {
            parts.push(Part { lanes, banks });
        }
    }
    parts
}

/// The lanes that are served at once: a warp; halves of it for words of 8 bytes, quarters for 16.
fn split(access: &Access) -> Vec<Range<usize>> {
    let (whole, split) = match access.bytes {
        0..=4 => (32, 32),
        5..=8 => (32, 16),
        _ => (16, 8),
    };
    let mut parts = Vec::new();
    for first in (0..32).step_by(whole) {
        let joined = access.kind == AccessKind::Load && neighbours_agree(access, first..first + whole);
        let size = if joined { whole } else { split };
        parts.extend((first..first + whole).step_by(size).map(|first| first..first + size));
    }
    parts
}

/// The hardware serves two parts of a load at once when each lane reads the same as its neighbour, or as its neighbour
/// but one. Idle lanes agree with all.
fn neighbours_agree(access: &Access, lanes: Range<usize>) -> bool {
    let own = &access.offsets;
    let agree = |lane: usize, other: usize| own[lane] == own[other] || own[lane].is_none() || own[other].is_none();
    [1, 2].into_iter().any(|step| lanes.clone().all(|lane| agree(lane, lane ^ step)))
}
