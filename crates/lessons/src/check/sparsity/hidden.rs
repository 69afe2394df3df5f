//! A product with a sparse matrix that is right for some matrices and wrong for others. Its source stays hidden until its mistake is
//! named.

use crate::check::Verdict;
use crate::check::on_paper::diagnosed;
use crate::check::verdict::{Check, wrong};
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use gpulab::launch::LaunchConfig;
use std::fmt;

/// Entries of a thread in the hidden kernel.
const SHARE: usize = 12;
/// Rows of the matrix that the question asks about, and entries of each.
const ASKED: (usize, usize) = (100, 5);
/// Rows of a report, and entries of a row.
const MOST: (usize, usize) = (12, 40);

/// Each thread takes 12 entries, wherever rows begin and end.
const SOURCE: &str = "extern \"C\" __global__ void spmv(const int *starts, const int *indices, const float *values, const float *x, float *y, int rows, int entries) {
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * 12, last = min(first + 12, entries);
    for (int row = 0; row < rows; ++row) {
        int from = starts[row];
        // The row belongs to the thread that has its first entry; rows without entries to the first thread.
        if (from == starts[row + 1] ? first == 0 : first <= from && from < last) {
            float sum = 0.0f;
            // Nobody adds what the next thread has of it.
            for (int at = from; at < min(starts[row + 1], last); ++at) { sum += values[at] * x[indices[at]]; }
            y[row] = sum;
        }
    }
}";

/// What may be wrong with a product of a sparse matrix and a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SparseFault {
    /// Column indices are taken as if they counted from 1.
    IndexFromOne,
    /// Rows without entries are not written, or shift the others.
    EmptyRow,
    /// Rows longer than some length lose their end.
    LongRow,
    /// Where entries are shared out among threads, a row that crosses from one share to the next loses a part.
    ShareBorder,
    /// The last row is left out, or is not whole.
    LastRow,
    /// Columns have to ascend within a row.
    ColumnOrder,
}

/// What the hidden kernel made of a small matrix.
#[derive(Debug, Clone)]
#[must_use = "a report shows itself as the last expression of a cell, without a semicolon"]
pub struct SparseReport {
    /// Entries of each row.
    pub lengths: Vec<usize>,
    /// Of each row: the kernel's result, and the right one.
    pub results: Vec<(f32, f32)>,
}

/// Launches the hidden kernel in the simulator on a matrix whose rows have so many entries each. All values are 1, and so is `x`: a
/// row's result is the number of entries that are in it.
///
/// # Errors
/// [`Error::Invalid`] for more than 12 rows, or more than 40 entries in one; those of [`Gpu::compile`].
pub fn sparse_report(lengths: &[usize]) -> Result<SparseReport> {
    if lengths.is_empty() || lengths.len() > MOST.0 || lengths.iter().any(|length| *length > MOST.1) {
        return Err(Error::invalid(
            format!("rows of {lengths:?} entries"),
            format!(
                "ask for 1 to {} rows of up to {} entries; what larger matrices give can be worked out",
                MOST.0, MOST.1
            ),
        ));
    }
    report_with(lengths, |_| 1.0, false)
}

/// The same with an `x` of one's own, and with columns in descending order.
fn report_with(lengths: &[usize], x: fn(usize) -> f32, descending: bool) -> Result<SparseReport> {
    let columns = MOST.1;
    let column = |i: usize| (if descending { columns - 1 - i } else { i }) as i32;
    let indices: Vec<i32> = lengths.iter().flat_map(|&length| (0..length).map(column)).collect();
    let mut starts = vec![0];
    starts.extend(lengths.iter().scan(0, |sum, length| {
        *sum += *length as i32;
        Some(*sum)
    }));
    let numbers: Vec<f32> = (0..columns).map(x).collect();
    let right = |length: &usize| (0..*length).map(|i| numbers[column(i) as usize]).sum::<f32>();
    let gpu = Gpu::simulated()?;
    let (on_starts, on_indices) = (gpu.to_device(&starts)?, gpu.to_device(&indices)?);
    let (values, on_x) = (gpu.to_device(&vec![1.0_f32; indices.len()])?, gpu.to_device(&numbers)?);
    let mut y = gpu.poison::<f32>(lengths.len())?;
    let kernel = gpu.compile(SOURCE)?.kernel("spmv")?;
    let args = (&on_starts, &on_indices, &values, &on_x, &mut y, lengths.len() as i32, indices.len() as i32);
    kernel.launch(LaunchConfig::for_elements(indices.len().div_ceil(SHARE).max(1), 32), args)?;
    let results = y.to_host()?.into_iter().zip(lengths.iter().map(right)).collect();
    Ok(SparseReport { lengths: lengths.to_vec(), results })
}

