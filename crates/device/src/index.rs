//! Which thread this is.

use core::arch::{asm, nvptx};
use core::marker::PhantomData;
use core::ops::Range;

macro_rules! registers {
    ($($name:ident = $read:ident: $what:literal;)*) => {$(
        #[doc = $what]
        #[inline(always)]
        pub fn $name() -> u32 {
            // SAFETY: it reads a register that every thread has.
            unsafe { nvptx::$read() }
        }
    )*};
}

registers! {
    thread_x = _thread_idx_x: "The thread's number in its block along x (`threadIdx.x`).";
    thread_y = _thread_idx_y: "The thread's number in its block along y (`threadIdx.y`).";
    thread_z = _thread_idx_z: "The thread's number in its block along z (`threadIdx.z`).";
    block_x = _block_idx_x: "The block's number along x (`blockIdx.x`).";
    block_y = _block_idx_y: "The block's number along y (`blockIdx.y`).";
    block_z = _block_idx_z: "The block's number along z (`blockIdx.z`).";
    threads_x = _block_dim_x: "Threads of a block along x (`blockDim.x`).";
    threads_y = _block_dim_y: "Threads of a block along y (`blockDim.y`).";
    threads_z = _block_dim_z: "Threads of a block along z (`blockDim.z`).";
    blocks_x = _grid_dim_x: "Blocks of the grid along x (`gridDim.x`).";
    blocks_y = _grid_dim_y: "Blocks of the grid along y (`gridDim.y`).";
    blocks_z = _grid_dim_z: "Blocks of the grid along z (`gridDim.z`).";
}

/// What stays in its thread: it is neither [`Send`] nor [`Sync`], so that neither a buffer nor a static holds it.
type OfThisThread = PhantomData<*mut ()>;

/// A number that no other thread of a launch in one dimension has. Only [`index_1d`] and [`grid_stride`] make one, and it cannot
/// be passed to another thread, so who holds it may write the element of that number:
/// [`DisjointSlice::own`](crate::DisjointSlice::own).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Index1d(usize, OfThisThread);

impl Index1d {
    /// The number.
    #[inline(always)]
    pub fn get(self) -> usize {
        self.0
    }
}

/// `blockIdx.x * blockDim.x + threadIdx.x`.
#[inline(always)]
pub fn index_1d() -> Index1d {
    debug_assert!(threads_y() * threads_z() * blocks_y() * blocks_z() == 1, "the launch has one dimension");
    Index1d((block_x() * threads_x() + thread_x()) as usize, PhantomData)
}

/// This thread's numbers below `n`: its own, then one grid further each time.
#[inline(always)]
pub fn grid_stride(n: usize) -> impl Iterator<Item = Index1d> {
    let step = (threads_x() * blocks_x()) as usize;
    // The closure holds an index, and not its number: so the iterator stays in its thread, too.
    let mut next = index_1d();
    core::iter::from_fn(move || {
        let own = next;
        next.0 += step;
        (own.0 < n).then_some(own)
    })
}

/// Every `step`-th number of a range, in a loop that stays a loop, also where its length is a constant (`#pragma unroll 1`). It is
/// for what is seldom executed, and would be a large part of the kernel if it were unrolled.
#[inline(always)]
pub fn rolled(range: Range<usize>, step: usize) -> impl Iterator<Item = usize> {
    let mut next = range.start;
    core::iter::from_fn(move || {
        if next >= range.end {
            return None;
        }
        let mut i = next;
        // SAFETY: no instruction. To LLVM it is one that may have changed the number, so it cannot count the iterations; ptxas
        // can, and is told.
        unsafe { asm!(".pragma \"nounroll\"; // {}", inout(reg64) i, options(pure, nomem, nostack, preserves_flags)) };
        next = i + step;
        Some(i)
    })
}

/// A row and a column that no other thread of a launch in two dimensions has; it stays in its thread as [`Index1d`] does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Index2d {
    row: usize,
    column: usize,
    of: OfThisThread,
}

impl Index2d {
    /// The row: y.
    #[inline(always)]
    pub fn row(self) -> usize {
        self.row
    }

    /// The column: x.
    #[inline(always)]
    pub fn column(self) -> usize {
        self.column
    }
}

/// `blockIdx.y * blockDim.y + threadIdx.y` and the same of x.
#[inline(always)]
pub fn index_2d() -> Index2d {
    debug_assert!(threads_z() * blocks_z() == 1, "the launch has two dimensions");
    Index2d {
        row: (block_y() * threads_y() + thread_y()) as usize,
        column: (block_x() * threads_x() + thread_x()) as usize,
        of: PhantomData,
    }
}

/// How many threads each block of a kernel has at most, and how many blocks a multiprocessor is to hold at least
/// (`__launch_bounds__`): the driver then knows how many registers it may give a thread. Stands beside the kernel:
/// `launch_bounds!(matmul, THREADS);` or `launch_bounds!(matmul, THREADS, BLOCKS);`.
///
/// rustc has no such attribute. This writes a comment into the PTX, of which `gpulab` makes `.maxntid` and
/// `.minnctapersm`; without `gpulab` it changes nothing.
#[macro_export]
macro_rules! launch_bounds {
    ($kernel:ident, $threads:expr) => {
        $crate::launch_bounds!($kernel, $threads, 0);
    };
    ($kernel:ident, $threads:expr, $blocks:expr) => {
        $crate::macros::global_asm!(
            concat!("// launch_bounds ", stringify!($kernel), " {} {}"),
            const $threads,
            const $blocks
        );
    };
}
