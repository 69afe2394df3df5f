//! Exercises of lesson 02.

use super::Verdict;
use super::verdict::{PANIC_HINT, ask, asking, run, timed, told, wrong};
use crate::practice::{PracticeKernel, PracticeQueue};
use gpulab::error::Result;
use gpulab::measurement::figures;

/// Checks a function that gives the time of one kernel on the GPU, in µs, as a fair measurement finds it: the queue may
/// hold work already, the first launch is special, and single samples may be off.
pub fn time_kernel(answer: fn(&mut PracticeQueue, PracticeKernel) -> Result<f64>) -> Verdict {
    timed("time_kernel", move || {
        // (kernel, work queued before, is it the queue's first launch)
        for (us, before_us, first) in
            [(250.0, 0.0, false), (250.0, 0.0, true), (400.0, 60_000.0, false), (3000.0, 500.0, true)]
        {
            // So many seeds that a median of only three samples meets two disturbed ones.
            for seed in 1..=40 {
                let mut queue = PracticeQueue::with_seed(seed);
                let prepared = prepare(&mut queue, before_us, first);
                let launches = queue.launches();
                asking(&format!("a kernel of {us} µs, with {before_us} µs of other work in the queue"));
                let given = match prepared.and_then(|()| run(|| answer(&mut queue, PracticeKernel::of_us(us)))) {
                    Err(panic) => {
                        let hint = if panic.contains("endless") {
                            "let the loop end, after 21 samples say"
                        } else {
                            PANIC_HINT
                        };
                        return wrong(panic, hint);
                    }
                    Ok(Err(error)) => {
                        return wrong(error.to_string(), "this queue has no fault: what failed?");
                    }
                    Ok(Ok(given)) => given,
                };
                // The launch's own 4 µs and a median's noise are within; the smallest mistake, a mean, is 10 % off.
                if (given / us - 1.0).abs() <= 0.04 {
                    continue;
                }
                let taken = Taken { given, us, before_us, first, launches: queue.launches() - launches };
                let what =
                    format!("a kernel of {us} µs was measured as {} µs\n{}", figures(given), taken.circumstances());
                return wrong(what, taken.hint());
            }
        }
        Ok(())
    })
}

fn prepare(queue: &mut PracticeQueue, before_us: f64, first: bool) -> std::result::Result<(), String> {
    let mut quiet = || -> Result<()> {
        if !first {
            queue.launch(PracticeKernel::of_us(1.0))?;
            queue.synchronize()?;
        }
        if before_us > 0.0 {
            queue.launch(PracticeKernel::of_us(before_us))?;
        }
        Ok(())
    };
    quiet().map_err(|error| error.to_string())
}

/// A figure that is off, and how it was taken. Times are µs.
struct Taken {
    given: f64,
    us: f64,
    before_us: f64,
    first: bool,
    launches: usize,
}

impl Taken {
    /// What the queue was like, and what was done with it.
    fn circumstances(&self) -> String {
        let before = match self.before_us {
            0.0 => "was empty".to_string(),
            us => format!("still held {us} µs of other work"),
        };
        let first = if self.first { "had its first launch still to come" } else { "was warmed up" };
        format!("where: the queue {before} and {first}; you launched the kernel {}", times(self.launches))
    }

    /// Which mistake gives such a figure.
    fn hint(&self) -> &'static str {
        let Taken { given, us, before_us, first, launches } = *self;
        // What was counted too much, in all launches together: a mean spreads it over them.
        let too_much = (given - us) * launches as f64;
        if !given.is_finite() || given <= 0.0 {
            "return a positive time: end minus start, in µs"
        } else if launches == 0 {
            "nothing was launched: launch the work, and measure that"
        } else if (given * 1e3 / us - 1.0).abs() < 0.3 {
            "that looks like milliseconds: the answer is to be in µs"
        } else if (given * 1e6 / us - 1.0).abs() < 0.3 {
            "that looks like seconds: the answer is to be in µs"
        } else if given < 0.5 * us {
            "that is the time of the launch: the GPU was still busy when you read the clock. Wait before you read it"
        } else if launches >= 4 && (0.8..1.5).contains(&(given / (us * launches as f64))) {
            "that is the time of all your launches together: give the time of one"
        } else if before_us > 10_000.0 && too_much > 0.8 * before_us {
            "work from before was still in the queue and was counted too: wait before you start the clock"
        } else if first && too_much > 600.0 {
            "the first launch loads the kernel's code, and that was counted: launch once before you measure"
        } else if launches < 8 {
            "one run in ten takes twice as long: take more samples (say 21) and return their median"
        } else if given > 1.5 * us {
            "that is one of the disturbed runs, which take twice as long: return the sample in the middle, the median"
        } else {
            "nearly: one run in ten takes twice as long, and a mean counts it in. Return the median of the samples"
        }
    }
}

