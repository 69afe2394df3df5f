//! Source to PTX: NVRTC, which needs neither a GPU nor a driver.

use super::ARCHITECTURE;
use crate::cuda::compile_to_ptx;
use crate::error::Result;
use crate::launch::Source;

/// The PTX that the simulator runs for a source.
pub(crate) fn compile(source: &Source) -> Result<String> {
    compile_to_ptx(source, &format!("compute_{ARCHITECTURE}")).map(|ptx| plain_names(&ptx, &source.name))
}

/// NVRTC puts the folder that it runs in before the source's name: `.file 1 "/home/me/kernel.cu"`. The source has no
/// folder, and messages are about its name.
fn plain_names(ptx: &str, name: &str) -> String {
    let plain = |line: &str| {
        let (start, path) = line.split_once('"').filter(|_| line.trim_start().starts_with(".file"))?;
        let (path, rest) = path.split_once('"')?;
        (path.rsplit('/').next() == Some(name)).then(|| format!("{start}\"{name}\"{rest}"))
    };
    ptx.split_inclusive('\n').map(|line| plain(line).unwrap_or_else(|| line.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_own_name_stands_in_the_ptx() {
        let ptx = "\t.file\t1 \"/home/me/kernel.cu\"\n\t.file\t2 \"/usr/other.h\"\n// kernel.cu\n";
        assert_eq!(plain_names(ptx, "kernel.cu"), ptx.replace("/home/me/", ""));
        assert_eq!(plain_names(ptx, "nel.cu"), ptx);
    }
}
