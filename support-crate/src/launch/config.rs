//! What a launch is given: its shape and the device's limits, the element types, and the kernel's source.

use crate::error::{Error, Result};
use std::fmt;
use std::path::{Path, PathBuf};

/// How many blocks (the grid) of how many threads, and the dynamic shared memory of each block.
///
/// Dimensions are (x, y, z); `x` is the one that neighbouring threads differ in.
///
/// # Examples
/// ```
/// use gpulab::launch::LaunchConfig;
/// let config = LaunchConfig::for_elements(1000, 256); // ⌈1000 ÷ 256⌉ = 4 blocks, so 24 threads have no element
/// assert_eq!(config, LaunchConfig::new(4, 256));
/// assert_eq!(config.blocks() * config.threads_per_block(), 1024);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks in the grid: CUDA's `gridDim`.
    pub grid: (u32, u32, u32),
    /// Threads in a block: CUDA's `blockDim`.
    pub block: (u32, u32, u32),
    /// Dynamic shared memory of each block, in bytes.
    pub shared_bytes: u32,
}

impl LaunchConfig {
    /// This many blocks of this many threads, both in one dimension.
    pub fn new(blocks: u32, threads: u32) -> Self {
        LaunchConfig { grid: (blocks, 1, 1), block: (threads, 1, 1), shared_bytes: 0 }
    }

    /// At least one thread for each of `elements`: ⌈elements ÷ threads⌉ blocks.
    ///
    /// The last block usually has threads to spare, so the kernel needs its bounds guard.
    /// No element still launches one block: a grid of zero blocks is an error to CUDA.
    pub fn for_elements(elements: usize, threads: u32) -> Self {
        let blocks = elements.div_ceil(threads.max(1) as usize).max(1);
        LaunchConfig::new(u32::try_from(blocks).unwrap_or(u32::MAX), threads)
    }

    /// At least one thread for each cell of a `rows` × `columns` table; `x` runs along a row.
    pub fn for_table(rows: usize, columns: usize, threads: (u32, u32)) -> Self {
        let cover = |cells: usize, threads: u32| {
            u32::try_from(cells.div_ceil(threads.max(1) as usize).max(1)).unwrap_or(u32::MAX)
        };
        LaunchConfig {
            grid: (cover(columns, threads.0), cover(rows, threads.1), 1),
            block: (threads.0, threads.1, 1),
            shared_bytes: 0,
        }
    }

    /// The same launch with this much dynamic shared memory for each block.
    pub fn shared(mut self, bytes: u32) -> Self {
        self.shared_bytes = bytes;
        self
    }

    /// Blocks in the grid.
    pub fn blocks(&self) -> u64 {
        product(self.grid)
    }

    /// Threads in one block.
    pub fn threads_per_block(&self) -> u64 {
        product(self.block)
    }
}

/// Shapes that no device takes overflow 64 bits.
fn product((x, y, z): (u32, u32, u32)) -> u64 {
    (u64::from(x) * u64::from(y)).saturating_mul(z.into())
}

/// What a launch may ask for beside its shape (CUDA's `cudaLaunchAttribute`), on GPUs from Hopper on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchAttributes {
    /// Programmatic dependent launch: the kernel may start before the one in front has ended, as soon as each block of that
    /// one has executed `griddepcontrol.launch_dependents` or has ended. What depends on that kernel stands behind
    /// `griddepcontrol.wait`.
    pub programmatic_stream_serialization: bool,
    /// So many neighbouring blocks along x form a cluster: they run at the same time, and see each other's shared memory.
    pub cluster: u32,
    /// All blocks run at the same time, so that they may wait for each other; a grid that is too large for that is an error,
    /// which says how many blocks fit.
    pub cooperative: bool,
    /// As much of a multiprocessor's memory as possible is shared memory, and little is L1 cache. It is divided anew only
    /// when nothing runs there: kernels that are to overlap must agree.
    pub max_shared_carveout: bool,
}

impl LaunchAttributes {
    /// An ordinary launch.
    pub const NONE: LaunchAttributes = LaunchAttributes {
        programmatic_stream_serialization: false,
        cluster: 1,
        cooperative: false,
        max_shared_carveout: false,
    };
}

/// What a device accepts in one launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchLimits {
    /// Threads in a block, all dimensions multiplied.
    pub threads_per_block: u32,
    /// Threads in a block along x, y, z.
    pub block: (u32, u32, u32),
    /// Blocks in a grid along x, y, z.
    pub grid: (u32, u32, u32),
    /// Shared memory of one block, in bytes, with the opt-in that the crate makes.
    pub shared_bytes_per_block: u32,
}

