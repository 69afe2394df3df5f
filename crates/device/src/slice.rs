//! Buffers with their lengths.

use crate::{Index1d, Index2d, Vec4, block_x, blocks_y, blocks_z, thread_x, threads_y, threads_z};
use core::arch::asm;
use core::marker::PhantomData;
use core::ops::Index;

/// Numbers that this launch reads only. `slice[i]` is compared with the length where debug assertions are on.
#[derive(Debug)]
pub struct Slice<'a, T> {
    data: *const T,
    len: usize,
    lives: PhantomData<&'a [T]>,
}

impl<T> Clone for Slice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Slice<'_, T> {}

impl<'a, T: Sync> Slice<'a, T> {
    /// A kernel's parameter with its length. All threads read its elements, so these are [`Sync`], as with the threads of a CPU.
    ///
    /// # Safety
    /// `data` is aligned and holds `len` elements of global memory, which no thread writes while the kernel runs; and since a
    /// release build does not check them, indices stay below `len`.
    #[inline(always)]
    pub unsafe fn new(data: *const T, len: usize) -> Self {
        Slice { data, len, lives: PhantomData }
    }
}

impl<'a, T> Slice<'a, T> {
    /// How many elements there are.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element, where there is one.
    #[inline(always)]
    pub fn get(&self, at: usize) -> Option<&'a T> {
        // SAFETY: below the length, as `new` was promised.
        (at < self.len).then(|| unsafe { &*self.data.add(at) })
    }
}

impl<T> Index<usize> for Slice<'_, T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, at: usize) -> &T {
        debug_assert!(at < self.len, "index out of bounds");
        // SAFETY: the caller of `new` promised that indices stay below the length.
        unsafe { &*self.data.add(at) }
    }
}

impl Slice<'_, Vec4<f32>> {
    /// The element, which is used once: the caches need not keep it (`__ldcs`).
    #[inline(always)]
    pub fn load_streaming(&self, at: usize) -> Vec4<f32> {
        let from: *const Vec4<f32> = &self[at];
        let (x, y, z, w);
        // SAFETY: four floats, which lie in global memory, as the caller of `new` promised.
        unsafe {
            asm!("{{ .reg .u64 from; cvta.to.global.u64 from, {}; ld.global.cs.v4.f32 {{{}, {}, {}, {}}}, [from]; }}",
                in(reg64) from, out(reg32) x, out(reg32) y, out(reg32) z, out(reg32) w,
                options(pure, readonly, nostack, preserves_flags));
        }
        Vec4 { x, y, z, w }
    }
}

/// A rule that says which elements of a [`DisjointSlice`] a thread owns, of those that [`DisjointSlice::new`] can make. There are
/// no others than this crate's.
#[diagnostic::on_unimplemented(
    message = "`DisjointSlice::new` makes no slice with the rule `{Self}`",
    label = "for `own_2d` make it by `DisjointSlice::new_2d`, which takes the width of a row"
)]
pub trait Ownership: sealed::Ownership {}

/// One element a thread: [`DisjointSlice::own`].
#[derive(Debug)]
pub struct PerThread(());

/// One element a block: [`DisjointSlice::own_of_block`].
#[derive(Debug)]
pub struct PerBlock(());

/// One element a thread of a launch in two dimensions, in a matrix with rows of one width: [`DisjointSlice::own_2d`].
#[derive(Debug)]
pub struct PerThread2d {
    width: usize,
}

/// A rule of the kernel's own, which no type checks: [`DisjointSlice::own_at`].
#[derive(Debug)]
pub struct Unchecked(());

mod sealed {
    use super::{PerBlock, PerThread, Unchecked};

    pub trait Ownership {
        const RULE: Self;
    }

    impl Ownership for PerThread {
        const RULE: Self = PerThread(());
    }
    impl Ownership for PerBlock {
        const RULE: Self = PerBlock(());
    }
    impl Ownership for Unchecked {
        const RULE: Self = Unchecked(());
    }
}

impl Ownership for PerThread {}
impl Ownership for PerBlock {}
impl Ownership for Unchecked {}

