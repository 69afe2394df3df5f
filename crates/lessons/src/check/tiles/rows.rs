//! A softmax whose rows are shorter than its tile, and whose results do not add up to one. Its source stays hidden until its mistake
//! is named.

use crate::check::Verdict;
use crate::check::on_paper::diagnosed;
use crate::check::verdict::{Check, wrong};
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use gpulab::launch::{LaunchConfig, Source};
use std::fmt;

/// The hidden kernel's tile: one row of so many numbers.
const TILE: f64 = 512.0;
/// The row that the question asks about: so many numbers, all the same.
const ASKED: (f64, f64) = (300.0, -2.0);
/// Longer rows are for thinking.
const MOST: usize = 64;

const SOURCE: &str = r#"use gpulab_device::*;

fn of_block(own: f32, place: SharedArray<f32>, join: impl Fn(f32, f32) -> f32) -> f32 {
    let (mut joined, mut lanes) = (own, 16);
    while lanes > 0 {
        joined = join(joined, warp::shuffle_xor(warp::ALL, joined, lanes));
        lanes /= 2;
    }
    if thread_x() % 32 == 0 {
        place.set(thread_x() as usize / 32, joined);
    }
    sync_threads();
    join(join(place.get(0), place.get(1)), join(place.get(2), place.get(3)))
}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn softmax(x: *const f32, y: *mut f32, rows: u32, columns: u32) {
    let (columns, row, thread) = (columns as usize, block_x() as usize, thread_x() as usize);
    let all = rows as usize * columns;
    // SAFETY: the launch passes two matrices of that shape, with a block of 128 threads for each row.
    let (x, mut y) = unsafe { (Slice::new(x, all), DisjointSlice::new(y, all)) };
    // A tile of 1 × 512: four numbers in each thread. What the row does not have is 0.
    let tile: [f32; 4] = core::array::from_fn(|c| {
        let column = c * 128 + thread;
        if column < columns { x[row * columns + column] } else { 0.0 }
    });
    let most = of_block(tile.into_iter().fold(f32::MIN, f32::max), shared!(MOSTS: [f32; 4]), f32::max);
    let exps = tile.map(|x| ((x - most) * core::f32::consts::LOG2_E).exp2_approx());
    let sum = of_block(exps.into_iter().sum(), shared!(SUMS: [f32; 4]), |a, b| a + b);
    for c in 0..4 {
        if c * 128 + thread < columns {
            // SAFETY: of this block's row, and each thread has columns of its own.
            unsafe { *y.own_at(row * columns + c * 128 + thread) = exps[c] / sum };
        }
    }
}"#;

/// What may be wrong with a softmax on tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowFault {
    /// What a load puts where the matrix has no number.
    LoadedPadding,
    /// A reduction over columns where rows were meant.
    WrongAxis,
    /// A thread reads a partial sum that is not there yet.
    MissingBarrier,
    /// exp of a large number.
    NoMaximum,
    /// Sums lose digits.
    Rounding,
    /// A store past the end of a row, into the next.
    StoredPadding,
}

/// What the hidden kernel made of rows of equal numbers.
#[derive(Debug, Clone)]
#[must_use = "a report shows itself as the last expression of a cell, without a semicolon"]
pub struct RowReport {
    /// Rows.
    pub rows: usize,
    /// Numbers in each.
    pub columns: usize,
    /// Each of them.
    pub value: f32,
    /// The first result of each row, and their sum.
    pub results: Vec<(f32, f64)>,
    /// Whether all results of a row are the same number.
    pub alike: bool,
}

/// Launches the hidden kernel in the simulator on rows of equal numbers. Its tile is 1 × 512.
///
/// # Errors
/// [`Error::Invalid`] for rows of more than 64 numbers, for none, and for a value that is not finite; those of [`Gpu::compile`].
pub fn row_report(rows: usize, columns: usize, value: f32) -> Result<RowReport> {
    if !(1..=16).contains(&rows) || !(1..=MOST).contains(&columns) || !value.is_finite() {
        return Err(Error::invalid(
            format!("{rows} rows of {columns} numbers, all {value}"),
            format!("ask for 1 to 16 rows of 1 to {MOST} numbers; what longer rows give can be worked out"),
        ));
    }
    let gpu = Gpu::simulated()?;
    let kernel = gpu.compile(Source::rust(SOURCE))?.kernel("softmax")?;
    let (x, mut y) = (gpu.to_device(&vec![value; rows * columns])?, gpu.poison::<f32>(rows * columns)?);
    kernel.launch(LaunchConfig::new(rows as u32, 128), (&x, &mut y, rows as u32, columns as u32))?;
    let y = y.to_host()?;
    let results = y.chunks(columns).map(|row| (row[0], row.iter().map(|&y| f64::from(y)).sum())).collect();
    let alike = y.chunks(columns).all(|row| row.iter().all(|&y| y == row[0]));
    Ok(RowReport { rows, columns, value, results, alike })
}

