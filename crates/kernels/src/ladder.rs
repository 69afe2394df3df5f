//! The course's own kernels: which file, which entry point, which constants.
//!
//! The constants stand here once and go into the compiler as `-DNAME=value`, so a file and its launch cannot disagree.

mod operators;
mod table;

pub(crate) use operators::compile;
pub use operators::{OPERATORS, Operator, operator};
pub use table::RUNGS;

use crate::code::{Diff, Listing};
use gpulab::error::{Error, Result};
use gpulab::gpu::{Gpu, Kernel};
use gpulab::launch::{LaunchConfig, Source};
use gpulab::measurement::Backend;
use std::path::PathBuf;

/// Where the course's kernels lie: a folder a topic. A program that has left the repository it was built in finds them
/// below the current directory.
pub fn folder() -> PathBuf {
    let (built, here) = (gpulab::repository().join("crates/kernels"), PathBuf::from("crates/kernels"));
    if !built.is_dir() && here.is_dir() { here } else { built }
}

/// One of the course's files, such as `matmul/02_tiled.cu`.
///
/// # Errors
/// [`Error::File`] when there is none of that name.
pub fn file(path: &str) -> Result<Source> {
    Source::file(folder().join(path))
}

/// One kernel of a ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rung {
    /// Path below `crates/kernels`, without `.cu`.
    pub path: &'static str,
    /// What [`Rung::compile`] takes: the CUDA C, or its twin in Rust.
    pub language: Language,
    /// The kernel's `extern "C"` name.
    pub kernel: &'static str,
    /// Constants that the source needs.
    pub defines: &'static [(&'static str, u32)],
    /// The block that it is launched with: threads along x and y.
    pub block: (u32, u32),
    /// So many elements of a row for each thread: the block is as long as the row asks for, from 32 threads to `block`.
    /// 0: it is always `block`.
    pub each_thread: u32,
    /// Elements of the result (of a reduction: of the array) that a block handles at a time, along x and y.
    pub tile: (u32, u32),
    /// So many blocks are launched for each multiprocessor, and walk over the tiles; 0: a block for each tile.
    pub blocks_per_sm: u32,
    /// Whether blocks share a tile, so that there is work for all of them even if there are fewer tiles.
    pub splits_tiles: bool,
    /// What a launch leaves behind.
    pub leaves: Leaves,
    /// The compute capability that it needs, such as (9, 0).
    pub needs: (u32, u32),
    /// It uses instructions that GPUs of just that compute capability have (`wgmma` on Hopper): newer ones do not run it.
    pub only: bool,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Blocks of a cluster: so many lie above each other in the result, and are launched together.
    pub cluster: u32,
    /// It may start before the kernel in front has ended (programmatic dependent launch).
    pub starts_early: bool,
}

/// What most rungs have in common: 256 threads, one element each, on any GPU.
pub(crate) const PLAIN: Rung = Rung {
    path: "",
    language: Language::CudaC,
    kernel: "",
    defines: &[],
    block: (256, 1),
    each_thread: 0,
    tile: (256, 1),
    blocks_per_sm: 0,
    splits_tiles: false,
    leaves: Leaves::Result,
    needs: (7, 5),
    only: false,
    shared_bytes: 0,
    cluster: 1,
    starts_early: false,
};

/// A tile as wide as the row, however long that is: a block for each row, along the grid's x.
pub const WHOLE_ROW: u32 = u32::MAX;

/// The language of a rung's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// CUDA C (on an Apple GPU its Metal twin).
    CudaC,
    /// Rust, compiled by rustc.
    Rust,
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

/// The kernel of that path, such as `matmul/02_tiled`; with `.rs` behind it the same kernel in Rust.
///
/// # Errors
/// [`Error::Invalid`] with the paths that there are.
pub fn rung(path: &str) -> Result<Rung> {
    let (plain, language) = match path.strip_suffix(".rs") {
        Some(plain) => (plain, Language::Rust),
        None => (path, Language::CudaC),
    };
    let found = RUNGS.iter().find(|rung| rung.path == plain).ok_or_else(|| Error::Invalid {
        what: format!("the course has no kernel `{plain}`"),
        fix: format!("use one of: {}", RUNGS.iter().map(|rung| rung.path).collect::<Vec<_>>().join(", ")),
    })?;
    let rung = Rung { language, ..*found };
    if language == Language::Rust {
        rung.rust_source()?;
    }
    Ok(rung)
}

impl Rung {
    /// Its name without the folder, such as `02_tiled`.
    pub fn name(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }

    /// Its idea, as its first line says it; empty when the file cannot be read.
    pub fn idea(&self) -> String {
        let text = self.source().map(|source| source.text).unwrap_or_default();
        let idea = text.lines().find_map(|line| line.strip_prefix("// idea: "));
        idea.unwrap_or_default().to_string()
    }

    /// The kernel, compiled for this GPU: of its language, or on an Apple GPU its Metal twin.
    ///
    /// # Errors
    /// As [`Rung::supported_on`] and [`Gpu::compile`].
    pub fn compile(&self, gpu: &Gpu) -> Result<Kernel> {
        self.supported_on(gpu)?;
        let source = match (gpu.backend(), self.language) {
            (Backend::Metal, _) => self.metal_source(),
            (_, Language::Rust) => self.rust_source(),
            (_, Language::CudaC) => self.source(),
        };
        gpu.compile(source?)?.kernel(self.kernel)
    }

