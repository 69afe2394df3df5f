//! One error type for all crates of the course.
//!
//! `?` in a notebook cell prints the error's [`Display`](std::fmt::Display), so that text *is* the interface:
//! the first line says what happened, and the last line, `next: …`, says what to do.

#[cfg(feature = "cudarc")]
mod cuda;

#[cfg(feature = "cudarc")]
pub use cuda::next_step;

use std::fmt;
use std::path::{Path, PathBuf};

/// What every fallible function of this crate returns. The second parameter is there for code that names its own error.
///
/// # Examples
/// ```
/// use gpulab_measure::{Error, Result};
/// fn half(n: usize) -> Result<usize> {
///     match n % 2 {
///         0 => Ok(n / 2),
///         _ => Err(Error::Invalid { what: format!("{n} is odd"), fix: "give an even number".to_string() }),
///     }
/// }
/// assert_eq!(half(6)?, 3);
/// assert_eq!(half(7).unwrap_err().to_string(), "7 is odd\nnext: give an even number");
/// # Ok::<(), Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, each with the figures that its message needs.
///
/// # Examples
/// ```
/// use gpulab_measure::{Error, Result};
/// fn third(row: &[f32]) -> Result<f32> {
///     let short = || Error::LengthMismatch { what: "a row".to_string(), expected: 3, given: row.len() };
///     row.get(2).copied().ok_or_else(short)
/// }
/// assert_eq!(third(&[1.0, 2.0, 3.0]), Ok(3.0));
/// // Code asks for the variant; people read what happened, and what to do next.
/// let error = third(&[1.0]).unwrap_err();
/// assert!(matches!(error, Error::LengthMismatch { given: 1, .. }));
/// assert!(error.to_string().ends_with("\nnext: make both lengths equal"));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs)] // the variant says what happened, and its message what each field is
pub enum Error {
    /// No machine that can run a kernel was found; `tried` says what was looked for and why it failed.
    NoGpu { tried: Vec<String> },
    /// A GPU index past the last one.
    NoSuchDevice { asked: usize, found: usize },
    /// The driver cannot load what this compiler makes.
    DriverTooOld { driver: String, ptx: String },
    /// The CUDA compiler library is missing.
    NoCompiler { looked_for: String },
    /// The kernel's source does not compile; `log` is the compiler's own text.
    Compile { log: String, excerpt: String },
    /// The module holds no kernel of this name.
    NoSuchKernel { asked: String, found: Vec<String> },
    /// A launch whose number of arguments differs from the kernel's parameters.
    ArgumentCount { kernel: String, signature: String, expected: usize, given: usize },
    /// A launch argument of the wrong type.
    ArgumentType { kernel: String, position: usize, parameter: String, given: String, fix: String },
    /// A launch argument of another size than the kernel reads: the driver would read past it, or leave some of it out.
    ArgumentSize {
        kernel: String,
        position: usize,
        parameter: String,
        expected: usize,
        given: String,
        given_bytes: usize,
    },
    /// A block or grid that the device refuses, found before the launch.
    LaunchLimit { what: String, asked: u64, limit: u64, fix: String },
    /// A buffer that lives on one device, used on another.
    DeviceMismatch { expected: String, found: String },
    /// Two lengths that must agree, and do not.
    LengthMismatch { what: String, expected: usize, given: usize },
    /// A tensor of other numbers than the work is made for.
    TensorType { expected: String, given: String },
    /// A tensor whose numbers do not lie one after the other, as of a transposed matrix.
    NotContiguous { shape: Vec<usize>, strides: Vec<usize> },
    /// The device's memory does not hold the request.
    OutOfMemory { asked: u64, free: u64, total: u64, reserved: u64 },
    /// An error that the driver reports, perhaps for work launched earlier.
    Driver { during: String, code: String, text: String, fix: String },
    /// The simulator saw a kernel do what it must not; `more` were found beyond those shown.
    Mistakes { kernel: String, shown: Vec<Mistake>, more: usize },
    /// A file that cannot be read or written.
    File { path: PathBuf, during: String, text: String, fix: String },
    /// A results file whose content is not what this crate writes. It is left as it is.
    Damaged { path: PathBuf, line: u64, text: String },
    /// A value that makes no sense where it was given.
    Invalid { what: String, fix: String },
    /// This cannot be had on this machine.
    Unsupported { what: String, fix: String },
}

