//! Matrices as the TMA of Hopper GPUs takes them.

use super::buffer::Memory;
use super::kernel::{KernelArg, Lent, RawArg, sealed};
use super::{Buffer, Gpu};
use crate::cuda::BOX_ROW;
use crate::error::{Error, Result};
use crate::launch::{ArgType, Bytes, Element};
use crate::sim::needs_hardware;
use std::fmt;
use std::ops::Range;

/// A row-major matrix in device memory, described to the TMA (`cuTensorMapEncodeTiled`): it moves boxes of
/// `box_rows` rows of 128 bytes to and from shared memory, and swizzles them on the way (128 bytes). What lies beyond the
/// matrix arrives as zeros. Goes into a launch as `&map`, one made for writing as `&mut map`, for a parameter
/// `const __grid_constant__ TensorMap`. On every stream the launch is ordered as a launch with the buffer itself.
pub struct TensorMap<'a> {
    map: [u64; 16],
    memory: Mapped<'a>,
    gpu: &'a Gpu,
}

/// The matrix's memory.
enum Mapped<'a> {
    Read(&'a Memory),
    Written(&'a mut Memory),
    /// Written as a part of what another map of the same launch stands for.
    WithAnother,
}

impl fmt::Debug for TensorMap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorMap of a matrix on {}", self.gpu)
    }
}

impl<'a> TensorMap<'a> {
    /// For reading.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::Invalid`] for rows that do not begin at multiples of 16 bytes and for boxes of
    /// no or more than 256 rows, [`Error::Unsupported`] where there is no such engine, [`Error::Driver`].
    pub fn new<T: Element>(matrix: &'a Buffer<T>, rows: usize, columns: usize, box_rows: u32) -> Result<TensorMap<'a>> {
        let map = describe(matrix, &[rows, columns], box_rows)?;
        Ok(TensorMap { map, memory: Mapped::Read(&matrix.memory), gpu: &matrix.gpu })
    }

    /// A stack of matrices (how many, rows, columns), one behind the other, for reading: a box does not reach into the next
    /// matrix. What lies beyond its own arrives as zeros, and is not written.
    ///
    /// # Errors
    /// As [`TensorMap::new`].
    pub fn of_stack<T: Element>(
        stack: &'a Buffer<T>,
        (matrices, rows, columns): (usize, usize, usize),
        box_rows: u32,
    ) -> Result<TensorMap<'a>> {
        let map = describe(stack, &[matrices, rows, columns], box_rows)?;
        Ok(TensorMap { map, memory: Mapped::Read(&stack.memory), gpu: &stack.gpu })
    }

    /// The same for writing.
    ///
    /// # Errors
    /// As [`TensorMap::new`].
    pub fn of_written_stack<T: Element>(
        stack: &'a mut Buffer<T>,
        (matrices, rows, columns): (usize, usize, usize),
        box_rows: u32,
    ) -> Result<TensorMap<'a>> {
        let map = describe(stack, &[matrices, rows, columns], box_rows)?;
        Ok(TensorMap { map, memory: Mapped::Written(&mut stack.memory), gpu: &stack.gpu })
    }

    /// The stack that some columns of a stack of wider matrices (how many, rows, columns) are, for reading.
    ///
    /// # Errors
    /// As [`TensorMap::new`], and [`Error::Invalid`] for columns that there are not, or that begin within 16 bytes.
    pub fn of_columns<T: Element>(
        stack: &'a Buffer<T>,
        (matrices, rows, columns): (usize, usize, usize),
        taken: Range<usize>,
        box_rows: u32,
    ) -> Result<TensorMap<'a>> {
        let map = describe_columns(stack, &[matrices, rows, columns], taken, box_rows)?;
        Ok(TensorMap { map, memory: Mapped::Read(&stack.memory), gpu: &stack.gpu })
    }

    /// Several such parts of one stack, all to be written by the same launch: the first one stands for the memory of all.
    ///
    /// # Errors
    /// As [`TensorMap::of_columns`].
    pub fn of_written_columns<T: Element, const N: usize>(
        stack: &'a mut Buffer<T>,
        (matrices, rows, columns): (usize, usize, usize),
        taken: [Range<usize>; N],
        box_rows: u32,
    ) -> Result<[TensorMap<'a>; N]> {
        let maps = taken.map(|taken| describe_columns(stack, &[matrices, rows, columns], taken, box_rows));
        let mut whole = Some(&mut stack.memory);
        let maps = maps.map(|map| {
            let memory = whole.take().map_or(Mapped::WithAnother, Mapped::Written);
            Ok(TensorMap { map: map?, memory, gpu: &stack.gpu })
        });
        all(maps)
    }

    /// For writing.
    ///
    /// # Errors
    /// As [`TensorMap::new`].
    pub fn written<T: Element>(
        matrix: &'a mut Buffer<T>,
        rows: usize,
        columns: usize,
        box_rows: u32,
    ) -> Result<TensorMap<'a>> {
        let map = describe(matrix, &[rows, columns], box_rows)?;
        Ok(TensorMap { map, memory: Mapped::Written(&mut matrix.memory), gpu: &matrix.gpu })
    }

    pub(super) fn kind(&self, mutable: bool) -> ArgType {
        ArgType::TensorMap { written: !matches!(self.memory, Mapped::Read(_)), mutable }
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes::of(&self.map)
    }

    /// The matrix's memory, as a launch with `&map` uses it.
    pub(super) fn lend(&self) -> Option<Lent<'_>> {
        match &self.memory {
            Mapped::Read(memory) => Some(Lent::Read(memory, self.gpu)),
            Mapped::Written(memory) => Some(Lent::Read(memory, self.gpu)),
            Mapped::WithAnother => None,
        }
    }

    /// As a launch with `&mut map` uses it.
    pub(super) fn lend_mut(&mut self) -> Option<Lent<'_>> {
        match &mut self.memory {
            Mapped::Read(memory) => Some(Lent::Read(memory, self.gpu)),
            Mapped::Written(memory) => Some(Lent::Write(memory, self.gpu)),
            Mapped::WithAnother => None,
        }
    }
}

