//! Timing on the device.

use super::{Event, Gpu};
use crate::bench::{self, Bench};
use crate::error::Result;
use crate::measurement::Summary;
use crate::sim::needs_hardware;

/// Work to be timed against other work.
pub enum Contestant<'a> {
    /// Queues one call on the default stream, and is given the call's number.
    Calls(Box<dyn FnMut(usize) -> Result<()> + 'a>),
    /// Takes one sample by a clock of its own, in **ms a call**: another process, or the CPU.
    Clocked(Box<dyn FnMut() -> Result<f64> + 'a>),
}

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

    /// Times several kinds of work against each other: in every round, one sample of each, so that what changes with time
    /// (clocks, heat) is the same for all. The samples of each in **ms a call**, round by round; a round's samples belong
    /// together. Work that has used up the plan's budget alone, and has five samples, is passed over from then on.
    ///
    /// # Errors
    /// As [`Gpu::time`].
    pub fn time_interleaved(&self, plan: &Bench, work: &mut [Contestant<'_>]) -> Result<Vec<Vec<f64>>> {
        self.has_times()?;
        let mut repeats = Vec::new();
        for work in work.iter_mut() {
            repeats.push(match work {
                Contestant::Calls(work) => {
                    let once = self.timed(1, &mut |call| work(call))?;
                    // A lone call looks slower than one of many, so a batch is tried too.
                    let few =
                        if once < plan.min_sample_ms { self.timed(8, &mut |call| work(call))? / 8.0 } else { once };
                    plan.repeats_for(few)
                }
                Contestant::Clocked(sample) => {
                    sample()?;
                    1
                }
            });
        }
        let mut samples = vec![Vec::new(); work.len()];
        let (mut spent, mut calls) = (vec![0.0; work.len()], vec![0; work.len()]);
        let mut cold = false;
        for _ in 0..plan.samples {
            for (at, work) in work.iter_mut().enumerate() {
                if spent[at] >= plan.budget_ms && samples[at].len() >= 5 {
                    continue;
                }
                let ms = match work {
                    Contestant::Calls(work) => {
                        // The GPU has worked for another process, or for none: one call brings it back to this one.
                        if std::mem::take(&mut cold) {
                            self.timed(1, &mut |_| work(calls[at]))?;
                        }
                        // Counted on from sample to sample, so that all buffers have their turn.
                        let ms = self.timed(repeats[at], &mut |call| work(calls[at] + call))?;
                        calls[at] += repeats[at];
                        spent[at] += ms;
                        ms / repeats[at] as f64
                    }
                    Contestant::Clocked(sample) => {
                        // What is queued here must not run beside it.
                        self.synchronize()?;
                        cold = true;
                        let begin = std::time::Instant::now();
                        let ms = sample()?;
                        spent[at] += begin.elapsed().as_secs_f64() * 1e3;
                        ms
                    }
                };
                samples[at].push(ms);
            }
        }
        Ok(samples)
    }

    /// The ms of that many calls, one after the other.
    fn timed(&self, calls: usize, work: &mut dyn FnMut(usize) -> Result<()>) -> Result<f64> {
        self.synchronize()?;
        let mut queue = || (0..calls).try_for_each(&mut *work);
        match self {
            Gpu::Cuda(gpu) => {
                let start = Event::record(&gpu.stream)?;
                queue()?;
                Event::record(&gpu.stream)?.ms_since(&start)
            }
            Gpu::Metal(gpu) => gpu.time(&mut queue),
            Gpu::Simulated(_) => unreachable!("refused by has_times"),
        }
    }

    /// An error on a simulated GPU, whose time is no GPU's.
    pub fn has_times(&self) -> Result<()> {
        match self {
            Gpu::Simulated(_) => Err(needs_hardware(
                "a kernel's time cannot be had",
                "run this on an NVIDIA GPU, or see the recorded run (`lesson.measure`); \
                 what a kernel does to memory can be counted here, with `kernel.inspect`",
            )),
            Gpu::Cuda(gpu) => gpu.outside_capture("a time", "capture the work first, and time `graph.launch`"),
            Gpu::Metal(_) => Ok(()),
        }
    }

    // Not generic: it is compiled once in the crate, and not again in each cell.
    fn time_boxed(&self, plan: &Bench, work: &mut dyn FnMut(usize) -> Result<()>) -> Result<Summary> {
        self.has_times()?;
        let mut call = 0;
        bench::run(plan, &mut |repeats| {
            self.timed(repeats, &mut |_| {
                call += 1;
                work(call - 1)
            })
        })
    }
}
