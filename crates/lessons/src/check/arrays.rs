//! An exercise of lesson 15a: a column normalised over the rows that a mask keeps, in operations on arrays.

use super::Verdict;
use super::verdict::{Check, ask, none_told, timed, told};
use gpulab::cpu;
use gpulab::error::Result;

/// Asks array code for a column, weights, and the least and the largest number that is believed. It returns a number for each row
/// of the column, and the slopes of their weighted sum by each row: where there are none, the numbers do not come from the column
/// by operations on arrays.
pub type MaskedNormalise = fn(&[f32], &[f32], f32, f32) -> Result<(Vec<f32>, Option<Vec<f32>>)>;

/// What a number may be away from the one in f64.
const TOLERANCE: f64 = 2e-3;

/// Checks array code that gives the rows of a column between two limits, both included, mean 0 and deviation 1, and makes all
/// other rows 0, whatever they hold. Where no row lies between the limits, or all that do are equal, every row becomes 0.
pub fn masked_normalise(answer: MaskedNormalise) -> Verdict {
    timed("masked_normalise", move || {
        for column in Column::all() {
            column.is_normalised(answer)?;
        }
        by_operations(answer)
    })
}

struct Column {
    case: String,
    x: Vec<f32>,
    limits: (f32, f32),
}

impl Column {
    fn all() -> Vec<Column> {
        let metres = |n: usize| -> Vec<f32> {
            cpu::random_f32(n, n as u64).into_iter().map(|x| ((x + 1.0) * 6000.0).floor()).collect()
        };
        let limits = (100.0, 10_000.0);
        let column = |case: &str, x: Vec<f32>| Column { case: case.to_string(), x, limits };
        let mut all = vec![column("eight rows", vec![500.0, 20.0, 3000.0, 12_000.0, 7000.0, 100.0, 10_000.0, 50.0])];
        all.extend([31, 33, 1000, 4099].map(|n| column(&format!("{n} random rows"), metres(n))));
        // Here 0 is a number to be believed, and no mark of a row that is not.
        all.push(Column { case: "limits -0.5 and 0.5".to_string(), x: cpu::random_f32(1000, 1), limits: (-0.5, 0.5) });
        let mut broken = metres(33);
        for (at, x) in [(3, f32::NAN), (8, f32::INFINITY), (13, f32::NEG_INFINITY), (21, 1e30)] {
            broken[at] = x;
        }
        all.push(column("33 rows, of which some hold NaN, infinities or 1e30", broken));
        // Their sum is a whole number that f32 has; that of their squares is far from one.
        let near = |i: usize| if i % 10 == 9 { 20.0 } else { 8190.0 + (i * i % 7) as f32 };
        all.push(column("rows near 8192 that differ by a few metres", (0..500).map(near).collect()));
        let equal = |i: usize| if i.is_multiple_of(3) { 20.0 } else { 3000.0 };
        all.push(column("believed rows that are all equal", (0..33).map(equal).collect()));
        all.push(column("a single row", vec![3000.0]));
        all.push(column("no row to be believed", vec![50.0; 33]));
        all
    }

    fn is_kept(&self, x: f64) -> bool {
        (f64::from(self.limits.0)..=f64::from(self.limits.1)).contains(&x)
    }

    fn rows(&self) -> Vec<f64> {
        self.x.iter().map(|&x| f64::from(x)).collect()
    }

    fn kept(&self) -> Vec<f64> {
        self.rows().into_iter().filter(|&x| self.is_kept(x)).collect()
    }

    fn exact(&self) -> Vec<f64> {
        let (mean, deviation) = moments(&self.kept());
        let one = |x: f64| if self.is_kept(x) && deviation > 0.0 { (x - mean) / deviation } else { 0.0 };
        self.rows().into_iter().map(one).collect()
    }

