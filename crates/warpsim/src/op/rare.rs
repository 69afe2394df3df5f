//! Operations that are rare enough to share one place.

use super::{Address, Cmp, Halves, Logic, Pred, Row, Slot, View};

/// A rare operation.
#[derive(Clone, Copy, Debug)]
pub enum More {
    /// `set`, `cnot`: a value where the comparison holds, else 0.
    Set(Set),
    /// `set` of packed halves: 16 bits for each.
    SetHalves(TwoHalves, Slot, u32),
    /// `setp` of packed halves: a predicate for the lower and one for the upper.
    TestHalves(TwoHalves, Slot, Option<Slot>),
    /// `slct`: a where c ≥ 0, else b.
    Choose {
        /// c is an f32 rather than an s32.
        float: bool,
        /// a and b are of the 64-bit file.
        wide: bool,
        /// Result.
        d: Slot,
        /// Operands.
        abc: [Slot; 3],
    },
    /// Arithmetic over words with a carry between.
    Carry(Carry),
    /// `fns`: position of the n-th set bit from a base: result, mask, base, n.
    FindNth([Slot; 4]),
    /// Arithmetic of 2 or 4 parts of a word.
    Parts(Parts),
}

/// A comparison with a value as its result.
#[derive(Clone, Copy, Debug)]
pub struct Set {
    /// The comparison.
    pub cmp: Cmp,
    /// How the operands are read.
    pub view: View,
    /// Operands of the 64-bit file.
    pub wide: bool,
    /// Result.
    pub d: Row,
    /// Its value where the comparison holds.
    pub yes: u64,
    /// Operands.
    pub ab: [Slot; 2],
    /// Combined with a predicate.
    pub with: Option<(Logic, Pred)>,
}

/// A comparison of packed halves.
#[derive(Clone, Copy, Debug)]
pub struct TwoHalves {
    /// The comparison.
    pub cmp: Cmp,
    /// The type.
    pub kind: Halves,
    /// Operands.
    pub ab: [Slot; 2],
    /// Combined with a predicate.
    pub with: Option<(Logic, Pred)>,
}

/// What is done with a carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CarryOp {
    Add,
    Sub,
    MadLow,
    MadHigh { signed: bool },
}

/// `add.cc`, `addc` and their kin.
#[derive(Clone, Copy, Debug)]
pub struct Carry {
    /// What.
    pub f: CarryOp,
    /// 64-bit words.
    pub wide: bool,
    /// Result.
    pub d: Slot,
    /// Operands; the third is used by the multiplications alone.
    pub abc: [Slot; 3],
    /// Uses the carry.
    pub takes: bool,
    /// Leaves a carry.
    pub gives: bool,
    /// The row of predicates that holds it.
    pub flag: Slot,
}

/// What is done with the parts of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PartsOp {
    Add,
    Sub,
    Difference,
    Min,
    Max,
}

/// `vadd4`, `vabsdiff2` and their kin.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// What.
    pub f: PartsOp,
    /// Bits of a part.
    pub bits: u32,
    /// Parts are signed.
    pub signed: bool,
    /// The parts' sum is added to the third operand (`.add`).
    pub sum: bool,
    /// Result.
    pub d: Slot,
    /// Operands.
    pub abc: [Slot; 3],
}

/// A failed `assert`: rows of the local addresses of message, file, line and function.
#[derive(Clone, Copy, Debug)]
pub struct Assertion(pub [Slot; 4]);

/// What is done with an `mbarrier`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MBarrierOp {
    /// Starts it for a number of arrivals.
    Init,
    /// Arrives, perhaps for the last time (`arrive_drop`).
    Arrive {
        /// Later phases expect fewer arrivals.
        drop: bool,
    },
    /// Announces bytes that the TMA will bring, and arrives.
    ArriveExpect,
    /// Announces bytes.
    Expect,
    /// The thread's copies by `cp.async` are part of the phase; `arrives`: and are an arrival that was counted.
    Copied {
        /// One of the arrivals that the barrier was initialised for.
        arrives: bool,
    },
    /// Counts bytes as come.
    Complete,
    /// Asks whether a phase is complete.
    Wait {
        /// By the phase's parity rather than its state.
        parity: bool,
    },
}

/// An `mbarrier`.
#[derive(Clone, Copy, Debug)]
pub struct MBarrier {
    /// What.
    pub f: MBarrierOp,
    /// Where it lies.
    pub address: Address,
    /// State of the phase that was arrived at.
    pub state: Option<Slot>,
    /// Predicate of a wait.
    pub done: Option<Slot>,
    /// Number of arrivals, parity (32-bit file) or state (64-bit file).
    pub operand: Option<Slot>,
}
