//! Ctrl-C and SIGTERM: asked to stop, the program keeps its run first.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Whether the program was asked to stop since [`listen`].
pub(super) fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// From now on Ctrl-C and SIGTERM are remembered, and end the program only the second time.
#[cfg(unix)]
pub(super) fn listen() {
    const SIGINT: i32 = 2;
    const SIGTERM: i32 = 15;
    const DEFAULT: usize = 0;
    // The C library's, which the standard library links anyway.
    unsafe extern "C" {
        fn signal(number: i32, handler: usize) -> usize;
    }
    extern "C" fn remember(number: i32) {
        ASKED.store(true, Ordering::Relaxed);
        // SAFETY: `signal` may be called in a handler (POSIX lists it), and the default action is no function of ours.
        unsafe { signal(number, DEFAULT) };
    }
    let handler = remember as extern "C" fn(i32) as usize;
    for number in [SIGINT, SIGTERM] {
        // SAFETY: the handler only writes an atomic and calls `signal`, which a handler may do.
        unsafe { signal(number, handler) };
    }
}

/// Elsewhere the system ends the program; its last checkpoint is whole all the same.
#[cfg(not(unix))]
pub(super) fn listen() {}
