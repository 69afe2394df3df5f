//! A launch as plain as can be, for compute-sanitizer to look at: its tools follow allocations of their own best, and want
//! line numbers in the machine code, which the driver puts there only when asked.

use gpulab::cuda::{CudaGpu, driver_error};
use gpulab::cudarc::driver::{DriverError, result, sys};
use gpulab::error::{Error, Result};
use gpulab::launch::{ArgType, ElementType, check_arguments, entry_points};
use std::ffi::{CString, c_void};

/// Launches a kernel `(const float *x, float *y, int n)`, both arrays of `n` elements: x counts up from 0, y was never
/// written. Gives how the kernel ended; an error is one before the launch, such as for a kernel of other parameters.
pub fn launch(gpu: &CudaGpu, ptx: &str, kernel: &str, n: u32) -> Result<std::result::Result<(), String>> {
    check(ptx, kernel)?;
    let problem = |error: DriverError| driver_error("a plain launch", error);
    gpu.context().bind_to_thread().map_err(problem)?;
    let module = load(ptx).map_err(problem)?;
    let name =
        CString::new(kernel).map_err(|_| Error::NoSuchKernel { asked: kernel.to_string(), found: Vec::new() })?;
    let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
    // SAFETY: the module stays loaded to the end of the process; the copy is of the buffer's length; the kernel takes two
    // pointers and an int, as was checked, and what it does wrong is the point: nothing here is on the device.
    let ended = unsafe {
        let kernel = result::module::get_function(module, name).map_err(problem)?;
        let mut pointers = [0; 2];
        for pointer in &mut pointers {
            *pointer = result::malloc_sync(4 * n as usize).map_err(problem)?;
        }
        result::memcpy_htod_sync(pointers[0], &x).map_err(problem)?;
        let mut count = n;
        let [mut from, mut to] = pointers;
        let mut args = [(&raw mut from).cast::<c_void>(), (&raw mut to).cast(), (&raw mut count).cast()];
        let grid = (n.div_ceil(256).max(1), 1, 1);
        result::launch_kernel(kernel, grid, (256, 1, 1), 0, std::ptr::null_mut(), &mut args).map_err(problem)?;
        result::ctx::synchronize()
    };
    Ok(ended.map_err(|error| driver_error("the wait for the kernel", error).to_string()))
}

/// Whether the kernel's parameters are two addresses and 32 bits.
fn check(ptx: &str, kernel: &str) -> Result<()> {
    let entries = entry_points(ptx);
    let Some(own) = entries.iter().find(|entry| entry.name == kernel) else {
        let found = entries.into_iter().map(|entry| entry.name).collect();
        return Err(Error::NoSuchKernel { asked: kernel.to_string(), found });
    };
    let buffer = |mutable| ArgType::Buffer { element: ElementType::F32, mutable };
    check_arguments(own, [buffer(false), buffer(true), ArgType::Scalar(ElementType::I32)].into_iter())
}

/// Loads PTX with its line numbers (`cuModuleLoadDataEx`), which compute-sanitizer prints. A text with a zero byte loads nothing.
///
/// # Errors
/// The driver's, such as for PTX of a newer version than it knows.
pub fn load(ptx: &str) -> std::result::Result<sys::CUmodule, DriverError> {
    let text = CString::new(ptx).unwrap_or_default();
    let mut options = [sys::CUjit_option::CU_JIT_GENERATE_LINE_INFO];
    let mut values = [std::ptr::without_provenance_mut::<c_void>(1)];
    let mut module = std::ptr::null_mut();
    // SAFETY: the text ends with a zero; there is one value for the one option, and the driver reads it as a number.
    let done = unsafe {
        sys::cuModuleLoadDataEx(&mut module, text.as_ptr().cast(), 1, options.as_mut_ptr(), values.as_mut_ptr())
    };
    done.result().map(|()| module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_of_other_parameters_is_refused() {
        let entry = |parameters: &str| format!(".visible .entry k({parameters}) {{ ret; }}");
        assert_eq!(check(&entry(".param .u64 a, .param .u64 b, .param .u32 n"), "k"), Ok(()));
        assert_eq!(
            check(&entry(".param .u64 .ptr .align 1 a, .param .u64 .ptr .align 1 b, .param .u32 n"), "k"),
            Ok(())
        );
        let refused = |parameters: &str| check(&entry(parameters), "k").unwrap_err();
        assert!(matches!(refused(".param .u64 a, .param .u32 n"), Error::ArgumentCount { expected: 2, given: 3, .. }));
        let wide = refused(".param .u64 a, .param .u64 b, .param .align 16 .b8 n[16]");
        assert!(matches!(wide, Error::ArgumentSize { expected: 16, given_bytes: 4, .. }), "{wide}");
        let wide = refused(".param .u64 a, .param .u64 b, .param .u64 n");
        assert!(matches!(wide, Error::ArgumentType { position: 3, .. }), "{wide}");
        let error = check(&entry(""), "other").unwrap_err();
        assert!(matches!(error, Error::NoSuchKernel { found, .. } if found == ["k"]));
    }
}