impl Error {
    /// [`Error::Invalid`] of any texts.
    pub fn invalid(what: impl Into<String>, fix: impl Into<String>) -> Error {
        Error::Invalid { what: what.into(), fix: fix.into() }
    }

    /// [`Error::Unsupported`] of any texts.
    pub fn unsupported(what: impl Into<String>, fix: impl Into<String>) -> Error {
        Error::Unsupported { what: what.into(), fix: fix.into() }
    }

    /// [`Error::File`]: what was being done to the file, as the verb and preposition before its path, and what went wrong.
    pub fn file(path: &Path, during: &str, text: impl ToString, fix: impl Into<String>) -> Error {
        Error::File { path: path.to_path_buf(), during: during.to_string(), text: text.to_string(), fix: fix.into() }
    }

    /// [`Error::file`] of what the system says: `read(path).map_err(Error::io(path, "read the kernel", "give …"))`.
    pub fn io(path: &Path, during: &str, fix: &str) -> impl Fn(std::io::Error) -> Error + use<> {
        let (path, during, fix) = (path.to_path_buf(), during.to_string(), fix.to_string());
        move |error| Error::file(&path, &during, error, fix.as_str())
    }

    /// Whether the GPU had no memory for something: a buffer ([`Error::OutOfMemory`]), or what another call of the driver's wanted.
    ///
    /// ```
    /// # use gpulab_measure::error::Error;
    /// assert!(Error::OutOfMemory { asked: 2, free: 1, total: 1, reserved: 0 }.is_out_of_memory());
    /// assert!(!Error::invalid("a block of no threads", "give it at least one").is_out_of_memory());
    /// ```
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Error::OutOfMemory { .. } => true,
            Error::Driver { code, .. } => code == "CUDA_ERROR_OUT_OF_MEMORY",
            _ => false,
        }
    }
}

