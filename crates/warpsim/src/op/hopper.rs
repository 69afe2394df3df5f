//! What Hopper GPUs brought: copies by the TMA, and products of a warpgroup (`wgmma`).

use super::{Address, Element, Pred, Slot};

/// A bulk copy (`cp.async.bulk`, `cp.async.bulk.tensor`) that one thread asks for.
#[derive(Clone, Debug)]
pub struct Bulk {
    /// From where to where.
    pub route: Route,
    /// In shared memory.
    pub shared: Address,
    /// In global memory, or of the tensor map, or in the own block's shared memory.
    pub other: Address,
    /// Coordinates of a box, fastest first; a plain run of bytes has none.
    pub coordinates: Vec<Slot>,
    /// Bytes of a plain run.
    pub bytes: Option<Slot>,
    /// The barrier that counts the bytes of a copy to shared memory.
    pub barrier: Option<Address>,
    /// The blocks of the cluster that all get the copy, a bit each.
    pub multicast: Option<Slot>,
}

/// Who does asynchronous operations that are waited for by groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// `cp.async`.
    Copies,
    /// Bulk copies out of shared memory.
    Stores,
    /// Products of a warpgroup.
    Products,
}

/// From where to where the TMA moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Global memory to shared memory.
    Load,
    /// Shared memory to global memory.
    Store,
    /// A block's own shared memory to that of a block of the cluster.
    FromShared,
}

/// A factor of a product that lies in shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    /// Row of the 64-bit file with the matrix descriptor.
    pub descriptor: Slot,
    /// Rows (columns of b) follow each other in memory, rather than numbers along k.
    pub transposed: bool,
}

/// The left factor of a `wgmma`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Left {
    Shared(Described),
    Registers([Slot; 4]),
}

/// Which numbers of the left factor are not zero: two of four, of tf32 one of two.
#[derive(Clone, Copy, Debug)]
pub struct Sparse {
    /// Row with the places of the numbers that are there.
    pub places: Slot,
    /// The pair of four threads whose registers hold them, where two are enough.
    pub pair: usize,
}

/// A `wgmma.mma_async` of shape m64nNkK, where the numbers of a row of the left factor take 32 bytes.
#[derive(Clone, Debug)]
pub struct Wgmma {
    /// Elements of the left and the right factor, both of the same size.
    pub factors: [Element; 2],
    /// Elements of the sums.
    pub sum: Element,
    /// `.satfinite`: integer sums stop at the ends of their range.
    pub saturate: bool,
    /// 2:4 (`.sp`): rows of the left factor without half of their zeros.
    pub sparse: Option<Sparse>,
    /// Columns.
    pub columns: usize,
    /// The sums, N / 2 registers; half as many where each holds two.
    pub d: Vec<Slot>,
    /// Left factor.
    pub a: Left,
    /// Right factor.
    pub b: Described,
    /// Whether sums are added to; a predicate or a constant.
    pub adds: Result<Pred, bool>,
    /// Factors of -1.
    pub negated: (bool, bool),
}

impl Wgmma {
    /// Numbers of a row of the left factor that are there.
    pub fn stored(&self) -> usize {
        32 / self.factors[0].bytes() as usize
    }

    /// Numbers of a column of the right factor.
    pub fn depth(&self) -> usize {
        self.stored() * if self.sparse.is_some() { 2 } else { 1 }
    }
}
