//! How the copy engine of Hopper GPUs (TMA) is told of a matrix.

use super::{CudaGpu, driver_error};
use crate::error::Result;
use crate::launch::ElementType;
use cudarc::driver::sys::{
    self, CUtensorMap, CUtensorMapDataType as DataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle,
};
use cudarc::driver::{CudaSlice, DevicePtr};

/// The bytes of a row of a box: the widest swizzle.
pub(crate) const BOX_ROW: usize = 128;

/// The driver's description of a matrix, as a kernel takes it by value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CudaTensorMap(CUtensorMap);

impl CudaTensorMap {
    pub(crate) fn words(&self) -> &[u64; 16] {
        &self.0.opaque
    }

    #[cfg(test)]
    pub(crate) fn from_words(opaque: [u64; 16]) -> CudaTensorMap {
        CudaTensorMap(CUtensorMap { opaque })
    }
}

impl CudaGpu {
    /// A row-major matrix, or a stack of them (its sides from the slowest to the fastest), fetched in boxes of `box_rows`
    /// rows of 128 bytes of one matrix; the caller has checked sizes and alignment.
    pub(crate) fn tensor_map(
        &self,
        matrix: &CudaSlice<u8>,
        element: ElementType,
        sides: &[usize],
        box_rows: u32,
    ) -> Result<CudaTensorMap> {
        let (pointer, _order) = matrix.device_ptr(&self.stream);
        let sizes: Vec<u64> = sides.iter().rev().map(|&side| side as u64).collect();
        // From one row, and from one matrix, to the next.
        let steps = sizes.iter().scan(element.bytes() as u64, |bytes, &side| {
            *bytes *= side;
            Some(*bytes)
        });
        let steps: Vec<u64> = steps.take(sizes.len() - 1).collect();
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
        done.result().map_err(|error| driver_error("describing a matrix to the copy engine", error))?;
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
