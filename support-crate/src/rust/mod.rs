//! Kernels in Rust: text with `core` and the crate [`gpulab_device`](../../../crates/device) to PTX, by the rustc that is
//! there anyway. Neither a GPU nor a toolkit is needed, so it works on Macs, too.
//!
//! `core` for GPUs is compiled once, from the sources that the set-up brings, and without code: of every function the
//! compiler's intermediate form (MIR) is kept (`-Zcross-crate-inline-threshold=always`), so a kernel is compiled together
//! with just the functions that it calls. Nothing is left to link, and a changed kernel takes a tenth of a second.
//!
//! By hand it is this, with `RUSTC_BOOTSTRAP=1` for the options that are unstable:
//! ```text
//! rustc --crate-type lib --edition 2024 --target nvptx64-nvidia-cuda -Ctarget-cpu=sm_90 -Copt-level=3 \
//!     -Zunstable-options -Cpanic=immediate-abort -Zmir-enable-passes=-JumpThreading --emit asm=kernel.ptx kernel.rs
//! ```

mod lines;
mod rustc;
mod toolchain;

use crate::error::{Error, Result};
use crate::launch::{Source, entry_points, rust_signatures};
use rustc::{CHECKED, OPTIONS, output};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use toolchain::{Toolchain, failed};

/// What a kernel's text begins with, as attributes that take no line of it.
const ATTRIBUTES: [&str; 2] = ["no_std", "feature(abi_ptx, asm_experimental_arch, stdarch_nvptx, core_intrinsics)"];

/// The oldest compute capability that rustc will go on compiling for.
const OLDEST: u32 = 70;

/// What the pinned rustc compiles for (`rustc --print target-cpus --target nvptx64-nvidia-cuda`).
const KNOWN: [u32; 11] = [70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 120];

/// Functions that the driver (and the simulator) bring.
const BROUGHT: [&str; 4] = ["vprintf", "malloc", "free", "__assertfail"];

impl Source {
    /// A kernel in Rust, written in the notebook.
    ///
    /// It has `core` and [`gpulab_device`](../../../crates/device), no `std`. A kernel is a function with the calling
    /// convention `ptx-kernel` and a name that is not mangled. [`Source::define`] becomes a `const`: whole numbers are
    /// `usize`, numbers with a point `f32`.
    ///
    /// ```
    /// use gpulab::prelude::*;
    /// # if let Some(missing) = gpulab::rust::missing() { println!("{missing}"); return Ok(()); }
    /// let double = r#"
    /// use gpulab_device::*;
    ///
    /// #[unsafe(no_mangle)]
    /// pub unsafe extern "ptx-kernel" fn double(x: *mut f32, n: u32) {
    ///     // SAFETY: the launch passes a buffer of n elements, and no thread but this one touches element i.
    ///     let mut x = unsafe { DisjointSlice::new(x, n as usize) };
    ///     if let Some(x) = x.own(index_1d()) {
    ///         *x *= 2.0;
    ///     }
    /// }"#;
    /// let gpu = Gpu::simulated()?;
    /// let double = gpu.compile(Source::rust(double))?.kernel("double")?;
    /// let mut x = gpu.to_device(&[21.0_f32; 1000])?;
    /// double.launch(LaunchConfig::for_elements(1000, 256), (&mut x, 1000_u32))?;
    /// assert_eq!(x.to_host()?, [42.0; 1000]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn rust(text: &str) -> Source {
        Source { name: "kernel.rs".to_string(), ..Source::text(text) }
    }

    /// The same source with further items below it, such as those of [`host_and_device!`](crate::host_and_device): no line
    /// moves.
    pub fn with_items(mut self, items: &str) -> Source {
        self.text = format!("{}\n{items}", self.text.trim_end());
        self
    }

    /// The same kernel in Rust with debug assertions: an index past the end of a slice of `gpulab_device`, an addition that
    /// overflows and a failed `debug_assert!` stop it, as they stop a debug build on the CPU.
    pub fn checked(self) -> Source {
        self.option(CHECKED)
    }

    /// Whether the text is Rust: the name of its file says so.
    pub fn is_rust(&self) -> bool {
        self.name.ends_with(".rs")
    }
}

