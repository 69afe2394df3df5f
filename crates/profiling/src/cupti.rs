//! CUPTI's activity records: what ran on the GPU from when to when, by the GPU's own clock.
//!
//! The library is loaded at run time, from where it is found. The ten functions and the records' first fields are declared
//! here and not taken from cudarc: its bindings of CUPTI are 41,000 lines that every notebook would build, they panic
//! where the library is missing, and they cannot be told a folder. A record grows at its end from version to version,
//! so the fields that are read here lie at the same places in the CUPTI of CUDA 12.4 and of 13.0 (`Kernel9`, `Kernel10`).

use crate::{Activity, ActivityKind};
use gpulab::error::{Error, Result};
use gpulab::places;
use libloading::Library;
use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;
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
    found: Vec<Activity>,
    passed_over: usize,
    next: Option<NextRecord>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What ran during a piece of work.
pub(crate) struct Recorded {
    pub records: Vec<Activity>,
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
            match unsafe { read(record) } {
                Some(activity) if sink.found.len() < MOST => sink.found.push(activity),
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
        return Err(Error::invalid(
            "a trace is being taken already, and there can be one at a time",
            "take the traces one after the other, and none inside of another",
        ));
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
    records.retain(|record| record.end_ns > start);
    records.sort_by_key(|record| (record.start_ns, record.end_ns));
    Ok((done, Recorded { records, start, end, lost: lost + sink.passed_over }))
}

pub(super) type NextRecord = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32;
pub(super) type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
pub(super) type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// The library, loaded; it is never unloaded, as its worker may still run.
#[derive(Clone, Copy)]
pub(crate) struct Cupti {
    library: &'static Library,
}

const MULTIPLE_SUBSCRIBERS: u32 = 39;

impl Cupti {
    /// Loads the library from the first place that has it.
    pub(crate) fn load() -> Result<Cupti> {
        let mut said = Vec::new();
        for place in candidates() {
            // SAFETY: NVIDIA's library; what it runs when it is loaded is its own affair, as for any program that links it.
            match unsafe { Library::new(&place) } {
                Ok(library) => return Ok(Cupti { library: Box::leak(Box::new(library)) }),
                Err(error) => said.push(format!("{}: {error}", place.display())),
            }
        }
        let last = said.iter().rev().find(|text| text.starts_with('/')).cloned();
        Err(Error::unsupported(
            format!(
                "CUPTI, the library that records when each kernel runs, was not loaded ({})",
                last.unwrap_or_else(
                    || "no libcupti in the project, in a CUDA toolkit, or known to the loader".to_string()
                )
            ),
            "run `.venv/bin/python -m pip install nvidia-cuda-cupti` in the project's folder (for a driver of CUDA 12: \
                  `nvidia-cuda-cupti-cu12`), and this cell again; without it, see the recorded run",
        ))
    }

    fn call<T: Copy>(&self, name: &CStr) -> Option<T> {
        // SAFETY: `T` is the function's type in NVIDIA's headers; the callers below name them side by side.
        unsafe { self.library.get::<T>(name.to_bytes_with_nul()) }.ok().map(|symbol| *symbol)
    }

    /// The function of that name, which every CUPTI has.
    fn must<T: Copy>(&self, name: &CStr) -> T {
        self.call(name)
            .unwrap_or_else(|| panic!("this libcupti has no {name:?}\nnext: install the CUPTI of CUDA 12 or 13"))
    }

    /// Takes the one place that there is for a profiler in a process.
    pub(super) fn subscribe(&self) -> Result<*mut c_void> {
        unsafe extern "C" fn nothing(_: *mut c_void, _: u32, _: u32, _: *const c_void) {}
        type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);
        type Subscribe = unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> u32;
        let mut subscriber = std::ptr::null_mut();
        // SAFETY: the pointer is of a variable here, and the callback needs no data.
        let code = unsafe { self.must::<Subscribe>(c"cuptiSubscribe")(&mut subscriber, nothing, std::ptr::null_mut()) };
        self.check(code, "attaching").map(|()| subscriber)
    }

    pub(super) fn unsubscribe(&self, subscriber: *mut c_void) {
        type Unsubscribe = unsafe extern "C" fn(*mut c_void) -> u32;
        // SAFETY: given by `subscribe`. Nothing can be done about a failure.
        unsafe { self.must::<Unsubscribe>(c"cuptiUnsubscribe")(subscriber) };
    }

    pub(super) fn register(&self, requested: Requested, completed: Completed) -> Result<()> {
        type Register = unsafe extern "C" fn(Requested, Completed) -> u32;
        // SAFETY: both live as long as the program.
        let code = unsafe { self.must::<Register>(c"cuptiActivityRegisterCallbacks")(requested, completed) };
        self.check(code, "giving it buffers")
    }

