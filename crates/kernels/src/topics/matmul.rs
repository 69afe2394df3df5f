//! One rung of the matrix multiplication, ready to run and to time on a GPU.

use super::{
    Allocation, Array, Cost, HostArray, Launches, Reference, Shape, Size, Topic, compiled, spread_rows, wrong,
};
use crate::ladder::Rung;
use gpulab::bench::Bench;
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu, Kernel};
use gpulab::measurement::Summary;
use rayon::prelude::*;

/// The rung whose tiles are so large that few of them leave multiprocessors without work, and the one that then takes over.
const LARGE: &str = "matmul/13_large_tile";
const SMALLER: &str = "matmul/12_stream_k";

/// What a new kernel is checked at: no side is a multiple of any tile, and all differ.
const AWKWARD: Shape = Shape { m: 127, n: 65, k: 129 };

/// A matmul kernel of the course on one GPU: `c = a · b` for row-major f32 matrices. A number in place of a [`Shape`]
/// means square matrices of that side. `13_large_tile` hands products of few tiles to `12_stream_k`.
#[derive(Debug, Clone)]
pub struct Matmul {
    gpu: Gpu,
    own: Loaded,
    for_few_tiles: Option<Loaded>,
}

/// A compiled rung.
#[derive(Debug, Clone)]
struct Loaded {
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
        let loaded = |path| compiled(gpu, path).map(|(rung, kernel)| Loaded { rung, kernel });
        let mut matmul = Matmul { gpu: gpu.clone(), own: loaded(path)?, for_few_tiles: None };
        let Shape { m, n, k } = AWKWARD;
        let (a, b) = (cpu::random_f32(m * k, 1), cpu::random_f32(k * n, 2));
        let checked = |matmul: &Matmul, path| agree(path, &matmul.multiply(&a, &b, AWKWARD)?, &a, &b, AWKWARD);
        // Its own kernel first: later the other one takes products as small as this.
        checked(&matmul, path)?;
        if matmul.own.rung.path == LARGE {
            matmul.for_few_tiles = Some(loaded(SMALLER)?);
            checked(&matmul, SMALLER)?;
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
        let few = 4 * tiles < 3 * self.gpu.multiprocessors() as usize;
        self.for_few_tiles.as_ref().filter(|_| few).unwrap_or(&self.own)
    }

    /// All four steps: allocates, copies `a` and `b` to the device, launches, and copies the product back.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when a slice does not hold as many numbers as the shape says, [`Error::Invalid`] for a
    /// side that is no positive i32, [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn multiply(&self, a: &[f32], b: &[f32], shape: impl Into<Shape>) -> Result<Vec<f32>> {
        let shape = shape.into();
        let Shape { m, n, k } = shape;
        for (what, slice, expected) in [("matmul's first input", a, m * k), ("matmul's second input", b, k * n)] {
            if slice.len() != expected {
                return Err(Error::LengthMismatch { what: what.to_string(), expected, given: slice.len() });
            }
        }
        sides(shape)?;
        // Poisoned: an element that the kernel forgets comes back as NaN.
        let c = self.gpu.poison(m * n)?;
        let mut set = Set { a: self.gpu.to_device(a)?, b: self.gpu.to_device(b)?, c };
        self.launch(&mut set, shape)?;
        set.c.to_host()
    }

    /// The kernel alone, by device events, in **ms a call**: the matrices are on the GPU already. Several sets of them
    /// are rotated, so that none is still in the cache from its last turn.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a side that is no positive i32, [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn time(&self, shape: impl Into<Shape>, plan: &Bench) -> Result<Summary> {
        let shape = shape.into();
        sides(shape)?;
        let count = self.gpu.sets_past_cache(shape.numbers() * size_of::<f32>());
        let mut sets = (0..count as u64).map(|seed| self.random_set(shape, seed)).collect::<Result<Vec<Set>>>()?;
        self.gpu.time(plan, |call| self.launch(&mut sets[call % count], shape))
    }

    /// Copies in, launch and copy back, by the host's clock, in **ms a call**. The host's memory is pageable; the
    /// device's is allocated before.
    ///
    /// # Errors
    /// As [`Matmul::time`].
    pub fn time_with_copies(&self, shape: impl Into<Shape>, plan: &Bench) -> Result<Summary> {
        self.gpu.has_times()?;
        let shape = shape.into();
        sides(shape)?;
        let Shape { m, n, k } = shape;
        let (a, b, mut c) = (cpu::random_f32(m * k, 1), cpu::random_f32(k * n, 2), vec![0.0; m * n]);
        let mut set = self.random_set(shape, 3)?;
        cpu::time(plan, || {
            set.a.copy_from(&a)?;
            set.b.copy_from(&b)?;
            self.launch(&mut set, shape)?;
            // Waits for the kernel, so the host's clock is read at the right moment.
            set.c.copy_to(&mut c)
        })
    }

    fn random_set(&self, Shape { m, n, k }: Shape, seed: u64) -> Result<Set> {
        let matrix = |numbers, seed| self.gpu.to_device(&cpu::random_f32(numbers, seed));
        Ok(Set { a: matrix(m * k, 2 * seed)?, b: matrix(k * n, 2 * seed + 1)?, c: self.gpu.alloc(m * n)? })
    }

    fn launch(&self, Set { a, b, c }: &mut Set, shape: Shape) -> Result<()> {
        self.launch_by(&mut Launches::queue(), a, b, c, shape)
    }

    fn launch_by(
        &self,
        launches: &mut Launches,
        a: &Buffer<f32>,
        b: &Buffer<f32>,
        c: &mut Buffer<f32>,
        shape: Shape,
    ) -> Result<()> {
        let [m, n, k] = sides(shape)?;
        let Loaded { rung, kernel } = if launches.look() { &self.own } else { self.loaded_for(shape) };
        let config = rung.launch(shape.n, shape.m, self.gpu.multiprocessors());
        launches.launch(kernel, config, (a, b, c, m, n, k))
    }
}

