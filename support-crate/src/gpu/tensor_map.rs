//! Matrices as the copy engine of Hopper GPUs (TMA) takes them.

use super::buffer::Memory;
use super::{Buffer, Gpu};
use crate::cuda::{BOX_ROW, CudaTensorMap};
use crate::error::{Error, Result};
use crate::launch::Element;
use crate::sim::needs_hardware;
use std::fmt;
use std::marker::PhantomData;

/// A row-major matrix in device memory, described to the copy engine: it moves boxes of `box_rows` rows of 128 bytes to
/// and from shared memory, and swizzles them on the way (128 bytes). What lies beyond the matrix arrives as zeros. Goes
/// into a launch as `&map`, for a parameter `const __grid_constant__ TensorMap`, on the default stream.
pub struct TensorMap<'a> {
    pub(super) map: CudaTensorMap,
    pub(super) memory: &'a Memory,
    pub(super) index: usize,
    // A kernel may write through the map of a buffer that was lent mutably.
    buffer: PhantomData<&'a mut ()>,
}

impl fmt::Debug for TensorMap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorMap of a matrix on GPU {}", self.index)
    }
}

impl<'a> TensorMap<'a> {
    /// For reading.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::Invalid`] for rows that do not begin at multiples of 16 bytes and for boxes of
    /// no or more than 256 rows, [`Error::Unsupported`] where there is no such engine, [`Error::Driver`].
    pub fn new<T: Element>(matrix: &'a Buffer<T>, rows: usize, columns: usize, box_rows: u32) -> Result<TensorMap<'a>> {
        TensorMap::describe(matrix, &[rows, columns], box_rows)
    }

    /// Sides from the slowest to the fastest.
    fn describe<T: Element>(matrix: &'a Buffer<T>, sides: &[usize], box_rows: u32) -> Result<TensorMap<'a>> {
        let (columns, above) = sides.split_last().expect("a matrix has sides");
        let rows = above.iter().try_fold(1_usize, |rows, &side| rows.checked_mul(side)).unwrap_or(usize::MAX);
        check::<T>(matrix.len(), rows, *columns, box_rows)?;
        let (Memory::Cuda(memory), Gpu::Cuda(gpu)) = (&matrix.memory, &matrix.gpu) else {
            return Err(needs_hardware(
                "there is no copy engine (TMA)",
                "use a kernel that loads its tiles itself, such as `matmul_bf16/04_swizzle`",
            ));
        };
        if gpu.capability()? < 90 {
            return Err(Error::Unsupported {
                what: "the copy engine (TMA) came with compute capability 9.0".to_string(),
                fix: "use a kernel that loads its tiles itself, such as `matmul_bf16/04_swizzle`".to_string(),
            });
        }
        let map = gpu.tensor_map(memory, T::TYPE, sides, box_rows)?;
        Ok(TensorMap { map, memory: &matrix.memory, index: matrix.gpu.index(), buffer: PhantomData })
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
        TensorMap::describe(stack, &[matrices, rows, columns], box_rows)
    }

    /// The same for writing.
    ///
    /// # Errors
    /// As [`TensorMap::new`].
    pub fn of_written_stack<T: Element>(
        stack: &'a mut Buffer<T>,
        sides: (usize, usize, usize),
        box_rows: u32,
    ) -> Result<TensorMap<'a>> {
        TensorMap::of_stack(stack, sides, box_rows)
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
        TensorMap::new(matrix, rows, columns, box_rows)
    }
}

/// What the engine asks for: whole rows, 16-byte boundaries, boxes of at most 256 rows.
fn check<T: Element>(len: usize, rows: usize, columns: usize, box_rows: u32) -> Result<()> {
    let wrong = |what: String, fix: &str| Err(Error::Invalid { what, fix: fix.to_string() });
    if rows.checked_mul(columns) != Some(len) {
        let expected = rows.saturating_mul(columns);
        return Err(Error::LengthMismatch { what: "the matrix of a tensor map".to_string(), expected, given: len });
    }
    if rows == 0 || columns == 0 || !(columns * size_of::<T>()).is_multiple_of(16) {
        return wrong(
            format!("the copy engine takes no rows of {columns} elements of {} bytes", size_of::<T>()),
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let message = TensorMap::new(&gpu.zeros::<u16>(64).unwrap(), 8, 8, 8).unwrap_err().to_string();
        assert!(message.contains("TMA") && message.contains("04_swizzle"), "{message}");
    }
}
