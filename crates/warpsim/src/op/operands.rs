//! Operands of the larger instructions, and what they do.

use super::{Cmp, FloatMode, Halves, Logic, Slot, View};
use crate::decode::flow::Home;
use crate::ptx::types::{Space, Type};

/// A predicate operand, perhaps negated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pred {
    /// Row of the predicate file.
    pub slot: Slot,
    /// `!p`.
    pub negated: bool,
}

/// A comparison with its results.
#[derive(Clone, Copy, Debug)]
pub struct Compare {
    /// The comparison.
    pub cmp: Cmp,
    /// How the operands are read.
    pub view: View,
    /// Result, and its complement if wanted.
    pub d: Slot,
    /// Complement of the result.
    pub not_d: Option<Slot>,
    /// Operands.
    pub a: Slot,
    /// Operands.
    pub b: Slot,
    /// Combined with another predicate.
    pub with: Option<(Logic, Pred)>,
}

/// Rounding of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ToInt {
    Nearest,
    Zero,
    Down,
    Up,
}

/// A conversion (`cvt`).
#[derive(Clone, Copy, Debug)]
pub struct Convert {
    /// Type of the result.
    pub to: Type,
    /// Type of the operand.
    pub from: Type,
    /// Rounding to an integral value, if asked for.
    pub integral: Option<ToInt>,
    /// Rounding, `.ftz`, `.sat`.
    pub mode: FloatMode,
    /// Row of the result.
    pub d: Row,
    /// Row of the operand.
    pub a: Row,
}

/// What a row is: its slot and file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Slot in its file.
    pub slot: Slot,
    /// 64-bit file rather than 32-bit.
    pub wide: bool,
    /// A register of at most 16 bits: its upper half stays zero.
    pub short: bool,
}

impl Row {
    /// A result as a row of the 32-bit file keeps it.
    #[inline(always)]
    pub fn narrow(self, value: u64) -> u32 {
        if self.short { value as u32 & 0xffff } else { value as u32 }
    }
}

/// An address operand.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// Space that the instruction names.
    pub space: Space,
    /// Row of the base.
    pub base: Row,
    /// Added to it.
    pub offset: i64,
}

/// A load or store of 1, 2, 4 or 8 elements.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Where.
    pub address: Address,
    /// Bytes of an element.
    pub bytes: u8,
    /// Elements.
    pub count: u8,
    /// Volatile or ordered: meant for other threads to see.
    pub strong: bool,
    /// A write that tells all that came before it (`.release`).
    pub release: bool,
    /// Loads: sign-extended to the register.
    pub signed: bool,
    /// Rows of the elements; `None` is `_`.
    pub rows: [Option<Row>; 8],
    /// Elements of 4 bytes in 32-bit rows, which vector registers can move.
    pub words: bool,
    /// Bytes of shared memory that it may touch: its variable's.
    pub home: Home,
    /// Which of the warp's spans holds the addresses of the base row, and whether that must be measured first.
    pub span: Measured,
    /// The row of the word that each lane moves, if it is one word of 32 bits in shared memory.
    pub shared_word: Option<Slot>,
}

/// Spans that a warp keeps: a power of two, so that `% SPANS` costs less than a bounds check. A tiled product goes through six address
/// registers in a loop: with four spans each is measured anew in each iteration, and the launch takes 1.15 times as long.
pub const SPANS: usize = 8;

/// Where a transfer finds the span of its base row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Number of the span.
    pub number: u8,
    /// Whether the row may have changed since the span was measured.
    pub stale: bool,
}

/// A `vprintf`: rows of the local addresses of its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Print {
    /// Holds the generic address of the format.
    pub format: Slot,
    /// Holds the generic address of the arguments.
    pub arguments: Slot,
    /// Where the number of arguments goes.
    pub result: Option<Slot>,
}

/// What an atomic does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum AtomicOp {
    Add,
    AddF,
    Min {
        signed: bool,
    },
    Max {
        signed: bool,
    },
    And,
    Or,
    Xor,
    Exchange,
    CompareSwap,
    Inc,
    Dec,
    /// Sum of f16 or bf16.
    AddHalf(Halves),
}

/// An atomic or a reduction.
#[derive(Clone, Debug)]
pub struct Atomic {
    /// What.
    pub op: AtomicOp,
    /// Where.
    pub address: Address,
    /// It tells all that came before it (`.release`, `.acq_rel`).
    pub release: bool,
    /// Bytes of an element: 2, 4 or 8.
    pub bytes: u8,
    /// Rows of the 64-bit file rather than the 32-bit one.
    pub wide: bool,
    /// Row of the old value, if anything reads it.
    pub d: Option<Slot>,
    /// Adds the literal 1.
    pub counts: bool,
    /// Operand.
    pub a: Slot,
    /// Old value and operand of the further elements of a vector.
    pub more: Vec<(Option<Slot>, Slot)>,
    /// Second operand of a compare-and-swap.
    pub b: Slot,
    /// Bytes of shared memory that it may touch: its variable's.
    pub home: Home,
}

impl Atomic {
    /// Bytes that a lane accesses.
    pub fn len(&self) -> u32 {
        u32::from(self.bytes) * (1 + self.more.len() as u32)
    }
}