    pub(super) fn enable(&self, kind: u32) -> Result<()> {
        type Enable = unsafe extern "C" fn(u32) -> u32;
        // SAFETY: a plain number.
        self.check(unsafe { self.must::<Enable>(c"cuptiActivityEnable")(kind) }, "asking for records")
    }

    pub(super) fn disable(&self, kind: u32) {
        type Disable = unsafe extern "C" fn(u32) -> u32;
        // SAFETY: a plain number. Nothing can be done about a failure.
        unsafe { self.must::<Disable>(c"cuptiActivityDisable")(kind) };
    }

    /// Has all buffers given back, full or not.
    pub(super) fn flush(&self) -> Result<()> {
        type Flush = unsafe extern "C" fn(u32) -> u32;
        const FORCED: u32 = 1;
        // SAFETY: a plain number.
        self.check(unsafe { self.must::<Flush>(c"cuptiActivityFlushAll")(FORCED) }, "collecting the records")
    }

    /// Records that were lost for want of room.
    pub(super) fn dropped(&self) -> usize {
        type Dropped = unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32;
        let mut count = 0;
        // SAFETY: no context means all of them; the pointer is of a variable here.
        unsafe {
            self.must::<Dropped>(c"cuptiActivityGetNumDroppedRecords")(std::ptr::null_mut(), 0, &mut count);
        }
        count
    }

    /// The records' clock, in ns.
    pub(crate) fn now(&self) -> u64 {
        type Now = unsafe extern "C" fn(*mut u64) -> u32;
        let mut time = 0;
        // SAFETY: the pointer is of a variable here.
        unsafe { self.must::<Now>(c"cuptiGetTimestamp")(&mut time) };
        time
    }

    pub(super) fn next_record(&self) -> NextRecord {
        self.must(c"cuptiActivityGetNextRecord")
    }

    fn check(&self, code: u32, during: &str) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        type Text = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
        let mut text = std::ptr::null();
        // SAFETY: the pointer is of a variable here; the text is the library's own and stays.
        let name = unsafe {
            match self.call::<Text>(c"cuptiGetResultString") {
                Some(ask) if ask(code, &mut text) == 0 && !text.is_null() => {
                    CStr::from_ptr(text).to_string_lossy().into_owned()
                }
                _ => "unknown".to_string(),
            }
        };
        Err(explained(code, &name, during))
    }
}

/// A code of CUPTI, and what to do about it.
fn explained(code: u32, name: &str, during: &str) -> Error {
    let fix = match code {
        35 | 40 => {
            "this driver lets only administrators profile: see https://developer.nvidia.com/ERR_NVGPUCTRPERM for how to allow \
             it, or look at the recorded run"
        }
        MULTIPLE_SUBSCRIBERS => {
            "another profiler is attached to this process (ncu, nsys, or a framework's own): run the notebook without it, or \
             read that profiler's timeline"
        }
        14 | 27 | 33 | 38 => "this GPU, its driver or its virtual machine cannot be profiled: look at the recorded run",
        41 => "the GPU is in confidential mode, in which nothing can be profiled: look at the recorded run",
        15 => {
            "CUPTI and the driver do not fit: install the CUPTI of the driver's CUDA version (`make verify` shows it)"
        }
        _ => {
            "restart the notebook's kernel (menu Kernel, Restart) and run it again; if it stays, look at the recorded run"
        }
    };
    Error::Driver {
        during: format!("tracing ({during})"),
        code: name.to_string(),
        text: format!("CUPTI's code {code}"),
        fix: fix.to_string(),
    }
}

/// Where the library may be, best first: the project's own fits the driver, a toolkit mostly does.
fn candidates() -> Vec<PathBuf> {
    let mut folders = vec![places::made().join(".gpulab/lib")];
    for toolkit in places::toolkit_folders() {
        folders.extend(["extras/CUPTI/lib64", "lib64"].map(|below| toolkit.join(below)));
    }
    let wheels = places::site_packages().into_iter().flat_map(|site| places::entries(&site.join("nvidia")));
    folders.extend(wheels.map(|package| package.join("lib")));
    let found = folders.iter().filter_map(|folder| places::library_in(std::slice::from_ref(folder), "libcupti.so"));
    let named = ["libcupti.so", "libcupti.so.13", "libcupti.so.12"].map(PathBuf::from);
    found.chain(named).collect()
}

const KERNEL: u32 = 3;
const CONCURRENT_KERNEL: u32 = 10;
const MEMCPY: u32 = 1;
const MEMSET: u32 = 2;

