//! A sparse matrix in CSR times a dense one.

use super::simd::widest;
use gpulab_measure::error::same_length;
use gpulab_measure::{Error, Result};
use rayon::prelude::*;

/// Columns of the result that are summed at a time: eight registers of 256 bits.
const TILE: usize = 64;

/// A matrix in compressed sparse rows (CSR): row `r` has entries `starts[r]` to `starts[r + 1]`, and entry `at` is
/// `values[at]` in column `indices[at]`.
#[derive(Clone, Copy, Debug)]
pub struct CsrRef<'a> {
    /// One more than there are rows.
    pub starts: &'a [i32],
    /// Column of each entry.
    pub indices: &'a [i32],
    /// Value of each entry.
    pub values: &'a [f32],
}

/// `c = a · b` in f32 on all cores: `a` sparse, `b` with `width` columns, `c` with as many; 2 · entries · width operations.
///
/// # Errors
/// [`Error::LengthMismatch`] when `c` does not hold `width` numbers a row, or the entries' arrays differ in length;
/// [`Error::Invalid`] for rows that begin behind their end, and columns that `b` has no row for.
pub fn csr_matmul(a: CsrRef, b: &[f32], c: &mut [f32], width: usize) -> Result<()> {
    checked(a, b, c, width, true)?;
    // Rows may be of any length: small pieces, so that no thread is left with the long ones.
    let rows = c.par_chunks_mut(width.max(1)).enumerate();
    rows.with_min_len(16).for_each(|(row, c)| one_row(a, b, c, row));
    Ok(())
}

/// The same on one core.
///
/// # Errors
/// As [`csr_matmul`].
pub fn csr_matmul_one_core(a: CsrRef, b: &[f32], c: &mut [f32], width: usize) -> Result<()> {
    checked(a, b, c, width, false)?;
    c.chunks_mut(width.max(1)).enumerate().for_each(|(row, c)| one_row(a, b, c, row));
    Ok(())
}

/// Entries that a thread looks through at a time.
const LOOKED_AT: usize = 1 << 14;

fn checked(a: CsrRef, b: &[f32], c: &[f32], width: usize, all_cores: bool) -> Result<()> {
    let rows = a.starts.len().saturating_sub(1);
    same_length("the result of a sparse product", rows * width, c.len())?;
    same_length("the column indices", a.values.len(), a.indices.len())?;
    let inner = b.len().checked_div(width).unwrap_or(0);
    let entries = i32::try_from(a.values.len()).unwrap_or(i32::MAX);
    let wrong_row =
        |row: usize| !(0 <= a.starts[row] && a.starts[row] <= a.starts[row + 1] && a.starts[row + 1] <= entries);
    let wrong_column = |column: i32| usize::try_from(column).map_or(true, |column| column >= inner);
    // On one core this walk takes as long as a product on many. All look for any mistake; only where there is one, in order.
    if all_cores
        && !(0..rows).into_par_iter().with_min_len(LOOKED_AT).any(wrong_row)
        && !a
            .indices
            .par_chunks(LOOKED_AT)
            .any(|some| some.iter().fold(false, |any, &column| any | wrong_column(column)))
    {
        return Ok(());
    }
    let row = (0..rows).find(|&row| wrong_row(row));
    let column = a.indices.iter().position(|&column| wrong_column(column));
    let what = match (row, column) {
        (Some(row), _) => format!("row {row} has entries {} to {}, of {entries}", a.starts[row], a.starts[row + 1]),
        (_, Some(at)) if width > 0 => format!("entry {at} is in column {}, and `b` has {inner} rows", a.indices[at]),
        _ => return Ok(()),
    };
    Err(Error::invalid(what, "build the three arrays from one matrix, and give `b` as many rows as it has columns"))
}

widest! { fn one_row(a: CsrRef, b: &[f32], c: &mut [f32], row: usize) = one_row_body }

#[inline(always)]
fn one_row_body(a: CsrRef, b: &[f32], c: &mut [f32], row: usize) {
    let entries = a.starts[row] as usize..a.starts[row + 1] as usize;
    let pairs = a.values[entries.clone()].iter().zip(&a.indices[entries]);
    if let [only] = c {
        *only = pairs.map(|(value, column)| value * b[*column as usize]).sum();
        return;
    }
    let width = c.len();
    for (tile, c) in c.chunks_mut(TILE).enumerate() {
        let from = |column: i32| &b[column as usize * width + tile * TILE..][..c.len()];
        // As many columns as registers hold; the rest go through memory.
        let mut sums = [0.0; TILE];
        for (value, column) in pairs.clone() {
            match <&[f32; TILE]>::try_from(from(*column)) {
                Ok(b) => sums.iter_mut().zip(b).for_each(|(sum, b)| *sum += value * b),
                Err(_) => sums.iter_mut().zip(from(*column)).for_each(|(sum, b)| *sum += value * b),
            }
        }
        c.copy_from_slice(&sums[..c.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_f32;

    #[test]
    fn products_are_those_of_the_dense_matrix_and_bad_arrays_are_refused() {
        let (rows, columns) = (70, 45);
        let keep = |(at, x): (usize, f32)| if at % 7 < 2 && at / columns % 5 != 3 { x } else { 0.0 };
        let dense: Vec<f32> = random_f32(rows * columns, 1).into_iter().enumerate().map(keep).collect();
        let (mut starts, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in dense.chunks(columns) {
            for (column, &x) in row.iter().enumerate().filter(|(_, x)| **x != 0.0) {
                indices.push(column as i32);
                values.push(x);
            }
            starts.push(values.len() as i32);
        }
        let a = CsrRef { starts: &starts, indices: &indices, values: &values };
        for width in [1, 2, 33, 64, 130] {
            let b = random_f32(columns * width, 2);
            let mut right = vec![0.0; rows * width];
            crate::matmul_shape(&dense, &b, &mut right, rows, columns, width).unwrap();
            for product in [csr_matmul, csr_matmul_one_core] {
                let mut c = vec![f32::NAN; rows * width];
                product(a, &b, &mut c, width).unwrap();
                assert!(c.iter().zip(&right).all(|(a, b)| (a - b).abs() < 1e-5), "{width}");
                assert!(product(a, &b[width..], &mut c, width).unwrap_err().to_string().contains("`b` has 44 rows"));
                assert!(product(a, &b, &mut c[1..], width).is_err());
            }
        }
        let bad = CsrRef { starts: &[0, 2, 1], indices: &[0, 0], values: &[1.0, 1.0] };
        assert!(
            csr_matmul(bad, &[1.0], &mut [0.0; 2], 1).unwrap_err().to_string().contains("row 1 has entries 2 to 1")
        );
    }
}
