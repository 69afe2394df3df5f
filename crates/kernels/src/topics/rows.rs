//! What the topics that work on the rows of a bf16 table have in common.

use super::{MOST, spread_rows, wrong};
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
        _ => Err(Error::Invalid {
            what: format!("a table of {rows} × {columns}: these kernels count rows and columns in `int`, up to {MOST}"),
            fix: "split the table, and launch once for each part".to_string(),
        }),
    }
}

/// An error where an array has another length than its table.
pub(super) fn holds(what: &str, given: usize, expected: usize) -> Result<()> {
    match given == expected {
        true => Ok(()),
        false => Err(Error::LengthMismatch { what: what.to_string(), expected, given }),
    }
}

/// Rows spread over a table, some 65,536 numbers in all, at least 16 rows.
pub(super) fn some_rows(rows: usize, columns: usize) -> Vec<usize> {
    spread_rows(rows, (65_536 / columns.max(1)).max(16))
}

/// Compares one row with what it is in f64: rounding to bf16 is off by at most 2⁻⁹ of the number, of which twice as much
/// is allowed, and `slack` for each number.
pub(super) fn agree(path: &str, place: &str, given: &[u16], exact: &[f64], slack: impl Fn(usize) -> f64) -> Result<()> {
    for (column, (&bits, exact)) in given.iter().zip(exact).enumerate() {
        let given = f64::from(cpu::f32_from_bf16(bits));
        let error = (given - exact).abs();
        // A number that was never written is NaN, which is greater than nothing.
        if error.is_nan() || error > exact.abs() * 2.0_f64.powi(-8) + slack(column) {
            return Err(wrong(path, format!("{place}, column {column}: {given} on the GPU, {exact} exactly")));
        }
    }
    Ok(())
}

/// A row in f64.
pub(super) fn in_f64(bits: &[u16]) -> Vec<f64> {
    bits.iter().map(|&bits| f64::from(cpu::f32_from_bf16(bits))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_and_unwritten_numbers_are_named_and_rounding_is_not() {
        let given = |x: f32| agree("s", "row 0", &[0x3F80, cpu::bf16_from_f32(x)], &[1.0, 100.0], |_| 0.2);
        assert_eq!((given(100.3), given(99.7)), (Ok(()), Ok(())));
        for off in [101.0, 99.0, f32::NAN, f32::INFINITY] {
            let text = given(off).unwrap_err().to_string();
            assert!(text.contains("row 0, column 1") && text.contains("\nnext: "), "{text}");
        }
    }

    #[test]
    fn tables_that_no_int_counts_are_refused() {
        assert_eq!(sides(3, 4), Ok((3, 4)));
        for (rows, columns) in [(1 << 31, 1), (1, 1 << 31), (usize::MAX, 2), (MOST, MOST)] {
            assert!(sides(rows, columns).unwrap_err().to_string().contains("next: split the table"));
        }
        assert_eq!((some_rows(1 << 15, 8192).len(), some_rows(7, 1).len()), (16, 7));
    }
}