    fn ask(&self, answer: MaskedNormalise, weights: &[f32]) -> Check<(Vec<f32>, Option<Vec<f32>>)> {
        match ask(&self.case, || answer(&self.x, weights, self.limits.0, self.limits.1))? {
            Ok(given) if given.0.len() == self.x.len() => Ok(given),
            Ok(given) => told(
                format!("{}: {} numbers come back for {} rows", self.case, given.0.len(), self.x.len()),
                "rows that are not believed stay in their places, and become 0",
                "each operation keeps the shape of `x`; a mean has one number and is broadcast",
            ),
            Err(error) => told(
                format!("{}: {error}", self.case),
                "an operation was refused, or the result is no column of f32 with a place for each row of `x`",
                "compare shapes and dtypes: a mask is u8, a mean has one number and needs `broadcast_…`",
            ),
        }
    }

    fn is_normalised(&self, answer: MaskedNormalise) -> Check {
        let (given, _) = self.ask(answer, &vec![1.0; self.x.len()])?;
        let exact = self.exact();
        let wrong = |at: &usize| !close(given[*at], exact[*at]);
        let of_kept = |kept: bool| (0..given.len()).filter(move |&at| self.is_kept(f64::from(self.x[at])) == kept);
        // A believed row first: what is wrong there says more.
        let Some(at) = of_kept(true).find(wrong).or_else(|| of_kept(false).find(wrong)) else {
            return Ok(());
        };
        let believed = if self.is_kept(f64::from(self.x[at])) { "believed" } else { "not believed" };
        let what = format!(
            "{}: row {at} holds {}, which is {believed}; you give {}, and it should be {:.4}",
            self.case, self.x[at], given[at], exact[at]
        );
        let (meaning, idea) = self.hints(&given, at);
        told(what, meaning, idea)
    }

    fn hints(&self, given: &[f32], at: usize) -> (&'static str, &'static str) {
        let (kept, (mean, deviation)) = (self.kept(), moments(&self.kept()));
        let finite = self.x.iter().all(|x| x.is_finite());
        match () {
            () if !given[at].is_finite() && kept.is_empty() => (
                "0 ÷ 0: no row is believed, so a sum of nothing is divided by a count of 0",
                "a divisor of at least 1 changes no other case: `maximum` takes a number, too",
            ),
            () if !given[at].is_finite() && deviation == 0.0 => (
                "0 ÷ 0: the rows that are believed are equal, so each is 0 away from the mean, and the deviation is 0",
                "any divisor but 0 gives the 0 that is asked for: which operation keeps one above 0?",
            ),
            () if !given[at].is_finite() && !finite => (
                "what is 0 times NaN, and 0 times infinity? A row that is multiplied by 0 is not out of the sum",
                "an operation that chooses looks at no number that it does not take: `mask.where_cond(&a, &b)`",
            ),
            () if !self.is_kept(f64::from(self.x[at])) => (
                "the believed rows are right; a row that is not believed becomes 0, whatever it holds",
                "which of your arrays has 0 there, and what happens to it afterwards?",
            ),
            () if mean > 500.0 * deviation && deviation > 0.0 && at_most_rounded(given) => (
                "the mean of the squares and the square of the mean are nearly equal here: their difference is mostly rounding",
                "subtract the mean first, and square what is left",
            ),
            () => self.mistake(given).unwrap_or((
                "mean and deviation are those of the believed rows alone, which are counted",
                "take the eight rows: print count, mean and deviation, and work them out by hand",
            )),
        }
    }

