//! Timing on the device.

use super::{Event, Gpu};
use crate::bench::{self, Bench};
use crate::error::Result;
use crate::measurement::Summary;
use crate::sim::needs_hardware;

impl Gpu {
    /// Times `work` on the device's own clock: milliseconds a call, median and spread.
    ///
    /// `work` is given the number of the call, so that it can rotate its buffers ([`Gpu::sets_past_cache`]). Calls that
    /// are too short for the clock are timed several at once. Warm-up calls come first and are not counted.
    ///
    /// # Errors
    /// What `work` returns, or [`Error::Driver`](crate::Error::Driver). [`Error::Unsupported`](crate::Error::Unsupported)
    /// on a simulated GPU: its time is no GPU's.
    pub fn time(&self, plan: &Bench, mut work: impl FnMut(usize) -> Result<()>) -> Result<Summary> {
        self.time_boxed(plan, &mut work)
    }

    /// An error on a simulated GPU, whose time is no GPU's.
    pub(crate) fn has_times(&self) -> Result<()> {
        match self {
            Gpu::Simulated(_) => Err(needs_hardware(
                "a kernel's time cannot be had",
                "run this on an NVIDIA GPU, or see the recorded run (`lesson.measure`); \
                 what a kernel does to memory can be counted here, with `kernel.inspect`",
            )),
            Gpu::Cuda(_) | Gpu::Metal(_) => Ok(()),
        }
    }

    // Not generic: it is compiled once in the crate, and not again in each cell.
    fn time_boxed(&self, plan: &Bench, work: &mut dyn FnMut(usize) -> Result<()>) -> Result<Summary> {
        self.has_times()?;
        let mut call = 0;
        bench::run(plan, &mut |repeats| {
            self.synchronize()?;
            let mut queue = || {
                for _ in 0..repeats {
                    work(call)?;
                    call += 1;
                }
                Ok(())
            };
            match self {
                Gpu::Cuda(gpu) => {
                    let start = Event::record(&gpu.stream)?;
                    queue()?;
                    Event::record(&gpu.stream)?.ms_since(&start)
                }
                Gpu::Metal(gpu) => gpu.time(&mut queue),
                Gpu::Simulated(_) => unreachable!("refused above"),
            }
        })
    }
}
