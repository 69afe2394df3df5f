//! One rung of a norm, ready to run and to time on a GPU.

use super::rows::{AWKWARD_NUMBERS, AWKWARD_TABLES, agree, holds, in_f64, numbers, sides, some_rows};
use super::{Allocation, Array, Cost, HostArray, Launches, Reference, Size, Topic, compiled};
use crate::ladder::Rung;
use gpulab::bench::Bench;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu, Kernel};
use gpulab::measurement::Summary;

/// Added to the variance, or to the mean square, so that a row of equal numbers divides by no 0.
pub const EPSILON: f32 = 1e-5;

/// A norm of the course on one GPU, for each row of a bf16 table (`u16` to the host), sums in f32; 4 bytes an element.
/// A layer norm is `y = (x - mean) / sqrt(variance + EPSILON) * weight + bias`,
/// an RMS norm `y = x / sqrt(mean of x² + EPSILON) * weight`.
#[derive(Debug, Clone)]
pub struct Norm {
    gpu: Gpu,
    rung: Rung,
    kernel: Kernel,
}

/// What a norm reads: the table, and a weight for each column; a layer norm a bias for each column as well.
#[derive(Debug)]
pub struct NormInputs<'a> {
    /// `rows` times `columns` numbers.
    pub x: &'a Buffer<u16>,
    /// `columns` numbers.
    pub weight: &'a Buffer<u16>,
    /// `columns` numbers for a layer norm, `None` for an RMS norm.
    pub bias: Option<&'a Buffer<u16>>,
}

