//! Exercises of lesson 03.

use super::Verdict;
use super::panics::{PANIC_HINT, run};
use crate::error::{Error, Result};
use crate::model::Pool;

const MIB: u64 = 1 << 20;

/// Checks a training loop: `steps` times it takes memory from the pool and notes one figure. It must run for any number
/// of steps, return one figure a step, and leave nothing behind.
pub fn no_leak(answer: fn(&Pool, usize) -> Result<Vec<f32>>) -> Verdict {
    const NAME: &str = "no_leak";
    for steps in [1, 3, 500, 0] {
        let pool = Pool::new(1024 * MIB);
        let figures = match run(|| answer(&pool, steps)) {
            Err(panic) => return Verdict::not_yet(NAME, panic, PANIC_HINT),
            Ok(Err(error)) => {
                let held = pool.memory().used_high / MIB;
                let what = format!("with {steps} steps in 1024 MiB (most in use: {held} MiB): {error}");
                return Verdict::not_yet(
                    NAME,
                    what,
                    "which variable still owns each step's buffer when the step is over?",
                );
            }
            Ok(Ok(figures)) => figures,
        };
        let stats = pool.memory();
        if stats.used != 0 {
            let what = format!("after {steps} steps, {} MiB are still in use", stats.used / MIB);
            return Verdict::not_yet(
                NAME,
                what,
                "a forgotten buffer (`std::mem::forget`, `Box::leak`) never comes back",
            );
        }
        if figures.len() != steps {
            let what = format!("{steps} steps gave {} figures", figures.len());
            return Verdict::not_yet(NAME, what, "keep the figure of every step: numbers are small, buffers are not");
        }
        if steps > 0 && stats.used_high == 0 {
            let what = "no step took any memory".to_string();
            return Verdict::not_yet(NAME, what, "each step still needs its buffer; it only must not keep it");
        }
    }
    Verdict::pass(NAME)
}

/// Checks a function that gives the largest of `wanted`, `wanted ÷ 2`, `wanted ÷ 4` … items that fit when each takes
/// `bytes` bytes. Out of memory with a single item, or any other error, is passed on.
pub fn largest_batch(answer: fn(&Pool, usize, u64) -> Result<usize>) -> Verdict {
    const NAME: &str = "largest_batch";
    let cases = [
        (1024, 256, MIB, Some(256)),
        (1024, 256, 10 * MIB, Some(64)),
        (96, 7, 64 * MIB, Some(1)),
        (64, 8, 65 * MIB, None),
    ];
    for (total_mib, wanted, bytes, expected) in cases {
        let pool = Pool::new(total_mib * MIB);
        let given = match run(|| answer(&pool, wanted, bytes)) {
            Err(panic) => {
                let hint = if panic.contains("endless") {
                    "stop when the batch is 1 and still does not fit, and pass the error on"
                } else {
                    PANIC_HINT
                };
                return Verdict::not_yet(NAME, panic, hint);
            }
            Ok(given) => given,
        };
        let case = format!("{wanted} items of {} MiB in {total_mib} MiB", bytes / MIB);
        if pool.memory().used != 0 {
            let what = format!("{case}: {} MiB are still in use afterwards", pool.memory().used / MIB);
            return Verdict::not_yet(NAME, what, "drop the batch's buffer before you return");
        }
        let (what, hint) = match (given, expected) {
            (Ok(given), Some(expected)) if given == expected => continue,
            (Err(Error::OutOfMemory { .. }), None) => continue,
            (Ok(0), None) => (
                "a batch of 0".to_string(),
                "not even one item fits: pass the out-of-memory error on, a batch of 0 trains nothing",
            ),
            (Ok(given), Some(expected)) => {
                (format!("a batch of {given}, and {expected} would do"), "halve only when it does not fit")
            }
            (Ok(given), None) => (format!("a batch of {given}"), "not even one item fits: pass the error on"),
            (Err(error), Some(_)) => {
                (error.to_string(), "catch `Error::OutOfMemory { .. }` with a `match`, halve the batch, and try again")
            }
            (Err(error), None) => (error.to_string(), "pass the out-of-memory error on as it is"),
        };
        return Verdict::not_yet(NAME, format!("{case}: {what}"), hint);
    }
    Verdict::pass(NAME)
}

