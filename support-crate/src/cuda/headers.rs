//! Where CUDA's own headers lie, which NVRTC does not bring along: `cuda_fp16.h`, `mma.h`, `cooperative_groups.h` …

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Stands in for the C library's headers, as far as kernels need them: NVRTC brings none.
const C_LIBRARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/warpsim/include");

/// The folders to search. CUDA's are of one place only, as headers of two versions do not mix.
pub(super) fn folders() -> Vec<String> {
    let roots = roots(std::env::var_os("LD_LIBRARY_PATH"), &["CUDA_PATH", "CUDA_HOME"].map(std::env::var_os));
    let mut found = of_the_first(&roots);
    found.push(C_LIBRARY.to_string());
    found
}

/// What may have a folder `include`: beside the libraries that are loaded (`.gpulab/lib` has `.gpulab/include`), then the
/// toolkit's places.
fn roots(libraries: Option<OsString>, named: &[Option<OsString>]) -> Vec<PathBuf> {
    let beside = libraries.iter().flat_map(std::env::split_paths).filter_map(|folder| Some(folder.parent()?.into()));
    let named = named.iter().flatten().map(PathBuf::from);
    beside.chain(named).chain(["/usr/local/cuda".into()]).filter(|root| root.is_absolute()).collect()
}

fn of_the_first(roots: &[PathBuf]) -> Vec<String> {
    let include = roots.iter().map(|root| root.join("include")).find(|folder| folder.join("cuda_fp16.h").is_file());
    // A toolkit from version 13 on keeps its C++ library, which cooperative_groups.h includes, one folder deeper.
    let both = |folder: PathBuf| [folder.join("cccl"), folder];
    let text = |folder: PathBuf| folder.to_str().map(str::to_string);
    include.into_iter().flat_map(both).filter(|folder: &PathBuf| Path::is_dir(folder)).filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_with_headers_is_taken_with_its_cpp_library() {
        let scratch = std::env::temp_dir().join(format!("gpulab-headers-{}", std::process::id()));
        let place = |name: &str| scratch.join(name);
        for (name, header) in [("no_cuda", "stdio.h"), ("cuda12", "cuda_fp16.h"), ("cuda13", "cuda_fp16.h")] {
            std::fs::create_dir_all(place(name).join("include")).unwrap();
            std::fs::write(place(name).join("include").join(header), "").unwrap();
        }
        std::fs::create_dir(place("cuda13").join("include/cccl")).unwrap();
        let libraries = std::env::join_paths([place("no_cuda/lib"), "relative".into(), place("cuda12/lib64")]).unwrap();
        let found = |libraries: Option<OsString>, named: &str| {
            let roots = roots(libraries, &[None, Some(place(named).into())]);
            let all: Vec<String> = of_the_first(&roots);
            // A toolkit of this machine's own is none of the test's.
            all.into_iter().filter_map(|f| Some(f.strip_prefix(scratch.to_str()?)?.to_string())).collect::<Vec<_>>()
        };
        let cases = [
            (found(Some(libraries), "cuda13"), vec!["/cuda12/include"]),
            (found(None, "cuda13"), vec!["/cuda13/include/cccl", "/cuda13/include"]),
            (found(None, "no_cuda"), vec![]),
        ];
        std::fs::remove_dir_all(&scratch).unwrap();
        for (found, expected) in cases {
            assert_eq!(found, expected);
        }
    }
}
