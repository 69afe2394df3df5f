//! What a launch takes: a tuple of buffers, plain values and tensor maps.

use super::buffer::Memory;
use super::{Buffer, Gpu, TensorMap};
use crate::cuda;
use crate::launch::{ArgType, Bytes, Element, KernelParam};
use cudarc::driver::{
    CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DeviceSlice, SyncOnDrop, sys,
};
use std::sync::Arc;

/// One argument on its way to a kernel, on any machine: its bytes, the memory that the kernel may reach through it, or both.
pub struct RawArg<'a> {
    pub(super) kind: ArgType,
    /// `None` for a buffer: its bytes are its address.
    pub(super) bytes: Option<Bytes>,
    pub(super) memory: Option<Lent<'a>>,
}

/// Memory lent to a launch, for reading or for writing.
pub(super) enum Lent<'a> {
    Read(&'a Memory, &'a Gpu),
    Write(&'a mut Memory, &'a Gpu),
    /// Of a slice of cudarc's, which `Memory` does not own.
    CudaRead(CudaView<'a, u8>),
    CudaWrite(CudaViewMut<'a, u8>),
}

impl Lent<'_> {
    /// `None` where the memory is cudarc's.
    pub(super) fn own(&self) -> Option<&Memory> {
        match self {
            Lent::Read(memory, _) => Some(memory),
            Lent::Write(memory, _) => Some(memory),
            Lent::CudaRead(_) | Lent::CudaWrite(_) => None,
        }
    }

    /// Where the memory is, if that is not on `gpu`.
    pub(super) fn elsewhere(&self, gpu: &Gpu) -> Option<String> {
        let context = match self {
            Lent::Read(memory, owner) => return (!memory.is_of(gpu)).then(|| other(owner, gpu)),
            Lent::Write(memory, owner) => return (!memory.is_of(gpu)).then(|| other(owner, gpu)),
            Lent::CudaRead(view) => view.stream().context(),
            Lent::CudaWrite(view) => view.stream().context(),
        };
        match gpu {
            Gpu::Cuda(gpu) => (!Arc::ptr_eq(context, &gpu.context)).then(|| cuda::another_context(context)),
            _ => Some(format!("GPU {}", context.ordinal())),
        }
    }

    /// Its address, for work that `stream` gets next: it waits for what other streams still do with the memory. When the
    /// guard is dropped, after the work was queued, later users of the memory wait for that work.
    pub(super) fn on_stream<'b>(&'b mut self, stream: &'b CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'b>) {
        match self {
            Lent::Read(Memory::Cuda(memory), _) => memory.device_ptr(stream),
            Lent::Write(Memory::Cuda(memory), _) => memory.device_ptr_mut(stream),
            Lent::CudaRead(view) => view.device_ptr(stream),
            Lent::CudaWrite(view) => view.device_ptr_mut(stream),
            Lent::Read(..) | Lent::Write(..) => unreachable!("checked before: every buffer is on the kernel's GPU"),
        }
    }
}

/// What to call memory of `owner`, seen from `gpu`.
fn other(owner: &Gpu, gpu: &Gpu) -> String {
    match (owner, gpu) {
        (Gpu::Simulated(_), Gpu::Simulated(_)) => "another simulated GPU".to_string(),
        (Gpu::Cuda(owner), Gpu::Cuda(_)) => cuda::another_context(&owner.context),
        _ => format!("GPU {}", owner.index()),
    }
}

mod sealed {
    pub trait Sealed {}
}

/// What may stand in a launch: `&buffer`, `&mut buffer`, a number or another [`KernelParam`] by value, `&map` or `&mut map`
/// of a [`TensorMap`], and on an NVIDIA GPU cudarc's own slices and views: `&slice`, `&mut slice`, `&view`, `&mut view`.
pub trait Arg<'a>: sealed::Sealed {
    #[doc(hidden)]
    fn into_raw(self) -> RawArg<'a>;
}

impl<T: KernelParam> sealed::Sealed for T {}
impl<'a, T: KernelParam> Arg<'a> for T {
    fn into_raw(self) -> RawArg<'a> {
        RawArg { kind: ArgType::of::<T>(), bytes: Some(Bytes::of(&self)), memory: None }
    }
}

fn buffer<T: Element>(mutable: bool, memory: Lent<'_>) -> RawArg<'_> {
    RawArg { kind: ArgType::Buffer { element: T::TYPE, mutable }, bytes: None, memory: Some(memory) }
}

impl<T: Element> sealed::Sealed for &Buffer<T> {}
impl<'a, T: Element> Arg<'a> for &'a Buffer<T> {
    fn into_raw(self) -> RawArg<'a> {
        buffer::<T>(false, Lent::Read(&self.memory, &self.gpu))
    }
}

impl<T: Element> sealed::Sealed for &mut Buffer<T> {}
impl<'a, T: Element> Arg<'a> for &'a mut Buffer<T> {
    fn into_raw(self) -> RawArg<'a> {
        buffer::<T>(true, Lent::Write(&mut self.memory, &self.gpu))
    }
}

impl<T: Element> sealed::Sealed for &CudaSlice<T> {}
impl<'a, T: Element> Arg<'a> for &'a CudaSlice<T> {
    fn into_raw(self) -> RawArg<'a> {
        // SAFETY: any bytes are valid as bytes.
        let view = unsafe { self.transmute::<u8>(self.num_bytes()) };
        buffer::<T>(false, Lent::CudaRead(view.expect("a slice is as long as it is")))
    }
}

impl<T: Element> sealed::Sealed for &mut CudaSlice<T> {}
impl<'a, T: Element> Arg<'a> for &'a mut CudaSlice<T> {
    fn into_raw(self) -> RawArg<'a> {
        let bytes = self.num_bytes();
        // SAFETY: an element is a plain number, for which every bit pattern is valid.
        let view = unsafe { self.transmute_mut::<u8>(bytes) };
        buffer::<T>(true, Lent::CudaWrite(view.expect("a slice is as long as it is")))
    }
}

impl<T: Element> sealed::Sealed for &CudaView<'_, T> {}
impl<'a, T: Element> Arg<'a> for &'a CudaView<'_, T> {
    fn into_raw(self) -> RawArg<'a> {
        // SAFETY: any bytes are valid as bytes.
        let view = unsafe { self.transmute::<u8>(self.num_bytes()) };
        buffer::<T>(false, Lent::CudaRead(view.expect("a view is as long as it is")))
    }
}

impl<T: Element> sealed::Sealed for &mut CudaViewMut<'_, T> {}
impl<'a, T: Element> Arg<'a> for &'a mut CudaViewMut<'_, T> {
    fn into_raw(self) -> RawArg<'a> {
        let bytes = self.num_bytes();
        // SAFETY: an element is a plain number, for which every bit pattern is valid.
        let view = unsafe { self.transmute_mut::<u8>(bytes) };
        buffer::<T>(true, Lent::CudaWrite(view.expect("a view is as long as it is")))
    }
}

impl sealed::Sealed for &TensorMap<'_> {}
impl<'a> Arg<'a> for &'a TensorMap<'_> {
    fn into_raw(self) -> RawArg<'a> {
        RawArg { kind: self.kind(false), bytes: Some(self.bytes()), memory: Some(self.lend()) }
    }
}

impl sealed::Sealed for &mut TensorMap<'_> {}
impl<'a> Arg<'a> for &'a mut TensorMap<'_> {
    fn into_raw(self) -> RawArg<'a> {
        RawArg { kind: self.kind(true), bytes: Some(self.bytes()), memory: Some(self.lend_mut()) }
    }
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
