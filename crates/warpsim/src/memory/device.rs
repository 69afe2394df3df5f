//! Allocations.

use super::{Bytes, GLOBAL_START};

/// Allocations start at multiples of this, as `cudaMalloc`'s do.
const ALIGN: u64 = 256;

/// Addresses left free between allocations: an index that is a little too large must not end in the next buffer. They
/// cost nothing, as no memory lies behind them.
const GAP: u64 = 16 << 20;

/// One allocation.
#[derive(Debug)]
pub struct Allocation {
    /// Address of its first byte.
    pub base: u64,
    /// Contents.
    pub bytes: Bytes,
    /// One bit for each byte that something has written; none where all bytes have a value from the start.
    pub written: Option<Bytes>,
    /// Name of the variable, for variables of a module.
    pub name: Option<String>,
}

/// All global and constant memory.
#[derive(Debug)]
pub struct DeviceMemory {
    /// Sorted by address.
    allocations: Vec<Allocation>,
    next: u64,
}

impl Default for DeviceMemory {
    fn default() -> Self {
        Self { allocations: Vec::new(), next: GLOBAL_START }
    }
}

impl DeviceMemory {
    /// Allocates zeros; addresses are never used twice, and a wide gap follows each allocation.
    pub fn alloc(&mut self, len: u64, name: Option<String>) -> Option<u64> {
        let bytes = Bytes::zeros(usize::try_from(len).ok()?)?;
        // Variables of a module start as zeros (CUDA), buffers as anything.
        let written =
            if name.is_some() { None } else { Some(Bytes::zeros(bytes.len().div_ceil(8).next_multiple_of(4))?) };
        let base = self.next;
        self.next = base.checked_add(len)?.checked_add(GAP)?.next_multiple_of(ALIGN);
        self.allocations.push(Allocation { base, bytes, written, name });
        Some(base)
    }

    /// Frees an allocation by the address of its first byte.
    pub fn free(&mut self, base: u64) -> bool {
        let found = self.allocations.binary_search_by_key(&base, |a| a.base);
        found.map(|at| self.allocations.remove(at)).is_ok()
    }

    /// Number of the allocation at or below an address.
    #[inline]
    pub fn below(&self, address: u64) -> Option<usize> {
        self.allocations.partition_point(|a| a.base <= address).checked_sub(1)
    }

    /// An allocation by its number.
    #[inline(always)]
    pub fn get(&self, number: usize) -> Option<&Allocation> {
        self.allocations.get(number)
    }

    /// Allocation and offset for a whole range of bytes.
    pub fn range(&self, address: u64, len: u64) -> Option<(usize, usize)> {
        let number = self.below(address)?;
        let allocation = &self.allocations[number];
        let offset = address - allocation.base;
        (offset.checked_add(len)? <= allocation.bytes.len() as u64).then_some((number, offset as usize))
    }

    /// Writes from the host into an allocation.
    pub fn write(&mut self, number: usize, at: usize, data: &[u8]) {
        let allocation = &mut self.allocations[number];
        allocation.bytes.as_mut()[at..at + data.len()].copy_from_slice(data);
        if let Some(written) = &mut allocation.written {
            mark(written.as_mut(), at, at + data.len(), true);
        }
    }

    /// Fills bytes of an allocation with one value, and forgets that anything was written there.
    pub fn poison(&mut self, number: usize, at: usize, len: usize, byte: u8) {
        let allocation = &mut self.allocations[number];
        allocation.bytes.as_mut()[at..at + len].fill(byte);
        if let Some(written) = &mut allocation.written {
            mark(written.as_mut(), at, at + len, false);
        }
    }
}

/// Sets or clears the bits of the bytes from `at` to before `end`, eight at a time where it can.
fn mark(written: &mut [u8], at: usize, end: usize, value: bool) {
    let first = at.next_multiple_of(8).min(end);
    let last = (end / 8 * 8).max(first);
    written[first / 8..last / 8].fill(if value { 0xff } else { 0 });
    for byte in (at..first).chain(last..end) {
        let bit = 1 << (byte % 8);
        if value { written[byte / 8] |= bit } else { written[byte / 8] &= !bit }
    }
}
