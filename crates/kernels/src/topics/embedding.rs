//! One rung of the embedding lookup, ready to run and to time on a GPU.

use super::{
    Allocation, Array, Cost, HostArray, Launches, Reference, Size, Topic, compiled, length, spread_rows, wrong,
};
use crate::ladder::Rung;
use gpulab::bench::Bench;
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu, Kernel};
use gpulab::launch::LaunchConfig;
use gpulab::measurement::Summary;
use rayon::prelude::*;

/// Count, width and rows that a new kernel is checked at: rows that are no multiple of 16 bytes, of a warp, of a tile.
const SHAPES: [(usize, usize, usize); 8] =
    [(0, 4, 3), (1, 1, 1), (33, 31, 7), (31, 33, 100), (127, 65, 33), (1003, 4, 50), (259, 64, 1000), (5, 4100, 40)];

/// A lookup kernel of the course on one GPU: `out[i]` is row `index[i]` of a table, in f32. It moves 8 bytes for each
/// element of the result (one read, one write), and reads 4 for each index.
///
/// No kernel reads outside the table: the place of an index that names no row is filled with NaN. A launch cannot
/// return an error, as it has not run yet; [`Embedding::lookup`], which has the indices at hand, does.
#[derive(Debug, Clone)]
pub struct Embedding {
    gpu: Gpu,
    rung: Rung,
    kernel: Kernel,
}

impl Embedding {
    /// Compiles the rung of that path, such as `embedding/03_four_at_once`, and checks it at awkward shapes.
    ///
    /// ```no_run
    /// use gpulab::prelude::*;
    /// use gpulab_kernels::*;
    /// let gpu = Gpu::open()?;
    /// let embedding = Embedding::new(&gpu, "embedding/03_four_at_once")?;
    /// println!("{} ms", embedding.time(131072, 4096, 32768, &Bench::default())?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path that is none, or a kernel whose result is wrong; [`Error::Unsupported`] for a GPU
    /// that is too old for it; those of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<Embedding> {
        let (rung, kernel) = compiled(gpu, path)?;
        let embedding = Embedding { gpu: gpu.clone(), rung, kernel };
        for (count, width, rows) in SHAPES {
            let (table, mut index) = (cpu::random_f32(rows * width, 1), random_rows(count, rows, 2));
            // Indices of no row, of both signs and next to the last one.
            for (at, bad) in [(3, -1), (8, rows as i32), (14, i32::MAX), (26, i32::MIN)] {
                if let Some(index) = index.get_mut(at) {
                    *index = bad;
                }
            }
            // Numbers that are no NaN: a place that the kernel forgets shows itself, even where NaN is right.
            let mut out = gpu.to_device(&vec![7.0; count * width])?;
            embedding.launch(&gpu.to_device(&table)?, width, &gpu.to_device(&index)?, &mut out)?;
            agree(path, &out.to_host()?, &table, width, &index)?;
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
        length(index.len().saturating_mul(width))?;
        inside(index, rows)?;
        // Poisoned: an element that the kernel forgets comes back as NaN.
        let mut out = self.gpu.poison(index.len() * width)?;
        self.launch(&self.gpu.to_device(table)?, width, &self.gpu.to_device(index)?, &mut out)?;
        out.to_host()
    }

    /// The kernel alone, by device events, in **ms a call**: of a table of `rows` random rows of `width` elements, `count`
    /// uniform random ones, all on the GPU already.
    ///
    /// # Errors
    /// As [`Embedding::time_on`]; [`Error::Invalid`] for a table of 0.
    pub fn time(&self, rows: usize, width: usize, count: usize, plan: &Bench) -> Result<Summary> {
        self.gpu.has_times()?;
        some_rows(rows)?;
        self.time_on(&self.gpu.to_device(&cpu::random_f32(rows.saturating_mul(width), 1))?, width, count, plan)
    }

    /// The same with a table that is on the GPU: its elements are taken as rows of that width. Indices and results are
    /// rotated, so that no row is still in the cache from the last turn.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a width of 0, [`Error::LengthMismatch`] for a table that is no whole number of rows,
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn time_on(&self, table: &Buffer<f32>, width: usize, count: usize, plan: &Bench) -> Result<Summary> {
        self.gpu.has_times()?;
        let rows = rows_of(table.len(), width)?;
        some_rows(rows)?;
        length(count.saturating_mul(width))?;
        let set = |seed| Ok((self.gpu.to_device(&random_rows(count, rows, seed))?, self.gpu.alloc(count * width)?));
        // Each set reads rows of its own, as many bytes as it writes.
        let sets = self.gpu.sets_past_cache(bytes(count, width));
        let mut sets = (2..2 + sets as u64).map(set).collect::<Result<Vec<_>>>()?;
        self.gpu.time(plan, |call| {
            let at = call % sets.len();
            let (index, out) = &mut sets[at];
            self.launch(table, width, index, out)
        })
    }

