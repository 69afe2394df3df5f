//! The addresses of a warp, as distances from the lowest of them: what loads and stores of a whole warp start from.

/// Lanes of a piece: one vector register of words.
pub const PIECE: usize = 8;
const LANES: usize = 32;
const PIECES: usize = LANES / PIECE;

/// How the addresses of a piece of lanes follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Piece {
    /// Word after word.
    Step,
    /// The same address in each lane.
    Same,
    /// Anything else.
    #[default]
    Any,
}

/// Where the lanes of a warp point to. Lanes outside the mask stand where some lane of the mask does.
///
/// The distances are all at most `width`; what reads memory without further checks relies on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    lowest: u64,
    /// From the lowest address to the highest; `u64::MAX` if they lie too far apart for all this.
    width: u64,
    distance: [u32; LANES],
    /// All distances, or-ed: for their alignment.
    bits: u32,
    pieces: [Piece; PIECES],
}

/// Distances stay below this.
const FAR: u64 = 1 << 30;

impl Span {
    /// Measures a row of addresses; the mask has at least one lane. In place, as most of it is written at once.
    #[inline(always)]
    pub fn measure<T: Copy>(&mut self, row: &[T; LANES], mask: u32, wide: impl Fn(T) -> u64) {
        let first = mask.trailing_zeros() as usize % LANES;
        let origin = wide(row[first]);
        let distance = &mut self.distance;
        // From half of FAR below the first lane's address.
        let mut all = 0;
        let shift = |x: T| wide(x).wrapping_sub(origin).wrapping_add(FAR / 2);
        let (mut low, mut high) = (u32::MAX, 0);
        if mask == u32::MAX {
            for i in 0..LANES {
                let d = shift(row[i]);
                all |= d;
                distance[i] = d as u32;
                low = low.min(d as u32);
                high = high.max(d as u32);
            }
        } else {
            // After the last lane as the last lane, before the first as the first: what was sorted stays so.
            let last = shift(row[31 - mask.leading_zeros() as usize % LANES]);
            for i in 0..LANES {
                let other = if i < first { FAR / 2 } else { last };
                let d = if mask >> i & 1 != 0 { shift(row[i]) } else { other };
                all |= d;
                distance[i] = d as u32;
                low = low.min(d as u32);
                high = high.max(d as u32);
            }
        }
        if all >= FAR {
            // Too far apart to be told in 32 bits.
            (self.distance, self.width) = ([0; LANES], u64::MAX);
            return;
        }
        let mut bits = 0;
        for d in distance.iter_mut() {
            *d -= low;
            bits |= *d;
        }
        for p in 0..PIECES {
            self.pieces[p] = piece(&self.distance, p * PIECE);
        }
        self.bits = bits;
        self.lowest = origin.wrapping_add(u64::from(low)).wrapping_sub(FAR / 2);
        self.width = u64::from(high - low);
    }

    /// Takes a row over without measuring it again, if its distances in all lanes are those of the last one: as where a loop
    /// adds a step to its pointers. False, and nothing is changed, if they are not.
    #[inline(always)]
    fn moved<T: Copy>(&mut self, row: &[T; LANES], wide: impl Fn(T) -> u64) -> bool {
        let lowest = wide(row[0]).wrapping_sub(u64::from(self.distance[0]));
        let mut differ = 0;
        for (&at, &distance) in row.iter().zip(&self.distance) {
            differ |= wide(at).wrapping_sub(lowest) ^ u64::from(distance);
        }
        // Addresses too far apart have left no distances.
        let same = differ == 0 && self.width != u64::MAX;
        if same {
            self.lowest = lowest;
        }
        same
    }

    /// Measures a row of which all lanes may have moved alike since the last one, if that was `whole`, as this one is.
    #[inline(always)]
    pub fn follow<T: Copy>(&mut self, row: &[T; LANES], (mask, whole): (u32, bool), wide: impl Fn(T) -> u64 + Copy) {
        if !(whole && self.moved(row, wide)) {
            self.measure(row, mask, wide);
        }
    }

