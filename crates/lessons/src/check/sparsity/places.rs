//! A product with a matrix in 2:4 that is right for some rows and wrong for others. Its source stays hidden until its mistake is
//! named.

use super::reference;
use crate::check::Verdict;
use crate::check::on_paper::{diagnosed, within};
use crate::check::verdict::{Check, wrong};
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use gpulab::launch::LaunchConfig;
use std::fmt;

/// Columns of a report's row, and of half of it: the values of so many have their places in one word.
const COLUMNS: usize = 64;
const HALF: usize = COLUMNS / 2;
/// Of the groups whose two places are any of six pairs, the percentage that has the same pair as another one.
const SAME_PAIR: f64 = 100.0 / 6.0;

/// Each thread multiplies a row, and takes the places of the other 32 columns of each 64.
const SOURCE: &str = "extern \"C\" __global__ void two_four(const float *values, const unsigned *places, const float *x, float *y, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) {
        float sum = 0.0f;
        for (int i = 0; i < columns / 2; ++i) {
            // A word has the places of 16 values, which are 32 columns. This is the other word of two.
            unsigned word = places[row * (columns / 32) + (i / 16 ^ 1)];
            sum += values[row * (columns / 2) + i] * x[i / 2 * 4 + (word >> i % 16 * 2 & 3)];
        }
        y[row] = sum;
    }
}";

/// What may be wrong with a product of a matrix in 2:4 and a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlacesFault {
    /// The two values of a group change places.
    SwappedPair,
    /// The places in a word are read from the highest bits down.
    HighestFirst,
    /// Groups with fewer than two numbers are wrong.
    FewerThanTwo,
    /// Places are taken from the word of 32 other columns.
    OtherWord,
    /// The last group of a row is left out.
    LastGroup,
    /// Values are rounded to bf16.
    Rounded,
}

/// What the hidden kernel made of a row.
#[derive(Debug, Clone)]
#[must_use = "a report shows itself as the last expression of a cell, without a semicolon"]
pub struct PlacesReport {
    /// The kernel's result.
    pub y: f32,
    /// The right one.
    pub right: f32,
    /// Whether they differ by no more than rounding.
    pub is_right: bool,
}

/// Launches the hidden kernel in the simulator on a row in 2:4 of up to 64 columns (zeros fill it up), with an x of 1, 2, 3, … 64: a
/// single 1 in a row shows which column it was multiplied with.
///
/// # Errors
/// [`Error::Invalid`] for more columns, for a group of four with more than two numbers that are not 0, and for numbers that are
/// not finite; those of [`Gpu::compile`].
pub fn places_report(row: &[f32]) -> Result<PlacesReport> {
    let refused = |what: String, fix: &str| Err(Error::invalid(what, fix.to_string()));
    if row.is_empty() || row.len() > COLUMNS || row.iter().any(|x| !x.is_finite()) {
        return refused(
            format!("a row of {} numbers", row.len()),
            "give 1 to 64 finite numbers; zeros fill the row up",
        );
    }
    if let Some(group) = row.chunks(4).position(|four| four.iter().filter(|x| **x != 0.0).count() > 2) {
        return refused(
            format!("group {group} (columns {} and on) has more than two numbers that are not 0", 4 * group),
            "set the others of each group of four to 0",
        );
    }
    let mut dense = row.to_vec();
    dense.resize(COLUMNS, 0.0);
    let (values, places) = reference(&dense);
    let x: Vec<f32> = (1..=COLUMNS).map(|x| x as f32).collect();
    let gpu = Gpu::simulated()?;
    let (on_values, on_places, on_x) = (gpu.to_device(&values)?, gpu.to_device(&places)?, gpu.to_device(&x)?);
    let mut y = gpu.poison::<f32>(1)?;
    let kernel = gpu.compile(SOURCE)?.kernel("two_four")?;
    let args = (&on_values, &on_places, &on_x, &mut y, 1_i32, COLUMNS as i32);
    kernel.launch(LaunchConfig::for_elements(1, 32), args)?;
    let y = y.to_host()?[0];
    let terms = || dense.iter().zip(&x).map(|(value, x)| f64::from(*value) * f64::from(*x));
    let (right, most): (f64, f64) = (terms().sum(), terms().map(f64::abs).sum());
    Ok(PlacesReport { y, right: right as f32, is_right: (f64::from(y) - right).abs() <= 1e-5 * most })
}

/// Checks a diagnosis: what is wrong, and which percentage of the groups is right where each group's pair of places is any of the
/// six, equally likely and independent of the others.
pub fn diagnose_places(diagnosis: Option<(PlacesFault, f64)>) -> Verdict {
    let slips = [
        (100.0 - SAME_PAIR, "that is how many are wrong"),
        (SAME_PAIR / 100.0, "in percent, please"),
        (
            100.0 / 16.0,
            "two places of four each, in any order and equal ones too? The two of a group differ and ascend",
        ),
        (100.0 / 12.0, "the two places of a group ascend: how many pairs are left?"),
        (25.0, "that would be one place of four; a group has two"),
        (100.0 * 14.0 / 36.0, "so often the first place of a pair is right: the question asks for groups with both"),
        (50.0, "how many pairs of places can a group have, and how many of them are its own?"),
    ];
    let start = "a group gets the places of another group, far away: how likely are they its own?";
    let none = "ask for reports with a single 1: which column is it multiplied with? Then put one more number into the row, far from it";
    diagnosed("diagnose_places", diagnosis, none, against, within(SAME_PAIR, 0.01), &slips, start)
}