    /// One launch, on the default stream. Indices are checked by the kernel alone: where one names no row, the result
    /// is NaN.
    ///
    /// # Errors
    /// As [`Kernel::launch`]; [`Error::LengthMismatch`] for a table that is no whole number of rows, or a result of
    /// another size; [`Error::Invalid`] for a width of 0, and more than 2³¹ elements.
    pub fn launch(&self, table: &Buffer<f32>, width: usize, index: &Buffer<i32>, out: &mut Buffer<f32>) -> Result<()> {
        self.launch_by(&mut Launches::queue(), table, width, index, out)
    }

    fn launch_by(
        &self,
        launches: &mut Launches,
        table: &Buffer<f32>,
        width: usize,
        index: &Buffer<i32>,
        out: &mut Buffer<f32>,
    ) -> Result<()> {
        let (rows, count) = (rows_of(table.len(), width)?, index.len());
        let elements = count.saturating_mul(width);
        if out.len() != elements {
            let what = "the result of a lookup".to_string();
            return Err(Error::LengthMismatch { what, expected: elements, given: out.len() });
        }
        length(elements)?;
        let numbers = (length(count)?, length(width)?, length(rows)?);
        let arguments = (table, index, out, numbers.0, numbers.1, numbers.2);
        launches.launch(&self.kernel, self.config(count, width), arguments)
    }

    /// The launch for so many rows of that width.
    pub fn config(&self, count: usize, width: usize) -> LaunchConfig {
        // A block of some rungs takes ROWS rows of any width, with a warp for each: their tiles count its lanes.
        let by_rows = self.rung.defines.iter().any(|&(name, _)| name == "ROWS");
        self.rung.launch(count * if by_rows { 32 } else { width }, 1, self.gpu.multiprocessors())
    }
}

/// A size is the rows of the table, their width, and the number of indices.
impl Topic for Embedding {
    fn work(&self, size: Size) -> Result<Cost> {
        let (rows, width, count) = size.three()?;
        some_rows(rows)?;
        length(count.saturating_mul(width))?;
        let moved = bytes(count, width);
        // The kernel reads `count` rows of the table, and writes as many bytes.
        let held = rows.saturating_mul(width).saturating_mul(4).saturating_add(moved);
        Ok(Cost::of_bytes(moved, 0.0, "f32").holding(held))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        let (rows, width, count) = size.three()?;
        Ok(vec![
            HostArray::F32(cpu::random_f32(rows * width, seed)),
            HostArray::Index(random_rows(count, rows, seed + 1)),
        ])
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        let (_, width, count) = size.three()?;
        Ok(vec![Allocation::F32(count * width)])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        let (table, index) = (inputs[0].f32()?, inputs[1].index()?);
        self.launch_by(launches, table, size.three()?.1, index, outputs[0].f32_mut()?)
    }

    fn exact(&self, inputs: &[HostArray], size: Size) -> Result<Vec<Reference>> {
        let (_, width, count) = size.three()?;
        let place = |place: usize| {
            let row = inputs[1].get(place) as usize;
            Reference { output: 0, from: place * width, values: inputs[0].part(row * width, width) }
        };
        // Enough places of narrow rows too.
        Ok(spread_rows(count, (65_536 / width.max(1)).max(64)).into_iter().map(place).collect())
    }
}

/// What a lookup moves at least: each row read and written, each index read.
fn bytes(count: usize, width: usize) -> usize {
    count.saturating_mul(width.saturating_mul(8).saturating_add(4))
}

/// An error where there is nothing to look up.
fn some_rows(rows: usize) -> Result<()> {
    match rows {
        0 => Err(Error::Invalid {
            what: "a table of 0 rows has nothing to look up".to_string(),
            fix: "give it at least one row".to_string(),
        }),
        _ => Ok(()),
    }
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
        return Err(Error::Invalid {
            what: "a table whose rows have 0 elements".to_string(),
            fix: "give the width of a row, in elements".to_string(),
        });
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
        Some(at) => Err(Error::Invalid {
            what: match rows {
                0 => format!("the index at position {at} is {}: the table has no rows", index[at]),
                _ => format!("the index at position {at} is {}: the table has rows 0 to {}", index[at], rows - 1),
            },
            fix: "look for an id that is larger than the vocabulary, or a padding id such as -1, and map it to a row"
                .to_string(),
        }),
    }
}

/// A copy is exact. The place of an index that names no row holds NaN, and nothing else does.
fn agree(path: &str, given: &[f32], table: &[f32], width: usize, index: &[i32]) -> Result<()> {
    let rows = table.len() / width;
    for (place, &row) in index.iter().enumerate() {
        let given = &given[place * width..][..width];
        let good = usize::try_from(row).ok().filter(|&row| row < rows);
        let expected = |column: usize| good.map_or(f32::NAN, |row| table[row * width + column]);
        let same = |column: usize| match good {
            Some(_) => given[column] == expected(column),
            None => given[column].is_nan(),
        };
        if let Some(column) = (0..width).find(|&column| !same(column)) {
            return Err(wrong(
                path,
                format!(
                    "place {place} of {}, row {row} of {rows}, column {column} of {width}: {} on the GPU, {} on the CPU",
                    index.len(),
                    given[column],
                    expected(column)
                ),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
