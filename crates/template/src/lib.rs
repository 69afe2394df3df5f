//! `y = a x + y` on an NVIDIA GPU, with cudarc and nothing else.

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg, sys};
use cudarc::nvrtc::compile_ptx;
use std::error::Error;
use std::sync::Arc;

/// The kernel, as text: it is compiled when the program runs, for the GPU that is there.
pub const SOURCE: &str = include_str!("../kernels/saxpy.cu");

const THREADS: u32 = 256;

/// The compiled kernel, and the stream on which it is launched.
pub struct Saxpy {
    stream: Arc<CudaStream>,
    kernel: CudaFunction,
}

impl Saxpy {
    /// Opens a GPU (0 is the first one) and compiles the kernel for it.
    pub fn new(device: usize) -> Result<Saxpy, Box<dyn Error>> {
        // SAFETY: tries to load the library, and calls nothing in it. Without this, the next line panics where there is no
        // driver.
        if !unsafe { sys::is_culib_present() } {
            return Err("NVIDIA's driver (libcuda) was not found".into());
        }
        let context = CudaContext::new(device)?;
        let stream = context.default_stream();
        let module = context.load_module(compile_ptx(SOURCE)?)?;
        let kernel = module.load_function("saxpy")?;
        Ok(Saxpy { stream, kernel })
    }

    /// Computes `y = a x + y` on the GPU.
    pub fn run(&self, a: f32, x: &[f32], y: &mut [f32]) -> Result<(), Box<dyn Error>> {
        if x.len() != y.len() {
            return Err(format!("x has {} elements, and y has {}", x.len(), y.len()).into());
        }
        // A grid without blocks is an error.
        if x.is_empty() {
            return Ok(());
        }
        let n = i32::try_from(x.len())?;
        let x_on_gpu = self.stream.clone_htod(x)?;
        let mut y_on_gpu = self.stream.clone_htod(y)?;
        let blocks = n.unsigned_abs().div_ceil(THREADS);
        let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 };
        let mut launch = self.stream.launch_builder(&self.kernel);
        launch.arg(&a).arg(&x_on_gpu).arg(&mut y_on_gpu).arg(&n);
        // SAFETY: these are the four parameters that saxpy.cu declares, in its order and of its types (float, pointer,
        // pointer, int); both arrays have n elements, and the kernel touches no other.
        unsafe { launch.launch(config) }?;
        self.stream.memcpy_dtoh(&y_on_gpu, y)?;
        // The copy has been enqueued; from here on `y` holds the result.
        self.stream.synchronize()?;
        Ok(())
    }
}

/// The same on the CPU: what the kernel is compared with.
pub fn reference(a: f32, x: &[f32], y: &[f32]) -> Vec<f32> {
    x.iter().zip(y).map(|(x, y)| a.mul_add(*x, *y)).collect()
}
