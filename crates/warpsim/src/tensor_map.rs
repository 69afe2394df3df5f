//! What a kernel gives the TMA: a tensor in global memory, and the box that is moved at a time.

use crate::error::{Result, SimulatorError};

/// In the first word of a map; a driver's own maps are opaque and look different.
const MAGIC: u64 = 0x7761_7270_0000_0000;

/// How 16-byte pieces of a box change places in shared memory (PTX ISA, "Swizzling Modes").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Swizzle {
    None,
    Bytes32,
    Bytes64,
    Bytes128,
}

impl Swizzle {
    /// Bytes after which the pattern of a row repeats; 16 without one.
    pub fn bytes(self) -> u64 {
        [16, 32, 64, 128][self as usize]
    }

    /// Where a byte lies: bits 4 to 6 of its address are mixed with bits 7 to 9, as many as the mode has.
    #[inline(always)]
    pub fn place(self, at: u64) -> u64 {
        at ^ (at >> 3 & (self.bytes() - 1) & !15)
    }

    /// By its number in a map.
    fn of(number: u64) -> Self {
        [Self::None, Self::Bytes32, Self::Bytes64, Self::Bytes128][number as usize & 3]
    }
}

/// A TMA descriptor (CUDA's tensor map) for the simulator: what `cuTensorMapEncodeTiled` is told. Its [`bytes`](Self::bytes) are the kernel's
/// parameter of 128 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TmaDescriptor {
    /// Address of the tensor.
    pub base: u64,
    /// Bytes of an element: 1, 2, 4 or 8.
    pub element: u8,
    /// Elements along each dimension, fastest first; 1 to 5 of them.
    pub sizes: Vec<u64>,
    /// Bytes from one to the next along each dimension but the first.
    pub strides: Vec<u64>,
    /// Elements of a box along each dimension.
    pub box_sizes: Vec<u32>,
    /// How the box lies in shared memory.
    pub swizzle: Swizzle,
}

impl TmaDescriptor {
    /// The map as a kernel's parameter.
    ///
    /// # Errors
    /// [`SimulatorError::Call`] for what the TMA does not take: other than 1 to 5 dimensions, boxes of more than 256
    /// elements along one, strides or rows of a box that are no multiple of 16 bytes, rows longer than the swizzle.
    pub fn bytes(&self) -> Result<[u8; 128]> {
        let rank = self.sizes.len();
        let wrong = |what: String| {
            Err(SimulatorError::Call(format!("{what}\nnext: see cuTensorMapEncodeTiled for what is allowed")))
        };
        if !(1..=5).contains(&rank) || self.strides.len() != rank - 1 || self.box_sizes.len() != rank {
            return wrong(format!("a tensor map of {rank} dimensions"));
        }
        if !matches!(self.element, 1 | 2 | 4 | 8) || !self.base.is_multiple_of(16) {
            return wrong(format!("a tensor of {} bytes per element at {:#x}", self.element, self.base));
        }
        if let Some(stride) = self.strides.iter().find(|s| !s.is_multiple_of(16)) {
            return wrong(format!("a stride of {stride} bytes, no multiple of 16"));
        }
        if let Some(side) = self.box_sizes.iter().find(|s| !(1..=256).contains(*s)) {
            return wrong(format!("a box of {side} elements along one dimension"));
        }
        let row = u64::from(self.box_sizes[0]) * u64::from(self.element);
        if !row.is_multiple_of(16) || self.swizzle != Swizzle::None && row > self.swizzle.bytes() {
            return wrong(format!("a box with rows of {row} bytes, swizzled over {}", self.swizzle.bytes()));
        }
        let mut words = [0u64; 16];
        words[0] = MAGIC | u64::from(self.element) << 8 | (rank as u64) << 4 | self.swizzle as u64;
        words[1] = self.base;
        words[2..2 + rank].copy_from_slice(&self.sizes);
        words[7..6 + rank].copy_from_slice(&self.strides);
        words[11..11 + rank].iter_mut().zip(&self.box_sizes).for_each(|(word, &side)| *word = side.into());
        let mut out = [0; 128];
        out.chunks_exact_mut(8).zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
        Ok(out)
    }

    /// A map from its words; `None` for other bytes.
    pub(crate) fn read(words: &[u64; 16]) -> Option<Self> {
        let rank = (words[0] >> 4 & 15) as usize;
        if words[0] >> 32 != MAGIC >> 32 || !(1..=5).contains(&rank) {
            return None;
        }
        Some(Self {
            base: words[1],
            element: (words[0] >> 8) as u8,
            sizes: words[2..2 + rank].to_vec(),
            strides: words[7..6 + rank].to_vec(),
            box_sizes: words[11..11 + rank].iter().map(|&side| side as u32).collect(),
            swizzle: Swizzle::of(words[0]),
        })
    }
}
