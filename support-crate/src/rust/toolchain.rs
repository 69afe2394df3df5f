//! The rustc of the project, and `core` and the device library as it compiled them for GPUs: once, in a folder of the set-up's.

use super::rustc::{CHECKED, OPTIONS, output};
use crate::error::{Error, Result};
use crate::places::{entries, made};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The device library's sources.
const DEVICE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/device/src");

/// rustc asks for a crate of this name beside `core`. What the real one has is for CPUs: memory and 64-bit arithmetic, which
/// the GPU's backend writes out where they are used.
const BUILTINS: &str = "#![feature(compiler_builtins)]\n#![compiler_builtins]\n#![no_std]\n";

/// A compiler with its sources, and the folder of what it has compiled.
#[derive(Debug)]
pub(super) struct Toolchain {
    sysroot: PathBuf,
    /// `…/rust/library`
    library: PathBuf,
    /// What is compiled once: another compiler has another folder.
    built: PathBuf,
}

/// `core`, with the compiler's own crate beside it.
const PARTS: [&str; 2] = ["core", "compiler_builtins"];

impl Toolchain {
    pub(super) fn find() -> Result<Toolchain> {
        Toolchain::of("rustc", &folder())
    }

    /// The toolchain of a rustc by name or path.
    pub(super) fn of(rustc: &str, built: &Path) -> Result<Toolchain> {
        let setup = "run `make setup`, which brings Rust and its sources (or `rustup component add rust-src`)";
        let mut ask = Command::new(rustc);
        // rustup goes by the folder: the project names the Rust that it is tested with.
        ask.args(["--print", "sysroot"]).current_dir(gpulab_measure::repository());
        let answer = ask.output().ok().filter(|answer| answer.status.success());
        let Some(answer) = answer else {
            return Err(Error::unsupported("kernels in Rust need rustc, and it does not run here", setup));
        };
        let sysroot = PathBuf::from(String::from_utf8_lossy(&answer.stdout).trim());
        let library = sysroot.join("lib/rustlib/src/rust/library");
        if !library.join("core/src/lib.rs").is_file() {
            let what =
                format!("the sources of Rust's `core` are missing, of which kernels are built: {}", library.display());
            return Err(Error::unsupported(what, setup));
        }
        // The compiler's own library has a sum of its version in its name.
        let driver = entries(&sysroot.join("lib"))
            .into_iter()
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_string()))
            .find(|name| name.starts_with("librustc_driver-"));
        let key = sum(&[&sysroot.to_string_lossy(), &driver.unwrap_or_default(), BUILTINS, &OPTIONS.join(" ")]);
        let toolchain = Toolchain { built: built.join(key), sysroot, library };
        toolchain.core()?;
        Ok(toolchain)
    }

    pub(super) fn rustc(&self) -> Command {
        let mut rustc = Command::new(self.sysroot.join("bin/rustc"));
        // The options that are unstable are there in the stable compiler, and Rust's own build asks for them in this way.
        rustc.env("RUSTC_BOOTSTRAP", "1").env_remove("RUST_BACKTRACE");
        rustc
    }

    /// Tells rustc where `core` is, and the device library.
    pub(super) fn externs(&self, rustc: &mut Command, device: Option<&Path>) {
        for part in PARTS {
            let path = self.built.join(format!("lib{part}.rmeta"));
            // Metadata that is missing is no part yet: core itself is being compiled.
            if path.is_file() {
                rustc.arg("--extern").arg(format!("noprelude:{part}={}", path.display()));
            }
        }
        if let Some(device) = device {
            rustc.arg("--extern").arg(format!("gpulab_device={}", device.display()));
        }
        rustc.arg("-L").arg(&self.built);
    }

    /// Compiles `core` where it was not yet.
    fn core(&self) -> Result<()> {
        if PARTS.iter().all(|part| self.built.join(format!("lib{part}.rmeta")).is_file()) {
            return Ok(());
        }
        let whole = ["-Zforce-unstable-if-unmarked", "--cap-lints=allow"];
        let core = self.library.join("core/src/lib.rs");
        self.metadata("core", &core, &whole)?;
        let builtins = self.built.join("compiler_builtins.rs");
        std::fs::write(&builtins, BUILTINS).map_err(|error| failed(&builtins, "write", &error))?;
        self.metadata("compiler_builtins", &builtins, &whole).map(drop)
    }

    /// The device library, compiled where it was not yet: with debug assertions it is another one.
    pub(super) fn device(&self, checked: bool) -> Result<PathBuf> {
        let sources = entries(Path::new(DEVICE));
        let texts = sources.iter().map(|path| {
            std::fs::read_to_string(path).map_err(Error::io(
                path,
                "read the device library",
                "get the project's files back",
            ))
        });
        let texts = texts.collect::<Result<Vec<_>>>()?;
        let key = sum(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let name = format!("gpulab_device-{key}{}", if checked { "-checked" } else { "" });
        let path = self.built.join(format!("lib{name}.rmeta"));
        if path.is_file() {
            return Ok(path);
        }
        let mut options = vec!["-Awarnings"];
        options.extend(checked.then_some(CHECKED));
        self.metadata(&name, &Path::new(DEVICE).join("lib.rs"), &options)
    }

    /// Compiles a crate to metadata alone: all of its functions, for the kernel that calls them.
    fn metadata(&self, name: &str, root: &Path, options: &[&str]) -> Result<PathBuf> {
        std::fs::create_dir_all(&self.built).map_err(|error| failed(&self.built, "make the folder", &error))?;
        let path = self.built.join(format!("lib{name}.rmeta"));
        // Another thread or process may be at the same: each writes a file of its own, and the last one's stays.
        let own = format!("lib{name}.rmeta.{}.{:?}", std::process::id(), std::thread::current().id());
        let own = self.built.join(own.replace(['(', ')'], "-"));
        let mut rustc = self.rustc();
        rustc.args(OPTIONS).args([
            "-Ctarget-cpu=sm_80",
            "-Zcross-crate-inline-threshold=always",
            "-Zalways-encode-mir",
        ]);
        rustc.arg("--crate-name").arg(name.split('-').next().unwrap_or(name)).args(options);
        self.externs(&mut rustc, None);
        rustc.arg(format!("--emit=metadata={}", own.display())).arg(root);
        let said = output(&mut rustc)?;
        if !own.is_file() || said.lines().any(|line| line.starts_with("error")) {
            let _ = std::fs::remove_file(&own);
            return Err(Error::unsupported(
                format!("this Rust does not compile `{name}` for GPUs:\n{}", said.trim()),
                "use the Rust that rust-toolchain.toml names (unset RUSTUP_TOOLCHAIN, then `make setup`)",
            ));
        }
        std::fs::rename(&own, &path).map_err(|error| failed(&path, "keep the compiled crate", &error))?;
        Ok(path)
    }
}

