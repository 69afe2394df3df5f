//! Two or four numbers that are read and written by one instruction, where their address is a multiple of their size.

use core::arch::asm;

/// Two numbers (`float2`).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[repr(C, align(8))]
pub struct Vec2<T> {
    /// The first.
    pub x: T,
    /// The second.
    pub y: T,
}

/// Four numbers (`float4`).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[repr(C, align(16))]
pub struct Vec4<T> {
    /// The first.
    pub x: T,
    /// The second.
    pub y: T,
    /// The third.
    pub z: T,
    /// The fourth.
    pub w: T,
}

impl<T> core::ops::Index<usize> for Vec4<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, at: usize) -> &T {
        match at {
            0 => &self.x,
            1 => &self.y,
            2 => &self.z,
            3 => &self.w,
            _ => panic!("a Vec4 has four numbers"),
        }
    }
}

impl Vec4<f32> {
    /// Reads four numbers of global memory that are used once: the caches need not keep them (`__ldcs`).
    #[inline(always)]
    pub fn load_streaming(from: &Vec4<f32>) -> Vec4<f32> {
        let (x, y, z, w);
        // SAFETY: the reference is to four floats. Only buffers of global memory are reached by references.
        unsafe {
            asm!("ld.cs.v4.f32 {{{}, {}, {}, {}}}, [{}];", out(reg32) x, out(reg32) y, out(reg32) z, out(reg32) w,
                in(reg64) from, options(pure, readonly, nostack, preserves_flags));
        }
        Vec4 { x, y, z, w }
    }
}
