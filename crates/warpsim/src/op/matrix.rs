//! Tensor-core instructions and background copies.

use super::{Address, Slot, Sparse};

/// A `cp.async`.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    /// Where to, in shared memory.
    pub to: Address,
    /// Where from, in global memory.
    pub from: Address,
    /// 4, 8 or 16.
    pub bytes: u8,
    /// Past L1 (`.cg`).
    pub bypass: bool,
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

/// Elements of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Element {
    /// 4 bits of exponent and 3 of fraction, without infinity.
    E4m3,
    /// 5 bits of exponent and 2 of fraction.
    E5m2,
    F16,
    Bf16,
    Tf32,
    F32,
    F64,
    S8,
    U8,
    S4,
    U4,
    S32,
}

impl Element {
    /// Elements in a register.
    pub fn per_register(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::E4m3 | Self::E5m2 | Self::S8 | Self::U8 => 4,
            Self::S4 | Self::U4 => 8,
            Self::Tf32 | Self::F32 | Self::F64 | Self::S32 => 1,
        }
    }

    /// Bytes in memory; the types of half a byte have none of their own.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F64 => 8,
            Self::F16 | Self::Bf16 => 2,
            Self::E4m3 | Self::E5m2 | Self::S8 | Self::U8 | Self::S4 | Self::U4 => 1,
            Self::Tf32 | Self::F32 | Self::S32 => 4,
        }
    }

    /// Whether sums are integers.
    pub fn integer(self) -> bool {
        matches!(self, Self::S8 | Self::U8 | Self::S4 | Self::U4 | Self::S32)
    }
}

/// How a matrix lies in the registers of a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// PTX ISA, "Matrix Fragments for mma": a, of 8 or 16 rows.
    A,
    /// b, of 8 columns.
    B,
    /// c and d.
    C,
    /// `wmma` leaves the layout open: here element after element over registers' parts, lanes, registers. Where
    /// the registers have more room than the matrix, it is there several times, as on hardware.
    Wmma,
}

/// A matrix in registers.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// Its elements.
    pub element: Element,
    /// Rows and columns of the matrix.
    pub shape: (usize, usize),
    /// Its layout.
    pub spread: Spread,
    /// Rows of the 32-bit file, or of the 64-bit file for doubles.
    pub registers: Vec<Slot>,
}

impl Fragment {
    /// Row and column of a part of a lane's register.
    #[inline(always)]
    pub fn place(&self, lane: usize, register: usize, part: usize) -> (usize, usize) {
        let per = self.element.per_register();
        let (group, four) = (lane / 4, lane % 4);
        // Halves of the 16 rows of a and c.
        let halves = if self.shape.0 > 8 { 2 } else { 1 };
        match self.spread {
            Spread::A => (group + 8 * (register % halves), (register / halves * 4 + four) * per + part),
            Spread::B => ((register * 4 + four) * per + part, group),
            Spread::C => (group + 8 * (register * per / 2), four * 2 + (register * per + part) % 2),
            Spread::Wmma => {
                let (rows, columns) = self.shape;
                let at = ((register * 32 + lane) * per + part) % (rows * columns);
                (at / columns, at % columns)
            }
        }
    }
}

/// An `mma.sync`, `mma.sp` or `wmma.mma`: d = a × b + c.
#[derive(Clone, Debug)]
pub struct Mma {
    /// Result, of the shape of `c`.
    pub d: Fragment,
    /// Left factor; 2:4, half of its columns.
    pub a: Fragment,
    /// Right factor.
    pub b: Fragment,
    /// 2:4 (`.sp`): where the left factor's numbers are.
    pub sparse: Option<Sparse>,
    /// Summand.
    pub c: Fragment,
    /// `.satfinite`: integer sums stop at the ends of their range.
    pub saturate: bool,
}

/// Which of the matrices of a `wmma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Left factor.
    A,
    /// Right factor.
    B,
    /// Accumulator: c or d.
    C,
}

/// A `wmma.load` or `wmma.store`.
#[derive(Clone, Debug)]
pub struct Tile {
    /// Into registers rather than memory.
    pub load: bool,
    /// Which matrix.
    pub role: Role,
    /// Of the first element, the same in all lanes.
    pub address: Address,
    /// Row with the elements from one row (column) to the next; packed if absent.
    pub stride: Option<Slot>,
    /// Column after column in memory.
    pub columns_first: bool,
    /// The matrix.
    pub fragment: Fragment,
}