/// How much of a compiler's log a message shows: an error in a long kernel gives hundreds of lines.
const LOG_LINES: usize = 40;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoGpu { tried } => write!(
                f,
                "no GPU was found:\n  {}\nnext: `make verify` lists what is missing and the command that adds it; \
                 every lesson also runs without a GPU and then shows the recorded run, and `Gpu::simulated()?` runs kernels",
                tried.join("\n  ")
            ),
            Error::NoSuchDevice { asked, found } => write!(
                f,
                "there is no GPU {asked}: this machine has {found}\nnext: {}",
                match found {
                    0 => "run `make verify` to see why none was found".to_string(),
                    1 => "use index 0".to_string(),
                    _ => format!("use an index from 0 to {}", found - 1),
                }
            ),
            Error::DriverTooOld { driver, ptx } => write!(
                f,
                "the NVIDIA driver is too old: it supports CUDA {driver}, and this kernel was compiled to PTX {ptx}, which is newer\n\
                 next: update the driver, or run `make setup NVRTC=12`, which installs the compiler for older drivers, \
                 and restart the notebook's kernel"
            ),
            Error::NoCompiler { looked_for } => write!(
                f,
                "no NVRTC (the library that compiles CUDA C) was found; looked for {looked_for}\n\
                 next: {}",
                compiler_next(cfg!(target_os = "macos"))
            ),
            Error::Compile { log, excerpt } => {
                writeln!(f, "the kernel does not compile. The compiler says:")?;
                let lines: Vec<&str> = log.trim_end().lines().collect();
                for line in lines.iter().take(LOG_LINES) {
                    writeln!(f, "{line}")?;
                }
                if lines.len() > LOG_LINES {
                    writeln!(
                        f,
                        "… and {} more lines (all of them: the field `log` of this error)",
                        lines.len() - LOG_LINES
                    )?;
                }
                if !excerpt.is_empty() {
                    write!(f, "\nin your source:\n{}\n", excerpt.trim_end())?;
                }
                f.write_str(compile_next(log))
            }
            Error::NoSuchKernel { asked, found } if found.is_empty() => write!(
                f,
                "there is no kernel `{asked}` in this source, nor any other\n\
                 next: write `extern \"C\" __global__ void {asked}(...) {{ ... }}`: that makes it a kernel of this name"
            ),
            Error::NoSuchKernel { asked, found } => write!(
                f,
                "there is no kernel `{asked}` in this module; it has: {}\n\
                 next: use one of these names, and mark kernels `extern \"C\" __global__` so that C++ keeps their names",
                found.join(", ")
            ),
            Error::ArgumentCount { kernel, signature, expected, given } => write!(
                f,
                "`{kernel}` takes {expected} arguments and was given {given}\n  {signature}\n\
                 next: pass one value per parameter, in this order"
            ),
            Error::ArgumentType { kernel, position, parameter, given, fix } => write!(
                f,
                "argument {position} of `{kernel}` is `{parameter}` in the kernel, but the launch passes {given}\nnext: {fix}"
            ),
            Error::ArgumentSize { kernel, position, parameter, expected, given, given_bytes } => write!(
                f,
                "argument {position} of `{kernel}` is `{parameter}` in the kernel, {expected} bytes, but the launch passes \
                 {given}, {given_bytes} bytes\n\
                 next: pass a value of {expected} bytes: {}a `#[repr(C)]` struct with the same fields (`gpulab::kernel_param!` \
                 admits it)",
                match expected {
                    1 | 2 | 4 => "a plain number, or ",
                    8 => "`[f32; 2]` for a `float2`, or ",
                    12 => "`[f32; 3]` for a `float3`, or ",
                    16 => "`[f32; 4]` for a `float4`, or ",
                    _ => "",
                }
            ),
            Error::LaunchLimit { what, asked, limit, fix } => {
                write!(f, "{what}: {asked} asked, and this device allows {limit}\nnext: {fix}")
            }
            Error::DeviceMismatch { expected, found } => write!(
                f,
                "device mismatch: the work is on {expected}, but this data lives on {found}\n\
                 next: copy the data to {expected} first (`.to(&device)` or `gpu.to_device(&host)`)"
            ),
            Error::LengthMismatch { what, expected, given } => {
                write!(f, "{what}: {expected} elements expected, {given} given\nnext: make both lengths equal")
            }
            Error::TensorType { expected, given } => write!(
                f,
                "the tensor holds {given}, and {expected} is expected\n\
                 next: convert it (`tensor.to_dtype(DType::…)?`), or name the type that it holds"
            ),
            Error::NotContiguous { shape, strides } => write!(
                f,
                "a tensor of the shape {shape:?} and the strides {strides:?} is not contiguous: its numbers do not lie one after \
                 the other, as a kernel expects them\n\
                 next: copy it into order (`tensor.contiguous()?`)"
            ),
            Error::OutOfMemory { asked, free, total, reserved } => write!(
                f,
                "out of device memory: {} asked, {} free of {} ({} more lie unused in the pool)\n\
                 next: drop buffers that are no longer needed, call `gpu.trim(0)`, or use a smaller batch; nothing else was lost",
                bytes(*asked),
                bytes(*free),
                bytes(*total),
                bytes(*reserved)
            ),
            Error::Driver { during, code, text, fix } => {
                write!(f, "the driver reports {code} ({text}) during {during}\nnext: {fix}")
            }
            Error::Mistakes { kernel, shown, more } => f.write_str(&message(kernel, shown, *more)),
            Error::File { path, during, text, fix } => {
                write!(f, "cannot {during} {}: {text}\nnext: {fix}", path.display())
            }
            Error::Damaged { path, line, text } => write!(
                f,
                "{} is damaged at line {line}: {text}\nnext: it was left as it is; repair that line, or move the file away and a new one is begun",
                path.display()
            ),
            Error::Invalid { what, fix } | Error::Unsupported { what, fix } => {
                write!(f, "{what}\nnext: {fix}")
            }
        }
    }
}

impl std::error::Error for Error {}

/// [`Error::LengthMismatch`] unless both lengths are the same.
///
/// # Errors
/// That one.
pub fn same_length(what: impl Into<String>, expected: usize, given: usize) -> Result<()> {
    match expected == given {
        true => Ok(()),
        false => Err(Error::LengthMismatch { what: what.into(), expected, given }),
    }
}

/// Writes a file that a reader asked for, and the folders on its path; `during` is such as `save the figure as`.
///
/// # Errors
/// [`Error::File`].
pub fn save(path: &Path, text: &str, during: &str) -> Result<()> {
    let folders = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let fix = "choose a path in a folder where you may write, on a disk with room";
    folders.and_then(|()| std::fs::write(path, text)).map_err(Error::io(path, during, fix))
}

