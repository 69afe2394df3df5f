//! What this process holds of the CPU's memory, as the C library tells it.
//!
//! Rust asks the C library for memory (`malloc`), and so does everything that lives in this process. What is freed does not
//! always go back to the system: the library keeps it for the next request, as a GPU's memory pool does.

use gpulab_measure::Result;
#[cfg(not(any(all(target_os = "linux", target_env = "gnu"), target_os = "macos")))]
use gpulab_measure::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of this process's heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heap {
    /// Held by somebody.
    pub used: u64,
    /// Taken from the system: what is held, and what was freed and kept for the next request.
    pub reserved: u64,
}

/// How often [`highest_heap`] looks.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// The heap now. Linux with glibc 2.33 or newer, and macOS.
///
/// # Errors
/// [`Error::Unsupported`](gpulab_measure::Error::Unsupported) where the C library tells no such figures.
pub fn heap() -> Result<Heap> {
    read()
}

/// Runs `work`, and gives beside its result the highest `used` seen meanwhile, in bytes. A thread looks five
/// thousand times a second: a peak shorter than 0.2 ms can be missed.
///
/// # Errors
/// As [`heap`], and what `work` returns.
pub fn highest_heap<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    let highest = AtomicU64::new(read()?.used);
    let done = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        // Ends the watch also when `work` panics: the scope waits for its threads.
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if let Ok(heap) = read() {
                    highest.fetch_max(heap.used, Ordering::Relaxed);
                }
                std::thread::sleep(LOOK_EVERY);
            }
        });
        let _done = Done(&done);
        work()
    })?;
    Ok((outcome, highest.into_inner().max(read()?.used)))
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn read() -> Result<Heap> {
    use gpulab_measure::error::Error;
    use libloading::os::unix::Library;

    // Looked up by name, as an older glibc does not have it, and linking to it would keep the whole crate from loading there.
    // SAFETY: glibc is loaded already; its `mallinfo2` takes nothing and returns this struct by value.
    let info = unsafe {
        let call = Library::this().get::<unsafe extern "C" fn() -> libc::mallinfo2>(b"mallinfo2\0");
        call.map(|call| call())
    };
    let info = info.map_err(|_| Error::Unsupported {
        what: "how much memory this process holds: the C library has no `mallinfo2`".to_string(),
        fix: "use a Linux with glibc 2.33 (2021) or newer, or measure on a GPU".to_string(),
    })?;
    // What lies in arenas, and in mappings of its own.
    let mapped = info.hblkhd as u64;
    Ok(Heap { used: info.uordblks as u64 + mapped, reserved: info.arena as u64 + mapped })
}

#[cfg(target_os = "macos")]
fn read() -> Result<Heap> {
    // SAFETY: plain numbers, for which zeros are values; a null zone stands for all zones together, and the struct
    // outlives the call.
    let statistics = unsafe {
        let mut statistics: libc::malloc_statistics_t = std::mem::zeroed();
        libc::malloc_zone_statistics(std::ptr::null_mut(), &mut statistics);
        statistics
    };
    Ok(Heap { used: statistics.size_in_use as u64, reserved: statistics.size_allocated as u64 })
}

#[cfg(not(any(all(target_os = "linux", target_env = "gnu"), target_os = "macos")))]
fn read() -> Result<Heap> {
    Err(Error::unsupported(
        "how much memory this process holds: this system's C library does not tell",
        "use Linux with glibc, or macOS",
    ))
}

#[cfg(all(test, any(all(target_os = "linux", target_env = "gnu"), target_os = "macos")))]
mod tests {
    use super::*;

    /// The heap is the whole process's, and other tests allocate meanwhile: figures are held to exact ones in the
    /// test `training_memory`, which has a process of its own.
    #[test]
    fn a_peak_is_at_least_what_the_work_held_and_errors_are_passed_on() {
        const BYTES: u64 = 16 << 20;
        let held = || {
            let block = vec![0u8; BYTES as usize];
            std::thread::sleep(Duration::from_millis(20));
            Ok(block.len() as u64)
        };
        let (length, highest) = highest_heap(held).unwrap();
        assert!(length == BYTES && highest >= BYTES);
        let now = heap().unwrap();
        assert!(now.reserved >= now.used && now.used > 0, "{now:?}");
        let error = highest_heap(|| crate::matmul(&[], &[], &mut [], 1)).unwrap_err();
        assert!(error.to_string().contains("1 elements expected"));
    }
}
