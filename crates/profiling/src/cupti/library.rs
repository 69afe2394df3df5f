//! The library: where it is, its functions, and what its errors mean to a reader.

use gpulab::error::{Error, Result};
use gpulab::places;
use libloading::Library;
use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;

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
        Err(Error::Unsupported {
            what: format!(
                "CUPTI, the library that records when each kernel runs, was not loaded ({})",
                last.unwrap_or_else(|| "no libcupti in the project, in a CUDA toolkit, or known to the loader".to_string())
            ),
            fix: "run `.venv/bin/python -m pip install nvidia-cuda-cupti` in the project's folder (for a driver of CUDA 12: \
                  `nvidia-cuda-cupti-cu12`), and this cell again; without it, see the recorded run"
                .to_string(),
        })
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
}
