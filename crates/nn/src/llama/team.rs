//! Threads that stay awake for as long as a step of the model takes: its products are too short to wake anybody for each of them.
//!
//! The threads are rayon's. One leads and hands out jobs of numbered parts; the others look for parts to take until the leader is
//! done. Nobody is waited for who has taken nothing, so a step ends also where all other threads are busy elsewhere.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Looks at a changing number before a thread lets others run: some microseconds.
const LOOKS: usize = 4000;
/// Bits of a part's number in [`Team::ticket`].
const BITS: u32 = 20;
const MASK: u64 = (1 << BITS) - 1;

type Job<'a> = &'a (dyn Fn(usize) + Sync);

/// The leader's view.
pub(super) struct Team {
    /// The job's number, how many parts it has, and the next part that nobody has taken: one word, so that they belong together.
    ticket: AtomicU64,
    job: UnsafeCell<Option<Job<'static>>>,
    done: AtomicUsize,
    over: AtomicBool,
    failed: AtomicBool,
    threads: usize,
}

// SAFETY: `job` is written by the leader alone, while no part of the job before it is left to anybody (see `each`).
unsafe impl Sync for Team {}

impl Team {
    /// Runs `body` on this thread, with rayon's others beside it.
    pub fn with<R>(body: impl FnOnce(&Team) -> R) -> R {
        let threads = rayon::current_num_threads();
        let team = Team {
            ticket: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            done: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            threads,
        };
        let team = &team;
        rayon::in_place_scope(|scope| {
            (1..threads).for_each(|_| scope.spawn(|_| team.help()));
            let _over = Over(&team.over);
            body(team)
        })
    }

    /// How many threads there are.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs a job's parts, on whatever thread is free first, and returns when all have ended.
    pub fn each(&self, parts: usize, job: impl Fn(usize) + Sync) {
        if parts <= 1 || self.threads == 1 {
            return (0..parts).for_each(job);
        }
        assert!(parts as u64 <= MASK / 2, "a job of {parts} parts");
        let shared: Job<'_> = &job;
        self.done.store(0, Ordering::Relaxed);
        // SAFETY: all parts of the job before have ended, and one part too many is refused by its number alone, so nobody reads
        // `job`. The reference outlives its use: this function returns when all parts have ended, panics included.
        unsafe { *self.job.get() = Some(std::mem::transmute::<Job<'_>, Job<'static>>(shared)) };
        let number = (self.ticket.load(Ordering::Relaxed) >> (2 * BITS)) + 1;
        self.ticket.store((number << (2 * BITS)) | ((parts as u64) << BITS), Ordering::Release);
        let mut panic = None;
        while let Some(part) = self.take() {
            if let Err(what) = catch_unwind(AssertUnwindSafe(|| job(part))) {
                panic = Some(what);
            }
            self.done.fetch_add(1, Ordering::Release);
        }
        wait(|| self.done.load(Ordering::Acquire) == parts);
        if let Some(what) = panic {
            resume_unwind(what);
        }
        assert!(!self.failed.load(Ordering::Relaxed), "a part of a job panicked on another thread");
    }

    /// The next part of the job, unless all are taken.
    fn take(&self) -> Option<usize> {
        let ticket = self.ticket.fetch_add(1, Ordering::Acquire);
        let (parts, part) = ((ticket >> BITS) & MASK, ticket & MASK);
        (part < parts).then_some(part as usize)
    }

    fn help(&self) {
        let number = || self.ticket.load(Ordering::Acquire) >> (2 * BITS);
        let mut last = 0;
        loop {
            wait(|| number() != last || self.over.load(Ordering::Acquire));
            if self.over.load(Ordering::Acquire) {
                return;
            }
            // Before the parts: those of a later job may be among them, and it is then looked at once too often.
            last = number();
            while let Some(part) = self.take() {
                // SAFETY: this part was taken and has not ended, so the leader is in `each` and `job` stays as it is.
                let job = unsafe { (*self.job.get()).expect("a ticket comes after its job") };
                let done = catch_unwind(AssertUnwindSafe(|| job(part)));
                self.failed.fetch_or(done.is_err(), Ordering::Relaxed);
                self.done.fetch_add(1, Ordering::Release);
            }
        }
    }
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn wait(until: impl Fn() -> bool) {
    let mut looks = 0;
    while !until() {
        looks += 1;
        match looks < LOOKS {
            true => std::hint::spin_loop(),
            // The other thread may need this very core.
            false => std::thread::yield_now(),
        }
    }
}

/// A slice to which the parts of a job write, each to elements of its own.
#[derive(Clone, Copy)]
pub(super) struct DisjointSlices<'a, T>(*mut T, usize, PhantomData<&'a mut [T]>);

// SAFETY: whoever asks for elements promises that nobody else does.
unsafe impl<T: Send> Sync for DisjointSlices<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for DisjointSlices<'_, T> {}

impl<'a, T> DisjointSlices<'a, T> {
    pub fn of(all: &'a mut [T]) -> DisjointSlices<'a, T> {
        DisjointSlices(all.as_mut_ptr(), all.len(), PhantomData)
    }

    /// # Safety
    /// No two of these that overlap are held at a time.
    pub unsafe fn at(&self, start: usize, count: usize) -> &'a mut [T] {
        assert!(start.checked_add(count).is_some_and(|end| end <= self.1), "{start} + {count} of {}", self.1);
        // SAFETY: within the slice, which is borrowed for as long; the caller promises the rest.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_runs_once_and_jobs_come_one_after_the_other() {
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                Team::with(|team| {
                    assert_eq!(team.threads(), threads);
                    let mut counts = vec![0_usize; 1000];
                    for round in 1..200 {
                        let parts = [0, 1, 2, 7, 1000][round % 5];
                        let before = counts.clone();
                        let slices = DisjointSlices::of(&mut counts);
                        // SAFETY: a part has its own number's place.
                        team.each(parts, |part| unsafe { slices.at(part, 1)[0] += 1 });
                        let right = |at: usize| counts[at] == before[at] + usize::from(at < parts);
                        assert!((0..1000).all(right), "{threads} threads, round {round}");
                    }
                })
            });
        }
    }

    #[test]
    fn teams_side_by_side_and_within_each_other_come_to_their_end() {
        let sum = || {
            Team::with(|team| {
                let sum = AtomicUsize::new(0);
                (0..50).for_each(|_| team.each(20, |part| _ = sum.fetch_add(part, Ordering::Relaxed)));
                sum.into_inner()
            })
        };
        let outer: Vec<usize> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(sum)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(outer.iter().all(|sum| *sum == 50 * 190));
        let (one, two) = rayon::join(sum, || Team::with(|_| sum()));
        assert_eq!((one, two), (9500, 9500));
    }

    #[test]
    fn a_panic_in_any_part_reaches_the_leader() {
        for bad in 0..16 {
            let run = || Team::with(|team| team.each(16, |part| assert!(part != bad, "part {part}")));
            assert!(catch_unwind(run).is_err());
        }
        // Elements outside are none.
        let mut three = [1, 2, 3];
        let slices = DisjointSlices::of(&mut three);
        // SAFETY: nothing is held: it panics.
        assert!(catch_unwind(AssertUnwindSafe(|| unsafe { slices.at(2, 2).len() })).is_err());
    }
}
