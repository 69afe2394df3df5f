//! An exercise of lesson 01: a batch shared among the GPUs of one machine.

use super::Verdict;
use super::verdict::{ask, timed, wrong};

/// A GPU that takes a share of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Worker {
    /// Samples that it finishes in a second.
    pub samples_per_s: f64,
    /// The most samples that fit into its memory at once.
    pub fits: usize,
}

impl Worker {
    /// Seconds for so many samples.
    fn seconds(&self, samples: usize) -> f64 {
        samples as f64 / self.samples_per_s
    }
}

/// The least time of the slowest worker for a batch that fits: given away sample by sample, each to whom it delays least.
fn least_seconds(samples: usize, workers: &[Worker]) -> f64 {
    let mut shares = vec![0; workers.len()];
    for _ in 0..samples {
        let free = (0..workers.len()).filter(|&at| shares[at] < workers[at].fits);
        let after = |&at: &usize| workers[at].seconds(shares[at] + 1);
        let next = free.min_by(|a, b| after(a).total_cmp(&after(b)));
        shares[next.expect("the batch fits")] += 1;
    }
    slowest(&shares, workers)
}

fn slowest(shares: &[usize], workers: &[Worker]) -> f64 {
    shares.iter().zip(workers).map(|(&share, worker)| worker.seconds(share)).fold(0.0, f64::max)
}

