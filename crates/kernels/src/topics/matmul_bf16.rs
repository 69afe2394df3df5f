//! One rung of the bf16 matrix multiplication, ready to run and to time on a GPU.

use super::matmul::{COMPARED_ROWS, product_row};
use super::rows::rounding;
use super::{Allocation, Array, Cost, HostArray, Launches, Loaded, Reference, Shape, Size, Topic, check, tma_takes};
use crate::ladder::Language;
use crate::tiles::TileProgram;
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Gpu, Module, TensorMap};

/// The rung that takes over what the TMA cannot: rows that do not begin at multiples of 16 bytes.
const ANY_SIZE: &str = "matmul_bf16/05_wgmma";

/// What a new kernel is checked at: no multiples of any tile; the second with rows of whole 16 bytes.
const AWKWARD: [Shape; 2] = [Shape { m: 127, n: 65, k: 129 }, Shape { m: 130, n: 264, k: 72 }];

/// A bf16 matmul kernel of the course on one GPU: `c (m × n) = a (m × k) · b (k × n)`, all row-major bf16 (`u16` to the
/// host), sums in f32; 2mnk operations. Rungs that use the TMA hand sizes that it cannot take to `05_wgmma`. A
/// number in place of a [`Shape`] means square matrices of that side.
#[derive(Debug, Clone)]
pub struct MatmulBf16 {
    own: Loaded,
    any_size: Option<Loaded>,
}

impl MatmulBf16 {
    /// Compiles the rung of that path, such as `matmul_bf16/04_swizzle`, and checks it against the CPU in f64.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a GPU that the rung does not run on, [`Error::Invalid`] for a path that is none, or a
    /// kernel whose result is wrong; the errors of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<MatmulBf16> {
        let own = Loaded::new(gpu, path)?;
        let any_size = if own.tensor_maps > 0 { Some(Loaded::new(gpu, ANY_SIZE)?) } else { None };
        let matmul = MatmulBf16 { own, any_size };
        for shape in AWKWARD {
            check(&matmul, path, &matmul.inputs(shape.into(), 1)?, shape)?;
        }
        Ok(matmul)
    }

    /// The program on tiles with its constants, from the module that was made of its source; checked likewise, at sizes that the
    /// TMA takes.
    ///
    /// # Errors
    /// As [`MatmulBf16::new`].
    pub fn on_tiles(gpu: &Gpu, program: &TileProgram, module: &Module) -> Result<MatmulBf16> {
        let own = Loaded::on_tiles(gpu, program, module)?;
        let matmul = MatmulBf16 { own, any_size: None };
        for shape in [AWKWARD[1], Shape { m: 1, n: 8, k: 8 }, Shape { m: 300, n: 520, k: 200 }] {
            check(&matmul, matmul.own.rung.path, &matmul.inputs(shape.into(), 1)?, shape)?;
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
        let given = [a, b].map(|matrix| HostArray::Bf16(matrix.to_vec()));
        match self.results(&given, shape.into().into())?.swap_remove(0) {
            HostArray::Bf16(c) => Ok(c),
            _ => unreachable!("`outputs` asks for bf16"),
        }
    }

    fn loaded_for(&self, Shape { n, k, .. }: Shape) -> &Loaded {
        self.any_size.as_ref().filter(|_| !(tma_takes(n) && tma_takes(k))).unwrap_or(&self.own)
    }
}

/// A size is (m, n, k).
impl Topic for MatmulBf16 {
    fn gpu(&self) -> &Gpu {
        &self.own.gpu
    }

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
        let shape = Shape::try_from(size)?;
        let Shape { m, n, k } = shape;
        let [rows, columns, inner] = [side(m)?, side(n)?, side(k)?];
        let (a, b, c) = (inputs[0].bf16()?, inputs[1].bf16()?, outputs[0].bf16_mut()?);
        shape.lengths(a.len(), b.len(), c.len())?;
        let loaded = self.loaded_for(shape);
        if loaded.tensor_maps == 0 || m == 0 {
            return loaded.launch(launches, n, m, (a, b, c, rows, columns, inner));
        }
        if loaded.rung.language == Language::Rust {
            let stack = |rows, columns| (1, rows, columns);
            let a = TensorMap::of_stack(a, stack(m, k), loaded.constant("TILE_M"))?;
            let b = TensorMap::of_stack(b, stack(k, n), loaded.constant("TILE_K"))?;
            let mut c = TensorMap::of_written_stack(c, stack(m, n), 64)?;
            return loaded.launch(launches, n, m, (&a, &b, &mut c, rows, columns, inner));
        }
        // The engine fetches a tile of a at once, b and c in panels of 64 columns.
        let (_, tile_rows) = loaded.rung.tile;
        let (a, b) = (TensorMap::new(a, m, k, tile_rows)?, TensorMap::new(b, k, n, 64)?);
        // Some rungs write c without it.
        if loaded.tensor_maps == 2 {
            return loaded.launch(launches, n, m, (&a, &b, c, rows, columns, inner));
        }
        let mut c = TensorMap::written(c, m, n, 64)?;
        loaded.launch(launches, n, m, (&a, &b, &mut c, rows, columns, inner))
    }

    fn rows(&self, size: Size) -> Result<(usize, usize)> {
        Ok((size.three()?.0, COMPARED_ROWS))
    }

    fn exact_row(&self, inputs: &[HostArray], size: Size, row: usize) -> Result<Vec<Reference>> {
        let shape = Shape::try_from(size)?;
        // The sums in f32, of factors in [-1, 1), are off by at most k · k · 2⁻²³.
        let sums = shape.k.pow(2) as f64 * 2.0_f64.powi(-23);
        let values = product_row(inputs, shape, row);
        Ok(vec![Reference::new(0, row * shape.n, values, |_, exact| rounding(exact) + sums)])
    }

    fn hands_to(&self, size: Size) -> Option<&'static str> {
        let used = self.used_for(Shape::try_from(size).ok()?);
        (used != self.own.rung.path).then_some(used)
    }
}

/// A size as a kernel's `int`, with room for the tile that hangs over.
fn side(size: usize) -> Result<i32> {
    i32::try_from(size).ok().filter(|&size| size <= i32::MAX - 1024).ok_or_else(|| Error::Invalid {
        what: format!("a matrix side of {size}: these kernels count rows and columns in `int`"),
        fix: "split the matrices, and launch once for each part".to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::RUNGS;

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn every_rung_is_right_at_many_sizes_on_a_gpu() {
        let gpu = crate::topics::hardware();
        for rung in RUNGS.iter().filter(|rung| rung.kernel == "matmul_bf16") {
            if let Err(error) = rung.runs_on(gpu.compute_capability().unwrap()) {
                eprintln!("skipped: {error}");
                continue;
            }
            let matmul = MatmulBf16::new(&gpu, rung.path).unwrap();
            assert_eq!(matmul.used_for(64), rung.path);
            assert_eq!(matmul.used_for(Shape { m: 1, n: 65, k: 64 }) == rung.path, matmul.any_size.is_none());
            for (m, n, k) in [(1, 1, 1), (1, 8, 8), (31, 31, 31), (33, 40, 0), (257, 520, 1032), (0, 8, 8)] {
                check(&matmul, rung.path, &matmul.inputs((m, n, k).into(), 1).unwrap(), (m, n, k)).unwrap();
            }
            assert!(matmul.multiply(&[0; 4], &[0; 5], 2).unwrap_err().to_string().contains("matmul's `b`"));
        }
    }
}
