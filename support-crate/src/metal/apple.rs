//! The Mac's GPU through objc2-metal, the binding that candle uses too.
//!
//! **Type-checked only:** the course's machines are Linux machines, so this code is compiled for
//! `aarch64-apple-darwin` with every change and has not yet run on a Mac.

use crate::error::{Error, Result, bytes, same_length};
use crate::launch::{LaunchConfig, LaunchLimits, Source};
use crate::measurement::MemoryStats;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSError, NSString};
use objc2_metal::{
    MTLBuffer, MTLCommandBuffer, MTLCommandBufferError, MTLCommandBufferStatus, MTLCommandEncoder, MTLCommandQueue,
    MTLCompileOptions, MTLComputeCommandEncoder, MTLComputePipelineState, MTLCreateSystemDefaultDevice, MTLDevice,
    MTLLibrary, MTLResourceOptions, MTLSize,
};
use std::collections::VecDeque;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

// `MTLCreateSystemDefaultDevice` answers "no device" in a program that is not linked with this framework.
#[link(name = "CoreGraphics", kind = "framework")]
unsafe extern "C" {}

/// An Apple GPU. Cloning it is cheap: both names mean the same device and the same queue.
#[derive(Clone)]
pub struct MetalGpu(Arc<Opened>);

struct Opened {
    device: Retained<ProtocolObject<dyn MTLDevice>>,
    queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    name: String,
    /// The most bytes that were ever allocated, as seen after each allocation.
    used_high: AtomicU64,
    /// Work on its way. Whoever holds this lock knows that nothing new is launched meanwhile.
    pending: Mutex<Pending>,
}

impl MetalGpu {
    pub(crate) fn open() -> Result<MetalGpu> {
        let none = || Error::NoGpu { tried: vec!["Metal: this Mac shows no Metal device".to_string()] };
        let device = MTLCreateSystemDefaultDevice().ok_or_else(none)?;
        let queue = device.newCommandQueue().ok_or_else(|| nothing("making a command queue"))?;
        let name = device.name().to_string();
        let (used_high, pending) = (AtomicU64::new(0), Mutex::default());
        Ok(MetalGpu(Arc::new(Opened { device, queue, name, used_high, pending })))
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn limits(&self) -> LaunchLimits {
        let block = self.0.device.maxThreadsPerThreadgroup();
        let (x, y, z) = (to_u32(block.width), to_u32(block.height), to_u32(block.depth));
        LaunchLimits {
            // Metal tells the largest extent of each axis; all threads of a block fit along the longest one.
            threads_per_block: x.max(y).max(z),
            block: (x, y, z),
            // Metal sets none; a kernel that numbers its threads with `uint` sets it by itself.
            grid: (u32::MAX, u32::MAX, u32::MAX),
            shared_bytes_per_block: to_u32(self.0.device.maxThreadgroupMemoryLength()),
        }
    }

    /// There is no pool: what buffers hold is what the driver has given. `total` is the size up to which Metal promises
    /// good speed, because the memory itself is the whole machine's.
    pub(crate) fn memory(&self) -> MemoryStats {
        // A dropped buffer is freed when the last launch that used it has ended. Its errors stay for `synchronize`.
        self.lock().wait();
        let (used, total) = (self.used(), self.0.device.recommendedMaxWorkingSetSize());
        let used_high = self.0.used_high.load(Ordering::Relaxed).max(used);
        let free = total.saturating_sub(used);
        MemoryStats { used, reserved: used, used_high, reserved_high: used_high, free, total }
    }

    fn used(&self) -> u64 {
        self.0.device.currentAllocatedSize() as u64
    }
}

impl fmt::Debug for MetalGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MetalGpu").field(&self.0.name).finish()
    }
}

/// Metal counts in `usize`, the crate in `u32`.
fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// For the calls in which Metal answers nil and gives no reason.
fn nothing(during: &str) -> Error {
    Error::Driver {
        during: during.to_string(),
        code: "nil".to_string(),
        text: "Metal gave no object and no reason".to_string(),
        fix: "drop buffers and close programs that use the GPU, then restart the notebook's kernel".to_string(),
    }
}

fn metal_error(during: &str, error: &NSError, fix: &str) -> Error {
    Error::Driver {
        during: during.to_string(),
        code: format!("{} {}", error.domain(), error.code()),
        text: error.localizedDescription().to_string(),
        fix: fix.to_string(),
    }
}

