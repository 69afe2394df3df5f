//! Tables by words of memory: the checks look some up at every access, and addresses need no hash that withstands an
//! attack.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table whose keys are addresses, numbers of threads, blocks or instructions.
pub type Words<K, V> = HashMap<K, V, BuildHasherDefault<Multiply>>;

/// A multiplication for each number: it spreads them to the upper bits.
#[derive(Debug, Default)]
pub struct Multiply(u64);

impl Hasher for Multiply {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        // A table begins with the lowest bits.
        self.0.rotate_left(26)
    }
}
