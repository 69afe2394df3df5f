//! One rung of the softmax, ready to run and to time on a GPU.

use super::rows::{AWKWARD_NUMBERS, AWKWARD_TABLES, compared, numbers, rounding, sides, table};
use super::{Allocation, Array, Cost, HostArray, Launches, Loaded, Reference, Size, Topic, check, lengths};
use crate::ladder::{Language, Rung};
use crate::tiles::TileProgram;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Gpu, Module};

/// A softmax kernel of the course on one GPU: `y = exp(x) / sum of exp(x)` for each row of a bf16 table (`u16` to the
/// host), sums in f32; 4 bytes per element. A size is (rows, columns).
#[derive(Debug, Clone)]
pub struct Softmax(Loaded);

impl Softmax {
    /// Compiles the rung of that path, such as `softmax/03_online`, and checks it against f64 at awkward sizes, also with
    /// numbers whose exp is infinite.
    ///
    /// ```no_run
    /// use gpulab::prelude::*;
    /// use gpulab_kernels::{topics::Topic, *};
    /// let gpu = Gpu::open()?;
    /// let softmax = Softmax::new(&gpu, "softmax/05_registers")?;
    /// println!("{} ms", softmax.time(Size::Two(32_768, 8192), &Bench::default())?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) for a path that is none, or a kernel whose result is wrong;
    /// [`Error::Unsupported`](gpulab::Error::Unsupported) for a GPU that is too old for it; those of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<Softmax> {
        let softmax = Softmax(Loaded::new(gpu, path)?);
        for (size, scale) in AWKWARD_TABLES.into_iter().zip(AWKWARD_NUMBERS.into_iter().cycle()) {
            check(&softmax, path, &[HostArray::Bf16(numbers(size.0 * size.1, 1, scale))], size)?;
        }
        Ok(softmax)
    }

    /// The program on tiles with its constants, from the module that was made of its source; checked likewise.
    ///
    /// # Errors
    /// As [`Softmax::new`].
    pub fn on_tiles(gpu: &Gpu, program: &TileProgram, module: &Module) -> Result<Softmax> {
        let softmax = Softmax(Loaded::on_tiles(gpu, program, module)?);
        for (size, scale) in AWKWARD_TABLES.into_iter().zip(AWKWARD_NUMBERS.into_iter().cycle()) {
            if size.1 <= softmax.longest() {
                check(&softmax, softmax.0.rung.path, &[HostArray::Bf16(numbers(size.0 * size.1, 1, scale))], size)?;
            }
        }
        Ok(softmax)
    }

    /// Numbers of a row at most: a program on tiles has them all in registers.
    fn longest(&self) -> usize {
        let Rung { language, block, each_thread, .. } = self.0.rung;
        if language == Language::Rust && each_thread > 0 { (block.0 * each_thread) as usize } else { usize::MAX }
    }
}

impl Topic for Softmax {
    fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    fn work(&self, size: Size) -> Result<Cost> {
        let (_, _, n) = table(size)?;
        // A comparison, a subtraction, exp, an addition and a multiplication for each number.
        Ok(Cost::of_bytes(4 * n, 5.0 * n as f64, "bf16"))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        Ok(vec![HostArray::Bf16(numbers(table(size)?.2, seed, AWKWARD_NUMBERS[0]))])
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        Ok(vec![Allocation::Bf16(table(size)?.2)])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        let (rows, columns, n) = table(size)?;
        let (x, y) = (inputs[0].bf16()?, outputs[0].bf16_mut()?);
        lengths("softmax", &[("x", x.len(), n), ("y", y.len(), n)])?;
        let (row_count, column_count) = sides(rows, columns)?;
        if columns > self.longest() {
            return Err(Error::invalid(
                format!("rows of {columns} numbers: the registers of this program's block hold {}", self.longest()),
                "give `TileProgram::softmax` more vectors a thread, or use `softmax/06_block_as_long_as_row`",
            ));
        }
        self.0.launch(launches, columns, rows, (x, y, row_count, column_count))
    }

    fn rows(&self, size: Size) -> Result<(usize, usize)> {
        compared(size)
    }

    fn exact_row(&self, inputs: &[HostArray], size: Size, row: usize) -> Result<Vec<Reference>> {
        let (_, columns) = size.two()?;
        let y = exact(&inputs[0].part(row * columns, columns));
        // Below the smallest normal number GPUs round to 0.
        Ok(vec![Reference::new(0, row * columns, y, |_, y| rounding(y) + f64::from(f32::MIN_POSITIVE))])
    }
}

/// A row's softmax.
fn exact(x: &[f64]) -> Vec<f64> {
    let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = x.iter().map(|x| (x - most).exp()).sum();
    x.iter().map(|x| (x - most).exp() / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::RUNGS;
    use gpulab::prelude::*;

    fn rungs() -> impl Iterator<Item = &'static Rung> {
        RUNGS.iter().filter(|rung| rung.kernel == "softmax")
    }

    fn bits(numbers: &[f32]) -> HostArray {
        HostArray::Bf16(numbers.iter().map(|&x| cpu::bf16_from_f32(x)).collect())
    }

    #[test]
    fn every_rung_takes_any_table_and_refuses_what_is_none() {
        let gpu = Gpu::simulated().unwrap();
        let (minus, nan) = (f32::NEG_INFINITY, f32::NAN);
        for rung in rungs() {
            let softmax = Softmax::new(&gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
            // Masked numbers get nothing; a row of nothing else has no softmax, and NaN stays in its own row.
            let x = bits(&[minus, 0.0, 0.0, minus, minus, minus, 1.0, nan, 1.0, 3e38, -3e38, 3e38]);
            let given = |x: &[HostArray], rows, columns| softmax.results(x, Size::Two(rows, columns));
            let y = given(std::slice::from_ref(&x), 4, 3).unwrap()[0].part(0, 12);
            assert_eq!((&y[..3], &y[9..]), (&[0.0, 0.5, 0.5][..], &[0.5, 0.0, 0.5][..]), "{}", rung.path);
            assert!(y[3..9].iter().all(|y| y.is_nan()), "{}: {y:?}", rung.path);
            let none = [bits(&[])];
            assert_eq!((given(&none, 0, 5), given(&none, 5, 0)), (Ok(none.to_vec()), Ok(none.to_vec())));
            assert!(given(&[x], 5, 3).unwrap_err().to_string().contains("softmax's `x`"));
            assert!(softmax.time(Size::Two(3, 3), &Bench::default()).unwrap_err().to_string().contains("next: "));
        }
    }

    #[test]
    fn a_softmax_that_ignores_the_largest_number_is_found() {
        let softmax = Softmax::new(&Gpu::simulated().unwrap(), "softmax/02_block_a_row").unwrap();
        let exact = softmax.exact_row(&[bits(&[100.0, 99.0])], Size::Two(1, 2), 0).unwrap();
        assert_eq!(exact[0].wrong_in(&[bits(&[0.731_058_6, 0.268_941_4])]), None);
        // exp(100) / (exp(100) + exp(99)) in f32 is infinity / infinity.
        assert!(exact[0].wrong_in(&[bits(&[f32::NAN, f32::NAN])]).unwrap().contains("number 0"));
    }
}
