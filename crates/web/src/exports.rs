//! The way in from JavaScript: text in the module's memory, as a place and a length.

use std::alloc::{Layout, alloc, dealloc};

/// Room for `length` bytes of a question; 0 where there is none.
#[unsafe(no_mangle)]
pub extern "C" fn room(length: usize) -> *mut u8 {
    match Layout::array::<u8>(length.max(1)) {
        // SAFETY: the layout has at least one byte.
        Ok(layout) => unsafe { alloc(layout) },
        Err(_) => std::ptr::null_mut(),
    }
}

/// Answers the question at `at`, which is gone then. The answer begins with its length in 4 bytes, lowest first; `forget` frees it.
///
/// # Safety
/// `at` and `length` are those of a call of `room`, whose bytes were written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn answer(at: *mut u8, length: usize) -> *mut u8 {
    // SAFETY: the caller's.
    let question = String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(at, length) }).into_owned();
    // SAFETY: as `room` made it.
    unsafe { forget(at, length) };
    let answer = crate::answer(&question);
    let bytes = [&(answer.len() as u32).to_le_bytes(), answer.as_bytes()].concat();
    let out = room(bytes.len());
    assert!(!out.is_null(), "no memory for the answer");
    // SAFETY: `out` has room for as many bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out, bytes.len()) };
    out
}

/// Frees what `room` or `answer` gave; `length` counts the 4 bytes in front of an answer.
///
/// # Safety
/// `at` comes from there, with this length, and is freed once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forget(at: *mut u8, length: usize) {
    let layout = Layout::array::<u8>(length.max(1)).expect("it was made with this length");
    // SAFETY: the caller's.
    unsafe { dealloc(at, layout) };
}
