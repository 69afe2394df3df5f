//! Shared memory.
//!
//! Rust has no static variable in shared memory yet (rust-lang/rust#135516). So [`shared!`](crate::shared) writes the
//! declaration as PTX, and an access is an instruction of its own: `ld.shared`, `st.shared`. That makes reading and writing
//! safe calls, too: to the compiler they are opaque, the elements are plain numbers, and a race gives a wrong number
//! (which the simulator names) where racing references would be undefined behaviour.

use crate::{Bf16, F16, Vec4};
use core::arch::asm;
use core::marker::PhantomData;

/// A number that shared memory may hold, where each thread of the block may take it: so it is [`Send`].
pub trait Shared: Copy + Send {
    /// Reads it.
    ///
    /// # Safety
    /// The address is aligned, and of an element.
    unsafe fn load(address: u32) -> Self;
    /// Writes it.
    ///
    /// # Safety
    /// The address is aligned, and of an element.
    unsafe fn store(address: u32, value: Self);
}

macro_rules! numbers {
    ($($kind:ty, $bits:ty, $class:ident, $width:literal: $to:expr, $from:expr;)*) => {$(
        impl Shared for $kind {
            #[inline(always)]
            unsafe fn load(address: u32) -> Self {
                let bits: $bits;
                // SAFETY: the caller's; nothing but the read happens.
                unsafe {
                    asm!(concat!("ld.shared.", $width, " {}, [{}];"), out($class) bits, in(reg32) address,
                        options(pure, readonly, nostack, preserves_flags));
                }
                $from(bits)
            }

            #[inline(always)]
            unsafe fn store(address: u32, value: Self) {
                let bits: $bits = $to(value);
                // SAFETY: the caller's.
                unsafe {
                    asm!(concat!("st.shared.", $width, " [{}], {};"), in(reg32) address, in($class) bits,
                        options(nostack, preserves_flags));
                }
            }
        }
    )*};
}

numbers! {
    f32, f32, reg32, "f32": |x| x, |x| x;
    u32, u32, reg32, "u32": |x| x, |x| x;
    i32, i32, reg32, "s32": |x| x, |x| x;
    f64, f64, reg64, "f64": |x| x, |x| x;
    u64, u64, reg64, "u64": |x| x, |x| x;
    i64, i64, reg64, "s64": |x| x, |x| x;
    u16, u16, reg16, "u16": |x| x, |x| x;
    F16, u16, reg16, "b16": |x: F16| x.0, F16;
    Bf16, u16, reg16, "b16": |x: Bf16| x.0, Bf16;
}

macro_rules! fours {
    ($($kind:ty, $width:literal;)*) => {$(
        impl Shared for Vec4<$kind> {
            #[inline(always)]
            unsafe fn load(address: u32) -> Self {
                let (x, y, z, w);
                // SAFETY: the caller's.
                unsafe {
                    asm!(concat!("ld.shared.v4.", $width, " {{{}, {}, {}, {}}}, [{}];"), out(reg32) x, out(reg32) y,
                        out(reg32) z, out(reg32) w, in(reg32) address, options(pure, readonly, nostack, preserves_flags));
                }
                Vec4 { x, y, z, w }
            }

            #[inline(always)]
            unsafe fn store(address: u32, value: Self) {
                // SAFETY: the caller's.
                unsafe {
                    asm!(concat!("st.shared.v4.", $width, " [{}], {{{}, {}, {}, {}}};"), in(reg32) address, in(reg32) value.x,
                        in(reg32) value.y, in(reg32) value.z, in(reg32) value.w, options(nostack, preserves_flags));
                }
            }
        }
    )*};
}

fours! {
    f32, "f32";
    u32, "u32";
}

/// An array in shared memory: all threads of a block have the same one. A copy of this is the same array.
///
/// An index is compared with the length where debug assertions are on.
#[derive(Debug)]
pub struct SharedArray<T> {
    address: u32,
    len: usize,
    holds: PhantomData<*mut T>,
}

impl<T> Clone for SharedArray<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for SharedArray<T> {}

