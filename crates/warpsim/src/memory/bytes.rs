//! Bytes that several cores may read and write at once, as blocks of one launch do.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// A run of bytes, aligned to 8; each aligned element of 1, 2, 4 or 8 bytes is read and written whole.
#[derive(Debug, Default)]
pub struct Bytes {
    words: Box<[AtomicU64]>,
    len: usize,
}

impl Bytes {
    /// Zeros. `None` if there is no room.
    pub fn zeros(len: usize) -> Option<Self> {
        let count = len.div_ceil(8);
        let mut plain: Vec<u64> = Vec::new();
        plain.try_reserve_exact(count).ok()?;
        drop(plain);
        // From zeroed pages: untouched memory costs nothing.
        let plain = vec![0u64; count].into_boxed_slice();
        // SAFETY: AtomicU64 has the layout of u64, and the box is the only owner.
        let words = unsafe { Box::from_raw(Box::into_raw(plain) as *mut [AtomicU64]) };
        Some(Self { words, len })
    }

    /// Length in bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Pointer to an element; panics outside the bytes and when misaligned, which callers rule out.
    #[inline(always)]
    fn at(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(at.is_multiple_of(bytes) && at <= self.len && self.len - at >= bytes, "an unchecked access");
        // SAFETY: inside the allocation by the assertion.
        unsafe { self.start().add(at) }
    }

    /// The first byte; atomics allow writing through a shared reference.
    #[inline(always)]
    pub(super) fn start(&self) -> *mut u8 {
        self.words.as_ptr().cast::<u8>().cast_mut()
    }

    /// Reads an element of 1, 2, 4 or 8 bytes.
    #[inline(always)]
    pub fn load(&self, at: usize, bytes: u8) -> u64 {
        // SAFETY: `at` gives a valid, aligned pointer; all access while shared is atomic.
        unsafe {
            match bytes {
                1 => AtomicU8::from_ptr(self.at(at, 1)).load(Relaxed).into(),
                2 => AtomicU16::from_ptr(self.at(at, 2).cast()).load(Relaxed).into(),
                4 => AtomicU32::from_ptr(self.at(at, 4).cast()).load(Relaxed).into(),
                _ => AtomicU64::from_ptr(self.at(at, 8).cast()).load(Relaxed),
            }
        }
    }

    /// Writes an element of 1, 2, 4 or 8 bytes.
    #[inline(always)]
    pub fn store(&self, at: usize, bytes: u8, value: u64) {
        // SAFETY: as in `load`.
        unsafe {
            match bytes {
                1 => AtomicU8::from_ptr(self.at(at, 1)).store(value as u8, Relaxed),
                2 => AtomicU16::from_ptr(self.at(at, 2).cast()).store(value as u16, Relaxed),
                4 => AtomicU32::from_ptr(self.at(at, 4).cast()).store(value as u32, Relaxed),
                _ => AtomicU64::from_ptr(self.at(at, 8).cast()).store(value, Relaxed),
            }
        }
    }

    /// Changes an element of 2, 4 or 8 bytes in one step; gives the old value.
    pub fn update(&self, at: usize, bytes: u8, f: impl Fn(u64) -> u64) -> u64 {
        // SAFETY: as in `load`.
        unsafe {
            if bytes == 2 {
                let cell = AtomicU16::from_ptr(self.at(at, 2).cast());
                u64::from(cell.fetch_update(Relaxed, Relaxed, |x| Some(f(x.into()) as u16)).unwrap_or_else(|x| x))
            } else if bytes == 4 {
                let cell = AtomicU32::from_ptr(self.at(at, 4).cast());
                u64::from(cell.fetch_update(Relaxed, Relaxed, |x| Some(f(x.into()) as u32)).unwrap_or_else(|x| x))
            } else {
                let cell = AtomicU64::from_ptr(self.at(at, 8).cast());
                cell.fetch_update(Relaxed, Relaxed, |x| Some(f(x))).unwrap_or_else(|x| x)
            }
        }
    }

    /// The bytes, while nobody else has them.
    pub fn as_mut(&mut self) -> &mut [u8] {
        let start = self.words.as_mut_ptr().cast::<u8>();
        // SAFETY: the exclusive borrow rules out other access; `len` bytes lie in the allocation.
        unsafe { std::slice::from_raw_parts_mut(start, self.len) }
    }

    /// Zeros again.
    pub fn clear(&mut self) {
        // Filling nothing at no address took 100 ns: the masked store of `memset` is a fault there that is then undone.
        if self.len > 0 {
            self.as_mut().fill(0);
        }
    }

    /// The bytes, copied.
    pub fn copy_to(&self, at: usize, out: &mut [u8]) {
        for (i, byte) in out.iter_mut().enumerate() {
            *byte = self.load(at + i, 1) as u8;
        }
    }
}
