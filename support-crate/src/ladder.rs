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
        if self.blocks_per_sm > 0 {
            config.grid.0 = config.grid.0.min(self.blocks_per_sm * multiprocessors.max(1));
        }
        config
    }

    /// An error that names both, where a GPU of that compute capability is too old for it.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub fn runs_on(&self, capability: (u32, u32)) -> Result<()> {
        let text = |(major, minor): (u32, u32)| format!("{major}.{minor}");
        match self.needs <= capability {
            true => Ok(()),
            false => Err(Error::Unsupported {
                what: format!(
                    "`{}` needs a GPU of compute capability {}, this one has {}",
                    self.path,
                    text(self.needs),
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
mod tests {
    use super::*;
    use crate::launch::signatures;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_and_the_folder_agree() {
        assert_eq!(files("cu"), files("ptx"), "each kernel has its PTX: make ptx");
        let table: BTreeSet<String> = RUNGS.iter().map(|rung| rung.path.to_string()).collect();
        assert_eq!(table, files("cu"));
    }

    /// Paths of the files with this extension, without it.
    fn files(wanted: &str) -> BTreeSet<String> {
        let mut files = BTreeSet::new();
        for topic in std::fs::read_dir(Source::kernels_dir()).unwrap() {
            for file in std::fs::read_dir(topic.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                if path.extension().is_some_and(|extension| extension == wanted) {
                    let topic = path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
                    files.insert(format!("{topic}/{}", path.file_stem().unwrap().to_string_lossy()));
                }
            }
        }
        files
    }

    #[test]
    fn a_launch_covers_all_elements_and_old_gpus_are_refused() {
        let tiles = Rung { tile: (1024, 1), ..PLAIN };
        assert_eq!([0, 1, 1024, 1025].map(|n| tiles.launch(n, 1, 132).grid), [1, 1, 1, 2].map(|blocks| (blocks, 1, 1)));
        let walking = Rung { blocks_per_sm: 2, ..tiles };
        assert_eq!([1, 1 << 20].map(|n| walking.launch(n, 1, 132).grid.0), [1, 264]);
        let hopper = Rung { path: "a/b", needs: (9, 0), ..PLAIN };
        assert_eq!((hopper.runs_on((9, 0)), hopper.runs_on((10, 0))), (Ok(()), Ok(())));
        let text = hopper.runs_on((8, 9)).unwrap_err().to_string();
        assert!(text.contains("`a/b` needs a GPU of compute capability 9.0, this one has 8.9"), "{text}");
        // No thread of a full tile is idle.
        assert!(RUNGS.iter().all(|rung| rung.tile.0 * rung.tile.1 >= rung.block.0 * rung.block.1));
    }

    #[test]
    fn every_file_declares_its_kernel_and_begins_with_its_three_lines() {
        for rung in RUNGS {
            let text = rung.source().unwrap().text;
            assert!(signatures(&text).iter().any(|signature| signature.name == rung.kernel), "{}", rung.path);
            let heads: Vec<&str> = text.lines().take(3).filter_map(|line| line.split(':').next()).collect();
            assert_eq!(heads, ["// idea", "// changed", "// constants"], "{}", rung.path);
        }
    }
}
