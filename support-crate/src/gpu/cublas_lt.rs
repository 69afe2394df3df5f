//! NVIDIA's matrix products with a choice of algorithms, on parts of flat buffers.

use super::buffer::Memory;
use super::{Buffer, Gpu};
use crate::cuda::{CudaCublasLt, CudaMemory, CudaProduct, LtAlgorithm, LtEpilogue, LtShape};
use crate::error::{Error, Result};
use crate::launch::{Element, ElementType};
use crate::sim::needs_hardware;
use cudarc::driver::{DevicePtr, DevicePtrMut};
use std::fmt;
use std::sync::Arc;

/// cuBLASLt on one GPU: bf16 products with sums in f32 whose algorithm the caller chooses, by timing.
#[derive(Debug, Clone)]
pub struct CublasLt {
    gpu: Gpu,
    library: Arc<CudaCublasLt>,
}

/// A product that is prepared, with the algorithms that the library proposes for it.
pub struct LtProduct {
    gpu: Gpu,
    shape: LtShape,
    product: CudaProduct,
    chosen: usize,
}

impl fmt::Debug for LtProduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LtProduct({:?}, algorithm {} of {})", self.shape, self.chosen, self.product.proposals())
    }
}

fn cuda(memory: &Memory) -> &CudaMemory {
    match memory {
        Memory::Cuda(memory) => memory,
        _ => unreachable!("checked before: all are on the one NVIDIA GPU"),
    }
}

/// A matrix within a buffer: from that element on.
pub type Within<'a, T> = (&'a Buffer<T>, usize);
/// The same to be written.
pub type WithinMut<'a, T> = (&'a mut Buffer<T>, usize);

/// What an epilogue takes beside the matrices.
#[derive(Debug, Default)]
pub struct LtExtra<'a> {
    /// A number for each column.
    pub bias: Option<Within<'a, u16>>,
    /// What is stored before GELU.
    pub before_gelu: Option<&'a mut Buffer<u16>>,
    /// What was stored before GELU.
    pub gelu_of: Option<&'a Buffer<u16>>,
}

impl CublasLt {
    /// Opens it, with 64 MiB that products pass sums through.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the library is not found, and on GPUs that are not NVIDIA's; [`Error::OutOfMemory`];
    /// [`Error::Driver`].
    pub fn new(gpu: &Gpu) -> Result<CublasLt> {
        let Gpu::Cuda(cuda) = gpu else {
            return Err(needs_hardware("there is no cuBLASLt", "run this on an NVIDIA GPU, or see the recorded run"));
        };
        Ok(CublasLt { gpu: gpu.clone(), library: cuda.cublas_lt()? })
    }

    /// Prepares a product, with up to `most` algorithms to choose from.
    ///
    /// # Errors
    /// [`Error::Invalid`] for sides that are no positive i32; [`Error::Unsupported`] where the library proposes none;
    /// [`Error::Driver`].
    pub fn product(&self, shape: LtShape, most: usize) -> Result<LtProduct> {
        let LtShape { rows, columns, terms, strides, .. } = shape;
        let stored = shape.columns_stored();
        if (0..3).any(|which| strides[which] != 0 && strides[which] < stored[which]) {
            return Err(Error::invalid(
                format!("rows of {stored:?} numbers that begin {strides:?} numbers behind each other"),
                "give strides that are at least as long as the rows, or 0",
            ));
        }
        if [rows, columns, terms].iter().any(|&side| side == 0 || i32::try_from(side).is_err()) {
            return Err(Error::invalid(
                format!("a product of {rows} × {terms} and {terms} × {columns} numbers"),
                "give sides from 1 to 2147483647",
            ));
        }
        let product = self.library.product(shape, most.max(1))?;
        if product.proposals() == 0 {
            return Err(Error::unsupported(
                format!("cuBLASLt has no algorithm for {shape:?}"),
                "use a plain epilogue, and sides that are multiples of 8",
            ));
        }
        Ok(LtProduct { gpu: self.gpu.clone(), shape, product, chosen: 0 })
    }

    /// The library's version, such as 130100 for 13.1: an algorithm that was kept is one of that version alone.
    pub fn version(&self) -> usize {
        self.library.version()
    }
}

impl LtProduct {
    /// Its shape.
    pub fn shape(&self) -> LtShape {
        self.shape
    }

    /// How many algorithms there are to choose from.
    pub fn algorithms(&self) -> usize {
        self.product.proposals()
    }

    /// Takes that algorithm from now on; the first one is the library's own choice.
    ///
    /// # Panics
    /// For one that there is not.
    pub fn choose(&mut self, algorithm: usize) {
        assert!(
            algorithm < self.algorithms(),
            "there are {} algorithms\nnext: choose one below that",
            self.algorithms()
        );
        self.chosen = algorithm;
    }

    /// The algorithm that is taken, to be kept.
    pub fn algorithm(&self) -> LtAlgorithm {
        self.product.algorithm(self.chosen)
    }

