//! One rung of the vector addition, ready to run and to time on a GPU.

use super::{
    AWKWARD, Allocation, Array, Cost, HostArray, Launches, Reference, Size, Topic, compiled, length, spread, wrong,
};
use crate::ladder::Rung;
use gpulab::bench::Bench;
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu, Kernel};
use gpulab::measurement::Summary;

/// A vector_add kernel of the course on one GPU: `c[i] = a[i] + b[i]` in f32, 12 bytes an element.
#[derive(Debug, Clone)]
pub struct VectorAdd {
    gpu: Gpu,
    rung: Rung,
    kernel: Kernel,
}

impl VectorAdd {
    /// Compiles the rung of that path, such as `vector_add/03_four_at_once`, and checks it at awkward sizes.
    ///
    /// ```no_run
    /// use gpulab::prelude::*;
    /// use gpulab_kernels::*;
    /// let gpu = Gpu::open()?;
    /// let add = VectorAdd::new(&gpu, "vector_add/03_four_at_once")?;
    /// println!("{} ms", add.time(1 << 28, &Bench::default())?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path that is none, or a kernel whose result is wrong; [`Error::Unsupported`] for a GPU
    /// that is too old for it; the errors of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<VectorAdd> {
        let (rung, kernel) = compiled(gpu, path)?;
        let add = VectorAdd { gpu: gpu.clone(), rung, kernel };
        for n in AWKWARD {
            let (a, b) = (cpu::random_f32(n, 1), cpu::random_f32(n, 2));
            agree(path, &add.add(&a, &b)?, &a, &b)?;
        }
        Ok(add)
    }

    /// All four steps: allocates, copies `a` and `b` to the device, launches, and copies the sum back.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when the slices differ in length, [`Error::Invalid`] for more than 2³¹ elements,
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn add(&self, a: &[f32], b: &[f32]) -> Result<Vec<f32>> {
        if a.len() != b.len() {
            let what = "vector_add's second input".to_string();
            return Err(Error::LengthMismatch { what, expected: a.len(), given: b.len() });
        }
        length(a.len())?;
        // Poisoned: an element that the kernel forgets comes back as NaN.
        let mut c = self.gpu.poison(a.len())?;
        self.launch(&self.gpu.to_device(a)?, &self.gpu.to_device(b)?, &mut c)?;
        c.to_host()
    }

    /// The kernel alone for `n` elements, by device events, in **ms a call**: the arrays are on the GPU already. Several
    /// sets of them are rotated, so that none is still in the cache from its last turn.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn time(&self, n: usize, plan: &Bench) -> Result<Summary> {
        self.gpu.has_times()?;
        let count = self.gpu.sets_past_cache(3 * n * size_of::<f32>());
        let random = |seed| self.gpu.to_device(&cpu::random_f32(n, seed));
        let set = |seed| Ok((random(2 * seed)?, random(2 * seed + 1)?, self.gpu.alloc(n)?));
        let mut sets = (0..count as u64).map(set).collect::<Result<Vec<_>>>()?;
        self.gpu.time(plan, |call| {
            let (a, b, c) = &mut sets[call % count];
            self.launch(a, b, c)
        })
    }

    /// One launch, on the default stream.
    ///
    /// # Errors
    /// As [`Kernel::launch`]; [`Error::LengthMismatch`], [`Error::Invalid`] for more than 2³¹ elements.
    pub fn launch(&self, a: &Buffer<f32>, b: &Buffer<f32>, c: &mut Buffer<f32>) -> Result<()> {
        self.launch_by(&mut Launches::queue(), a, b, c)
    }

    fn launch_by(&self, launches: &mut Launches, a: &Buffer<f32>, b: &Buffer<f32>, c: &mut Buffer<f32>) -> Result<()> {
        let n = a.len();
        for given in [b.len(), c.len()] {
            if given != n {
                return Err(Error::LengthMismatch { what: "a vector_add".to_string(), expected: n, given });
            }
        }
        let config = self.rung.launch(n, 1, self.gpu.multiprocessors());
        launches.launch(&self.kernel, config, (a, b, c, length(n)?))
    }
}

/// A size is the number of elements.
impl Topic for VectorAdd {
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

    fn call(&self, inputs: &[Array], outputs: &mut [Array], _size: Size, launches: &mut Launches) -> Result<()> {
        self.launch_by(launches, inputs[0].f32()?, inputs[1].f32()?, outputs[0].f32_mut()?)
    }

    fn exact(&self, inputs: &[HostArray], size: Size) -> Result<Vec<Reference>> {
        let piece = |(from, count)| {
            let (a, b) = (inputs[0].part(from, count), inputs[1].part(from, count));
            Reference { output: 0, from, values: a.iter().zip(&b).map(|(a, b)| a + b).collect() }
        };
        Ok(spread(size.one()?).into_iter().map(piece).collect())
    }
}

/// One addition is rounded once, so every machine gives the same bits.
fn agree(path: &str, given: &[f32], a: &[f32], b: &[f32]) -> Result<()> {
    // An element that was never written is NaN, which equals nothing.
    match (0..a.len()).find(|&i| given[i] != a[i] + b[i]) {
        None => Ok(()),
        Some(i) => {
            Err(wrong(path, format!("element {i} of {}: {} on the GPU, {} on the CPU", a.len(), given[i], a[i] + b[i])))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hardware;
    use super::*;
    use crate::ladder::RUNGS;

    #[test]
    fn a_wrong_or_unwritten_element_is_named() {
        let (a, b) = ([1.0_f32, 2.0], [3.0_f32, 4.0]);
        assert_eq!(agree("v", &[4.0, 6.0], &a, &b), Ok(()));
        for wrong in [f32::NAN, 6.000_001] {
            let text = agree("v", &[4.0, wrong], &a, &b).unwrap_err().to_string();
            assert!(text.contains("element 1 of 2") && text.contains("\nnext: "), "{text}");
        }
    }

    #[test]
    fn every_rung_adds_any_size_and_refuses_what_is_none() {
        let gpu = Gpu::simulated().unwrap();
        for rung in RUNGS.iter().filter(|rung| rung.kernel == "vector_add") {
            let add = VectorAdd::new(&gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
            assert!(add.add(&[1.0; 4], &[1.0; 5]).unwrap_err().to_string().contains("second input"));
            assert!(add.time(33, &Bench::default()).unwrap_err().to_string().contains("next: "));
        }
        if let Some(gpu) = hardware() {
            for rung in RUNGS.iter().filter(|rung| rung.kernel == "vector_add") {
                let add = VectorAdd::new(&gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
                assert!(add.time(33, &Bench::default().samples(5)).unwrap().median > 0.0);
            }
        }
        assert!(VectorAdd::new(&gpu, "vector_add/99").unwrap_err().to_string().contains("03_four_at_once"));
        assert!(length(1 << 31).unwrap_err().to_string().contains("split the array"));
    }
}
