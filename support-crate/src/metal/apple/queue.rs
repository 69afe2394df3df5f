//! Launching, waiting and timing. Each launch is one command buffer, as each CUDA launch is one entry of a stream.

use super::{MetalGpu, MetalKernel, MetalMemory, metal_error, nothing};
use crate::error::{Error, Result};
use crate::launch::LaunchConfig;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_metal::{
    MTLCommandBuffer, MTLCommandBufferError, MTLCommandBufferStatus, MTLCommandEncoder, MTLCommandQueue,
    MTLComputeCommandEncoder, MTLComputePipelineState, MTLDevice, MTLSize,
};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{MutexGuard, PoisonError};

/// Bytes that Metal takes by value (`setBytes`).
const MAX_BYTES: usize = 4096;

/// One argument: a buffer, or a plain value's bytes.
pub(crate) enum MetalArg<'a> {
    Memory(&'a MetalMemory),
    Bytes(&'a [u8]),
}

/// A launch on its way.
struct Launch(Retained<ProtocolObject<dyn MTLCommandBuffer>>);

// SAFETY: it is committed, so nobody encodes into it any more: what is left is to wait for it, to read its state, and
// to release it, and these Metal allows from any thread.
unsafe impl Send for Launch {}

/// What was launched and has not been looked at since.
#[derive(Default)]
pub(super) struct Pending {
    launches: VecDeque<Launch>,
    /// The first failure that nobody has been told of.
    failed: Option<Error>,
    /// From the earliest GPU start to the latest GPU end, in seconds, while the clock runs.
    clock: Option<(f64, f64)>,
}

impl Pending {
    /// Waits for everything that was launched; failures are kept.
    pub(super) fn wait(&mut self) {
        while let Some(launch) = self.launches.pop_front() {
            launch.0.waitUntilCompleted();
            self.look_at(&launch);
        }
    }

    /// Waits, and hands out the first failure.
    pub(super) fn settle(&mut self) -> Result<()> {
        self.wait();
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Lets go of launches that have ended, so that the list stays short when nobody waits for long.
    fn let_go(&mut self) {
        let ended = |launch: &Launch| launch.0.status() >= MTLCommandBufferStatus::Completed;
        while self.launches.front().is_some_and(ended) {
            let launch = self.launches.pop_front().expect("just seen");
            self.look_at(&launch);
        }
    }

    fn look_at(&mut self, launch: &Launch) {
        if launch.0.status() == MTLCommandBufferStatus::Error {
            let error = autoreleasepool(|_| match launch.0.error() {
                Some(error) => metal_error("waiting for a kernel launched earlier", &error, next_step(error.code())),
                None => nothing("waiting for a kernel launched earlier"),
            });
            self.failed.get_or_insert(error);
        } else if let Some((start, end)) = &mut self.clock {
            *start = start.min(launch.0.GPUStartTime());
            *end = end.max(launch.0.GPUEndTime());
        }
    }
}

impl MetalGpu {
    pub(super) fn lock(&self) -> MutexGuard<'_, Pending> {
        // A panic elsewhere leaves the list as true as it was.
        self.0.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        self.lock().settle()
    }

    /// Queues the launch and returns. When 64 launches are on their way, Metal makes it wait for one of them.
    pub(crate) fn launch(&self, kernel: &MetalKernel, config: LaunchConfig, args: &[MetalArg<'_>]) -> Result<()> {
        let shared = self.shared_bytes(kernel, config)?;
        for arg in args {
            match arg {
                MetalArg::Memory(memory) => memory.must_be_of(self)?,
                MetalArg::Bytes(bytes) if bytes.is_empty() || bytes.len() > MAX_BYTES => {
                    return Err(Error::Invalid {
                        what: format!("an argument of {} bytes by value", bytes.len()),
                        fix: format!("Metal takes 1 to {MAX_BYTES} bytes by value: pass a buffer"),
                    });
                }
                MetalArg::Bytes(_) => {}
            }
        }
        let mut pending = self.lock();
        pending.let_go();
        // The pool frees what Metal's methods leave behind for "later": a notebook's thread has no pool of its own.
        autoreleasepool(|_| {
            let commands = self.0.queue.commandBuffer().ok_or_else(|| nothing("making a command buffer"))?;
            let encoder = commands.computeCommandEncoder().ok_or_else(|| nothing("making a command encoder"))?;
            encoder.setComputePipelineState(&kernel.pipeline);
            for (at, arg) in args.iter().enumerate() {
                match arg {
                    // SAFETY: offset 0 is inside, Metal has 31 places and a launch at most 16 arguments, the command
                    // buffer keeps the memory alive, and the CPU touches it only when the queue is idle. What the
                    // kernel does with it is the kernel's business, as on CUDA.
                    MetalArg::Memory(memory) => unsafe {
                        encoder.setBuffer_offset_atIndex(Some(&memory.buffer), 0, at);
                    },
                    // SAFETY: Metal copies the bytes during the call.
                    MetalArg::Bytes(bytes) => unsafe {
                        encoder.setBytes_length_atIndex(NonNull::from(*bytes).cast(), bytes.len(), at);
                    },
                }
            }
            if shared > 0 {
                // SAFETY: index 0 exists on every device, and the length was held against the device's limit.
                unsafe { encoder.setThreadgroupMemoryLength_atIndex(shared, 0) };
            }
            encoder.dispatchThreadgroups_threadsPerThreadgroup(size(config.grid), size(config.block));
            encoder.endEncoding();
            commands.commit();
            pending.launches.push_back(Launch(commands));
            Ok(())
        })
    }

    /// The dynamic shared memory, rounded up to Metal's step of 16 bytes; with the kernel's own it has to fit.
    fn shared_bytes(&self, kernel: &MetalKernel, config: LaunchConfig) -> Result<usize> {
        let dynamic = (config.shared_bytes as usize).next_multiple_of(16);
        let asked = dynamic + kernel.pipeline.staticThreadgroupMemoryLength();
        let limit = self.0.device.maxThreadgroupMemoryLength();
        if asked <= limit {
            return Ok(dynamic);
        }
        Err(Error::LaunchLimit {
            what: "too much threadgroup (shared) memory for a block, in bytes".to_string(),
            asked: asked as u64,
            limit: limit as u64,
            fix: "use a smaller tile".to_string(),
        })
    }

    /// Milliseconds from the GPU's start of the first launch in `work` to its end of the last, gaps included.
    pub(crate) fn time(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
        const STOPPED: (f64, f64) = (f64::INFINITY, f64::NEG_INFINITY);
        {
            let mut pending = self.lock();
            pending.settle()?;
            pending.clock = Some(STOPPED);
        }
        // Not under the lock: `work` launches, and each launch takes it.
        let worked = work();
        let mut pending = self.lock();
        let settled = pending.settle();
        let (start, end) = pending.clock.take().unwrap_or(STOPPED);
        worked?;
        settled?;
        if start > end {
            return Err(Error::Invalid {
                what: "nothing ran on the GPU while its clock was read (copies are the CPU's work on a Mac)"
                    .to_string(),
                fix: "launch a kernel in the timed closure, or time copies with `cpu::time`".to_string(),
            });
        }
        Ok((end - start) * 1e3)
    }
}

fn size((width, height, depth): (u32, u32, u32)) -> MTLSize {
    MTLSize { width: width as usize, height: height as usize, depth: depth as usize }
}

fn next_step(code: isize) -> &'static str {
    match MTLCommandBufferError(code as usize) {
        MTLCommandBufferError::PageFault | MTLCommandBufferError::InvalidResource => {
            "a kernel touched memory outside its buffers; check its bounds guard and the number of its arguments, then \
             restart the notebook's kernel (menu Kernel, Restart) and run from the first cell"
        }
        MTLCommandBufferError::Timeout => {
            "a kernel ran longer than macOS allows: look for an endless loop, or use a smaller problem"
        }
        MTLCommandBufferError::OutOfMemory => "drop buffers that are no longer needed, or use a smaller problem",
        MTLCommandBufferError::AccessRevoked => {
            "macOS shut this program out of the GPU after too many failures: restart the notebook's kernel (menu Kernel, Restart)"
        }
        _ => {
            "restart the notebook's kernel (menu Kernel, Restart) and run it again; if it fails again, run `make verify`"
        }
    }
}