/// Where compiled crates are kept: with what the set-up makes, or, where that is another user's (in a container), among the
/// system's temporary files.
fn folder() -> PathBuf {
    let own = made().join(".gpulab/rust-kernels");
    let probe = own.join(format!("probe-{}-{:?}", std::process::id(), std::thread::current().id()));
    let writable = std::fs::create_dir_all(&own).and_then(|()| std::fs::write(&probe, "")).is_ok();
    let _ = std::fs::remove_file(&probe);
    if writable { own } else { std::env::temp_dir().join("gpulab-rust-kernels") }
}

/// A file of the build that cannot be written.
pub(super) fn failed(path: &Path, during: &str, error: &std::io::Error) -> Error {
    Error::file(path, during, error, "make that folder writable, with room on its disk")
}

/// A sum of texts (FNV-1a), the same in every build.
fn sum(texts: &[&str]) -> String {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A folder with a program `rustc` that says where its sysroot is, and fails at anything else.
    fn pretended(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("gpulab-rustc-{name}-{}", std::process::id()));
        std::fs::create_dir_all(root.join("bin")).unwrap();
        let script = format!(
            "#!/bin/sh\nif [ \"$1\" = --print ]; then echo {}; else echo 'error: unknown codegen option' >&2; exit 1; fi\n",
            root.display()
        );
        let rustc = root.join("bin/rustc");
        std::fs::write(&rustc, script).unwrap();
        std::fs::set_permissions(&rustc, std::fs::Permissions::from_mode(0o755)).unwrap();
        root
    }

    fn refused(rustc: &Path, root: &Path) -> String {
        let error = Toolchain::of(&rustc.display().to_string(), &root.join("built")).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        error.to_string()
    }

    #[test]
    fn what_is_missing_is_told_with_the_next_step() {
        let root = pretended("missing");
        let none = refused(Path::new("/no/such/rustc"), &root);
        assert!(none.contains("need rustc") && none.contains("\nnext: run `make setup`"), "{none}");
        let sources = refused(&root.join("bin/rustc"), &root);
        assert!(
            sources.contains("sources of Rust's `core`") && sources.contains("rustup component add rust-src"),
            "{sources}"
        );
        let core = root.join("lib/rustlib/src/rust/library/core/src");
        std::fs::create_dir_all(&core).unwrap();
        std::fs::write(core.join("lib.rs"), "").unwrap();
        let old = refused(&root.join("bin/rustc"), &root);
        std::fs::remove_dir_all(&root).unwrap();
        assert!(old.contains("unknown codegen option") && old.contains("rust-toolchain.toml"), "{old}");
    }
}