impl<T: Shared> SharedArray<T> {
    /// What [`shared!`](crate::shared) makes.
    ///
    /// # Safety
    /// `len` elements lie in shared memory from that address on, aligned; indices stay below `len`.
    #[inline(always)]
    pub unsafe fn new(address: u32, len: usize) -> Self {
        SharedArray { address, len, holds: PhantomData }
    }

    /// How many elements there are.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.len
    }

    /// True when there are none.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    fn at(self, index: usize) -> u32 {
        debug_assert!(index < self.len, "index out of bounds");
        self.address + (index * size_of::<T>()) as u32
    }

    /// The address of an element, as `cp.async` and `ldmatrix` take it.
    #[inline(always)]
    pub fn address(self, index: usize) -> u32 {
        self.at(index)
    }

    /// Reads an element.
    #[inline(always)]
    pub fn get(self, index: usize) -> T {
        // SAFETY: an element, as `new` was promised.
        unsafe { T::load(self.at(index)) }
    }

    /// Writes an element.
    #[inline(always)]
    pub fn set(self, index: usize, value: T) {
        // SAFETY: as above.
        unsafe { T::store(self.at(index), value) }
    }

    /// The same memory as elements of another kind, such as four floats each: those that fit as a whole.
    ///
    /// # Safety
    /// The array begins at a multiple of the other kind's alignment, and the threads agree on what lies in it.
    #[inline(always)]
    pub unsafe fn view<U: Shared>(self) -> SharedArray<U> {
        SharedArray { address: self.address, len: self.len * size_of::<T>() / size_of::<U>(), holds: PhantomData }
    }
}

/// An array in shared memory, one for each block: `let tile = shared!(TILE: [f32; 256]);` is `__shared__ float TILE[256]`.
///
/// The length is a constant of the text, or a number; another array of the text has another name.
///
/// Or sized at launch: `let tile = shared!([f32]);` is `extern __shared__ float tile[]`, as long as the launch says
/// (`LaunchConfig::shared`). A kernel has one such array; write this into the kernel's text at most once.
#[macro_export]
macro_rules! shared {
    ($name:ident: [$kind:ty; $len:expr]) => {{
        // A module, since a declaration stands outside of functions; it sees the constants of the text. The array is made in it, too:
        // in a function the same names may mean something else, and more bytes than are declared.
        mod declared {
            #[allow(unused_imports)]
            use super::*;
            $crate::macros::global_asm!(
                concat!(".shared .align 16 .b8 ", stringify!($name), "[{}];"),
                const { let len: usize = $len; len * ::core::mem::size_of::<$kind>() }
            );
            /// # Safety
            /// It is the address of what was declared just before, which has room for that many elements.
            #[inline(always)]
            pub unsafe fn array_at(address: u32) -> $crate::SharedArray<$kind> {
                // SAFETY: the caller's.
                unsafe { $crate::SharedArray::new(address, $len) }
            }
        }
        let address: u32;
        // SAFETY: it takes the address of the variable that was declared just before.
        unsafe {
            $crate::macros::asm!(concat!("mov.u32 {}, ", stringify!($name), ";"), out(reg32) address,
                options(pure, nomem, nostack, preserves_flags));
            declared::array_at(address)
        }
    }};
    ([$kind:ty]) => {{
        mod declared {
            $crate::macros::global_asm!(".extern .shared .align 128 .b8 sized_at_launch[];");
        }
        let (address, bytes): (u32, u32);
        // SAFETY: as above; the hardware tells how many bytes the launch gave.
        unsafe {
            $crate::macros::asm!("mov.u32 {}, sized_at_launch;", out(reg32) address,
                options(pure, nomem, nostack, preserves_flags));
            $crate::macros::asm!("mov.u32 {}, %dynamic_smem_size;", out(reg32) bytes,
                options(pure, nomem, nostack, preserves_flags));
            $crate::SharedArray::<$kind>::new(address, bytes as usize / ::core::mem::size_of::<$kind>())
        }
    }};
}
