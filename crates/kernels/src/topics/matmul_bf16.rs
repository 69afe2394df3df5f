//! One rung of the bf16 matrix multiplication, ready to run and to time on a GPU.

use super::matmul::rows_in_f64;
use super::{Allocation, Array, Cost, HostArray, Launches, Reference, Shape, Size, Topic, compiled, wrong};
use crate::ladder::Rung;
use gpulab::bench::Bench;
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu, Kernel, TensorMap};
use gpulab::launch::signatures;
use gpulab::measurement::Summary;

/// The rung that takes over what the copy engine cannot: rows that do not begin at multiples of 16 bytes.
const ANY_SIZE: &str = "matmul_bf16/05_wgmma";

/// What a new kernel is checked at: no multiples of any tile; the second with rows of whole 16 bytes.
const AWKWARD: [Shape; 2] = [Shape { m: 127, n: 65, k: 129 }, Shape { m: 130, n: 264, k: 72 }];

/// A bf16 matmul kernel of the course on one GPU: `c (m × n) = a (m × k) · b (k × n)`, all row-major bf16 (`u16` to the
/// host), sums in f32; 2mnk operations. Rungs that use the copy engine hand sizes that it cannot take to `05_wgmma`. A
/// number in place of a [`Shape`] means square matrices of that side.
#[derive(Debug, Clone)]
pub struct MatmulBf16 {
    gpu: Gpu,
    own: Loaded,
    any_size: Option<Loaded>,
}

/// A compiled rung, and how many of its parameters are tensor maps: none, those of a and b, or those of a, b and c.
#[derive(Debug, Clone)]
struct Loaded {
    rung: Rung,
    kernel: Kernel,
    maps: usize,
}

/// Three matrices in device memory.
struct Set {
    a: Buffer<u16>,
    b: Buffer<u16>,
    c: Buffer<u16>,
}

impl MatmulBf16 {
    /// Compiles the rung of that path, such as `matmul_bf16/04_swizzle`, and checks it against the CPU in f64.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a GPU that the rung does not run on, [`Error::Invalid`] for a path that is none, or a
    /// kernel whose result is wrong; the errors of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<MatmulBf16> {
        let own = Loaded::new(gpu, path)?;
        let any_size = if own.maps > 0 { Some(Loaded::new(gpu, ANY_SIZE)?) } else { None };
        let matmul = MatmulBf16 { gpu: gpu.clone(), own, any_size };
        for shape in AWKWARD {
            let (a, b) = (cpu::random_bf16(shape.m * shape.k, 1), cpu::random_bf16(shape.k * shape.n, 2));
            agree(path, &matmul.multiply(&a, &b, shape)?, &a, &b, shape)?;
        }
        Ok(matmul)
    }

    /// The path of the rung that multiplies these sizes: its own, or the one that it hands them to.
    pub fn used_for(&self, shape: impl Into<Shape>) -> &'static str {
        self.loaded_for(shape.into()).rung.path
    }

    /// All four steps: allocates, copies `a` and `b` to the device, launches, and copies the product back.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when `a` does not hold m · k numbers or `b` not k · n, [`Error::OutOfMemory`],
    /// [`Error::Driver`].
    pub fn multiply(&self, a: &[u16], b: &[u16], shape: impl Into<Shape>) -> Result<Vec<u16>> {
        let shape @ Shape { m, n, k } = shape.into();
        for (what, given, expected) in [("first", a.len(), m * k), ("second", b.len(), k * n)] {
            if given != expected {
                return Err(Error::LengthMismatch { what: format!("matmul's {what} input"), expected, given });
            }
        }
        // Poisoned: an element that the kernel forgets comes back as NaN.
        let c = self.gpu.poison(m * n)?;
        let mut set = Set { a: self.gpu.to_device(a)?, b: self.gpu.to_device(b)?, c };
        self.launch(&set.a, &set.b, &mut set.c, shape)?;
        set.c.to_host()
    }

    /// The kernel alone, by device events, in **ms a call**: the matrices are on the GPU already. Several sets of them
    /// are rotated, so that none is still in the cache from its last turn.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn time(&self, shape: impl Into<Shape>, plan: &Bench) -> Result<Summary> {
        let shape = shape.into();
        let count = self.gpu.sets_past_cache(shape.numbers() * size_of::<u16>());
        let mut sets = (0..count as u64).map(|seed| self.random_set(shape, seed)).collect::<Result<Vec<Set>>>()?;
        self.gpu.time(plan, |call| {
            let Set { a, b, c } = &mut sets[call % count];
            self.launch(a, b, c, shape)
        })
    }

    fn random_set(&self, Shape { m, n, k }: Shape, seed: u64) -> Result<Set> {
        let matrix = |len, seed| self.gpu.to_device(&cpu::random_bf16(len, seed));
        Ok(Set { a: matrix(m * k, 2 * seed)?, b: matrix(k * n, 2 * seed + 1)?, c: self.gpu.alloc(m * n)? })
    }

    fn loaded_for(&self, Shape { n, k, .. }: Shape) -> &Loaded {
        let whole = |columns: usize| columns > 0 && columns.is_multiple_of(8);
        self.any_size.as_ref().filter(|_| !(whole(n) && whole(k))).unwrap_or(&self.own)
    }

    /// The launch alone: `c (m × n) = a (m × k) · b (k × n)`, for buffers on this GPU.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when a buffer is not as long as its matrix, before anything runs; the errors of
    /// [`Kernel::launch`].
    pub fn launch(&self, a: &Buffer<u16>, b: &Buffer<u16>, c: &mut Buffer<u16>, shape: impl Into<Shape>) -> Result<()> {
        self.launch_by(&mut Launches::queue(), (a, b, c), shape.into())
    }

    fn launch_by(
        &self,
        launches: &mut Launches,
        (a, b, c): (&Buffer<u16>, &Buffer<u16>, &mut Buffer<u16>),
        shape: Shape,
    ) -> Result<()> {
        let Shape { m, n, k } = shape;
        for (what, given, expected) in [("a", a.len(), m * k), ("b", b.len(), k * n), ("c", c.len(), m * n)] {
            if given != expected {
                return Err(Error::LengthMismatch { what: format!("matmul's `{what}`"), expected, given });
            }
        }
        // Nothing to compute; a launch has at least one block.
        if m == 0 || n == 0 {
            return Ok(());
        }
        self.loaded_for(shape).launch(launches, self.gpu.multiprocessors(), (a, b, c), shape)
    }
}

