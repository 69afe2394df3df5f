//! Timing on the device.

use super::{Event, Gpu};
use crate::bench::{self, Bench};
use crate::error::Result;
use crate::measurement::Summary;

impl Gpu {
    /// Times `work` on the device's own clock: milliseconds a call, median and spread.
    ///
    /// `work` is given the number of the call, so that it can rotate its buffers ([`Gpu::sets_past_cache`]). Calls that
    /// are too short for the clock are timed several at once. Warm-up calls come first and are not counted.
    ///
    /// # Errors
    /// What `work` returns, or [`Error::Driver`](crate::Error::Driver).
    pub fn time(&self, plan: &Bench, mut work: impl FnMut(usize) -> Result<()>) -> Result<Summary> {
        self.time_boxed(plan, &mut work)
    }

    // Not generic: it is compiled once in the crate, and not again in each cell.
    fn time_boxed(&self, plan: &Bench, work: &mut dyn FnMut(usize) -> Result<()>) -> Result<Summary> {
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
            }
        })
    }
}
