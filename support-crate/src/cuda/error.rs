//! What the driver's error codes mean to a reader, and what to do next.

use crate::error::Error;
use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

/// Turns a driver's code into an error that says what was going on and what to do.
pub fn driver_error(during: &str, error: DriverError) -> Error {
    let text = |bytes: Result<&std::ffi::CStr, DriverError>| {
        bytes.map_or_else(|_| "unknown".to_string(), |text| text.to_string_lossy().into_owned())
    };
    Error::Driver {
        during: during.to_string(),
        code: text(error.error_name()),
        text: text(error.error_string()),
        fix: next_step(error.0).to_string(),
    }
}

fn next_step(code: CUresult) -> &'static str {
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
            "the block needs more registers or shared memory than one multiprocessor has: use fewer threads a block"
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
