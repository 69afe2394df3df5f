//! A product with a quantized matrix that is right for some matrices and wrong for others. Its source stays hidden until its mistake
//! is named.

use super::packed;
use crate::check::Verdict;
use crate::check::on_paper::diagnosed;
use crate::check::verdict::{Check, wrong};
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use gpulab::launch::LaunchConfig;
use gpulab::measurement::figures;
use std::fmt;

/// Weights that share a scale.
const GROUP: usize = 64;
/// The matrix that the question asks about: so many rows, so many groups in each.
const ASKED: (usize, usize) = (33, 9);
/// Larger ones are for thinking.
const MOST: usize = 8;

/// The scales lie row after row, a row's groups beside each other.
const SOURCE: &str = "extern \"C\" __global__ void matvec(const unsigned *codes, const float *scales, const float *x, float *y, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) { return; }
    float sum = 0.0f;
    for (int c = 0; c < columns; ++c) {
        int code = (int)(codes[(row * columns + c) / 8] >> c % 8 * 4 & 15) - 8;
        // The scales of all rows for one group, then those for the next.
        sum += scales[c / 64 * rows + row] * code * x[c];
    }
    y[row] = sum;
}";

/// What may be wrong with a product of packed weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleFault {
    /// The codes of a word are taken in another order.
    CodeOrder,
    /// Codes below 0 are taken for large ones.
    SignLost,
    /// A scale is used for more weights than share it.
    GroupTooLong,
    /// The last group of a row is left out.
    LastGroupMissing,
    /// Scales are read as if they lay in another order.
    ScalesTransposed,
    /// Sums lose digits.
    Rounding,
}

/// What a report's scales, or its codes and inputs, are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variation {
    /// All the same.
    Same,
    /// The same within a row.
    ByRow,
    /// All different.
    Different,
}

/// What the hidden kernel made of a small matrix.
#[derive(Debug, Clone)]
#[must_use = "a report shows itself as the last expression of a cell, without a semicolon"]
pub struct ScaleReport {
    /// Rows.
    pub rows: usize,
    /// Groups of 64 in each.
    pub groups: usize,
    /// What the scales are.
    pub scales: Variation,
    /// What codes and inputs are.
    pub codes: Variation,
    /// Of each row: the kernel's result, and the right one.
    pub results: Vec<(f32, f64)>,
}

/// Launches the hidden kernel in the simulator on a matrix of so many rows, with so many groups of 64 weights in each.
///
/// # Errors
/// [`Error::Invalid`] for none, or more than 8 of either; those of [`Gpu::compile`].
pub fn scale_report(rows: usize, groups: usize, scales: Variation, codes: Variation) -> Result<ScaleReport> {
    if !(1..=MOST).contains(&rows) || !(1..=MOST).contains(&groups) {
        return Err(Error::invalid(
            format!("{rows} rows of {groups} groups"),
            format!("ask for 1 to {MOST} of each; what larger matrices give can be worked out"),
        ));
    }
    let columns = groups * GROUP;
    let of = |pattern, row, at: usize| match pattern {
        Variation::Same => 3,
        Variation::ByRow => row % 7 + 1,
        Variation::Different => at + 1,
    };
    let scale = |at: usize| of(scales, at / groups, at) as f32 / 8.0;
    let all_scales: Vec<f32> = (0..rows * groups).map(scale).collect();
    let random: Vec<i8> = cpu::random_f32(rows * columns, 1).iter().map(|x| (x * 7.9).floor() as i8).collect();
    let code = |at: usize| match codes {
        Variation::Different => random[at],
        pattern => of(pattern, at / columns, 0) as i8,
    };
    let all_codes: Vec<i8> = (0..rows * columns).map(code).collect();
    let x: Vec<f32> = match codes {
        Variation::Different => cpu::random_f32(columns, 2).iter().map(|x| (8.0 * x).round() / 8.0).collect(),
        _ => vec![1.0; columns],
    };
    let gpu = Gpu::simulated()?;
    let (on_codes, on_scales, on_x) =
        (gpu.to_device(&packed(&all_codes))?, gpu.to_device(&all_scales)?, gpu.to_device(&x)?);
    let mut y = gpu.poison::<f32>(rows)?;
    let kernel = gpu.compile(SOURCE)?.kernel("matvec")?;
    kernel.launch(LaunchConfig::new(1, 32), (&on_codes, &on_scales, &on_x, &mut y, rows as i32, columns as i32))?;
    let term = |at: usize| f64::from(all_codes[at]) * f64::from(all_scales[at / GROUP]) * f64::from(x[at % columns]);
    let right = |row: usize| (row * columns..(row + 1) * columns).map(term).sum();
    let results = y.to_host()?.into_iter().enumerate().map(|(row, y)| (y, right(row))).collect();
    Ok(ScaleReport { rows, groups, scales, codes, results })
}

/// Checks a diagnosis: what is wrong, and how many groups of a matrix of 33 rows with 9 groups each meet their own scale.
pub fn diagnose_scales(diagnosis: Option<(ScaleFault, f64)>) -> Verdict {
    let (rows, groups) = ASKED;
    let own = (0..rows * groups).filter(|at| at % groups * rows + at / groups == *at).count() as f64;
    let all = (rows * groups) as f64;
    let slips = [
        (2.0, "the first and the last one do in each matrix. Are they the only ones in this?"),
        (rows as f64, "one in each row? Write down which scale is taken for row 1, group 0"),
        (all, "then all results would be right"),
        (all - own, "that is how many meet another group's scale"),
        (1.0, "the first group does. Which scale is taken for the last one of the last row?"),
    ];
    let start = "write down the place of the scale that is taken, and of the one that belongs there, for row r and group g: when are they equal?";
    let none = "ask for reports that differ in one thing: rows, groups, scales, codes. Which of them must not be the same for a row to be wrong?";
    diagnosed("diagnose_scales", diagnosis, none, against, own..=own, &slips, start)
}

