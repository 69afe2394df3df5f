//! A launch's arguments: what may be passed by value, the check against the kernel's parameters, and the bytes that the
//! driver reads. Nothing here calls a driver, so Miri runs over all of it.

use super::{ElementType, Parameter, ParameterType, Signature};
use crate::error::{Error, Result};
use bytemuck::NoUninit;
use std::any::type_name;
use std::ffi::c_void;

/// Bytes of the driver's description of a matrix (`CUtensorMap`).
const TENSOR_MAP: usize = 128;

/// A type that a launch may pass by value: the numbers, arrays of them (`[f32; 4]` for a `float4`), and structs that
/// [`kernel_param!`](crate::kernel_param) admits.
///
/// The launch copies the value's bytes into the kernel's parameter, after it has compared both sizes. That
/// every byte is initialised (no padding) is what [`bytemuck::NoUninit`] says.
pub trait KernelParam: NoUninit {
    /// Which number it is; `None` for arrays and structs, which only their size describes.
    const TYPE: Option<ElementType> = None;
}

macro_rules! numbers {
    ($($rust:ty => $element:ident),* $(,)?) => {$(
        impl KernelParam for $rust {
            const TYPE: Option<ElementType> = Some(ElementType::$element);
        }
    )*};
}

numbers! {
    f32 => F32, f64 => F64,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64, isize => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64, usize => U64,
}

impl KernelParam for bool {}

impl<T: KernelParam, const N: usize> KernelParam for [T; N] where [T; N]: NoUninit {}

/// Lets a struct be passed to a kernel by value. Name all its fields, in order, with their types: the compiler then checks
/// that it has the layout of the same struct in CUDA C, and no padding.
///
/// ```
/// #[repr(C)]
/// #[derive(Clone, Copy)]
/// struct Line { slope: f32, offset: f32, n: i32 }
/// gpulab::kernel_param!(Line { slope: f32, offset: f32, n: i32 });
/// ```
/// Padding is a compile error: write it as a field of its own.
/// ```compile_fail
/// #[repr(C)]
/// #[derive(Clone, Copy)]
/// struct Padded { small: u8, large: f32 }
/// gpulab::kernel_param!(Padded { small: u8, large: f32 });
/// ```
#[macro_export]
macro_rules! kernel_param {
    ($name:ident { $($field:ident : $type:ty),* $(,)? }) => {
        const _: () = {
            const fn is_param<T: $crate::launch::KernelParam>() -> usize {
                ::std::mem::size_of::<T>()
            }
            let mut end = 0;
            $(
                assert!(
                    ::std::mem::offset_of!($name, $field) == end,
                    concat!(
                        "padding, or another order of fields, before `",
                        stringify!($field),
                        "`: use #[repr(C)], and write padding as a field"
                    )
                );
                end += is_param::<$type>();
            )*
            assert!(::std::mem::size_of::<$name>() == end, "padding at the end of the struct: write it as a field");
            // Every field is named, with its own type.
            #[allow(dead_code)]
            fn fields(value: $name) -> ($($type,)*) {
                let $name { $($field),* } = value;
                ($($field,)*)
            }
            // SAFETY: the fields are such values themselves, and there is no byte between or behind them.
            unsafe impl $crate::launch::NoUninit for $name {}
            impl $crate::launch::KernelParam for $name {}
        };
    };
}

/// What a launch passes at one position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgType {
    /// A buffer; `mutable` when it came as `&mut`.
    Buffer {
        /// The buffer's element type.
        element: ElementType,
        /// True for `&mut buffer`.
        mutable: bool,
    },
    /// A number.
    Scalar(ElementType),
    /// An array or a struct by value.
    Value {
        /// Rust's name of its type.
        name: &'static str,
        /// Its size.
        bytes: usize,
    },
    /// A matrix as the TMA takes it.
    TensorMap {
        /// True when it was made for writing.
        written: bool,
        /// True when it came as `&mut map`.
        mutable: bool,
    },
}

impl ArgType {
    /// What passing a `T` passes.
    pub fn of<T: KernelParam>() -> ArgType {
        match T::TYPE {
            Some(element) => ArgType::Scalar(element),
            None => ArgType::Value { name: type_name::<T>(), bytes: size_of::<T>() },
        }
    }

    /// Bytes that it brings by value; a buffer brings its address.
    pub fn bytes(self) -> usize {
        match self {
            ArgType::Buffer { .. } => size_of::<u64>(),
            ArgType::Scalar(element) => element.bytes(),
            ArgType::Value { bytes, .. } => bytes,
            ArgType::TensorMap { .. } => TENSOR_MAP,
        }
    }

