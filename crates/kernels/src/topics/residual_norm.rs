//! One rung of the residual addition with its RMS norm, ready to run and to time on a GPU.

use super::rows::{in_f64, sides};
use super::{Allocation, Array, Cost, HostArray, Launches, Reference, Size, Topic, compiled, spread_rows, wrong};
use crate::ladder::Rung;
use gpulab::bench::Bench;
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu, Kernel};
use gpulab::measurement::Summary;

/// What is added to the mean of the squares, so that a row of zeros is divided by something. Llama's.
const EPSILON: f32 = 1e-6;

/// Operations on an element: the sum, its square, the sum of the squares, two products.
const OPERATIONS: f64 = 5.0;

/// Rows and columns that a new kernel is checked at: rows of whole 16 bytes and others, and longer than the registers.
const AWKWARD: [(usize, usize); 7] = [(1, 1), (31, 31), (33, 33), (5, 1000), (3, 8192), (2, 8193), (2, 20_000)];

/// A residual_rms_norm kernel of the course on one GPU: `sum = x + residual`, rounded to bf16, and `y = sum · weight /
/// √(mean of the row's sum² + ε)`, from bf16 to bf16 (`u16` to the host), in f32 between: 8 bytes an element of `x`.
#[derive(Debug, Clone)]
pub struct ResidualNorm {
    gpu: Gpu,
    rung: Rung,
    kernel: Kernel,
}

impl ResidualNorm {
    /// Compiles the rung of that path, such as `residual_rms_norm/03_in_registers`, and checks it in f64.
    ///
    /// ```no_run
    /// use gpulab::prelude::*;
    /// use gpulab_kernels::*;
    /// let gpu = Gpu::open()?;
    /// let norm = ResidualNorm::new(&gpu, "residual_rms_norm/03_in_registers")?;
    /// println!("{} ms", norm.time(32_768, 8192, &Bench::default())?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path that is none, or a kernel whose result is wrong; [`Error::Unsupported`] for a GPU
    /// that is too old for it; the errors of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<ResidualNorm> {
        let (rung, kernel) = compiled(gpu, path)?;
        let norm = ResidualNorm { gpu: gpu.clone(), rung, kernel };
        for (rows, columns) in AWKWARD {
            let (x, residual) = (cpu::random_bf16(rows * columns, 1), cpu::random_bf16(rows * columns, 2));
            let weight = cpu::random_bf16(columns, 3);
            let given = norm.norm(&x, &residual, &weight)?;
            agree(path, &given, (&x, &residual, &weight))?;
        }
        Ok(norm)
    }

    /// All four steps: allocates, copies everything to the device, launches, and copies `sum` and `y` back. A row is as
    /// long as `weight`.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when `x` and `residual` are not both of the same number of whole rows,
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn norm(&self, x: &[u16], residual: &[u16], weight: &[u16]) -> Result<(Vec<u16>, Vec<u16>)> {
        // Poisoned: an element that the kernel forgets comes back as NaN.
        let (mut sum, mut y) = (self.gpu.poison(x.len())?, self.gpu.poison(x.len())?);
        let (x, residual) = (self.gpu.to_device(x)?, self.gpu.to_device(residual)?);
        self.launch((&x, &residual, &self.gpu.to_device(weight)?), (&mut sum, &mut y))?;
        Ok((sum.to_host()?, y.to_host()?))
    }

    /// The kernel alone, by device events, in **ms a call**: everything is on the GPU already. Several sets are
    /// rotated, so that none is still in the cache from its last turn.
    ///
    /// # Errors
    /// As [`ResidualNorm::norm`].
    pub fn time(&self, rows: usize, columns: usize, plan: &Bench) -> Result<Summary> {
        self.gpu.has_times()?;
        let n = rows * columns;
        let count = self.gpu.sets_past_cache(4 * n * size_of::<u16>());
        let random = |n, seed| self.gpu.to_device(&cpu::random_bf16(n, seed));
        let weight = random(columns, 1)?;
        let set = |seed| Ok((random(n, 2 * seed)?, random(n, 2 * seed + 1)?, self.gpu.alloc(n)?, self.gpu.alloc(n)?));
        let mut sets = (1..=count as u64).map(set).collect::<Result<Vec<_>>>()?;
        self.gpu.time(plan, |call| {
            let (x, residual, sum, y) = &mut sets[call % count];
            self.launch((x, residual, &weight), (sum, y))
        })
    }

    /// The launch alone, on the default stream.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] as for [`ResidualNorm::norm`], before anything runs; the errors of [`Kernel::launch`].
    pub fn launch(
        &self,
        inputs: (&Buffer<u16>, &Buffer<u16>, &Buffer<u16>),
        outputs: (&mut Buffer<u16>, &mut Buffer<u16>),
    ) -> Result<()> {
        self.launch_by(&mut Launches::queue(), inputs, outputs)
    }

    fn launch_by(
        &self,
        launches: &mut Launches,
        (x, residual, weight): (&Buffer<u16>, &Buffer<u16>, &Buffer<u16>),
        (sum, y): (&mut Buffer<u16>, &mut Buffer<u16>),
    ) -> Result<()> {
        let columns = weight.len();
        let rows = x.len().checked_div(columns).unwrap_or(0);
        let lengths = [
            ("x, by rows as long as the weight,", x.len(), rows * columns),
            ("residual", residual.len(), x.len()),
            ("sum", sum.len(), x.len()),
            ("y", y.len(), x.len()),
        ];
        for (what, given, expected) in lengths {
            if given != expected {
                return Err(Error::LengthMismatch { what: format!("residual_rms_norm's {what}"), expected, given });
            }
        }
        // Nothing to norm; a launch has at least one block.
        if rows == 0 {
            return Ok(());
        }
        let config = self.rung.launch(columns, rows, self.gpu.multiprocessors());
        let (rows, columns) = sides(rows, columns)?;
        launches.launch(&self.kernel, config, (x, residual, weight, sum, y, rows, columns, EPSILON))
    }
}

