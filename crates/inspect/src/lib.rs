//! What the simulator saw of one launch, as plain data: counters, lines, accesses, findings. No device is needed to
//! look at it.
//!
//! | you ask | you see |
//! | --- | --- |
//! | `seen` | the counters, with Nsight Compute's names, and what is wrong |
//! | `seen.launch()` | the grid's blocks, one block's warps, one warp's threads, one thread's index |
//! | `seen.sectors("a[i]")?` | one warp's addresses in 32-byte sectors of global memory |
//! | `seen.banks("tile[k]")?` | one warp's addresses in the 32 banks of shared memory |
//! | `seen.source()` | the source as a heat map: active lanes, instructions, sectors, conflicts |
//!
//! ```ignore
//! use gpulab::prelude::*;
//! let gpu = Gpu::simulated()?;
//! let add = r#"extern "C" __global__ void add(const float *a, const float *b, float *c, int n) {
//!     int i = blockIdx.x * blockDim.x + threadIdx.x;
//!     if (i < n) c[i] = a[i] + b[i];
//! }"#;
//! let add = gpu.compile(add)?.kernel("add")?;
//! let (a, b) = (gpu.to_device(&[1.0_f32; 1000])?, gpu.to_device(&[2.0_f32; 1000])?);
//! let mut c = gpu.zeros::<f32>(1000)?;
//! let seen = add.inspect(LaunchConfig::for_elements(1000, 256), (&a, &b, &mut c, 1000))?;
//! seen.sectors("a[i]")?.save("sectors.svg")?;
//! # Ok::<(), gpulab::Error>(())
//! ```

mod banks;
mod find;
mod inspection;
mod lanes;
mod launch;
mod sectors;
mod show;
mod source;
pub mod words;
mod written;

pub use inspection::{Access, Inspection, Line};
pub use warpsim::{AccessKind, Counters, Finding, Space};
pub use written::{Written, advice};

use find::find;
use gpulab_measure::Result;
use gpulab_measure::plot::Figure;

impl Inspection {
    /// The launch as blocks, warps and threads, down to the index of one thread. Where the kernel has a finding, the
    /// picture follows the first thread that met it, else the watched warp.
    pub fn launch(&self) -> Figure {
        launch::draw(self)
    }

    /// One access of the watched warp to global memory, against 32-byte sectors.
    ///
    /// `what` is a piece of the source line, such as `"a[i]"`, or a variable's name. Behind it may stand which time is
    /// meant (`"a[k] #2"` in a loop; the first one without it), before it `load`, `store` or `atomic`.
    ///
    /// # Errors
    /// [`gpulab_measure::Error::Invalid`] when `what` fits no access or accesses of different places; it lists those to choose from.
    pub fn sectors(&self, what: &str) -> Result<Figure> {
        find(self, what, Space::Global).map(|found| sectors::draw(self, &found))
    }

    /// One access of the watched warp to shared memory, against the 32 banks; `what` is as for
    /// [`Inspection::sectors`].
    ///
    /// # Errors
    /// As for [`Inspection::sectors`].
    pub fn banks(&self, what: &str) -> Result<Figure> {
        find(self, what, Space::Shared).map(|found| banks::draw(self, &found))
    }

    /// One access of the watched warp, with its figures; `what` is as for [`Inspection::sectors`]. Global memory is
    /// looked through first, then shared memory.
    ///
    /// # Errors
    /// As for [`Inspection::sectors`].
    pub fn access(&self, what: &str) -> Result<Access> {
        let found = find(self, what, Space::Global);
        let found = found.or_else(|error| find(self, what, Space::Shared).map_err(|_| error));
        found.map(|found| found.access.clone())
    }

    /// The kernel's source as a heat map: active lanes, instructions, sectors and bank conflicts of each line.
    pub fn source(&self) -> Figure {
        source::draw(self)
    }
}

#[cfg(test)]
mod layout_tests;
#[cfg(test)]
mod tests;
