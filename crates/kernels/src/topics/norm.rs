//! One rung of a norm, ready to run and to time on a GPU.

use super::rows::{AWKWARD_NUMBERS, AWKWARD_TABLES, compared, numbers, rounding, sides, table};
use super::{Allocation, Array, Cost, HostArray, Launches, Loaded, Reference, Size, Topic, check, lengths};
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu};

/// Added to the variance, or to the mean square, so that a row of equal numbers divides by no 0.
pub const EPSILON: f32 = 1e-5;

/// A norm of the course on one GPU, for each row of a bf16 table (`u16` to the host), sums in f32; 4 bytes per element.
/// A layer norm is `y = (x - mean) / sqrt(variance + EPSILON) * weight + bias`,
/// an RMS norm `y = x / sqrt(mean of x² + EPSILON) * weight`. A size is (rows, columns).
#[derive(Debug, Clone)]
pub struct Norm(Loaded);

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
    /// use gpulab_kernels::{topics::Topic, *};
    /// let gpu = Gpu::open()?;
    /// let norm = Norm::new(&gpu, "rms_norm/03_registers")?;
    /// println!("{} ms", norm.time(Size::Two(32_768, 8192), &Bench::default())?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path that is none, or a kernel whose result is wrong; [`Error::Unsupported`] for a GPU
    /// that is too old for it; those of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<Norm> {
        let norm = Norm(Loaded::new(gpu, path)?);
        for (size, scale) in AWKWARD_TABLES.into_iter().zip(AWKWARD_NUMBERS.into_iter().cycle()) {
            let mut inputs = norm.inputs(size.into(), 1)?;
            inputs[0] = HostArray::Bf16(numbers(size.0 * size.1, 1, scale));
            check(&norm, path, &inputs, size)?;
        }
        Ok(norm)
    }

    /// Whether it is a layer norm, which subtracts the mean and adds a bias; else it is an RMS norm.
    pub fn is_layer_norm(&self) -> bool {
        self.0.rung.kernel == "layer_norm"
    }

    /// One launch, on the default stream.
    ///
    /// # Errors
    /// As [`gpulab::gpu::Kernel::launch`].
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
        let bias_len = bias.map_or(columns, Buffer::len);
        let n = rows * columns;
        lengths("a norm", &[("x", x.len(), n), ("y", y.len(), n), ("bias", bias_len, columns)])?;
        if bias.is_some() != self.is_layer_norm() {
            let what = if bias.is_some() { "adds no bias" } else { "adds a bias" };
            return Err(Error::invalid(
                format!("`{}` {what}", self.0.rung.path),
                "give `Some(bias)` to a layer norm, and `None` to an RMS norm",
            ));
        }
        match bias {
            Some(bias) => {
                let args = (x, weight, bias, y, row_count, column_count, EPSILON);
                self.0.launch(launches, columns, rows, args)
            }
            None => self.0.launch(launches, columns, rows, (x, weight, y, row_count, column_count, EPSILON)),
        }
    }
}

impl Topic for Norm {
    fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    fn work(&self, size: Size) -> Result<Cost> {
        let (_, columns, n) = table(size)?;
        let (small, operations) = if self.is_layer_norm() { (2, 7.0) } else { (1, 4.0) };
        Ok(Cost::of_bytes(4 * n + 2 * small * columns, operations * n as f64, "bf16"))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        let (_, columns, n) = table(size)?;
        let (x, weight) = (numbers(n, 3 * seed, (4.0, 1.0)), numbers(columns, 3 * seed + 1, (0.5, 1.0)));
        let bias = self.is_layer_norm().then(|| numbers(columns, 3 * seed + 2, (1.0, 0.0)));
        Ok([x, weight].into_iter().chain(bias).map(HostArray::Bf16).collect())
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        Ok(vec![Allocation::Bf16(table(size)?.2)])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        let (rows, columns, _) = table(size)?;
        let bias = inputs.get(2).map(Array::bf16).transpose()?;
        let inputs = NormInputs { x: inputs[0].bf16()?, weight: inputs[1].bf16()?, bias };
        lengths("a norm", &[("weight", inputs.weight.len(), columns)])?;
        self.launch_by(launches, inputs, outputs[0].bf16_mut()?, rows)
    }

    fn rows(&self, size: Size) -> Result<(usize, usize)> {
        compared(size)
    }

