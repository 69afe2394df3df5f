//! Two or four numbers that are read and written by one instruction, where their address is a multiple of their size.

/// Two numbers (`float2`).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[repr(C)]
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