impl Norm {
    /// Compiles the rung of that path, such as `layer_norm/02_welford` or `rms_norm/03_registers`, and checks it against
    /// f64 at awkward sizes, also with rows whose mean is far from 0.
    ///
    /// ```no_run
    /// use gpulab::prelude::*;
    /// use gpulab_kernels::*;
    /// let gpu = Gpu::open()?;
    /// let norm = Norm::new(&gpu, "rms_norm/03_registers")?;
    /// println!("{} ms", norm.time(32_768, 8192, &Bench::default())?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path that is none, or a kernel whose result is wrong; [`Error::Unsupported`] for a GPU
    /// that is too old for it; those of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<Norm> {
        let (rung, kernel) = compiled(gpu, path)?;
        let norm = Norm { gpu: gpu.clone(), rung, kernel };
        for (turn, (rows, columns)) in AWKWARD_TABLES.into_iter().enumerate() {
            let x = numbers(rows * columns, 1, AWKWARD_NUMBERS[turn % AWKWARD_NUMBERS.len()]);
            let (weight, bias) = (numbers(columns, 2, (0.5, 1.0)), norm.bias(columns, 3));
            norm.check(&norm.norm(&x, &weight, bias.as_deref(), rows)?, &x, &weight, bias.as_deref())?;
        }
        Ok(norm)
    }

    /// Whether it is a layer norm, which subtracts the mean and adds a bias; else it is an RMS norm.
    pub fn is_layer_norm(&self) -> bool {
        self.rung.kernel == "layer_norm"
    }

    fn bias(&self, columns: usize, seed: u64) -> Option<Vec<u16>> {
        self.is_layer_norm().then(|| numbers(columns, seed, (1.0, 0.0)))
    }

    /// All four steps: allocates, copies the inputs to the device, launches, and copies the result back. There are as
    /// many columns as weights.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when `x` is no table of so many rows and columns, or `bias` has another length than
    /// `weight`; [`Error::Invalid`] for a bias that a layer norm lacks or an RMS norm has, or for sides beyond `int`;
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn norm(&self, x: &[u16], weight: &[u16], bias: Option<&[u16]>, rows: usize) -> Result<Vec<u16>> {
        // Poisoned: a number that the kernel forgets comes back as NaN.
        let mut y = self.gpu.poison(x.len())?;
        let on_gpu = |host| self.gpu.to_device(host);
        let bias = bias.map(on_gpu).transpose()?;
        let inputs = NormInputs { x: &on_gpu(x)?, weight: &on_gpu(weight)?, bias: bias.as_ref() };
        self.launch(inputs, &mut y, rows)?;
        y.to_host()
    }

    /// The kernel alone, by device events, in **ms a call**: the arrays are on the GPU already. Several tables are
    /// rotated, so that none is still in the cache from its last turn.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn time(&self, rows: usize, columns: usize, plan: &Bench) -> Result<Summary> {
        self.gpu.has_times()?;
        sides(rows, columns)?;
        let count = self.gpu.sets_past_cache(4 * rows * columns);
        let weight = self.gpu.to_device(&numbers(columns, 2, (0.5, 1.0)))?;
        let bias = self.bias(columns, 3).map(|bias| self.gpu.to_device(&bias)).transpose()?;
        let set = |seed| {
            // First what fails where there is no room, before the host makes as many numbers.
            let y = self.gpu.alloc(rows * columns)?;
            Ok((self.gpu.to_device(&numbers(rows * columns, seed, AWKWARD_NUMBERS[0]))?, y))
        };
        let mut sets = (0..count as u64).map(set).collect::<Result<Vec<_>>>()?;
        self.gpu.time(plan, |call| {
            let (x, y) = &mut sets[call % count];
            self.launch(NormInputs { x, weight: &weight, bias: bias.as_ref() }, y, rows)
        })
    }

    /// One launch, on the default stream.
    ///
    /// # Errors
    /// As [`Kernel::launch`]; and those of [`Norm::norm`] for inputs that do not fit together.
    pub fn launch(&self, inputs: NormInputs<'_>, y: &mut Buffer<u16>, rows: usize) -> Result<()> {
        self.launch_by(&mut Launches::queue(), inputs, y, rows)
    }

    fn launch_by(
        &self,
        launches: &mut Launches,
        inputs: NormInputs<'_>,
        y: &mut Buffer<u16>,
        rows: usize,
    ) -> Result<()> {
        let NormInputs { x, weight, bias } = inputs;
        let columns = weight.len();
        let (row_count, column_count) = sides(rows, columns)?;
        holds("a norm's `x`", x.len(), rows * columns)?;
        holds("a norm's `y`", y.len(), rows * columns)?;
        bias.map_or(Ok(()), |bias| holds("a norm's `bias`", bias.len(), columns))?;
        if bias.is_some() != self.is_layer_norm() {
            return Err(Error::Invalid {
                what: format!("`{}` {}", self.rung.path, if bias.is_some() { "adds no bias" } else { "adds a bias" }),
                fix: "give `Some(bias)` to a layer norm, and `None` to an RMS norm".to_string(),
            });
        }
        // Nothing to compute; a launch has at least one block.
        if rows == 0 || columns == 0 {
            return Ok(());
        }
        let config = self.rung.launch(columns, rows, self.gpu.multiprocessors());
        match bias {
            Some(bias) => launches.launch(&self.kernel, config, (x, weight, bias, y, row_count, column_count, EPSILON)),
            None => launches.launch(&self.kernel, config, (x, weight, y, row_count, column_count, EPSILON)),
        }
    }

    /// One row in f64.
    fn exact_row(&self, x: &[f64], weight: &[f64], bias: Option<&[f64]>) -> Row {
        let mean_of = |numbers: &dyn Fn(&f64) -> f64| x.iter().map(numbers).sum::<f64>() / x.len() as f64;
        let mean = if self.is_layer_norm() { mean_of(&|x| *x) } else { 0.0 };
        let scale = 1.0 / (mean_of(&|x| (x - mean).powi(2)) + f64::from(EPSILON)).sqrt();
        let bias = |column: usize| bias.map_or(0.0, |bias| bias[column]);
        let y = x.iter().zip(weight).enumerate().map(|(i, (x, weight))| (x - mean) * scale * weight + bias(i));
        Row { y: y.collect(), largest: x.iter().fold(0.0, |most: f64, x| most.max(x.abs())) * scale }
    }

    fn check(&self, given: &[u16], x: &[u16], weight: &[u16], bias: Option<&[u16]>) -> Result<()> {
        let columns = weight.len();
        let (weight, bias) = (in_f64(weight), bias.map(in_f64));
        for (row, (given, x)) in given.chunks(columns).zip(x.chunks(columns)).enumerate() {
            let exact = self.exact_row(&in_f64(x), &weight, bias.as_deref());
            // The mean, and the sum with the bias, are rounded in f32; so they may be off by a part of what they are
            // made of, which is more than of the result where both nearly cancel.
            let bias = |column: usize| bias.as_ref().map_or(0.0, |bias| bias[column].abs());
            let slack = |column: usize| 2.0_f64.powi(-20) * (exact.largest * weight[column].abs() + bias(column));
            agree(self.rung.path, &format!("{columns} columns, row {row}"), given, &exact.y, slack)?;
        }
        Ok(())
    }
}

/// A row's norm in f64, and its largest number before the mean is subtracted, in the same scale.
struct Row {
    y: Vec<f64>,
    largest: f64,
}

/// A size is (rows, columns).
impl Topic for Norm {
    fn work(&self, size: Size) -> Result<Cost> {
        let (rows, columns) = size.two()?;
        sides(rows, columns)?;
        let (small, operations) = if self.is_layer_norm() { (2, 7.0) } else { (1, 4.0) };
        Ok(Cost::of_bytes(4 * rows * columns + 2 * small * columns, operations * (rows * columns) as f64, "bf16"))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        let (rows, columns) = size.two()?;
        let x = numbers(rows * columns, 3 * seed, (4.0, 1.0));
        let small = [Some(numbers(columns, 3 * seed + 1, (0.5, 1.0))), self.bias(columns, 3 * seed + 2)];
        Ok([Some(x)].into_iter().chain(small).flatten().map(HostArray::Bf16).collect())
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        let (rows, columns) = size.two()?;
        Ok(vec![Allocation::Bf16(rows * columns)])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        let bias = inputs.get(2).map(Array::bf16).transpose()?;
        let inputs = NormInputs { x: inputs[0].bf16()?, weight: inputs[1].bf16()?, bias };
        self.launch_by(launches, inputs, outputs[0].bf16_mut()?, size.two()?.0)
    }