/// What to do about a kernel that does not compile.
fn compile_next(log: &str) -> &'static str {
    // `cannot open source file "mma.h"`; older compilers say `could not`.
    let missing = log.split_once("open source file \"").and_then(|(_, rest)| rest.split_once('"'));
    let of_cuda = |name: &str| {
        ["cuda", "cooperative_groups", "mma.h", "crt/", "nv/", "cub/", "thrust/"]
            .iter()
            .any(|own| name.starts_with(own))
    };
    let std_of_rust =
        ["unlinked crate `std`", "can't find crate for `std`", "in the crate root `std`", "cannot find macro `print"];
    // The slice of gpulab_device whose elements the threads own by one rule.
    let of_slice = |before: &str| log.contains(&format!("{before} `gpulab_device::DisjointSlice<"));
    let second_rule = ["own", "own_of_block", "own_2d", "own_at"]
        .iter()
        .any(|method| of_slice(&format!("no method named `{method}` found for struct")));
    match missing {
        None if std_of_rust.iter().any(|words| log.contains(words)) => {
            "next: take `std` away: a kernel in Rust has `core` and `gpulab_device` alone; there is no heap, and nowhere to print"
        }
        None if second_rule => {
            "next: keep to one `own` method for each slice: the first one that is called is the rule by which threads own \
             elements, and by a second rule two threads could own one element"
        }
        None if of_slice("type annotations needed for") => {
            "next: write through the slice: the first `own` method that is called is the rule by which threads own elements; \
             or name the rule, as in `DisjointSlice<f32, PerThread>`"
        }
        None => "next: fix the first error above (later ones often follow from it) and run the cell again",
        Some((name, _)) if of_cuda(name) => {
            "next: run `make setup`, which installs CUDA's headers, and restart the kernel (menu Kernel, Restart)"
        }
        Some(_) => {
            "next: take this #include away: only CUDA's own headers are there, and threadIdx, printf, sqrtf and the like \
             need none; put what your own file holds into the source itself"
        }
    }
}

/// Where CUDA C compiles, for a reader without NVRTC.
fn compiler_next(on_a_mac: bool) -> &'static str {
    match on_a_mac {
        true => {
            "NVIDIA makes no NVRTC for macOS: run CUDA C of your own on Linux, in a Linux container (Docker) or on Google \
             Colab; the course's own kernels, and those of the lessons as they stand, run here from the PTX that comes with \
             them"
        }
        false => "run `make setup`, which installs it, and restart the kernel (menu Kernel, Restart)",
    }
}

/// `3.2 GiB`, `512 B`: a byte count for people (binary units, three figures).
///
/// # Examples
/// ```
/// use gpulab_measure::error::bytes;
/// assert_eq!([bytes(512), bytes(3_435_973_836)], ["512 B", "3.20 GiB"]);
/// ```
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    // 999.5 would print as 1000, so the next unit starts there.
    while value >= 999.5 && unit < UNITS.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    match value {
        _ if unit == 0 => format!("{n} B"),
        v if v < 9.995 => format!("{v:.2} {}", UNITS[unit]),
        v if v < 99.95 => format!("{v:.1} {}", UNITS[unit]),
        v => format!("{v:.0} {}", UNITS[unit]),
    }
}

/// One mistake of a kernel, in the words of its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// What kind of mistake it is.
    pub kind: String,
    /// File and line, and the first block and thread that made it.
    pub place: String,
    /// Number and text of the source line, where they are known.
    pub line: Option<(u32, String)>,
    /// What happened there, each access of it.
    pub what: Vec<String>,
    /// What to do about it.
    pub fix: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.place)?;
        if let Some((number, text)) = &self.line {
            write!(f, "\n{number:>5} | {text}")?;
        }
        self.what.iter().try_for_each(|what| write!(f, "\n      ^ {what}"))
    }
}

/// The message of [`Error::Mistakes`](Error::Mistakes).
fn message(kernel: &str, shown: &[Mistake], more: usize) -> String {
    if let ([only], 0) = (shown, more) {
        return format!("`{kernel}` has a mistake\n{only}\nnext: {}", only.fix);
    }
    let mut text = format!("`{kernel}` has {} mistakes", shown.len() + more);
    for mistake in shown {
        text += &format!("\n{mistake}\n      fix: {}", mistake.fix);
    }
    if more > 0 {
        text += &format!("\nand {more} more");
    }
    text + "\nnext: fix the first one (others often follow from it) and run the cell again"
}

