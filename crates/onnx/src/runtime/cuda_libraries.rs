//! The CUDA libraries that ONNX Runtime's providers ask the loader for, found where this project's wheels and CUDA put them.

use super::library;
use super::said::loader;
use gpulab::places;
use libloading::Library;
use std::path::PathBuf;
use std::sync::Once;

/// Those that the CUDA and TensorRT providers name, dependencies first; of each the newest that is there is not right, but
/// the one of that provider's CUDA, so they are named with their versions: 13 for 1.27 and newer, 12 before.
const NAMES: [&str; 9] = [
    "libcudart.so.",
    "libnvJitLink.so.",
    "libcublasLt.so.",
    "libcublas.so.",
    "libcurand.so.",
    "libcufft.so.",
    "libcudnn.so.",
    "libnvinfer.so.",
    "libnvonnxparser.so.",
];

/// The folders in which wheels and toolkits keep libraries of NVIDIA.
pub(super) fn folders() -> Vec<PathBuf> {
    let mut found = vec![places::made().join(".gpulab/lib"), places::made().join(".gpulab/lib/onnxruntime")];
    for site in places::site_packages() {
        found.extend(places::entries(&site.join("nvidia")).into_iter().map(|package| package.join("lib")));
        found.push(site.join("tensorrt_libs"));
    }
    found.extend(places::toolkit_folders().into_iter().map(|toolkit| toolkit.join("lib64")));
    found
}

/// Loads them from there; once loaded, the loader finds them by their names, whatever the search path is.
pub(super) fn preload() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let folders = folders();
        for name in wanted() {
            let file = folders.iter().map(|folder| folder.join(&name)).find(|file| file.is_file());
            if let Some(file) = file {
                // What fails here fails again when the provider is loaded, and is said then.
                let _ = ort::util::preload_dylib(file);
            }
        }
    });
}

/// The names, with versions, that stand in the providers' own files.
fn wanted() -> Vec<String> {
    let Some(folder) = library::file().ok().and_then(|file| file.parent().map(PathBuf::from)) else {
        return Vec::new();
    };
    let files = ["cuda", "tensorrt"].map(|name| folder.join(format!("libonnxruntime_providers_{name}.so")));
    let mut found = Vec::new();
    for file in files {
        // The names of needed libraries lie in the first part of the file, and the CUDA provider has 280 MB.
        let mut bytes = Vec::new();
        let read = std::fs::File::open(file).map(|file| {
            use std::io::Read;
            file.take(8 << 20).read_to_end(&mut bytes)
        });
        if read.is_ok() {
            found.extend(named_in(&bytes));
        }
    }
    // cuDNN is asked for by name while it runs.
    found.push("libcudnn.so.9".to_string());
    let order = |name: &String| NAMES.iter().position(|stem| name.starts_with(stem));
    found.sort_by_key(order);
    found.dedup();
    found
}

/// `libcublas.so.13` and the like, between two zeros.
fn named_in(bytes: &[u8]) -> Vec<String> {
    let texts = bytes.split(|&byte| byte == 0).filter(|text| text.starts_with(b"lib") && text.len() < 40);
    let texts = texts.filter_map(|text| std::str::from_utf8(text).ok());
    let is_one =
        |text: &&str| NAMES.iter().any(|stem| text.strip_prefix(stem).is_some_and(|rest| rest.parse::<u32>().is_ok()));
    texts.filter(is_one).map(str::to_string).collect()
}

/// What the loader says when a provider's library is loaded by itself.
pub(super) fn why_not(provider: &str) -> Vec<String> {
    let file = match provider {
        "CUDAExecutionProvider" => "libonnxruntime_providers_cuda.so",
        "TensorrtExecutionProvider" => "libonnxruntime_providers_tensorrt.so",
        _ => return Vec::new(),
    };
    let Some(folder) = library::file().ok().and_then(|file| file.parent().map(PathBuf::from)) else {
        return Vec::new();
    };
    let file = folder.join(file);
    if !file.is_file() {
        return vec![format!("there is no {}: this ONNX Runtime was built for the CPU alone", file.display())];
    }
    // SAFETY: ONNX Runtime's own library, which it has just tried to load in the same way.
    match unsafe { Library::new(&file) } {
        Err(error) => vec![loader(&error)],
        Ok(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_libraries_are_read_from_a_providers_file() {
        let bytes = b"\x7fELF\0libcublasLt.so.13\0libstdc++.so.6\0libcublas.so.\0libcudnn_x.so.9\0libcurand.so.10\0";
        assert_eq!(named_in(bytes), ["libcublasLt.so.13", "libcurand.so.10"]);
    }

    #[test]
    fn a_provider_without_a_library_of_its_own_has_nothing_to_say() {
        assert!(why_not("CPUExecutionProvider").is_empty());
    }
}
