//! Running a learner's code so that its panic becomes part of the verdict.

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

/// What `work` returns, or the text of its panic. The panic prints nothing meanwhile.
pub(super) fn run<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let hook = take_hook();
    // Its text goes into the verdict; on stderr it would look like a failure of the notebook.
    set_hook(Box::new(|_| {}));
    let outcome = catch_unwind(AssertUnwindSafe(work));
    set_hook(hook);
    outcome.map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        format!("your code panicked: {}", text.as_deref().unwrap_or("without a message"))
    })
}

/// The hint for a panic.
pub(super) const PANIC_HINT: &str = "make it return instead of panicking, also for the odd cases; `todo!()` panics too";
