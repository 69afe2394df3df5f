//! Memory read and written by a whole warp at once, after one check for all lanes.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::Bytes;
use super::span::{PIECE, Piece, Span};

const LANES: usize = 32;

/// The lanes of a warp in memory, all of them inside and aligned.
///
/// `ALONE`: nobody else has the bytes meanwhile, so vector loads and stores will do; else each element is atomic.
pub struct Lanes<'a, const ALONE: bool> {
    start: *mut u8,
    span: &'a Span,
}

impl<'a> Lanes<'a, true> {
    /// Elements of `size` bytes (a power of two) whose lowest is at offset `at`.
    #[inline(always)]
    pub fn alone(bytes: &'a mut Bytes, span: &'a Span, at: u64, size: u64) -> Option<Self> {
        Self::new(bytes, span, at, size)
    }
}

impl<'a> Lanes<'a, false> {
    /// The same, while other cores have the bytes too.
    #[inline(always)]
    pub fn shared(bytes: &'a Bytes, span: &'a Span, at: u64, size: u64) -> Option<Self> {
        Self::new(bytes, span, at, size)
    }
}

impl<'a, const ALONE: bool> Lanes<'a, ALONE> {
    #[inline(always)]
    fn new(bytes: &'a Bytes, span: &'a Span, at: u64, size: u64) -> Option<Self> {
        // SAFETY: `at` is at most the length.
        span.fits(at, bytes.len(), size).then(|| Self { start: unsafe { bytes.start().add(at as usize) }, span })
    }

    /// Reads the word at `step` bytes into each element; `step` and the word lie within the size that was asked for.
    #[inline(always)]
    pub fn load_words(&self, step: usize, mask: u32, row: &mut [u32; LANES]) {
        let (pieces, _) = row.as_chunks_mut::<PIECE>();
        if mask == u32::MAX {
            for (p, out) in pieces.iter_mut().enumerate() {
                self.read(p, step, out);
            }
        } else {
            for (p, out) in pieces.iter_mut().enumerate() {
                let mut values = [0; PIECE];
                self.read(p, step, &mut values);
                for i in 0..PIECE {
                    let keep = (mask >> (p * PIECE + i) & 1).wrapping_neg();
                    out[i] = values[i] & keep | out[i] & !keep;
                }
            }
        }
    }

    /// Writes words as [`Lanes::load_words`] reads them, in the order of the lanes.
    #[inline(always)]
    pub fn store_words(&self, step: usize, mask: u32, row: &[u32; LANES]) {
        for p in 0..LANES / PIECE {
            let members = mask >> (p * PIECE) & 0xff;
            if members == 0xff && self.span.piece(p) == Piece::Step {
                let mut values = [0; PIECE];
                values.copy_from_slice(&row[p * PIECE..(p + 1) * PIECE]);
                self.write_line(self.place(p * PIECE, step), values);
                continue;
            }
            for i in (0..PIECE).filter(|i| members >> i & 1 != 0) {
                let lane = p * PIECE + i;
                // SAFETY: `place` gives a pointer to a word.
                unsafe { AtomicU32::from_ptr(self.place(lane, step).cast()).store(row[lane], Relaxed) };
            }
        }
    }

    /// Whether all lanes are at the same address.
    #[inline(always)]
    pub fn is_point(&self) -> bool {
        self.span.width() == 0
    }

    /// Reads an element of 1, 2, 4 or 8 bytes of a lane.
    #[inline(always)]
    pub fn load(&self, lane: usize, step: usize, bytes: u8) -> u64 {
        let at = self.place(lane, step);
        // SAFETY: the element is inside and aligned; all access while shared is atomic.
        unsafe {
            match bytes {
                1 => AtomicU8::from_ptr(at).load(Relaxed).into(),
                2 => AtomicU16::from_ptr(at.cast()).load(Relaxed).into(),
                4 => AtomicU32::from_ptr(at.cast()).load(Relaxed).into(),
                _ => AtomicU64::from_ptr(at.cast()).load(Relaxed),
            }
        }
    }

    /// Writes an element of 1, 2, 4 or 8 bytes of a lane.
    #[inline(always)]
    pub fn store(&self, lane: usize, step: usize, bytes: u8, value: u64) {
        let at = self.place(lane, step);
        // SAFETY: as in `load`.
        unsafe {
            match bytes {
                1 => AtomicU8::from_ptr(at).store(value as u8, Relaxed),
                2 => AtomicU16::from_ptr(at.cast()).store(value as u16, Relaxed),
                4 => AtomicU32::from_ptr(at.cast()).store(value as u32, Relaxed),
                _ => AtomicU64::from_ptr(at.cast()).store(value, Relaxed),
            }
        }
    }

    #[inline(always)]
    fn place(&self, lane: usize, step: usize) -> *mut u8 {
        // SAFETY: `Span::fits` has held the lowest and the highest distance against the length.
        unsafe { self.start.add(self.span.distance()[lane] as usize + step) }
    }

    /// Reads the words of a piece of lanes.
    #[inline(always)]
    fn read(&self, p: usize, step: usize, out: &mut [u32; PIECE]) {
        // SAFETY: `place` gives a pointer to a word.
        let word = |at: *mut u8| unsafe { AtomicU32::from_ptr(at.cast()).load(Relaxed) };
        let first = self.place(p * PIECE, step);
        match self.span.piece(p) {
            Piece::Same => *out = [word(first); PIECE],
            // SAFETY: the words from the first to the eighth lane, of which nobody else writes one.
            Piece::Step if ALONE => *out = unsafe { first.cast::<[u32; PIECE]>().read() },
            Piece::Step if first.addr().is_multiple_of(8) => {
                let (pairs, _) = out.as_chunks_mut::<2>();
                for (i, pair) in pairs.iter_mut().enumerate() {
                    // SAFETY: the same words, two by two, and aligned for it.
                    let both = unsafe { AtomicU64::from_ptr(first.add(8 * i).cast()).load(Relaxed) };
                    *pair = [both as u32, (both >> 32) as u32];
                }
            }
            _ => {
                for (i, out) in out.iter_mut().enumerate() {
                    *out = word(self.place(p * PIECE + i, step));
                }
            }
        }
    }

    /// Eight words, one after the other.
    #[inline(always)]
    fn write_line(&self, first: *mut u8, values: [u32; PIECE]) {
        if ALONE {
            // SAFETY: the words of eight lanes that follow each other, which nobody else reads or writes.
            return unsafe { first.cast::<[u32; PIECE]>().write(values) };
        }
        for (i, value) in values.into_iter().enumerate() {
            // SAFETY: one of these words.
            unsafe { AtomicU32::from_ptr(first.add(4 * i).cast()).store(value, Relaxed) };
        }
    }
}