    fn as_rust(self) -> String {
        let reference = |mutable| if mutable { "&mut " } else { "&" };
        match self {
            ArgType::Buffer { element, mutable } => format!("`{}Buffer<{element}>`", reference(mutable)),
            ArgType::Scalar(element) => format!("a number of type `{element}`"),
            ArgType::Value { name, .. } => format!("a value of type `{name}`"),
            ArgType::TensorMap { mutable, .. } => format!("a `{}TensorMap`", reference(mutable)),
        }
    }
}

/// Checks count, types and sizes, before the launch: afterwards a wrong type is only wrong numbers, and a wrong size makes
/// the driver read past the argument.
///
/// # Errors
/// [`Error::ArgumentCount`], [`Error::ArgumentType`] and [`Error::ArgumentSize`], each with the kernel's own declaration.
pub fn check_arguments(signature: &Signature, given: impl ExactSizeIterator<Item = ArgType>) -> Result<()> {
    if signature.parameters.len() != given.len() {
        return Err(Error::ArgumentCount {
            kernel: signature.name.clone(),
            signature: signature.to_string(),
            expected: signature.parameters.len(),
            given: given.len(),
        });
    }
    for (at, (parameter, given)) in signature.parameters.iter().zip(given).enumerate() {
        if let Some(fix) = wrong_type(parameter, given) {
            return Err(Error::ArgumentType {
                kernel: signature.name.clone(),
                position: at + 1,
                parameter: parameter.text.clone(),
                given: given.as_rust(),
                fix,
            });
        }
        let expected = parameter.layout.map(|layout| layout.bytes);
        if let Some(expected) = expected.filter(|expected| *expected != given.bytes()) {
            return Err(Error::ArgumentSize {
                kernel: signature.name.clone(),
                position: at + 1,
                parameter: parameter.text.clone(),
                expected,
                given: given.as_rust(),
                given_bytes: given.bytes(),
            });
        }
    }
    Ok(())
}

/// What to change when an argument of this type does not fit this parameter; sizes are compared afterwards.
fn wrong_type(parameter: &Parameter, given: ArgType) -> Option<String> {
    match (parameter.kind, given) {
        (ParameterType::Pointer { element, constant }, ArgType::Buffer { element: passed, mutable }) => {
            if element.is_some_and(|element| element != passed) {
                let wanted = element?;
                return Some(format!(
                    "pass a `Buffer<{wanted}>` here, or declare the parameter as `{}{}*`",
                    if constant { "const " } else { "" },
                    passed.cuda_name()
                ));
            }
            (!constant && !mutable && element.is_some()).then(|| {
                "the kernel may write here: pass `&mut` of the buffer, or declare the parameter `const` if it only reads"
                    .to_string()
            })
        }
        (ParameterType::NumberOrAddress, ArgType::Buffer { .. }) => None,
        (ParameterType::Pointer { .. }, _) => {
            Some("pass a buffer here: `&buffer`, or `&mut buffer` when the kernel writes it".to_string())
        }
        (ParameterType::NumberOrAddress, _) => Some(
            "pass a buffer here: the compiled kernel does not say whether these 64 bits are a number or an address. If they \
             are a number, declare the parameter as `unsigned long long`; PTX without its source gets its declaration by \
             `unsafe { kernel.with_declaration(…) }`"
                .to_string(),
        ),
        (_, ArgType::TensorMap { written: true, mutable: false }) => {
            Some("this map was made for writing: pass `&mut map`, so that the launch is ordered as a write".to_string())
        }
        (ParameterType::Value, ArgType::TensorMap { .. }) => None,
        // A map made by hand could name any address.
        (ParameterType::Value, ArgType::Value { .. }) if parameter.is_tensor_map() => {
            Some("pass a `&TensorMap` here, made with `TensorMap::new`".to_string())
        }
        (ParameterType::Scalar(wanted), ArgType::Scalar(passed)) => (wanted != passed).then(|| {
            format!("write `value as {wanted}` in the launch, or declare the parameter as `{}`", passed.cuda_name())
        }),
        (ParameterType::Scalar(wanted), ArgType::Buffer { .. } | ArgType::TensorMap { .. }) => {
            Some(format!("pass a plain `{wanted}` here: the parameter is no pointer"))
        }
        (ParameterType::Scalar(wanted), ArgType::Value { bytes, .. }) => {
            // Of another size: the error names both.
            (bytes == wanted.bytes()).then(|| format!("pass a plain `{wanted}` here"))
        }
        (ParameterType::Value, ArgType::Buffer { .. }) => {
            Some("pass a plain value here: the parameter is no pointer".to_string())
        }
        // Without its size nothing can be promised.
        (ParameterType::Value, _) => {
            parameter.layout.is_none().then(|| "use a pointer, or a type whose size the PTX tells".to_string())
        }
    }
}

