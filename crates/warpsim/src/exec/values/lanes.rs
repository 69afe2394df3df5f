//! Functions of 32 lanes at once, as vector registers do them.
//!
//! The loops are written so that compilers make vector instructions of them at any level: each lane is computed before
//! a row is written, and which lanes take part is arithmetic.

use std::mem::MaybeUninit;

use crate::op::Slot;

/// Lanes of a warp.
pub const LANES: usize = 32;

/// A register of a warp.
pub type Row<T> = [T; LANES];

/// What a lane of a register holds.
pub trait Cell: Copy + Default {
    /// The new value where `on` is 1, the old one where it is 0.
    fn pick(new: Self, old: Self, on: u32) -> Self;
}

impl Cell for u32 {
    #[inline(always)]
    fn pick(new: Self, old: Self, on: u32) -> Self {
        let keep = on.wrapping_neg();
        new & keep | old & !keep
    }
}

impl Cell for u64 {
    #[inline(always)]
    fn pick(new: Self, old: Self, on: u32) -> Self {
        let keep = u64::from(on).wrapping_neg();
        new & keep | old & !keep
    }
}

/// `d = f(a)` in the lanes of the mask.
#[inline(always)]
pub fn map1<T: Cell, U: Copy>(out: &mut Row<T>, a: &Row<U>, mask: u32, f: impl Fn(U) -> T) {
    if mask == u32::MAX {
        for i in 0..LANES {
            out[i] = f(a[i]);
        }
    } else {
        for i in 0..LANES {
            out[i] = T::pick(f(a[i]), out[i], mask >> i & 1);
        }
    }
}

/// Writes `$value` of each lane `$i`. A macro, as a function that takes a function may be left a call, which would then
/// be compiled without the vector instructions of its caller.
macro_rules! write {
    ($file:ident, $mask:ident, $d:ident, $i:ident, $value:expr) => {
        // Computed apart from the file: no result can then be an operand of the next lane.
        let mut out = [const { MaybeUninit::<T>::uninit() }; LANES];
        for $i in 0..LANES {
            out[$i] = MaybeUninit::new($value);
        }
        // SAFETY: the loop has written all lanes.
        let out = unsafe { out.as_ptr().cast::<Row<T>>().read() };
        let row = &mut $file[$d as usize];
        if $mask == u32::MAX {
            *row = out;
        } else {
            for i in 0..LANES {
                row[i] = T::pick(out[i], row[i], $mask >> i & 1);
            }
        }
    };
}

/// `d = f(a)` within one file.
#[inline(always)]
pub fn unary<T: Cell>(file: &mut [Row<T>], mask: u32, d: Slot, a: Slot, f: impl Fn(T) -> T) {
    let x = &file[a as usize];
    write!(file, mask, d, i, f(x[i]));
}

/// `d = f(a, b)` within one file.
#[inline(always)]
pub fn binary<T: Cell>(file: &mut [Row<T>], mask: u32, d: Slot, a: Slot, b: Slot, f: impl Fn(T, T) -> T) {
    let (x, y) = (&file[a as usize], &file[b as usize]);
    write!(file, mask, d, i, f(x[i], y[i]));
}

/// `d = f(a, b, c)` within one file.
#[inline(always)]
pub fn ternary<T: Cell>(file: &mut [Row<T>], mask: u32, d: Slot, [a, b, c]: [Slot; 3], f: impl Fn(T, T, T) -> T) {
    let (x, y, z) = (&file[a as usize], &file[b as usize], &file[c as usize]);
    write!(file, mask, d, i, f(x[i], y[i], z[i]));
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
