//! The order of work and its times: streams, events, graphs, timing on the device.

use super::Gpu;
use crate::bench;
use crate::bench::Bench;
use crate::cuda::{CudaGraph, driver_error};
use crate::error::{Error, Result};
use crate::measurement::Summary;
use crate::sim::needs_hardware;
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, CudaStream};
use std::fmt;
use std::sync::Arc;

/// A queue: what is launched on it runs in order, and may overlap with other streams. Cloning it is cheap: both names mean
/// the same queue.
#[derive(Debug, Clone)]
pub struct Stream(pub(crate) Arc<CudaStream>);

/// A stream that cudarc made, such as by `context.new_stream()`. A launch on it checks that it is one of the kernel's GPU.
impl From<Arc<CudaStream>> for Stream {
    fn from(stream: Arc<CudaStream>) -> Stream {
        Stream(stream)
    }
}

/// A mark in a stream. The GPU itself notes the time when it gets there.
#[derive(Debug)]
pub struct Event(CudaEvent);

impl Gpu {
    /// A new stream (`CudaContext::new_stream`, `cuStreamCreate`). Buffers may be used on several streams: the crate makes each wait for the others' writes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on an Apple GPU and on a simulated one.
    pub fn new_stream(&self) -> Result<Stream> {
        match self {
            Gpu::Cuda(gpu) => gpu.new_stream().map(Stream),
            Gpu::Metal(_) => Err(no_streams("streams")),
            Gpu::Simulated(_) => Err(not_queued("streams")),
        }
    }

    /// Marks the default stream's end: the event happens when all work launched so far has ended.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on an Apple GPU and on a simulated one.
    pub fn event(&self) -> Result<Event> {
        match self {
            Gpu::Cuda(gpu) => {
                gpu.outside_capture("an event", "record it before `gpu.capture`, or after `graph.launch`")?;
                Event::record(&gpu.stream)
            }
            Gpu::Metal(_) => Err(no_streams("events")),
            Gpu::Simulated(_) => Err(not_queued("events")),
        }
    }
}

fn no_streams(what: &str) -> Error {
    Error::unsupported(
        format!("the Metal backend has no {what}: it runs everything in one queue"),
        "use `gpu.time`, which works there too",
    )
}

fn not_queued(what: &str) -> Error {
    needs_hardware(
        &format!("there are no {what}, as each launch ends before the next begins"),
        "practise on `Queue`, the model of one, or run this on an NVIDIA GPU",
    )
}

impl Stream {
    /// The stream as cudarc has it, for `stream.launch_builder`, `memcpy_htod` and all that it offers.
    pub fn cuda_stream(&self) -> &Arc<CudaStream> {
        &self.0
    }

    /// Waits until all work of this stream has ended (`cuStreamSynchronize`).
    ///
    /// # Errors
    /// [`Error::Driver`], also for work launched earlier.
    pub fn synchronize(&self) -> Result<()> {
        self.0.synchronize().map_err(|error| driver_error("waiting for a stream", error))
    }

    /// Marks this stream's end.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn event(&self) -> Result<Event> {
        Event::record(&self.0)
    }
}

impl Event {
    pub(super) fn record(stream: &CudaStream) -> Result<Event> {
        let problem = |error| driver_error("recording an event", error);
        // Events note no time unless they are made for it.
        let event = stream.context().new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(problem)?;
        event.record(stream).map_err(problem)?;
        Ok(Event(event))
    }

    /// Milliseconds from `start` to this event, by the GPU's clock. Waits for both.
    ///
    /// # Errors
    /// [`Error::Driver`], also for work launched earlier.
    pub fn ms_since(&self, start: &Event) -> Result<f64> {
        start.0.elapsed_ms(&self.0).map(f64::from).map_err(|error| driver_error("reading two events", error))
    }
}

/// Launches that were captured once, and are launched together: the driver looks at each of them once, and not each
/// time. Kernels, copies between buffers and fills can be part of it, with the arguments that they had. Buffers must
/// outlive it (a launch says so when one does not).
pub struct Graph {
    graph: CudaGraph,
    name: String,
}

impl Gpu {
    /// Captures what `work` launches on the default stream (on this GPU or a clone of it) into a graph. Nothing runs yet.
    ///
    /// # Errors
    /// What `work` returns. Inside it [`Error::Invalid`] for what cannot be captured: allocating, copying from or to the
    /// host, waiting, timing. [`Error::Invalid`] where nothing was launched; [`Error::Unsupported`] on an Apple GPU and
    /// on a simulated one; [`Error::Driver`].
    pub fn capture(&self, mut work: impl FnMut() -> Result<()>) -> Result<Graph> {
        self.capture_boxed(&mut work)
    }