impl LaunchLimits {
    /// Says which limit a launch breaks, before the driver answers `CUDA_ERROR_INVALID_VALUE`.
    ///
    /// # Errors
    /// [`Error::LaunchLimit`] or, for a dimension of zero, [`Error::Invalid`].
    pub fn check(&self, config: &LaunchConfig) -> Result<()> {
        let dimensions = |d: (u32, u32, u32)| [("x", d.0), ("y", d.1), ("z", d.2)];
        for (what, shape) in [("grid", config.grid), ("block", config.block)] {
            if let Some((axis, _)) = dimensions(shape).into_iter().find(|(_, extent)| *extent == 0) {
                return Err(Error::invalid(
                    format!("the {what} has no extent along {axis}: {shape:?}"),
                    "every dimension of grid and block is at least 1",
                ));
            }
        }
        let threads = config.threads_per_block();
        if threads > u64::from(self.threads_per_block) {
            return Err(Error::LaunchLimit {
                what: format!("too many threads in a block {:?}", config.block),
                asked: threads,
                limit: self.threads_per_block.into(),
                fix: "use smaller blocks and more of them: 128 or 256 threads are a good start, \
                      and `LaunchConfig::for_elements(n, 256)` counts the blocks"
                    .to_string(),
            });
        }
        for (what, shape, limit) in [("block", config.block, self.block), ("grid", config.grid, self.grid)] {
            for ((axis, asked), (_, limit)) in dimensions(shape).into_iter().zip(dimensions(limit)) {
                if asked > limit {
                    return Err(Error::LaunchLimit {
                        what: format!("the {what} is too large along {axis}"),
                        asked: asked.into(),
                        limit: limit.into(),
                        fix: "let each thread do more than one element (a grid-stride loop), or use another axis"
                            .to_string(),
                    });
                }
            }
        }
        if config.shared_bytes > self.shared_bytes_per_block {
            return Err(Error::LaunchLimit {
                what: "too much shared memory for a block, in bytes".to_string(),
                asked: config.shared_bytes.into(),
                limit: self.shared_bytes_per_block.into(),
                fix: "use a smaller tile".to_string(),
            });
        }
        Ok(())
    }
}

/// The type of one element, as Rust and as CUDA C call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are Rust's own
pub enum ElementType {
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
}

impl ElementType {
    /// Rust's name, such as `f32`; also the word in `metrics.csv`.
    pub fn rust_name(self) -> &'static str {
        self.names().0
    }

    /// CUDA C's name, such as `float`.
    pub fn cuda_name(self) -> &'static str {
        self.names().1
    }

    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        self.names().2
    }

    fn names(self) -> (&'static str, &'static str, usize) {
        match self {
            ElementType::F32 => ("f32", "float", 4),
            ElementType::F64 => ("f64", "double", 8),
            ElementType::I8 => ("i8", "signed char", 1),
            ElementType::I16 => ("i16", "short", 2),
            ElementType::I32 => ("i32", "int", 4),
            ElementType::I64 => ("i64", "long long", 8),
            ElementType::U8 => ("u8", "unsigned char", 1),
            ElementType::U16 => ("u16", "unsigned short", 2),
            ElementType::U32 => ("u32", "unsigned int", 4),
            ElementType::U64 => ("u64", "unsigned long long", 8),
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rust_name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A number that may cross to a device: same bits on both sides, any bit pattern valid.
///
/// Sealed, because [`Buffer::to_host`](crate::gpu::Buffer::to_host) hands out whatever bits a kernel left behind.
pub trait Element: sealed::Sealed + Copy + Default + Send + Sync + fmt::Debug + 'static {
    /// Which type this is.
    const TYPE: ElementType;
}

/// How many bytes `len` elements take. Checked, because release builds multiply with a silent overflow.
pub(crate) fn bytes_of<T: Element>(len: usize) -> Result<usize> {
    let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= isize::MAX as usize);
    bytes.ok_or_else(|| Error::Invalid {
        what: format!("{len} elements of {} bytes are more than any memory holds", size_of::<T>()),
        fix: "check the arithmetic of the size".to_string(),
    })
}

/// The bytes of these numbers.
pub fn as_bytes<T: Element>(numbers: &[T]) -> &[u8] {
    // SAFETY: elements are plain numbers without padding, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// The bytes of these numbers, to be written.
pub(crate) fn as_bytes_mut<T: Element>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and any bytes make valid numbers.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

macro_rules! elements {
    ($($rust:ty => $variant:ident),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const TYPE: ElementType = ElementType::$variant;
        }
    )*};
}

elements! {
    f32 => F32, f64 => F64,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
}

/// How many complaints an excerpt shows: later errors often follow from the first.
const EXCERPT: usize = 5;

/// A kernel's source, CUDA C, Rust or Metal, from a string or a file, with constants.
///
/// # Examples
/// ```
/// use gpulab::prelude::*;
/// let gpu = Gpu::simulated()?;
/// let text = r#"extern "C" __global__ void fill(float *x) { x[threadIdx.x] = VALUE; }"#;
/// let fill = gpu.compile(Source::text(text).define("VALUE", "2.5f"))?.kernel("fill")?;
/// let mut x = gpu.zeros::<f32>(4)?;
/// fill.launch(LaunchConfig::new(1, 4), (&mut x,))?;
/// assert_eq!(x.to_host()?, [2.5; 4]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// What the compiler calls the file in its messages.
    pub name: String,
    /// The text.
    pub text: String,
    /// `-DNAME=VALUE`, in order.
    pub defines: Vec<(String, String)>,
    /// The folder that the file lies in: headers beside it may be included.
    pub folder: Option<PathBuf>,
    /// Further options for the compiler (NVRTC or rustc), in order.
    pub options: Vec<String>,
}

