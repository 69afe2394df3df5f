//! Source to PTX: by NVRTC, which needs neither a GPU nor a driver; where it is missing, what is packed serves.

use super::{ARCHITECTURE, shipped};
use crate::cuda::compile_to_ptx;
use crate::error::{Error, Result};
use crate::launch::Source;

/// The PTX that the simulator runs.
pub(crate) fn compile_or_ship(source: &Source) -> Result<String> {
    match compile(source) {
        Err(missing @ Error::NoCompiler { .. }) => shipped::ptx(source)?.ok_or(missing),
        compiled => compiled,
    }
}

/// The PTX that NVRTC makes for the simulator.
///
/// # Errors
/// [`Error::NoCompiler`] without NVRTC, [`Error::Compile`] with the compiler's log.
pub fn compile(source: &Source) -> Result<String> {
    let make = || compile_to_ptx(source, &format!("compute_{ARCHITECTURE}")).map(|ptx| plain_names(&ptx));
    let ptx = make()?;
    let mut first = Some(ptx.clone());
    shipped::log(source, || first.take().map_or_else(make, Ok))?;
    Ok(ptx)
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
