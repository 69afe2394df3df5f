//! Exercises of lesson 03.

use super::Verdict;
use super::verdict::{PANIC_HINT, asking, run, timed, wrong};
use crate::practice::PracticePool;
use gpulab::error::{Error, Result};

const MIB: u64 = 1 << 20;

/// What a step of the training loop allocates.
const STEP: u64 = 64 * MIB;

/// Checks a training loop: each of its `steps` steps allocates 64 MiB and notes its loss, 1 ÷ (1 + step). It must run for
/// any number of steps, return the losses in order, keep no step's memory longer than that step, and leave nothing behind.
pub fn no_leak(answer: fn(&PracticePool, usize) -> Result<Vec<f32>>) -> Verdict {
    timed("no_leak", move || {
        for steps in [1, 500, 3, 0] {
            let pool = PracticePool::new(1024 * MIB);
            asking(&count(steps));
            let outcome = run(|| answer(&pool, steps));
            let stats = pool.memory();
            let most = format!("with {} in 1024 MiB (most in use: {} MiB)", count(steps), stats.used_high / MIB);
            let full = "which variable still owns each step's buffer when the step is over?";
            let losses = match outcome {
                Err(panic) => {
                    let hint = if panic.contains("OutOfMemory") { full } else { PANIC_HINT };
                    return wrong(format!("{most}: {panic}"), hint);
                }
                Ok(Err(error)) => return wrong(format!("{most}: {error}"), full),
                Ok(Ok(losses)) => losses,
            };
            let right = |step: usize| 1.0 / (1.0 + step as f32);
            let off =
                losses.iter().enumerate().find(|&(step, loss)| loss.is_nan() || (loss - right(step)).abs() > 1e-6);
            let (what, hint) = if stats.used != 0 {
                let what = format!("after {}, {} MiB are still in use", count(steps), stats.used / MIB);
                (what, "a forgotten buffer (`std::mem::forget`, `Box::leak`) never comes back")
            } else if losses.len() != steps {
                let what = format!("{} gave {} losses", count(steps), losses.len());
                (what, "keep the loss of every step: numbers are small, buffers are not")
            } else if let Some((step, loss)) = off {
                let what = format!("step {step} gave the loss {loss}, and it should be {}", right(step));
                (what, "return the losses as they were, in the order of the steps")
            } else if pool.handed_out() < steps as u64 * STEP {
                let what = format!("{} allocated {} MiB in all", count(steps), pool.handed_out() / MIB);
                (what, "each step still allocates its 64 MiB; it only must not keep them")
            } else if stats.used_high > 2 * STEP {
                (most, "it ran, but some steps' buffers outlived their step: drop each before the next step")
            } else {
                continue;
            };
            return wrong(what, hint);
        }
        Ok(())
    })
}

fn count(steps: usize) -> String {
    format!("{steps} step{}", if steps == 1 { "" } else { "s" })
}

