//! Ranks that are threads of this CPU.

use crate::cost::Link;
use crate::failure::{Failure, FailureCause};
use crate::log::Log;
use crate::port::{Fault, Group, Settings, Shared, Vanished};
use crate::rank::Rank;
use gpulab_measure::Result;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

/// So many ranks, each a thread with its own memory. They share nothing but messages, and each message is recorded.
///
/// Whatever is wrong with their calls ends the world with a [`Failure`] that names rank, call, file and line:
/// ```
/// use gpulab_ranks::{FailureCause, Collectives, Op, World};
/// let failure = World::new(3)
///     .run(|rank| {
///         let mut x = vec![1.0_f32; 4];
///         if rank.rank() != 1 {
///             rank.all_reduce(&mut x, Op::Sum)?; // rank 1 skips it
///         }
///         Ok(())
///     })
///     .unwrap_err();
/// assert_eq!((failure.cause, failure.ranks.as_slice()), (FailureCause::Deadlock, &[0, 2][..]));
/// assert!(failure.what.contains("rank 2 waits in `all_reduce`") && failure.what.contains("rank 1 has ended"));
/// ```
#[derive(Debug, Clone)]
#[must_use = "a world does nothing until it runs"]
pub struct World {
    ranks: usize,
    settings: Settings,
}

/// What ranks returned, and what they sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Run<T> {
    /// What each rank returned.
    pub results: Vec<T>,
    /// What they sent.
    pub log: Log,
}

impl World {
    /// So many ranks; a rank that waits longer than 10 s ends the world.
    ///
    /// # Panics
    /// For no rank at all.
    pub fn new(ranks: usize) -> World {
        assert!(ranks > 0, "a world has at least one rank\nnext: give a number from 1");
        let settings =
            Settings { limit: Duration::from_secs(10), rendezvous: false, recorded: true, faults: Vec::new() };
        World { ranks, settings }
    }

    /// A rank that waits longer than this ends the world, and the rank that it waits for is named.
    pub fn time_limit(mut self, limit: Duration) -> World {
        self.settings.limit = limit;
        self
    }

    /// From now on a send returns only when its message has been received. MPI may do so with any message, and NCCL does; without
    /// it a message waits in memory for its receiver.
    pub fn rendezvous(mut self) -> World {
        self.settings.rendezvous = true;
        self
    }

    /// From now on neither messages nor calls are recorded, so that a long run needs no memory for them: its log stays empty.
    ///
    /// # Examples
    /// ```
    /// use gpulab_ranks::{Collectives, Op, World};
    /// let run = World::new(2).unrecorded().run(|rank| rank.all_reduce(&mut [1.0_f32; 8][..], Op::Sum))?;
    /// assert!(run.log.messages.is_empty() && run.log.calls.is_empty());
    /// # Ok::<(), gpulab_measure::Error>(())
    /// ```
    pub fn unrecorded(mut self) -> World {
        self.settings.recorded = false;
        self
    }

    /// That rank vanishes, as a killed process does, in place of sending its message of this number (from 0).
    pub fn kill(mut self, rank: usize, message: usize) -> World {
        self.settings.faults.push(Fault::Dies { rank, message });
        self
    }

    /// That rank takes so much longer before each collective.
    pub fn slow(mut self, rank: usize, by: Duration) -> World {
        self.settings.faults.push(Fault::Slow { rank, by });
        self
    }

    /// Runs `code` on every rank at once, and gives what each of them returned.
    ///
    /// # Errors
    /// A [`Failure`], as soon as one rank panics, dies or returns an error, when calls do not fit together, when all wait for each
    /// other, or when one is late. All other ranks are woken, and their calls return that error. A rank that computes for ever
    /// cannot be ended: a thread ends of its own accord alone.
    pub fn run<T: Send>(&self, code: impl Fn(&Rank) -> Result<T> + Sync) -> Result<Run<T>, Failure> {
        let results: Vec<Mutex<Option<T>>> = (0..self.ranks).map(|_| Mutex::new(None)).collect();
        // All that does not depend on `T` is compiled once, here, and not by each caller.
        let log = self.run_all(&|rank| {
            let result = code(rank)?;
            *results[rank.rank()].lock().expect("only its own rank locks it") = Some(result);
            Ok(())
        })?;
        let own = |result: Mutex<Option<T>>| result.into_inner().ok().flatten().expect("no rank failed");
        Ok(Run { results: results.into_iter().map(own).collect(), log })
    }

    /// [`World::run`] of code that keeps its own results.
    fn run_all(&self, code: &(dyn Fn(&Rank) -> Result<()> + Sync)) -> Result<Log, Failure> {
        let shared = Arc::new(Shared::new(self.ranks, self.settings.clone(), None));
        let world = Arc::new(Group { id: 0, members: (0..self.ranks).collect() });
        let one = |rank: usize| {
            let own = Rank::new(Arc::clone(&shared), Arc::clone(&world), rank);
            shared.ended(rank, caught(|| code(&own)));
        };
        std::thread::scope(|scope| {
            let spawn = |rank: usize| {
                let thread = std::thread::Builder::new().name(format!("rank {rank}")).stack_size(8 << 20);
                let one = &one;
                thread.spawn_scoped(scope, move || one(rank)).expect("the system gives a thread for each rank")
            };
            let threads: Vec<_> = (0..self.ranks).map(spawn).collect();
            threads.into_iter().for_each(|thread| thread.join().expect("panics are caught"));
        });
        // In steps of a world in which each message takes one.
        let in_steps = |log: Log| {
            let starts = Link::UNIT.replay_with(&log, 0.0).starts_us;
            log.in_steps(&starts)
        };
        match shared.outcome() {
            Ok(log) => Ok(in_steps(log)),
            Err(failure) => Err(Failure { log: Box::new(in_steps(*failure.log)), ..failure }),
        }
    }
}

thread_local! {
    /// Whether a panic of this thread is caught by a world, which tells it in its own words.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
    /// Where the last one was.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs a rank's code, and says how it failed, if it did.
pub(crate) fn caught(code: impl FnOnce() -> Result<()>) -> Option<(FailureCause, String)> {
    quiet_panics();
    CAUGHT.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(code));
    CAUGHT.set(false);
    match outcome {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some((FailureCause::Failed, error.to_string())),
        Err(payload) if payload.is::<Vanished>() => Some((FailureCause::Died, String::new())),
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
            Some((FailureCause::Panicked, format!("{text}{}", PLACE.take())))
        }
    }
}

/// Panics of ranks print nothing: what they say stands in the failure.
fn quiet_panics() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| match CAUGHT.get() {
            true => PLACE.set(info.location().map_or(String::new(), |at| format!(" ({}:{})", at.file(), at.line()))),
            false => before(info),
        }));
    });
}
