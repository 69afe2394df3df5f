//! Two or four numbers that are read and written by one instruction, where their address is a multiple of their size.

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