/// Structs and constants that host and kernel share, written once. They become items of the module that this stands in, and
/// their text the constant `SOURCE`, for [`Source::with_items`](crate::launch::Source::with_items). A struct can be passed to
/// a kernel by value, as with [`kernel_param!`](crate::kernel_param), and so has to be `repr(C)` and without padding.
///
/// ```
/// use gpulab::prelude::*;
/// # if let Some(missing) = gpulab::rust::missing() { println!("{missing}"); return Ok(()); }
/// mod both {
///     gpulab::host_and_device! {
///         pub const SIDE: usize = 8;
///
///         #[repr(C)]
///         #[derive(Clone, Copy)]
///         pub struct Line { pub slope: f32, pub offset: f32 }
///     }
/// }
/// let text = r#"
/// use gpulab_device::*;
///
/// #[unsafe(no_mangle)]
/// pub unsafe extern "ptx-kernel" fn points(line: Line, y: *mut f32) {
///     // SAFETY: the launch has one dimension and passes SIDE elements.
///     let mut y = unsafe { DisjointSlice::new(y, SIDE) };
///     let i = index_1d();
///     if let Some(y) = y.own(i) {
///         *y = line.slope * i.get() as f32 + line.offset;
///     }
/// }"#;
/// let gpu = Gpu::simulated()?;
/// let points = gpu.compile(Source::rust(text).with_items(both::SOURCE))?.kernel("points")?;
/// let mut y = gpu.zeros::<f32>(both::SIDE)?;
/// points.launch(LaunchConfig::new(1, 32), (both::Line { slope: 2.0, offset: 1.0 }, &mut y))?;
/// assert_eq!(y.to_host()?, [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0]);
/// # Ok::<(), Error>(())
/// ```
/// Without `repr(C)` Rust may order the fields as it likes: that does not compile where the order differs.
/// ```compile_fail
/// mod both {
///     gpulab::host_and_device! {
///         #[derive(Clone, Copy)]
///         pub struct Mixed { pub small: [u8; 4], pub large: f64, pub last: [u8; 4] }
///     }
/// }
/// ```
#[macro_export]
macro_rules! host_and_device {
    (@each) => {};
    (@each $(#[$mark:meta])* pub struct $name:ident { $(pub $field:ident: $type:ty),* $(,)? } $($rest:tt)*) => {
        $(#[$mark])*
        pub struct $name { $(pub $field: $type),* }
        $crate::kernel_param!($name { $($field: $type),* });
        $crate::host_and_device!(@each $($rest)*);
    };
    (@each $item:item $($rest:tt)*) => {
        $item
        $crate::host_and_device!(@each $($rest)*);
    };
    ($($items:tt)*) => {
        /// The text of these items, for a kernel.
        pub const SOURCE: &str = stringify!($($items)*);
        $crate::host_and_device!(@each $($items)*);
    };
}

/// Compiles for a compute capability, such as 90, with the lines of the kernel's text noted in the PTX. A capability that
/// rustc does not know gets the newest before it: the driver compiles its PTX for the newer GPU.
///
/// # Errors
/// [`Error::Compile`] with what rustc says; [`Error::Unsupported`] without rustc or the sources of `core`, and for GPUs that
/// rustc does not compile for; [`Error::File`] where the build's folder cannot be written.
pub fn compile_to_ptx(source: &Source, capability: u32) -> Result<String> {
    if capability < OLDEST {
        return Err(Error::unsupported(
            format!(
                "rustc compiles kernels for compute capability 7.0 and newer, and this GPU has {}.{}",
                capability / 10,
                capability % 10
            ),
            "use `Gpu::simulated()?`, or CUDA C, which NVRTC 12 still compiles for this GPU",
        ));
    }
    let known = KNOWN.iter().rev().find(|&&known| known <= capability).unwrap_or(&OLDEST);
    // From Hopper on an `a` brings the instructions that this GPU alone has; the simulator is one of 9.0.
    let own = if known == &capability && capability >= 90 { "a" } else { "" };
    compile_with(&Toolchain::find()?, source, &format!("sm_{known}{own}"))
}

/// Why no kernel in Rust can be compiled here; `None` where it can.
pub fn missing() -> Option<Error> {
    Toolchain::find().err()
}

fn compile_with(toolchain: &Toolchain, source: &Source, cpu: &str) -> Result<String> {
    let device = toolchain.device(source.options.iter().any(|option| option == CHECKED))?;
    let scratch = Scratch::new()?;
    let name = source.name.rsplit('/').next().unwrap_or("kernel.rs");
    scratch.write(name, &with_constants(source)?)?;
    let mut rustc = toolchain.rustc();
    rustc.current_dir(&scratch.0).args(OPTIONS).arg(format!("-Ctarget-cpu={cpu}"));
    for attribute in ATTRIBUTES {
        rustc.arg(format!("-Zcrate-attr={attribute}"));
    }
    // Warnings have nowhere to go when the kernel compiles. A type whose layout Rust may choose is no argument.
    rustc.args(["--crate-name=kernel", "-Awarnings", "-Dimproper_ctypes_definitions", "-Cdebuginfo=1"]);
    toolchain.externs(&mut rustc, Some(&device));
    rustc.args(&source.options).args(["--emit=asm=kernel.ptx", name]);
    let said = output(&mut rustc)?;
    let Ok(ptx) = std::fs::read_to_string(scratch.0.join("kernel.ptx")) else { return Err(refused(&said)) };
    let ptx = with_aligned_maps(with_launch_bounds(lines::of_kernel(&ptx, name)));
    look_through(&ptx)?;
    no_reference_for_all(source)?;
    Ok(ptx)
}

/// The text with its constants below, so that no line moves.
fn with_constants(source: &Source) -> Result<String> {
    let mut text = source.text.clone();
    for (name, value) in &source.defines {
        let kind = match value.as_str() {
            "true" | "false" => "bool",
            _ if value.parse::<u64>().is_ok() => "usize",
            _ if value.parse::<i64>().is_ok() => "isize",
            _ if value.parse::<f32>().is_ok() => "f32",
            _ => {
                return Err(Error::invalid(
                    format!("the constant {name} of a kernel in Rust is `{value}`"),
                    "give a whole number, a number with a point, `true` or `false`; write other constants into the text",
                ));
            }
        };
        text += &format!("\npub const {name}: {kind} = {value};");
    }
    Ok(text)
}

/// What rustc says, without its sums at the end.
fn refused(said: &str) -> Error {
    let sums = |line: &&str| !(line.starts_with("error: aborting") || line.starts_with("Some errors have detailed"));
    let mut log = said.lines().filter(sums).collect::<Vec<_>>().join("\n").trim().to_string();
    if log.contains("LLVM ERROR: unsupported library call") {
        log += "\na GPU has no library for this operation: a float as a 128-bit integer is one that it lacks";
    }
    Error::Compile { log, excerpt: String::new() }
}

/// What `launch_bounds!` of the device library asks for, as directives of the kernels: `// launch_bounds name threads blocks`.
fn with_launch_bounds(mut ptx: String) -> String {
    let marks = ptx.lines().filter_map(|line| line.trim().strip_prefix("// launch_bounds "));
    for mark in marks.map(str::to_string).collect::<Vec<_>>() {
        let [name, threads, blocks] = mark.split(' ').collect::<Vec<_>>()[..] else { continue };
        let Some(entry) = ptx.find(&format!(".entry {name}(")) else { continue };
        let Some(body) = ptx[entry..].find("\n{") else { continue };
        let at_least = if blocks == "0" { String::new() } else { format!("\n.minnctapersm {blocks}") };
        ptx.insert_str(entry + body, &format!("\n.maxntid {threads}, 1, 1{at_least}"));
    }
    ptx
}

/// Parameters that `tensor_map!` of the device library names, at multiples of 64 bytes, as the TMA asks: `// tensor_map parameter`.
fn with_aligned_maps(mut ptx: String) -> String {
    let marks = ptx.lines().filter_map(|line| line.split_once("// tensor_map "));
    for name in marks.map(|(_, name)| name.trim().to_string()).collect::<BTreeSet<_>>() {
        ptx = ptx.replace(&format!(".align 16 .b8 {name}[128]"), &format!(".align 64 .b8 {name}[128]"));
    }
    ptx
}

/// What compiles and cannot run.
fn look_through(ptx: &str) -> Result<()> {
    let wrong = |log: String| Err(Error::Compile { log: format!("error: {log}"), excerpt: String::new() });
    let entries = entry_points(ptx);
    if entries.is_empty() {
        return wrong(
            "this text has no kernel; write `#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn name(…)`".into(),
        );
    }
    if let Some(entry) = entries.iter().find(|entry| entry.name.starts_with("_R") || entry.name.starts_with("_ZN")) {
        return wrong(format!("a kernel's name is mangled (`{}`); put `#[unsafe(no_mangle)]` above it", entry.name));
    }
    let mut declared = ptx.lines().filter(|line| line.starts_with(".extern") && !line.contains(".shared"));
    let own = |line: &&str| !BROUGHT.iter().any(|name| line.split_whitespace().any(|word| word == *name));
    match declared.find(own) {
        Some(line) => wrong(format!(
            "the kernel needs something that was not compiled with it, which a GPU cannot look for: `{line}`"
        )),
        None => Ok(()),
    }
}

/// A `&mut` as a kernel's parameter compiles, and is the same reference in all threads: a race without a word of `unsafe`. It is
/// found where it is written out; behind another name for the type it is not.
fn no_reference_for_all(source: &Source) -> Result<()> {
    let signatures = rust_signatures(&source.text);
    let mut parameters = signatures.iter().flat_map(|kernel| kernel.parameters.iter().map(move |own| (kernel, own)));
    // `x: &mut f32`, also with a lifetime.
    let mutable = |text: &str| {
        let kind = text.split_once(':').map_or("", |(_, kind)| kind.trim_start());
        kind.strip_prefix('&').is_some_and(|rest| rest.split_whitespace().take(2).any(|word| word == "mut"))
    };
    let Some((kernel, own)) = parameters.find(|(_, own)| mutable(&own.text)) else { return Ok(()) };
    let log = format!(
        "error: `{}` of the kernel `{}` is the same `&mut` in all threads, so each of them may write what another one reads\n\
         take a pointer (`*mut`), and make a `DisjointSlice` or an `AtomicSlice` of it",
        own.text, kernel.name
    );
    Err(Error::Compile { log, excerpt: String::new() })
}

/// A folder that is gone when the compilation has ended.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch> {
        let unique = || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            std::env::temp_dir().join(format!("gpulab-rust-{}-{}", std::process::id(), now.as_nanos()))
        };
        // `create_dir` fails where there is one: two threads never share a folder.
        let mut made = unique();
        while let Err(error) = std::fs::create_dir(&made) {
            if error.kind() != std::io::ErrorKind::AlreadyExists {
                return Err(failed(&made, "make the folder", &error));
            }
            made = unique();
        }
        Ok(Scratch(made))
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path: &Path = &self.0.join(name);
        std::fs::write(path, text).map_err(|error| failed(path, "write the kernel", &error))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