/// Checks a diagnosis: what is wrong, and how many rows of a matrix of 100 rows with 5 entries each are right.
pub fn diagnose_sparse(diagnosis: Option<(SparseFault, f64)>) -> Verdict {
    let (rows, length) = ASKED;
    let right = |share: usize| (0..rows).filter(|row| row * length % share + length <= share).count() as f64;
    let slips = [
        (rows as f64, "then all rows would be right: where does row 2 begin, and where does it end?"),
        (rows as f64 - right(SHARE), "that is how many are wrong"),
        (right(8), "with shares of 8 entries. A report of one row says how long a share is"),
        (right(16), "with shares of 16 entries. A report of one row says how long a share is"),
        (right(32), "with shares of 32 entries. A report of one row says how long a share is"),
    ];
    let start =
        "how long is a share? Row r begins at entry 5 · r: for which r is its last entry in the share of its first?";
    let none = "ask for reports that differ in one thing. Does a wrong row become right when the row before it is longer or shorter?";
    diagnosed("diagnose_sparse", diagnosis, none, against, right(SHARE)..=right(SHARE), &slips, start)
}

/// What speaks for an innocent suspect.
fn against(named: SparseFault) -> Check {
    let right = |report: &SparseReport| report.results.iter().filter(|(y, right)| y == right).count();
    let what = match named {
        SparseFault::ShareBorder => return Ok(()),
        SparseFault::IndexFromOne => {
            let report = report_with(&[4, 3], |column| column as f32 + 1.0, false)?;
            format!(
                "rows of 4 and 3 entries, with an x whose numbers are all different: {} of 2 rows are right",
                right(&report)
            )
        }
        SparseFault::EmptyRow => {
            let report = sparse_report(&[0, 4, 0, 3, 0])?;
            format!("rows of 0, 4, 0, 3 and 0 entries: {} of 5 are right", right(&report))
        }
        SparseFault::LongRow => {
            let report = sparse_report(&[9, 9, 5])?;
            format!(
                "rows of 9, 9 and 5 entries: {} of 3 are right, and of the two that are equally long one is",
                right(&report)
            )
        }
        SparseFault::LastRow => {
            let report = sparse_report(&[4, 4, 4])?;
            format!("three rows of 4 entries: {} are right, the last one too", right(&report))
        }
        SparseFault::ColumnOrder => {
            let report = report_with(&[5, 6], |column| column as f32 + 1.0, true)?;
            format!("rows of 5 and 6 entries whose columns descend: {} of 2 are right", right(&report))
        }
    };
    wrong(what, "which rows lose something: the long ones, or those at certain places of the list of entries?")
}

/// The hidden source, once the diagnosis is right.
pub fn revealed_sparse(diagnosis: Option<(SparseFault, f64)>) -> &'static str {
    diagnose_sparse(diagnosis).reveals(SOURCE)
}

gpulab::show_as_text!(SparseReport);

impl fmt::Display for SparseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (row, (y, right)) in self.results.iter().enumerate() {
            let said = if y == right { "right".to_string() } else { format!("it should be {right}") };
            writeln!(f, "row {row:>2}, {:>2} entries: {y:>2}, {said}", self.lengths[row])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_tell_suspects_apart_and_hide_the_source() {
        let right = |lengths: &[usize]| {
            let report = sparse_report(lengths).unwrap();
            assert!(!report.to_string().contains("starts"), "{report}");
            report.results.iter().map(|(y, right)| y == right).collect::<Vec<_>>()
        };
        assert_eq!(right(&[9, 9, 5]), [true, false, true]);
        assert_eq!(right(&[12, 1, 11, 0]), [true; 4]);
        assert_eq!(right(&[13]), [false]);
        assert_eq!(right(&[0, 0]), [true, true]);
        for wrong in [&[][..], &[1; 13], &[41]] {
            assert!(sparse_report(wrong).unwrap_err().to_string().contains("\nnext: ask for"));
        }
    }

    #[test]
    fn only_the_reports_convict() {
        let right = Some((SparseFault::ShareBorder, 67.0));
        assert!(diagnose_sparse(right).passed(), "{}", diagnose_sparse(right).text());
        assert_eq!(revealed_sparse(right), SOURCE);
        use SparseFault::{ColumnOrder, EmptyRow, IndexFromOne, LastRow, LongRow, ShareBorder};
        for (wrong, said) in [
            (None, "no diagnosis yet"),
            (Some((IndexFromOne, 67.0)), "2 of 2 rows are right"),
            (Some((EmptyRow, 67.0)), "5 of 5 are right"),
            (Some((LongRow, 67.0)), "2 of 3 are right"),
            (Some((LastRow, 67.0)), "3 are right"),
            (Some((ColumnOrder, 67.0)), "2 of 2 are right"),
            (Some((ShareBorder, 100.0)), "all rows would be right"),
            (Some((ShareBorder, 33.0)), "how many are wrong"),
            (Some((ShareBorder, 50.0)), "shares of 8"),
            (Some((ShareBorder, 75.0)), "shares of 16"),
            (Some((ShareBorder, 60.0)), "how long is a share"),
            (Some((ShareBorder, f64::NAN)), "is no answer"),
        ] {
            let text = diagnose_sparse(wrong).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{wrong:?}: {text}");
            assert!(revealed_sparse(wrong).starts_with("The source shows itself"), "{text}");
        }
    }
}