/// Sides from the slowest to the fastest.
fn describe<T: Element>(matrix: &Buffer<T>, sides: &[usize], box_rows: u32) -> Result<[u64; 16]> {
    let columns = *sides.last().expect("a matrix has sides");
    describe_columns(matrix, sides, 0..columns, box_rows)
}

/// All of them, or the first failure.
fn all<'a, const N: usize>(maps: [Result<TensorMap<'a>>; N]) -> Result<[TensorMap<'a>; N]> {
    let maps = maps.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(maps.try_into().unwrap_or_else(|_| unreachable!("as many as there were")))
}

fn describe_columns<T: Element>(
    matrix: &Buffer<T>,
    sides: &[usize],
    taken: Range<usize>,
    box_rows: u32,
) -> Result<[u64; 16]> {
    let (columns, above) = sides.split_last().expect("a matrix has sides");
    let rows = above.iter().try_fold(1_usize, |rows, &side| rows.checked_mul(side)).unwrap_or(usize::MAX);
    check::<T>(matrix.len(), rows, *columns, box_rows)?;
    let offset = taken.start * size_of::<T>();
    if taken.is_empty() || taken.end > *columns || !offset.is_multiple_of(16) {
        return Err(Error::invalid(
            format!("columns {} to {} of {columns}", taken.start, taken.end),
            "take columns that there are, from a multiple of 16 bytes on",
        ));
    }
    if let Memory::Simulated(memory) = &matrix.memory {
        return memory.tensor_map(size_of::<T>(), sides, (offset, taken.len()), box_rows);
    }
    let (Memory::Cuda(memory), Gpu::Cuda(gpu)) = (&matrix.memory, &matrix.gpu) else {
        return Err(needs_hardware(
            "there is no TMA",
            "use a kernel that loads its tiles itself, such as `matmul_bf16/04_swizzle`",
        ));
    };
    if gpu.capability()? < 90 {
        return Err(Error::unsupported(
            "the TMA came with compute capability 9.0",
            "use a kernel that loads its tiles itself, such as `matmul_bf16/04_swizzle`",
        ));
    }
    Ok(*gpu.tensor_map(memory, T::TYPE, sides, (offset, taken.len()), box_rows)?.words())
}

/// What the engine asks for: whole rows, 16-byte boundaries, boxes of at most 256 rows.
fn check<T: Element>(len: usize, rows: usize, columns: usize, box_rows: u32) -> Result<()> {
    let wrong = |what: String, fix: &str| Err(Error::invalid(what, fix.to_string()));
    if rows.checked_mul(columns) != Some(len) {
        let expected = rows.saturating_mul(columns);
        return Err(Error::LengthMismatch { what: "the matrix of a tensor map".to_string(), expected, given: len });
    }
    if rows == 0 || columns == 0 || !(columns * size_of::<T>()).is_multiple_of(16) {
        return wrong(
            format!("the TMA takes no rows of {columns} elements of {} bytes", size_of::<T>()),
            "make the rows longer, up to a multiple of 16 bytes, or use a kernel that loads its tiles itself",
        );
    }
    if box_rows == 0 || box_rows > 256 {
        return wrong(
            format!("a box of {box_rows} rows of {BOX_ROW} bytes"),
            "use 1 to 256 rows a box, and several boxes for a larger tile",
        );
    }
    Ok(())
}

