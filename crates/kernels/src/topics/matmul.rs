//! One rung of the matrix multiplication, ready to run and to time on a GPU.

use super::{Allocation, Array, Cost, HostArray, Launches, Loaded, Reference, Shape, Size, Topic, check};
use gpulab::bench::Bench;
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use gpulab::measurement::Summary;

/// The rung whose tiles are so large that few of them leave multiprocessors without work, and the one that then takes over.
const LARGE: &str = "matmul/13_large_tile";
const SMALLER: &str = "matmul/12_stream_k";

/// What a new kernel is checked at: no side is a multiple of any tile, and all differ.
const AWKWARD: Shape = Shape { m: 127, n: 65, k: 129 };

/// A matmul kernel of the course on one GPU: `c = a · b` for row-major f32 matrices. A number in place of a [`Shape`]
/// means square matrices of that side. `13_large_tile` hands products of few tiles to `12_stream_k`.
#[derive(Debug, Clone)]
pub struct Matmul {
    own: Loaded,
    for_few_tiles: Option<Loaded>,
}

impl Matmul {
    /// Compiles the rung of that path, such as `matmul/02_tiled`, and checks it once against the CPU.
    ///
    /// ```no_run
    /// use gpulab::prelude::*;
    /// use gpulab_kernels::*;
    /// let gpu = Gpu::open()?;
    /// let matmul = Matmul::new(&gpu, "matmul/02_tiled")?;
    /// println!("{} ms", matmul.time(1024, &Bench::default())?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path that is none, or a kernel whose result is wrong; [`Error::Unsupported`] for a GPU
    /// that is too old for it; the errors of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<Matmul> {
        let mut matmul = Matmul { own: Loaded::new(gpu, path)?, for_few_tiles: None };
        let inputs = matmul.inputs(AWKWARD.into(), 1)?;
        // Its own kernel first: later the other one takes products as small as this.
        check(&matmul, path, &inputs, AWKWARD)?;
        if matmul.own.rung.path == LARGE {
            matmul.for_few_tiles = Some(Loaded::new(gpu, SMALLER)?);
            check(&matmul, SMALLER, &inputs, AWKWARD)?;
        }
        Ok(matmul)
    }

    /// The path of the rung that multiplies these sizes: its own, or the one that it hands them to.
    pub fn used_for(&self, shape: impl Into<Shape>) -> &'static str {
        self.loaded_for(shape.into()).rung.path
    }

    /// On an H200 the large tiles win from 3 of them for 4 multiprocessors on, measured at ten sizes from 1000 to 8192.
    fn loaded_for(&self, Shape { m, n, .. }: Shape) -> &Loaded {
        let (columns, rows) = self.own.rung.tile;
        let tiles = n.div_ceil(columns as usize) * m.div_ceil(rows as usize);
        let few = 4 * tiles < 3 * self.own.gpu.multiprocessors() as usize;
        self.for_few_tiles.as_ref().filter(|_| few).unwrap_or(&self.own)
    }

    /// All four steps: allocates, copies `a` and `b` to the device, launches, and copies the product back.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when a slice does not hold as many numbers as the shape says, [`Error::Invalid`] for a
    /// side that is no positive i32, [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn multiply(&self, a: &[f32], b: &[f32], shape: impl Into<Shape>) -> Result<Vec<f32>> {
        let given = [a, b].map(|matrix| HostArray::F32(matrix.to_vec()));
        match self.results(&given, shape.into().into())?.swap_remove(0) {
            HostArray::F32(c) => Ok(c),
            _ => unreachable!("`outputs` asks for f32"),
        }
    }

    /// The kernel alone, by device events, in **ms per call**: the matrices are on the GPU already. Several sets of them
    /// are rotated, so that none is still in the cache from its last turn.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a side that is no positive i32, [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn time(&self, shape: impl Into<Shape>, plan: &Bench) -> Result<Summary> {
        Topic::time(self, shape.into().into(), plan)
    }

    /// Copies in, launch and copy back, by the host's clock, in **ms per call**. The host's memory is pageable; the
    /// device's is allocated before.
    ///
    /// # Errors
    /// As [`Matmul::time`].
    pub fn time_with_copies(&self, shape: impl Into<Shape>, plan: &Bench) -> Result<Summary> {
        self.own.gpu.has_times()?;
        let shape = shape.into();
        let (size, hosts) =
            (shape.into(), [shape.m * shape.k, shape.k * shape.n].map(|numbers| cpu::random_f32(numbers, 1)));
        let (mut inputs, mut outputs) = self.arrays(size, 3)?;
        let mut c = vec![0.0; outputs[0].f32()?.len()];
        cpu::time(plan, || {
            for (array, host) in inputs.iter_mut().zip(&hosts) {
                array.f32_mut()?.copy_from(host)?;
            }
            self.call(&inputs, &mut outputs, size, &mut Launches::queue())?;
            // Waits for the kernel, so the host's clock is read at the right moment.
            outputs[0].f32()?.copy_to(&mut c)
        })
    }
}

/// A size is (m, n, k).
impl Topic for Matmul {
    fn gpu(&self) -> &Gpu {
        &self.own.gpu
    }

