//! Memory of the device's pool and its figures, page-locked host memory, and how the TMA is told of a matrix.

use super::{CudaGpu, driver_error};
use crate::error::{Error, Result};
use crate::launch::ElementType;
use cudarc::driver::result::mem_pool;
use cudarc::driver::sys::{
    CUmemPool_attribute as Attribute, CUmemoryPool, CUresult, CUtensorMap, CUtensorMapDataType as DataType,
    CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapSwizzle,
};
use cudarc::driver::{CudaSlice, DevicePtr, DevicePtrMut, DriverError, PinnedHostSlice, sys};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Device memory that graphs can ask whether it is still there.
#[derive(Debug)]
pub(crate) struct CudaMemory {
    slice: CudaSlice<u8>,
    pub(super) alive: Arc<()>,
}

impl From<CudaSlice<u8>> for CudaMemory {
    fn from(slice: CudaSlice<u8>) -> CudaMemory {
        CudaMemory { slice, alive: Arc::new(()) }
    }
}

impl CudaMemory {
    /// As cudarc's own, of `len` elements of a plain number's type, without a copy.
    pub(crate) fn into_slice<T>(self, len: usize) -> CudaSlice<T> {
        retyped(self.slice, len)
    }

    /// Takes cudarc's memory over, without a copy.
    pub(crate) fn from_slice<T>(slice: CudaSlice<T>) -> CudaMemory {
        let bytes = slice.num_bytes();
        CudaMemory::from(retyped(slice, bytes))
    }
}

/// The same memory as another type's; `len` elements of plain numbers that fit into it.
fn retyped<From, To>(slice: CudaSlice<From>, len: usize) -> CudaSlice<To> {
    assert!(len * size_of::<To>() <= slice.num_bytes(), "as many bytes as there are");
    let stream = slice.stream().clone();
    // The stream waits for what others still do with the memory.
    let pointer = slice.leak();
    // SAFETY: the allocation is whole, of that many bytes, and nobody else's now; plain numbers are valid as any bits.
    let mut slice = unsafe { stream.upgrade_device_ptr::<To>(pointer, len) };
    // The new slice's events know nothing of the past: other streams shall wait for this one.
    drop(slice.device_ptr_mut(&stream));
    slice
}

impl Deref for CudaMemory {
    type Target = CudaSlice<u8>;

    fn deref(&self) -> &CudaSlice<u8> {
        &self.slice
    }
}

impl DerefMut for CudaMemory {
    fn deref_mut(&mut self) -> &mut CudaSlice<u8> {
        &mut self.slice
    }
}

