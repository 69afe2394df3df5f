//! One rung of the softmax, ready to run and to time on a GPU.

use super::rows::{AWKWARD_NUMBERS, AWKWARD_TABLES, agree, holds, in_f64, numbers, sides, some_rows};
use super::{Allocation, Array, Cost, HostArray, Launches, Reference, Size, Topic, compiled};
use crate::ladder::Rung;
use gpulab::bench::Bench;
use gpulab::error::Result;
use gpulab::gpu::{Buffer, Gpu, Kernel};
use gpulab::measurement::Summary;

/// A softmax kernel of the course on one GPU: `y = exp(x) / sum of exp(x)` for each row of a bf16 table (`u16` to the
/// host), sums in f32; 4 bytes an element.
#[derive(Debug, Clone)]
pub struct Softmax {
    gpu: Gpu,
    rung: Rung,
    kernel: Kernel,
}

impl Softmax {
    /// Compiles the rung of that path, such as `softmax/03_online`, and checks it against f64 at awkward sizes, also with
    /// numbers whose exp is infinite.
    ///
    /// ```no_run
    /// use gpulab::prelude::*;
    /// use gpulab_kernels::*;
    /// let gpu = Gpu::open()?;
    /// let softmax = Softmax::new(&gpu, "softmax/05_registers")?;
    /// println!("{} ms", softmax.time(32_768, 8192, &Bench::default())?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) for a path that is none, or a kernel whose result is wrong;
    /// [`Error::Unsupported`](gpulab::Error::Unsupported) for a GPU that is too old for it; those of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<Softmax> {
        let (rung, kernel) = compiled(gpu, path)?;
        let softmax = Softmax { gpu: gpu.clone(), rung, kernel };
        for (turn, (rows, columns)) in AWKWARD_TABLES.into_iter().enumerate() {
            let x = numbers(rows * columns, 1, AWKWARD_NUMBERS[turn % AWKWARD_NUMBERS.len()]);
            check(path, &softmax.softmax(&x, rows, columns)?, &x, columns)?;
        }
        Ok(softmax)
    }

    /// All four steps: allocates, copies `x`, of `rows` times `columns` bf16, to the device, launches, and copies the
    /// result back.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`](gpulab::Error::LengthMismatch) when `x` is no such table,
    /// [`Error::Invalid`](gpulab::Error::Invalid) for sides beyond `int`,
    /// [`Error::OutOfMemory`](gpulab::Error::OutOfMemory), [`Error::Driver`](gpulab::Error::Driver).
    pub fn softmax(&self, x: &[u16], rows: usize, columns: usize) -> Result<Vec<u16>> {
        sides(rows, columns)?;
        holds("softmax's `x`", x.len(), rows * columns)?;
        // Poisoned: a number that the kernel forgets comes back as NaN.
        let mut y = self.gpu.poison(x.len())?;
        self.launch(&self.gpu.to_device(x)?, &mut y, rows, columns)?;
        y.to_host()
    }

    /// The kernel alone, by device events, in **ms a call**: the table is on the GPU already. Several are rotated, so
    /// that none is still in the cache from its last turn.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](gpulab::Error::OutOfMemory), [`Error::Driver`](gpulab::Error::Driver).
    pub fn time(&self, rows: usize, columns: usize, plan: &Bench) -> Result<Summary> {
        self.gpu.has_times()?;
        sides(rows, columns)?;
        let count = self.gpu.sets_past_cache(4 * rows * columns);
        let set = |seed| {
            // First what fails where there is no room, before the host makes as many numbers.
            let y = self.gpu.alloc(rows * columns)?;
            Ok((self.gpu.to_device(&numbers(rows * columns, seed, AWKWARD_NUMBERS[0]))?, y))
        };
        let mut sets = (0..count as u64).map(set).collect::<Result<Vec<_>>>()?;
        self.gpu.time(plan, |call| {
            let (x, y) = &mut sets[call % count];
            self.launch(x, y, rows, columns)
        })
    }

    /// One launch, on the default stream.
    ///
    /// # Errors
    /// As [`Kernel::launch`]; [`Error::LengthMismatch`](gpulab::Error::LengthMismatch) for a buffer that is no such table.
    pub fn launch(&self, x: &Buffer<u16>, y: &mut Buffer<u16>, rows: usize, columns: usize) -> Result<()> {
        self.launch_by(&mut Launches::queue(), x, y, (rows, columns))
    }

    fn launch_by(
        &self,
        launches: &mut Launches,
        x: &Buffer<u16>,
        y: &mut Buffer<u16>,
        (rows, columns): (usize, usize),
    ) -> Result<()> {
        let (row_count, column_count) = sides(rows, columns)?;
        holds("softmax's `x`", x.len(), rows * columns)?;
        holds("softmax's `y`", y.len(), rows * columns)?;
        // Nothing to compute; a launch has at least one block.
        if rows == 0 || columns == 0 {
            return Ok(());
        }
        let config = self.rung.launch(columns, rows, self.gpu.multiprocessors());
        launches.launch(&self.kernel, config, (x, y, row_count, column_count))
    }
}

