//! Capturing launches into a CUDA graph.
//!
//! The default stream cannot be captured, so while a capture goes on, what is launched goes to a stream of its own
//! ([`CudaGpu::queue`]). The graph is launched on the default stream, in order with everything else.

use super::open::Captured;
use super::{CudaGpu, CudaMemory, driver_error};
use crate::error::{Error, Result};
use cudarc::driver::result::{graph, stream};
use cudarc::driver::sys::{CUgraph, CUgraphExec, CUgraphInstantiate_flags, CUstreamCaptureMode, cuGraphGetNodes};
use cudarc::driver::{CudaContext, CudaStream, DriverError};
use std::any::Any;
use std::sync::{Arc, PoisonError, Weak};
use std::thread;

impl CudaGpu {
    /// The stream that this thread captures, if it does.
    pub(crate) fn captured(&self) -> Option<Arc<CudaStream>> {
        self.recording.of_this_thread(|captured| captured.stream.clone())
    }

    /// Where work is queued: the default stream, or the one that is being captured.
    pub(crate) fn queue(&self) -> Arc<CudaStream> {
        self.captured().unwrap_or_else(|| self.stream.clone())
    }

    /// An error that names `what`, while a graph is being captured.
    pub(crate) fn outside_capture(&self, what: &str, fix: &str) -> Result<()> {
        match self.recording.of_this_thread(|_| ()) {
            None => Ok(()),
            Some(()) => Err(Error::invalid(format!("{what} cannot be part of a graph"), fix.to_string())),
        }
    }

    /// Notes what memory the work uses, while a graph is being captured.
    pub(crate) fn uses<'a>(&self, memory: impl IntoIterator<Item = &'a CudaMemory>) {
        self.recording.of_this_thread(|captured| {
            captured.buffers.extend(memory.into_iter().map(|memory| Arc::downgrade(&memory.alive)));
        });
    }

    /// Keeps something as long as the graph, while one is being captured.
    pub(crate) fn keep(&self, thing: impl FnOnce() -> Arc<dyn Any + Send + Sync>) {
        self.recording.of_this_thread(|captured| captured.keep.push(thing()));
    }

    /// Captures what `work` queues.
    pub(crate) fn capture(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<CudaGraph> {
        self.outside_capture("another graph", "capture one after the other")?;
        let problem = |error| driver_error("capturing a graph", error);
        let _turn = self.recording.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // What other streams still do to these buffers must be over: the events that say so cannot be captured.
        self.context.synchronize().map_err(problem)?;
        let capture = Capture::begin(self).map_err(problem)?;
        let done = work();
        let (graph, captured) = capture.end();
        // What was captured until `work` failed is destroyed here, too.
        let graph = graph.map(Graph);
        done?;
        let graph = graph.map_err(problem)?;
        let mut nodes = 0_usize;
        // SAFETY: the graph was just made; a null list asks for the number of nodes alone.
        unsafe { cuGraphGetNodes(graph.0, std::ptr::null_mut(), &mut nodes) }.result().map_err(problem)?;
        if nodes == 0 {
            return Err(Error::invalid(
                "nothing was launched while the graph was captured",
                "launch kernels inside `gpu.capture`, on this GPU (`kernel.launch`)",
            ));
        }
        // SAFETY: the graph is valid and complete.
        let exec = unsafe { graph::instantiate(graph.0, CUgraphInstantiate_flags(0)) }.map_err(problem)?;
        let (buffers, keep) = captured.map_or_else(Default::default, |captured| (captured.buffers, captured.keep));
        Ok(CudaGraph { gpu: self.clone(), exec, nodes, buffers, _keep: keep })
    }
}

/// A capture that goes on; dropping it (a panic in the work) ends it too.
struct Capture<'a> {
    gpu: &'a CudaGpu,
    tracked: bool,
    stream: Option<Arc<CudaStream>>,
}

