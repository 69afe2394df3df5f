//! Atomic operations, each with the threads that it is atomic for. As CUDA's `atomicAdd` they order nothing else: where
//! other memory is to be seen with them, put a fence between.

use core::arch::asm;
use core::marker::PhantomData;

/// For which threads an operation is atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The threads of the block (`atomicAdd_block`).
    Block,
    /// All threads of the GPU (`atomicAdd`).
    Device,
    /// Other GPUs and the host, too (`atomicAdd_system`).
    System,
}

/// Numbers that all threads may change by atomic operations, and reach in no other way.
#[derive(Debug)]
pub struct AtomicSlice<'a, T> {
    data: *mut T,
    len: usize,
    lives: PhantomData<&'a [T]>,
}

impl<T> Clone for AtomicSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for AtomicSlice<'_, T> {}

impl<T> AtomicSlice<'_, T> {
    /// A kernel's parameter with its length.
    ///
    /// # Safety
    /// `data` is an aligned buffer of `len` elements in global memory; while the kernel runs they are reached by atomic
    /// operations alone; indices stay below `len`.
    #[inline(always)]
    pub unsafe fn new(data: *mut T, len: usize) -> Self {
        AtomicSlice { data, len, lives: PhantomData }
    }

    #[inline(always)]
    fn at(self, index: usize) -> *mut T {
        debug_assert!(index < self.len, "index out of bounds");
        // SAFETY: an element, as `new` was promised.
        unsafe { self.data.add(index) }
    }
}

/// The instruction with one of the three scopes in it.
macro_rules! scoped {
    ($scope:ident, $instruction:literal, $($operand:tt)*) => {
        match $scope {
            Scope::Block => asm!(concat!("atom.relaxed.cta.global.", $instruction, " {}, [{}], {};"), $($operand)*),
            Scope::Device => asm!(concat!("atom.relaxed.gpu.global.", $instruction, " {}, [{}], {};"), $($operand)*),
            Scope::System => asm!(concat!("atom.relaxed.sys.global.", $instruction, " {}, [{}], {};"), $($operand)*),
        }
    };
}

macro_rules! operations {
    ($($kind:ty, $class:ident { $($name:ident = $instruction:literal: $what:literal;)* })*) => {$(
        impl AtomicSlice<'_, $kind> {
            $(
                #[doc = $what]
                /// Gives the number that was there before.
                #[inline(always)]
                pub fn $name(self, index: usize, value: $kind, scope: Scope) -> $kind {
                    let at = self.at(index);
                    let old: $kind;
                    // SAFETY: an element, changed atomically.
                    unsafe {
                        scoped!(scope, $instruction, out($class) old, in(reg64) at, in($class) value,
                            options(nostack, preserves_flags));
                    }
                    old
                }
            )*
        }
    )*};
}

operations! {
    u32, reg32 {
        add = "add.u32": "Adds, and wraps around.";
        max = "max.u32": "Keeps the greater number.";
        min = "min.u32": "Keeps the smaller number.";
        or = "or.b32": "Sets the bits that either number has.";
        and = "and.b32": "Keeps the bits that both numbers have.";
        exchange = "exch.b32": "Puts a number there.";
        increment_below = "inc.u32": "Adds 1, and begins at 0 again after `value` (`atomicInc`).";
    }
    i32, reg32 {
        add = "add.s32": "Adds, and wraps around.";
        max = "max.s32": "Keeps the greater number.";
        min = "min.s32": "Keeps the smaller number.";
        exchange = "exch.b32": "Puts a number there.";
    }
    u64, reg64 {
        add = "add.u64": "Adds, and wraps around.";
        max = "max.u64": "Keeps the greater number.";
        min = "min.u64": "Keeps the smaller number.";
        exchange = "exch.b64": "Puts a number there.";
    }
    f32, reg32 {
        add = "add.f32": "Adds; the order of the additions, and so the rounding, differs from launch to launch.";
        exchange = "exch.b32": "Puts a number there.";
    }
}

macro_rules! compare_exchange {
    ($($kind:ty, $class:ident, $bits:literal;)*) => {$(
        impl AtomicSlice<'_, $kind> {
            /// Puts `new` there if `expected` is what is there (`atomicCAS`). Gives the number that was there before.
            #[inline(always)]
            pub fn compare_exchange(self, index: usize, expected: $kind, new: $kind) -> $kind {
                let at = self.at(index);
                let old: $kind;
                // SAFETY: an element, changed atomically.
                unsafe {
                    asm!(concat!("atom.relaxed.gpu.global.cas.", $bits, " {}, [{}], {}, {};"), out($class) old,
                        in(reg64) at, in($class) expected, in($class) new, options(nostack, preserves_flags));
                }
                old
            }

            /// Reads the number, past any cache that other blocks do not see.
            #[inline(always)]
            pub fn load(self, index: usize) -> $kind {
                let at = self.at(index);
                let value: $kind;
                // SAFETY: an element.
                unsafe {
                    asm!(concat!("ld.relaxed.gpu.global.", $bits, " {}, [{}];"), out($class) value, in(reg64) at,
                        options(nostack, preserves_flags));
                }
                value
            }
        }
    )*};
}

compare_exchange! {
    u32, reg32, "b32";
    i32, reg32, "b32";
    f32, reg32, "b32";
    u64, reg64, "b64";
}
