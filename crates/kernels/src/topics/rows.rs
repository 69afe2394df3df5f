//! What the topics that work on the rows of a bf16 table have in common.

use super::{MOST, Size};
use gpulab::cpu;
use gpulab::error::{Error, Result};

/// Tables (rows, columns) that a new kernel is checked at: rows that begin at no multiple of 16 bytes, that fill neither
/// a warp nor a block, and that are longer than what a block holds in registers.
pub(super) const AWKWARD_TABLES: [(usize, usize); 6] = [(1, 1), (3, 31), (2, 33), (37, 65), (5, 1000), (2, 8201)];

/// What their numbers are multiplied by, and what is added: also numbers so large that exp of them is infinite, and so
/// far from 0 that the squares' sums lose the variance.
pub(super) const AWKWARD_NUMBERS: [(f32, f32); 3] = [(4.0, 0.0), (1e4, 0.0), (8.0, 1000.0)];

/// Random bf16 from `shift - scale` to `shift + scale`.
pub(super) fn numbers(count: usize, seed: u64, (scale, shift): (f32, f32)) -> Vec<u16> {
    cpu::random_f32(count, seed).into_iter().map(|x| cpu::bf16_from_f32(x * scale + shift)).collect()
}

/// Rows and columns as a kernel's `int`.
///
/// # Errors
/// [`Error::Invalid`] for sides, or a table, that are too large to be counted.
pub(super) fn sides(rows: usize, columns: usize) -> Result<(i32, i32)> {
    let side = |side: usize| i32::try_from(side).ok().filter(|_| side <= MOST);
    // Bytes of a few such tables are counted in `usize`.
    match (side(rows), side(columns), rows.checked_mul(columns).and_then(|numbers| numbers.checked_mul(16))) {
        (Some(rows), Some(columns), Some(_)) => Ok((rows, columns)),
        _ => Err(Error::invalid(
            format!("a table of {rows} × {columns}: these kernels count rows and columns in `int`, up to {MOST}"),
            "split the table, and launch once for each part",
        )),
    }
}

/// The sides of a table, and its numbers.
///
/// # Errors
/// As [`sides`]; [`Error::Invalid`] for a size that is not of two numbers.
pub(super) fn table(size: Size) -> Result<(usize, usize, usize)> {
    let (rows, columns) = size.two()?;
    sides(rows, columns).map(|_| (rows, columns, rows * columns))
}

/// The table's rows, and how many of them are compared in a timed run: some 65,536 numbers, at least 16 rows.
pub(super) fn compared(size: Size) -> Result<(usize, usize)> {
    let (rows, columns, _) = table(size)?;
    Ok((rows, (65_536 / columns.max(1)).max(16)))
}

/// By how much a bf16 may be off that is rounded once, which is 2⁻⁹ of it: twice as much.
pub(super) fn rounding(exact: f64) -> f64 {
    exact.abs() * 2.0_f64.powi(-8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_no_int_counts_are_refused() {
        assert_eq!(sides(3, 4), Ok((3, 4)));
        for (rows, columns) in [(1 << 31, 1), (1, 1 << 31), (usize::MAX, 2), (MOST, MOST)] {
            assert!(sides(rows, columns).unwrap_err().to_string().contains("next: split the table"));
        }
        assert_eq!(compared(Size::Two(1 << 15, 8192)), Ok((1 << 15, 16)));
    }
}