impl Parameter {
    /// By its declaration, or by the alignment that PTX tells.
    fn is_tensor_map(&self) -> bool {
        let says = ["TensorMap", "CUtensorMap", ".align 64", ".align 128"].iter().any(|word| self.text.contains(word));
        says && self.layout.is_some_and(|layout| layout.bytes == TENSOR_MAP)
    }
}

/// The bytes of one argument, at a multiple of 16 bytes, the largest alignment of a vector.
#[derive(Debug, Clone)]
pub(crate) enum Bytes {
    /// Numbers and short vectors need no allocation: launches are timed in microseconds.
    Inline(u128, usize),
    Boxed(Box<[u128]>, usize),
}

impl Bytes {
    #[inline]
    pub(crate) fn of<T: NoUninit>(value: &T) -> Bytes {
        let bytes = bytemuck::bytes_of(value);
        let len = bytes.len();
        if len <= size_of::<u128>() {
            let mut word = 0_u128;
            bytemuck::bytes_of_mut(&mut word)[..len].copy_from_slice(bytes);
            return Bytes::Inline(word, len);
        }
        let mut words = vec![0_u128; len.div_ceil(size_of::<u128>())];
        bytemuck::cast_slice_mut(&mut words)[..len].copy_from_slice(bytes);
        Bytes::Boxed(words.into(), len)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Inline(word, len) => &bytemuck::bytes_of(word)[..*len],
            Bytes::Boxed(words, len) => &bytemuck::cast_slice(words)[..*len],
        }
    }

    /// As the driver takes an argument: where its bytes are, as long as they stay where they are.
    pub(crate) fn address(&mut self) -> *mut c_void {
        match self {
            Bytes::Inline(word, _) => std::ptr::from_mut(word).cast(),
            Bytes::Boxed(words, _) => words.as_mut_ptr().cast(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{entry_points, signatures};
    use super::*;
    use ElementType::*;

    const fn buffer(element: ElementType, mutable: bool) -> ArgType {
        ArgType::Buffer { element, mutable }
    }

    /// The kernel of that declaration, compiled to these parameters.
    fn check(declaration: &str, ptx: &str, given: &[ArgType]) -> Result<()> {
        let declared = signatures(declaration);
        let compiled = entry_points(&format!(".entry k({ptx})")).remove(0);
        check_arguments(&compiled.with_declaration(declared.first()), given.iter().copied())
    }

    fn check_add(given: &[ArgType]) -> Result<()> {
        let ptx = ".param .u64 k_0, .param .u64 k_1, .param .u32 k_2";
        check("__global__ void k(const float *a, float *c, int n)", ptx, given)
    }

    #[test]
    fn the_right_arguments_pass() {
        assert_eq!(check_add(&[buffer(F32, false), buffer(F32, true), ArgType::Scalar(I32)]), Ok(()));
        assert_eq!(check_add(&[buffer(F32, true), buffer(F32, true), ArgType::Scalar(I32)]), Ok(()));
    }

    #[test]
    fn the_wrong_ones_are_named() {
        let (a, c, n) = (buffer(F32, false), buffer(F32, true), ArgType::Scalar(I32));
        assert!(matches!(check_add(&[a, c]), Err(Error::ArgumentCount { expected: 3, given: 2, .. })));
        let wrong: [(&[ArgType], usize); 6] = [
            (&[buffer(F64, false), c, n], 1),
            (&[a, a, n], 2),
            (&[a, c, ArgType::Scalar(U64)], 3),
            (&[a, n, n], 2),
            (&[a, ArgType::Scalar(U64), n], 2),
            (&[a, c, a], 3),
        ];
        for (given, at) in wrong {
            let error = check_add(given).unwrap_err();
            assert!(matches!(error, Error::ArgumentType { position, .. } if position == at), "{given:?}: {error}");
        }
    }

    #[test]
    fn a_vector_is_no_number_and_a_struct_has_its_size() {
        let vector = ".param .align 16 .b8 k_0[16]";
        let (float4, float) = (ArgType::of::<[f32; 4]>(), ArgType::of::<f32>());
        assert_eq!(check("__global__ void k(float4 v)", vector, &[float4]), Ok(()));
        assert_eq!(check("__global__ void k(Pair<int, float> p)", vector, &[float4]), Ok(()));
        let sizes = |result: Result<()>| match result {
            Err(Error::ArgumentSize { expected, given_bytes, .. }) => (expected, given_bytes),
            other => panic!("{other:?}"),
        };
        assert_eq!(sizes(check("__global__ void k(float4 v)", vector, &[float])), (16, 4));
        assert_eq!(sizes(check("__global__ void k(float v)", ".param .f32 k_0", &[float4])), (4, 16));
        assert_eq!(sizes(check("__global__ void k(Params p)", vector, &[ArgType::of::<[i32; 3]>()])), (16, 12));
        // `float` may be a macro.
        assert_eq!(sizes(check("__global__ void k(float v)", vector, &[float])), (16, 4));
    }

    #[test]
    fn where_an_address_may_be_meant_no_number_passes() {
        let bare = ".param .u64 k_0";
        let number = [ArgType::Scalar(U64)];
        assert!(matches!(check("", bare, &number), Err(Error::ArgumentType { position: 1, .. })));
        assert!(matches!(check("", bare, &[ArgType::of::<[u32; 2]>()]), Err(Error::ArgumentType { .. })));
        assert_eq!(check("", bare, &[buffer(F32, true)]), Ok(()));
        for pointer in ["float *x", "void *x", "Tile *x"] {
            let declared = format!("__global__ void k({pointer})");
            assert!(matches!(check(&declared, bare, &number), Err(Error::ArgumentType { .. })), "{pointer}");
        }
        assert!(matches!(check("", ".param .u64 .ptr k_0", &number), Err(Error::ArgumentType { .. })));
        // A type that the declaration's reader does not know.
        assert!(matches!(check("__global__ void k(row_t x)", bare, &number), Err(Error::ArgumentType { .. })));
        assert_eq!(check("__global__ void k(size_t n)", bare, &number), Ok(()));
    }

    #[test]
    fn tensor_maps_are_neither_made_by_hand_nor_written_unseen() {
        let (ptx, kernel) =
            (".param .align 128 .b8 k_0[128]", "__global__ void k(const __grid_constant__ TensorMap a)");
        let map = |written, mutable| [ArgType::TensorMap { written, mutable }];
        for good in [map(false, false), map(true, true), map(false, true)] {
            assert_eq!(check(kernel, ptx, &good), Ok(()));
        }
        assert!(matches!(check(kernel, ptx, &map(true, false)), Err(Error::ArgumentType { .. })));
        for declared in [kernel, ""] {
            assert!(matches!(check(declared, ptx, &[ArgType::of::<[u64; 16]>()]), Err(Error::ArgumentType { .. })));
        }
        let small = check("__global__ void k(float4 v)", ".param .align 16 .b8 k_0[16]", &map(false, false));
        assert!(matches!(small, Err(Error::ArgumentSize { expected: 16, given_bytes: 128, .. })));
    }

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Line {
        slope: f32,
        offset: [f32; 3],
        n: i64,
    }
    crate::kernel_param!(Line { slope: f32, offset: [f32; 3], n: i64 });
    const _: () = assert!(size_of::<Line>() == 24);

    #[test]
    fn the_driver_finds_every_byte_of_every_argument() {
        let line = Line { slope: 1.5, offset: [2.0, 3.0, 4.0], n: -4 };
        let map: [u64; 16] = std::array::from_fn(|i| i as u64);
        let mut all = [
            Bytes::of(&1_u8),
            Bytes::of(&-2_i16),
            Bytes::of(&f32::NAN),
            Bytes::of(&u64::MAX),
            Bytes::of(&[1.0_f32, 2.0, 3.0, 4.0]),
            Bytes::of(&line),
            Bytes::of(&map),
            Bytes::of(&[0_u8; 0]),
            Bytes::of(&7_i32),
        ];
        let addresses: Vec<*mut c_void> = all.iter_mut().map(Bytes::address).collect();
        assert_eq!(addresses.len(), all.len());
        // As the driver does: from each address as many bytes as the parameter has, in any order.
        for (bytes, address) in all.iter().zip(addresses).rev() {
            let mut copy = vec![0_u8; bytes.as_slice().len()];
            // SAFETY: the address is of that many bytes.
            unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), copy.as_mut_ptr(), copy.len()) };
            assert_eq!(copy, bytes.as_slice());
            assert!(address.cast::<u128>().is_aligned());
        }
        assert_eq!(ArgType::of::<Line>().bytes(), 24);
    }
}
