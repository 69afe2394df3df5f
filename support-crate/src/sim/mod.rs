//! A GPU that is none: [`warpsim`] runs a kernel's PTX on this machine's cores, checks it and counts what it does.
//!
//! It gives right results, mistakes by source line, and the counters of [`Inspection`](crate::inspect::Inspection).
//! It gives no times: how long the simulator takes says nothing about a GPU.
//!
//! | file | what it holds |
//! | --- | --- |
//! | this one | opening it, what it can do, its buffers |
//! | [`shipped`] | source to PTX; the PTX of known sources, for machines without NVRTC |
//! | `kernel` | PTX to a kernel, launches, what they did: mistakes in the words of the source, and an [`Inspection`](crate::inspect::Inspection) |

use crate::cpu;
use crate::error::{Error, Result};
use crate::launch::LaunchLimits;
use crate::measurement::MemoryStats;
pub(crate) use kernel::{SimKernel, SimLibrary};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
pub use warpsim::BlockOrder;

mod kernel;
pub mod shipped;

pub use shipped::compile;
pub(crate) use shipped::compile_or_ship;

/// The architecture that kernels are compiled for: the newest that the simulator runs.
pub const ARCHITECTURE: u32 = 90;

/// Instructions that the warps of a block may take: a loop without an end is told within ten seconds or so. One thread alone
/// gets through some five million elements with that.
const STEPS: u64 = 1 << 25;

/// A simulated GPU. Cloning it is cheap: both names mean the same device.
#[derive(Clone)]
pub struct SimGpu(Arc<Opened>);

struct Opened {
    device: Mutex<warpsim::Device>,
    used: Mutex<Used>,
    name: String,
    /// Bytes that its buffers may hold together.
    total: u64,
}

impl SimGpu {
    pub(crate) fn open() -> SimGpu {
        let mut device = warpsim::Device::new();
        device.set_step_budget(STEPS);
        let info = cpu::info();
        let machine = info.memory_limit_bytes.or(info.memory_bytes);
        SimGpu(Arc::new(Opened {
            device: Mutex::new(device),
            used: Mutex::default(),
            name: format!("simulated GPU (warpsim, sm_{ARCHITECTURE})"),
            // Half of the machine's: the notebook needs some, and notes beside each buffer too.
            total: machine.map_or(8 << 30, |bytes| bytes / 2),
        }))
    }

    /// The order in which the blocks of later launches start.
    pub fn set_block_order(&self, order: BlockOrder) {
        self.device().set_block_order(order);
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    /// True when both names mean one device.
    pub(crate) fn is(&self, other: &SimGpu) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Those of compute capability 9.0.
    pub(crate) fn limits(&self) -> LaunchLimits {
        LaunchLimits {
            threads_per_block: 1024,
            block: (1024, 1024, 64),
            grid: (i32::MAX as u32, 65_535, 65_535),
            shared_bytes_per_block: 232_448,
        }
    }

    pub(crate) fn memory(&self) -> MemoryStats {
        let (Used { now, high }, total) = (*lock(&self.0.used), self.0.total);
        let free = total.saturating_sub(now);
        MemoryStats { used: now, reserved: now, used_high: high, reserved_high: high, free, total }
    }

    fn device(&self) -> MutexGuard<'_, warpsim::Device> {
        lock(&self.0.device)
    }
}

/// A cell that panicked elsewhere leaves the device as usable as before: each call leaves it whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The simulator's own words end with the next step as ours do.
fn refused(error: &warpsim::SimulatorError) -> Error {
    let text = error.to_string();
    let (what, fix) = text.split_once("\nnext: ").unwrap_or((&text, "run `make verify`"));
    let (what, fix) = (what.to_string(), fix.to_string());
    match error {
        warpsim::SimulatorError::Unsupported { .. } => Error::unsupported(format!("the simulator: {what}"), fix),
        _ => Error::invalid(format!("the simulator: {what}"), fix),
    }
}