    /// The mistake that gives these numbers, where it is a known one.
    fn mistake(&self, given: &[f32]) -> Option<(&'static str, &'static str)> {
        let (rows, kept) = (self.rows(), self.kept());
        let (n, k, sum) = (rows.len() as f64, kept.len() as f64, kept.iter().sum::<f64>());
        let (mean, deviation) = moments(&kept);
        let (mean_of_all, deviation_of_all) = moments(&rows);
        let inside: Vec<f64> =
            (kept.iter().copied()).filter(|&x| x > f64::from(self.limits.0) && x < f64::from(self.limits.1)).collect();
        let (mean_inside, deviation_inside) = moments(&inside);
        let squares = |rows: &[f64], mean: f64| rows.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        // Subtracted, divided by, and what that means.
        let known = [
            (
                mean_of_all,
                deviation_of_all,
                "that is normalised by mean and deviation of all rows, also of those that are not believed",
                "a mean of some rows is the sum of what they hold, divided by how many they are",
            ),
            (
                sum / n,
                (squares(&kept, sum / n) / n).sqrt(),
                "the sums are those of the believed rows, and are divided by the number of all rows",
                "`mean_all` divides by the length of the array: what does a mask, as f32, add up to?",
            ),
            (
                mean,
                (squares(&kept, mean) / n).sqrt(),
                "the mean is right; the squares are divided by the number of all rows",
                "`mean_all` divides by the length of the array; the count is that of the mean",
            ),
            (
                mean,
                (squares(&rows, mean) / k).sqrt(),
                "the mean is right; into the deviation go all rows",
                "which rows have a square above 0 when you add up the squares?",
            ),
            (
                mean,
                ((squares(&kept, mean) + (n - k) * mean * mean) / k).sqrt(),
                "the mean is right; rows that were set to 0 count as that far from it in the deviation",
                "0 less the mean is not 0: set the rows to 0 after the subtraction as well",
            ),
            (
                mean,
                deviation.powi(2),
                "that is divided by the variance",
                "the deviation is the root of the mean square",
            ),
            (
                mean,
                (squares(&kept, mean) / (k - 1.0)).sqrt(),
                "that deviation is divided by one row less, as for a sample",
                "`normalise` above divides by the number of rows: so does this",
            ),
            (
                mean,
                1.0,
                "the mean is right; nothing is divided by the deviation",
                "the deviation shall be 1 afterwards",
            ),
            (
                mean_inside,
                deviation_inside,
                "rows that hold exactly the least or the largest number are believed, too",
                "`gt` and `lt`, or `ge` and `le`?",
            ),
        ];
        let fits = |mean: f64, by: f64| {
            let kept = rows.iter().zip(given).filter(|(x, _)| self.is_kept(**x));
            // At a row that only the limits decide nothing is known.
            let mut sure = kept.filter(|(x, _)| inside.contains(*x));
            sure.all(|(x, &z)| (f64::from(z) - (x - mean) / by).abs() <= TOLERANCE * (1.0 + f64::from(z).abs()))
        };
        let found = known.into_iter().find(|&(mean, by, ..)| by.is_finite() && by > 0.0 && fits(mean, by));
        found.map(|(_, _, meaning, idea)| (meaning, idea))
    }
}

/// Mean and deviation; of nothing 0 and 0.
fn moments(rows: &[f64]) -> (f64, f64) {
    let count = rows.len().max(1) as f64;
    let mean = rows.iter().sum::<f64>() / count;
    (mean, (rows.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count).sqrt())
}

/// Written as `<=`, which is false for NaN.
fn close(given: f32, exact: f64) -> bool {
    (f64::from(given) - exact).abs() <= TOLERANCE
}

/// Whether these may be right numbers but for their divisor: not all alike, and of both signs.
fn at_most_rounded(given: &[f32]) -> bool {
    given.iter().any(|&z| z > 0.0) && given.iter().any(|&z| z < 0.0) || given.iter().any(|z| !z.is_finite())
}

