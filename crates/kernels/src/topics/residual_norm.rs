//! One rung of the residual addition with its RMS norm, ready to run and to time on a GPU.

use super::rows::{compared, rounding, sides, table};
use super::{Allocation, Array, Cost, HostArray, Launches, Loaded, Reference, Size, Topic, check, lengths};
use gpulab::cpu;
use gpulab::error::Result;
use gpulab::gpu::Gpu;

/// What is added to the mean of the squares, so that a row of zeros is divided by something. Llama's.
const EPSILON: f32 = 1e-6;

/// Operations on an element: the sum, its square, the sum of the squares, two products.
const OPERATIONS: f64 = 5.0;

/// Rows and columns that a new kernel is checked at: rows of whole 16 bytes and others, and longer than the registers.
const AWKWARD: [(usize, usize); 7] = [(1, 1), (31, 31), (33, 33), (5, 1000), (3, 8192), (2, 8193), (2, 20_000)];

/// A residual_rms_norm kernel of the course on one GPU: `sum = x + residual`, rounded to bf16, and `y = sum · weight /
/// √(mean of the row's sum² + ε)`, from bf16 to bf16 (`u16` to the host), in f32 between: 8 bytes per element of `x`.
/// A size is (rows, columns); the inputs are `x`, `residual` and the columns' `weight`, the outputs `y` and `sum`.
#[derive(Debug, Clone)]
pub struct ResidualNorm(Loaded);

impl ResidualNorm {
    /// Compiles the rung of that path, such as `residual_rms_norm/03_in_registers`, and checks it in f64.
    ///
    /// ```no_run
    /// use gpulab::prelude::*;
    /// use gpulab_kernels::{topics::Topic, *};
    /// let gpu = Gpu::open()?;
    /// let norm = ResidualNorm::new(&gpu, "residual_rms_norm/03_in_registers")?;
    /// println!("{} ms", norm.time(Size::Two(32_768, 8192), &Bench::default())?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) for a path that is none, or a kernel whose result is wrong;
    /// [`Error::Unsupported`](gpulab::Error::Unsupported) for a GPU that is too old for it; those of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<ResidualNorm> {
        let norm = ResidualNorm(Loaded::new(gpu, path)?);
        for size in AWKWARD {
            check(&norm, path, &norm.inputs(size.into(), 1)?, size)?;
        }
        Ok(norm)
    }
}

impl Topic for ResidualNorm {
    fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    fn work(&self, size: Size) -> Result<Cost> {
        let (_, _, n) = table(size)?;
        Ok(Cost::of_bytes(8 * n, OPERATIONS * n as f64, "bf16"))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        let (_, columns, n) = table(size)?;
        let random = |count, seed| HostArray::Bf16(cpu::random_bf16(count, seed));
        Ok(vec![random(n, 3 * seed), random(n, 3 * seed + 1), random(columns, 3 * seed + 2)])
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        Ok(vec![Allocation::Bf16(table(size)?.2); 2])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        let (rows, columns, n) = table(size)?;
        let (x, residual, weight) = (inputs[0].bf16()?, inputs[1].bf16()?, inputs[2].bf16()?);
        let [y, sum] = outputs else { unreachable!("`outputs` asks for two arrays") };
        let (y, sum) = (y.bf16_mut()?, sum.bf16_mut()?);
        let given = [("x", x.len(), n), ("residual", residual.len(), n), ("weight", weight.len(), columns)];
        lengths("residual_rms_norm", &given)?;
        lengths("residual_rms_norm", &[("sum", sum.len(), n), ("y", y.len(), n)])?;
        let (row_count, column_count) = sides(rows, columns)?;
        self.0.launch(launches, columns, rows, (x, residual, weight, sum, y, row_count, column_count, EPSILON))
    }

    fn rows(&self, size: Size) -> Result<(usize, usize)> {
        compared(size)
    }

