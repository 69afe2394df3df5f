//! The Mac's GPU through objc2-metal, the binding that candle uses too.
//!
//! **Type-checked only:** the course's machines are Linux machines, so this code is compiled for
//! `aarch64-apple-darwin` with every change and has not yet run on a Mac.
//!
//! | file | what it holds |
//! | --- | --- |
//! | this one | opening the GPU, what it can do, how much memory it has |
//! | `library` | Metal source to a kernel that can be launched |
//! | `memory` | buffers and the copies into and out of them |
//! | `queue` | launches, waiting for them, the GPU's clock |

mod library;
mod memory;
mod queue;

pub(crate) use library::{MetalKernel, MetalLibrary};
pub(crate) use memory::MetalMemory;
pub(crate) use queue::MetalArg;

use crate::error::{Error, Result};
use crate::launch::Limits;
use crate::measurement::MemoryStats;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSError;
use objc2_metal::{MTLCommandQueue, MTLCreateSystemDefaultDevice, MTLDevice};
use queue::Pending;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

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

    pub(crate) fn limits(&self) -> Limits {
        let block = self.0.device.maxThreadsPerThreadgroup();
        let (x, y, z) = (to_u32(block.width), to_u32(block.height), to_u32(block.depth));
        Limits {
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
