//! One rung of the reduction, ready to run and to time on a GPU.

use super::{AWKWARD, Allocation, Array, Cost, HostArray, Launches, Loaded, Reference, Size, Topic, check, length};
use crate::ladder::Leaves;
use gpulab::cpu;
use gpulab::error::Result;
use gpulab::gpu::{Buffer, Gpu};

/// A reduction kernel of the course on one GPU: the sum of an f32 array, 4 bytes per element. A size is the number of
/// elements; the result is the first number of the first output.
#[derive(Debug, Clone)]
pub struct Reduction(Loaded);

impl Reduction {
    /// Compiles the rung of that path, such as `reduction/04_no_conflicts`, and checks it at awkward sizes.
    ///
    /// ```no_run
    /// use gpulab::prelude::*;
    /// use gpulab_kernels::{topics::Topic, *};
    /// let gpu = Gpu::open()?;
    /// let reduction = Reduction::new(&gpu, "reduction/04_no_conflicts")?;
    /// println!("{} ms", reduction.time(Size::One(1 << 28), &Bench::default())?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) for a path that is none, or a kernel whose result is wrong;
    /// [`Error::Unsupported`](gpulab::Error::Unsupported) for a GPU that is too old for it; those of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<Reduction> {
        let reduction = Reduction(Loaded::new(gpu, path)?);
        for n in AWKWARD {
            check(&reduction, path, &[HostArray::F32(whole(n))], n)?;
        }
        Ok(reduction)
    }

    /// All four steps: allocates, copies `a` to the device, launches until one sum is left, and copies it back.
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) for more than 2³¹ elements,
    /// [`Error::OutOfMemory`](gpulab::Error::OutOfMemory), [`Error::Driver`](gpulab::Error::Driver).
    pub fn sum(&self, a: &[f32]) -> Result<f32> {
        let (a, mut partial) = (self.0.gpu.to_device(a)?, self.partials(a.len())?);
        self.launch(&a, &mut partial)?;
        Ok(partial[partial.len() - 1].to_host()?[0])
    }

    /// Poisoned room for the partial sums of `n` elements: a buffer for each launch, in which it leaves one for each
    /// block. The sum is the last buffer's first element.
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) for more than 2³¹ elements,
    /// [`Error::OutOfMemory`](gpulab::Error::OutOfMemory), [`Error::Driver`](gpulab::Error::Driver).
    pub fn partials(&self, n: usize) -> Result<Vec<Buffer<f32>>> {
        self.lengths(n)?.into_iter().map(|length| self.0.gpu.poison(length)).collect()
    }

    /// How many numbers each launch leaves.
    fn lengths(&self, n: usize) -> Result<Vec<usize>> {
        length(n)?;
        let Loaded { gpu, rung, .. } = &self.0;
        let mut lengths = Vec::new();
        let mut left = n;
        loop {
            left = rung.launch(left, 1, gpu.multiprocessors()).grid.0 as usize;
            lengths.push(if rung.leaves == Leaves::Added { 1 } else { left });
            if left == 1 || rung.leaves != Leaves::Partials {
                return Ok(lengths);
            }
        }
    }

    /// All launches of one sum, on the default stream, with the room that [`Reduction::partials`] gave for that length.
    ///
    /// # Errors
    /// As [`gpulab::gpu::Kernel::launch`].
    pub fn launch(&self, a: &Buffer<f32>, partial: &mut [Buffer<f32>]) -> Result<()> {
        self.launch_by(&mut Launches::queue(), a, partial.iter_mut())
    }

    /// Pass after pass: what one leaves, the next one adds.
    fn launch_by<'a>(
        &self,
        launches: &mut Launches,
        a: &'a Buffer<f32>,
        partial: impl Iterator<Item = &'a mut Buffer<f32>>,
    ) -> Result<()> {
        let mut from = a;
        for to in partial {
            if self.0.rung.leaves == Leaves::Added {
                to.fill_bytes(0)?;
            }
            // A sum of nothing is written, too.
            self.0.launch(launches, from.len().max(1), 1, (from, &mut *to, length(from.len())?))?;
            from = to;
        }
        Ok(())
    }
}

impl Topic for Reduction {
    fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    fn work(&self, size: Size) -> Result<Cost> {
        let n = size.one()?;
        length(n).map(|_| Cost::of_bytes(4 * n, n as f64, "f32"))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        Ok(vec![HostArray::F32(cpu::random_f32(size.one()?, seed))])
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        Ok(self.lengths(size.one()?)?.into_iter().rev().map(Allocation::F32).collect())
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], _size: Size, launches: &mut Launches) -> Result<()> {
        let partial = outputs.iter_mut().rev().map(Array::f32_mut).collect::<Result<Vec<_>>>()?;
        self.launch_by(launches, inputs[0].f32()?, partial.into_iter())
    }

    fn rows(&self, _size: Size) -> Result<(usize, usize)> {
        Ok((1, 1))
    }

    fn exact_row(&self, inputs: &[HostArray], size: Size, _row: usize) -> Result<Vec<Reference>> {
        let sum = (0..size.one()?).map(|at| inputs[0].get(at)).sum();
        // It is checked with whole numbers, whose sums are exact in f32 in any order: one that is forgotten, or taken
        // twice, is off by at least 1.
        Ok(vec![Reference::new(0, 0, vec![sum], |_, _| 0.5)])
    }
}

/// Whole numbers from -7 to 7, none of them 0: up to two million, no partial sum exceeds 2²⁴.
fn whole(n: usize) -> Vec<f32> {
    let number = |x: f32| (x * 7.0).trunc() + x.signum() * f32::from(u8::from(x.abs() < 1.0 / 7.0));
    cpu::random_f32(n, 5).into_iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::{RUNGS, Rung};
    use gpulab::prelude::*;

    #[test]
    fn whole_numbers_are_whole_and_none_is_zero() {
        let numbers = whole(100_000);
        assert!(numbers.iter().all(|x| x.fract() == 0.0 && *x != 0.0 && x.abs() <= 7.0));
    }

    #[test]
    fn every_rung_adds_any_size() {
        let gpu = Gpu::simulated().unwrap();
        for rung in RUNGS.iter().filter(|rung| rung.kernel == "reduce") {
            let reduction = Reduction::new(&gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
            assert!(reduction.time(Size::One(33), &Bench::default()).unwrap_err().to_string().contains("next: "));
            // The same buffers again: whatever a launch leaves behind, the next one begins anew.
            let (a, mut partial) = (gpu.to_device(&[0.5; 70_000]).unwrap(), reduction.partials(70_000).unwrap());
            for _ in 0..3 {
                reduction.launch(&a, &mut partial).unwrap_or_else(|error| panic!("{}: {error}", rung.path));
                assert_eq!(partial.last().unwrap().to_host().unwrap()[0], 35_000.0, "{}", rung.path);
            }
        }
    }

    #[test]
    fn elements_that_no_block_adds_are_found() {
        let gpu = Gpu::simulated().unwrap();
        let right = Reduction::new(&gpu, "reduction/06_warp_shuffles").unwrap();
        // Half as many blocks as the array needs.
        let own = &right.0;
        let forgetful = Reduction(Loaded { rung: Rung { tile: (1024, 1), ..own.rung }, ..own.clone() });
        let checked = |n| check(&forgetful, "r", &[HostArray::F32(whole(n))], n);
        assert_eq!(checked(512), Ok(()));
        let text = checked(1024).unwrap_err().to_string();
        assert!(text.contains("size 1024, row 0, number 0") && text.contains("\nnext: "), "{text}");
    }
}
