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
mod lanes;
mod launch;
mod sectors;
mod show;
mod source;
pub mod words;

pub use warpsim::{Counters, Finding};

use find::{Found, find};
use gpulab_measure::Result;
use gpulab_measure::plot::Figure;

/// A launch that ran in the simulator, to look into. As the last expression of a cell it shows its counters and findings.
#[derive(Debug, Clone)]
#[must_use = "an inspection shows itself as the last expression of a cell, without a semicolon"]
pub struct Inspection {
    /// The kernel's name.
    pub kernel: String,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Shared memory of a block, in bytes: static and dynamic.
    pub shared_bytes: u64,
    /// Counts of the whole launch.
    pub counters: Counters,
    /// Every line of the source, in order, with its counts.
    pub lines: Vec<Line>,
    /// The warp whose accesses were kept: its block (x, y, z), and its number in that block.
    pub watched: ([u32; 3], u32),
    /// The accesses of that warp, in the order in which it made them.
    pub accesses: Vec<Access>,
    /// What is wrong with the kernel, once for each instruction.
    pub findings: Vec<Finding>,
    /// What the kernel printed.
    pub printed: String,
}

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

/// `load of a, line 7`.
fn title(found: &Found<'_>) -> String {
    let access = found.access;
    let line = access.line.map_or(String::new(), |line| format!(", line {line}"));
    let owner = if access.variable.is_empty() { String::new() } else { format!(" of {}", access.variable) };
    let kind = match access.kind {
        AccessKind::Load => "load",
        AccessKind::Store => "store",
        AccessKind::Atomic => "atomic",
    };
    format!("{kind}{owner}{line}")
}

/// `Warp 0 of block 0, the first of 64 times: sum += a[k];`
fn which(it: &Inspection, found: &Found<'_>) -> String {
    let warp = find::capital(&find::warp(it));
    let time = if found.times > 1 { format!(", time {} of {}", found.time, found.times) } else { String::new() };
    let text = if found.access.text.is_empty() { String::new() } else { format!(": {}", found.access.text) };
    format!("{warp}{time}{text}")
}

/// One line of a kernel's source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// Its number, from 1.
    pub number: u32,
    /// Its text, as it stands in the source.
    pub text: String,
    /// What the instructions of this line counted, over all warps.
    pub counters: Counters,
}

/// One memory instruction of the watched warp, with the address of each lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The source line's number, where the PTX gives it.
    pub line: Option<u32>,
    /// That line's text, without the spaces around it; empty where it is not known.
    pub text: String,
    /// Which memory.
    pub space: Space,
    /// What was done there.
    pub kind: AccessKind,
    /// Bytes a lane.
    pub bytes: u32,
    /// The parameter or variable that the addresses belong to; empty where it is not known.
    pub variable: String,
    /// Address of the variable's first byte in its memory; 0 where it is not known.
    pub base: u64,
    /// For each lane the bytes from `base` to its address; `None` where the lane took no part.
    pub offsets: [Option<u64>; 32],
    /// Different 32-byte sectors touched, for global memory.
    pub sectors: u64,
    /// Passes that the banks take, for shared memory.
    pub wavefronts: u64,
    /// Passes beyond the least, for shared memory.
    pub conflicts: u64,
}

/// A kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// Memory of the whole GPU: buffers.
    Global,
    /// Memory of a block.
    Shared,
    /// Memory of one thread.
    Local,
}

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessKind {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Reads and writes at once.
    Atomic,
}

#[cfg(test)]
mod layout_tests;
#[cfg(test)]
mod tests;
