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

/// The parts of the warp that have something to do. Of the ways in which hardware may serve an access, it is the one that
/// takes as many wavefronts as were counted; where none does, the first.
pub(super) fn parts(access: &Access) -> Vec<Part> {
    let own = access.kind == AccessKind::Atomic;
    let load = access.kind == AccessKind::Load;
    // What only the simulator knows: whether an atomic is a plain count (the lanes of a word are then served at once),
    // and whether a load is an `ldmatrix`, whose parts are never joined.
    let ways = if own { [(false, true), (false, false)] } else { [(load, false), (false, false)] };
    let ways = ways.map(|(load, own)| served(access, load, own));
    // A compare-and-swap takes each of its wavefronts twice.
    let counted = if own { access.conflicts + 1 } else { access.wavefronts };
    let fits = |parts: &&Vec<Part>| parts.iter().map(Part::wavefronts).sum::<usize>() as u64 == counted;
    ways.iter().find(fits).unwrap_or(&ways[0]).clone()
}

/// `load`: as the parts of a load are, which may be joined. `own`: each lane needs a wavefront of its own, even on one word.
fn served(access: &Access, load: bool, own: bool) -> Vec<Part> {
    let mask = (0..32).filter(|&lane| access.offsets[lane].is_some()).fold(0, |mask, lane| mask | 1 << lane);
    let addresses = access.offsets.map(|offset| offset.unwrap_or(0));
    let lanes = warpsim::lanes_at_once(&addresses, mask, access.bytes, load);
    let parts = (0..32).step_by(lanes).map(|first| part(access, first..first + lanes, own));
    parts.filter(|part| part.wavefronts() > 0).collect()
}

fn part(access: &Access, lanes: Range<usize>, own: bool) -> Part {
    let mut banks: Vec<Vec<Word>> = vec![Vec::new(); BANKS as usize];
    for lane in lanes.clone() {
        let Some(offset) = access.offsets[lane] else { continue };
        let at = access.base.saturating_add(offset).min(u64::MAX - 512);
        for number in at / WORD..(at + u64::from(access.bytes.min(512))).div_ceil(WORD) {
            let bank = &mut banks[(number % BANKS) as usize];
            match bank.iter_mut().find(|word| word.number == number && !own) {
                Some(word) => word.lanes.push(lane),
                None => bank.push(Word { number, lanes: vec![lane] }),
            }
        }
    }
    Part { lanes, banks }
}
