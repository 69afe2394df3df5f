//! One rung of the embedding lookup, ready to run and to time on a GPU.

use super::{Allocation, Array, Cost, HostArray, Launches, Loaded, Reference, Size, Topic, check, length, lengths};
use gpulab::bench::Bench;
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu};
use gpulab::measurement::Summary;
use rayon::prelude::*;

/// Rows, their width and how many are looked up, that a new kernel is checked at: rows that are no multiple of 16 bytes, of
/// a warp, of a tile.
const AWKWARD: [(usize, usize, usize); 8] =
    [(3, 4, 0), (1, 1, 1), (7, 31, 33), (100, 33, 31), (33, 65, 127), (50, 4, 1003), (1000, 64, 259), (40, 4100, 5)];

/// A lookup kernel of the course on one GPU: `out[i]` is row `index[i]` of a table, in f32. It moves 8 bytes for each
/// element of the result (one read, one write), and reads 4 for each index.
///
/// No kernel reads outside the table: the place of an index that names no row is filled with NaN. A launch cannot
/// return an error, as it has not run yet; [`Embedding::lookup`], which has the indices at hand, does.
#[derive(Debug, Clone)]
pub struct Embedding(Loaded);

impl Embedding {
    /// Compiles the rung of that path, such as `embedding/03_four_at_once`, and checks it at awkward shapes.
    ///
    /// ```no_run
    /// use gpulab::prelude::*;
    /// use gpulab_kernels::{topics::Topic, *};
    /// let gpu = Gpu::open()?;
    /// let embedding = Embedding::new(&gpu, "embedding/03_four_at_once")?;
    /// println!("{} ms", embedding.time(Size::Three(131072, 4096, 32768), &Bench::default())?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path that is none, or a kernel whose result is wrong; [`Error::Unsupported`] for a GPU
    /// that is too old for it; those of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<Embedding> {
        let embedding = Embedding(Loaded::new(gpu, path)?);
        for size @ (rows, width, count) in AWKWARD {
            let (table, mut index) = (cpu::random_f32(rows * width, 1), random_rows(count, rows, 2));
            // Indices of no row, of both signs and next to the last one.
            for (at, bad) in [(3, -1), (8, rows as i32), (14, i32::MAX), (26, i32::MIN)] {
                if let Some(index) = index.get_mut(at) {
                    *index = bad;
                }
            }
            check(&embedding, path, &[HostArray::F32(table), HostArray::Index(index)], size)?;
        }
        Ok(embedding)
    }

    /// All four steps: checks the indices, allocates, copies the table and them to the device, launches, and copies the
    /// rows back, one behind the other.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an index that names no row, with its position; for a width of 0, and more than 2³¹
    /// elements; [`Error::LengthMismatch`] for a table that is no whole number of rows; [`Error::OutOfMemory`],
    /// [`Error::Driver`].
    pub fn lookup(&self, table: &[f32], width: usize, index: &[i32]) -> Result<Vec<f32>> {
        let rows = rows_of(table.len(), width)?;
        inside(index, rows)?;
        let size = Size::Three(rows, width, index.len());
        // Poisoned: an element that the kernel forgets comes back as NaN.
        let mut out = self.0.gpu.poison(elements(size)?)?;
        let (table, index) = (self.0.gpu.to_device(table)?, self.0.gpu.to_device(index)?);
        self.launch(&mut Launches::queue(), &table, &index, &mut out, size)?;
        out.to_host()
    }

    /// The kernel alone, by device events, in **ms per call**, with a table that is on the GPU: its elements are taken as
    /// rows of that width, of which `count` uniform random ones are looked up. Indices and results are rotated, so that no
    /// row is still in the cache from the last turn.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a width of 0 or a table of 0 rows, [`Error::LengthMismatch`] for a table that is no whole
    /// number of rows, [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn time_on(&self, table: &Buffer<f32>, width: usize, count: usize, plan: &Bench) -> Result<Summary> {
        let gpu = &self.0.gpu;
        gpu.has_times()?;
        let rows = rows_of(table.len(), width)?;
        let size = Size::Three(rows, width, count);
        // Each set reads rows of its own, as many bytes as it writes.
        let sets = gpu.sets_past_cache(self.work(size)?.bytes);
        let set = |seed| Ok((gpu.to_device(&random_rows(count, rows, seed))?, gpu.alloc(count * width)?));
        let mut sets = (2..2 + sets as u64).map(set).collect::<Result<Vec<_>>>()?;
        gpu.time(plan, |call| {
            let at = call % sets.len();
            let (index, out) = &mut sets[at];
            self.launch(&mut Launches::queue(), table, index, out, size)
        })
    }

    fn launch(
        &self,
        launches: &mut Launches,
        table: &Buffer<f32>,
        index: &Buffer<i32>,
        out: &mut Buffer<f32>,
        size: Size,
    ) -> Result<()> {
        let (rows, width, count) = size.three()?;
        let given = [("table", table.len(), rows * width), ("index", index.len(), count)];
        lengths("a lookup", &given)?;
        lengths("a lookup", &[("result", out.len(), elements(size)?)])?;
        // A block of some rungs takes ROWS rows of any width, with a warp for each: their tiles count its lanes.
        let by_rows = self.0.rung.defines.iter().any(|&(name, _)| name == "ROWS");
        let columns = count * if by_rows { 32 } else { width };
        self.0.launch(launches, columns, 1, (table, index, out, length(count)?, length(width)?, length(rows)?))
    }
}

