//! One rung of the vector addition, ready to run and to time on a GPU.

use super::{
    AWKWARD, Allocation, Array, Cost, HostArray, Launches, Loaded, Reference, Size, Topic, check, length, lengths,
};
use gpulab::cpu;
use gpulab::error::Result;
use gpulab::gpu::Gpu;

/// Results are compared in pieces of so many numbers.
const PIECE: usize = 1024;

/// A vector_add kernel of the course on one GPU: `c[i] = a[i] + b[i]` in f32, 12 bytes per element. A size is the number of
/// elements.
#[derive(Debug, Clone)]
pub struct VectorAdd(Loaded);

impl VectorAdd {
    /// Compiles the rung of that path, such as `vector_add/03_four_at_once`, and checks it at awkward sizes.
    ///
    /// ```no_run
    /// use gpulab::prelude::*;
    /// use gpulab_kernels::{topics::Topic, *};
    /// let gpu = Gpu::open()?;
    /// let add = VectorAdd::new(&gpu, "vector_add/03_four_at_once")?;
    /// println!("{} ms", add.time(Size::One(1 << 28), &Bench::default())?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) for a path that is none, or a kernel whose result is wrong;
    /// [`Error::Unsupported`](gpulab::Error::Unsupported) for a GPU that is too old for it; those of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<VectorAdd> {
        let add = VectorAdd(Loaded::new(gpu, path)?);
        for n in AWKWARD {
            check(&add, path, &add.inputs(n.into(), 1)?, n)?;
        }
        Ok(add)
    }
}

impl Topic for VectorAdd {
    fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    fn work(&self, size: Size) -> Result<Cost> {
        let n = size.one()?;
        length(n).map(|_| Cost::of_bytes(12 * n, n as f64, "f32"))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        let n = size.one()?;
        Ok([2 * seed, 2 * seed + 1].map(|seed| HostArray::F32(cpu::random_f32(n, seed))).into())
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        Ok(vec![Allocation::F32(size.one()?)])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        let n = size.one()?;
        let (a, b, c) = (inputs[0].f32()?, inputs[1].f32()?, outputs[0].f32_mut()?);
        lengths("vector_add", &[("a", a.len(), n), ("b", b.len(), n), ("c", c.len(), n)])?;
        self.0.launch(launches, n, 1, (a, b, c, length(n)?))
    }

    fn rows(&self, size: Size) -> Result<(usize, usize)> {
        Ok((size.one()?.div_ceil(PIECE), 64))
    }

    fn exact_row(&self, inputs: &[HostArray], size: Size, row: usize) -> Result<Vec<Reference>> {
        let from = row * PIECE;
        let count = PIECE.min(size.one()? - from);
        let sums = inputs[0].part(from, count).into_iter().zip(inputs[1].part(from, count)).map(|(a, b)| a + b);
        // One addition is rounded once: within half a unit in the last place.
        Ok(vec![Reference::new(0, from, sums.collect(), |_, sum| sum.abs() * 2.0_f64.powi(-24))])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::RUNGS;
    use gpulab::prelude::*;

    #[test]
    fn every_rung_adds_any_size_and_refuses_what_is_none() {
        let gpu = Gpu::simulated().unwrap();
        for rung in RUNGS.iter().filter(|rung| rung.kernel == "vector_add") {
            let add = VectorAdd::new(&gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
            let given = |n| HostArray::F32(vec![1.0; n]);
            assert_eq!(add.results(&[given(4), given(4)], Size::One(4)), Ok(vec![HostArray::F32(vec![2.0; 4])]));
            assert!(
                add.results(&[given(4), given(5)], Size::One(4)).unwrap_err().to_string().contains("vector_add's `b`")
            );
            assert!(add.time(Size::One(33), &Bench::default()).unwrap_err().to_string().contains("next: "));
        }
        assert!(VectorAdd::new(&gpu, "vector_add/99").unwrap_err().to_string().contains("03_four_at_once"));
        assert!(length(1 << 31).unwrap_err().to_string().contains("split the array"));
    }
}
