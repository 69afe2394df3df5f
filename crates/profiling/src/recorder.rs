//! Recording what the GPU does, and when.

use crate::cupti::{self, Cupti};
use crate::{NamedRange, NvtxRange, Trace};
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use gpulab::sim::needs_hardware;
use std::cell::RefCell;

/// What the work of [`trace`] is given, to name stretches of its own time.
pub struct Recorder<'a> {
    cupti: &'a Cupti,
    ranges: RefCell<Vec<NamedRange>>,
}

/// A stretch of the host's time that is recorded; it ends when this is dropped.
#[must_use = "the range ends when its guard is dropped: bind it to a name, such as `let _copy = …`"]
pub struct RecorderRange<'a> {
    recorder: &'a Recorder<'a>,
    name: String,
    start: u64,
    _nvtx: NvtxRange,
}

impl Recorder<'_> {
    /// Names what the host does from here until the guard is dropped; a profiler that is attached sees it too (NVTX).
    pub fn range(&self, name: &str) -> RecorderRange<'_> {
        RecorderRange { recorder: self, name: name.to_string(), start: self.cupti.now(), _nvtx: crate::range(name) }
    }
}

impl Drop for RecorderRange<'_> {
    fn drop(&mut self) {
        let end_ns = self.recorder.cupti.now();
        let name = std::mem::take(&mut self.name);
        self.recorder.ranges.borrow_mut().push(NamedRange { name, start_ns: self.start, end_ns });
    }
}

/// Runs `work` and records every kernel, copy and fill of it, with times of the GPU's own clock (through CUPTI). Waits
/// for the GPU before and after. Kernels take a little longer while they are recorded: compare what is in one trace,
/// and time with [`Gpu::time`].
///
/// # Errors
/// What `work` returns; [`Error::Unsupported`] where CUPTI is missing, and on a GPU that is not NVIDIA's;
/// [`Error::Driver`] where profiling is not permitted or another profiler is attached.
pub fn trace(gpu: &Gpu, mut work: impl FnMut(&Recorder<'_>) -> Result<()>) -> Result<Trace> {
    trace_boxed(gpu, &mut work)
}

fn trace_boxed(gpu: &Gpu, work: &mut dyn FnMut(&Recorder<'_>) -> Result<()>) -> Result<Trace> {
    match gpu {
        Gpu::Cuda(_) => {}
        Gpu::Simulated(_) => {
            let fix = "run this on an NVIDIA GPU, or see the recorded run; `kernel.inspect` shows what a launch does";
            return Err(needs_hardware("there is no timeline", fix));
        }
        Gpu::Metal(_) => {
            return Err(Error::unsupported(
                "CUPTI is for NVIDIA GPUs",
                "use Xcode's Instruments (Metal System Trace) on a Mac",
            ));
        }
    }
    let run = |cupti: &Cupti| {
        let recorder = Recorder { cupti, ranges: RefCell::default() };
        work(&recorder).map(|()| recorder.ranges.into_inner())
    };
    let (mut ranges, recorded) = cupti::trace(run, || gpu.synchronize())?;
    let mut activities = recorded.records;
    let times = activities.iter_mut().flat_map(|one| [&mut one.start_ns, &mut one.end_ns]);
    for time in times.chain(ranges.iter_mut().flat_map(|range| [&mut range.start_ns, &mut range.end_ns])) {
        *time = time.saturating_sub(recorded.start);
    }
    ranges.sort_by_key(|range| (range.start_ns, std::cmp::Reverse(range.end_ns)));
    let total_ns = recorded.end - recorded.start;
    Ok(Trace { gpu: gpu.name().to_string(), activities, ranges, total_ns, lost: recorded.lost })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ActivityKind;

    #[test]
    fn a_simulator_has_no_timeline_and_says_where_there_is_one() {
        let text = trace(&Gpu::simulated().unwrap(), |_| Ok(())).unwrap_err().to_string();
        assert!(text.contains("timeline") && text.contains("\nnext: "), "{text}");
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_gpu_records_copies_and_kernels_in_order() {
        let gpu = Gpu::open_index(0).unwrap();
        let trace = trace(&gpu, |recorder| {
            let _all = recorder.range("all");
            let x = gpu.to_device(&vec![1.0_f32; 1 << 20])?;
            x.to_host().map(drop)
        });
        let trace = match trace {
            Ok(trace) => trace,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let kinds: Vec<ActivityKind> = trace.activities.iter().map(|activity| activity.kind).collect();
        assert_eq!(kinds, [ActivityKind::CopyToDevice, ActivityKind::CopyToHost]);
        assert!(trace.activities.iter().all(|one| one.bytes == 4 << 20 && one.end_ns > one.start_ns));
        assert_eq!(trace.ranges[0].name, "all");
    }
}