/// Numbers of which each thread writes its own. A thread reaches an element by a rule that gives it to no other thread, so no
/// two `&mut` to one element can be made.
///
/// The rule is part of the type, since two rules can give one element to two threads: number 1 would be thread 1's, and block 1's.
/// rustc infers it from the first method that is called. From then on the slice has no method of another rule:
///
/// ```ignore
/// let mut c = unsafe { DisjointSlice::new(c, n) };
/// if let Some(c) = c.own(index_1d()) { *c = 1.0 }
/// if let Some(c) = c.own_of_block() { *c = 0.0 } // error: no method named `own_of_block` found
/// ```
///
/// | rule | method | a thread's element |
/// | --- | --- | --- |
/// | [`PerThread`], where a type leaves it out | [`own`](DisjointSlice::own) | that of its number, and one grid further each time |
/// | [`PerBlock`] | [`own_of_block`](DisjointSlice::own_of_block) | for the first thread of a block, that of the block's number |
/// | [`PerThread2d`], by [`new_2d`](DisjointSlice::new_2d) | [`own_2d`](DisjointSlice::own_2d) | that of its row and its column |
/// | [`Unchecked`] | [`own_at`](DisjointSlice::own_at) | what the caller promises |
///
/// Another launch may give an element to another thread, so elements are [`Send`]. An [`Index1d`] is not: it is good for its own
/// thread alone.
#[derive(Debug)]
pub struct DisjointSlice<'a, T, R = PerThread> {
    data: *mut T,
    len: usize,
    rule: R,
    lives: PhantomData<&'a mut [T]>,
}

impl<T: Send, R: Ownership> DisjointSlice<'_, T, R> {
    /// A kernel's parameter with its length.
    ///
    /// # Safety
    /// - `data` is aligned, not null, and holds `len` elements.
    /// - Until the kernel ends, these elements are reached in no other way than through this slice: one in each thread, all with
    ///   the same `data` and the same rule.
    /// - For [`own`](DisjointSlice::own) and [`own_of_block`](DisjointSlice::own_of_block) the launch has one dimension, and fewer
    ///   than 2³² threads.
    #[inline(always)]
    pub unsafe fn new(data: *mut T, len: usize) -> Self {
        // SAFETY: the caller's.
        unsafe { DisjointSlice::by(R::RULE, data, len) }
    }
}

impl<T: Send> DisjointSlice<'_, T, PerThread2d> {
    /// A kernel's parameter as a matrix.
    ///
    /// # Safety
    /// As [`DisjointSlice::new`], with `rows * width` elements. All threads pass the same `width`. The launch has at most two
    /// dimensions, each of fewer than 2³² threads.
    #[inline(always)]
    pub unsafe fn new_2d(data: *mut T, rows: usize, width: usize) -> Self {
        // SAFETY: the caller's.
        unsafe { DisjointSlice::by(PerThread2d { width }, data, rows * width) }
    }

    /// This thread's element; `None` outside of the matrix, which is the guard `if (row < rows && column < width)`.
    #[inline(always)]
    pub fn own_2d(&mut self, index: Index2d) -> Option<&mut T> {
        let width = self.rule.width;
        let at = index.row() * width + index.column();
        // SAFETY: below the length. With a column below the width, which is one in all threads, no two pairs name one element:
        // a launch has fewer than 2²⁶ rows, and no memory so long a row that their product would wrap around.
        if index.column() < width && at < self.len { Some(unsafe { &mut *self.data.add(at) }) } else { None }
    }
}

impl<T> DisjointSlice<'_, T, PerThread> {
    /// This thread's element; `None` past the end, which is the guard `if (i < n)`.
    #[inline(always)]
    pub fn own(&mut self, index: Index1d) -> Option<&mut T> {
        // SAFETY: below the length; no other thread has this index, and this one borrows the slice as long.
        if index.get() < self.len { Some(unsafe { &mut *self.data.add(index.get()) }) } else { None }
    }
}

impl<T> DisjointSlice<'_, T, PerBlock> {
    /// The block's element, that of number `blockIdx.x`, in its first thread; `None` in the others, and past the end.
    #[inline(always)]
    pub fn own_of_block(&mut self) -> Option<&mut T> {
        debug_assert!(threads_y() * threads_z() * blocks_y() * blocks_z() == 1, "the launch has one dimension");
        let at = block_x() as usize;
        // SAFETY: as above: of all threads of a launch in one dimension, one has this block's number and is its first.
        if thread_x() == 0 && at < self.len { Some(unsafe { &mut *self.data.add(at) }) } else { None }
    }
}

impl<T> DisjointSlice<'_, T, Unchecked> {
    /// The element of that number, where a thread owns its elements by a rule of the kernel's.
    ///
    /// # Safety
    /// No other thread takes this element, and it is below the length.
    #[inline(always)]
    pub unsafe fn own_at(&mut self, at: usize) -> &mut T {
        debug_assert!(at < self.len, "index out of bounds");
        // SAFETY: the caller's.
        unsafe { &mut *self.data.add(at) }
    }
}

impl<T, R> DisjointSlice<'_, T, R> {
    /// # Safety
    /// As [`DisjointSlice::new`], or [`DisjointSlice::new_2d`].
    #[inline(always)]
    unsafe fn by(rule: R, data: *mut T, len: usize) -> Self {
        // SAFETY: the caller's. Without it each `Some` would be told from `None` by a comparison of addresses.
        unsafe { core::hint::assert_unchecked(!data.is_null()) };
        DisjointSlice { data, len, rule, lives: PhantomData }
    }

    /// How many elements there are.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