/// Checks a function that gives the largest of `wanted`, `wanted ÷ 2`, `wanted ÷ 4` … items that fit when each takes
/// `bytes` bytes. Out of memory with a single item, or any other error, is passed on.
pub fn largest_batch(answer: fn(&PracticePool, usize, u64) -> Result<usize>) -> Verdict {
    timed("largest_batch", move || {
        let cases = [
            (1024, 256, MIB, Some(256)),
            (1024, 256, 10 * MIB, Some(64)),
            (96, 7, 64 * MIB, Some(1)),
            // A half that is no whole number is rounded down: 5, 2, 1 and 7, 3, 1.
            (96, 5, 30 * MIB, Some(2)),
            (200, 7, 64 * MIB, Some(3)),
            (4096, 1000, 5 * MIB, Some(500)),
            (64, 8, 65 * MIB, None),
        ];
        for (total_mib, wanted, bytes, expected) in cases {
            let pool = PracticePool::new(total_mib * MIB);
            let case = format!("{wanted} items of {} MiB in {total_mib} MiB", bytes / MIB);
            asking(&case);
            let given = match run(|| answer(&pool, wanted, bytes)) {
                Err(panic) => {
                    let hint = if panic.contains("endless") {
                        "stop when the batch is 1 and still does not fit, and pass the error on"
                    } else if panic.contains("OutOfMemory") {
                        "`unwrap` ends the program: `match` on the result, and halve the batch when it is out of memory"
                    } else {
                        PANIC_HINT
                    };
                    return wrong(format!("{case}: {panic}"), hint);
                }
                Ok(given) => given,
            };
            if pool.memory().used != 0 {
                let what = format!("{case}: {} MiB are still in use afterwards", pool.memory().used / MIB);
                return wrong(what, "drop the batch's buffer before you return");
            }
            let (what, hint) = match (given, expected) {
                (Ok(given), Some(expected)) if given == expected => continue,
                (Err(Error::OutOfMemory { .. }), None) => continue,
                (Ok(0), None) => (
                    "a batch of 0".to_string(),
                    "not even one item fits: pass the out-of-memory error on, a batch of 0 trains nothing",
                ),
                (Ok(given), Some(expected)) => {
                    let hint = if given as u64 * bytes > total_mib * MIB {
                        "that does not fit either: try the halved batch too, and halve again until one fits"
                    } else if given > expected {
                        "try the wanted number, a half of it, a quarter of it …: this is none of these"
                    } else {
                        "halve only when it does not fit"
                    };
                    (format!("a batch of {given}, and it should be {expected}"), hint)
                }
                (Ok(given), None) => (format!("a batch of {given}"), "not even one item fits: pass the error on"),
                (Err(error), Some(_)) => (
                    error.to_string(),
                    "catch `Error::OutOfMemory { .. }` with a `match`, halve the batch, and try again",
                ),
                (Err(error), None) => (error.to_string(), "pass the out-of-memory error on as it is"),
            };
            return wrong(format!("{case}: {what}"), hint);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::practice::PracticeBuffer;

    /// What the notebook's loop returns, with `hold` deciding what becomes of each step's buffer.
    fn train(pool: &PracticePool, steps: usize, mut hold: impl FnMut(PracticeBuffer)) -> Result<Vec<f32>> {
        let mut losses = Vec::new();
        for step in 0..steps {
            hold(pool.alloc(64 * MIB)?);
            losses.push(1.0 / (1.0 + step as f32));
        }
        Ok(losses)
    }

    #[test]
    fn the_leak_right_and_wrong() {
        let right = no_leak(|pool, steps| train(pool, steps, drop));
        assert!(right.passed(), "{}", right.text());
        type Answer = fn(&PracticePool, usize) -> Result<Vec<f32>>;
        let wrong: [(Answer, &str); 8] = [
            (
                |pool, steps| {
                    let mut kept = Vec::new();
                    train(pool, steps, |buffer| kept.push(buffer))
                },
                "which variable still owns",
            ),
            (
                |pool, steps| {
                    let mut kept = Vec::new();
                    train(pool, steps, |buffer| {
                        kept.push(buffer);
                        if kept.len() == 16 {
                            kept.clear();
                        }
                    })
                },
                "outlived their step",
            ),
            (|pool, steps| train(pool, steps, std::mem::forget), "after 1 step, 64 MiB are still in use"),
            (|_, steps| train(&PracticePool::new(64 * MIB), steps, drop), "allocated 0 MiB in all"),
            (
                |pool, steps| {
                    let _once = pool.alloc(64 * MIB)?;
                    train(&PracticePool::new(64 * MIB), steps, drop)
                },
                "500 steps allocated 64 MiB in all",
            ),
            (|pool, steps| Ok(vec![0.0; train(pool, steps, drop)?.len()]), "it should be 1"),
            (|pool, steps| train(pool, steps.min(1), drop), "500 steps gave 1 losses"),
            (
                |pool, steps| {
                    let kept: Vec<PracticeBuffer> = (0..steps).map(|_| pool.alloc(64 * MIB).unwrap()).collect();
                    train(pool, kept.len(), drop)
                },
                "which variable still owns",
            ),
        ];
        for (answer, text) in wrong {
            let said = no_leak(answer).text();
            assert!(said.starts_with("NOT YET") && said.contains(text), "{said}");
        }
    }

    #[test]
    fn the_largest_batch_right_and_wrong() {
        let right = |pool: &PracticePool, wanted: usize, bytes: u64| {
            let mut batch = wanted;
            loop {
                match pool.alloc(batch as u64 * bytes) {
                    Ok(_) => return Ok(batch),
                    Err(Error::OutOfMemory { .. }) if batch > 1 => batch /= 2,
                    Err(error) => return Err(error),
                }
            }
        };
        assert!(largest_batch(right).passed(), "{}", largest_batch(right).text());
        type Answer = fn(&PracticePool, usize, u64) -> Result<usize>;
        let wrong: [(Answer, &str); 10] = [
            // Rounded up; one fewer at a time; the numbers of the pool in place of a try.
            (
                |pool, wanted, bytes| {
                    let mut batch = wanted;
                    loop {
                        match pool.alloc(batch as u64 * bytes) {
                            Ok(_) => return Ok(batch),
                            Err(Error::OutOfMemory { .. }) if batch > 1 => batch = batch.div_ceil(2),
                            Err(error) => return Err(error),
                        }
                    }
                },
                "5 items of 30 MiB in 96 MiB: a batch of 3, and it should be 2",
            ),
            (
                |pool, wanted, bytes| {
                    let mut batch = wanted;
                    while batch > 1 && pool.alloc(batch as u64 * bytes).is_err() {
                        batch -= 1;
                    }
                    pool.alloc(batch as u64 * bytes).map(|_| batch)
                },
                "none of these",
            ),
            (
                |pool, wanted, bytes| {
                    std::mem::forget(pool.alloc(bytes)?);
                    Ok(wanted)
                },
                "are still in use afterwards",
            ),
            (|pool, wanted, bytes| pool.alloc(wanted as u64 * bytes).map(|_| wanted), "catch `Error::OutOfMemory"),
            (|pool, wanted, bytes| pool.alloc(wanted as u64 * bytes).map(|_| wanted).or(Ok(wanted / 2)), "halve again"),
            (|pool, wanted, bytes| Ok(wanted.min((pool.memory().free / bytes) as usize)), "none of these"),
            (|pool, wanted, bytes| Ok(pool.alloc(wanted as u64 * bytes).map(|_| wanted).unwrap()), "`unwrap` ends"),
            (
                |pool, wanted, bytes| {
                    let mut batch = wanted;
                    while pool.alloc(batch as u64 * bytes).is_err() {
                        batch = (batch / 2).max(1);
                    }
                    Ok(batch)
                },
                "stop when the batch is 1",
            ),
            (|_, _, _| Ok(1), "it should be 256"),
            (
                |pool, mut batch, bytes| {
                    while batch > 0 && pool.alloc(batch as u64 * bytes).is_err() {
                        batch /= 2;
                    }
                    Ok(batch)
                },
                "a batch of 0",
            ),
        ];
        for (answer, text) in wrong {
            let said = largest_batch(answer).text();
            assert!(said.starts_with("NOT YET") && said.contains(text), "{said}");
        }
    }
}
