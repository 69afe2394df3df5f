//! The errors of cudarc's own calls as [`Error`], so that `?` works on them beside this crate's, and what CUDA's codes ask of
//! a reader. Rust wants such a conversion in the crate that has one of the two types.

use crate::error::Error;
use cudarc::cublas::result::CublasError;
use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;
use cudarc::nvrtc::CompileError;

/// What a call of cudarc's own reports, so that `?` works on it beside this crate's calls.
impl From<DriverError> for Error {
    fn from(error: DriverError) -> Error {
        Error::Driver {
            during: "a call of cudarc".to_string(),
            code: format!("{:?}", error.0),
            text: "`cuGetErrorString` has the driver's words".to_string(),
            fix: next_step(error.0).to_string(),
        }
    }
}

/// What `cudarc::nvrtc::compile_ptx` reports.
impl From<CompileError> for Error {
    fn from(error: CompileError) -> Error {
        let log = match &error {
            CompileError::CompileError { log, .. } => log.to_string_lossy().into_owned(),
            other => format!("{other:?}"),
        };
        Error::Compile { log, excerpt: String::new() }
    }
}

/// What a call of `cudarc::cublas` reports.
impl From<CublasError> for Error {
    fn from(error: CublasError) -> Error {
        Error::Driver {
            during: "a call of cuBLAS by cudarc".to_string(),
            code: format!("{:?}", error.0),
            text: "cuBLAS tells no more".to_string(),
            fix: "check the matrices' sizes, leading dimensions and element types against cuBLAS's documentation"
                .to_string(),
        }
    }
}

/// What to do about an error of the driver.
pub fn next_step(code: CUresult) -> &'static str {
    match code {
        // These come from a kernel that ran earlier: launches do not wait, so the call that reports is not the culprit.
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS => {
            "a kernel launched earlier touched memory outside its buffers; check its bounds guard. \
             Everything on the GPU is lost: restart the notebook's kernel (menu Kernel, Restart) and run from the first cell. \
             `CUDA_LAUNCH_BLOCKING=1` makes the error appear at the launch that causes it"
        }
        CUresult::CUDA_ERROR_MISALIGNED_ADDRESS => {
            "a kernel launched earlier read a wide type (such as float4) at an address that is no multiple of its size. \
             Everything on the GPU is lost: restart the notebook's kernel (menu Kernel, Restart) and run from the first cell"
        }
        CUresult::CUDA_ERROR_LAUNCH_FAILED | CUresult::CUDA_ERROR_ASSERT | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION => {
            "a kernel launched earlier stopped (a trap or a failed assert). Everything on the GPU is lost: \
             restart the notebook's kernel (menu Kernel, Restart) and run from the first cell"
        }
        CUresult::CUDA_ERROR_LAUNCH_TIMEOUT => {
            "the display's watchdog ended a kernel that ran too long: use a smaller problem, or a GPU without a display"
        }
        CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES => {
            "the block needs more registers or shared memory than one multiprocessor has: use fewer threads per block"
        }
        CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE => {
            "the blocks of a cooperative launch run all at the same time: launch fewer, `kernel.co_resident_blocks(config)` says \
             how many fit; nothing was lost"
        }
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
            "drop buffers that are no longer needed, or use a smaller size; nothing else was lost"
        }
        CUresult::CUDA_ERROR_INVALID_VALUE => {
            "compare what this call was given (sizes, offsets, pointers) with its documentation; nothing was lost"
        }
        CUresult::CUDA_ERROR_NO_DEVICE => {
            "the driver is here but sees no GPU: check `nvidia-smi`; in a container start it with `--gpus all`"
        }
        CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH | CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => {
            "the driver's parts are of different versions: restart the machine after a driver update"
        }
        CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE => {
            "another process holds the GPU for itself alone: end it (`nvidia-smi` lists it), then try again"
        }
        CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU | CUresult::CUDA_ERROR_INVALID_PTX => {
            "the kernel was compiled for another kind of GPU: compile it from its source with `gpu.compile`"
        }
        _ => "run `make verify`; if the GPU works there, restart the notebook's kernel and run it again",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_cudarc_pass_through_the_question_mark() {
        let driver = || -> crate::Result<()> { Err(DriverError(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS))? };
        let error = driver().unwrap_err();
        assert!(
            matches!(&error, Error::Driver { code, fix, .. } if code == "CUDA_ERROR_ILLEGAL_ADDRESS" && !fix.is_empty())
        );
        assert!(error.to_string().contains("\nnext: "), "{error}");
        let status = cudarc::cublas::sys::cublasStatus_t::CUBLAS_STATUS_INVALID_VALUE;
        let blas = || -> crate::Result<()> { Err(CublasError(status))? };
        assert!(matches!(blas(), Err(Error::Driver { .. })));
        let log = c"kernel.cu(1): error: no".to_owned();
        let nvrtc = cudarc::nvrtc::result::NvrtcError(cudarc::nvrtc::sys::nvrtcResult::NVRTC_ERROR_COMPILATION);
        let compile = || -> crate::Result<()> { Err(CompileError::CompileError { nvrtc, options: Vec::new(), log })? };
        assert!(matches!(compile(), Err(Error::Compile { log, .. }) if log == "kernel.cu(1): error: no"));
    }
}