/// What speaks for an innocent suspect.
fn against(named: ScaleFault) -> Check {
    let wrong_rows = |report: &ScaleReport| report.results.iter().filter(|one| !ScaleReport::fits(one)).count();
    let what = match named {
        ScaleFault::ScalesTransposed => return Ok(()),
        ScaleFault::CodeOrder | ScaleFault::SignLost => {
            let report = scale_report(8, 4, Variation::Same, Variation::Different)?;
            format!(
                "with random codes and inputs and one scale for all, {} of 8 rows are wrong: each code arrives in its place, with its sign",
                wrong_rows(&report)
            )
        }
        ScaleFault::GroupTooLong => {
            let report = scale_report(1, 8, Variation::Different, Variation::Different)?;
            format!(
                "one row with 8 groups, each with another scale: {} rows are wrong, so the scale changes where it should",
                wrong_rows(&report)
            )
        }
        ScaleFault::LastGroupMissing => {
            let report = scale_report(8, 8, Variation::Same, Variation::Same)?;
            format!(
                "8 rows of 8 groups, all numbers the same: {} rows are wrong, and a group less would be an eighth less",
                wrong_rows(&report)
            )
        }
        ScaleFault::Rounding => {
            let off = scale_report(4, 3, Variation::ByRow, Variation::Same)?;
            let far = off.results.iter().map(|(y, right)| (f64::from(*y) / right - 1.0).abs()).fold(0.0, f64::max);
            format!("with whole numbers, which f32 adds up exactly, a row is off by {} percent", figures(100.0 * far))
        }
    };
    wrong(what, "with which scales are all rows right, whatever the codes are?")
}

/// The hidden source, once the diagnosis is right.
pub fn revealed_scales(diagnosis: Option<(ScaleFault, f64)>) -> &'static str {
    diagnose_scales(diagnosis).reveals(SOURCE)
}

gpulab::show_as_text!(ScaleReport);

impl ScaleReport {
    fn fits((y, right): &(f32, f64)) -> bool {
        (f64::from(*y) - right).abs() <= 1e-5 * right.abs().max(1.0)
    }
}

impl fmt::Display for ScaleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let right: Vec<usize> = (0..self.rows).filter(|row| ScaleReport::fits(&self.results[*row])).collect();
        let said = match right[..] {
            [] => "no row is right".to_string(),
            _ if right.len() == self.rows => "all right".to_string(),
            [one] => format!("of rows 0 to {}, row {one} is right", self.rows - 1),
            _ => {
                let names: Vec<String> = right.iter().map(ToString::to_string).collect();
                format!("of rows 0 to {}, rows {} are right", self.rows - 1, names.join(", "))
            }
        };
        let (rows, groups) = (count(self.rows, "row"), count(self.groups, "group"));
        writeln!(f, "{rows} of {groups}, scales {:?}, codes {:?}: {said}", self.scales, self.codes)
    }
}

/// `1 row`, `3 rows`.
fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_tell_suspects_apart_and_hide_the_source() {
        let right = |rows, groups, scales, codes| {
            let report = scale_report(rows, groups, scales, codes).unwrap();
            assert!(!report.to_string().contains("scales["), "{report}");
            report.results.iter().filter(|one| ScaleReport::fits(one)).count()
        };
        use Variation::{ByRow, Different, Same};
        assert_eq!(right(8, 4, Same, Different), 8);
        assert_eq!(right(1, 8, Different, Different), 1);
        assert_eq!(right(8, 1, Different, Different), 8);
        assert!(right(8, 4, ByRow, Same) < 8 && right(8, 4, Different, Different) < 4);
        assert!(scale_report(9, 1, Same, Same).is_err() && scale_report(1, 0, Same, Same).is_err());
    }

    #[test]
    fn only_the_reports_convict() {
        let right = Some((ScaleFault::ScalesTransposed, 9.0));
        assert!(diagnose_scales(right).passed(), "{}", diagnose_scales(right).text());
        assert_eq!(revealed_scales(right), SOURCE);
        use ScaleFault::{CodeOrder, GroupTooLong, LastGroupMissing, Rounding, ScalesTransposed, SignLost};
        for (wrong, said) in [
            (None, "no diagnosis yet"),
            (Some((CodeOrder, 9.0)), "0 of 8 rows are wrong"),
            (Some((SignLost, 9.0)), "0 of 8 rows are wrong"),
            (Some((GroupTooLong, 9.0)), "0 rows are wrong, so the scale changes"),
            (Some((LastGroupMissing, 9.0)), "0 rows are wrong, and a group less"),
            (Some((Rounding, 9.0)), "adds up exactly"),
            (Some((ScalesTransposed, 2.0)), "Are they the only ones"),
            (Some((ScalesTransposed, 33.0)), "row 1, group 0"),
            (Some((ScalesTransposed, 297.0)), "all results would be right"),
            (Some((ScalesTransposed, 288.0)), "another group's scale"),
            (Some((ScalesTransposed, 5.0)), "when are they equal"),
            (Some((ScalesTransposed, f64::NAN)), "is no answer"),
        ] {
            let text = diagnose_scales(wrong).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{wrong:?}: {text}");
            assert!(revealed_scales(wrong).starts_with("The source shows itself"), "{text}");
        }
    }
}
