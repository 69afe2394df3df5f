//! Streams (queues of work) and events (marks in them).

use super::Gpu;
use crate::cuda::driver_error;
use crate::error::{Error, Result};
use crate::sim::needs_hardware;
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, CudaStream};
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
    Error::Unsupported {
        what: format!("the Metal backend has no {what}: it runs everything in one queue"),
        fix: "use `gpu.time`, which works there too".to_string(),
    }
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
