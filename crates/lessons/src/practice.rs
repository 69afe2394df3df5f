//! Small models of a GPU's launch queue and memory pool, for exercises that must be checkable on any machine.
//!
//! They run in virtual time and virtual bytes: what they give are answers to "what happens", never measurements.

use gpulab::error::{Error, Result};
use gpulab::measurement::{MemoryStats, Span};
use std::sync::{Arc, Mutex, MutexGuard};

/// The host's cost of one launch, in µs of virtual time: about what a launch through cudarc took on an H200.
const LAUNCH_US: f64 = 4.0;
/// What the first launch of all costs on top, in µs: the driver loads the kernel's code then.
const FIRST_LAUNCH_US: f64 = 900.0;
/// A copy of a few bytes, in µs.
const COPY_US: f64 = 2.0;
/// More calls than any sensible answer makes; an endless loop ends here.
const MOST_CALLS: usize = 1_000_000;

/// PracticeKernel for a queue: a kernel that takes some time, which only a measurement can find out.
#[derive(Clone, Copy)]
pub struct PracticeKernel {
    us: f64,
}

impl PracticeKernel {
    /// A kernel that takes about `us` µs on the GPU.
    pub fn of_us(us: f64) -> PracticeKernel {
        PracticeKernel { us }
    }
}

impl std::fmt::Debug for PracticeKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PracticeKernel(time it)")
    }
}

/// A GPU's launch queue and the host in front of it, in virtual microseconds.
///
/// The host pays 4 µs for each launch and goes on; the GPU works through the queue in order. The first launch costs
/// 900 µs more. Kernels take the time they were given, give or take 2 %, and one in ten takes twice as long, as on a
/// machine that others use too.
#[derive(Clone)]
pub struct PracticeQueue {
    host_us: f64,
    gpu_us: f64,
    loaded: bool,
    launches: usize,
    calls: usize,
    noise: u64,
    fault_at: Option<usize>,
    spans: Vec<Span>,
}

/// A mark on the GPU's side of the queue: the moment when it has done all work queued before.
#[derive(Clone, Copy, PartialEq)]
pub struct PracticeEvent {
    gpu_us: f64,
}

impl std::fmt::Debug for PracticeEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PracticeEvent(compare it with another)")
    }
}

impl PracticeEvent {
    /// Microseconds of GPU time from `start` to this mark.
    pub fn us_since(&self, start: &PracticeEvent) -> f64 {
        self.gpu_us - start.gpu_us
    }
}

impl std::fmt::Debug for PracticeQueue {
    /// What a queue tells without a measurement: which launch fails, and how long kernels take, is not among it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PracticeQueue").field("launches", &self.launches).finish_non_exhaustive()
    }
}

impl Default for PracticeQueue {
    fn default() -> PracticeQueue {
        PracticeQueue::new()
    }
}

impl PracticeQueue {
    /// An empty queue at time 0.
    pub fn new() -> PracticeQueue {
        PracticeQueue::with_seed(1)
    }

    /// The same with other noise.
    pub fn with_seed(seed: u64) -> PracticeQueue {
        PracticeQueue {
            host_us: 0.0,
            gpu_us: 0.0,
            loaded: false,
            launches: 0,
            calls: 0,
            // The generator below needs a state that is not zero.
            noise: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            fault_at: None,
            spans: Vec::new(),
        }
    }

    /// An empty queue at time 0 that has its first, slow launch behind it.
    pub fn warmed_up() -> PracticeQueue {
        PracticeQueue { loaded: true, ..PracticeQueue::new() }
    }

    /// Lets the launch of this number (from 0) fail on the GPU, later than the launch returns.
    pub fn with_fault_at(mut self, launch: usize) -> PracticeQueue {
        self.fault_at = Some(launch);
        self
    }

    /// The host's clock, in µs: what `Instant::now()` is to a real program.
    pub fn now_us(&self) -> f64 {
        self.host_us
    }

    /// Queues a kernel, and returns at once (in 4 µs).
    ///
    /// # Errors
    /// A fault of a kernel launched *earlier*, once the GPU has got there: errors arrive late.
    pub fn launch(&mut self, work: PracticeKernel) -> Result<()> {
        self.count_call();
        self.report_fault(self.host_us, "a launch")?;
        let began = self.host_us;
        self.host_us += LAUNCH_US + if self.loaded { 0.0 } else { FIRST_LAUNCH_US };
        self.loaded = true;
        let start = self.gpu_us.max(self.host_us);
        self.gpu_us = start + work.us * self.next_noise();
        self.span("host", format!("launch {}", self.launches), began, self.host_us);
        self.span("GPU", format!("kernel {}", self.launches), start, self.gpu_us);
        self.launches += 1;
        Ok(())
    }