    fn exact_row(&self, inputs: &[HostArray], size: Size, row: usize) -> Result<Vec<Reference>> {
        let (_, columns) = size.two()?;
        let x = inputs[0].part(row * columns, columns);
        let weight = |column: usize| inputs[1].get(column);
        let bias = |column: usize| inputs.get(2).map_or(0.0, |bias| bias.get(column));
        let mean_of = |number: &dyn Fn(f64) -> f64| x.iter().map(|&x| number(x)).sum::<f64>() / columns as f64;
        let mean = if self.is_layer_norm() { mean_of(&|x| x) } else { 0.0 };
        let scale = 1.0 / (mean_of(&|x| (x - mean).powi(2)) + f64::from(EPSILON)).sqrt();
        let y = x.iter().zip(0..).map(|(x, column)| (x - mean) * scale * weight(column) + bias(column)).collect();
        // The mean, and the sum with the bias, are rounded in f32; so they may be off by a part of what they are made
        // of, which is more than of the result where both nearly cancel.
        let largest = x.iter().fold(0.0, |most: f64, x| most.max(x.abs())) * scale;
        let slack = |column| 2.0_f64.powi(-20) * (largest * weight(column).abs() + bias(column).abs());
        Ok(vec![Reference::new(0, row * columns, y, |column, y| rounding(y) + slack(column))])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::{RUNGS, Rung};
    use gpulab::prelude::*;

    fn rungs() -> impl Iterator<Item = &'static Rung> {
        RUNGS.iter().filter(|rung| matches!(rung.kernel, "layer_norm" | "rms_norm"))
    }

    fn bits(numbers: &[f32]) -> HostArray {
        HostArray::Bf16(numbers.iter().map(|&x| cpu::bf16_from_f32(x)).collect())
    }

    #[test]
    fn every_rung_takes_any_table_and_refuses_what_is_none() {
        let gpu = Gpu::simulated().unwrap();
        for rung in rungs() {
            let norm = Norm::new(&gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
            let (x, ones) = (bits(&[3.0, 3.0, 0.0, 0.0, f32::NAN, 1.0]), bits(&[1.0, 1.0]));
            let given = |inputs: &[&HostArray], rows, columns| {
                let inputs: Vec<HostArray> = inputs.iter().copied().cloned().collect();
                norm.results(&inputs, Size::Two(rows, columns))
            };
            let all = |x, weight, bias| if norm.is_layer_norm() { vec![x, weight, bias] } else { vec![x, weight] };
            let y = given(&all(&x, &ones, &ones), 3, 2).unwrap()[0].part(0, 6);
            // Equal numbers have no variance; of zeros all is zero; NaN stays in its own row.
            assert_eq!(y[..4], if norm.is_layer_norm() { [1.0; 4] } else { [1.0, 1.0, 0.0, 0.0] }, "{}", rung.path);
            assert!(y[4..].iter().all(|y| y.is_nan()), "{}: {y:?}", rung.path);
            let none = bits(&[]);
            for empty in [given(&all(&none, &ones, &ones), 0, 2), given(&all(&none, &none, &none), 5, 0)] {
                assert_eq!(empty, Ok(vec![none.clone()]));
            }
            let refused = |inputs: &[&HostArray]| given(inputs, 3, 2).unwrap_err().to_string();
            let one = bits(&[1.0]);
            assert!(refused(&all(&ones, &ones, &ones)).contains("a norm's `x`"));
            assert!(refused(&all(&x, &one, &ones)).contains("a norm's `weight`"));
            assert!(refused(&[&x, &ones, &one]).contains("a norm's `bias`"));
            let other = if norm.is_layer_norm() { vec![&x, &ones] } else { vec![&x, &ones, &ones] };
            assert!(refused(&other).contains("\nnext: give `Some"));
            assert!(norm.time(Size::Two(3, 3), &Bench::default()).unwrap_err().to_string().contains("next: "));
        }
    }

    #[test]
    fn a_variance_that_has_lost_its_digits_is_found() {
        let gpu = Gpu::simulated().unwrap();
        let norm = Norm::new(&gpu, "layer_norm/01_two_passes").unwrap();
        let x = numbers(1000, 7, AWKWARD_NUMBERS[2]);
        let inputs = [HostArray::Bf16(x.clone()), bits(&[1.0; 1000]), bits(&[0.0; 1000])];
        let exact = norm.exact_row(&inputs, Size::Two(1, 1000), 0).unwrap();
        assert_eq!(exact[0].wrong_in(&norm.results(&inputs, Size::Two(1, 1000)).unwrap()), None);
        // The mean of the squares less the square of the mean, in f32, one number after the other.
        let floats: Vec<f32> = x.iter().map(|&x| cpu::f32_from_bf16(x)).collect();
        let (mut sum, mut squares) = (0.0, 0.0);
        floats.iter().for_each(|x| (sum, squares) = (sum + x, squares + x * x));
        let (mean, scale) = (sum / 1000.0, (squares / 1000.0 - (sum / 1000.0).powi(2) + EPSILON).sqrt().recip());
        let y: Vec<f32> = floats.iter().map(|x| (x - mean) * scale).collect();
        assert!(exact[0].wrong_in(&[bits(&y)]).is_some());
    }
}