// A GPU and what lies on it may move between threads, as on CUDA.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<MetalGpu>();
    shared::<MetalMemory>();
    shared::<MetalKernel>();
    shared::<MetalLibrary>();
};

/// What Metal calls source that comes from a string, in its messages.
const FILE: &str = "program_source:";

/// Compiled Metal functions.
#[derive(Debug, Clone)]
pub(crate) struct MetalLibrary(Retained<ProtocolObject<dyn MTLLibrary>>);

/// One kernel, compiled down to this GPU.
#[derive(Debug, Clone)]
pub(crate) struct MetalKernel {
    pub(super) pipeline: Retained<ProtocolObject<dyn MTLComputePipelineState>>,
}

impl MetalGpu {
    pub(crate) fn compile(&self, source: &Source) -> Result<MetalLibrary> {
        autoreleasepool(|_| {
            let options = MTLCompileOptions::new();
            // Metal's default assumes that there is no NaN: poisoned buffers would prove nothing, and figures would
            // not compare with CUDA's. The newer `mathMode` needs macOS 15.
            #[allow(deprecated)]
            options.setFastMathEnabled(false);
            let text = NSString::from_str(&with_defines(source));
            let library = self.0.device.newLibraryWithSource_options_error(&text, Some(&options));
            library.map(MetalLibrary).map_err(|error| {
                let log = error.localizedDescription().to_string();
                Error::Compile { excerpt: excerpt(&log, source), log }
            })
        })
    }
}

impl MetalLibrary {
    pub(crate) fn names(&self) -> Vec<String> {
        autoreleasepool(|_| self.0.functionNames().iter().map(|name| name.to_string()).collect())
    }

    pub(crate) fn kernel(&self, name: &str) -> Result<MetalKernel> {
        autoreleasepool(|_| {
            let function = self.0.newFunctionWithName(&NSString::from_str(name));
            let function =
                function.ok_or_else(|| Error::NoSuchKernel { asked: name.to_string(), found: self.names() })?;
            let pipeline = self.0.device().newComputePipelineStateWithFunction_error(&function);
            let pipeline = pipeline.map_err(|error| {
                let fix = "check that it is declared `kernel void` and that its threadgroup memory fits the GPU";
                metal_error(&format!("finishing the kernel `{name}`"), &error, fix)
            })?;
            Ok(MetalKernel { pipeline })
        })
    }
}

impl MetalKernel {
    pub(crate) fn max_threads_per_block(&self) -> u32 {
        to_u32(self.pipeline.maxTotalThreadsPerThreadgroup())
    }
}

/// The source after its constants; the compiler still counts the source's own lines from 1.
fn with_defines(source: &Source) -> String {
    let defines = source.defines.iter().map(|(name, value)| format!("#define {name} {value}\n"));
    match source.defines.is_empty() {
        true => source.text.clone(),
        false => format!("{}#line 1\n{}", defines.collect::<String>(), source.text),
    }
}

/// The source lines that the log complains about, each with its message.
fn excerpt(log: &str, source: &Source) -> String {
    source.excerpt(log.lines().filter_map(|message| {
        // `program_source:3:9: error: use of undeclared identifier 'd'`
        let mut parts = message.split_once(FILE)?.1.splitn(3, ':');
        let number = parts.next()?.parse().ok()?;
        let complaint = parts.nth(1)?.trim();
        complaint.contains("error:").then_some((number, complaint))
    }))
}

/// Memory that kernels read and write.
pub(crate) struct MetalMemory {
    pub(super) buffer: Retained<ProtocolObject<dyn MTLBuffer>>,
    len: usize,
    gpu: MetalGpu,
}

// SAFETY: retain and release are atomic, address and length never change, and every access to the contents happens
// under the GPU's lock (`MetalMemory::when_idle`, `MetalGpu::launch`).
unsafe impl Send for MetalMemory {}
// SAFETY: as above; a shared reference reads the contents only when no kernel runs.
unsafe impl Sync for MetalMemory {}

