//! An exercise of lesson 02: whether two sets of samples show a difference.

use super::Verdict;
use super::verdict::{ask, timed, wrong};
use gpulab::cpu;
use std::cmp::Ordering;

/// The name of each answer.
fn said(answer: Option<Ordering>) -> &'static str {
    match answer {
        Some(Ordering::Less) => "Some(Less): the first is faster",
        Some(Ordering::Greater) => "Some(Greater): the second is faster",
        Some(Ordering::Equal) => "Some(Equal)",
        None => "None: cannot tell",
    }
}

/// `count` samples around `middle`, give or take `spread`, in no order; every tenth takes three times as long where asked.
fn samples(count: usize, middle: f64, spread: f64, slow: bool, seed: u64) -> Vec<f64> {
    let noise = cpu::random_f32(count, seed);
    let outlier = |at: usize| if slow && at % 10 == 3 { 3.0 } else { 1.0 };
    let sample = |(at, &noise): (usize, &f32)| (middle + spread * f64::from(noise)) * outlier(at);
    noise.iter().enumerate().map(sample).collect()
}

/// Checks a function that compares two sets of times: `Some(Less)` when the first median is lower, `Some(Greater)` when the
/// second is, `None` when the samples do not show it.
pub fn which_is_faster(answer: fn(&[f64], &[f64]) -> Option<Ordering>) -> Verdict {
    timed("which_is_faster", move || {
        let few = |middle: f64| samples(4, middle, 0.2, false, 7);
        type Case = (&'static str, Vec<f64>, Vec<f64>, Option<Ordering>, &'static str);
        let cases: [Case; 8] = [
            (
                "medians far apart, 100 samples each",
                samples(100, 10.0, 0.5, false, 1),
                samples(100, 12.0, 0.5, false, 2),
                Some(Ordering::Less),
                "sort a copy of the samples first: they come in the order in which they were taken",
            ),
            (
                "the same two, the other way round",
                samples(100, 12.0, 0.5, false, 2),
                samples(100, 10.0, 0.5, false, 1),
                Some(Ordering::Greater),
                "either of the two may be the faster one",
            ),
            (
                "the same program twice, 100 samples each",
                samples(100, 10.0, 3.0, false, 3),
                samples(100, 10.0, 3.0, false, 4),
                None,
                "two medians are never quite equal: how well is each of them known?",
            ),
            (
                "1 % apart, a spread of 10 %, 20000 samples each",
                samples(20_000, 10.0, 1.0, false, 5),
                samples(20_000, 10.1, 1.0, false, 6),
                Some(Ordering::Less),
                "the spreads overlap, the medians do not: spread is not uncertainty, and many samples narrow the one of the two",
            ),
            (
                "1 % apart, a spread of 10 %, 25 samples each",
                samples(25, 10.0, 1.0, false, 5),
                samples(25, 10.1, 1.0, false, 6),
                None,
                "so few samples do not show 1 %",
            ),
            (
                "the first is faster, and one call in ten takes three times as long",
                samples(200, 10.0, 0.2, true, 8),
                samples(200, 11.0, 0.2, false, 9),
                Some(Ordering::Less),
                "a few disturbed calls move a mean: which figure do they hardly move?",
            ),
            (
                "4 samples each",
                few(10.0),
                few(20.0),
                None,
                "from fewer than six samples no interval of the median has 95 % confidence, however far they are apart",
            ),
            (
                "no samples at all",
                Vec::new(),
                samples(100, 10.0, 0.5, false, 1),
                None,
                "nothing was measured: answer `None`",
            ),
        ];
        for (at, (case, first, second, expected, hint)) in cases.into_iter().enumerate() {
            let given = ask(case, || answer(&first, &second))?;
            if given != expected {
                let what = format!("{case}: your answer is {}, and it should be {}", said(given), said(expected));
                let hint = match given {
                    Some(Ordering::Equal) => "times are never measured to be equal: say `None` when you cannot tell",
                    Some(_) if at < 2 && given == expected.map(Ordering::reverse) => {
                        "`Less` says that the first is faster"
                    }
                    _ => hint,
                };
                return wrong(what, hint);
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Answer = fn(&[f64], &[f64]) -> Option<Ordering>;

    fn sorted(samples: &[f64]) -> Vec<f64> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    fn interval(samples: &[f64]) -> Option<(f64, f64)> {
        let (n, sorted) = (samples.len() as f64, sorted(samples));
        let half = 0.98 * n.sqrt();
        let at = |place: f64| sorted[(place as usize).min(sorted.len() - 1)];
        (samples.len() >= 6).then(|| (at((n / 2.0 - half).max(0.0)), at(n / 2.0 + half)))
    }

    fn by_intervals(a: &[f64], b: &[f64]) -> Option<Ordering> {
        let (a, b) = (interval(a)?, interval(b)?);
        if a.1 < b.0 {
            Some(Ordering::Less)
        } else if b.1 < a.0 {
            Some(Ordering::Greater)
        } else {
            None
        }
    }

    /// Mann and Whitney: how often a sample of the one lies below one of the other.
    fn by_ranks(a: &[f64], b: &[f64]) -> Option<Ordering> {
        if a.len() < 6 || b.len() < 6 {
            return None;
        }
        let b = sorted(b);
        let below: usize = a.iter().map(|x| b.len() - b.partition_point(|y| y <= x)).sum();
        let (n, m) = (a.len() as f64, b.len() as f64);
        let z = (below as f64 - n * m / 2.0) / (n * m * (n + m + 1.0) / 12.0).sqrt();
        (z.abs() > 2.6).then_some(if z > 0.0 { Ordering::Less } else { Ordering::Greater })
    }

    fn middle(samples: &[f64]) -> f64 {
        sorted(samples)[samples.len() / 2]
    }

    fn mean(samples: &[f64]) -> f64 {
        samples.iter().sum::<f64>() / samples.len() as f64
    }

    #[test]
    fn right_answers_of_two_kinds_pass() {
        for answer in [by_intervals as Answer, by_ranks] {
            assert!(which_is_faster(answer).passed(), "{}", which_is_faster(answer).text());
        }
    }

    #[test]
    fn wrong_answers_are_told_what_is_wrong() {
        let wrong: [(Answer, &str); 9] = [
            (|_, _| None, "medians far apart"),
            (|_, _| Some(Ordering::Less), "`Less` says"),
            (|a, b| by_intervals(b, a), "`Less` says"),
            (|a, b| middle(a).partial_cmp(&middle(b)), "how well is each of them known"),
            (
                |a, b| {
                    let low = |of: &[f64]| sorted(of)[of.len() / 10];
                    let high = |of: &[f64]| sorted(of)[of.len() * 9 / 10];
                    if high(a) < low(b) {
                        Some(Ordering::Less)
                    } else if high(b) < low(a) {
                        Some(Ordering::Greater)
                    } else {
                        None
                    }
                },
                "spread is not uncertainty",
            ),
            (
                |a, b| {
                    let ratio = middle(a) / middle(b);
                    ((ratio - 1.0).abs() > 0.005).then(|| ratio.total_cmp(&1.0))
                },
                "how well is each of them known",
            ),
            (
                |a, b| {
                    by_ranks(a, b)?;
                    mean(a).partial_cmp(&mean(b))
                },
                "a few disturbed calls",
            ),
            (
                |a, b| {
                    if a.is_empty() {
                        return None;
                    }
                    by_intervals(a, b).or_else(|| (a.len() < 6).then(|| middle(a).total_cmp(&middle(b))))
                },
                "fewer than six",
            ),
            (
                |a, b| {
                    let (_, _) = (a[0], b[0]);
                    by_intervals(a, b)
                },
                "panicked",
            ),
        ];
        for (answer, text) in wrong {
            let said = which_is_faster(answer).text();
            assert!(said.starts_with("NOT YET") && said.contains(text), "{text}: {said}");
        }
    }
}