/// A size is (rows, columns). The arrays are x, residual and weight; y and sum.
impl Topic for ResidualNorm {
    fn work(&self, size: Size) -> Result<Cost> {
        let (rows, columns) = size.two()?;
        sides(rows, columns)?;
        let n = rows * columns;
        Ok(Cost::of_bytes(8 * n, OPERATIONS * n as f64, "bf16"))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        let (rows, columns) = size.two()?;
        let random = |count, seed| HostArray::Bf16(cpu::random_bf16(count, seed));
        let n = rows * columns;
        Ok(vec![random(n, 3 * seed), random(n, 3 * seed + 1), random(columns, 3 * seed + 2)])
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        let (rows, columns) = size.two()?;
        Ok(vec![Allocation::Bf16(rows * columns); 2])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], _size: Size, launches: &mut Launches) -> Result<()> {
        let [y, sum] = outputs else { unreachable!("`outputs` asks for two arrays") };
        let inputs = (inputs[0].bf16()?, inputs[1].bf16()?, inputs[2].bf16()?);
        self.launch_by(launches, inputs, (sum.bf16_mut()?, y.bf16_mut()?))
    }

    fn exact(&self, inputs: &[HostArray], size: Size) -> Result<Vec<Reference>> {
        let (rows, columns) = size.two()?;
        let weight = inputs[2].part(0, columns);
        let piece = |output, row: usize, values| Reference { output, from: row * columns, values };
        let pieces = spread_rows(rows, 32).into_iter().flat_map(|row| {
            let added = |at| cpu::bf16_from_f32((inputs[0].get(at) + inputs[1].get(at)) as f32);
            let sums: Vec<u16> = (row * columns..(row + 1) * columns).map(added).collect();
            [piece(0, row, normed(&sums, &weight)), piece(1, row, in_f64(&sums))]
        });
        Ok(pieces.collect())
    }
}

fn number(bits: u16) -> f64 {
    f64::from(cpu::f32_from_bf16(bits))
}

/// The norm of a row of sums, in f64.
fn normed(sums: &[u16], weight: &[f64]) -> Vec<f64> {
    let squares: f64 = sums.iter().map(|&bits| number(bits) * number(bits)).sum();
    let scale = (squares / sums.len() as f64 + f64::from(EPSILON)).sqrt().recip();
    sums.iter().zip(weight).map(|(&bits, weight)| number(bits) * scale * weight).collect()
}

