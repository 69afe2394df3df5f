//! Source to PTX: by NVRTC, which needs neither a GPU nor a driver; where it is missing, the course's own kernels come
//! with their PTX.

use super::ARCHITECTURE;
use crate::cuda::compile_to_ptx;
use crate::error::Result;
use crate::launch::Source;

/// The PTX that the simulator runs, with the source that its line numbers count in.
pub(crate) fn compile_or_ship(source: &Source) -> Result<(String, Source)> {
    compile(source).map(|ptx| (ptx, source.clone()))
}

/// The PTX that NVRTC makes for the simulator.
///
/// # Errors
/// [`Error::NoCompiler`] without NVRTC, [`Error::Compile`] with the compiler's log.
pub fn compile(source: &Source) -> Result<String> {
    compile_to_ptx(source, &format!("compute_{ARCHITECTURE}")).map(|ptx| plain_names(&ptx))
}

/// NVRTC puts folders of this machine before the names of the source and its headers: `.file 1 "/any/folder/kernel.cu"`.
/// Messages are about names, and shipped PTX is the same wherever it was made.
fn plain_names(ptx: &str) -> String {
    let plain = |line: &str| {
        let (start, path) = line.split_once('"').filter(|_| line.trim_start().starts_with(".file"))?;
        let (path, rest) = path.split_once('"')?;
        Some(format!("{start}\"{}\"{rest}", path.rsplit('/').next()?))
    };
    ptx.split_inclusive('\n').map(|line| plain(line).unwrap_or_else(|| line.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_folders_stand_in_the_ptx() {
        let ptx = "\t.file\t1 \"/any/folder/kernel.cu\"\n\t.file\t2 \"/usr/other.h\"\n// kernel.cu\n";
        assert_eq!(plain_names(ptx), ptx.replace("/any/folder/", "").replace("/usr/", ""));
    }
}