    /// The host does something else for so many µs.
    pub(crate) fn host_work(&mut self, label: &str, us: f64) {
        let began = self.host_us;
        self.host_us += us;
        self.span("host", label.to_string(), began, self.host_us);
    }

    /// Copies a few bytes to the host: they are there when the GPU has done everything queued before, and the copy.
    pub(crate) fn copy_to_host(&mut self) {
        let (began, start) = (self.host_us, self.gpu_us.max(self.host_us));
        self.gpu_us = start + COPY_US;
        self.host_us = self.gpu_us;
        self.span("GPU", "copy".to_string(), start, self.gpu_us);
        self.span("host", "copy 4 bytes".to_string(), began, self.host_us);
    }

    /// Waits until the GPU has done everything queued.
    ///
    /// # Errors
    /// A fault of any kernel launched before.
    pub fn synchronize(&mut self) -> Result<()> {
        self.count_call();
        let began = self.host_us;
        self.host_us = self.host_us.max(self.gpu_us);
        self.span("host", "synchronize".to_string(), began, self.host_us);
        self.report_fault(f64::INFINITY, "synchronize")
    }

    /// A mark at the queue's end: an event, recorded and waited for when it is read.
    pub fn event(&mut self) -> PracticeEvent {
        self.count_call();
        // Nothing queued: the GPU reaches the mark when the host has sent it.
        self.gpu_us = self.gpu_us.max(self.host_us);
        PracticeEvent { gpu_us: self.gpu_us }
    }

    /// What the host and the GPU did, and when; for `plot::timeline`.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// How many kernels were launched.
    pub fn launches(&self) -> usize {
        self.launches
    }

    fn span(&mut self, lane: &str, label: String, start_us: f64, end_us: f64) {
        self.spans.push(Span::new(lane, &label, start_us / 1e3, end_us / 1e3));
    }

    /// Reports the planted fault once its kernel has ended before `seen_us` on the GPU.
    fn report_fault(&self, seen_us: f64, during: &str) -> Result<()> {
        let Some(fault) = self.fault_at.filter(|&at| at < self.launches) else { return Ok(()) };
        let kernel = self.spans.iter().filter(|span| span.lane == "GPU").nth(fault);
        if kernel.is_none_or(|span| span.end_ms * 1e3 > seen_us) {
            return Ok(());
        }
        Err(Error::Driver {
            during: during.to_string(),
            code: "MODEL_ILLEGAL_ADDRESS".to_string(),
            text: "a kernel launched earlier touched memory outside its buffers".to_string(),
            fix: "wait after each launch (`synchronize`) to see which launch it is".to_string(),
        })
    }

    /// 0.98 to 1.02, and twice that for one kernel in ten (xorshift64*, Vigna 2016).
    fn next_noise(&mut self) -> f64 {
        self.noise ^= self.noise >> 12;
        self.noise ^= self.noise << 25;
        self.noise ^= self.noise >> 27;
        let bits = self.noise.wrapping_mul(0x2545_F491_4F6C_DD1D);
        let share = (bits >> 11) as f64 / (1_u64 << 53) as f64;
        let jitter = 0.98 + 0.04 * share;
        if bits.is_multiple_of(10) { 2.0 * jitter } else { jitter }
    }

    fn count_call(&mut self) {
        self.calls += 1;
        assert!(self.calls <= MOST_CALLS, "the queue was called {MOST_CALLS} times: is this an endless loop?");
    }
}

/// The pool takes memory from the device in pieces of this size, as the recorded H200 does.
const PIECE: u64 = 32 << 20;
/// More failed requests than any sensible answer makes; an endless loop ends here.
const MOST_REFUSALS: usize = 10_000;

/// A device's memory with the pool in front of it. Clones mean the same pool.
///
/// As with CUDA's pool and a release threshold of 0: the memory of a dropped buffer stays reserved, ready for the next allocation; at a
/// [`PracticePool::synchronize`] all that is unused goes back to the device.
#[derive(Debug, Clone)]
pub struct PracticePool(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    stats: MemoryStats,
    handed_out: u64,
    refusals: usize,
}

/// Memory of a [`PracticePool`]. Dropping it frees it.
#[derive(Debug)]
pub struct PracticeBuffer {
    pool: PracticePool,
    bytes: u64,
}