impl sealed::Sealed for &TensorMap<'_> {}
impl<'a> KernelArg<'a> for &'a TensorMap<'_> {
    fn into_raw(self) -> RawArg<'a> {
        RawArg { kind: self.kind(false), bytes: Some(self.bytes()), memory: self.lend() }
    }
}

impl sealed::Sealed for &mut TensorMap<'_> {}
impl<'a> KernelArg<'a> for &'a mut TensorMap<'_> {
    fn into_raw(self) -> RawArg<'a> {
        RawArg { kind: self.kind(true), bytes: Some(self.bytes()), memory: self.lend_mut() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::LaunchConfig;

    #[test]
    fn what_the_engine_cannot_take_is_refused_with_a_way_out() {
        assert_eq!(check::<u16>(64 * 72, 64, 72, 64), Ok(()));
        let cases = [
            (check::<u16>(63, 8, 8, 8), "64"),
            (check::<u16>(65 * 4, 4, 65, 8), "rows of 65 elements of 2 bytes"),
            (check::<f32>(0, 0, 64, 8), "no rows of 64"),
            (check::<f32>(0, 4, 0, 8), "no rows of 0"),
            (check::<u16>(64, 8, 8, 257), "257 rows"),
            (check::<u16>(64, 8, 8, 0), "0 rows"),
        ];
        for (result, text) in cases {
            let message = result.unwrap_err().to_string();
            assert!(message.contains(text) && message.contains("\nnext: "), "{message}");
        }
        let gpu = Gpu::simulated().unwrap();
        assert!(TensorMap::new(&gpu.zeros::<u16>(64).unwrap(), 8, 8, 8).is_ok());
        let wide = gpu.zeros::<u16>(2 * 4 * 24).unwrap();
        assert!(TensorMap::of_columns(&wide, (2, 4, 24), 8..24, 4).is_ok());
        for (taken, text) in [(4..12, "columns 4 to 12 of 24"), (8..25, "8 to 25"), (8..8, "8 to 8")] {
            let message = TensorMap::of_columns(&wide, (2, 4, 24), taken, 4).unwrap_err().to_string();
            assert!(message.contains(text) && message.contains("\nnext: "), "{message}");
        }
    }

    #[test]
    fn a_launch_uses_a_maps_buffer_as_it_was_lent() {
        let gpu = Gpu::simulated().unwrap();
        let source = r#"struct alignas(64) TensorMap { unsigned long long opaque[16]; };
extern "C" __global__ void through(const __grid_constant__ TensorMap map, int *out) { out[0] = map.opaque[3]; }"#;
        let kernel = match gpu.compile(source) {
            Ok(module) => module.kernel("through").unwrap(),
            Err(Error::NoCompiler { .. }) => return eprintln!("skipped: needs NVRTC"),
            Err(error) => panic!("{error}"),
        };
        let (mut matrix, mut out) = (gpu.zeros::<u16>(64).unwrap(), gpu.zeros::<i32>(1).unwrap());
        let words = std::array::from_fn(|i| i as u64);
        let mut written = TensorMap { map: words, memory: Mapped::Written(&mut matrix.memory), gpu: &gpu };
        assert!(matches!((&written).into_raw().memory, Some(Lent::Read(..))));
        assert!(matches!((&mut written).into_raw().memory, Some(Lent::Write(..))));
        let config = LaunchConfig::new(1, 1);
        let refused = kernel.launch(config, (&written, &mut out));
        assert!(matches!(refused, Err(Error::ArgumentType { position: 1, .. })), "{refused:?}");
        kernel.launch(config, (&mut written, &mut out)).unwrap();
        assert_eq!(out.to_host().unwrap(), [3]);
        let other = Gpu::simulated().unwrap();
        let matrix = other.zeros::<u16>(64).unwrap();
        let elsewhere = TensorMap { map: words, memory: Mapped::Read(&matrix.memory), gpu: &other };
        let refused = kernel.launch(config, (&elsewhere, &mut out));
        assert!(matches!(refused, Err(Error::DeviceMismatch { .. })), "{refused:?}");
    }
}