    fn work(&self, size: Size) -> Result<Cost> {
        let shape = Shape::try_from(size)?;
        sides(shape).map(|_| Cost::of_operations(shape.operations(), shape.numbers().saturating_mul(4), "f32"))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        let Shape { m, n, k } = size.try_into()?;
        let matrix = |numbers, seed| HostArray::F32(cpu::random_f32(numbers, seed));
        Ok(vec![matrix(m * k, 2 * seed), matrix(k * n, 2 * seed + 1)])
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        let shape = size.try_into()?;
        sides(shape)?;
        Ok(vec![Allocation::F32(shape.m * shape.n)])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        let shape = size.try_into()?;
        let ([m, n, k], (a, b, c)) = (sides(shape)?, (inputs[0].f32()?, inputs[1].f32()?, outputs[0].f32_mut()?));
        shape.lengths(a.len(), b.len(), c.len())?;
        let loaded = if launches.look() { &self.own } else { self.loaded_for(shape) };
        loaded.launch(launches, shape.n, shape.m, (a, b, c, m, n, k))
    }

    fn rows(&self, size: Size) -> Result<(usize, usize)> {
        Ok((size.three()?.0, COMPARED_ROWS))
    }

    fn exact_row(&self, inputs: &[HostArray], size: Size, row: usize) -> Result<Vec<Reference>> {
        let shape = Shape::try_from(size)?;
        // A partial sum stays below k, so each of its k roundings is off by at most k · 2⁻²⁴.
        let tolerance = shape.k.pow(2) as f64 * 2.0_f64.powi(-24);
        Ok(vec![Reference::new(0, row * shape.n, product_row(inputs, shape, row), |_, _| tolerance)])
    }

    fn hands_to(&self, size: Size) -> Option<&'static str> {
        let used = self.used_for(Shape::try_from(size).ok()?);
        (used != self.own.rung.path).then_some(used)
    }
}

/// Rows of the product that a timed run compares with f64.
pub(super) const COMPARED_ROWS: usize = 8;

/// A row of a product in f64.
pub(super) fn product_row(inputs: &[HostArray], Shape { n, k, .. }: Shape, row: usize) -> Vec<f64> {
    let mut values = vec![0.0; n];
    for at in 0..k {
        let x = inputs[0].get(row * k + at);
        values.iter_mut().zip(inputs[1].part(at * n, n)).for_each(|(sum, y)| *sum += x * y);
    }
    values
}

/// m, n and k as the kernel takes them.
fn sides(shape: Shape) -> Result<[i32; 3]> {
    let sides = [shape.m, shape.n, shape.k].map(|side| i32::try_from(side).ok().filter(|side| *side > 0));
    match sides {
        [Some(m), Some(n), Some(k)] => Ok([m, n, k]),
        _ => Err(Error::invalid(
            format!("a product of {} × {} and {} × {} numbers", shape.m, shape.k, shape.k, shape.n),
            "give m, n and k from 1 to 2147483647",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::hardware;
    use super::*;

    #[test]
    fn a_simulator_multiplies_and_has_no_times() {
        let matmul = Matmul::new(&Gpu::simulated().unwrap(), "matmul/02_tiled").unwrap();
        assert_eq!(matmul.multiply(&[1.0; 4], &[2.0; 4], 2).unwrap(), [4.0; 4]);
        assert!(matches!(matmul.time(33, &Bench::default()), Err(Error::Unsupported { .. })));
        assert!(matches!(matmul.time_with_copies(33, &Bench::default()), Err(Error::Unsupported { .. })));
    }

    #[test]
    fn a_side_of_zero_or_beyond_i32_is_refused() {
        for side in [0, 1 << 31] {
            let text = sides(Shape { m: 1, n: side, k: 1 }).unwrap_err().to_string();
            assert!(text.contains("next: give m, n and k from 1"), "{text}");
        }
        assert_eq!(sides(7.into()), Ok([7, 7, 7]));
        assert_eq!(Shape::from(2).operations(), 16.0);
    }

    #[test]
    fn large_tiles_are_for_products_that_have_enough_of_them() {
        let gpu = Gpu::simulated().unwrap();
        let large = Matmul::new(&gpu, LARGE).unwrap();
        // So many tiles of 128 × 256 on one block a multiprocessor.
        let tiles = |count: u32| Shape { m: 128 * count as usize, n: 256, k: 1 };
        let enough = (3 * gpu.multiprocessors()).div_ceil(4);
        assert_eq!((large.used_for(tiles(enough - 1)), large.used_for(tiles(enough))), (SMALLER, LARGE));
        assert_eq!(large.hands_to(Size::Three(1, 1, 1)), Some(SMALLER));
        // Who looks at it sees the rung itself.
        assert_eq!(crate::Ladder::Matmul.inspect("13", 64).unwrap().block, [256, 1, 1]);
        assert_eq!(Matmul::new(&gpu, SMALLER).unwrap().hands_to(Size::Three(1, 1, 1)), None);
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn every_rung_is_checked_and_timed_on_a_gpu() {
        let gpu = hardware();
        for rung in crate::ladder::RUNGS.iter().filter(|rung| rung.kernel == "matmul") {
            let matmul = Matmul::new(&gpu, rung.path).unwrap();
            assert!(matmul.multiply(&[1.0; 4], &[1.0; 5], 2).unwrap_err().to_string().contains("matmul's `b`"));
            let quick = Bench::default().samples(5);
            let (alone, copied) = (matmul.time(33, &quick).unwrap(), matmul.time_with_copies(33, &quick).unwrap());
            assert!(alone.median > 0.0 && copied.median > 0.0, "{alone} {copied}");
        }
    }
}