impl Source {
    /// Source written in the notebook. Text with `extern "ptx-kernel"` is Rust, other text CUDA C or Metal.
    pub fn text(text: &str) -> Source {
        let name = if text.contains("extern \"ptx-kernel\"") { "kernel.rs" } else { "kernel.cu" };
        Source {
            name: name.to_string(),
            text: text.to_string(),
            defines: Vec::new(),
            folder: None,
            options: Vec::new(),
        }
    }

    /// Source in a file; one whose name ends in `.rs` is Rust.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read.
    pub fn file(path: impl AsRef<Path>) -> Result<Source> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| Error::File {
            path: path.to_path_buf(),
            during: "read the kernel".to_string(),
            text: error.to_string(),
            fix: match error.kind() {
                std::io::ErrorKind::InvalidData => {
                    "save the file as plain text (UTF-8) and run the cell again".to_string()
                }
                _ => format!(
                    "check the path; the course's own kernels lie in {}",
                    gpulab_measure::repository().join("crates/kernels").display()
                ),
            },
        })?;
        let name = path.file_name().map_or_else(|| "kernel.cu".into(), |name| name.to_string_lossy().into_owned());
        let folder = path.parent().map(Path::to_path_buf);
        Ok(Source { name, text, defines: Vec::new(), folder, options: Vec::new() })
    }

    /// The lines that a compiler complains about, each with its complaint. Lines count from 1; others are passed over.
    pub(crate) fn excerpt<'a>(&self, complaints: impl Iterator<Item = (usize, &'a str)>) -> String {
        let lines: Vec<&str> = self.text.lines().collect();
        let at = |(number, complaint): (usize, &str)| {
            let line = lines.get(number.checked_sub(1)?)?;
            Some(format!("{number:>5} | {line}\n      ^ {complaint}\n"))
        };
        let all: Vec<String> = complaints.filter_map(at).collect();
        let mut text = all[..all.len().min(EXCERPT)].concat();
        if all.len() > EXCERPT {
            text += &format!("  … and {} more\n", all.len() - EXCERPT);
        }
        text
    }

    /// The same source with `NAME` defined as `value`, as `-DNAME=value` does.
    pub fn define(mut self, name: &str, value: impl ToString) -> Source {
        self.defines.push((name.to_string(), value.to_string()));
        self
    }

    /// The same source with one more option for its compiler, such as `--use_fast_math` for NVRTC.
    pub fn option(mut self, option: &str) -> Source {
        self.options.push(option.to_string());
        self
    }
}

impl From<&str> for Source {
    fn from(text: &str) -> Source {
        Source::text(text)
    }
}

impl From<&String> for Source {
    fn from(text: &String) -> Source {
        Source::text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: LaunchLimits = LaunchLimits {
        threads_per_block: 1024,
        block: (1024, 1024, 64),
        grid: (2_147_483_647, 65535, 65535),
        shared_bytes_per_block: 232_448,
    };

    #[test]
    fn every_element_gets_a_thread() {
        for (n, blocks) in [(0, 1), (1, 1), (256, 1), (257, 2), (1_000_003, 3907)] {
            assert_eq!(LaunchConfig::for_elements(n, 256).grid.0, blocks, "{n}");
        }
        assert_eq!(LaunchConfig::for_table(65, 127, (32, 8)).grid, (4, 9, 1));
    }

    #[test]
    fn limits_name_what_is_too_large() {
        assert_eq!(H200.check(&LaunchConfig::new(4, 1024)), Ok(()));
        let broken = [
            (LaunchConfig::new(1, 1025), (1025, 1024)),
            (LaunchConfig { grid: (1, 65536, 1), block: (1, 1, 1), shared_bytes: 0 }, (65536, 65535)),
            (LaunchConfig { grid: (1, 1, 1), block: (1, 1, 65), shared_bytes: 0 }, (65, 64)),
            (LaunchConfig::new(1, 32).shared(232_449), (232_449, 232_448)),
        ];
        for (config, expected) in broken {
            let Err(Error::LaunchLimit { asked, limit, .. }) = H200.check(&config) else { panic!("{config:?}") };
            assert_eq!((asked, limit), expected);
        }
        for config in [LaunchConfig::new(0, 32), LaunchConfig::new(1, 0)] {
            assert!(matches!(H200.check(&config), Err(Error::Invalid { .. })), "{config:?}");
        }
    }

    #[test]
    fn a_size_that_overflows_is_an_error() {
        assert_eq!(bytes_of::<f64>(3), Ok(24));
        for len in [usize::MAX, usize::MAX / 4, isize::MAX as usize / 4] {
            let message = bytes_of::<f64>(len).unwrap_err().to_string();
            assert!(message.contains("more than any memory holds"), "{message}");
        }
    }

    #[test]
    fn a_missing_file_says_where_the_kernels_are() {
        let message = Source::file("no/such.cu").unwrap_err().to_string();
        assert!(message.contains("no/such.cu") && message.contains("kernels"), "{message}");
    }
}
