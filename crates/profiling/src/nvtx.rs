//! NVTX ranges: names for stretches of the host's time, which a profiler shows and filters by.
//!
//! A profiler that wants them names a library of its own in `NVTX_INJECTION64_PATH`, and writes its functions into the
//! tables that it is given here; NVTX itself is this protocol and no library (NVIDIA's `nvtxTypes.h`, version 3). Without
//! a profiler the slots stay empty and a range costs one look at one of them.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Functions that the profiler may put in place, by module and number. Module 1 is the core.
const MODULES: usize = 7;
/// How many functions each module has, number 0 counted, which is none.
const FUNCTIONS: [usize; MODULES] = [0, 16, 9, 15, 7, 16, 7];
const MOST: usize = 16;
const CORE: usize = 1;
const RANGE_PUSH_A: usize = 9;
const RANGE_POP: usize = 11;

// A static, because the protocol's functions are given no place of ours; nothing of a reader's lies in it.
static SLOTS: [[AtomicPtr<c_void>; MOST]; MODULES] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST] }; MODULES];

type Table = [*const AtomicPtr<c_void>; MOST + 1];

#[repr(C)]
struct Callbacks {
    bytes: usize,
    module_table: unsafe extern "C" fn(c_int, *mut *const *const AtomicPtr<c_void>, *mut c_uint) -> c_int,
}

#[repr(C)]
struct Version {
    bytes: usize,
    version: u32,
    reserved: u32,
    set_tool_version: extern "C" fn(u32),
}

static CALLBACKS: Callbacks = Callbacks { bytes: size_of::<Callbacks>(), module_table };
static VERSION: Version = Version { bytes: size_of::<Version>(), version: 3, reserved: 0, set_tool_version };

extern "C" fn set_tool_version(_: u32) {}

extern "C" fn export_table(which: u32) -> *const c_void {
    match which {
        1 => (&raw const CALLBACKS).cast(),
        3 => (&raw const VERSION).cast(),
        _ => std::ptr::null(),
    }
}

/// Gives the profiler the places of a module's functions: one pointer each, none for number 0.
///
/// # Safety
/// Both pointers are null or can be written to.
unsafe extern "C" fn module_table(
    module: c_int,
    out: *mut *const *const AtomicPtr<c_void>,
    size: *mut c_uint,
) -> c_int {
    let Some(module) = usize::try_from(module).ok().filter(|&module| (1..MODULES).contains(&module)) else { return 0 };
    let mut table: Table = [std::ptr::null(); MOST + 1];
    for number in 1..FUNCTIONS[module] {
        table[number] = &raw const SLOTS[module][number];
    }
    // The profiler keeps it as long as it likes; this happens once for each module.
    let table: &'static Table = Box::leak(Box::new(table));
    // SAFETY: the caller's promise.
    unsafe {
        if !out.is_null() {
            *out = table.as_ptr();
        }
        if !size.is_null() {
            *size = FUNCTIONS[module] as c_uint;
        }
    }
    1
}

/// Lets the profiler in that the environment names, once; true when there is one.
pub(crate) fn attach() -> bool {
    static ATTACHED: OnceLock<bool> = OnceLock::new();
    *ATTACHED.get_or_init(|| std::env::var_os("NVTX_INJECTION64_PATH").is_some_and(|path| load(&path)))
}

fn load(path: &std::ffi::OsStr) -> bool {
    type Initialise = unsafe extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;
    // SAFETY: whoever set the variable asks for this library to be loaded into every program that has NVTX.
    let Ok(library) = (unsafe { libloading::Library::new(path) }) else { return false };
    let library: &'static libloading::Library = Box::leak(Box::new(library));
    // SAFETY: the protocol gives the function this type.
    match unsafe { library.get::<Initialise>(b"InitializeInjectionNvtx2\0") } {
        // SAFETY: it is called once, with a function that lives as long as the program.
        Ok(initialise) => unsafe { initialise(export_table) != 0 },
        Err(_) => false,
    }
}

/// Opens a range on this thread. What is no C string is cut at the zero.
pub(crate) fn push(name: &str) {
    if !attach() {
        return;
    }
    let function = SLOTS[CORE][RANGE_PUSH_A].load(Ordering::Acquire);
    if function.is_null() {
        return;
    }
    let name = CString::new(name.split('\0').next().unwrap_or_default()).unwrap_or_default();
    // SAFETY: the profiler put a function of this type there; it copies the text.
    unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char) -> c_int>(function)(name.as_ptr())
    };
}

/// Closes the range that was opened last on this thread.
pub(crate) fn pop() {
    let function = SLOTS[CORE][RANGE_POP].load(Ordering::Acquire);
    if !function.is_null() {
        // SAFETY: the profiler put a function of this type there.
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(function)() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    static PUSHED: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn count(_: *const c_char) -> c_int {
        PUSHED.fetch_add(1, Ordering::Relaxed) as c_int
    }

    #[test]
    fn a_profiler_finds_the_places_of_its_functions() {
        let callbacks: *const Callbacks = export_table(1).cast();
        let (mut table, mut size) = (std::ptr::null(), 0);
        // SAFETY: `export_table` gives that type for 1, and the pointers are of variables here.
        let places = unsafe {
            assert_eq!((*callbacks).bytes, 16);
            assert_eq!(((*callbacks).module_table)(1, &mut table, &mut size), 1);
            std::slice::from_raw_parts(table, size as usize + 1)
        };
        assert_eq!(size, 16);
        assert!(places[0].is_null() && places[16].is_null() && places[1..16].iter().all(|place| !place.is_null()));
        // SAFETY: a place of the table is a pointer to a slot, which lives as long as the program.
        unsafe { (*places[RANGE_PUSH_A]).store(count as *mut c_void, Ordering::Release) };
        let function = SLOTS[CORE][RANGE_PUSH_A].load(Ordering::Acquire);
        assert_eq!(function, count as *mut c_void);
        SLOTS[CORE][RANGE_PUSH_A].store(std::ptr::null_mut(), Ordering::Release);
        // SAFETY: null pointers are allowed.
        unsafe { assert_eq!(module_table(99, std::ptr::null_mut(), std::ptr::null_mut()), 0) };
        assert!(export_table(2).is_null() && !export_table(3).is_null());
    }

    #[test]
    fn without_a_profiler_ranges_do_nothing() {
        if std::env::var_os("NVTX_INJECTION64_PATH").is_none() {
            assert!(!attach());
            push("nothing\0here");
            pop();
        }
    }
}
