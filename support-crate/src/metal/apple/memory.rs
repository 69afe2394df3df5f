//! Buffers in the memory that CPU and GPU share. A copy is an ordinary copy by the CPU, once the GPU is done.

use super::MetalGpu;
use crate::error::{Error, Result, bytes};
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLBuffer, MTLDevice, MTLResourceOptions};
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
            return Err(Error::Invalid {
                what: format!(
                    "a buffer of {}, and one Metal buffer holds {}",
                    bytes(asked as u64),
                    bytes(largest as u64)
                ),
                fix: "split the data into several buffers".to_string(),
            });
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
        if given != self.len {
            let what = "a copy of bytes".to_string();
            return Err(Error::LengthMismatch { what, expected: self.len, given });
        }
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