fn times(count: usize) -> String {
    match count {
        1 => "once".to_string(),
        _ => format!("{count} times"),
    }
}

/// Checks a function that launches all the work, in order, and gives the index of the launch that fails on the GPU,
/// or `None`.
pub fn find_fault(answer: fn(&mut PracticeQueue, &[PracticeKernel]) -> Option<usize>) -> Verdict {
    timed("find_fault", move || {
        // Launches are faster than these kernels, but not by so much that none of them meets the error of an earlier one.
        for (seed, (fault, count)) in
            [(Some(5), 40), (Some(0), 40), (Some(39), 40), (None, 40), (Some(17), 23), (Some(0), 1), (None, 0)]
                .into_iter()
                .enumerate()
        {
            let work = vec![PracticeKernel::of_us(10.0); count];
            let mut queue = PracticeQueue::with_seed(7 + seed as u64);
            if let Some(at) = fault {
                queue = queue.with_fault_at(at);
            }
            let given = ask(&format!("with {count} kernels"), || answer(&mut queue, &work))?;
            if given == fault {
                if queue.launches() >= fault.map_or(count, |at| at + 1) {
                    continue;
                }
                return told(
                    format!(
                        "with {count} kernels your answer is {given:?}, and {} of them were launched",
                        queue.launches()
                    ),
                    "the answer was not found out: whatever fails later would be missed",
                    "launch the work in order, until something fails",
                );
            }
            let what = match fault {
                Some(at) => format!("of {count} launches launch {at} fails, and your answer is {given:?}"),
                None => format!("of {count} launches none fails, and your answer is {given:?}"),
            };
            let hint = match (given, fault) {
                _ if queue.launches() == 0 && count > 0 => {
                    "nothing was launched: launch the work in order, and see what fails"
                }
                (Some(given), Some(at)) if given == at + 1 => {
                    "one too many: `synchronize` right after each launch, before the next one, and count from 0"
                }
                (Some(given), Some(at)) if given > at => {
                    "that call reports the error of an earlier launch: `synchronize` after each launch, and see what it returns"
                }
                (None, Some(_)) => {
                    "an error that arrives after the last launch shows itself only when you wait for the queue"
                }
                _ => "count from 0, and answer `None` when everything ended well",
            };
            return wrong(what, hint);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn median(mut samples: Vec<f64>) -> f64 {
        samples.sort_by(f64::total_cmp);
        samples[samples.len() / 2]
    }

    fn fair(queue: &mut PracticeQueue, work: PracticeKernel) -> Result<f64> {
        queue.launch(work)?;
        queue.synchronize()?;
        let mut samples = Vec::new();
        for _ in 0..21 {
            let start = queue.event();
            queue.launch(work)?;
            samples.push(queue.event().us_since(&start));
        }
        Ok(median(samples))
    }

    /// Warmed up, each call waited for; the samples in rising order.
    fn waited(queue: &mut PracticeQueue, work: PracticeKernel, count: usize) -> Result<Vec<f64>> {
        queue.launch(work)?;
        queue.synchronize()?;
        let mut samples = Vec::new();
        for _ in 0..count {
            let start = queue.now_us();
            queue.launch(work)?;
            queue.synchronize()?;
            samples.push(queue.now_us() - start);
        }
        samples.sort_by(f64::total_cmp);
        Ok(samples)
    }

    fn batched(queue: &mut PracticeQueue, work: PracticeKernel) -> Result<f64> {
        Ok(waited(queue, work, 21)?[10])
    }

    #[test]
    fn fair_timing_passes() {
        assert!(time_kernel(fair).passed(), "{}", time_kernel(fair).text());
        assert!(time_kernel(batched).passed(), "{}", time_kernel(batched).text());
    }

    /// 21 waits, no warm-up, whatever is in the queue: the total.
    fn total(queue: &mut PracticeQueue, work: PracticeKernel) -> Result<f64> {
        let start = queue.now_us();
        for _ in 0..21 {
            queue.launch(work)?;
            queue.synchronize()?;
        }
        Ok(queue.now_us() - start)
    }

    fn waits_once(queue: &mut PracticeQueue, work: PracticeKernel) -> Result<f64> {
        let start = queue.now_us();
        queue.launch(work)?;
        queue.synchronize()?;
        Ok(queue.now_us() - start)
    }

    #[test]
    fn each_unfair_timing_is_named() {
        type Answer = fn(&mut PracticeQueue, PracticeKernel) -> Result<f64>;
        let wrong: [(Answer, &str); 14] = [
            // What the queue would print; NaN.
            (
                |queue, work| {
                    queue.launch(work)?;
                    let shown = format!("{queue:?}{work:?}");
                    Ok(shown
                        .split(|c: char| !c.is_ascii_digit())
                        .filter_map(|n| n.parse::<f64>().ok())
                        .fold(0.5, f64::max))
                },
                "a kernel of 250 µs was measured as",
            ),
            (|queue, work| queue.launch(work).map(|()| f64::NAN), "positive"),
            (
                |queue, work| {
                    let start = queue.now_us();
                    queue.launch(work)?;
                    Ok(queue.now_us() - start)
                },
                "Wait before you read it",
            ),
            (waits_once, "more samples"),
            (
                |queue, work| {
                    waits_once(queue, work)?;
                    waits_once(queue, work)
                },
                "more samples",
            ),
            (total, "the time of one"),
            (|queue, work| Ok(total(queue, work)? / 21.0), "the median"),
            (|queue, work| Ok(fair(queue, work)? / 1e3), "milliseconds"),
            (|queue, work| Ok(fair(queue, work)? / 1e6), "seconds"),
            (|queue, work| Ok(waited(queue, work, 3)?[1]), "more samples"),
            (|queue, work| Ok(waited(queue, work, 21)?[20]), "disturbed runs"),
            (
                |queue, _| loop {
                    queue.synchronize()?
                },
                "let the loop end",
            ),
            (|_, _| Ok(0.0), "positive"),
            (|_, _| Ok(250.0), "nothing was launched"),
        ];
        for (answer, text) in wrong {
            let said = time_kernel(answer).text();
            assert!(said.starts_with("NOT YET") && said.contains(text), "{said}");
        }
    }

    #[test]
    fn the_hint_names_the_cold_start_and_the_work_before() {
        let taken = |given, before_us, first, launches| {
            Taken { given, us: 400.0, before_us, first, launches }.hint().to_string()
        };
        for (hint, text) in [
            (taken(60_402.0, 60_000.0, false, 1), "work from before"),
            (taken(3_300.0, 60_000.0, false, 21), "work from before"),
            (taken(1_304.0, 0.0, true, 1), "the first launch"),
            (taken(490.0, 0.0, true, 21), "the first launch"),
            (taken(440.0, 0.0, false, 21), "a mean counts it in"),
            (taken(f64::NAN, 0.0, false, 1), "positive"),
        ] {
            assert!(hint.contains(text), "{hint}");
        }
    }

    #[test]
    fn finding_the_fault_right_and_wrong() {
        let blocking = |queue: &mut PracticeQueue, work: &[PracticeKernel]| {
            work.iter().position(|&work| queue.launch(work).and_then(|()| queue.synchronize()).is_err())
        };
        assert!(find_fault(blocking).passed(), "{}", find_fault(blocking).text());
        type Answer = fn(&mut PracticeQueue, &[PracticeKernel]) -> Option<usize>;
        let wrong: [(Answer, &str); 8] = [
            // Read off what the queue prints; a constant, with all launched; out of bounds.
            (
                |queue, work| {
                    let _ = queue.launch(work[0]);
                    let shown = format!("{queue:?}");
                    shown.split("fault_at: Some(").nth(1).and_then(|rest| rest.split(')').next()?.parse().ok())
                },
                "launch 5 fails, and your answer is None",
            ),
            (
                |queue, work| {
                    work.iter().for_each(|&work| drop(queue.launch(work)));
                    None
                },
                "launch 5 fails",
            ),
            (
                |queue, work| {
                    let at =
                        (0..work.len()).find(|&at| queue.launch(work[at]).is_err() || queue.synchronize().is_err());
                    let _ = work[at.map_or(work.len(), |at| at)];
                    at
                },
                "with 40 kernels: your code panicked: index out of bounds",
            ),
            (|queue, work| work.iter().position(|&work| queue.launch(work).is_err()), "of an earlier launch"),
            (
                |queue, work| {
                    for &work in work {
                        let _ = queue.launch(work);
                    }
                    queue.synchronize().err().map(|_| work.len() - 1)
                },
                "of an earlier launch",
            ),
            (
                |queue, work| {
                    let blocking = |&work| queue.launch(work).and_then(|()| queue.synchronize()).is_err();
                    work.iter().position(blocking).map(|at| at + 1)
                },
                "one too many",
            ),
            (
                |queue, work| {
                    work.iter().for_each(|&work| drop(queue.launch(work)));
                    Some(5)
                },
                "launch 0 fails",
            ),
            (|_, _| Some(5), "0 of them were launched"),
        ];
        for (answer, text) in wrong {
            let said = find_fault(answer).text();
            assert!(said.starts_with("NOT YET") && said.contains(text), "{said}");
        }
    }
}