/// Reads the record at that address, with times of CUPTI's clock; `None` for other kinds. A kernel's name is as CUPTI has
/// it: mangled where the source is C++.
///
/// # Safety
/// A record of CUPTI 12 or 13 lies there, in whole.
unsafe fn read(record: *const u8) -> Option<Activity> {
    // SAFETY: the offsets are those of NVIDIA's `cupti_activity.h`, within the shortest of these records; CUPTI
    // aligns records to 8 bytes only, so nothing is assumed.
    unsafe {
        let word = |at: usize| record.add(at).cast::<u32>().read_unaligned();
        let long = |at: usize| record.add(at).cast::<u64>().read_unaligned();
        let three = |at: usize| [word(at), word(at + 4), word(at + 8)];
        let work = |kind: ActivityKind, stream: u32, bytes: u64| Activity {
            kind,
            name: kind.words().to_string(),
            start_ns: long(16),
            end_ns: long(24),
            stream,
            bytes,
            grid: [0; 3],
            block: [0; 3],
            registers: 0,
            shared_bytes: 0,
        };
        match word(0) {
            KERNEL | CONCURRENT_KERNEL => {
                let name = record.add(104).cast::<*const c_char>().read_unaligned();
                let name = if name.is_null() { c"kernel" } else { CStr::from_ptr(name) };
                Some(Activity {
                    name: name.to_string_lossy().into_owned(),
                    grid: three(52),
                    block: three(64),
                    registers: record.add(6).cast::<u16>().read_unaligned().into(),
                    shared_bytes: word(76).saturating_add(word(80)),
                    ..work(ActivityKind::Kernel, word(48), 0)
                })
            }
            MEMCPY => {
                // CUPTI's number for from where to where; 1 and 2 are of plain memory, 3 and 4 of CUDA arrays.
                let kind = match record.add(4).read() {
                    1 | 3 => ActivityKind::CopyToDevice,
                    2 | 4 => ActivityKind::CopyToHost,
                    _ => ActivityKind::CopyOnDevice,
                };
                Some(work(kind, word(40), long(8)))
            }
            MEMSET => Some(work(ActivityKind::Fill, word(40), long(8))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_to_do() {
        for (code, said) in
            [(35, "ERR_NVGPUCTRPERM"), (39, "another profiler"), (33, "virtual machine"), (999, "restart")]
        {
            let text = explained(code, "CUPTI_ERROR_X", "attaching").to_string();
            assert!(text.contains("CUPTI_ERROR_X") && text.contains("\nnext: ") && text.contains(said), "{text}");
        }
    }

    #[test]
    fn a_missing_library_names_the_package() {
        match Cupti::load() {
            Ok(cupti) => assert!(cupti.now() > 0),
            Err(error) => assert!(error.to_string().contains("nvidia-cuda-cupti"), "{error}"),
        }
    }

    /// A record with these words at these offsets, laid out by hand after `cupti_activity.h` of CUDA 13.0.
    fn record(kind: u32, fields: &[(usize, u64, usize)]) -> Vec<u8> {
        let mut bytes = vec![0; 208];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        for &(at, value, length) in fields {
            bytes[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
        }
        bytes
    }

    #[test]
    fn fields_are_where_the_header_has_them() {
        let name = c"reduce";
        let kernel = record(
            10,
            &[
                (6, 32, 2),
                (16, 1000, 8),
                (24, 3000, 8),
                (48, 7, 4),
                (52, 512, 4),
                (56, 1, 4),
                (60, 1, 4),
                (64, 256, 4),
                (68, 1, 4),
                (72, 1, 4),
                (76, 1024, 4),
                (80, 64, 4),
                (104, name.as_ptr() as u64, 8),
            ],
        );
        // SAFETY: long enough for each kind, and the name lives on.
        let read = |bytes: &[u8]| unsafe { super::read(bytes.as_ptr()) };
        let found = read(&kernel).unwrap();
        assert_eq!((found.kind, found.name.as_str(), found.stream), (ActivityKind::Kernel, "reduce", 7));
        assert_eq!((found.grid, found.block, found.registers), ([512, 1, 1], [256, 1, 1], 32));
        assert_eq!((found.start_ns, found.end_ns, found.shared_bytes), (1000, 3000, 1088));
        let copy = read(&record(1, &[(4, 2, 1), (8, 4096, 8), (16, 5, 8), (24, 9, 8), (40, 13, 4)])).unwrap();
        assert_eq!((copy.kind, copy.bytes, copy.stream, copy.end_ns), (ActivityKind::CopyToHost, 4096, 13, 9));
        let fill = read(&record(2, &[(8, 64, 8), (40, 7, 4)])).unwrap();
        assert_eq!((fill.kind, fill.bytes, fill.stream), (ActivityKind::Fill, 64, 7));
        assert_eq!(read(&record(5, &[])), None);
    }
}