/// A check that the numbers come from the column by operations on arrays all the way: then a weighted sum of them has the slopes
/// of the function, by each row, and no host was asked in between.
fn by_operations(answer: MaskedNormalise) -> Check {
    let column =
        Column { case: "33 rows between -1 and 1".to_string(), x: cpu::random_f32(33, 15), limits: (-0.75, 0.75) };
    let weights = cpu::random_f32(33, 16);
    let (_, slopes) = column.ask(answer, &weights)?;
    let (exact, kept) = (column.exact(), column.kept());
    let (count, deviation) = (kept.len() as f64, moments(&kept).1);
    let is_kept = |at: usize| column.is_kept(f64::from(column.x[at]));
    let mean = |of: &dyn Fn(usize) -> f64| (0..33).filter(|&at| is_kept(at)).map(of).sum::<f64>() / count;
    let weight = |at: usize| f64::from(weights[at]);
    let (mean_weight, mean_product) = (mean(&weight), mean(&|at| weight(at) * exact[at]));
    let slope = |at: usize| (weight(at) - mean_weight - exact[at] * mean_product) / deviation;
    let known: Vec<f64> = (0..33).map(|at| if is_kept(at) { slope(at) } else { 0.0 }).collect();
    let largest = known.iter().fold(0.0, |most: f64, slope| most.max(slope.abs()));
    let slopes = slopes.filter(|slopes| slopes.len() == 33 && slopes.iter().any(|&slope| slope != 0.0));
    let Some(slopes) = slopes else {
        return told(
            "it is right; but its numbers do not come from the column by operations on arrays",
            "numbers that the host computed would have to be copied from the GPU, and back to it",
            "no `to_vec1` and no loop: comparisons, sums and choices of whole columns",
        );
    };
    let differs = known.iter().zip(&slopes).position(|(known, &slope)| {
        let away = (f64::from(slope) - known).abs();
        // Written as `<=`, which is false for NaN.
        let same = away <= 0.01 * largest;
        !same
    });
    none_told(
        differs.map(|at| {
            format!(
                "it is right; but by row {at} the results have the slope {:.3}, where it would be {:.3} if each number on the way \
                 were an array",
                slopes[at], known[at]
            )
        }),
        "a mean, count or deviation was taken to the host and came back as a plain number: there the host waits for the GPU",
        "no `to_scalar`: a tensor with one number can be broadcast",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    type Plain = fn(&[f64], f64, f64) -> Vec<f64>;
    type Ran = Result<(Vec<f32>, Option<Vec<f32>>)>;

    /// A function in f64 as array code would do it: with slopes, here by differences.
    fn by(answer: Plain, column: &[f32], weights: &[f32], low: f32, high: f32) -> Ran {
        let x: Vec<f64> = column.iter().map(|&x| f64::from(x)).collect();
        let run = |x: &[f64]| answer(x, f64::from(low), f64::from(high));
        let sum = |x: &[f64]| run(x).iter().zip(weights).map(|(z, &weight)| z * f64::from(weight)).sum::<f64>();
        let moved = |at: usize, by: f64| {
            let mut x = x.clone();
            x[at] += by;
            sum(&x)
        };
        let slope = |at: usize| ((moved(at, 1e-5) - moved(at, -1e-5)) / 2e-5) as f32;
        let slopes = (x.len() == 33).then(|| (0..33).map(slope).collect());
        Ok((run(&x).into_iter().map(|z| z as f32).collect(), slopes))
    }

    fn mask(x: &[f64], low: f64, high: f64) -> Vec<f64> {
        x.iter().map(|x| f64::from(u8::from(*x >= low && *x <= high))).collect()
    }

    fn chosen(mask: &[f64], x: &[f64]) -> Vec<f64> {
        mask.iter().zip(x).map(|(&keep, &x)| if keep > 0.0 { x } else { 0.0 }).collect()
    }

    fn less(x: &[f64], mean: f64) -> Vec<f64> {
        x.iter().map(|x| x - mean).collect()
    }

    fn sum(x: &[f64]) -> f64 {
        x.iter().sum()
    }

    fn squares(x: &[f64]) -> f64 {
        x.iter().map(|x| x * x).sum()
    }

    fn over(x: &[f64], divisor: f64) -> Vec<f64> {
        x.iter().map(|x| x / divisor).collect()
    }

    /// Choose, subtract, choose, divide.
    fn right(x: &[f64], low: f64, high: f64) -> Vec<f64> {
        let keep = mask(x, low, high);
        let count = sum(&keep).max(1.0);
        let away = chosen(&keep, &less(x, sum(&chosen(&keep, x)) / count));
        over(&away, (squares(&away) / count).sqrt().max(f64::MIN_POSITIVE))
    }

    /// Cleaned first; then multiplied by the mask, which is harmless now.
    fn right_by_weights(x: &[f64], low: f64, high: f64) -> Vec<f64> {
        let keep = mask(x, low, high);
        let (clean, count) = (chosen(&keep, x), sum(&keep).max(1.0));
        let times = |x: &[f64]| x.iter().zip(&keep).map(|(x, keep)| x * keep).collect::<Vec<f64>>();
        let away = times(&less(&clean, sum(&clean) / count));
        over(&away, (squares(&away) / count).sqrt() + 1e-12)
    }

    fn red(verdict: Verdict, said: &str) {
        let text = verdict.text();
        assert!(text.starts_with("NOT YET") && text.contains(said), "`{said}` is not said: {text}");
    }

    #[test]
    fn right_answers_of_two_kinds_pass() {
        for answer in [(|x, c, low, high| by(right, x, c, low, high)) as MaskedNormalise, |x, c, low, high| {
            by(right_by_weights, x, c, low, high)
        }] {
            assert!(masked_normalise(answer).passed(), "{}", masked_normalise(answer).text());
        }
    }

    fn whole(x: &[f64], _: f64, _: f64) -> Vec<f64> {
        let away = less(x, sum(x) / x.len() as f64);
        over(&away, (squares(&away) / x.len() as f64).sqrt())
    }

    fn masked_at_the_end(x: &[f64], low: f64, high: f64) -> Vec<f64> {
        chosen(&mask(x, low, high), &whole(x, low, high))
    }

    /// Of [`right`], with another count, power or choice.
    fn with(x: &[f64], low: f64, high: f64, change: &str) -> Vec<f64> {
        let keep = match change {
            "strict" => x.iter().map(|x| f64::from(u8::from(*x > low && *x < high))).collect(),
            _ => mask(x, low, high),
        };
        let n = x.len() as f64;
        let count = if change == "none" { sum(&keep) } else { sum(&keep).max(1.0) };
        let mean = sum(&chosen(&keep, x)) / if change == "all" { n } else { count };
        let away = match change {
            "unmasked" => less(&chosen(&keep, x), mean),
            "every row" => less(x, mean),
            _ => chosen(&keep, &less(x, mean)),
        };
        let divisor = match change {
            "all" | "squares of all" => n,
            "sample" => (count - 1.0).max(1.0),
            _ => count,
        };
        let variance = squares(&away) / divisor;
        let deviation = match change {
            "variance" => variance.max(f64::MIN_POSITIVE),
            "mean alone" => 1.0,
            "equal" => variance.sqrt(),
            // `max` would take the other number for NaN.
            "none" => variance.sqrt() + 1e-12,
            _ => variance.sqrt().max(f64::MIN_POSITIVE),
        };
        let away = if change == "left" { less(x, mean) } else { chosen(&keep, &away) };
        over(&away, deviation)
    }

    fn multiplied(x: &[f64], low: f64, high: f64) -> Vec<f64> {
        let keep = mask(x, low, high);
        let times = |x: &[f64]| x.iter().zip(&keep).map(|(x, keep)| x * keep).collect::<Vec<f64>>();
        let count = sum(&keep).max(1.0);
        let away = times(&less(x, sum(&times(x)) / count));
        over(&away, (squares(&away) / count).sqrt().max(1e-12))
    }

    /// In f32: the mean of the squares less the square of the mean.
    fn cancelling(x: &[f64], low: f64, high: f64) -> Vec<f64> {
        let keep = mask(x, low, high);
        let (clean, count) = (chosen(&keep, x), sum(&keep).max(1.0) as f32);
        let sum = |of: fn(f32) -> f32| clean.iter().map(|&x| of(x as f32)).sum::<f32>();
        let mean = sum(|x| x) / count;
        let deviation = (sum(|x| x * x) / count - mean * mean).max(0.0).sqrt().max(1e-3);
        chosen(&keep, &over(&less(x, f64::from(mean)), f64::from(deviation)))
    }

    #[test]
    fn wrong_answers_are_told_what_is_wrong() {
        let wrong: [(MaskedNormalise, &str); 17] = [
            (|x, c, low, high| by(whole, x, c, low, high), "mean and deviation of all rows"),
            (|x, c, low, high| by(masked_at_the_end, x, c, low, high), "mean and deviation of all rows"),
            (|x, c, l, h| by(|x, l, h| with(x, l, h, "all"), x, c, l, h), "divided by the number of all rows"),
            (|x, c, l, h| by(|x, l, h| with(x, l, h, "squares of all"), x, c, l, h), "the squares are divided by"),
            (|x, c, l, h| by(|x, l, h| with(x, l, h, "every row"), x, c, l, h), "into the deviation go all rows"),
            (|x, c, l, h| by(|x, l, h| with(x, l, h, "unmasked"), x, c, l, h), "rows that were set to 0"),
            (|x, c, l, h| by(|x, l, h| with(x, l, h, "variance"), x, c, l, h), "divided by the variance"),
            (|x, c, l, h| by(|x, l, h| with(x, l, h, "sample"), x, c, l, h), "one row less"),
            (|x, c, l, h| by(|x, l, h| with(x, l, h, "mean alone"), x, c, l, h), "nothing is divided"),
            (|x, c, l, h| by(|x, l, h| with(x, l, h, "strict"), x, c, l, h), "the least or the largest"),
            (|x, c, l, h| by(|x, l, h| with(x, l, h, "left"), x, c, l, h), "the believed rows are right"),
            (|x, c, l, h| by(|x, l, h| with(x, l, h, "none"), x, c, l, h), "count of 0"),
            (|x, c, l, h| by(|x, l, h| with(x, l, h, "equal"), x, c, l, h), "the deviation is 0"),
            (|x, c, low, high| by(multiplied, x, c, low, high), "0 times NaN"),
            (|x, c, low, high| by(cancelling, x, c, low, high), "mostly rounding"),
            (
                |x, c, low, high| {
                    let (z, slopes) = by(right, x, c, low, high)?;
                    Ok((z.into_iter().filter(|&z| z != 0.0).collect(), slopes))
                },
                "numbers come back for",
            ),
            (|_, _, _, _| todo!("array code"), "panicked"),
        ];
        wrong.into_iter().for_each(|(answer, said)| red(masked_normalise(answer), said));
        let refused: MaskedNormalise =
            |_, _, _, _| Err(gpulab::Error::invalid("candle says: shape mismatch", "compare them"));
        red(masked_normalise(refused), "eight rows: ");
    }

    #[test]
    fn cheats_are_seen() {
        let cheats: [(MaskedNormalise, &str); 6] = [
            // A loop on the host, and its numbers as a new tensor.
            (|x, c, low, high| Ok((by(right, x, c, low, high)?.0, None)), "do not come from the column"),
            // The same, with 0 times the column added.
            (
                |x, c, low, high| Ok((by(right, x, c, low, high)?.0, Some(vec![0.0; x.len()]))),
                "do not come from the column",
            ),
            // Mean and deviation by `to_scalar`: constants to the operations behind them.
            (
                |x, c, low, high| {
                    let own: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
                    let keep = mask(&own, f64::from(low), f64::from(high));
                    let kept: Vec<f64> =
                        own.iter().zip(&keep).filter(|(_, keep)| **keep > 0.0).map(|(x, _)| *x).collect();
                    let deviation = moments(&kept).1 as f32;
                    let slopes = c.iter().zip(&keep).map(|(c, &keep)| c * keep as f32 / deviation).collect();
                    Ok((by(right, x, c, low, high)?.0, Some(slopes)))
                },
                "to the host",
            ),
            // Numbers that compare with nothing, zeros, and the answer for eight rows alone.
            (|x, _, _, _| Ok((vec![f32::NAN; x.len()], None)), "you give NaN"),
            (|x, _, _, _| Ok((vec![0.0; x.len()], Some(vec![0.0; x.len()]))), "eight rows: row 0"),
            (
                |x, c, low, high| if x.len() == 8 { by(right, x, c, low, high) } else { by(whole, x, c, low, high) },
                "mean and deviation of all rows",
            ),
        ];
        cheats.into_iter().for_each(|(answer, said)| red(masked_normalise(answer), said));
    }
}
