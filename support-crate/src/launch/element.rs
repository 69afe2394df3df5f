//! The plain numbers that buffers hold and kernels take.

use crate::error::{Error, Result};
use std::fmt;

/// The type of one element, as Rust and as CUDA C call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are Rust's own
pub enum ElementType {
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
}

impl ElementType {
    /// Rust's name, such as `f32`; also the word in `metrics.csv`.
    pub fn rust_name(self) -> &'static str {
        self.names().0
    }

    /// CUDA C's name, such as `float`.
    pub fn cuda_name(self) -> &'static str {
        self.names().1
    }

    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        self.names().2
    }

    fn names(self) -> (&'static str, &'static str, usize) {
        match self {
            ElementType::F32 => ("f32", "float", 4),
            ElementType::F64 => ("f64", "double", 8),
            ElementType::I8 => ("i8", "signed char", 1),
            ElementType::I16 => ("i16", "short", 2),
            ElementType::I32 => ("i32", "int", 4),
            ElementType::I64 => ("i64", "long long", 8),
            ElementType::U8 => ("u8", "unsigned char", 1),
            ElementType::U16 => ("u16", "unsigned short", 2),
            ElementType::U32 => ("u32", "unsigned int", 4),
            ElementType::U64 => ("u64", "unsigned long long", 8),
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rust_name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A number that may cross to a device: same bits on both sides, any bit pattern valid.
///
/// Sealed, because [`Buffer::to_host`](crate::gpu::Buffer::to_host) hands out whatever bits a kernel left behind.
pub trait Element: sealed::Sealed + Copy + Default + Send + Sync + fmt::Debug + 'static {
    /// Which type this is.
    const TYPE: ElementType;
}

/// How many bytes `len` elements take. Checked, because release builds multiply with a silent overflow.
pub(crate) fn bytes_of<T: Element>(len: usize) -> Result<usize> {
    let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= isize::MAX as usize);
    bytes.ok_or_else(|| Error::Invalid {
        what: format!("{len} elements of {} bytes are more than any memory holds", size_of::<T>()),
        fix: "check the arithmetic of the size".to_string(),
    })
}

/// The bytes of these numbers.
pub fn as_bytes<T: Element>(numbers: &[T]) -> &[u8] {
    // SAFETY: elements are plain numbers without padding, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// The bytes of these numbers, to be written.
pub(crate) fn as_bytes_mut<T: Element>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and any bytes make valid numbers.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

macro_rules! elements {
    ($($rust:ty => $variant:ident),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const TYPE: ElementType = ElementType::$variant;
        }
    )*};
}

elements! {
    f32 => F32, f64 => F64,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_overflows_is_an_error() {
        assert_eq!(bytes_of::<f64>(3), Ok(24));
        for len in [usize::MAX, usize::MAX / 4, isize::MAX as usize / 4] {
            let message = bytes_of::<f64>(len).unwrap_err().to_string();
            assert!(message.contains("more than any memory holds"), "{message}");
        }
    }
}
