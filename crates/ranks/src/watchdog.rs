//! A watchdog over calls that NCCL holds on the host.
//!
//! A collective is queued and returns, but the *first* one of a communicator connects the ranks (so does the first message between two
//! of them), and returns only when the others make it as well. A rank that skips it, or that has failed before it, would hold the
//! others inside of NCCL for ever: they cannot look up. A thread looks for them, and aborts the communicator of a call that takes too
//! long, as PyTorch's `ProcessGroupNCCL` does; the call then returns with an error.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long a call may be held. To connect the ranks of a machine takes a second or some.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);
/// The same, where another rank is known to have failed.
const AFTER_A_FAILURE: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(50);

/// A rank's communicator, and the call that it makes just now.
#[derive(Debug)]
pub(crate) struct Seat {
    /// Null once it was aborted or given away.
    comm: AtomicPtr<c_void>,
    pub(crate) rank: usize,
    call: Mutex<Option<(Instant, &'static str)>>,
}

impl Seat {
    pub(crate) fn comm(&self) -> *mut c_void {
        self.comm.load(Ordering::Acquire)
    }

    /// The communicator, for whoever ends it: it is given once.
    pub(crate) fn take(&self) -> *mut c_void {
        self.comm.swap(std::ptr::null_mut(), Ordering::AcqRel)
    }

    /// Makes a call that may be held.
    pub(crate) fn during(&self, name: &'static str, call: impl FnOnce() -> c_int) -> c_int {
        *held(&self.call) = Some((Instant::now(), name));
        let code = call();
        *held(&self.call) = None;
        code
    }

    fn calling(&self) -> Option<(Duration, &'static str)> {
        held(&self.call).map(|(since, name)| (since.elapsed(), name))
    }
}

fn held<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ranks of this process, and their seats.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    seats: Mutex<Vec<Weak<Seat>>>,
    /// Those that have ended among them.
    ranks: Mutex<BTreeSet<usize>>,
    over: AtomicBool,
}

/// Ends the watch when it is dropped.
pub(crate) struct Watch(Arc<Watchdog>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
    }
}

/// A call that is held for too long.
pub(crate) struct Held {
    pub(crate) seat: Arc<Seat>,
    pub(crate) call: &'static str,
    pub(crate) seconds: f64,
    /// Ranks of this process that are in no call.
    pub(crate) elsewhere: Vec<usize>,
}

impl Watchdog {
    pub(crate) fn seat(&self, comm: *mut c_void, rank: usize) -> Arc<Seat> {
        let seat = Arc::new(Seat { comm: AtomicPtr::new(comm), rank, call: Mutex::new(None) });
        held(&self.seats).push(Arc::downgrade(&seat));
        held(&self.ranks).insert(rank);
        seat
    }

    /// Looks after the seats in a thread of its own until the watch is dropped; `release` is told of each call that is held for too
    /// long, and ends it.
    pub(crate) fn watch(
        self: &Arc<Self>,
        failed: impl Fn() -> bool + Send + 'static,
        release: impl Fn(Held) + Send + 'static,
    ) -> Watch {
        let watchdog = Arc::clone(self);
        std::thread::spawn(move || {
            while !watchdog.over.load(Ordering::Acquire) {
                std::thread::sleep(LOOK);
                let limit = if failed() { AFTER_A_FAILURE } else { LIMIT };
                watchdog.held_longer_than(limit).into_iter().for_each(&release);
            }
        });
        Watch(Arc::clone(self))
    }

    fn held_longer_than(&self, limit: Duration) -> Vec<Held> {
        let mut seats = held(&self.seats);
        seats.retain(|seat| seat.strong_count() > 0);
        let seats: Vec<Arc<Seat>> = seats.iter().filter_map(Weak::upgrade).collect();
        let mut elsewhere = held(&self.ranks).clone();
        for seat in seats.iter().filter(|seat| seat.calling().is_some()) {
            elsewhere.remove(&seat.rank);
        }
        let elsewhere: Vec<usize> = elsewhere.into_iter().collect();
        let late = seats.iter().filter_map(|seat| {
            let (elapsed, call) = seat.calling().filter(|(elapsed, _)| *elapsed > limit)?;
            let (seat, elsewhere) = (Arc::clone(seat), elsewhere.clone());
            (!seat.comm().is_null()).then_some(Held { call, seconds: elapsed.as_secs_f64(), elsewhere, seat })
        });
        late.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn some() -> *mut c_void {
        std::ptr::dangling_mut::<u64>().cast()
    }

    #[test]
    fn a_call_that_is_held_is_told_with_who_is_elsewhere_or_has_ended() {
        let watchdog = Watchdog::default();
        let [first, _] = [0, 1].map(|rank| watchdog.seat(some(), rank));
        assert!(watchdog.held_longer_than(Duration::ZERO).is_empty());
        let code = first.during("an all-reduce", || {
            std::thread::sleep(Duration::from_millis(5));
            let late = watchdog.held_longer_than(Duration::from_millis(1));
            assert!(watchdog.held_longer_than(Duration::from_secs(60)).is_empty());
            assert_eq!(late.len(), 1);
            assert_eq!((late[0].seat.rank, late[0].call, late[0].elsewhere.as_slice()), (0, "an all-reduce", &[1][..]));
            assert!(late[0].seconds >= 0.005);
            7
        });
        assert_eq!(code, 7);
        assert!(watchdog.held_longer_than(Duration::ZERO).is_empty(), "it has returned");
    }

    #[test]
    fn a_communicator_is_taken_once_and_then_no_longer_told() {
        let watchdog = Watchdog::default();
        let seat = watchdog.seat(some(), 0);
        seat.during("a broadcast", || {
            assert!(!seat.take().is_null());
            assert!(seat.take().is_null() && seat.comm().is_null());
            assert!(watchdog.held_longer_than(Duration::ZERO).is_empty());
            0
        });
    }

    #[test]
    fn after_a_failure_a_held_call_is_released_soon_and_the_watch_ends_with_its_guard() {
        let watchdog = Arc::new(Watchdog::default());
        let seat = watchdog.seat(some(), 3);
        let (tell, told) = channel();
        let watch =
            watchdog.watch(|| true, move |held: Held| tell.send((held.seat.rank, held.seat.take().is_null())).unwrap());
        seat.during("a send", || {
            assert_eq!(told.recv_timeout(LIMIT / 2).unwrap(), (3, false));
            1
        });
        drop(watch);
        // The thread drops its sender.
        assert!(told.recv_timeout(LIMIT / 2).is_err());
        assert_eq!(Arc::strong_count(&watchdog), 1);
    }
}
