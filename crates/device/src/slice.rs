//! Buffers with their lengths.

use crate::{Index1d, Index2d, block_x, thread_x};
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

impl<'a, T> Slice<'a, T> {
    /// A kernel's parameter with its length.
    ///
    /// # Safety
    /// `data` is aligned and holds `len` elements, which no thread writes while the kernel runs; and since a release build
    /// does not check them, indices stay below `len`.
    #[inline(always)]
    pub unsafe fn new(data: *const T, len: usize) -> Self {
        Slice { data, len, lives: PhantomData }
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

/// Numbers of which each thread writes its own. A thread reaches an element by an index that no other thread has, so no two
/// `&mut` to one element can be made.
#[derive(Debug)]
pub struct DisjointSlice<'a, T> {
    data: *mut T,
    len: usize,
    lives: PhantomData<&'a mut [T]>,
}

impl<T> DisjointSlice<'_, T> {
    /// A kernel's parameter with its length.
    ///
    /// # Safety
    /// `data` is aligned, not null, and holds `len` elements; while the kernel runs they are reached through slices of this type alone,
    /// one for each buffer; the launch has one dimension (two for [`DisjointSlice::own_2d`], with one width in all threads).
    #[inline(always)]
    pub unsafe fn new(data: *mut T, len: usize) -> Self {
        // SAFETY: the caller's. Without it each `Some` would be told from `None` by a comparison of addresses.
        unsafe { core::hint::assert_unchecked(!data.is_null()) };
        DisjointSlice { data, len, lives: PhantomData }
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

    /// This thread's element; `None` past the end, which is the guard `if (i < n)`.
    #[inline(always)]
    pub fn own(&mut self, index: Index1d) -> Option<&mut T> {
        // SAFETY: below the length; no other thread has this index, and this one borrows the slice as long.
        if index.get() < self.len { Some(unsafe { &mut *self.data.add(index.get()) }) } else { None }
    }

    /// The block's element, that of number `blockIdx.x`, in its first thread; `None` in the others, and past the end.
    #[inline(always)]
    pub fn own_of_block(&mut self) -> Option<&mut T> {
        let at = block_x() as usize;
        // SAFETY: as above: of all threads of a launch in one dimension, one has this block's number and is its first.
        if thread_x() == 0 && at < self.len { Some(unsafe { &mut *self.data.add(at) }) } else { None }
    }

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

    /// This thread's element of a matrix with rows of `width`; `None` outside of it.
    #[inline(always)]
    pub fn own_2d(&mut self, index: Index2d, width: usize) -> Option<&mut T> {
        let at = index.row() * width + index.column();
        // SAFETY: as above: with a column below the width, no two pairs name one element.
        if index.column() < width && at < self.len { Some(unsafe { &mut *self.data.add(at) }) } else { None }
    }
}