/// Checks a function that shares a batch among GPUs so that the last of them ends as early as possible: a share for each, in
/// their order, or `None` when the batch does not fit.
pub fn share_batch(answer: fn(usize, &[Worker]) -> Option<Vec<usize>>) -> Verdict {
    timed("share_batch", move || {
        let worker = |samples_per_s, fits| Worker { samples_per_s, fits };
        let cases: [(usize, &[Worker], &'static str); 8] = [
            (96, &[worker(100.0, 500)], "a single GPU takes the whole batch"),
            (90, &[worker(100.0, 500), worker(100.0, 500)], "two equal GPUs: half of the batch each"),
            (90, &[worker(200.0, 500), worker(100.0, 500)], "one is twice as fast: when do both end at the same time?"),
            (
                11,
                &[worker(30.0, 50), worker(20.0, 50), worker(10.0, 50)],
                "whole samples: which one takes what is left over?",
            ),
            (
                100,
                &[worker(300.0, 40), worker(100.0, 500), worker(100.0, 500)],
                "the fastest is full: who takes the rest?",
            ),
            (3, &[worker(1000.0, 500), worker(1.0, 500)], "a slow GPU may be better off without any"),
            (
                120,
                &[worker(100.0, 50), worker(100.0, 60)],
                "when all of them are full and samples are left, answer `None`",
            ),
            (5, &[], "no GPU at all: the batch does not fit, and nothing may panic"),
        ];
        for (samples, workers, hint) in cases {
            let told: Vec<String> =
                workers.iter().map(|one| format!("{} samples/s, at most {}", one.samples_per_s, one.fits)).collect();
            let case = format!("{samples} samples, {} GPUs [{}]", workers.len(), told.join("; "));
            let given = ask(&case, || answer(samples, workers))?;
            let fits = workers.iter().map(|one| one.fits).sum::<usize>() >= samples;
            let shares = match (given, fits) {
                (None, false) => continue,
                (None, true) => {
                    return wrong(format!("{case}: your answer is None"), "they have room for all of it together");
                }
                (Some(shares), false) => return wrong(format!("{case}: your answer is {shares:?}"), hint),
                (Some(shares), true) => shares,
            };
            let what = format!("{case}: your answer is {shares:?}");
            if shares.len() != workers.len() {
                return wrong(what, "one share for each GPU, in their order; a share may be 0");
            }
            let sum: usize = shares.iter().sum();
            if sum != samples {
                return wrong(
                    format!("{what}, {sum} samples in all"),
                    "no sample may be lost in rounding, and none be there twice",
                );
            }
            if shares.iter().zip(workers).any(|(&share, worker)| share > worker.fits) {
                return wrong(format!("{what}: one of them is out of memory"), "a share is at most what fits");
            }
            let (took, least) = (slowest(&shares, workers), least_seconds(samples, workers));
            if took > least * 1.000_001 {
                return wrong(
                    format!("{what}: the last one ends after {took:.3} s, and {least:.3} s are possible"),
                    hint,
                );
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Answer = fn(usize, &[Worker]) -> Option<Vec<usize>>;

    fn one_by_one(samples: usize, workers: &[Worker]) -> Option<Vec<usize>> {
        let mut shares = vec![0; workers.len()];
        for _ in 0..samples {
            let free = (0..workers.len()).filter(|&at| shares[at] < workers[at].fits);
            let ends = |&at: &usize| (shares[at] + 1) as f64 / workers[at].samples_per_s;
            let next = free.min_by(|a, b| ends(a).total_cmp(&ends(b)))?;
            shares[next] += 1;
        }
        Some(shares)
    }

    /// Bisects the time: how many samples does each finish by then?
    fn by_time(samples: usize, workers: &[Worker]) -> Option<Vec<usize>> {
        let by = |seconds: f64| -> Vec<usize> {
            workers.iter().map(|one| ((seconds * one.samples_per_s + 1e-9) as usize).min(one.fits)).collect()
        };
        let (mut low, mut high) = (0.0, 1e9);
        if by(high).iter().sum::<usize>() < samples {
            return None;
        }
        for _ in 0..200 {
            let middle = (low + high) / 2.0;
            if by(middle).iter().sum::<usize>() < samples { low = middle } else { high = middle }
        }
        let mut shares = by(high);
        let mut over = shares.iter().sum::<usize>() - samples;
        for share in &mut shares {
            let less = over.min(*share);
            *share -= less;
            over -= less;
        }
        Some(shares)
    }

    #[test]
    fn right_shares_of_two_kinds_pass() {
        for answer in [one_by_one as Answer, by_time] {
            assert!(share_batch(answer).passed(), "{}", share_batch(answer).text());
        }
    }

    fn in_proportion(samples: usize, workers: &[Worker]) -> Vec<usize> {
        let all: f64 = workers.iter().map(|one| one.samples_per_s).sum();
        workers.iter().map(|one| (samples as f64 * one.samples_per_s / all).round() as usize).collect()
    }

    #[test]
    fn wrong_shares_are_told_what_is_wrong() {
        let wrong: [(Answer, &str); 9] = [
            (|_, _| None, "room for all of it"),
            (|samples, workers| Some(vec![samples / workers.len().max(1); workers.len()]), "end at the same time"),
            (|samples, workers| Some(in_proportion(samples, workers)), "lost in rounding"),
            (
                |samples, workers| {
                    let mut shares = in_proportion(samples, workers);
                    let others: usize = shares.iter().skip(1).sum();
                    *shares.first_mut()? = samples - others;
                    Some(shares)
                },
                "out of memory",
            ),
            (|samples, _| Some(vec![samples]), "one share for each GPU"),
            (
                |samples, workers| {
                    (!workers.is_empty()).then(|| (0..workers.len()).map(|at| samples * usize::from(at == 0)).collect())
                },
                "half of the batch",
            ),
            (
                |samples, workers| {
                    let shares = one_by_one(samples, workers);
                    shares.or_else(|| Some(workers.iter().map(|one| one.fits).collect()))
                },
                "answer `None`",
            ),
            (
                |samples, workers| {
                    let room: usize = workers.iter().map(|one| one.fits).sum();
                    let first = workers[0];
                    if room < samples { None } else { one_by_one(samples, workers).filter(|_| first.fits > 0) }
                },
                "panicked",
            ),
            (
                |samples, workers| {
                    let mut shares = vec![0; workers.len()];
                    let mut left = samples;
                    for (share, worker) in shares.iter_mut().zip(workers) {
                        *share = left.min(worker.fits);
                        left -= *share;
                    }
                    (left == 0).then_some(shares)
                },
                "half of the batch",
            ),
        ];
        for (answer, text) in wrong {
            let said = share_batch(answer).text();
            assert!(said.starts_with("NOT YET") && said.contains(text), "{said}");
        }
    }
}