/// What only hardware has.
pub fn needs_hardware(what: &str, fix: &str) -> Error {
    Error::unsupported(format!("{what}: this is a simulated GPU"), fix.to_string())
}

impl fmt::Debug for SimGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimGpu({}, {})", self.0.name, self.memory())
    }
}

/// Bytes that live buffers hold, and the most that they ever held.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Used {
    pub now: u64,
    pub high: u64,
}

/// Bytes in the simulated GPU's memory. Dropping it frees them.
pub(crate) struct SimMemory {
    gpu: SimGpu,
    address: u64,
    bytes: usize,
}

impl SimGpu {
    /// Allocates; reading what nothing has written is a mistake of the kernel.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<SimMemory> {
        let stats = self.memory();
        let none = || Error::OutOfMemory { asked: bytes as u64, free: stats.free, total: stats.total, reserved: 0 };
        if bytes as u64 > stats.free {
            return Err(none());
        }
        // Empty buffers too have an address of their own.
        let address = self.device().alloc(bytes.max(1)).map_err(|_| none())?;
        let mut used = lock(&self.0.used);
        used.now += bytes as u64;
        used.high = used.high.max(used.now);
        Ok(SimMemory { gpu: self.clone(), address, bytes })
    }
}

impl SimMemory {
    pub(crate) fn is_of(&self, gpu: &SimGpu) -> bool {
        self.gpu.is(gpu)
    }

    /// As a kernel takes it.
    pub(crate) fn arg(&self) -> warpsim::Arg {
        warpsim::Arg::Pointer(self.address)
    }

    /// A matrix, or a stack of them (its sides from the slowest to the fastest), as the simulated TMA takes it: in
    /// boxes of rows of 128 bytes, swizzled.
    pub(crate) fn tensor_map(
        &self,
        element: usize,
        sides: &[usize],
        (offset, columns): (usize, usize),
        box_rows: u32,
    ) -> Result<[u64; 16]> {
        let mut sizes: Vec<u64> = sides.iter().rev().map(|&side| side as u64).collect();
        let steps = sizes.iter().scan(element as u64, |bytes, &side| {
            *bytes *= side;
            Some(*bytes)
        });
        let strides = steps.take(sizes.len() - 1).collect();
        sizes[0] = columns as u64;
        let mut box_sizes = vec![1; sizes.len()];
        box_sizes[..2].copy_from_slice(&[(crate::cuda::BOX_ROW / element) as u32, box_rows]);
        let swizzle = warpsim::Swizzle::Bytes128;
        let map = warpsim::TmaDescriptor {
            base: self.address + offset as u64,
            element: element as u8,
            sizes,
            strides,
            box_sizes,
            swizzle,
        };
        let bytes = map.bytes().map_err(|error| refused(&error))?;
        let (words, _) = bytes.as_chunks::<8>();
        Ok(std::array::from_fn(|i| u64::from_le_bytes(words[i])))
    }

    pub(crate) fn write(&mut self, host: &[u8]) -> Result<()> {
        self.gpu.device().write(self.address, host).map_err(|error| refused(&error))
    }

    pub(crate) fn read(&self, host: &mut [u8]) -> Result<()> {
        self.gpu.device().read(self.address, host).map_err(|error| refused(&error))
    }

    pub(crate) fn fill(&mut self, value: u8) -> Result<()> {
        self.write(&vec![value; self.bytes])
    }

    /// Fills it with bytes that still count as never written.
    pub(crate) fn poison(&mut self, value: u8) -> Result<()> {
        self.gpu.device().poison(self.address, self.bytes, value).map_err(|error| refused(&error))
    }

    pub(crate) fn copy_from(&mut self, other: &SimMemory) -> Result<()> {
        let mut bytes = vec![0; other.bytes];
        other.read(&mut bytes)?;
        self.write(&bytes)
    }
}

impl Drop for SimMemory {
    fn drop(&mut self) {
        // It was allocated here and is freed once, so there is nothing to report.
        if self.gpu.device().free(self.address).is_ok() {
            lock(&self.gpu.0.used).now -= self.bytes as u64;
        }
    }
}
