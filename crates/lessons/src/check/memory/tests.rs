//! Right answers pass, and each wrong one is told what is wrong with it.

use super::*;
use crate::practice::PoolBuffer;

/// What the notebook's loop returns, with `hold` deciding what becomes of each step's buffer.
fn train(pool: &Pool, steps: usize, mut hold: impl FnMut(PoolBuffer)) -> Result<Vec<f32>> {
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
    type Answer = fn(&Pool, usize) -> Result<Vec<f32>>;
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
        (|_, steps| train(&Pool::new(64 * MIB), steps, drop), "allocated 0 MiB in all"),
        (
            |pool, steps| {
                let _once = pool.alloc(64 * MIB)?;
                train(&Pool::new(64 * MIB), steps, drop)
            },
            "500 steps allocated 64 MiB in all",
        ),
        (|pool, steps| Ok(vec![0.0; train(pool, steps, drop)?.len()]), "it should be 1"),
        (|pool, steps| train(pool, steps.min(1), drop), "500 steps gave 1 losses"),
        (
            |pool, steps| {
                let kept: Vec<PoolBuffer> = (0..steps).map(|_| pool.alloc(64 * MIB).unwrap()).collect();
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
    let wrong: [(Answer, &str); 7] = [
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

#[test]
fn the_pools_numbers_right_and_wrong() {
    assert!(pool_numbers([(100, 128), (0, 0), (0, 128), (40, 128), (0, 0)]).passed());
    assert!(pool_numbers([(100, 100), (0, 0), (0, 0), (0, 0), (0, 0)]).text().contains("whole pieces"));
    assert!(pool_numbers([(100, 128), (0, 0), (0, 128), (128, 128), (0, 0)]).text().contains("live buffers"));
    assert!(pool_numbers([(100 << 20, 128 << 20); 5]).text().contains("in MiB"));
    assert!(pool_numbers([(100, 128), (0, 128), (0, 0), (0, 0), (0, 0)]).text().contains("step 2"));
    assert!(pool_numbers([(100, 128), (0, 0), (0, 128), (40, 168), (0, 0)]).text().contains("nothing new"));
}
