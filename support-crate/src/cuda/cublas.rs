//! The vendor's matrix product, loaded when it is there.

use super::{CudaGpu, CudaMemory, Library};
use crate::error::{Error, Result};
use cudarc::cublas::result::{self, CublasError};
use cudarc::cublas::safe::CudaBlas;
use cudarc::cublas::sys::{
    cublasComputeType_t as Compute, cublasGemmAlgo_t as Algorithm, cublasGetVersion_v2, cublasMath_t as Math,
    cublasOperation_t as Operation, cublasSetMathMode, cudaDataType as DataType,
};
use cudarc::driver::{DevicePtr, DevicePtrMut};
use std::ffi::c_void;
use std::sync::Arc;

/// cuBLAS on one GPU, on its default stream.
#[derive(Debug, Clone)]
pub(crate) struct CudaCublas(Arc<CudaBlas>);

impl CudaGpu {
    /// Loads the library, and opens it on this GPU. f32 stays f32: no TF32.
    pub(crate) fn cublas(&self) -> Result<CudaCublas> {
        if !Library::Cublas.is_present() {
            return Err(Error::unsupported(
                "cuBLAS is not there (libcublas.so was not found on LD_LIBRARY_PATH)",
                "install it with the CUDA toolkit, and add its folder, such as /usr/local/cuda/lib64",
            ));
        }
        let blas = CudaBlas::new(self.stream.clone()).map_err(|error| failed("opening cuBLAS", error))?;
        // SAFETY: the handle was just made.
        let mode = unsafe { cublasSetMathMode(*blas.handle(), Math::CUBLAS_DEFAULT_MATH) };
        mode.result().map_err(|error| failed("opening cuBLAS", error))?;
        Ok(CudaCublas(Arc::new(blas)))
    }
}

impl CudaCublas {
    /// The library's version, such as 130100; 0 when it does not tell.
    pub(crate) fn version(&self) -> i32 {
        let mut version = 0;
        // SAFETY: the handle is open, and the pointer valid for the call.
        let _ = unsafe { cublasGetVersion_v2(*self.0.handle(), &mut version) };
        version
    }

    /// Queues c = a · b for row-major matrices whose lengths the caller has checked, with sums in f32. cuBLAS counts by
    /// columns: to it, row-major c = a · b is transposed c = transposed b · transposed a, with nothing to transpose. Where
    /// b is stored by columns (`b_by_columns`), cuBLAS transposes it.
    pub(crate) fn multiply(
        &self,
        gpu: &CudaGpu,
        bf16: bool,
        b_by_columns: bool,
        (a, b, c): (&CudaMemory, &CudaMemory, &mut CudaMemory),
        [m, n, k]: [i32; 3],
    ) -> Result<()> {
        let kind = if bf16 { DataType::CUDA_R_16BF } else { DataType::CUDA_R_32F };
        let (one, zero) = (1.0_f32, 0.0_f32);
        gpu.uses([a, b, &*c]);
        gpu.keep(|| self.0.clone());
        let queue = gpu.queue();
        // SAFETY: the handle is open, and the stream lives until the capture has ended, when the next call sets another.
        unsafe { result::set_stream(*self.0.handle(), queue.cu_stream().cast()) }
            .map_err(|error| failed("cuBLAS's product", error))?;
        let (a, _read_a) = a.device_ptr(&queue);
        let (b, _read_b) = b.device_ptr(&queue);
        let (c, _written) = c.device_ptr_mut(&queue);
        // SAFETY: the pointers are of live buffers on this GPU that hold these matrices, and the guards keep the order of
        // the stream; alpha and beta are read before the call returns; the handle is open.
        unsafe {
            result::gemm_ex(
                *self.0.handle(),
                if b_by_columns { Operation::CUBLAS_OP_T } else { Operation::CUBLAS_OP_N },
                Operation::CUBLAS_OP_N,
                n,
                m,
                k,
                (&raw const one).cast::<c_void>(),
                b as *const c_void,
                kind,
                if b_by_columns { k } else { n },
                a as *const c_void,
                kind,
                k,
                (&raw const zero).cast::<c_void>(),
                c as *mut c_void,
                kind,
                n,
                Compute::CUBLAS_COMPUTE_32F,
                Algorithm::CUBLAS_GEMM_DEFAULT,
            )
        }
        .map_err(|error| failed("cuBLAS's product", error))
    }
}

fn failed(during: &str, CublasError(status): CublasError) -> Error {
    Error::Driver {
        during: during.to_string(),
        code: format!("{status:?}"),
        text: "cuBLAS refuses".to_string(),
        fix: "run `make verify`; if memory is short, drop buffers that are no longer needed".to_string(),
    }
}
