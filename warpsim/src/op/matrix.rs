//! Tensor-core instructions and background copies.

use super::{Address, Slot};

/// A `cp.async`.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    /// Where to, in shared memory.
    pub to: Address,
    /// Where from, in global memory.
    pub from: Address,
    /// 4, 8 or 16.
    pub bytes: u8,
    /// Row with the bytes that are read; the rest becomes zero.
    pub source: Option<Slot>,
}

/// An `ldmatrix` of 1, 2 or 4 matrices of 8 × 8 halves.
#[derive(Clone, Debug)]
pub struct LoadMatrix {
    /// Lane i gives the address of row i % 8 of matrix i / 8.
    pub address: Address,
    /// A row of the register file for each matrix.
    pub rows: Vec<Slot>,
    /// `.trans`.
    pub transposed: bool,
}

/// Types of an `mma.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MmaType {
    Half { brain: bool },
    Tf32,
    Int8,
}

impl MmaType {
    /// Elements of a or b in a register.
    pub fn elements(self) -> usize {
        match self {
            Self::Half { .. } => 2,
            Self::Tf32 => 1,
            Self::Int8 => 4,
        }
    }
}

/// An `mma.sync` of 16 × 8 results.
#[derive(Clone, Debug)]
pub struct Mma {
    /// Types.
    pub ty: MmaType,
    /// Four registers of results.
    pub d: Vec<Slot>,
    /// Two registers for each k-slice.
    pub a: Vec<Slot>,
    /// One register for each k-slice.
    pub b: Vec<Slot>,
    /// Four registers of summands.
    pub c: Vec<Slot>,
}