/// A size is (m, n, k).
impl Topic for MatmulBf16 {
    fn work(&self, size: Size) -> Result<Cost> {
        let shape = Shape::try_from(size)?;
        [shape.m, shape.n, shape.k].map(side).into_iter().collect::<Result<Vec<_>>>()?;
        Ok(Cost::of_operations(shape.operations(), shape.numbers().saturating_mul(2), "bf16"))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        let Shape { m, n, k } = size.try_into()?;
        let matrix = |numbers, seed| HostArray::Bf16(cpu::random_bf16(numbers, seed));
        Ok(vec![matrix(m * k, 2 * seed), matrix(k * n, 2 * seed + 1)])
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        let Shape { m, n, .. } = size.try_into()?;
        Ok(vec![Allocation::Bf16(m * n)])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        let matrices = (inputs[0].bf16()?, inputs[1].bf16()?, outputs[0].bf16_mut()?);
        self.launch_by(launches, matrices, size.try_into()?)
    }

    fn exact(&self, inputs: &[HostArray], size: Size) -> Result<Vec<Reference>> {
        Ok(rows_in_f64(inputs, size.try_into()?))
    }

    fn hands_to(&self, size: Size) -> Option<&'static str> {
        let used = self.used_for(Shape::try_from(size).ok()?);
        (used != self.own.rung.path).then_some(used)
    }
}

impl Loaded {
    fn new(gpu: &Gpu, path: &str) -> Result<Loaded> {
        let (rung, kernel) = compiled(gpu, path)?;
        let declared = signatures(&rung.source()?.text).into_iter().find(|signature| signature.name == rung.kernel);
        let parameters = declared.map_or_else(Vec::new, |signature| signature.parameters);
        let maps = parameters.iter().filter(|parameter| parameter.text.contains("TensorMap")).count();
        Ok(Loaded { rung, kernel, maps })
    }

