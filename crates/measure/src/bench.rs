//! How often to run something so that its time can be trusted: warm-ups, batches, samples, a budget.
//!
//! Nothing here reads a clock. A backend hands [`run`] a closure that does the work so many times and says how
//! long that took: by `Instant` for the CPU, by device events for a GPU. So one rule makes every figure of the course.

use crate::Error;
use crate::Result;
use crate::measurement::Summary;

/// The most calls in one sample: past it, what is timed takes no time that a clock can see.
const MOST_REPEATS: usize = 100_000;
/// Samples that are taken even when they overrun the budget: fewer give no honest spread.
const FEWEST_SAMPLES: usize = 5;

/// How to measure: plain data, with `Bench::default()` for nearly everything.
///
/// # Examples
/// ```
/// use gpulab_measure::bench::Bench;
/// let quick = Bench::default().samples(5).budget_ms(500.0);
/// assert_eq!((quick.warm_ups, quick.samples), (3, 5));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bench {
    /// Calls made first and not counted: they load code, fill caches and wake clocks up.
    /// Fewer are made when they use up a quarter of the budget, but at least one. With 0, the first call is a sample.
    pub warm_ups: usize,
    /// How many samples to take.
    pub samples: usize,
    /// Calls are repeated within one sample until it lasts this long, in ms: a clock that ticks
    /// every 0.5 µs, as device events do, is then right to 0.25 %.
    pub min_sample_ms: f64,
    /// No new sample starts after this many ms of measured work; at least five are taken, or all where fewer are asked.
    pub budget_ms: f64,
}

impl Default for Bench {
    /// 3 warm-ups, 21 samples of at least 0.2 ms, in about 2 s.
    fn default() -> Bench {
        Bench { warm_ups: 3, samples: 21, min_sample_ms: 0.2, budget_ms: 2000.0 }
    }
}

impl Bench {
    /// Exactly one call, the very first, timed alone: what a careless stopwatch sees.
    pub const fn once() -> Bench {
        Bench { warm_ups: 0, samples: 1, min_sample_ms: 0.0, budget_ms: 0.0 }
    }

    /// The same with this many calls that are not counted.
    pub const fn warm_ups(mut self, calls: usize) -> Bench {
        self.warm_ups = calls;
        self
    }

    /// The same with this many samples.
    pub const fn samples(mut self, samples: usize) -> Bench {
        self.samples = samples;
        self
    }

    /// The same with samples that last at least this many ms; with 0 every sample is one call.
    pub const fn min_sample_ms(mut self, ms: f64) -> Bench {
        self.min_sample_ms = ms;
        self
    }

    /// The same with this many ms of measured work.
    pub const fn budget_ms(mut self, ms: f64) -> Bench {
        self.budget_ms = ms;
        self
    }

    /// How many calls make up one sample, when one call takes about `estimate_ms`: from 1 to 100 000.
    pub fn repeats_for(&self, estimate_ms: f64) -> usize {
        if self.min_sample_ms <= 0.0 {
            return 1;
        }
        // An estimate of 0 divides to infinity, and the cast then stops at usize::MAX.
        ((self.min_sample_ms / estimate_ms).ceil() as usize).clamp(1, MOST_REPEATS)
    }

    fn check(&self) -> Result<()> {
        let what = if self.samples == 0 {
            "a measurement of 0 samples".to_string()
        } else if !(self.min_sample_ms.is_finite() && self.budget_ms >= 0.0) {
            format!("a sample of {} ms in a budget of {} ms", self.min_sample_ms, self.budget_ms)
        } else {
            return Ok(());
        };
        Err(Error::invalid(what, "start from `Bench::default()`, and ask for at least one sample"))
    }
}