/// A size is (rows, columns).
impl Topic for Softmax {
    fn work(&self, size: Size) -> Result<Cost> {
        let (rows, columns) = size.two()?;
        sides(rows, columns)?;
        // A comparison, a subtraction, exp, an addition and a multiplication for each number.
        Ok(Cost::of_bytes(4 * rows * columns, 5.0 * (rows * columns) as f64, "bf16"))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        let (rows, columns) = size.two()?;
        Ok(vec![HostArray::Bf16(numbers(rows * columns, seed, AWKWARD_NUMBERS[0]))])
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        let (rows, columns) = size.two()?;
        Ok(vec![Allocation::Bf16(rows * columns)])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        self.launch_by(launches, inputs[0].bf16()?, outputs[0].bf16_mut()?, size.two()?)
    }

    fn exact(&self, inputs: &[HostArray], size: Size) -> Result<Vec<Reference>> {
        let (rows, columns) = size.two()?;
        let piece = |row| {
            let from = row * columns;
            Reference { output: 0, from, values: exact_row(&inputs[0].part(from, columns)) }
        };
        Ok(some_rows(rows, columns).into_iter().map(piece).collect())
    }
}

/// The softmax of one row in f64.
fn exact_row(x: &[f64]) -> Vec<f64> {
    let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = x.iter().map(|x| (x - most).exp()).sum();
    x.iter().map(|x| (x - most).exp() / sum).collect()
}

fn check(path: &str, given: &[u16], x: &[u16], columns: usize) -> Result<()> {
    for (row, (given, x)) in given.chunks(columns).zip(x.chunks(columns)).enumerate() {
        // Below the smallest normal number GPUs round to 0.
        let smallest = |_| f64::from(f32::MIN_POSITIVE);
        agree(path, &format!("{columns} columns, row {row}"), given, &exact_row(&in_f64(x)), smallest)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::hardware;
    use super::*;
    use crate::ladder::RUNGS;
    use gpulab::cpu;

    fn rungs() -> impl Iterator<Item = &'static Rung> {
        RUNGS.iter().filter(|rung| rung.kernel == "softmax")
    }

    fn bits(numbers: &[f32]) -> Vec<u16> {
        numbers.iter().map(|&x| cpu::bf16_from_f32(x)).collect()
    }

    #[test]
    fn every_rung_takes_any_table_and_refuses_what_is_none() {
        let gpu = Gpu::simulated().unwrap();
        let (minus, nan) = (f32::NEG_INFINITY, f32::NAN);
        for rung in rungs() {
            let softmax = Softmax::new(&gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
            // Masked numbers get nothing; a row of nothing else has no softmax, and NaN stays in its own row.
            let x = bits(&[minus, 0.0, 0.0, minus, minus, minus, 1.0, nan, 1.0, 3e38, -3e38, 3e38]);
            let y: Vec<f32> = softmax.softmax(&x, 4, 3).unwrap().into_iter().map(cpu::f32_from_bf16).collect();
            assert_eq!((&y[..3], &y[9..]), (&[0.0, 0.5, 0.5][..], &[0.5, 0.0, 0.5][..]), "{}", rung.path);
            assert!(y[3..9].iter().all(|y| y.is_nan()), "{}: {y:?}", rung.path);
            assert_eq!((softmax.softmax(&[], 0, 5), softmax.softmax(&[], 5, 0)), (Ok(vec![]), Ok(vec![])));
            assert!(softmax.softmax(&x, 5, 3).unwrap_err().to_string().contains("softmax's `x`"));
            assert!(softmax.time(3, 3, &Bench::default()).unwrap_err().to_string().contains("next: "));
        }
    }

    #[test]
    fn every_rung_is_checked_and_timed_on_a_gpu() {
        let Some(gpu) = hardware() else { return };
        for rung in rungs() {
            let softmax = Softmax::new(&gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
            assert!(softmax.time(33, 1000, &Bench::default().samples(5)).unwrap().median > 0.0);
        }
    }

    #[test]
    fn a_softmax_that_ignores_the_largest_number_is_found() {
        let x = bits(&[100.0, 99.0]);
        assert_eq!(check("s", &bits(&[0.731_058_6, 0.268_941_4]), &x, 2), Ok(()));
        // exp(100) / (exp(100) + exp(99)) in f32 is infinity / infinity.
        assert!(check("s", &bits(&[f32::NAN, f32::NAN]), &x, 2).unwrap_err().to_string().contains("row 0, column 0"));
    }
}
