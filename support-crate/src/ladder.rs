//! The course's own kernels: which file, which entry point, which constants.
//!
//! The constants stand here once and go into the compiler as `-DNAME=value`, so a file and its launch cannot disagree.

use crate::error::{Error, Result};
use crate::launch::{LaunchConfig, Source};
use std::path::PathBuf;

/// One kernel of the course.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rung {
    /// Path below `support-crate/kernels`, without `.cu`.
    pub path: &'static str,
    /// The kernel's `extern "C"` name.
    pub kernel: &'static str,
    /// Constants that the source needs.
    pub defines: &'static [(&'static str, u32)],
    /// The block that it is launched with: threads along x and y.
    pub block: (u32, u32),
    /// Elements of the result (of a reduction: of the array) that a block handles at a time, along x and y.
    pub tile: (u32, u32),
    /// So many blocks are launched for each multiprocessor, and walk over the tiles; 0: a block for each tile.
    pub blocks_per_sm: u32,
    /// What a launch leaves behind.
    pub leaves: Leaves,
    /// The compute capability that it needs, such as (9, 0).
    pub needs: (u32, u32),
    /// It uses instructions that GPUs of just that compute capability have (`wgmma` on Hopper): newer ones do not run
    /// it, and neither does the simulator.
    pub only: bool,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Blocks of a cluster: so many lie above each other in the result, and are launched together.
    pub cluster: u32,
}

/// What a launch leaves in its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    /// The result.
    Result,
    /// What was there, with the result added: it must be zero before.
    Added,
    /// One partial result a block: the kernel is launched on these again, until one block is enough.
    Partials,
}

/// What most rungs have in common: 256 threads, one element each, on any GPU.
const PLAIN: Rung = Rung {
    path: "",
    kernel: "",
    defines: &[],
    block: (256, 1),
    tile: (256, 1),
    blocks_per_sm: 0,
    leaves: Leaves::Result,
    needs: (7, 5),
    only: false,
    shared_bytes: 0,
    cluster: 1,
};

/// A reduction whose blocks leave partial sums.
const PARTIALS: Rung = Rung { kernel: "reduce", leaves: Leaves::Partials, ..PLAIN };

/// A reduction whose blocks walk over the array; the constants are the best of those tried on an H200.
const WALKING: Rung = Rung {
    defines: &[("THREADS", 512), ("VECTORS", 4), ("BLOCKS", 4)],
    block: (512, 1),
    tile: (4 * 512 * 4, 1),
    blocks_per_sm: 4,
    ..PARTIALS
};

/// What the rungs of the bf16 matmul have in common from the second on: a tile of 128 × 256 a block. A table of Rust has
/// no sums of strings, so each rung lists its constants; they are the best of those tried on an H200.
const BF16: Rung = Rung { kernel: "matmul_bf16", tile: (256, 128), needs: (8, 0), ..PLAIN };

/// Stages of 16 KiB of a and 32 KiB of b in shared memory, without padding.
const fn stages(count: u32) -> u32 {
    count * (128 + 256) * 64 * 2
}

/// Two tiles of c of 64 × 64 for each of the two warpgroups that multiply.
const C_TILES: u32 = 2 * 2 * 64 * 64 * 2;

/// From here on Hopper alone; two warpgroups multiply.
const WGMMA: Rung = Rung {
    defines: &[("TILE_M", 128), ("TILE_N", 256), ("TILE_K", 64), ("STAGES", 4)],
    needs: (9, 0),
    only: true,
    ..BF16
};

/// A third warpgroup fetches; two barriers of 8 bytes a stage.
const SPECIALISED: Rung = Rung { block: (384, 1), shared_bytes: stages(4) + 4 * 2 * 8, ..WGMMA };

