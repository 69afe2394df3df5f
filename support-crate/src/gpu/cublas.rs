//! NVIDIA's own matrix product, to measure against.

use super::buffer::Memory;
use super::{Buffer, Gpu};
use crate::cuda::CudaCublas;
use crate::error::{Error, Result, same_length};
use crate::launch::{Element, ElementType};
use crate::sim::needs_hardware;

/// cuBLAS on one GPU. It is loaded when it is there, and needs no CUDA toolkit beside the library itself.
#[derive(Debug, Clone)]
pub struct Cublas {
    gpu: Gpu,
    blas: CudaCublas,
}

impl Cublas {
    /// Opens it on the default stream. f32 stays f32 (no TF32), bf16 is summed in f32.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the library is not found, and on GPUs that are not NVIDIA's; [`Error::Driver`].
    pub fn new(gpu: &Gpu) -> Result<Cublas> {
        let Gpu::Cuda(cuda) = gpu else {
            return Err(needs_hardware("there is no cuBLAS", "run this on an NVIDIA GPU, or see the recorded run"));
        };
        Ok(Cublas { gpu: gpu.clone(), blas: cuda.cublas()? })
    }

    /// The library's version, such as 130100.
    pub fn version(&self) -> i32 {
        self.blas.version()
    }

    /// Queues `c (m × n) = a (m × k) · b (k × n)`, all row-major: f32, or bf16 as `u16`.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when a buffer is not as long as its matrix, [`Error::Invalid`] for other elements and
    /// sides that are no positive i32, [`Error::DeviceMismatch`], [`Error::Driver`].
    pub fn multiply<T: Element>(
        &self,
        a: &Buffer<T>,
        b: &Buffer<T>,
        c: &mut Buffer<T>,
        sides: (usize, usize, usize),
    ) -> Result<()> {
        self.queue(a, b, c, sides, false)
    }

    /// Queues `c (m × n) = a (m × k) · bᵀ`, with `b` stored as n rows of k numbers, as the weights of a linear layer are.
    ///
    /// # Errors
    /// As [`Cublas::multiply`].
    pub fn multiply_transposed<T: Element>(
        &self,
        a: &Buffer<T>,
        b: &Buffer<T>,
        c: &mut Buffer<T>,
        sides: (usize, usize, usize),
    ) -> Result<()> {
        self.queue(a, b, c, sides, true)
    }

    fn queue<T: Element>(
        &self,
        a: &Buffer<T>,
        b: &Buffer<T>,
        c: &mut Buffer<T>,
        (m, n, k): (usize, usize, usize),
        transposed: bool,
    ) -> Result<()> {
        if !matches!(T::TYPE, ElementType::F32 | ElementType::U16) {
            return Err(Error::invalid(format!("a product of {}", T::TYPE), "give f32, or bf16 as u16"));
        }
        let lengths = [("a", a.len(), m, k), ("b", b.len(), k, n), ("c", c.len(), m, n)];
        for (what, given, rows, columns) in lengths {
            same_length(format!("the product's `{what}`"), rows.saturating_mul(columns), given)?;
        }
        let sides = [m, n, k].map(|side| i32::try_from(side).ok().filter(|&side| side > 0));
        let [Some(m), Some(n), Some(k)] = sides else {
            return Err(Error::invalid(
                format!("a product of {m} × {k} and {k} × {n} numbers"),
                "give m, n and k from 1 to 2147483647",
            ));
        };
        for other in [&a.gpu, &b.gpu, &c.gpu] {
            if !other.same_as(&self.gpu) {
                return Err(Error::DeviceMismatch { expected: self.gpu.to_string(), found: other.to_string() });
            }
        }
        match (&self.gpu, &a.memory, &b.memory, &mut c.memory) {
            (Gpu::Cuda(gpu), Memory::Cuda(a), Memory::Cuda(b), Memory::Cuda(c)) => {
                self.blas.multiply(gpu, T::TYPE == ElementType::U16, transposed, (a, b, c), [m, n, k])
            }
            _ => unreachable!("checked before: all are on the one NVIDIA GPU"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu;

    #[test]
    fn a_simulated_gpu_has_no_cublas() {
        assert!(matches!(Cublas::new(&Gpu::simulated().unwrap()), Err(Error::Unsupported { .. })));
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn products_agree_with_the_cpu_and_lengths_are_checked() {
        let gpu = Gpu::open_index(0).unwrap();
        let blas = match Cublas::new(&gpu) {
            Ok(blas) => blas,
            Err(error) => return eprintln!("skipped: {}", error.to_string().lines().next().unwrap_or_default()),
        };
        let (m, n, k) = (3, 5, 4);
        let (a, b) = (cpu::random_f32(m * k, 1), cpu::random_f32(k * n, 2));
        let mut c = gpu.poison::<f32>(m * n).unwrap();
        let (on_a, on_b) = (gpu.to_device(&a).unwrap(), gpu.to_device(&b).unwrap());
        blas.multiply(&on_a, &on_b, &mut c, (m, n, k)).unwrap();
        for (at, given) in c.to_host().unwrap().into_iter().enumerate() {
            let exact: f32 = (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum();
            assert!((given - exact).abs() < 1e-6, "element {at}: {given} instead of {exact}");
        }
        let b_by_columns: Vec<f32> = (0..n * k).map(|i| b[i % k * n + i / k]).collect();
        let (rows_first, mut transposed) = (c.to_host().unwrap(), gpu.poison::<f32>(m * n).unwrap());
        blas.multiply_transposed(&on_a, &gpu.to_device(&b_by_columns).unwrap(), &mut transposed, (m, n, k)).unwrap();
        assert!(transposed.to_host().unwrap().iter().zip(&rows_first).all(|(a, b)| (a - b).abs() < 1e-6));
        let text = blas.multiply(&on_a, &on_b, &mut c, (m, n, k + 1)).unwrap_err().to_string();
        assert!(text.contains("the product's `a`"), "{text}");
    }
}