/// What speaks for an innocent suspect.
fn against(named: PlacesFault) -> Check {
    // All of these rows have the same places in both halves.
    let groups = |group: fn(usize) -> [f32; 4]| (0..HALF / 4).flat_map(group).collect::<Vec<f32>>().repeat(2);
    let (what, row) = match named {
        PlacesFault::OtherWord => return Ok(()),
        PlacesFault::SwappedPair => ("1, 0, 5, 0 in each group", groups(|_| [1.0, 0.0, 5.0, 0.0])),
        PlacesFault::HighestFirst => (
            "0, 1, 2, 0 in the first group and 3, 0, 0, 4 in the others of each 32 columns",
            groups(|group| if group == 0 { [0.0, 1.0, 2.0, 0.0] } else { [3.0, 0.0, 0.0, 4.0] }),
        ),
        PlacesFault::FewerThanTwo => ("0, 1, 0, 0 in each group", groups(|_| [0.0, 1.0, 0.0, 0.0])),
        PlacesFault::LastGroup => (
            "0, 1, 0, 2 in the last group of each 32 columns, else zeros",
            groups(|group| if group == HALF / 4 - 1 { [0.0, 1.0, 0.0, 2.0] } else { [0.0; 4] }),
        ),
        PlacesFault::Rounded => ("1.001, 0, 0, 1.003 in each group", groups(|_| [1.001, 0.0, 0.0, 1.003])),
    };
    let report = places_report(&row)?;
    let said = if report.is_right { "right" } else { "wrong, for another reason" };
    wrong(
        format!("a row with {what}: {} is {said}", report.y),
        "put a number into columns 0 to 31 and leave it as it is. Which change in columns 32 to 63 makes the row wrong, and which does not?",
    )
}

/// The hidden source, once the diagnosis is right.
pub fn revealed_places(diagnosis: Option<(PlacesFault, f64)>) -> &'static str {
    diagnose_places(diagnosis).reveals(SOURCE)
}

impl PlacesReport {
    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        print!("EVCXR_BEGIN_CONTENT text/plain\n{self}\nEVCXR_END_CONTENT\n");
    }
}

impl fmt::Display for PlacesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_right {
            true => write!(f, "{}, right", self.y),
            false => write!(f, "{}, it should be {}", self.y, self.right),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of zeros with these numbers.
    fn row(numbers: &[(usize, f32)]) -> Vec<f32> {
        let mut row = vec![0.0; COLUMNS];
        numbers.iter().for_each(|(at, number)| row[*at] = *number);
        row
    }

    #[test]
    fn reports_tell_suspects_apart_and_hide_the_source() {
        let right = |numbers: &[(usize, f32)]| {
            let report = places_report(&row(numbers)).unwrap();
            assert!(!report.to_string().contains("places"), "{report}");
            assert_eq!(report.is_right, !report.to_string().contains("it should be"));
            report.is_right
        };
        assert!(right(&[]));
        assert!(!right(&[(0, 1.0)]));
        assert!(right(&[(0, 1.0), (32, 2.0)]));
        assert!(!right(&[(0, 1.0), (33, 2.0)]));
        assert!(right(&[(1, 1.0), (2, 7.0), (33, 3.0), (34, 1.0)]));
        // In the same half it helps nobody.
        assert!(!right(&[(0, 1.0), (4, 2.0)]));
        for (wrong, said) in [
            (vec![], "a row of 0"),
            (vec![0.0; 65], "a row of 65"),
            (vec![f32::NAN], "a row of 1"),
            (vec![0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0], "group 1 (columns 4 and on)"),
        ] {
            let text = places_report(&wrong).unwrap_err().to_string();
            assert!(text.contains(said) && text.contains("\nnext: "), "{text}");
        }
    }

    #[test]
    fn only_the_reports_convict() {
        let right = Some((PlacesFault::OtherWord, 16.7));
        assert!(diagnose_places(right).passed(), "{}", diagnose_places(right).text());
        assert_eq!(revealed_places(right), SOURCE);
        use PlacesFault::{FewerThanTwo, HighestFirst, LastGroup, OtherWord, Rounded, SwappedPair};
        for (wrong, said) in [
            (None, "no diagnosis yet"),
            (Some((SwappedPair, 16.7)), "1, 0, 5, 0 in each group"),
            (Some((HighestFirst, 16.7)), "0, 1, 2, 0 in the first group"),
            (Some((FewerThanTwo, 16.7)), "0, 1, 0, 0 in each group"),
            (Some((LastGroup, 16.7)), "in the last group"),
            (Some((Rounded, 16.7)), "1.001, 0, 0, 1.003"),
            (Some((OtherWord, 83.3)), "how many are wrong"),
            (Some((OtherWord, 0.1667)), "in percent"),
            (Some((OtherWord, 6.25)), "differ and ascend"),
            (Some((OtherWord, 8.33)), "how many pairs are left"),
            (Some((OtherWord, 25.0)), "a group has two"),
            (Some((OtherWord, 38.9)), "asks for groups with both"),
            (Some((OtherWord, 50.0)), "how many pairs of places"),
            (Some((OtherWord, 12.0)), "how likely are they its own"),
            // Cheats: an answer that passes any comparison, and one that passes none.
            (Some((OtherWord, f64::INFINITY)), "is no answer"),
            (Some((OtherWord, f64::NAN)), "is no answer"),
        ] {
            let text = diagnose_places(wrong).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{wrong:?}: {text}");
            assert!(!text.contains("another reason"), "{text}");
            assert!(revealed_places(wrong).starts_with("The source shows itself"), "{text}");
        }
    }
}
