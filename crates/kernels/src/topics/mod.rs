//! What several notebooks do with the course's own kernels, topic by topic: compiled, checked, ready to time.

mod attention;
mod block_sparse;
mod embedding;
mod errors;
mod flash_attention;
mod flash_backward;
mod matmul;
mod matmul_bf16;
mod norm;
mod quantized;
mod quantized_gemv;
mod quantized_matmul;
mod reduction;
mod residual_norm;
mod rope;
mod rows;
mod size;
mod softmax;
mod spmm;
mod spmv;
mod topic;
mod two_four;
mod vector_add;

pub use attention::{Attention, AttentionStep, AttentionWork, StepWork, bytes_row};
pub use block_sparse::BlockSparse;
pub(crate) use block_sparse::blocks_of;
pub use embedding::Embedding;
pub(crate) use errors::wrong;
use errors::{lengths, wrong_size};
pub(crate) use flash_attention::known_width;
pub use flash_attention::{FlashAttention, WIDTHS};
pub use flash_backward::{BackwardInputs, BackwardOutputs, FlashBackward};
pub use matmul::Matmul;
pub use matmul_bf16::MatmulBf16;
pub use norm::{EPSILON, Norm, NormInputs};
pub use quantized::Codes;
pub use quantized_gemv::QuantizedGemv;
pub use quantized_matmul::QuantizedMatmul;
pub use reduction::Reduction;
pub use residual_norm::ResidualNorm;
pub use rope::Rope;
pub use size::{Shape, Size};
pub use softmax::Softmax;
pub use spmm::Spmm;
pub use spmv::Spmv;
pub use topic::{Allocation, Array, Bound, Cost, HostArray, Launches, Reference, Topic, relative_error, spread_rows};
use topic::{check, check_at};
pub(crate) use topic::{fits, on_gpu, poisoned};
pub use two_four::TwoFourProduct;
pub(crate) use two_four::two_four_of;
pub use vector_add::VectorAdd;

use crate::ladder::{Rung, rung};
use crate::tiles::TileProgram;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Args, Gpu, Kernel, Module};
use gpulab::launch::{LaunchAttributes, Source, signatures};

/// Sizes that a new kernel of one dimension is checked at: they fill neither a warp, a block, nor a tile.
const AWKWARD: [usize; 5] = [0, 1, 31, 33, 1_000_003];

/// Kernels count elements in `int`, and look a tile or two beyond the last one.
const MOST: usize = i32::MAX as usize - (1 << 20);

/// The length as a kernel's `int n`.
fn length(n: usize) -> Result<i32> {
    match i32::try_from(n) {
        Ok(n) if n as usize <= MOST => Ok(n),
        _ => Err(Error::invalid(
            format!("{n} elements: these kernels count them in `int`, up to {MOST}"),
            "split the array, and launch once for each part",
        )),
    }
}

/// Whether the TMA takes rows of so many bf16: they begin at multiples of 16 bytes, and there is something in them.
fn tma_takes(columns: usize) -> bool {
    columns > 0 && columns.is_multiple_of(8)
}

/// A rung, compiled for one GPU.
#[derive(Debug, Clone)]
struct Loaded {
    gpu: Gpu,
    rung: Rung,
    kernel: Kernel,
    /// How many of its parameters are tensor maps, by which the TMA is told of an array.
    tensor_maps: usize,
    /// What it was compiled with.
    constants: Vec<(String, u32)>,
}

impl Loaded {
    /// The rung of that path, if this GPU runs it.
    fn new(gpu: &Gpu, path: &str) -> Result<Loaded> {
        Loaded::of(gpu, rung(path)?)
    }

    fn of(gpu: &Gpu, rung: Rung) -> Result<Loaded> {
        let (tensor_maps, constants) = (tensor_maps(&rung.source()?, rung.kernel), changed(rung.defines, &[]));
        Ok(Loaded { gpu: gpu.clone(), rung, kernel: rung.compile(gpu)?, tensor_maps, constants })
    }

