//! The course's own kernels: which file, which entry point, which constants.
//!
//! The constants stand here once and go into the compiler as `-DNAME=value`, so a file and its launch cannot disagree.

use crate::error::{Error, Result};
use crate::launch::Source;
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
    /// The block that it is launched with.
    pub block: (u32, u32),
}

/// Every kernel of the course, in reading order. A test holds it against the folder.
pub const RUNGS: &[Rung] = &[
    Rung { path: "matmul/01_naive", kernel: "matmul", defines: &[], block: (32, 8) },
    Rung { path: "matmul/02_tiled", kernel: "matmul", defines: &[("TILE", 32)], block: (32, 32) },
    Rung { path: "vector_add/01_one_thread_each", kernel: "vector_add", defines: &[], block: (256, 1) },
    Rung { path: "vector_multiply/01_one_thread_each", kernel: "vector_multiply", defines: &[], block: (256, 1) },
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
    fn every_file_declares_its_kernel_and_begins_with_its_three_lines() {
        for rung in RUNGS {
            let text = rung.source().unwrap().text;
            assert!(signatures(&text).iter().any(|signature| signature.name == rung.kernel), "{}", rung.path);
            let heads: Vec<&str> = text.lines().take(3).filter_map(|line| line.split(':').next()).collect();
            assert_eq!(heads, ["// idea", "// changed", "// constants"], "{}", rung.path);
        }
    }
}