/// A size is the rows of the table, their width, and the number of indices.
impl Topic for Embedding {
    fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    fn work(&self, size: Size) -> Result<Cost> {
        let (rows, width, count) = size.three()?;
        if rows == 0 {
            return Err(Error::invalid("a table of 0 rows has nothing to look up", "give it at least one row"));
        }
        elements(size)?;
        // Each row is read and written, each index read.
        let moved = count.saturating_mul(width.saturating_mul(8).saturating_add(4));
        // The kernel reads `count` rows of the table, and writes as many bytes.
        let held = rows.saturating_mul(width).saturating_mul(4).saturating_add(moved);
        Ok(Cost::of_bytes(moved, 0.0, "f32").holding(held))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        let (rows, width, count) = size.three()?;
        let table = HostArray::F32(cpu::random_f32(rows * width, seed));
        Ok(vec![table, HostArray::Index(random_rows(count, rows, seed + 1))])
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        Ok(vec![Allocation::F32(elements(size)?)])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        self.launch(launches, inputs[0].f32()?, inputs[1].index()?, outputs[0].f32_mut()?, size)
    }

    fn rows(&self, size: Size) -> Result<(usize, usize)> {
        let (_, width, count) = size.three()?;
        // Enough places of narrow rows too.
        Ok((count, (65_536 / width.max(1)).max(64)))
    }

    /// A copy is exact; the place of an index that names no row holds NaN.
    fn exact_row(&self, inputs: &[HostArray], size: Size, place: usize) -> Result<Vec<Reference>> {
        let (rows, width, _) = size.three()?;
        let row = inputs[1].get(place);
        let values = match row >= 0.0 && row < rows as f64 {
            true => inputs[0].part(row as usize * width, width),
            false => vec![f64::NAN; width],
        };
        Ok(vec![Reference::new(0, place * width, values, |_, _| 0.0)])
    }
}

/// How many numbers a lookup gives.
fn elements(size: Size) -> Result<usize> {
    let (_, width, count) = size.three()?;
    let elements = count.saturating_mul(width);
    length(elements).map(|_| elements)
}

/// `count` uniform random indices of a table of `rows` rows, the same ones for the same seed.
fn random_rows(count: usize, rows: usize, seed: u64) -> Vec<i32> {
    // Two numbers for each, as one has 24 bits, and a table may have as many rows.
    let (high, low) = (cpu::random_f32(count, seed), cpu::random_f32(count, seed + 1_000_000));
    let row = |(high, low): (f32, f32)| {
        let unit = (f64::from(high) + 1.0) / 2.0 + (f64::from(low) + 1.0) / 2.0 / f64::from(1 << 24);
        ((unit * rows as f64) as usize).min(rows.saturating_sub(1)) as i32
    };
    high.into_par_iter().zip(low).map(row).collect()
}

/// How many rows of that width these are.
fn rows_of(elements: usize, width: usize) -> Result<usize> {
    if width == 0 {
        return Err(Error::invalid("a table whose rows have 0 elements", "give the width of a row, in elements"));
    }
    match elements % width {
        0 => Ok(elements / width),
        left => {
            let what = format!("a table of rows of {width} elements");
            Err(Error::LengthMismatch { what, expected: elements - left, given: elements })
        }
    }
}

/// An error that names the first index of no row.
fn inside(index: &[i32], rows: usize) -> Result<()> {
    let outside = |&row: &i32| usize::try_from(row).map_or(true, |row| row >= rows);
    match index.iter().position(outside) {
        None => Ok(()),
        Some(at) => Err(Error::invalid(
            match rows {
                0 => format!("the index at position {at} is {}: the table has no rows", index[at]),
                _ => format!("the index at position {at} is {}: the table has rows 0 to {}", index[at], rows - 1),
            },
            "look for an id that is larger than the vocabulary, or a padding id such as -1, and map it to a row",
        )),
    }
}

#[cfg(test)]
mod tests;