    /// Takes an algorithm that was kept, and forgets the library's proposals.
    ///
    /// # Errors
    /// [`Error::Driver`] where the library says that it does not compute this product on this GPU; then nothing has changed.
    pub fn adopt(&mut self, algorithm: LtAlgorithm) -> Result<()> {
        self.product.adopt(algorithm)?;
        self.chosen = 0;
        Ok(())
    }

    /// Queues it: `c` is bf16 or f32, as the shape says.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] for a buffer that ends before its matrix, [`Error::Invalid`] where the epilogue's arrays or
    /// the result's type are not those of the shape, [`Error::DeviceMismatch`], [`Error::Driver`].
    pub fn queue<T: Element>(
        &mut self,
        a: Within<'_, u16>,
        b: Within<'_, u16>,
        c: WithinMut<'_, T>,
        extra: LtExtra<'_>,
    ) -> Result<()> {
        let LtShape { rows, columns, f32_result, epilogue, adds, .. } = self.shape;
        let spans = self.shape.spans();
        let wanted = if f32_result { ElementType::F32 } else { ElementType::U16 };
        let given = (extra.bias.is_some(), extra.before_gelu.is_some(), extra.gelu_of.is_some());
        let needed = match epilogue {
            LtEpilogue::None => (false, false, false),
            LtEpilogue::Bias => (true, false, false),
            LtEpilogue::BiasGelu => (true, true, false),
            LtEpilogue::GeluBackward => (false, false, true),
        };
        if T::TYPE != wanted || given != needed {
            let what =
                format!("a result of {} and (bias, before GELU, GELU of) = {given:?} for {:?}", T::TYPE, self.shape);
            return Err(Error::invalid(what, "give the arrays that the shape's epilogue takes"));
        }
        let ends = |what: &str, len: usize, at: usize, needed: usize| match at.checked_add(needed) {
            Some(end) if end <= len => Ok(()),
            _ => Err(Error::LengthMismatch {
                what: format!("the product's `{what}`"),
                expected: at.saturating_add(needed),
                given: len,
            }),
        };
        ends("a", a.0.len(), a.1, spans[0])?;
        ends("b", b.0.len(), b.1, spans[1])?;
        ends("c", c.0.len(), c.1, spans[2])?;
        if let Some(bias) = extra.bias {
            ends("bias", bias.0.len(), bias.1, columns)?;
        }
        let saved = extra.before_gelu.as_ref().map(|saved| saved.len()).or(extra.gelu_of.map(Buffer::len));
        ends("before GELU", saved.unwrap_or(usize::MAX), 0, rows * columns)?;
        let gpus = [&a.0.gpu, &b.0.gpu, &c.0.gpu].into_iter().chain(extra.bias.map(|bias| &bias.0.gpu));
        let aux = extra.before_gelu.as_ref().map(|saved| &saved.gpu).or(extra.gelu_of.map(|saved| &saved.gpu));
        for other in gpus.chain(aux) {
            if !other.same_as(&self.gpu) {
                return Err(Error::DeviceMismatch { expected: self.gpu.to_string(), found: other.to_string() });
            }
        }
        let (Gpu::Cuda(gpu), Memory::Cuda(first), Memory::Cuda(second), Memory::Cuda(out)) =
            (&self.gpu, &a.0.memory, &b.0.memory, &mut c.0.memory)
        else {
            unreachable!("checked before: all are on the one NVIDIA GPU")
        };
        let queue = gpu.queue();
        // The guards live until the product is queued.
        let mut written = None;
        let mut read = None;
        let aux = if let Some(saved) = extra.before_gelu {
            let Memory::Cuda(saved) = &mut saved.memory else { unreachable!("checked before: it is on this GPU") };
            gpu.uses([&*saved]);
            let (address, guard) = saved.device_ptr_mut(&queue);
            written = Some(guard);
            Some(address)
        } else if let Some(saved) = extra.gelu_of {
            let saved = cuda(&saved.memory);
            gpu.uses([saved]);
            let (address, guard) = saved.device_ptr(&queue);
            read = Some(guard);
            Some(address)
        } else {
            None
        };
        let bias = extra.bias.map(|(bias, at)| (cuda(&bias.memory), 2 * at));
        let result = (out, c.1 * size_of::<T>());
        let done =
            self.product.queue(gpu, (self.chosen, adds), [(first, 2 * a.1), (second, 2 * b.1)], result, bias, aux);
        drop((written, read));
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulated_gpu_has_no_cublas_lt() {
        assert!(matches!(CublasLt::new(&Gpu::simulated().unwrap()), Err(Error::Unsupported { .. })));
    }

    #[test]
    fn a_matrix_ends_behind_its_last_row() {
        let shape = LtShape {
            rows: 3,
            columns: 8,
            terms: 16,
            a_transposed: true,
            b_transposed: false,
            f32_result: true,
            adds: false,
            epilogue: LtEpilogue::None,
            strides: [0, 24, 8],
        };
        assert_eq!(shape.row_strides(), [3, 24, 8]);
        assert_eq!(shape.spans(), [48, 15 * 24 + 8, 24]);
        let turned = LtShape { a_transposed: false, b_transposed: true, strides: [20, 0, 10], ..shape };
        assert_eq!(turned.spans(), [2 * 20 + 16, 128, 2 * 10 + 8]);
    }
}
