//! Source to PTX: by NVRTC, which needs neither a GPU nor a driver; where it is missing, the course's own kernels come
//! with their PTX.

use super::ARCHITECTURE;
use crate::cuda::compile_to_ptx;
use crate::error::{Error, Result};
use crate::ladder::{OPERATORS, RUNGS};
use crate::launch::Source;

/// The PTX that the simulator runs, with the source that its line numbers count in.
pub(crate) fn compile_or_ship(source: &Source) -> Result<(String, Source)> {
    match compile(source) {
        Ok(ptx) => Ok((ptx, source.clone())),
        Err(missing @ Error::NoCompiler { .. }) => shipped(source)?.ok_or(missing),
        Err(error) => Err(error),
    }
}

/// The PTX that NVRTC makes for the simulator.
///
/// # Errors
/// [`Error::NoCompiler`] without NVRTC, [`Error::Compile`] with the compiler's log.
pub fn compile(source: &Source) -> Result<String> {
    compile_to_ptx(source, &format!("compute_{ARCHITECTURE}")).map(|ptx| plain_names(&ptx))
}

/// The PTX of the course's kernel that says the same, with that kernel's source.
fn shipped(source: &Source) -> Result<Option<(String, Source)>> {
    let rungs = RUNGS.iter().map(|rung| (rung.source(), rung.ptx_file()));
    for (known, path) in rungs.chain(OPERATORS.iter().map(|operator| (operator.source(), operator.ptx_file()))) {
        let known = known?;
        if known.same_code(source) {
            let ptx = std::fs::read_to_string(&path).map_err(|error| Error::File {
                path,
                during: "read the kernel's PTX".to_string(),
                text: error.to_string(),
                fix: "run `git restore support-crate/kernels`".to_string(),
            })?;
            return Ok(Some((ptx, known)));
        }
    }
    Ok(None)
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
    use crate::ladder::rung;

    #[test]
    fn names_without_folders_stand_in_the_ptx() {
        let ptx = "\t.file\t1 \"/any/folder/kernel.cu\"\n\t.file\t2 \"/usr/other.h\"\n// kernel.cu\n";
        assert_eq!(plain_names(ptx), ptx.replace("/any/folder/", "").replace("/usr/", ""));
    }

    #[test]
    fn ptx_comes_with_the_courses_kernels_alone() {
        for rung in RUNGS {
            let (ptx, source) = shipped(&rung.source().unwrap()).unwrap().unwrap();
            assert!(ptx.contains(&format!(".entry {}(", rung.kernel)), "{}", rung.path);
            assert!(ptx.contains(&format!("\"{}\"", source.name)), "{}: no line numbers", rung.path);
        }
        for operator in OPERATORS {
            let (ptx, source) = shipped(&operator.source().unwrap()).unwrap().unwrap();
            let has = |kernel: &&str| ptx.contains(&format!(".entry {kernel}("));
            assert!(operator.kernels.iter().all(has), "{}", operator.path);
            assert!(ptx.contains(&format!("\"{}\"", source.name)), "{}: no line numbers", operator.path);
        }
        let tiled = rung("matmul/02_tiled").unwrap().source().unwrap();
        let other_tile = Source { defines: vec![("TILE".to_string(), "16".to_string())], ..tiled };
        let own = Source::text("extern \"C\" __global__ void k() {}");
        assert_eq!((shipped(&other_tile).unwrap(), shipped(&own).unwrap()), (None, None));
        // The kernel of a notebook says the same without the file's comments.
        let add = rung("vector_add/01_one_thread_each").unwrap().source().unwrap();
        let bare: Vec<&str> = add.text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        assert_eq!(shipped(&Source::text(&bare.join("\n"))).unwrap().unwrap().1, add);
    }
}
