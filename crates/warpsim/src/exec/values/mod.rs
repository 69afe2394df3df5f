//! What instructions make of the rows of registers; nothing here knows memory.

pub mod alu32;
pub mod alu64;
pub mod compare;
pub mod convert;
pub mod divide;
pub mod float;
pub mod half;
pub mod lanes;
pub mod rare;
pub mod registers;
pub mod soft;
pub mod tensor;
pub mod wgmma;
