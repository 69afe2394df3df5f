//! Functions of 32 lanes at once, in pieces that fit vector registers.

use crate::op::Slot;

/// Lanes of a warp.
pub const LANES: usize = 32;
/// Lanes of one piece.
const PIECE: usize = 8;

/// A register of a warp.
pub type Row<T> = [T; LANES];

/// `d = f(a)` in the lanes of the mask.
#[inline(always)]
pub fn map1<T: Copy + Default, U: Copy + Default>(out: &mut Row<T>, a: &Row<U>, mask: u32, f: impl Fn(U) -> T) {
    for i in 0..LANES {
        let value = f(a[i]);
        out[i] = if mask >> i & 1 != 0 { value } else { out[i] };
    }
}

/// `d = f(a)` within one file.
#[inline(always)]
pub fn unary<T: Copy + Default>(file: &mut [Row<T>], mask: u32, d: Slot, a: Slot, f: impl Fn(T) -> T) {
    for at in (0..LANES).step_by(PIECE) {
        let x = piece(file, a, at);
        put(file, d, at, mask, std::array::from_fn(|i| f(x[i])));
    }
}

/// `d = f(a, b)` within one file.
#[inline(always)]
pub fn binary<T: Copy + Default>(file: &mut [Row<T>], mask: u32, d: Slot, a: Slot, b: Slot, f: impl Fn(T, T) -> T) {
    for at in (0..LANES).step_by(PIECE) {
        let (x, y) = (piece(file, a, at), piece(file, b, at));
        put(file, d, at, mask, std::array::from_fn(|i| f(x[i], y[i])));
    }
}

/// `d = f(a, b, c)` within one file.
#[inline(always)]
pub fn ternary<T: Copy + Default>(
    file: &mut [Row<T>],
    mask: u32,
    d: Slot,
    [a, b, c]: [Slot; 3],
    f: impl Fn(T, T, T) -> T,
) {
    for at in (0..LANES).step_by(PIECE) {
        let (x, y, z) = (piece(file, a, at), piece(file, b, at), piece(file, c, at));
        put(file, d, at, mask, std::array::from_fn(|i| f(x[i], y[i], z[i])));
    }
}

/// Mask of the lanes for which `f` holds.
#[inline(always)]
pub fn test<T: Copy>(a: &Row<T>, b: &Row<T>, f: impl Fn(T, T) -> bool) -> u32 {
    let mut out = 0;
    for i in 0..LANES {
        out |= u32::from(f(a[i], b[i])) << i;
    }
    out
}

/// Calls `f` with each lane of the mask, lowest first.
#[inline(always)]
pub fn each(mut mask: u32, mut f: impl FnMut(usize)) {
    while mask != 0 {
        f(mask.trailing_zeros() as usize);
        mask &= mask - 1;
    }
}

#[inline(always)]
fn piece<T: Copy + Default>(file: &[Row<T>], row: Slot, at: usize) -> [T; PIECE] {
    let mut out = [T::default(); PIECE];
    out.copy_from_slice(&file[row as usize][at..at + PIECE]);
    out
}

#[inline(always)]
fn put<T: Copy>(file: &mut [Row<T>], row: Slot, at: usize, mask: u32, values: [T; PIECE]) {
    let out = &mut file[row as usize][at..at + PIECE];
    if mask == u32::MAX {
        out.copy_from_slice(&values);
    } else {
        for i in 0..PIECE {
            out[i] = if mask >> (at + i) & 1 != 0 { values[i] } else { out[i] };
        }
    }
}