impl MetalGpu {
    pub(crate) fn alloc(&self, asked: usize) -> Result<MetalMemory> {
        let device = &self.0.device;
        let (used, total, largest) = (self.used(), device.recommendedMaxWorkingSetSize(), device.maxBufferLength());
        let free = total.saturating_sub(used);
        if asked > largest && asked as u64 <= free {
            return Err(Error::invalid(
                format!("a buffer of {}, and one Metal buffer holds {}", bytes(asked as u64), bytes(largest as u64)),
                "split the data into several buffers",
            ));
        }
        let full = || Error::OutOfMemory { asked: asked as u64, free, total, reserved: 0 };
        if asked > largest {
            return Err(full());
        }
        // Metal has no empty buffer.
        let buffer = device.newBufferWithLength_options(asked.max(1), MTLResourceOptions::StorageModeShared);
        let buffer = buffer.ok_or_else(full)?;
        self.0.used_high.fetch_max(self.used(), Ordering::Relaxed);
        Ok(MetalMemory { buffer, len: asked, gpu: self.clone() })
    }
}

impl MetalMemory {
    /// Refuses a buffer of another opening of the GPU: its work runs in another queue, for which nobody here waits.
    pub(super) fn must_be_of(&self, gpu: &MetalGpu) -> Result<()> {
        if Arc::ptr_eq(&self.gpu.0, &gpu.0) {
            return Ok(());
        }
        Err(Error::DeviceMismatch {
            expected: format!("this opening of {}", gpu.name()),
            found: "another one (each `Gpu::apple()` has a queue of its own)".to_string(),
        })
    }

    /// Runs `copy` on the contents' address when all queued work has ended, and lets nothing start meanwhile.
    fn when_idle(&self, given: usize, copy: impl FnOnce(*mut u8)) -> Result<()> {
        same_length("a copy of bytes", self.len, given)?;
        let mut pending = self.gpu.lock();
        pending.settle()?;
        copy(self.buffer.contents().as_ptr().cast());
        Ok(())
    }

    pub(crate) fn write(&mut self, host: &[u8]) -> Result<()> {
        // SAFETY: the contents are `host.len()` bytes long, no kernel runs, and host memory is no Metal buffer.
        self.when_idle(host.len(), |contents| unsafe { contents.copy_from_nonoverlapping(host.as_ptr(), host.len()) })
    }

    pub(crate) fn read(&self, host: &mut [u8]) -> Result<()> {
        // SAFETY: as in `write`; a buffer of shared storage is readable by the CPU in all its length.
        self.when_idle(host.len(), |contents| unsafe { contents.copy_to_nonoverlapping(host.as_mut_ptr(), host.len()) })
    }

    pub(crate) fn fill(&mut self, value: u8) -> Result<()> {
        // SAFETY: the contents are `self.len` bytes long, and no kernel runs.
        self.when_idle(self.len, |contents| unsafe { contents.write_bytes(value, self.len) })
    }

    pub(crate) fn copy_from(&mut self, other: &MetalMemory) -> Result<()> {
        other.must_be_of(&self.gpu)?;
        let from = other.buffer.contents().as_ptr().cast::<u8>();
        // SAFETY: both are as long as `when_idle` checks, of one queue that is idle, and different buffers: this one
        // is borrowed mutably.
        self.when_idle(other.len, |contents| unsafe { contents.copy_from_nonoverlapping(from, other.len) })
    }
}

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
                    return Err(Error::invalid(
                        format!("an argument of {} bytes by value", bytes.len()),
                        format!("Metal takes 1 to {MAX_BYTES} bytes by value: pass a buffer"),
                    ));
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
                // SAFETY: index 0 exists on every device, and the length was compared with the device's limit.
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
            return Err(Error::invalid(
                "nothing ran on the GPU while its clock was read (copies are the CPU's work on a Mac)",
                "launch a kernel in the timed closure, or time copies with `cpu::time`",
            ));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_mapped_to_lines() {
        let source = Source::text("a\nb\nint c = d;\n");
        let log = "program_source:3:9: error: use of undeclared identifier 'd'\nint c = d;\n        ^\n";
        assert_eq!(excerpt(log, &source), "    3 | int c = d;\n      ^ error: use of undeclared identifier 'd'\n");
        assert_eq!(excerpt("program_source:3:9: warning: unused", &source), "");
        assert_eq!(excerpt("program_source:30:9: error: past the end", &source), "");
    }

    #[test]
    fn constants_come_first_and_move_no_line() {
        let source = Source::text("int c = N;\n");
        assert_eq!(with_defines(&source), "int c = N;\n");
        assert_eq!(with_defines(&source.define("N", 3)), "#define N 3\n#line 1\nint c = N;\n");
    }
}