/// Checks a prediction of the pool's (used, reserved) in MiB after each of five steps: allocate 100 MiB; drop it and
/// wait; set the release threshold to the maximum, allocate 100 MiB and drop it and wait; allocate 40 MiB; drop it and
/// trim to 0. The pool takes memory in pieces of 32 MiB.
pub fn pool_numbers(answer: [(u64, u64); 5]) -> Verdict {
    const NAME: &str = "pool_numbers";
    let truth = match pool_steps() {
        Ok(truth) => truth,
        Err(error) => return Verdict::not_yet(NAME, error.to_string(), "run the notebook from the top"),
    };
    let steps = [
        ("allocate 100 MiB", "what buffers hold is used; the pool takes whole pieces of 32 MiB"),
        ("drop it and wait", "with a threshold of 0, a wait gives all unused memory back"),
        ("threshold at maximum; allocate 100 MiB, drop it and wait", "the pool now keeps what it has"),
        ("allocate 40 MiB", "the pool has enough already: nothing new is reserved"),
        ("drop it and trim to 0", "trim gives back everything that is not in use"),
    ];
    for (at, ((step, hint), (given, truth))) in steps.into_iter().zip(answer.into_iter().zip(truth)).enumerate() {
        for (what, given, truth) in [("used", given.0, truth.0), ("reserved", given.1, truth.1)] {
            if given != truth {
                let what = format!(
                    "step {} ({step}): you predict {given} MiB {what}, and the pool has another number",
                    at + 1
                );
                return Verdict::not_yet(NAME, what, hint);
            }
        }
    }
    Verdict::pass(NAME)
}

fn pool_steps() -> Result<[(u64, u64); 5]> {
    let pool = Pool::new(1024 * MIB);
    let numbers = || {
        let stats = pool.memory();
        (stats.used / MIB, stats.reserved / MIB)
    };
    let first = pool.alloc(100 * MIB)?;
    let one = numbers();
    drop(first);
    let two = numbers();
    pool.set_release_threshold(u64::MAX);
    drop(pool.alloc(100 * MIB)?);
    let three = numbers();
    let last = pool.alloc(40 * MIB)?;
    let four = numbers();
    drop(last);
    pool.trim(0);
    Ok([one, two, three, four, numbers()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leak_right_and_wrong() {
        assert!(
            no_leak(|pool, steps| { (0..steps).map(|_| Ok(pool.alloc(64 * MIB)?.bytes() as f32)).collect() }).passed()
        );
        type Answer = fn(&Pool, usize) -> Result<Vec<f32>>;
        let wrong: [(Answer, &str); 4] = [
            (
                |pool, steps| {
                    let mut kept = Vec::new();
                    for _ in 0..steps {
                        kept.push(pool.alloc(64 * MIB)?);
                    }
                    Ok(kept.iter().map(|buffer| buffer.bytes() as f32).collect())
                },
                "which variable still owns",
            ),
            (
                |pool, steps| {
                    (0..steps).for_each(|_| std::mem::forget(pool.alloc(MIB)));
                    Ok(vec![0.0; steps])
                },
                "still in use",
            ),
            (|_, steps| Ok(vec![0.0; steps]), "no step took any memory"),
            (|pool, _| Ok(vec![pool.alloc(MIB)?.bytes() as f32]), "3 steps gave 1 figures"),
        ];
        for (answer, text) in wrong {
            let said = no_leak(answer).text();
            assert!(said.starts_with("NOT YET") && said.contains(text), "{said}");
        }
    }

    #[test]
    fn the_largest_batch_right_and_wrong() {
        let right = |pool: &Pool, wanted: usize, bytes: u64| {
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
        type Answer = fn(&Pool, usize, u64) -> Result<usize>;
        let wrong: [(Answer, &str); 4] = [
            (|pool, wanted, bytes| pool.alloc(wanted as u64 * bytes).map(|_| wanted), "catch `Error::OutOfMemory"),
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
            (|_, _, _| Ok(1), "256 would do"),
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

    #[test]
    fn the_pools_numbers_right_and_wrong() {
        assert!(pool_numbers([(100, 128), (0, 0), (0, 128), (40, 128), (0, 0)]).passed());
        assert!(pool_numbers([(100, 100), (0, 0), (0, 0), (0, 0), (0, 0)]).text().contains("whole pieces"));
        assert!(pool_numbers([(100, 128), (0, 128), (0, 0), (0, 0), (0, 0)]).text().contains("step 2"));
        assert!(pool_numbers([(100, 128), (0, 0), (0, 128), (40, 168), (0, 0)]).text().contains("nothing new"));
    }
}
