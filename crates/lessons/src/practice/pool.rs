//! A memory pool in virtual bytes.

use gpulab::error::{Error, Result};
use gpulab::measurement::MemoryStats;
use std::sync::{Arc, Mutex, MutexGuard};

/// The pool takes memory from the device in pieces of this size, as the recorded H200 does.
const PIECE: u64 = 32 << 20;
/// More failed requests than any sensible answer makes; an endless loop ends here.
const MOST_REFUSALS: usize = 10_000;

/// A device's memory with the pool in front of it. Clones mean the same pool.
///
/// As with CUDA's pool: the memory of a dropped buffer stays reserved, ready for the next allocation; at a
/// [`Pool::synchronize`] all that is unused above the release threshold goes back to the device.
#[derive(Debug, Clone)]
pub struct Pool(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    stats: MemoryStats,
    threshold: u64,
    handed_out: u64,
    refusals: usize,
}

/// Memory of a [`Pool`]. Dropping it frees it.
#[derive(Debug)]
pub struct PoolBuffer {
    pool: Pool,
    bytes: u64,
}

impl Pool {
    /// A device with `total` bytes, none of them taken. The release threshold is 0, as the driver's.
    pub fn new(total: u64) -> Pool {
        let stats = MemoryStats { used: 0, reserved: 0, used_high: 0, reserved_high: 0, free: total, total };
        Pool(Arc::new(Mutex::new(State { stats, threshold: 0, handed_out: 0, refusals: 0 })))
    }

    /// Allocates `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when device and pool together hold too little.
    pub fn alloc(&self, bytes: u64) -> Result<PoolBuffer> {
        let mut state = self.state();
        let stats = &mut state.stats;
        let unused = stats.reserved - stats.used;
        let missing = bytes.saturating_sub(unused).div_ceil(PIECE) * PIECE;
        if missing > stats.free {
            let error = Error::OutOfMemory { asked: bytes, free: stats.free, total: stats.total, reserved: unused };
            state.refusals += 1;
            assert!(
                state.refusals <= MOST_REFUSALS,
                "the pool refused {MOST_REFUSALS} requests: is this an endless loop?"
            );
            return Err(error);
        }
        stats.free -= missing;
        stats.reserved += missing;
        stats.used += bytes;
        stats.used_high = stats.used_high.max(stats.used);
        stats.reserved_high = stats.reserved_high.max(stats.reserved);
        state.handed_out += bytes;
        Ok(PoolBuffer { pool: self.clone(), bytes })
    }

    /// Waits for the GPU: unused memory above the threshold goes back to the device.
    pub fn synchronize(&self) {
        let mut state = self.state();
        let threshold = state.threshold;
        release(&mut state.stats, threshold);
    }

    /// The three numbers, after a [`Pool::synchronize`].
    pub fn memory(&self) -> MemoryStats {
        self.synchronize();
        self.state().stats
    }

    /// The bytes of all buffers so far together, also of those that are dropped.
    pub fn handed_out(&self) -> u64 {
        self.state().handed_out
    }

    /// How many bytes the pool keeps when it is synchronised.
    pub fn set_release_threshold(&self, bytes: u64) {
        self.state().threshold = bytes;
    }

    /// Gives unused memory back until at most `keep` bytes stay reserved.
    pub fn trim(&self, keep: u64) {
        self.synchronize();
        release(&mut self.state().stats, keep);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in a learner's code must not make the pool unusable for the check that reports it.
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Gives whole unused pieces back until at most `keep` bytes stay reserved.
fn release(stats: &mut MemoryStats, keep: u64) {
    let needed = stats.used.max(keep.min(stats.reserved)).div_ceil(PIECE) * PIECE;
    let returned = stats.reserved.saturating_sub(needed);
    stats.reserved -= returned;
    stats.free += returned;
}

impl PoolBuffer {
    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for PoolBuffer {
    fn drop(&mut self) {
        self.pool.state().stats.used -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const MIB: u64 = 1 << 20;

    #[test]
    fn the_three_numbers_over_a_buffers_life() {
        let pool = Pool::new(1024 * MIB);
        let numbers = |pool: &Pool| {
            let stats = pool.memory();
            [stats.used / MIB, stats.reserved / MIB, stats.free / MIB]
        };
        assert_eq!(numbers(&pool), [0, 0, 1024]);
        let buffer = pool.alloc(100 * MIB).unwrap();
        assert_eq!(numbers(&pool), [100, 128, 896]);
        pool.set_release_threshold(u64::MAX);
        drop(buffer);
        assert_eq!(numbers(&pool), [0, 128, 896]);
        pool.trim(0);
        assert_eq!(numbers(&pool), [0, 0, 1024]);
        assert_eq!((pool.memory().used_high, pool.handed_out()), (100 * MIB, 100 * MIB));
    }

    #[test]
    fn freed_memory_is_used_again_and_goes_back_at_the_wait() {
        let pool = Pool::new(64 * MIB);
        drop(pool.alloc(40 * MIB).unwrap());
        let again = pool.alloc(64 * MIB).unwrap();
        let message = pool.alloc(1).unwrap_err().to_string();
        assert!(message.contains("1 B asked, 0 B free of 64.0 MiB"), "{message}");
        drop(again);
        assert_eq!(pool.memory().reserved, 0);
    }
}