/// Measures by `bench`'s rule. `work(n)` makes `n` calls and returns the ms for all of them; the summary is in **ms per call**.
///
/// # Errors
/// The first error of `work`, at once; [`Error::Invalid`] for a bench or a time that makes no sense.
pub fn run(bench: &Bench, mut work: impl FnMut(usize) -> Result<f64>) -> Result<Summary> {
    bench.check()?;
    let mut timed = |repeats: usize| -> Result<f64> {
        let ms = work(repeats)?;
        if ms.is_finite() && ms >= 0.0 {
            return Ok(ms);
        }
        Err(Error::invalid(
            format!("{repeats} calls are said to take {ms} ms"),
            "look at the clock that the measuring closure reads",
        ))
    };

    let mut spent = 0.0;
    let mut repeats = 1;
    for _ in 0..bench.warm_ups {
        let ms = timed(1)?;
        spent += ms;
        repeats = bench.repeats_for(ms);
        if spent > bench.budget_ms / 4.0 {
            break;
        }
    }
    // A lone call looks slower than one of many (start-up, the clock's own cost), so one estimate gives too
    // short a sample: go on from the batch's own time. A batch is a warm-up too, so without warm-ups none runs.
    if bench.warm_ups > 0 && repeats > 1 {
        for _ in 0..8 {
            let ms = timed(repeats)?;
            let better = bench.repeats_for(ms / repeats as f64).min(repeats * 32);
            if ms >= bench.min_sample_ms || better <= repeats {
                break;
            }
            repeats = better;
        }
    }

    let mut per_call = Vec::with_capacity(bench.samples.min(1024));
    let mut spent = 0.0;
    while per_call.len() < bench.samples {
        if per_call.len() >= FEWEST_SAMPLES && spent >= bench.budget_ms {
            break;
        }
        let ms = timed(repeats)?;
        spent += ms;
        per_call.push(ms / repeats as f64);
        if bench.warm_ups == 0 && per_call.len() == 1 {
            repeats = bench.repeats_for(ms);
        }
    }
    Ok(Summary::of(&per_call))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock under which call `i` (from 0) takes `ms(i)`; returns the summary and the batches asked for.
    fn fake(bench: Bench, ms: impl Fn(usize) -> f64) -> (Result<Summary>, Vec<usize>) {
        let (mut calls, mut batches) = (0, Vec::new());
        let summary = run(&bench, |repeats| {
            batches.push(repeats);
            let total = (calls..calls + repeats).map(&ms).sum();
            calls += repeats;
            Ok(total)
        });
        (summary, batches)
    }

    #[test]
    fn slow_work_is_called_once_a_sample_and_warm_ups_do_not_count() {
        let (summary, batches) = fake(Bench::default(), |i| if i < 3 { 50.0 } else { 1.0 });
        assert_eq!(batches, [1; 24]);
        assert_eq!(summary.unwrap(), Summary { median: 1.0, p10: 1.0, p90: 1.0, samples: 21 });
    }

    #[test]
    fn fast_work_is_batched_until_a_sample_is_long_enough() {
        let (summary, batches) = fake(Bench::default(), |_| 0.001);
        assert_eq!(batches[..4], [1, 1, 1, 200]);
        assert!((summary.unwrap().median - 0.001).abs() < 1e-9);
        // The lone calls are ten times as slow as those in a batch, as a first launch is.
        let (_, batches) = fake(Bench::default(), |i| if i < 3 { 0.01 } else { 0.001 });
        assert_eq!(batches[3..5], [20, 200]);
        assert!(batches[5..].iter().all(|&n| n == 200), "{batches:?}");
    }

    #[test]
    fn work_that_no_clock_sees_ends() {
        let (summary, batches) = fake(Bench::default(), |_| 0.0);
        assert_eq!(summary.unwrap().median, 0.0);
        assert_eq!(batches.iter().max(), Some(&MOST_REPEATS));
    }

    #[test]
    fn the_budget_cuts_samples_and_warm_ups_but_not_below_five() {
        let (summary, batches) = fake(Bench::default(), |_| 1500.0);
        assert_eq!((summary.unwrap().samples, batches.len()), (5, 6)); // one warm-up
        let (summary, _) = fake(Bench::default(), |_| 200.0);
        assert_eq!(summary.unwrap().samples, 10);
        let (summary, _) = fake(Bench::default().samples(2), |_| 1500.0);
        assert_eq!(summary.unwrap().samples, 2);
    }

    #[test]
    fn without_warm_ups_the_first_call_is_a_sample() {
        let (summary, batches) = fake(Bench::once(), |i| if i == 0 { 90.0 } else { 1.0 });
        assert_eq!((summary.unwrap().median, batches), (90.0, vec![1]));
        let (summary, batches) = fake(Bench::default().warm_ups(0).samples(3), |i| if i == 0 { 0.1 } else { 0.001 });
        assert_eq!(batches, [1, 2, 2]);
        assert!((summary.unwrap().median - 0.001).abs() < 1e-9);
    }

    #[test]
    fn errors_pass_and_nonsense_is_named() {
        let failed = Error::NoSuchDevice { asked: 1, found: 0 };
        let (mut calls, error) = (0, failed.clone());
        let got = run(&Bench::default(), |_| {
            calls += 1;
            if calls == 5 { Err(error.clone()) } else { Ok(1.0) }
        });
        assert_eq!((got, calls), (Err(failed), 5));
        for time in [f64::NAN, -1.0, f64::INFINITY] {
            let text = run(&Bench::default(), |_| Ok(time)).unwrap_err().to_string();
            assert!(text.contains("ms") && text.contains("\nnext: "), "{text}");
        }
        assert!(run(&Bench::default().samples(0), |_| Ok(1.0)).is_err());
        assert!(run(&Bench::default().budget_ms(f64::NAN), |_| Ok(1.0)).is_err());
    }

    #[test]
    fn repeats_stay_within_their_limits() {
        let bench = Bench::default();
        let repeats = [0.0, 1e-9, 0.0015, 0.2, 7.0].map(|ms| bench.repeats_for(ms));
        assert_eq!(repeats, [100_000, 100_000, 134, 1, 1]);
        assert_eq!(bench.min_sample_ms(0.0).repeats_for(0.0), 1);
    }
}