impl CudaGpu {
    /// Allocates `bytes` bytes without writing them.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<CudaMemory> {
        self.outside_capture("an allocation", "allocate before `gpu.capture`, and let the work use what is there")?;
        // An allocation of nothing is an error to the driver; an empty buffer is none to a reader.
        // SAFETY: bytes are valid whatever they hold.
        let allocated = unsafe { self.stream.alloc::<u8>(bytes.max(1)) };
        let mut slice = allocated.map_err(|error| self.allocation_error(bytes as u64, error))?;
        // Another stream that is the first to write waits for this one: what held the memory before may still be read here.
        drop(slice.device_ptr_mut(&self.stream));
        Ok(CudaMemory::from(slice))
    }

    /// Sets every byte to `value`, in the stream's order.
    pub(crate) fn fill(&self, memory: &mut CudaSlice<u8>, value: u8) -> Result<()> {
        let (bytes, queue) = (memory.len(), self.queue());
        let (pointer, _order) = memory.device_ptr_mut(&queue);
        // SAFETY: the pointer is valid for that many bytes, and the slice is borrowed until the call is queued.
        unsafe { cudarc::driver::result::memset_d8_async(pointer, value, bytes, queue.cu_stream()) }
            .map_err(|error| driver_error("filling a buffer", error))
    }

    fn allocation_error(&self, asked: u64, error: DriverError) -> Error {
        if error.0 != CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return driver_error("an allocation", error);
        }
        let (free, total) = self.context.mem_get_info().unwrap_or((0, 0));
        let unused = self.pool_figures().map_or(0, |[used, reserved, ..]| reserved.saturating_sub(used));
        Error::OutOfMemory { asked, free: free as u64, total: total as u64, reserved: unused }
    }

    /// Used, reserved, and the highest of each since the last reset, in bytes.
    pub(crate) fn pool_figures(&self) -> Result<[u64; 4]> {
        let pool = self.pool()?;
        let read = |attribute| {
            let mut value = 0_u64;
            // SAFETY: the pool is the device's own; these attributes are 64-bit numbers.
            unsafe { mem_pool::get_attribute(pool, attribute, (&raw mut value).cast()) }
                .map(|()| value)
                .map_err(|error| driver_error("reading the memory pool", error))
        };
        Ok([
            read(Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
            read(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?,
            read(Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?,
            read(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?,
        ])
    }

    /// How many bytes the pool keeps when everything is freed and the stream is waited for.
    pub(crate) fn set_release_threshold(&self, bytes: u64) -> Result<()> {
        self.set_pool(Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, bytes)
    }

    /// Forgets the high-water marks: they begin again at what is used and reserved now.
    pub(crate) fn reset_high_water(&self) -> Result<()> {
        self.set_pool(Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)?;
        self.set_pool(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0)
    }

    /// Gives unused memory back to the driver until at most `keep` bytes stay reserved.
    pub(crate) fn trim(&self, keep: usize) -> Result<()> {
        // Frees are ordered in the stream, so memory counts as used until the stream has reached them.
        self.stream.synchronize().map_err(|error| driver_error("waiting for the GPU", error))?;
        let pool = self.pool()?;
        // SAFETY: the pool is the device's own.
        unsafe { cudarc::driver::sys::cuMemPoolTrimTo(pool, keep) }
            .result()
            .map_err(|error| driver_error("trimming the memory pool", error))
    }

    fn set_pool(&self, attribute: Attribute, mut value: u64) -> Result<()> {
        let pool = self.pool()?;
        // SAFETY: the pool is the device's own; these attributes are 64-bit numbers.
        unsafe { mem_pool::set_attribute(pool, attribute, (&raw mut value).cast()) }
            .map_err(|error| driver_error("changing the memory pool", error))
    }

    fn pool(&self) -> Result<CUmemoryPool> {
        if !self.context.has_async_alloc() {
            return Err(Error::unsupported(
                "this GPU has no memory pool (its driver allocates without one)",
                "use `gpu.memory()`'s free and total only",
            ));
        }
        // SAFETY: the context is open, so its device is valid.
        unsafe { cudarc::driver::result::device::get_default_mem_pool(self.context.cu_device()) }
            .map_err(|error| driver_error("finding the memory pool", error))
    }
}

/// Host memory that the GPU's copy engine reads and writes by itself, as bytes.
pub(crate) type CudaPinned = PinnedHostSlice<u8>;

impl CudaGpu {
    /// Allocates `bytes` bytes, all zero. Not write-combined: reading that is very slow.
    pub(crate) fn pinned(&self, bytes: usize) -> Result<CudaPinned> {
        let problem = |error| driver_error("allocating pinned memory (the host may have too little free)", error);
        // SAFETY: bytes are valid whatever they hold, and they are written right below.
        let mut pinned = unsafe { self.context.alloc_pinned_with_flags::<u8>(bytes.max(1), 0) }.map_err(problem)?;
        pinned.as_mut_slice().map_err(problem)?.fill(0);
        Ok(pinned)
    }
}

/// Whether this host memory is page-locked: an asynchronous copy from or to it then outlives the call.
pub(crate) fn is_pinned(host: &[u8]) -> bool {
    let mut kind = 0_u32;
    let which = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    // SAFETY: the attribute is a 32-bit number, and the address is only looked up, not followed.
    let known = unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast(), which, host.as_ptr() as u64) };
    // The driver does not know ordinary memory.
    known == sys::CUresult::CUDA_SUCCESS
}

/// The bytes of a row of a box: the widest swizzle.
pub(crate) const BOX_ROW: usize = 128;

/// The driver's description of a matrix, as a kernel takes it by value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CudaTensorMap(CUtensorMap);

impl CudaTensorMap {
    pub(crate) fn words(&self) -> &[u64; 16] {
        &self.0.opaque
    }
}

impl CudaGpu {
    /// A row-major matrix, or a stack of them (its sides from the slowest to the fastest), fetched in boxes of `box_rows`
    /// rows of 128 bytes of one matrix, of which it is given so many columns, some bytes from a row's start; the caller has
    /// checked sizes and alignment.
    pub(crate) fn tensor_map(
        &self,
        matrix: &CudaSlice<u8>,
        element: ElementType,
        sides: &[usize],
        (offset, columns): (usize, usize),
        box_rows: u32,
    ) -> Result<CudaTensorMap> {
        let (pointer, _order) = matrix.device_ptr(&self.stream);
        let pointer = pointer + offset as u64;
        let mut sizes: Vec<u64> = sides.iter().rev().map(|&side| side as u64).collect();
        // From one row, and from one matrix, to the next.
        let steps = sizes.iter().scan(element.bytes() as u64, |bytes, &side| {
            *bytes *= side;
            Some(*bytes)
        });
        let steps: Vec<u64> = steps.take(sizes.len() - 1).collect();
        sizes[0] = columns as u64;
        let mut in_box = vec![1_u32; sizes.len()];
        in_box[..2].copy_from_slice(&[(BOX_ROW / element.bytes()) as u32, box_rows]);
        let each = vec![1_u32; sizes.len()];
        let mut map = CUtensorMap { opaque: [0; 16] };
        // SAFETY: all pointers are valid for the call, and the arrays have the lengths that so many dimensions ask for.
        let done = unsafe {
            sys::cuTensorMapEncodeTiled(
                &mut map,
                data_type(element),
                sizes.len() as u32,
                pointer as *mut _,
                sizes.as_ptr(),
                steps.as_ptr(),
                in_box.as_ptr(),
                each.as_ptr(),
                CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        done.result().map_err(|error| driver_error("describing a matrix to the TMA", error))?;
        Ok(CudaTensorMap(map))
    }
}

/// The engine moves bits: of 16-bit numbers it need not know that they are bf16.
fn data_type(element: ElementType) -> DataType {
    match element {
        ElementType::F32 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        ElementType::F64 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        ElementType::I8 | ElementType::U8 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        ElementType::I16 | ElementType::U16 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        ElementType::I32 => DataType::CU_TENSOR_MAP_DATA_TYPE_INT32,
        ElementType::U32 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        ElementType::I64 => DataType::CU_TENSOR_MAP_DATA_TYPE_INT64,
        ElementType::U64 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT64,
    }
}