/// Compares with the norm in f64 of the sums that the kernel stored; those must be the nearest bf16. Rounding to bf16 is
/// off by at most 2⁻⁸ of the result; the sum of the squares and what follows, in f32, by 2⁻¹⁶ of it at most.
fn agree(path: &str, (sum, y): &(Vec<u16>, Vec<u16>), (x, residual, weight): (&[u16], &[u16], &[u16])) -> Result<()> {
    let weights = in_f64(weight);
    for (row, sums) in sum.chunks(weight.len()).enumerate() {
        let place = |column: usize| format!("rows of {}, row {row}, column {column}", weight.len());
        let normed = normed(sums, &weights);
        for (column, &own) in sums.iter().enumerate() {
            let at = row * weight.len() + column;
            let nearest = cpu::bf16_from_f32(cpu::f32_from_bf16(x[at]) + cpu::f32_from_bf16(residual[at]));
            if own != nearest {
                let text = format!("{}: the sum is {} on the GPU, {}", place(column), number(own), number(nearest));
                return Err(wrong(path, format!("{text} exactly")));
            }
            let exact = normed[column];
            let error = (number(y[at]) - exact).abs();
            // An element that was never written is NaN, which is greater than nothing.
            if error.is_nan() || error > exact.abs() * (2.0_f64.powi(-8) + 2.0_f64.powi(-16)) {
                let text = format!("{}: y is {} on the GPU, {exact} exactly", place(column), number(y[at]));
                return Err(wrong(path, text));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ladder;
    use crate::ladder::RUNGS;

    #[test]
    fn a_wrong_or_unwritten_number_is_named() {
        let [one, two, three] = [1.0, 2.0, 3.0].map(cpu::bf16_from_f32);
        let inputs: (&[u16], &[u16], &[u16]) = (&[one, one], &[one, one], &[one, three]);
        // Both sums are 2, and so is the root of their mean square.
        assert_eq!(agree("r", &(vec![two, two], vec![one, three]), inputs), Ok(()));
        for (sum, y, text) in [
            (two, two, "row 0, column 1: y is 2 on"),
            (two, u16::MAX, "y is NaN"),
            (three, three, "the sum is 3 on the GPU, 2 exactly"),
            (u16::MAX, three, "column 0: y is"),
        ] {
            let error = agree("r", &(vec![two, sum], vec![one, y]), inputs).unwrap_err().to_string();
            assert!(error.contains("\nnext: "), "{error}");
            assert!(sum != two || error.contains(text), "{error}");
        }
    }

    #[test]
    fn every_rung_norms_any_size_and_refuses_what_does_not_fit() {
        let gpu = Gpu::simulated().unwrap();
        for rung in RUNGS.iter().filter(|rung| rung.kernel == "residual_rms_norm") {
            let norm = ResidualNorm::new(&gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(norm.norm(&[], &[], &[0; 8]), Ok((vec![], vec![])), "{}", rung.path);
            assert_eq!(norm.norm(&[], &[], &[]), Ok((vec![], vec![])), "{}", rung.path);
            // A row of zeros: the epsilon keeps it from 0 / 0.
            assert_eq!(norm.norm(&[0; 40], &[0; 40], &[0x3F80; 40]), Ok((vec![0; 40], vec![0; 40])), "{}", rung.path);
            for (x, residual, weight, expected) in [(9, 9, 8, "x, by rows"), (8, 7, 8, "residual"), (8, 8, 0, "x, by")]
            {
                let refused = norm.norm(&vec![0; x], &vec![0; residual], &vec![0; weight]).unwrap_err().to_string();
                assert!(refused.contains(expected) && refused.contains("\nnext: "), "{refused}");
            }
            assert!(norm.time(33, 128, &Bench::default()).unwrap_err().to_string().contains("next: "));
        }
    }

    #[test]
    fn in_registers_each_number_is_read_once_and_written_once() {
        let (rows, columns) = (4, 8192);
        let (table, weights) = (2 * rows * columns, 2 * rows * columns);
        let seen = Ladder::ResidualNorm.counters((rows, columns)).unwrap();
        let bytes = |rung: &str| seen.get(rung).unwrap().global_bytes() as usize;
        assert_eq!([bytes("02"), bytes("03")], [5 * table + weights, 4 * table + weights]);
    }

    #[test]
    fn every_rung_is_checked_and_timed_on_a_gpu() {
        let Some(gpu) = crate::topics::hardware() else { return };
        for rung in RUNGS.iter().filter(|rung| rung.kernel == "residual_rms_norm") {
            let norm = ResidualNorm::new(&gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
            assert!(norm.time(33, 256, &Bench::default().samples(5)).unwrap().median > 0.0);
        }
    }
}