    /// The kernel of that name in another source, with these constants, launched as the rung is.
    fn of_source(gpu: &Gpu, rung: Rung, file: Source, constants: &[(String, u32)]) -> Result<Loaded> {
        rung.supported_on(gpu)?;
        let tensor_maps = tensor_maps(&file, rung.kernel);
        let source = constants.iter().fold(file, |source, (name, value)| source.define(name, value));
        let kernel = gpu.compile(source)?.kernel(rung.kernel)?;
        Ok(Loaded { gpu: gpu.clone(), rung, kernel, tensor_maps, constants: constants.to_vec() })
    }

    /// A program on tiles, from the module that was made of its source.
    fn on_tiles(gpu: &Gpu, program: &TileProgram, module: &Module) -> Result<Loaded> {
        let rung = program.rung();
        rung.supported_on(gpu)?;
        let kernel = module.kernel(program.name)?;
        let tensor_maps =
            kernel.parameters().iter().filter(|parameter| parameter.layout.is_some_and(|it| it.bytes == 128)).count();
        Ok(Loaded { gpu: gpu.clone(), rung, kernel, tensor_maps, constants: changed(&program.constants, &[]) })
    }

    /// The value of a constant that it was compiled with; 0 for one that it has not.
    fn constant(&self, name: &str) -> u32 {
        self.constants.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value)
    }

    /// The rung in CUDA C with these constants in place of its own.
    fn with_constants(gpu: &Gpu, rung: Rung, constants: &[(String, u32)]) -> Result<Loaded> {
        Loaded::of_source(gpu, rung, Rung { defines: &[], ..rung }.source()?, constants)
    }

    /// One launch for a result of so many columns and rows; none where there is nothing to compute, as a grid has at
    /// least one block.
    fn launch<'a>(&self, launches: &mut Launches, columns: usize, rows: usize, args: impl Args<'a>) -> Result<()> {
        if columns == 0 || rows == 0 {
            return Ok(());
        }
        let config = self.rung.launch(columns, rows, self.gpu.multiprocessors());
        let early = self.rung.starts_early;
        let attributes = LaunchAttributes { programmatic_stream_serialization: early, ..LaunchAttributes::NONE };
        launches.launch_with(&self.kernel, config, attributes, args)
    }
}

/// How many parameters of a kernel are tensor maps.
fn tensor_maps(source: &Source, kernel: &str) -> usize {
    let declared = signatures(&source.text).into_iter().find(|it| it.name == kernel);
    let parameters = declared.map_or_else(Vec::new, |declared| declared.parameters);
    parameters.iter().filter(|parameter| parameter.text.contains("TensorMap")).count()
}

/// The constants of a rung, some of them changed.
fn changed(defines: &[(&str, u32)], changes: &[(&str, u32)]) -> Vec<(String, u32)> {
    let value =
        |name: &str, own: u32| changes.iter().find(|(other, _)| *other == name).map_or(own, |(_, value)| *value);
    defines.iter().map(|&(name, own)| (name.to_string(), value(name, own))).collect()
}

/// The first line of an error: what, without what to do. That the simulator says so, tables say themselves.
pub(crate) fn reason(error: &Error) -> String {
    let text = error.to_string();
    let what = text.lines().next().unwrap_or_default();
    what.strip_prefix("the simulator: ").unwrap_or(what).to_string()
}

/// The first NVIDIA GPU, for tests that need one.
#[cfg(test)]
pub(crate) fn hardware() -> Gpu {
    Gpu::open_index(0).expect("needs an NVIDIA GPU")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ladder;
    use gpulab::bench::Bench;

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn every_rung_is_checked_and_timed_on_a_gpu() {
        let gpu = hardware();
        for &ladder in Ladder::ALL {
            let (two, three) =
                ([Size::Two(33, 1000), Size::Two(33, 1024)], [(33, 65, 64), (33, 65, 128)].map(Size::from));
            let sizes = [&[Size::One(33)][..], &two, &three].concat();
            let size = sizes.into_iter().find(|&size| ladder.size(size).is_ok_and(|taken| taken == size)).unwrap();
            for rung in ladder.rungs() {
                if let Err(error) = rung.supported_on(&gpu) {
                    eprintln!("skipped: {error}");
                    continue;
                }
                let topic = ladder.open(&gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
                assert!(topic.time(size, &Bench::default().samples(5)).unwrap().median > 0.0, "{}", rung.path);
            }
        }
    }
}