    fn capture_boxed(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Graph> {
        match self {
            Gpu::Cuda(gpu) => Ok(Graph { graph: gpu.capture(work)?, name: self.to_string() }),
            Gpu::Metal(_) => {
                Err(Error::unsupported("the Metal backend has no graphs", "launch the kernels one after the other"))
            }
            Gpu::Simulated(_) => Err(needs_hardware(
                "there are no graphs, as each launch ends before the next begins",
                "launch the kernels one after the other: the results are the same; or run this on an NVIDIA GPU",
            )),
        }
    }
}

impl Graph {
    /// Queues all of it on the default stream, and returns at once. `gpu.time(&plan, |_| graph.launch())` times it.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a buffer that it uses was dropped; [`Error::Driver`], also for work launched earlier.
    pub fn launch(&mut self) -> Result<()> {
        self.graph.launch()
    }

    /// Kernels, copies and fills in it.
    pub fn nodes(&self) -> usize {
        self.graph.nodes()
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({} nodes on {})", self.nodes(), self.name)
    }
}

/// Work to be timed against other work.
pub enum TimedWork<'a> {
    /// Queues one call on the default stream, and is given the call's number.
    Calls(Box<dyn FnMut(usize) -> Result<()> + 'a>),
    /// Takes one sample by a clock of its own, in **ms per call**: another process, or the CPU.
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

    /// Times several kinds of work against each other: one sample of each, again and again, so that what changes with time
    /// (clocks, heat) is the same for all. The samples of each in **ms per call**, repetition by repetition; those of one belong
    /// together. Work that has used up the plan's budget alone, and has five samples, is passed over from then on.
    ///
    /// # Errors
    /// As [`Gpu::time`].
    pub fn time_interleaved(&self, plan: &Bench, work: &mut [TimedWork<'_>]) -> Result<Vec<Vec<f64>>> {
        self.has_times()?;
        let mut repeats = Vec::new();
        for work in work.iter_mut() {
            repeats.push(match work {
                TimedWork::Calls(work) => {
                    let once = self.timed(1, &mut |call| work(call))?;
                    // A lone call looks slower than one of many, so a batch is tried too.
                    let few =
                        if once < plan.min_sample_ms { self.timed(8, &mut |call| work(call))? / 8.0 } else { once };
                    plan.repeats_for(few)
                }
                TimedWork::Clocked(sample) => {
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
                    TimedWork::Calls(work) => {
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
                    TimedWork::Clocked(sample) => {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::LaunchConfig;

    const ADD: &str = r#"extern "C" __global__ void add(float *x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) x[i] += 1.0f;
    }"#;

    #[test]
    fn a_simulated_gpu_has_no_graphs_and_says_what_to_do() {
        let text = Gpu::simulated().unwrap().capture(|| Ok(())).unwrap_err().to_string();
        assert!(text.contains("graphs") && text.contains("\nnext: "), "{text}");
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_graph_does_its_work_each_time_and_refuses_what_it_cannot_do() {
        let gpu = Gpu::open_index(0).unwrap();
        let add = gpu.compile(ADD).unwrap().kernel("add").unwrap();
        let (mut x, mut copy) = (gpu.zeros::<f32>(1000).unwrap(), gpu.zeros::<f32>(1000).unwrap());
        let mut graph = gpu
            .capture(|| {
                add.launch(LaunchConfig::for_elements(1000, 256), (&mut x, 1000))?;
                add.launch(LaunchConfig::for_elements(1000, 256), (&mut x, 1000))?;
                copy.copy_from_buffer(&x)
            })
            .unwrap();
        assert_eq!((graph.nodes(), x.to_host().unwrap()[999]), (3, 0.0), "a capture runs nothing");
        for _ in 0..3 {
            graph.launch().unwrap();
        }
        assert_eq!((copy.to_host().unwrap()[0], x.to_host().unwrap()[999]), (6.0, 6.0));
        let refused: [(&str, Result<Graph>); 4] = [
            ("an allocation", gpu.capture(|| gpu.zeros::<f32>(8).map(drop))),
            ("the host", gpu.capture(|| x.to_host().map(drop))),
            ("waiting", gpu.capture(|| gpu.synchronize())),
            ("nothing was launched", gpu.capture(|| Ok(()))),
        ];
        for (text, result) in refused {
            let message = result.unwrap_err().to_string();
            assert!(message.contains(text) && message.contains("\nnext: "), "{message}");
        }
        drop(add);
        graph.launch().unwrap();
        assert_eq!(x.to_host().unwrap()[0], 8.0, "the graph keeps its kernels");
        drop(copy);
        assert!(graph.launch().unwrap_err().to_string().contains("was dropped"));
    }
}
