//! Where libraries lie: this project's own folders first, then the system's.

use crate::command::output_of;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder of what set-up makes: the project's, or, in a container, the one that GPULAB_HOME names.
pub fn made() -> PathBuf {
    let named = std::env::var_os("GPULAB_HOME").filter(|name| !name.is_empty());
    named.map_or_else(gpulab_measure::repository, PathBuf::from)
}

/// `site-packages` of the project's virtual environment, and of the one that is active.
pub fn site_packages() -> Vec<PathBuf> {
    let active = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    let mut found = Vec::new();
    for environment in [Some(made().join(".venv")), active].into_iter().flatten() {
        for python in entries(&environment.join("lib")) {
            let packages = python.join("site-packages");
            if packages.is_dir() && !found.contains(&packages) {
                found.push(packages);
            }
        }
    }
    found
}

/// The paths in a folder, sorted; none when it cannot be read.
pub fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// The first library in these folders whose file name starts with `stem` (`libcudnn.so`, which `libcudnn.so.9` does).
pub fn library_in(folders: &[PathBuf], stem: &str) -> Option<PathBuf> {
    let fits = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // What follows the stem is a version, so that `libcudnn.so` does not find `libcudnn.so_old`.
        name.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    folders.iter().flat_map(|folder| entries(folder)).find(fits)
}

/// The folders that the loader is told to search, then the usual ones of CUDA.
pub fn loader_folders() -> Vec<PathBuf> {
    let variable = if cfg!(target_os = "macos") { "DYLD_LIBRARY_PATH" } else { "LD_LIBRARY_PATH" };
    let mut folders: Vec<PathBuf> =
        std::env::var_os(variable).iter().flat_map(std::env::split_paths).filter(|path| path.is_absolute()).collect();
    folders.extend(toolkit_folders().into_iter().map(|toolkit| toolkit.join("lib64")));
    folders
}

/// Where a CUDA toolkit may be.
pub fn toolkit_folders() -> Vec<PathBuf> {
    let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    named.chain([PathBuf::from("/usr/local/cuda"), PathBuf::from("/opt/cuda")]).collect()
}

/// The program on the search path, in a toolkit, or in the folders of NVIDIA's own installers, newest first.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    for toolkit in toolkit_folders() {
        folders.extend([toolkit.join("bin"), toolkit.join("compute-sanitizer")]);
    }
    for suite in ["nsight-compute", "nsight-systems"] {
        for version in entries(&PathBuf::from("/opt/nvidia").join(suite)).into_iter().rev() {
            folders.extend([version.join("bin"), version]);
        }
    }
    folders.into_iter().map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// What the system's loader knows of `stem`.
pub fn from_ldconfig(stem: &str) -> Option<PathBuf> {
    // Not on everybody's PATH.
    let asked = ["ldconfig", "/sbin/ldconfig"].into_iter();
    let text = asked.filter_map(|program| output_of(program, &["-p"], Duration::from_secs(5)).ok()).next()?;
    parse_ldconfig(&text, stem)
}

fn parse_ldconfig(text: &str, stem: &str) -> Option<PathBuf> {
    let line = text.lines().find(|line| {
        let name = line.split_whitespace().next().unwrap_or_default();
        name.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })?;
    line.split_once("=> ").map(|(_, path)| PathBuf::from(path.trim()))
}

/// The version in a library's file name, links followed: `libonnxruntime.so.1.31.1` → `1.31.1`.
pub fn version_in_name(library: &Path) -> Option<String> {
    let real = library.canonicalize().unwrap_or_else(|_| library.to_path_buf());
    let name = real.file_name()?.to_str()?.to_string();
    let version = name.split_once(".so.").map(|(_, version)| version.to_string());
    // A Mac's libraries carry it before the ending: libonnxruntime.1.31.1.dylib.
    version.or_else(|| Some(name.strip_suffix(".dylib")?.split_once('.')?.1.to_string()))
}

/// The version of an installed Python package whose name starts so, from its `….dist-info` folder.
pub fn wheel_version(site_packages: &Path, package: &str) -> Option<String> {
    entries(site_packages).iter().find_map(|path| {
        let name = path.file_name()?.to_str()?.strip_suffix(".dist-info")?;
        let (name, version) = name.rsplit_once('-')?;
        name.starts_with(package).then(|| version.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_list_is_read() {
        let text = "2 libs found in cache\n\tlibcudnn_ops.so.9 (libc6,x86-64) => /usr/lib/libcudnn_ops.so.9\n\
                    \tlibcudnn.so.9 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcudnn.so.9\n";
        let found = parse_ldconfig(text, "libcudnn.so");
        assert_eq!(found, Some(PathBuf::from("/usr/lib/x86_64-linux-gnu/libcudnn.so.9")));
        assert_eq!(parse_ldconfig(text, "libonnxruntime.so"), None);
    }

    #[test]
    fn versions_are_in_names() {
        let version = |name: &str| version_in_name(Path::new(name));
        assert_eq!(version("/no/such/libonnxruntime.so.1.31.1").as_deref(), Some("1.31.1"));
        assert_eq!(version("/no/such/libonnxruntime.1.31.1.dylib").as_deref(), Some("1.31.1"));
        assert_eq!(version("/no/such/libcudnn.so"), None);
    }

    #[test]
    fn libraries_and_wheels_are_found_in_folders() {
        let folder = std::env::temp_dir().join(format!("gpulab-places-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("onnxruntime_gpu-1.31.1.dist-info")).unwrap();
        for name in ["libcudnn.so_old", "libcudnn_ops.so.9", "libcudnn.so.9"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let found = library_in(&[PathBuf::from("/no/such"), folder.clone()], "libcudnn.so");
        let version = wheel_version(&folder, "onnxruntime");
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, Some(folder.join("libcudnn.so.9")));
        assert_eq!(version.as_deref(), Some("1.31.1"));
    }
}