    fn exact(&self, inputs: &[HostArray], size: Size) -> Result<Vec<Reference>> {
        let (rows, columns) = size.two()?;
        let (weight, bias) = (inputs[1].part(0, columns), inputs.get(2).map(|bias| bias.part(0, columns)));
        let piece = |row| {
            let from = row * columns;
            let values = self.exact_row(&inputs[0].part(from, columns), &weight, bias.as_deref()).y;
            Reference { output: 0, from, values }
        };
        Ok(some_rows(rows, columns).into_iter().map(piece).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::hardware;
    use super::*;
    use crate::ladder::RUNGS;
    use gpulab::cpu;

    fn rungs() -> impl Iterator<Item = &'static Rung> {
        RUNGS.iter().filter(|rung| matches!(rung.kernel, "layer_norm" | "rms_norm"))
    }

    fn bits(numbers: &[f32]) -> Vec<u16> {
        numbers.iter().map(|&x| cpu::bf16_from_f32(x)).collect()
    }

    #[test]
    fn every_rung_takes_any_table_and_refuses_what_is_none() {
        let gpu = Gpu::simulated().unwrap();
        for rung in rungs() {
            let norm = Norm::new(&gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
            let (x, ones) = (bits(&[3.0, 3.0, 0.0, 0.0, f32::NAN, 1.0]), bits(&[1.0, 1.0]));
            let bias = norm.is_layer_norm().then_some(&ones[..]);
            let y: Vec<f32> = norm.norm(&x, &ones, bias, 3).unwrap().into_iter().map(cpu::f32_from_bf16).collect();
            // Equal numbers have no variance; of zeros all is zero; NaN stays in its own row.
            assert_eq!(y[..4], if norm.is_layer_norm() { [1.0; 4] } else { [1.0, 1.0, 0.0, 0.0] }, "{}", rung.path);
            assert!(y[4..].iter().all(|y| y.is_nan()), "{}: {y:?}", rung.path);
            assert_eq!(
                (norm.norm(&[], &ones, bias, 0), norm.norm(&[], &[], bias.map(|_| &[][..]), 5)),
                (Ok(vec![]), Ok(vec![]))
            );
            let refused = |x, weight, bias| norm.norm(x, weight, bias, 3).unwrap_err().to_string();
            assert!(refused(&x[1..], &ones, bias).contains("a norm's `x`"));
            assert!(refused(&x, &ones, if bias.is_some() { None } else { Some(&ones) }).contains("\nnext: give `Some"));
            assert!(refused(&x, &ones, Some(&ones[1..])).contains("a norm's `bias`"));
            assert!(norm.time(3, 3, &Bench::default()).unwrap_err().to_string().contains("next: "));
        }
    }

    #[test]
    fn every_rung_is_checked_and_timed_on_a_gpu() {
        let Some(gpu) = hardware() else { return };
        for rung in rungs() {
            let norm = Norm::new(&gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
            assert!(norm.time(33, 1000, &Bench::default().samples(5)).unwrap().median > 0.0);
        }
    }

    #[test]
    fn a_variance_that_has_lost_its_digits_is_found() {
        let gpu = Gpu::simulated().unwrap();
        let norm = Norm::new(&gpu, "layer_norm/01_two_passes").unwrap();
        let x = numbers(1000, 7, AWKWARD_NUMBERS[2]);
        let (ones, zeros) = (bits(&[1.0; 1000]), bits(&[0.0; 1000]));
        norm.check(&norm.norm(&x, &ones, Some(&zeros), 1).unwrap(), &x, &ones, Some(&zeros)).unwrap();
        // The mean of the squares less the square of the mean, in f32, one number after the other.
        let floats: Vec<f32> = x.iter().map(|&x| cpu::f32_from_bf16(x)).collect();
        let (mut sum, mut squares) = (0.0, 0.0);
        floats.iter().for_each(|x| (sum, squares) = (sum + x, squares + x * x));
        let (mean, scale) = (sum / 1000.0, (squares / 1000.0 - (sum / 1000.0).powi(2) + EPSILON).sqrt().recip());
        let y: Vec<f32> = floats.iter().map(|x| (x - mean) * scale).collect();
        assert!(norm.check(&bits(&y), &x, &ones, Some(&zeros)).unwrap_err().to_string().contains("row 0, column "));
    }
}
