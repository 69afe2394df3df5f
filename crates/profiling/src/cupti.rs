//! CUPTI's activity records: what ran on the GPU from when to when, by the GPU's own clock.
//!
//! The library is loaded at run time, from where it is found. The ten functions and the records' first fields are declared
//! here and not taken from cudarc: its bindings of CUPTI are 41,000 lines that every notebook would build, they panic
//! where the library is missing, and they cannot be told a folder. A record grows at its end from version to version,
//! so the fields that are read here lie at the same places in the CUPTI of CUDA 12.4 and of 13.0 (`Kernel9`, `Kernel10`).

mod library;
mod record;

pub(crate) use library::Cupti;
pub(crate) use record::{Raw, RawKind};

use gpulab::error::{Error, Result};
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The kinds of records that are asked for: kernels that may overlap, copies, fills.
const KINDS: [u32; 3] = [10, 1, 2];
const BUFFER: usize = 1 << 20;
/// Records that are kept; a trace is to be looked at, and more than that nobody can.
const MOST: usize = 200_000;

/// What the library's worker gave. A static, because CUPTI's callbacks are given no pointer of ours; it is filled and
/// emptied within one call of [`trace`], so nothing is lost when a notebook's cell has a copy of its own.
static SINK: Mutex<Sink> = Mutex::new(Sink { found: Vec::new(), passed_over: 0, next: None });
/// One trace at a time.
static ONE: Mutex<()> = Mutex::new(());

struct Sink {
    found: Vec<Raw>,
    passed_over: usize,
    next: Option<library::NextRecord>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What ran during a piece of work.
pub(crate) struct Recorded {
    pub records: Vec<Raw>,
    /// When the work began and ended, in ns of the records' clock.
    pub start: u64,
    pub end: u64,
    /// Records that CUPTI or this crate had no room for.
    pub lost: usize,
}

/// Gives CUPTI an empty buffer.
///
/// # Safety
/// The pointers can be written to.
unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let words = vec![0_u64; BUFFER / 8].into_boxed_slice();
    // SAFETY: CUPTI's promise; `completed` takes the memory back.
    unsafe {
        *buffer = Box::into_raw(words).cast();
        *size = BUFFER;
        *most = 0;
    }
}

/// Takes a filled buffer back.
///
/// # Safety
/// `buffer` was given by `requested`, and its first `valid` bytes are records.
unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, _: usize, valid: usize) {
    if buffer.is_null() {
        return;
    }
    {
        let mut sink = lock(&SINK);
        let mut record = std::ptr::null_mut();
        // The names in a record are CUPTI's own; they are copied here, where they are certain to be there.
        while let Some(next) = sink.next
            // SAFETY: the library's own function, with the library's own buffer.
            && unsafe { next(buffer, valid, &mut record) } == 0
        {
            // SAFETY: the library says that this is a record.
            match unsafe { Raw::read(record) } {
                Some(raw) if sink.found.len() < MOST => sink.found.push(raw),
                Some(_) => sink.passed_over += 1,
                None => {}
            }
        }
    }
    // SAFETY: made in `requested` as a box of so many words.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), BUFFER / 8)) });
}

/// Ends the recording, also when the work panics.
struct Running<'a> {
    cupti: &'a Cupti,
    subscriber: *mut c_void,
    enabled: Vec<u32>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        for &kind in &self.enabled {
            self.cupti.disable(kind);
        }
        self.cupti.unsubscribe(self.subscriber);
    }
}

/// Records what the GPU does during `work`; `wait` must return when all of it has ended.
pub(crate) fn trace<T>(work: impl FnOnce(&Cupti) -> Result<T>, wait: impl Fn() -> Result<()>) -> Result<(T, Recorded)> {
    let cupti = Cupti::load()?;
    let Ok(_one) = ONE.try_lock() else {
        return Err(Error::Invalid {
            what: "a trace is being taken already, and there can be one at a time".to_string(),
            fix: "take the traces one after the other, and none inside of another".to_string(),
        });
    };
    wait()?;
    let mut running = Running { cupti: &cupti, subscriber: cupti.subscribe()?, enabled: Vec::new() };
    *lock(&SINK) = Sink { found: Vec::new(), passed_over: 0, next: Some(cupti.next_record()) };
    cupti.register(requested, completed)?;
    for kind in KINDS {
        cupti.enable(kind)?;
        running.enabled.push(kind);
    }
    let start = cupti.now();
    let done = work(&cupti);
    let waited = wait();
    let end = cupti.now();
    let flushed = cupti.flush();
    let lost = cupti.dropped();
    drop(running);
    let sink = std::mem::replace(&mut *lock(&SINK), Sink { found: Vec::new(), passed_over: 0, next: None });
    let done = done?;
    waited?;
    flushed?;
    let mut records = sink.found;
    // What was queued before does not belong here; the worker also gives buffers in any order.
    records.retain(|record| record.end > start);
    records.sort_by_key(|record| (record.start, record.end));
    Ok((done, Recorded { records, start, end, lost: lost + sink.passed_over }))
}