// Rust wants such a conversion in the crate that has one of the two types.
/// candle's errors as [`Error`]: `?` works on both, in the crates and in a notebook's cell.
#[cfg(feature = "candle")]
impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Error {
        // An operator of the course's returns one of these through candle.
        let error = match error {
            candle_core::Error::Cuda(inner) => match inner.downcast::<Error>() {
                Ok(own) => return *own,
                Err(inner) => candle_core::Error::Cuda(inner),
            },
            other => other,
        };
        let whole = error.to_string();
        // Below the first line candle may print where in its own code it was.
        let text = whole.lines().next().unwrap_or_default().to_string();
        let full = ["OUT_OF_MEMORY", "out of memory"].iter().any(|part| whole.contains(part));
        let fix = match full {
            true => {
                "the device's memory is full: use a smaller batch or a shorter context, and drop tensors that are no longer needed"
            }
            false => "compare the shapes, dtypes and devices of the tensors that the call takes",
        };
        Error::Invalid { what: format!("candle says: {text}"), fix: fix.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_three_figures() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1000), "0.98 KiB");
        assert_eq!(bytes(1 << 20), "1.00 MiB");
        assert_eq!(bytes(143_771 << 20), "140 GiB");
    }

    #[test]
    fn every_message_ends_with_the_next_step() {
        let text = Error::NoSuchDevice { asked: 3, found: 2 }.to_string();
        assert!(text.contains("there is no GPU 3") && text.contains("0 to 1"), "{text}");
        let text = Error::OutOfMemory { asked: 1 << 40, free: 1 << 30, total: 1 << 34, reserved: 0 }.to_string();
        assert!(text.contains("1.00 TiB asked") && text.lines().last().unwrap().starts_with("next: "), "{text}");
    }

    #[test]
    fn without_a_compiler_a_mac_is_told_where_there_is_one() {
        assert!(compiler_next(false).contains("make setup"));
        let mac = compiler_next(true);
        assert!(
            ["Linux", "container", "Colab", "the course's own kernels"].iter().all(|way| mac.contains(way)),
            "{mac}"
        );
    }

    #[test]
    fn a_long_compiler_log_is_cut_and_kept() {
        let log = "kernel.cu(1): error: no\n".repeat(LOG_LINES + 7);
        let error = Error::Compile { log: log.clone(), excerpt: "    1 | x\n".to_string() };
        let text = error.to_string();
        assert!(text.contains("… and 7 more lines") && text.contains("\n    1 | x\nnext: fix"), "{text}");
        assert_eq!(text.lines().count(), LOG_LINES + 6);
        assert!(matches!(error, Error::Compile { log: whole, .. } if whole == log));
        let log = "k.cu(1): catastrophic error: could not open source file \"a.h\"".to_string();
        let text = Error::Compile { log, excerpt: String::new() }.to_string();
        assert!(text.contains("\nnext: take this #include away"), "{text}");
    }

    #[test]
    fn one_mistake_ends_with_its_fix_and_several_with_the_first() {
        let mistake = Mistake {
            kind: "access out of bounds".to_string(),
            place: "kernel.cu:3, block (1, 0, 0), thread (5, 0, 0)".to_string(),
            line: Some((3, "    c[i] = a[i];".to_string())),
            what: vec!["reads 4 bytes past the end of `a`".to_string(), "writes 4 bytes".to_string()],
            fix: "guard the access".to_string(),
        };
        let one = message("k", std::slice::from_ref(&mistake), 0);
        assert!(
            one.contains("    3 |     c[i] = a[i];\n      ^ reads 4 bytes past the end of `a`\n      ^ writes")
                && one.ends_with("\nnext: guard the access")
        );
        let many = message("k", &[mistake.clone(), Mistake { line: None, ..mistake }], 4);
        assert!(
            many.starts_with("`k` has 6 mistakes\n") && many.contains("\nand 4 more\nnext: fix the first"),
            "{many}"
        );
        assert_eq!(many.matches("fix: guard the access").count(), 2);
    }

    #[cfg(feature = "candle")]
    #[test]
    fn a_shape_that_does_not_fit_is_told_with_the_next_step() {
        use candle_core::{Device, Tensor};
        let add = || -> Result<Tensor> {
            let (two, three) =
                (Tensor::new(&[1f32, 2.0], &Device::Cpu)?, Tensor::new(&[1f32, 2.0, 3.0], &Device::Cpu)?);
            Ok((two + three)?)
        };
        let text = add().unwrap_err().to_string();
        assert!(text.contains("shape mismatch") && text.contains("\nnext: compare the shapes"), "{text}");
    }
}
