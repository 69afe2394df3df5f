//! Profiling: what ran when, and why it took so long.
//!
//! | you ask | you get |
//! | --- | --- |
//! | [`trace()`] | a [`Trace`]: kernels and copies on a timeline, also for Perfetto |
//! | [`range`] | a name for a stretch of the host's time (NVTX), for profilers that look on |
//! | [`ncu`] | Nsight Compute's counters of the course's kernels |
//! | [`nsys_command`] | what to type for Nsight Systems' summary of where the time went |
//! | [`sanitize`] | what compute-sanitizer says of a kernel |
//! | [`Sass`] | the machine instructions of a rung |

mod activity;
pub mod bare;
mod cupti;
mod ncu;
mod nsys;
mod nvtx;
mod programs;
mod recorded;
mod recorder;
mod sanitizer;
mod sass;
mod trace;
mod traced;

pub use activity::{Activity, ActivityKind, NamedRange};
pub use ncu::{Add, Counted, Metric, NCU_METRICS, Stalls, TABLE_METRICS, measure_ncu, ncu, ncu_command, parse_ncu};
pub use nsys::nsys_command;
pub use programs::{Tooling, tools};
pub use recorder::{Recorder, RecorderRange, trace};
pub use sanitizer::{Reported, parse_sanitizer, sanitize, sanitize_command};
pub use sass::Sass;
pub use trace::{Trace, save_spans};
pub use traced::{RangeWork, Traced, measure_trace};

use std::marker::PhantomData;

/// An NVTX range on this thread; it ends when this is dropped.
#[must_use = "the range ends when its guard is dropped: bind it to a name, such as `let _copy = …`"]
pub struct NvtxRange {
    // Ranges of one thread lie within each other, so the guard must stay on its thread.
    thread: PhantomData<*const ()>,
}

/// Names what this thread does from here until the guard is dropped (NVTX). Without a profiler it does nothing.
///
/// ```
/// let _sum = gpulab_profiling::range("sum");
/// ```
pub fn range(name: &str) -> NvtxRange {
    nvtx::push(name);
    NvtxRange { thread: PhantomData }
}

impl Drop for NvtxRange {
    fn drop(&mut self) {
        nvtx::pop();
    }
}