impl Capture<'_> {
    fn begin(gpu: &CudaGpu) -> std::result::Result<Capture<'_>, DriverError> {
        // Not cudarc's `new_stream`, which makes every later launch of the context record events for each buffer.
        let raw = stream::create(stream::StreamKind::NonBlocking)?;
        // SAFETY: the stream is of this context, and lives until `end`, which takes it from everyone who holds it.
        let own = unsafe { gpu.context.wrap_borrowed_stream(raw) };
        let tracked = gpu.context.is_managing_stream_synchronization();
        if tracked {
            // SAFETY: all work has ended, and no buffer is allocated while the capture goes on.
            unsafe { gpu.context.disable_event_tracking() };
        }
        let thread = thread::current().id();
        gpu.recording.begin(Captured { thread, stream: own.clone(), buffers: Vec::new(), keep: Vec::new() });
        let capture = Capture { gpu, tracked, stream: Some(own) };
        // Only this thread's calls are watched: another one may allocate meanwhile.
        // SAFETY: the stream is valid.
        unsafe { stream::begin_capture(raw, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) }?;
        Ok(capture)
    }

    fn end(mut self) -> (std::result::Result<CUgraph, DriverError>, Option<Captured>) {
        self.finish()
    }

    fn finish(&mut self) -> (std::result::Result<CUgraph, DriverError>, Option<Captured>) {
        let captured = self.gpu.recording.end();
        let Some(own) = self.stream.take() else {
            return (Err(DriverError(cudarc::driver::sys::CUresult::CUDA_ERROR_INVALID_HANDLE)), captured);
        };
        // SAFETY: the stream is valid until it is destroyed here, and a graph that comes out is the caller's.
        let graph = unsafe { stream::end_capture(own.cu_stream()) };
        // SAFETY: as above; nothing was executed on it.
        let destroyed = unsafe { stream::destroy(own.cu_stream()) };
        self.gpu.context.record_err(destroyed);
        if self.tracked {
            // SAFETY: no buffer was allocated meanwhile, so all of them have their events.
            unsafe { self.gpu.context.enable_event_tracking() };
        }
        (graph, captured)
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.stream.is_some()
            && let (Ok(graph), _) = self.finish()
        {
            drop(Graph(graph));
        }
    }
}

/// A graph as it was captured; it is not needed once it is instantiated.
struct Graph(CUgraph);

impl Drop for Graph {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the graph is this value's own. A failure here leaves memory of the driver's behind, no more.
            let _ = unsafe { graph::destroy(self.0) };
        }
    }
}

/// A graph that can be launched.
pub(crate) struct CudaGraph {
    gpu: CudaGpu,
    exec: CUgraphExec,
    nodes: usize,
    buffers: Vec<Weak<()>>,
    _keep: Vec<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: the handle may be used from any thread, one at a time; launching takes `&mut`.
unsafe impl Send for CudaGraph {}

impl CudaGraph {
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// Queues it on the default stream.
    pub(crate) fn launch(&mut self) -> Result<()> {
        if self.buffers.iter().any(|alive| alive.strong_count() == 0) {
            return Err(Error::invalid(
                "a buffer that this graph uses was dropped: a graph notes where its data lies",
                "keep the buffers as long as the graph, or capture it again",
            ));
        }
        self.gpu.outside_capture("another graph", "capture the kernels themselves")?;
        let problem = |error| driver_error("launching a graph", error);
        self.gpu.context.bind_to_thread().map_err(problem)?;
        // SAFETY: graph and stream are valid, and the buffers and modules that it names are still there.
        unsafe { graph::launch(self.exec, self.gpu.stream.cu_stream()) }.map_err(problem)
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        let context: &Arc<CudaContext> = &self.gpu.context;
        context.record_err(context.bind_to_thread());
        // SAFETY: the handle is this value's own; a launch that still runs keeps what it needs.
        context.record_err(unsafe { graph::exec_destroy(self.exec) });
    }
}