    /// Whether it runs on this GPU; nothing is compiled yet.
    ///
    /// # Errors
    /// [`Error::Unsupported`], which says why not: a GPU that is too old for it, or no Metal twin for an Apple GPU.
    pub fn supported_on(&self, gpu: &Gpu) -> Result<()> {
        match gpu.backend() {
            Backend::Metal => self.metal_source().map(drop),
            _ => self.runs_on(gpu.compute_capability()?),
        }
    }

    /// The launch for so many elements along x and y, on a GPU with so many multiprocessors; 0 where nobody knows.
    pub fn launch(&self, columns: usize, rows: usize, multiprocessors: u32) -> LaunchConfig {
        // Metal does not tell. A Mac has 8 to 80 cores; blocks too many take turns, blocks too few leave cores idle.
        let multiprocessors = if multiprocessors == 0 { 32 } else { multiprocessors };
        let mut config = LaunchConfig::for_table(rows, columns, self.tile);
        config.block = (self.block.0, self.block.1, 1);
        if self.each_thread > 0 {
            let threads = u32::try_from(columns.div_ceil(self.each_thread as usize)).unwrap_or(u32::MAX);
            config.block.0 = threads.min(self.block.0).next_multiple_of(32).max(32);
        }
        config.shared_bytes = self.shared_bytes;
        // Clusters are whole: the last one may reach beyond the result.
        config.grid.1 = config.grid.1.next_multiple_of(self.cluster);
        if self.tile.0 == WHOLE_ROW {
            // Along y a grid has 65,535 blocks at most.
            config.grid = (config.grid.1, 1, 1);
        }
        if self.blocks_per_sm > 0 {
            let most = (self.blocks_per_sm * multiprocessors).max(self.cluster) / self.cluster * self.cluster;
            let tiles = config.grid.0.saturating_mul(config.grid.1);
            config.grid = (if self.splits_tiles { most } else { tiles.min(most) }, 1, 1);
        }
        config
    }

    /// Threads of a block, as it stands in tables: `256`, `32 × 8`, `32 to 1024`.
    pub fn threads(&self) -> String {
        match self.block {
            (most, _) if self.each_thread > 0 => format!("32 to {most}"),
            (x, 1) => x.to_string(),
            (x, y) => format!("{x} × {y}"),
        }
    }

    /// An error that names both, where a GPU of that compute capability does not run it.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub fn runs_on(&self, capability: (u32, u32)) -> Result<()> {
        let text = |(major, minor): (u32, u32)| format!("{major}.{minor}");
        match if self.only { self.needs == capability } else { self.needs <= capability } {
            true => Ok(()),
            false => Err(Error::unsupported(
                format!(
                    "`{}` needs a GPU of compute capability {}{}, this one has {}",
                    self.path,
                    text(self.needs),
                    if self.only { " and no other" } else { "" },
                    text(capability)
                ),
                "use an earlier rung of the same folder, or see the recorded run",
            )),
        }
    }

    /// Its file, to look at.
    ///
    /// # Errors
    /// [`Error::File`] when the file cannot be read.
    pub fn listing(&self) -> Result<Listing> {
        let source = self.source()?;
        Ok(Listing { name: format!("{}.cu", self.path), text: source.text, constants: source.defines })
    }

    /// What is new in it, compared with another rung.
    ///
    /// # Errors
    /// [`Error::File`] when a file cannot be read.
    pub fn diff_from(&self, before: &Rung) -> Result<Diff> {
        Ok(Diff { before: before.listing()?, after: self.listing()? })
    }

    /// Its source in CUDA C, with its constants.
    ///
    /// # Errors
    /// [`Error::File`] when the file cannot be read.
    pub fn source(&self) -> Result<Source> {
        self.source_in("cu")
    }

    /// The source of its twin for Apple GPUs: same name, same parameters, same constants, same launch.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a rung that has none, [`Error::File`] when the file cannot be read.
    pub fn metal_source(&self) -> Result<Source> {
        if !folder().join(format!("{}.metal", self.path)).is_file() {
            return Err(Error::unsupported(
                format!("`{}` has no Metal twin: it uses what Metal does not have, or is not written yet", self.path),
                "use a rung of the same folder that has a `.metal` file, or `Gpu::simulated()`",
            ));
        }
        self.source_in("metal")
    }

    /// The source of its twin in Rust: same name, same parameters, same constants, same launch.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a rung that has none, [`Error::File`] when the file cannot be read.
    pub fn rust_source(&self) -> Result<Source> {
        if !folder().join(format!("{}.rs", self.path)).is_file() {
            return Err(Error::unsupported(
                format!("`{}` has no twin in Rust", self.path),
                "use a rung of the same folder that has a `.rs` file, or its CUDA C",
            ));
        }
        self.source_in("rs")
    }

    fn source_in(&self, language: &str) -> Result<Source> {
        let source = file(&format!("{}.{language}", self.path))?;
        Ok(self.defines.iter().fold(source, |source, (name, value)| source.define(name, value)))
    }
}

#[cfg(test)]
mod tests;
