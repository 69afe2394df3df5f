//! CUDA C to PTX through NVRTC, which needs neither a GPU nor a driver.
//!
//! PTX and not machine code: the driver finishes the compilation when the module is loaded. NVRTC's own assembler,
//! which machine code would need, can crash on malformed kernels and would take the notebook's variables with it.

use super::Library;
use crate::error::{Error, Result};
use crate::launch::Source;
use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts, sys};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What each compilation asks for. Unmarked helper functions run on the device, as a reader expects of a kernel's source.
pub(crate) const COMPILER_OPTIONS: [&str; 3] = ["--std=c++17", "-lineinfo", "-default-device"];

/// Compiles to PTX for `architecture`, such as `compute_80`, with source lines noted in the PTX.
///
/// # Errors
/// [`Error::NoCompiler`] without NVRTC, [`Error::Compile`] with the compiler's log when the source is wrong.
pub fn compile_to_ptx(source: &Source, architecture: &str) -> Result<String> {
    probe()?;
    refuse_nul(source, architecture)?;
    let mut options = vec![format!("--gpu-architecture={architecture}")];
    options.extend(COMPILER_OPTIONS.map(str::to_string));
    options.extend(source.folder.iter().map(|folder| format!("--include-path={}", folder.display())));
    options.extend(folders().iter().map(|folder| format!("--include-path={folder}")));
    options.extend(source.defines.iter().map(|(name, value)| format!("-D{name}={value}")));
    options.extend(source.options.iter().cloned());
    let options = CompileOptions { options, name: Some(source.name.clone()), ..Default::default() };
    compile_ptx_with_opts(&source.text, options).map(|ptx| ptx.to_src()).map_err(|error| match error {
        CompileError::CompileError { log, .. } => {
            let log = log.to_string_lossy().into_owned();
            Error::Compile { excerpt: excerpt(&log, source), log }
        }
        other => Error::Compile { log: format!("NVRTC failed: {other:?}"), excerpt: String::new() },
    })
}

/// cudarc panics at a NUL: the library takes C strings, which end there.
fn refuse_nul(source: &Source, architecture: &str) -> Result<()> {
    let defines = source.defines.iter().flat_map(|(name, value)| [("a define", name), ("a define", value)]);
    let own = [("the kernel's source", &source.text), ("the source's name", &source.name)];
    let mut texts = own.into_iter().chain(source.options.iter().map(|option| ("an option", option))).chain(defines);
    let found = texts.find(|(_, text)| text.contains('\0')).map(|(what, _)| what);
    match found.or(architecture.contains('\0').then_some("the architecture")) {
        None => Ok(()),
        Some(what) => Err(Error::invalid(
            format!("{what} contains a NUL character"),
            "remove it: to the compiler, text ends at the first NUL",
        )),
    }
}

/// NVRTC's version, such as (13, 0).
///
/// # Errors
/// [`Error::NoCompiler`] when the library is missing.
pub fn nvrtc_version() -> Result<(i32, i32)> {
    probe()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers are valid for the call, and the library was found.
    unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    Ok((major, minor))
}

/// The compute capabilities that NVRTC compiles for, as numbers: 75, 80, 90 …
///
/// # Errors
/// [`Error::NoCompiler`] when the library is missing.
pub fn supported_architectures() -> Result<Vec<u32>> {
    probe()?;
    let mut count = 0;
    // SAFETY: the pointer is valid for the call, and the library was found.
    unsafe { sys::nvrtcGetNumSupportedArchs(&mut count) };
    let mut list = vec![0; count.max(0) as usize];
    if !list.is_empty() {
        // SAFETY: the list has the length that the library asked for.
        unsafe { sys::nvrtcGetSupportedArchs(list.as_mut_ptr()) };
    }
    Ok(list.into_iter().map(|architecture| architecture as u32).collect())
}

fn probe() -> Result<()> {
    if Library::Nvrtc.is_present() {
        return Ok(());
    }
    let looked_for = match Library::Nvrtc.is_hidden() {
        true => "nothing: GPULAB_NVRTC=none hides it",
        false => "libnvrtc.so on LD_LIBRARY_PATH (the notebooks' kernel adds `.gpulab/lib`)",
    }
    .to_string();
    Err(Error::NoCompiler { looked_for })
}

/// The source lines that the log complains about, each with its message.
fn excerpt(log: &str, source: &Source) -> String {
    source.excerpt(log.lines().filter_map(|message| {
        // `kernel.cu(3): error: identifier "d" is undefined`
        let rest = message.strip_prefix(source.name.as_str())?.strip_prefix('(')?;
        let (number, complaint) = rest.split_once("): ")?;
        let number = number.parse().ok()?;
        // A warning may have "error" further on in its words.
        let is_error = complaint.split(':').next().is_some_and(|kind| kind.contains("error"));
        is_error.then_some((number, complaint))
    }))
}

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
    fn the_log_is_mapped_to_lines() {
        let source = Source::text("a\nb\nint c = d;\n");
        let log = "kernel.cu(3): error: identifier \"d\" is undefined\n  int c = d;\n          ^\n\n1 error detected";
        assert_eq!(excerpt(log, &source), "    3 | int c = d;\n      ^ error: identifier \"d\" is undefined\n");
        assert_eq!(excerpt("something else(7): error: x", &source), "");
        assert_eq!(
            excerpt("kernel.cu(2): warning #12-D: parsing restarts here after previous syntax error", &source),
            ""
        );
        let many = "kernel.cu(1): error: x\n".repeat(8);
        let shown = excerpt(&many, &source);
        assert!(shown.lines().count() == 11 && shown.ends_with("… and 3 more\n"), "{shown}");
    }

    #[test]
    fn a_nul_is_an_error_wherever_it_stands() {
        let kernel = Source::text("extern \"C\" __global__ void k() {}");
        let cases = [
            (Source::text("a\0b"), "compute_75", "source"),
            (kernel.clone().define("N", "1\x002"), "compute_75", "define"),
            (kernel.clone().define("N\0", 1), "compute_75", "define"),
            (kernel, "compute_75\0", "architecture"),
        ];
        for (source, architecture, what) in cases {
            let message = refuse_nul(&source, architecture).unwrap_err().to_string();
            assert!(message.contains(what) && message.contains("NUL") && message.contains("\nnext: "), "{message}");
        }
    }

    #[test]
    fn compiles_or_says_that_it_cannot() {
        let good = Source::text("extern \"C\" __global__ void k(float *x) { x[threadIdx.x] = N; }").define("N", 3);
        let bad = Source::text("extern \"C\" __global__ void k(float *x) {\n  x[threadIdx.x] = y;\n}");
        match nvrtc_version() {
            Ok(_) => {
                let ptx = compile_to_ptx(&good, "compute_75").unwrap();
                assert!(ptx.contains(".entry k") && ptx.contains(".loc"), "{ptx}");
                let message = compile_to_ptx(&bad, "compute_75").unwrap_err().to_string();
                assert!(message.contains("2 |   x[threadIdx.x] = y;") && message.contains("undefined"), "{message}");
                assert!(supported_architectures().unwrap().contains(&90));
            }
            Err(missing) => assert_eq!(compile_to_ptx(&good, "compute_75"), Err(missing)),
        }
    }

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