/// A size is (m, n, k).
impl Topic for Matmul {
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
        let Shape { m, n, .. } = size.try_into()?;
        Ok(vec![Allocation::F32(m * n)])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        self.launch_by(launches, inputs[0].f32()?, inputs[1].f32()?, outputs[0].f32_mut()?, size.try_into()?)
    }

    fn exact(&self, inputs: &[HostArray], size: Size) -> Result<Vec<Reference>> {
        Ok(rows_in_f64(inputs, size.try_into()?))
    }

    fn hands_to(&self, size: Size) -> Option<&'static str> {
        let used = self.used_for(Shape::try_from(size).ok()?);
        (used != self.own.rung.path).then_some(used)
    }
}

/// Rows of the product that are compared with f64, spread over it.
const CHECKED_ROWS: usize = 8;

/// Some rows of a product in f64.
pub(super) fn rows_in_f64(inputs: &[HostArray], Shape { m, n, k }: Shape) -> Vec<Reference> {
    let row = |row: usize| {
        let mut values = vec![0.0; n];
        for at in 0..k {
            let x = inputs[0].get(row * k + at);
            values.iter_mut().zip(inputs[1].part(at * n, n)).for_each(|(sum, y)| *sum += x * y);
        }
        Reference { output: 0, from: row * n, values }
    };
    spread_rows(m, CHECKED_ROWS).into_par_iter().map(row).collect()
}

/// m, n and k as the kernel takes them.
fn sides(shape: Shape) -> Result<[i32; 3]> {
    let sides = [shape.m, shape.n, shape.k].map(|side| i32::try_from(side).ok().filter(|side| *side > 0));
    match sides {
        [Some(m), Some(n), Some(k)] => Ok([m, n, k]),
        _ => Err(Error::Invalid {
            what: format!("a product of {} × {} and {} × {} numbers", shape.m, shape.k, shape.k, shape.n),
            fix: "give m, n and k from 1 to 2147483647".to_string(),
        }),
    }
}

/// Compares a product of matrices whose elements lie in [-1, 1) with sums in f64. A partial sum stays below k, so each
/// of its k roundings is off by at most k · 2⁻²⁴.
fn agree(path: &str, given: &[f32], a: &[f32], b: &[f32], Shape { m, n, k }: Shape) -> Result<()> {
    let tolerance = (k * k) as f64 * 2.0_f64.powi(-24);
    for (at, given) in given.iter().enumerate().take(m * n) {
        let (row, column) = (at / n, at % n);
        let exact: f64 = (0..k).map(|i| f64::from(a[row * k + i]) * f64::from(b[i * n + column])).sum();
        let difference = (f64::from(*given) - exact).abs();
        // An element that was never written is NaN, which is greater than nothing.
        if difference.is_nan() || difference > tolerance {
            let place = format!("m = {m}, n = {n}, k = {k}, row {row}, column {column}");
            return Err(wrong(path, format!("{place}: {given} instead of {exact}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::hardware;
    use super::*;

    #[test]
    fn a_wrong_or_unwritten_element_is_named() {
        let (a, b, expected) = ([0.5_f32, 1.0], [1.0_f32, -1.0], [0.5_f32, -0.5, 1.0, -1.0]);
        let shape = Shape { m: 2, n: 2, k: 1 };
        assert_eq!(agree("m", &expected, &a, &b, shape), Ok(()));
        for wrong in [f32::NAN, 1.1] {
            let text = agree("m", &[0.5, -0.5, wrong, -1.0], &a, &b, shape).unwrap_err().to_string();
            assert!(text.contains("row 1, column 0") && text.contains("\nnext: "), "{text}");
        }
    }

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
    fn every_rung_is_checked_and_timed_on_a_gpu() {
        let Some(gpu) = hardware() else { return };
        for rung in crate::ladder::RUNGS.iter().filter(|rung| rung.kernel == "matmul") {
            let matmul = Matmul::new(&gpu, rung.path).unwrap();
            assert!(matmul.multiply(&[1.0; 4], &[1.0; 5], 2).unwrap_err().to_string().contains("second input"));
            let quick = Bench::default().samples(5);
            let (alone, copied) = (matmul.time(33, &quick).unwrap(), matmul.time_with_copies(33, &quick).unwrap());
            assert!(alone.median > 0.0 && copied.median > 0.0, "{alone} {copied}");
        }
    }
}
