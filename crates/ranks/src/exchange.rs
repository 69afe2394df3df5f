//! What the threads of one process tell each other: addresses and handles, before the work goes to the GPUs.

use gpulab_measure::{Error, Result};
use std::any::Any;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a rank waits for the others.
const LIMIT: Duration = Duration::from_secs(10);

type Value = Arc<dyn Any + Send + Sync>;

/// A place where each rank of a group puts a value, and takes all of them.
pub(crate) struct Exchange {
    state: Mutex<State>,
    came: Condvar,
}

struct State {
    round: u64,
    values: Vec<Option<Value>>,
    /// Of the round before. All have taken them before the one behind it can end.
    complete: Vec<Value>,
}

impl Exchange {
    pub fn new(ranks: usize) -> Exchange {
        let state = State { round: 0, values: vec![None; ranks], complete: Vec::new() };
        Exchange { state: Mutex::new(state), came: Condvar::new() }
    }

    /// The values of all ranks, in their order; an error when `alive` has one, or a rank does not come.
    pub fn gather<T: Clone + Send + Sync + 'static>(
        &self,
        rank: usize,
        value: T,
        alive: &dyn Fn() -> Result<()>,
    ) -> Result<Vec<T>> {
        let begin = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let round = state.round;
        state.values[rank] = Some(Arc::new(value));
        if state.values.iter().all(Option::is_some) {
            state.complete = state.values.iter_mut().filter_map(Option::take).collect();
            state.round += 1;
            self.came.notify_all();
        }
        while state.round == round {
            alive()?;
            if begin.elapsed() > LIMIT {
                let missing: Vec<String> = (0..state.values.len())
                    .filter(|other| state.values[*other].is_none())
                    .map(|other| other.to_string())
                    .collect();
                return Err(Error::invalid(
                    format!("rank {rank} has waited {} s for rank {}", LIMIT.as_secs(), missing.join(" and ")),
                    "let every rank make the same calls in the same order",
                ));
            }
            let waited = self.came.wait_timeout(state, Duration::from_millis(20));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let mistyped =
            || Error::invalid("the ranks make different calls", "let every rank make the same calls in the same order");
        state.complete.iter().map(|value| value.downcast_ref::<T>().cloned().ok_or_else(mistyped)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ranks_get_what_all_gave_in_each_round() {
        let exchange = Exchange::new(3);
        std::thread::scope(|scope| {
            for rank in 0..3 {
                let exchange = &exchange;
                scope.spawn(move || {
                    for round in 0..100 {
                        let all = exchange.gather(rank, (rank, round), &|| Ok(())).unwrap();
                        assert_eq!(all, [(0, round), (1, round), (2, round)]);
                    }
                });
            }
        });
    }

    #[test]
    fn a_rank_that_fails_is_not_waited_for() {
        let failed = || Err(Error::invalid("rank 1: the loss is NaN", "lower the learning rate"));
        assert!(Exchange::new(2).gather(0, 1, &failed).unwrap_err().to_string().contains("the loss is NaN"));
    }
}
