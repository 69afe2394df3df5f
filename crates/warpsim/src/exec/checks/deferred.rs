//! Plain accesses of whole warps to shared memory that are not worked into its words one by one: not before somebody
//! asks for a word of theirs.
//!
//! A barrier that all warps of a block pass orders what came before it with all that follows. So an access can be no
//! race if nobody has touched its line since the last such barrier (a read: if nobody has written there), and nothing
//! needs to remember it behind the next one: most accesses are forgotten again without having cost anything for a lane.

use crate::memory::{PIECE, Piece, Span};

const LANES: usize = 32;
/// Bytes of a line.
const LINE: usize = 128;
/// Lines that the lanes of an access lie in at most.
const LINES: usize = 64;
/// Accesses that are kept at most; then they are worked in.
const KEPT: usize = 4096;

/// A plain access of a warp.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// The first word of each lane.
    word: [u16; LANES],
    /// Words of a lane.
    pub words: u8,
    pub write: bool,
    pub pc: u32,
    /// Linear index in the block of lane 0.
    pub first: u32,
    mask: u32,
}

impl Plain {
    /// The lanes, and the first word of each. Of the readers of a word that nothing orders, a word keeps the first and
    /// the last: those between may be left out.
    pub fn lanes(&self) -> impl Iterator<Item = (usize, usize)> {
        let mut mask = self.mask;
        let (pieces, _) = self.word.as_chunks::<PIECE>();
        for (p, words) in pieces.iter().enumerate() {
            if !self.write && self.words == 1 && mask >> (p * PIECE) & 0xff == 0xff && *words == [words[0]; PIECE] {
                mask &= !(0x7e << (p * PIECE));
            }
        }
        (0..LANES).filter(move |lane| mask >> lane & 1 != 0).map(|lane| (lane, self.word[lane].into()))
    }
}

/// When a line was last read and written: the number of the interval between two barriers.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    read: u64,
    written: u64,
}

/// The accesses since the last barrier of a whole block.
#[derive(Debug)]
pub struct Deferred {
    lines: Vec<Line>,
    interval: u64,
    kept: Vec<Plain>,
}

impl Deferred {
    /// For so many bytes of shared memory; nothing is put off if these are too many, or not `on`.
    pub fn new(bytes: u64, on: bool) -> Self {
        // Words have numbers of 16 bits.
        let bytes = if on && bytes <= 4 << 16 { bytes as usize } else { 0 };
        Self { lines: vec![Line::default(); bytes.div_ceil(LINE)], interval: 0, kept: Vec::new() }
    }

    /// A barrier of all warps, or the start of a block.
    pub fn forget(&mut self) {
        self.interval += 1;
        self.kept.clear();
    }

    /// Notes another access to a word; true if what was put off must be worked in before.
    #[inline(always)]
    pub fn touch(&mut self, word: usize, write: bool) -> bool {
        let Some(line) = self.lines.get_mut(word / (LINE / 4)) else { return false };
        let now = self.interval;
        let met = line.read == now || line.written == now;
        *if write { &mut line.written } else { &mut line.read } = now;
        met && !self.kept.is_empty()
    }

    /// Puts off a plain access of `size` bytes per lane that lies inside and is aligned, if nothing can race with it.
    /// `written` are the words' states, as in [`super::shadow`]; a write sets those of its words.
    #[inline(always)]
    pub fn plain<const WRITE: bool>(
        &mut self,
        written: &mut [u8],
        (span, lowest): (&Span, u64),
        size: usize,
        (first, mask): (u32, u32),
        pc: u32,
    ) -> bool {
        let end = (lowest + span.width()) as usize + size;
        let lines = self.lines.get_mut(lowest as usize / LINE..end.div_ceil(LINE));
        let (now, words) = (self.interval, size / 4);
        let Some(lines) = lines.filter(|lines| lines.len() <= LINES) else { return false };
        if lines.iter().any(|line| line.written == now || WRITE && line.read == now) {
            return false;
        }
        let mut word = [0; LANES];
        for (word, distance) in word.iter_mut().zip(span.distance()) {
            *word = ((lowest as u32 + distance) / 4) as u16;
        }
        let fine = match WRITE {
            true => fresh(written, (span, &word), words, mask),
            false => valued(written, (span, &word), words, mask),
        };
        if !fine {
            return false;
        }
        for line in lines {
            *if WRITE { &mut line.written } else { &mut line.read } = now;
        }
        self.kept.push(Plain { word, words: words as u8, write: WRITE, pc, first, mask });
        true
    }

    /// Whether no more can be put off before what was is worked in.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.kept.len() == KEPT
    }

    /// What was put off, to be worked in.
    pub fn take(&mut self) -> Vec<Plain> {
        std::mem::take(&mut self.kept)
    }

    /// Takes back an empty list, for its room.
    pub fn give_back(&mut self, mut kept: Vec<Plain>) {
        kept.clear();
        self.kept = kept;
    }
}

/// All bytes of a word have a value, and are remembered together.
pub const WHOLE: u8 = 15;

/// Whether all words have a value.
#[inline(always)]
fn valued(written: &[u8], (span, word): (&Span, &[u16; LANES]), words: usize, mask: u32) -> bool {
    let whole = |at: usize, count: usize| {
        let words = written.get(at..at + count);
        words.is_some_and(|words| words.iter().all(|w| *w == WHOLE))
    };
    let mut fine = true;
    for p in 0..LANES / PIECE {
        let members = mask >> (p * PIECE) & 0xff;
        let at = usize::from(word[p * PIECE]);
        fine &= match (span.piece(p), words) {
            (Piece::Step, 1) if members == 0xff => written.get(at..at + PIECE) == Some(&[WHOLE; PIECE]),
            (Piece::Same, 1) if members == 0xff => written.get(at) == Some(&WHOLE),
            _ => (0..PIECE).all(|i| members >> i & 1 == 0 || whole(word[p * PIECE + i].into(), words)),
        };
    }
    fine
}

/// Whether each lane has words of its own, one lane's behind the other's, that are remembered whole: they have a value
/// from now on.
#[inline(always)]
fn fresh(written: &mut [u8], (span, word): (&Span, &[u16; LANES]), words: usize, mask: u32) -> bool {
    let at = usize::from(word[0]);
    if let (true, Some(line)) = (span.is_line() && mask == u32::MAX && words == 1, written.get_mut(at..at + LANES)) {
        let fine = line.iter().fold(0, |all, w| all | w) <= WHOLE;
        if fine {
            line.fill(WHOLE);
        }
        return fine;
    }
    let mut next = 0;
    for (i, &word) in word.iter().enumerate() {
        if mask >> i & 1 == 0 {
            continue;
        }
        let word = usize::from(word);
        let Some(own) = written.get(word..word + words) else { return false };
        if word < next || own.iter().any(|w| *w > WHOLE) {
            return false;
        }
        next = word + words;
    }
    for (i, &word) in word.iter().enumerate() {
        if mask >> i & 1 != 0 {
            written[usize::from(word)..][..words].fill(WHOLE);
        }
    }
    true
}
