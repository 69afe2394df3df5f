//! What a launch takes: a tuple of buffers and numbers.

use super::buffer::Memory;
use super::{Buffer, TensorMap};
use crate::cuda::CudaTensorMap;
use crate::launch::{ArgType, Element, ElementType};

/// One argument on its way to a kernel.
pub struct RawArg<'a> {
    pub(super) kind: ArgType,
    pub(super) value: RawValue<'a>,
}

pub(super) enum RawValue<'a> {
    Read(&'a Memory, usize),
    Write(&'a mut Memory, usize),
    Bytes1(u8),
    Bytes2(u16),
    Bytes4(u32),
    Bytes8(u64),
    Map(CudaTensorMap, &'a Memory, usize),
}

mod sealed {
    pub trait Sealed {}
}

/// What may stand in a launch: `&buffer`, `&mut buffer`, a number, or `&map` of a [`TensorMap`].
pub trait Arg<'a>: sealed::Sealed {
    #[doc(hidden)]
    fn into_raw(self) -> RawArg<'a>;
}

impl<T: Element> sealed::Sealed for &Buffer<T> {}
impl<'a, T: Element> Arg<'a> for &'a Buffer<T> {
    fn into_raw(self) -> RawArg<'a> {
        let kind = ArgType::Buffer { element: T::TYPE, mutable: false };
        RawArg { kind, value: RawValue::Read(&self.memory, self.gpu.index()) }
    }
}

impl<T: Element> sealed::Sealed for &mut Buffer<T> {}
impl<'a, T: Element> Arg<'a> for &'a mut Buffer<T> {
    fn into_raw(self) -> RawArg<'a> {
        let kind = ArgType::Buffer { element: T::TYPE, mutable: true };
        RawArg { kind, value: RawValue::Write(&mut self.memory, self.gpu.index()) }
    }
}

impl sealed::Sealed for &TensorMap<'_> {}
impl<'a> Arg<'a> for &'a TensorMap<'_> {
    fn into_raw(self) -> RawArg<'a> {
        RawArg { kind: ArgType::TensorMap, value: RawValue::Map(self.map, self.memory, self.index) }
    }
}

macro_rules! numbers {
    ($($rust:ty => $element:ident, $bytes:ident, |$value:ident| $bits:expr;)*) => {$(
        impl sealed::Sealed for $rust {}
        impl<'a> Arg<'a> for $rust {
            fn into_raw(self) -> RawArg<'a> {
                let $value = self;
                RawArg { kind: ArgType::Scalar(ElementType::$element), value: RawValue::$bytes($bits) }
            }
        }
    )*};
}

numbers! {
    f32 => F32, Bytes4, |v| v.to_bits();
    f64 => F64, Bytes8, |v| v.to_bits();
    i8 => I8, Bytes1, |v| v as u8;
    i16 => I16, Bytes2, |v| v as u16;
    i32 => I32, Bytes4, |v| v as u32;
    i64 => I64, Bytes8, |v| v as u64;
    u8 => U8, Bytes1, |v| v;
    u16 => U16, Bytes2, |v| v;
    u32 => U32, Bytes4, |v| v;
    u64 => U64, Bytes8, |v| v;
    usize => U64, Bytes8, |v| v as u64;
}

/// All arguments of a launch, as a tuple of up to sixteen. (As a list too, for programs that read them from a table.)
pub trait Args<'a>: sealed::Sealed {
    #[doc(hidden)]
    fn into_raw(self) -> Vec<RawArg<'a>>;
}

impl sealed::Sealed for Vec<RawArg<'_>> {}
impl<'a> Args<'a> for Vec<RawArg<'a>> {
    fn into_raw(self) -> Vec<RawArg<'a>> {
        self
    }
}

macro_rules! tuples {
    ($($($name:ident)*;)*) => {$(
        impl<$($name: sealed::Sealed),*> sealed::Sealed for ($($name,)*) {}
        impl<'a, $($name: Arg<'a>),*> Args<'a> for ($($name,)*) {
            fn into_raw(self) -> Vec<RawArg<'a>> {
                #[allow(non_snake_case)]
                let ($($name,)*) = self;
                vec![$($name.into_raw()),*]
            }
        }
    )*};
}

tuples! {
    ; A; A B; A B C; A B C D; A B C D E; A B C D E F; A B C D E F G; A B C D E F G H; A B C D E F G H I;
    A B C D E F G H I J; A B C D E F G H I J K; A B C D E F G H I J K L; A B C D E F G H I J K L M;
    A B C D E F G H I J K L M N; A B C D E F G H I J K L M N O; A B C D E F G H I J K L M N O P;
}