    /// The sum is rounded once, so every machine gives the same bits; `y` is made of the rounded sum.
    fn exact_row(&self, inputs: &[HostArray], size: Size, row: usize) -> Result<Vec<Reference>> {
        let (_, columns) = size.two()?;
        let from = row * columns;
        let added = |at| cpu::bf16_from_f32((inputs[0].get(at) + inputs[1].get(at)) as f32);
        let sums: Vec<f64> = (from..from + columns).map(|at| cpu::f32_from_bf16(added(at)).into()).collect();
        let squares: f64 = sums.iter().map(|sum| sum * sum).sum();
        let scale = (squares / columns as f64 + f64::from(EPSILON)).sqrt().recip();
        let y = sums.iter().zip(inputs[2].part(0, columns)).map(|(sum, weight)| sum * scale * weight).collect();
        let in_f32 = 2.0_f64.powi(-16);
        Ok(vec![
            Reference::new(0, from, y, |_, y| rounding(y) + y.abs() * in_f32),
            Reference::new(1, from, sums, |_, _| 0.0),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ladder;
    use crate::ladder::RUNGS;
    use gpulab::prelude::*;

    #[test]
    fn every_rung_norms_any_size_and_refuses_what_does_not_fit() {
        let gpu = Gpu::simulated().unwrap();
        let zeros = |count| HostArray::Bf16(vec![0; count]);
        for rung in RUNGS.iter().filter(|rung| rung.kernel == "residual_rms_norm") {
            let norm = ResidualNorm::new(&gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
            let given = |[x, residual, weight]: [usize; 3], rows, columns| {
                norm.results(&[zeros(x), zeros(residual), zeros(weight)], Size::Two(rows, columns))
            };
            for (rows, columns) in [(0, 8), (0, 0)] {
                assert_eq!(given([0, 0, columns], rows, columns), Ok(vec![zeros(0); 2]), "{}", rung.path);
            }
            // A row of zeros: the epsilon keeps it from 0 / 0.
            assert_eq!(given([40, 40, 40], 1, 40), Ok(vec![zeros(40); 2]), "{}", rung.path);
            for (lengths, expected) in [([9, 8, 8], "`x`"), ([8, 7, 8], "`residual`"), ([8, 8, 0], "`weight`")] {
                let refused = given(lengths, 1, 8).unwrap_err().to_string();
                assert!(refused.contains(expected) && refused.contains("\nnext: "), "{refused}");
            }
            assert!(norm.time(Size::Two(33, 128), &Bench::default()).unwrap_err().to_string().contains("next: "));
        }
    }

    #[test]
    fn the_sum_is_rounded_before_it_is_normed() {
        let norm = ResidualNorm::new(&Gpu::simulated().unwrap(), "residual_rms_norm/01_row_a_block").unwrap();
        let bits = |numbers: [f32; 2]| HostArray::Bf16(numbers.map(cpu::bf16_from_f32).to_vec());
        let inputs = [bits([1.0, 1.0]), bits([1.0, 1.0]), bits([1.0, 3.0])];
        let exact = norm.exact_row(&inputs, Size::Two(1, 2), 0).unwrap();
        let wrong = |y, sum| exact.iter().find_map(|piece| piece.wrong_in(&[bits(y), bits(sum)]));
        // Both sums are 2, and so is the root of their mean square.
        assert_eq!(wrong([1.0, 3.0], [2.0, 2.0]), None);
        assert!(wrong([1.0, 2.0], [2.0, 2.0]).unwrap().contains("number 1 of output 0: 2 on the GPU"));
        assert_eq!(wrong([1.0, 3.0], [2.0, 3.0]).unwrap(), "number 1 of output 1: 3 on the GPU, 2 exactly");
    }

    #[test]
    fn in_registers_each_number_is_read_once_and_written_once() {
        let (rows, columns) = (4, 8192);
        let (table, weights) = (2 * rows * columns, 2 * rows * columns);
        let seen = Ladder::ResidualNorm.counters((rows, columns)).unwrap();
        let bytes = |rung: &str| seen.get(rung).unwrap().global_bytes() as usize;
        assert_eq!([bytes("02"), bytes("03")], [5 * table + weights, 4 * table + weights]);
    }
}
