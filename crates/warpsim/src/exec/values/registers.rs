//! The rows of a register file, aligned so that no vector register straddles a cache line.

use std::ops::{Deref, DerefMut};

use super::lanes::{LANES, Row};

/// A row at a multiple of 64 bytes; its size is one too.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Aligned<T>(Row<T>);

/// Rows of 32-bit or 64-bit lanes.
#[derive(Clone)]
pub struct File<T>(Vec<Aligned<T>>);

impl<T: Copy + Default> File<T> {
    /// So many rows of zeros.
    pub fn zeros(rows: usize) -> Self {
        Self(vec![Aligned([T::default(); LANES]); rows])
    }

    /// Appends rows, or takes the last ones away.
    pub fn resize(&mut self, rows: usize, row: Row<T>) {
        self.0.resize(rows, Aligned(row));
    }

    /// Takes the last rows away.
    pub fn truncate(&mut self, rows: usize) {
        self.0.truncate(rows);
    }
}

impl<T> Deref for File<T> {
    type Target = [Row<T>];

    #[inline(always)]
    fn deref(&self) -> &[Row<T>] {
        const { assert!(size_of::<Aligned<T>>() == size_of::<Row<T>>()) };
        // SAFETY: an aligned row is a row, of the same size.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len()) }
    }
}

impl<T> DerefMut for File<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Row<T>] {
        // SAFETY: as in `deref`.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len()) }
    }
}
