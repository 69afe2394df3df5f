//! One rung of the matrix multiplication, ready to run and to time on a GPU.

use crate::bench::Bench;
use crate::cpu;
use crate::error::{Error, Result};
use crate::gpu::{Buffer, Gpu, Kernel};
use crate::ladder::{Rung, rung};
use crate::measurement::Summary;

/// The side that a new kernel is checked at: no multiple of any tile.
const AWKWARD: usize = 129;

/// A matmul kernel of the course on one GPU: `c = a · b` for square row-major f32 matrices of side `n`, 2n³ operations.
#[derive(Debug, Clone)]
pub struct Matmul {
    gpu: Gpu,
    rung: Rung,
    kernel: Kernel,
}

/// Three matrices in device memory.
struct Set {
    a: Buffer<f32>,
    b: Buffer<f32>,
    c: Buffer<f32>,
}

impl Matmul {
    /// Compiles the rung of that path, such as `matmul/02_tiled`, and checks it once against the CPU.
    ///
    /// ```no_run
    /// use gpulab::prelude::*;
    /// let gpu = Gpu::open()?;
    /// let matmul = Matmul::new(&gpu, "matmul/02_tiled")?;
    /// println!("{} ms", matmul.time(1024, &Bench::default())?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path that is none, or a kernel whose result is wrong; [`Error::Compile`] and the other
    /// errors of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<Matmul> {
        let rung = rung(path)?;
        let kernel = gpu.compile(rung.source()?)?.kernel(rung.kernel)?;
        let matmul = Matmul { gpu: gpu.clone(), rung, kernel };
        let (a, b) = (cpu::random_f32(AWKWARD * AWKWARD, 1), cpu::random_f32(AWKWARD * AWKWARD, 2));
        let given = matmul.multiply(&a, &b, AWKWARD)?;
        let mut expected = vec![0.0; AWKWARD * AWKWARD];
        cpu::matmul(&a, &b, &mut expected, AWKWARD)?;
        agree(path, &given, &expected, AWKWARD)?;
        Ok(matmul)
    }

    /// All four steps: allocates, copies `a` and `b` to the device, launches, and copies the product back.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when a slice does not hold n² numbers, [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn multiply(&self, a: &[f32], b: &[f32], n: usize) -> Result<Vec<f32>> {
        for (what, slice) in [("matmul's first input", a), ("matmul's second input", b)] {
            if slice.len() != n * n {
                return Err(Error::LengthMismatch { what: what.to_string(), expected: n * n, given: slice.len() });
            }
        }
        // Poisoned: an element that the kernel forgets comes back as NaN.
        let c = self.gpu.poison(n * n)?;
        let mut set = Set { a: self.gpu.to_device(a)?, b: self.gpu.to_device(b)?, c };
        self.launch(&mut set, n)?;
        set.c.to_host()
    }

    /// The kernel alone at side `n`, by device events, in **ms a call**: the matrices are on the GPU already. Several
    /// sets of them are rotated, so that none is still in the cache from its last turn.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn time(&self, n: usize, plan: &Bench) -> Result<Summary> {
        let count = self.gpu.sets_past_cache(3 * n * n * size_of::<f32>());
        let mut sets = (0..count as u64).map(|seed| self.random_set(n, seed)).collect::<Result<Vec<Set>>>()?;
        self.gpu.time(plan, |call| self.launch(&mut sets[call % count], n))
    }

    /// Copies in, launch and copy back at side `n`, by the host's clock, in **ms a call**. The host's memory is
    /// pageable; the device's is allocated before.
    ///
    /// # Errors
    /// As [`Matmul::time`].
    pub fn time_with_copies(&self, n: usize, plan: &Bench) -> Result<Summary> {
        self.gpu.has_times()?;
        let (a, b, mut c) = (cpu::random_f32(n * n, 1), cpu::random_f32(n * n, 2), vec![0.0; n * n]);
        let mut set = self.random_set(n, 3)?;
        cpu::time(plan, || {
            set.a.copy_from(&a)?;
            set.b.copy_from(&b)?;
            self.launch(&mut set, n)?;
            // Waits for the kernel, so the host's clock is read at the right moment.
            set.c.copy_to(&mut c)
        })
    }

    fn random_set(&self, n: usize, seed: u64) -> Result<Set> {
        let matrix = |seed| self.gpu.to_device(&cpu::random_f32(n * n, seed));
        Ok(Set { a: matrix(2 * seed)?, b: matrix(2 * seed + 1)?, c: self.gpu.alloc(n * n)? })
    }

    fn launch(&self, set: &mut Set, n: usize) -> Result<()> {
        let config = self.rung.launch(n, n, self.gpu.multiprocessors());
        self.kernel.launch(config, (&set.a, &set.b, &mut set.c, n as i32))
    }
}

/// Compares two products of matrices whose elements lie in [-1, 1). A partial sum stays below n, so each of its n
/// roundings is off by at most n · 2⁻²⁴; two sums in different orders differ by at most n² · 2⁻²³.
fn agree(path: &str, given: &[f32], expected: &[f32], n: usize) -> Result<()> {
    let tolerance = (n * n) as f32 * f32::EPSILON;
    let wrong = given.iter().zip(expected).position(|(given, expected)| {
        let difference = (given - expected).abs();
        // An element that was never written is NaN, which is greater than nothing.
        difference.is_nan() || difference > tolerance
    });
    match wrong {
        None => Ok(()),
        Some(at) => Err(Error::Invalid {
            what: format!(
                "`{path}` at n = {n}, row {}, column {}: {} on the GPU, {} on the CPU",
                at / n,
                at % n,
                given[at],
                expected[at]
            ),
            fix: "look for a missing bounds guard or barrier in that kernel; do not trust its times".to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_or_unwritten_element_is_named() {
        let expected = [1.0_f32, 2.0, 3.0, 4.0];
        assert_eq!(agree("m", &expected, &expected, 2), Ok(()));
        for wrong in [f32::NAN, 3.1] {
            let text = agree("m", &[1.0, 2.0, wrong, 4.0], &expected, 2).unwrap_err().to_string();
            assert!(text.contains("row 1, column 0") && text.contains("\nnext: "), "{text}");
        }
    }

    #[test]
    fn every_rung_is_checked_and_timed_on_a_gpu() {
        let gpu = match Gpu::open_index(0) {
            Ok(gpu) => gpu,
            Err(error) => {
                return eprintln!("skipped: needs an NVIDIA GPU ({})", error.to_string().lines().next().unwrap_or(""));
            }
        };
        for path in ["matmul/01_naive", "matmul/02_tiled"] {
            let matmul = Matmul::new(&gpu, path).unwrap();
            assert!(matmul.multiply(&[1.0; 4], &[1.0; 5], 2).unwrap_err().to_string().contains("second input"));
            let quick = Bench::default().samples(5);
            let (alone, copied) = (matmul.time(33, &quick).unwrap(), matmul.time_with_copies(33, &quick).unwrap());
            assert!(alone.median > 0.0 && copied.median > 0.0, "{alone} {copied}");
        }
    }
}
