//! Instructions as they run: decoded once, operands are slots of the warp's register file.

mod calls;
mod hopper;
mod kinds;
mod matrix;
mod operands;
mod rare;
mod warps;

use crate::ptx::types::Space;
pub use calls::*;
pub use hopper::*;
pub use kinds::*;
pub use matrix::*;
pub use operands::*;
pub use rare::*;
pub use warps::*;

/// Index of a row of 32 lanes in one of the three register files (32-bit, 64-bit, predicates).
pub type Slot = u32;

/// An operation.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Op {
    Nop,
    /// What came before it is seen before what comes after, by the whole GPU (`far`) or by the block.
    Fence {
        far: bool,
    },
    Mov32 {
        d: Slot,
        a: Slot,
    },
    Mov64 {
        d: Slot,
        a: Slot,
    },
    Un32 {
        f: Un,
        d: Slot,
        a: Slot,
    },
    Un64 {
        f: Un,
        d: Slot,
        a: Slot,
    },
    /// popc, clz, bfind of a 64-bit word.
    Count64 {
        f: Un,
        d: Slot,
        a: Slot,
    },
    Bin32 {
        f: Bin,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    /// Shift amounts are in the 32-bit file.
    Bin64 {
        f: Bin,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Tri32 {
        f: Tri,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Tri64 {
        f: Tri,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    /// 32 × 32 → 64 bits, plus `c`; 16 × 16 → 32 when `narrow`.
    MulWide {
        signed: bool,
        narrow: bool,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Option<Slot>,
    },
    Bfi32 {
        d: Slot,
        a: Slot,
        b: Slot,
        position: Slot,
        length: Slot,
    },
    Bfi64 {
        d: Slot,
        a: Slot,
        b: Slot,
        position: Slot,
        length: Slot,
    },
    Bfe64 {
        signed: bool,
        d: Slot,
        a: Slot,
        position: Slot,
        length: Slot,
    },
    Compare32(Compare),
    Compare64(Compare),
    Select32 {
        d: Slot,
        a: Slot,
        b: Slot,
        p: Pred,
    },
    Select64 {
        d: Slot,
        a: Slot,
        b: Slot,
        p: Pred,
    },
    PredMov {
        d: Slot,
        a: Pred,
    },
    PredConst {
        d: Slot,
        value: bool,
    },
    PredLogic {
        f: Logic,
        d: Slot,
        a: Pred,
        b: Pred,
    },
    Convert(Convert),
    /// `mov.b64 d, {lo, hi}` and its kin, over bits of `part`.
    Pack {
        d: Row,
        parts: [Slot; 4],
        count: u8,
        part: u8,
    },
    Unpack {
        rows: [Option<Row>; 4],
        count: u8,
        part: u8,
        a: Row,
    },
    /// Two f32, or the packed pair in `low`, to a packed pair of smaller floats (of f16 from 8 bits).
    PackFloats {
        from: Element,
        to: Element,
        relu: bool,
        d: Slot,
        high: Slot,
        low: Slot,
    },
    Clock {
        d: Row,
    },
    Load(Box<Transfer>),
    Store(Box<Transfer>),
    Atomic(Box<Atomic>),
    Print(Box<Print>),
    Assert(Box<Assertion>),
    More(Box<More>),
    MBarrier(Box<MBarrier>),
    Copy(Box<Copy>),
    LoadMatrix(Box<LoadMatrix>),
    /// `stmatrix`, with the fields of its counterpart.
    StoreMatrix(Box<LoadMatrix>),
    Bulk(Box<Bulk>),
    Wgmma(Box<Wgmma>),
    /// `wgmma.wait_group`: the four warps of a warpgroup have started the same products.
    WarpgroupWait {
        pending: u32,
    },
    /// `wgmma.fence`.
    WarpgroupFence,
    /// What was begun until now is a group.
    Commit(Engine),
    /// At most so many groups are unfinished from now on. `all`: nor is what no group has.
    Await {
        engine: Engine,
        pending: u32,
        all: bool,
    },
    /// `fence.proxy.async`.
    ProxyFence,
    Mma(Box<Mma>),
    Tile(Box<Tile>),
    /// Where an address of shared memory lies in another block of the cluster; generic addresses if wide.
    Map {
        wide: bool,
        d: Slot,
        a: Slot,
        rank: Slot,
    },
    /// `getctarank`: the block of the cluster that an address belongs to.
    RankOf {
        wide: bool,
        d: Slot,
        a: Slot,
    },
    /// The barrier of the cluster.
    ClusterArrive,
    ClusterWait,
    /// Generic address from or to an address of a space.
    AddressOf {
        space: Space,
        to_generic: bool,
        d: Row,
        a: Row,
    },
    /// `isspacep`.
    IsSpace {
        space: Space,
        d: Slot,
        a: Slot,
    },
    Shuffle {
        f: Shuffle,
        d: Slot,
        p: Option<Slot>,
        a: Slot,
        lane: Slot,
        clamp: Slot,
        members: Slot,
    },
    VotePred {
        f: Vote,
        d: Slot,
        a: Pred,
        members: Slot,
    },
    Ballot {
        d: Slot,
        a: Pred,
        members: Slot,
    },
    Match {
        all: bool,
        wide: bool,
        d: Slot,
        p: Option<Slot>,
        a: Slot,
        members: Slot,
    },
    Redux {
        f: Redux,
        d: Slot,
        a: Slot,
        members: Slot,
    },
    ActiveMask {
        d: Slot,
    },
    /// `elect.sync`: the lowest lane of the group leads.
    Elect {
        d: Option<Slot>,
        p: Slot,
        members: Slot,
    },
    WarpBarrier {
        members: Slot,
    },
    Barrier {
        id: Slot,
        threads: Option<Slot>,
        wait: bool,
    },
    BarrierReduce {
        f: BarrierReduce,
        id: Slot,
        d: Slot,
        a: Pred,
    },
    Branch {
        target: u32,
        reconverge: u32,
    },
    /// A jump to the target that the lane's index picks.
    BranchTable {
        index: Slot,
        targets: Vec<u32>,
        reconverge: u32,
    },
    /// Which of the functions each lane's pointer names; all ones for none.
    Callee {
        d: Slot,
        a: Slot,
        addresses: Box<[u64]>,
    },
    /// A `ret` of a kernel ends its threads.
    Exit,
    Trap,
    Call(Box<Call>),
    Return(Box<Return>),
    /// Behind a function's last instruction; its lanes go back before they come here.
    End,
}

impl Op {
    /// Whether all 32 lanes of a warp must execute it together.
    pub fn whole_warp(&self) -> bool {
        matches!(self, Self::Mma(_) | Self::Tile(_) | Self::LoadMatrix(_) | Self::StoreMatrix(_) | Self::Wgmma(_))
    }
}

/// A decoded instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// Lanes whose predicate holds take part.
    pub guard: Option<Pred>,
    /// What is done.
    pub op: Op,
    /// Line of the PTX text.
    pub ptx_line: u32,
    /// `.loc`: file number and line.
    pub loc: (u32, u32),
    /// Number of what it does with registers of a warpgroup's products, from 1 on; 0 for nothing.
    pub sums: u32,
}