    fn launch(
        &self,
        launches: &mut Launches,
        multiprocessors: u32,
        (a, b, c): (&Buffer<u16>, &Buffer<u16>, &mut Buffer<u16>),
        Shape { m, n, k }: Shape,
    ) -> Result<()> {
        let config = self.rung.launch(n, m, multiprocessors);
        let [rows, columns, inner] = [side(m)?, side(n)?, side(k)?];
        if self.maps == 0 {
            return launches.launch(&self.kernel, config, (a, b, c, rows, columns, inner));
        }
        // The engine fetches a tile of a at once, b and c in panels of 64 columns.
        let (_, tile_rows) = self.rung.tile;
        let (a, b) = (TensorMap::new(a, m, k, tile_rows)?, TensorMap::new(b, k, n, 64)?);
        if self.maps == 2 {
            return launches.launch(&self.kernel, config, (&a, &b, c, rows, columns, inner));
        }
        let mut c = TensorMap::written(c, m, n, 64)?;
        launches.launch(&self.kernel, config, (&a, &b, &mut c, rows, columns, inner))
    }
}

/// A size as a kernel's `int`, with room for the tile that hangs over.
fn side(size: usize) -> Result<i32> {
    i32::try_from(size).ok().filter(|&size| size <= i32::MAX - 1024).ok_or_else(|| Error::Invalid {
        what: format!("a matrix side of {size}: these kernels count rows and columns in `int`"),
        fix: "split the matrices, and launch once for each part".to_string(),
    })
}

/// Compares with the product in f64. Rounding to bf16 is off by at most 2⁻⁸ of the result. Of the k sums in f32, none is
/// larger than k, as all factors lie in [-1, 1]; the matrix units cut off where they sum, which is off by 2⁻²³ at most.
fn agree(path: &str, given: &[u16], a: &[u16], b: &[u16], Shape { m, n, k }: Shape) -> Result<()> {
    let [a, b] = [a, b].map(|bits| bits.iter().map(|&bits| f64::from(cpu::f32_from_bf16(bits))).collect::<Vec<f64>>());
    for (at, &bits) in given.iter().enumerate() {
        let (row, column) = (at / n, at % n);
        let exact: f64 = (0..k).map(|i| a[row * k + i] * b[i * n + column]).sum();
        let given = f64::from(cpu::f32_from_bf16(bits));
        let tolerance = exact.abs() * 2.0_f64.powi(-8) + (k * k) as f64 * 2.0_f64.powi(-23);
        let error = (given - exact).abs();
        // An element that was never written is NaN, which is greater than nothing.
        if error.is_nan() || error > tolerance {
            let place = format!("m = {m}, n = {n}, k = {k}, row {row}, column {column}");
            return Err(wrong(path, format!("{place}: {given} on the GPU, {exact} exactly")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::RUNGS;

    #[test]
    fn a_wrong_or_unwritten_element_is_named() {
        let [one, two, three] = [1.0, 2.0, 3.0].map(cpu::bf16_from_f32);
        // (1 2) · (1 2)ᵀ is 5.
        let (five, shape) = (cpu::bf16_from_f32(5.0), Shape { m: 1, n: 1, k: 2 });
        assert_eq!(agree("m", &[five], &[one, two], &[one, two], shape), Ok(()));
        for wrong in [three, u16::MAX] {
            let text = agree("m", &[wrong], &[one, two], &[one, two], shape).unwrap_err().to_string();
            assert!(text.contains("row 0, column 0") && text.contains("\nnext: "), "{text}");
        }
    }

    #[test]
    fn every_rung_is_checked_and_timed_on_a_gpu() {
        let Some(gpu) = crate::topics::hardware() else { return };
        for rung in RUNGS.iter().filter(|rung| rung.kernel == "matmul_bf16") {
            if let Err(error) = rung.runs_on(gpu.compute_capability().unwrap()) {
                eprintln!("skipped: {error}");
                continue;
            }
            let matmul = MatmulBf16::new(&gpu, rung.path).unwrap();
            assert_eq!(matmul.used_for(64), rung.path);
            assert_eq!(matmul.used_for(Shape { m: 1, n: 65, k: 64 }) == rung.path, matmul.any_size.is_none());
            for (m, n, k) in [(1, 1, 1), (1, 8, 8), (31, 31, 31), (33, 40, 0), (257, 520, 1032), (0, 8, 8)] {
                let (a, b) = (cpu::random_bf16(m * k, 1), cpu::random_bf16(k * n, 2));
                let shape = Shape { m, n, k };
                agree(rung.path, &matmul.multiply(&a, &b, shape).unwrap(), &a, &b, shape).unwrap();
            }
            assert!(matmul.multiply(&[0; 4], &[0; 5], 2).unwrap_err().to_string().contains("second input"));
            assert!(matmul.time(64, &Bench::default().samples(5)).unwrap().median > 0.0);
        }
    }
}