impl PracticePool {
    /// A device with `total` bytes, none of them taken.
    pub fn new(total: u64) -> PracticePool {
        let stats = MemoryStats { used: 0, reserved: 0, used_high: 0, reserved_high: 0, free: total, total };
        PracticePool(Arc::new(Mutex::new(State { stats, handed_out: 0, refusals: 0 })))
    }

    /// Allocates `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when device and pool together hold too little.
    pub fn alloc(&self, bytes: u64) -> Result<PracticeBuffer> {
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
        Ok(PracticeBuffer { pool: self.clone(), bytes })
    }

    /// Waits for the GPU: unused memory goes back to the device, in whole pieces.
    pub fn synchronize(&self) {
        let mut state = self.state();
        let stats = &mut state.stats;
        let returned = stats.reserved - stats.used.div_ceil(PIECE) * PIECE;
        stats.reserved -= returned;
        stats.free += returned;
    }

    /// The three numbers, after a [`PracticePool::synchronize`].
    pub fn memory(&self) -> MemoryStats {
        self.synchronize();
        self.state().stats
    }

    /// The bytes of all buffers so far together, also of those that are dropped.
    pub fn handed_out(&self) -> u64 {
        self.state().handed_out
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in a learner's code must not make the pool unusable for the check that reports it.
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl PracticeBuffer {
    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for PracticeBuffer {
    fn drop(&mut self) {
        self.pool.state().stats.used -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_returns_before_its_kernel_ends() {
        let mut queue = PracticeQueue::new();
        queue.launch(PracticeKernel::of_us(1.0)).unwrap();
        queue.synchronize().unwrap();
        let before = queue.now_us();
        assert!(before > FIRST_LAUNCH_US, "{before}");
        queue.launch(PracticeKernel::of_us(500.0)).unwrap();
        assert_eq!(queue.now_us() - before, 4.0);
        queue.synchronize().unwrap();
        let waited = queue.now_us() - before;
        assert!((480.0..=1030.0).contains(&waited), "{waited}");
    }

    #[test]
    fn events_see_the_gpu_and_not_the_host() {
        let mut queue = PracticeQueue::warmed_up();
        assert_eq!((queue.now_us(), queue.launches()), (0.0, 0));
        let start = queue.event();
        for _ in 0..101 {
            queue.launch(PracticeKernel::of_us(100.0)).unwrap();
        }
        let mean = queue.event().us_since(&start) / 101.0;
        assert!((98.0..=135.0).contains(&mean), "{mean}");
    }

    #[test]
    fn a_queue_does_not_tell_what_is_to_be_found_out() {
        let mut queue = PracticeQueue::new().with_fault_at(31);
        queue.launch(PracticeKernel::of_us(777.0)).unwrap();
        let event = queue.event();
        let shown = format!("{queue:?} {queue:#?} {event:?} {:?}", PracticeKernel::of_us(777.0));
        assert!(shown.contains("launches: 1") && !shown.contains("31") && !shown.contains("77"), "{shown}");
    }

    #[test]
    fn a_fault_arrives_late() {
        let mut queue = PracticeQueue::new().with_fault_at(1);
        assert!((0..3).all(|_| queue.launch(PracticeKernel::of_us(50.0)).is_ok()));
        let message = queue.synchronize().unwrap_err().to_string();
        assert!(message.contains("earlier") && message.contains("next: "), "{message}");
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_three_numbers_over_a_buffers_life() {
        let pool = PracticePool::new(1024 * MIB);
        let numbers = |pool: &PracticePool| {
            let stats = pool.memory();
            [stats.used / MIB, stats.reserved / MIB, stats.free / MIB]
        };
        assert_eq!(numbers(&pool), [0, 0, 1024]);
        let buffer = pool.alloc(100 * MIB).unwrap();
        assert_eq!(numbers(&pool), [100, 128, 896]);
        drop(buffer);
        assert_eq!(numbers(&pool), [0, 0, 1024]);
        assert_eq!((pool.memory().used_high, pool.handed_out()), (100 * MIB, 100 * MIB));
    }

    #[test]
    fn freed_memory_is_used_again_and_goes_back_at_the_wait() {
        let pool = PracticePool::new(64 * MIB);
        drop(pool.alloc(40 * MIB).unwrap());
        let again = pool.alloc(64 * MIB).unwrap();
        let message = pool.alloc(1).unwrap_err().to_string();
        assert!(message.contains("1 B asked, 0 B free of 64.0 MiB"), "{message}");
        drop(again);
        assert_eq!(pool.memory().reserved, 0);
    }
}