/// Checks a diagnosis: what is wrong, and what the results of a row of 300 numbers, all −2, add up to.
pub fn diagnose_rows(diagnosis: Option<(RowFault, f64)>) -> Verdict {
    let (n, value) = ASKED;
    let own = n * value.exp();
    let right = own / (own + (TILE - n));
    let slips = [
        (1.0, "that is what a right softmax gives"),
        (n / TILE, "that would be so for a row of zeros: how large are exp(−2) and exp(0)?"),
        (1.0 - right, "that is the share of what does not belong to the row"),
        (
            n / (n + (TILE - n) * (-value).exp().recip()),
            "which of the two is the larger exp: that of −2, or that of 0?",
        ),
    ];
    let start = "what stands in the tile beside the row's own numbers, how many of these are there, and what is the exp of each?";
    let none =
        "ask for reports that differ in one thing: the rows, their length, the value. On what does the sum depend?";
    diagnosed("diagnose_rows", diagnosis, none, against, right * 0.995..=right * 1.005, &slips, start)
}

/// What speaks for an innocent suspect.
fn against(named: RowFault) -> Check {
    let what = match named {
        RowFault::LoadedPadding => return Ok(()),
        RowFault::WrongAxis => {
            let (one, many) = (row_report(1, 32, 1.0)?.results[0].1, row_report(16, 32, 1.0)?.results[0].1);
            format!("the sum of a row's results is {one:.4} with 1 row and {many:.4} with 16: other rows do not count")
        }
        RowFault::MissingBarrier => {
            "the simulator looks for races in every launch, and found none; two runs give the same bits".to_string()
        }
        RowFault::NoMaximum => {
            let large = row_report(1, 32, 1000.0)?;
            format!("a row of 1000s gives {}, where exp(1000) would be infinite", large.results[0].0)
        }
        RowFault::Rounding => {
            let sum = row_report(1, 32, 0.0)?.results[0].1;
            format!("32 equal numbers give results that add up to {sum:.4}: 32 additions of f32 lose about a millionth")
        }
        RowFault::StoredPadding => {
            let rows = row_report(16, 33, 1.0)?;
            let alike = rows.alike && rows.results.iter().all(|one| *one == rows.results[0]);
            format!("16 rows of 33: all rows alike is {alike}, so none has written into the next")
        }
    };
    wrong(what, "with which values is the sum nearly 1, and with which is it far from it?")
}

/// The hidden source, once the diagnosis is right.
pub fn revealed_rows(diagnosis: Option<(RowFault, f64)>) -> &'static str {
    diagnose_rows(diagnosis).reveals(SOURCE)
}

gpulab::show_as_text!(RowReport);

impl fmt::Display for RowReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, sum) = self.results[0];
        let alike = if self.alike { "alike" } else { "not alike" };
        writeln!(
            f,
            "{:>2} rows of {:>2} numbers, all {:>5}: results {alike}, the first one {first:.6}; a row of them adds up to {sum:.4}",
            self.rows, self.columns, self.value
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counts_what_is_not_there() {
        for (columns, value) in [(64, 0.0), (40, -2.0), (64, 3.0), (1, 1.0)] {
            let own = columns as f64 * f64::from(value).exp();
            let exact = own / (own + TILE - columns as f64);
            let sum = row_report(2, columns, value).unwrap().results[1].1;
            assert!((sum / exact - 1.0).abs() < 1e-4, "{columns} of {value}: {sum} for {exact}");
        }
        assert!(
            row_report(1, 65, 0.0).is_err() && row_report(0, 1, 0.0).is_err() && row_report(1, 1, f32::NAN).is_err()
        );
        let text = row_report(1, 40, 1.0).unwrap().to_string();
        assert!(!text.contains("kernel.rs") && text.contains("adds up to"), "{text}");
    }

    #[test]
    fn only_the_right_diagnosis_reveals() {
        for right in [0.1607, 0.16074, 0.161] {
            let right = Some((RowFault::LoadedPadding, right));
            assert!(diagnose_rows(right).passed(), "{}", diagnose_rows(right).text());
            assert_eq!(revealed_rows(right), SOURCE);
        }
        for (wrong, said) in [
            (None, "no diagnosis yet"),
            (Some((RowFault::WrongAxis, 0.1607)), "with 1 row and"),
            (Some((RowFault::MissingBarrier, 0.1607)), "looks for races"),
            (Some((RowFault::NoMaximum, 0.1607)), "a row of 1000s gives"),
            (Some((RowFault::Rounding, 0.1607)), "lose about a millionth"),
            (Some((RowFault::StoredPadding, 0.1607)), "alike is true"),
            (Some((RowFault::LoadedPadding, 1.0)), "a right softmax"),
            (Some((RowFault::LoadedPadding, 0.5859)), "a row of zeros"),
            (Some((RowFault::LoadedPadding, 0.8393)), "does not belong"),
            (Some((RowFault::LoadedPadding, 0.3)), "what stands in the tile"),
            (Some((RowFault::LoadedPadding, f64::NAN)), "is no answer"),
            (Some((RowFault::LoadedPadding, f64::INFINITY)), "is no answer"),
        ] {
            let text = diagnose_rows(wrong).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{wrong:?}: {text}");
            assert!(
                !text.contains("column < columns") && revealed_rows(wrong).starts_with("The source shows"),
                "{text}"
            );
        }
    }
}