    /// The lowest address.
    #[inline(always)]
    pub fn lowest(&self) -> u64 {
        self.lowest
    }

    /// From the lowest address to the highest.
    #[inline(always)]
    pub fn width(&self) -> u64 {
        self.width
    }

    /// Each lane's distance from the lowest address.
    #[inline(always)]
    pub fn distance(&self) -> &[u32; LANES] {
        &self.distance
    }

    /// How the addresses of lanes `8 * number` and the next seven follow each other.
    #[inline(always)]
    pub fn piece(&self, number: usize) -> Piece {
        self.pieces[number]
    }

    /// Whether an element of `size` bytes (a power of two) fits into `len` bytes in each lane, and is aligned, when
    /// the lowest address is offset `at`.
    #[inline(always)]
    pub fn fits(&self, at: u64, len: usize, size: u64) -> bool {
        let len = len as u64;
        let inside = at <= len && self.width != u64::MAX && len - at >= self.width + size;
        inside && (at | u64::from(self.bits)) & (size - 1) == 0
    }

    /// Whether the addresses are those of 32 words, one after the other.
    #[inline(always)]
    pub fn is_line(&self) -> bool {
        self.width == 4 * (LANES as u64 - 1)
            && self.pieces == [Piece::Step; PIECES]
            && (0..PIECES).all(|p| self.distance[p * PIECE] as usize == 4 * p * PIECE)
    }

    /// Different 32-byte sectors among the lanes when the lowest address is `at`, if no address is below that of the
    /// lane before.
    #[inline(always)]
    pub fn sectors(&self, at: u64) -> Option<u64> {
        let start = (at % 32) as u32;
        if self.is_line() {
            return Some(u64::from((start + self.width as u32) / 32) + 1);
        }
        let (mut sorted, mut steps) = (true, 0);
        for i in 1..LANES {
            let (before, now) = (self.distance[i - 1], self.distance[i]);
            sorted &= before <= now;
            steps += u32::from((before + start) / 32 != (now + start) / 32);
        }
        sorted.then_some(u64::from(steps) + 1)
    }
}

#[inline(always)]
fn piece(distance: &[u32; LANES], at: usize) -> Piece {
    let (mut step, mut same) = (0, 0);
    for i in 0..PIECE {
        let by = distance[at + i].wrapping_sub(distance[at]);
        same |= by;
        step |= by ^ (4 * i as u32);
    }
    match (step, same) {
        (0, _) => Piece::Step,
        (_, 0) => Piece::Same,
        _ => Piece::Any,
    }
}

#[cfg(test)]
mod tests {
    use super::{LANES, Span};

    fn measured(row: &[u64; LANES]) -> Span {
        let mut span = Span::default();
        span.measure(row, u32::MAX, |x| x);
        span
    }

    #[test]
    fn a_pointer_that_moves_keeps_its_distances() {
        let row: [u64; LANES] = std::array::from_fn(|i| 4096 + 12 * i as u64);
        let mut span = measured(&row);
        // Up, down, and across a limit of 32 bits.
        for start in [8192, 16, (1 << 32) - 100] {
            let moved = row.map(|at| at - 4096 + start);
            assert!(span.moved(&moved, |x| x));
            let fresh = measured(&moved);
            assert_eq!((span.lowest(), span.width(), span.distance()), (start, fresh.width(), fresh.distance()));
        }
    }

    #[test]
    fn another_shape_is_measured_anew() {
        let row: [u64; LANES] = std::array::from_fn(|i| 4096 + 4 * i as u64);
        let mut span = measured(&row);
        let lane = |at: usize, by: u64| {
            let mut other = row;
            other[at] = other[at].wrapping_add(by);
            other
        };
        for other in [lane(0, 4), lane(31, 4), lane(7, 1 << 32), lane(9, 1 << 63)] {
            assert!(!span.moved(&other, |x| x));
            assert_eq!(span.lowest(), 4096, "nothing is changed");
        }
        assert!(!measured(&lane(9, 1 << 40)).moved(&[4096; LANES], |x| x), "too far apart has no distances");
    }
}
