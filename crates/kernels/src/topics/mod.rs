//! What several notebooks do with the course's own kernels, topic by topic: compiled, checked, ready to time.

mod attention;
mod embedding;
mod flash_attention;
mod matmul;
mod matmul_bf16;
mod norm;
mod reduction;
mod residual_norm;
mod rope;
mod rows;
mod size;
mod softmax;
mod topic;
mod vector_add;

pub use attention::{Attention, AttentionStep, AttentionWork, StepWork, bytes_row};
pub use embedding::Embedding;
pub(crate) use flash_attention::known_width;
pub use flash_attention::{FlashAttention, WIDTHS};
pub use matmul::Matmul;
pub use matmul_bf16::MatmulBf16;
pub use norm::{EPSILON, Norm, NormInputs};
pub use reduction::Reduction;
pub use residual_norm::ResidualNorm;
pub use rope::{Angles, Rope};
pub use size::{Shape, Size};
pub use softmax::Softmax;
pub use topic::{
    Allocation, Array, Bound, Cost, HostArray, Launches, Reference, Topic, arrays_of, relative_error, spread_rows,
};
pub use vector_add::VectorAdd;

use crate::ladder::{Rung, rung};
use gpulab::error::{Error, Result};
use gpulab::gpu::{Gpu, Kernel};

/// Sizes that a new kernel of one dimension is checked at: they fill neither a warp, a block, nor a tile.
const AWKWARD: [usize; 5] = [0, 1, 31, 33, 1_000_003];

/// Kernels count elements in `int`, and look a tile or two beyond the last one.
const MOST: usize = i32::MAX as usize - (1 << 20);

/// The length as a kernel's `int n`.
fn length(n: usize) -> Result<i32> {
    match i32::try_from(n) {
        Ok(n) if n as usize <= MOST => Ok(n),
        _ => Err(Error::Invalid {
            what: format!("{n} elements: these kernels count them in `int`, up to {MOST}"),
            fix: "split the array, and launch once for each part".to_string(),
        }),
    }
}

/// Pieces of an array of `n` numbers, at most 65,536 in all: where each begins, and how long it is.
fn spread(n: usize) -> Vec<(usize, usize)> {
    const PIECE: usize = 1024;
    spread_rows(n / PIECE, 63)
        .into_iter()
        .map(|row| (row * PIECE, PIECE))
        .chain([(n / PIECE * PIECE, n % PIECE)])
        .collect()
}

/// The rung of that path with its kernel, compiled for this GPU, if it runs there.
fn compiled(gpu: &Gpu, path: &str) -> Result<(Rung, Kernel)> {
    let rung = rung(path)?;
    let kernel = rung.compile(gpu)?;
    Ok((rung, kernel))
}

/// An error where so many sets of arrays have no room.
pub(crate) fn fits(gpu: &Gpu, work: &Cost, sets: usize) -> Result<()> {
    let (asked, stats) = ((work.held as u64).saturating_mul(sets as u64), gpu.memory()?);
    match asked > stats.total {
        true => Err(Error::OutOfMemory { asked, free: stats.free, total: stats.total, reserved: 0 }),
        false => Ok(()),
    }
}

/// The error of a kernel whose result is wrong.
pub(crate) fn wrong(path: &str, what: String) -> Error {
    Error::Invalid {
        what: format!("`{path}`: {what}"),
        fix: "look for a missing bounds guard or barrier in that kernel; do not trust its times".to_string(),
    }
}

/// The first line of an error: what, without what to do. That the simulator says so, tables say themselves.
pub(crate) fn reason(error: &Error) -> String {
    let text = error.to_string();
    let what = text.lines().next().unwrap_or_default();
    what.strip_prefix("the simulator: ").unwrap_or(what).to_string()
}

/// The first NVIDIA GPU; without one it says which part of a test was skipped.
#[cfg(test)]
pub(crate) fn hardware() -> Option<Gpu> {
    let opened = Gpu::open_index(0);
    opened.map_err(|error| eprintln!("skipped: needs an NVIDIA GPU ({})", reason(&error))).ok()
}