/// Every kernel of the course, in reading order. A test holds it against the folder.
pub const RUNGS: &[Rung] = &[
    Rung { path: "matmul/01_naive", kernel: "matmul", block: (32, 8), tile: (32, 8), ..PLAIN },
    Rung {
        path: "matmul/02_tiled",
        kernel: "matmul",
        defines: &[("TILE", 32)],
        block: (32, 32),
        tile: (32, 32),
        ..PLAIN
    },
    Rung { path: "matmul_bf16/01_wmma", block: (32, 1), tile: (16, 16), ..BF16 },
    Rung {
        path: "matmul_bf16/02_block_tile",
        defines: &[("TILE_M", 128), ("TILE_N", 256), ("TILE_K", 32), ("WARP_M", 64), ("WARP_N", 64)],
        ..BF16
    },
    Rung {
        path: "matmul_bf16/03_async_copies",
        defines: &[("TILE_M", 128), ("TILE_N", 256), ("TILE_K", 32), ("WARP_M", 64), ("WARP_N", 64), ("STAGES", 4)],
        // Rows are 8 numbers longer than the tile; and 8 warps stage 16 × 16 sums each.
        shared_bytes: 4 * (128 * (32 + 8) + 32 * (256 + 8)) * 2 + 8 * 16 * 16 * 4,
        ..BF16
    },
    Rung {
        path: "matmul_bf16/04_swizzle",
        defines: &[("TILE_M", 128), ("TILE_N", 256), ("TILE_K", 64), ("WARP_M", 64), ("WARP_N", 64), ("STAGES", 4)],
        shared_bytes: stages(4),
        ..BF16
    },
    Rung { path: "matmul_bf16/05_wgmma", shared_bytes: stages(4), ..WGMMA },
    Rung { path: "matmul_bf16/06_tma", shared_bytes: stages(4) + 4 * 8, ..WGMMA },
    Rung { path: "matmul_bf16/07_warp_specialised", ..SPECIALISED },
    Rung {
        path: "matmul_bf16/08_persistent",
        defines: &[("TILE_M", 128), ("TILE_N", 256), ("TILE_K", 64), ("STAGES", 4), ("GROUP", 16)],
        blocks_per_sm: 1,
        ..SPECIALISED
    },
    Rung {
        path: "matmul_bf16/09_tma_store",
        defines: &[("TILE_M", 128), ("TILE_N", 256), ("TILE_K", 64), ("STAGES", 4), ("GROUP", 16), ("C_BUFFERS", 2)],
        blocks_per_sm: 1,
        shared_bytes: SPECIALISED.shared_bytes + C_TILES,
        ..SPECIALISED
    },
    Rung {
        path: "matmul_bf16/10_cluster",
        defines: &[
            ("TILE_M", 128),
            ("TILE_N", 256),
            ("TILE_K", 64),
            ("STAGES", 4),
            ("GROUP", 8),
            ("C_BUFFERS", 2),
            ("CLUSTER", 2),
        ],
        blocks_per_sm: 1,
        shared_bytes: SPECIALISED.shared_bytes + C_TILES,
        cluster: 2,
        ..SPECIALISED
    },
    Rung { path: "reduction/01_one_atomic_each", kernel: "reduce", leaves: Leaves::Added, ..PLAIN },
    Rung { path: "reduction/02_tree", defines: &[("THREADS", 256)], ..PARTIALS },
    Rung { path: "reduction/03_whole_warps", defines: &[("THREADS", 256)], ..PARTIALS },
    Rung { path: "reduction/04_no_conflicts", defines: &[("THREADS", 256)], ..PARTIALS },
    Rung { path: "reduction/05_add_while_loading", defines: &[("THREADS", 256)], tile: (512, 1), ..PARTIALS },
    Rung { path: "reduction/06_warp_shuffles", defines: &[("THREADS", 256)], tile: (512, 1), ..PARTIALS },
    Rung { path: "reduction/07_grid_stride", ..WALKING },
    Rung { path: "reduction/08_last_block", leaves: Leaves::Result, ..WALKING },
    Rung {
        path: "reduction/09_flags",
        defines: &[("THREADS", 512), ("VECTORS", 4), ("BLOCKS", 4), ("MOST_BLOCKS", 4096)],
        leaves: Leaves::Result,
        ..WALKING
    },
    Rung { path: "vector_add/01_one_thread_each", kernel: "vector_add", ..PLAIN },
    Rung {
        path: "vector_add/02_loads_in_flight",
        kernel: "vector_add",
        defines: &[("THREADS", 256), ("EACH", 4)],
        tile: (4 * 256, 1),
        ..PLAIN
    },
    Rung { path: "vector_add/03_four_at_once", kernel: "vector_add", tile: (4 * 256, 1), ..PLAIN },
    Rung { path: "vector_add/04_blocks_of_768", kernel: "vector_add", block: (768, 1), tile: (4 * 768, 1), ..PLAIN },
    Rung { path: "vector_multiply/01_one_thread_each", kernel: "vector_multiply", ..PLAIN },
];

/// The kernel of that path, such as `matmul/02_tiled`.
///
/// # Errors
/// [`Error::Invalid`] with the paths that there are.
pub fn rung(path: &str) -> Result<Rung> {
    RUNGS.iter().copied().find(|rung| rung.path == path).ok_or_else(|| Error::Invalid {
        what: format!("the course has no kernel `{path}`"),
        fix: format!("use one of: {}", RUNGS.iter().map(|rung| rung.path).collect::<Vec<_>>().join(", ")),
    })
}

impl Rung {
    /// The file with its PTX for the simulator, for machines where CUDA C cannot be compiled. `make ptx` writes it.
    pub fn ptx_file(&self) -> PathBuf {
        Source::kernels_dir().join(format!("{}.ptx", self.path))
    }

    /// The launch for so many elements along x and y, on a GPU with so many multiprocessors.
    pub fn launch(&self, columns: usize, rows: usize, multiprocessors: u32) -> LaunchConfig {
        let mut config = LaunchConfig::for_table(rows, columns, self.tile);
        config.block = (self.block.0, self.block.1, 1);
        config.shared_bytes = self.shared_bytes;
        // Clusters are whole: the last one may reach beyond the result.
        config.grid.1 = config.grid.1.next_multiple_of(self.cluster);
        if self.blocks_per_sm > 0 {
            let most = (self.blocks_per_sm * multiprocessors).max(self.cluster) / self.cluster * self.cluster;
            config.grid = (config.grid.0.saturating_mul(config.grid.1).min(most), 1, 1);
        }
        config
    }

    /// An error that names both, where a GPU of that compute capability does not run it.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub fn runs_on(&self, capability: (u32, u32)) -> Result<()> {
        let text = |(major, minor): (u32, u32)| format!("{major}.{minor}");
        match if self.only { self.needs == capability } else { self.needs <= capability } {
            true => Ok(()),
            false => Err(Error::Unsupported {
                what: format!(
                    "`{}` needs a GPU of compute capability {}{}, this one has {}",
                    self.path,
                    text(self.needs),
                    if self.only { " and no other" } else { "" },
                    text(capability)
                ),
                fix: "use an earlier rung of the same folder, or see the recorded run".to_string(),
            }),
        }
    }

    /// Its source, with its constants.
    ///
    /// # Errors
    /// [`Error::File`] when the file cannot be read.
    pub fn source(&self) -> Result<Source> {
        let source = Source::course(&format!("{}.cu", self.path))?;
        Ok(self.defines.iter().fold(source, |source, (name, value)| source.define(name, value)))
    }
}

#[cfg(test)]
mod tests;
