//! One rung of the product of a matrix of blocks and a dense one on tensor cores, ready to run and to time on a GPU.

use super::rows::rounding;
use super::{Allocation, Array, Cost, HostArray, Launches, Loaded, Reference, Size, Topic, check, length, lengths};
use crate::sparse::{Blocks, entries_fit};
use gpulab::cpu;
use gpulab::error::Result;
use gpulab::gpu::Gpu;

/// Side of the sparse matrix, width of the dense one, and entries that a new kernel is checked at.
const AWKWARD: [(usize, usize, usize); 6] =
    [(1, 1, 1), (1, 8, 0), (33, 31, 1089), (127, 65, 9000), (160, 136, 8192), (64, 72, 1024)];

/// Rows that are compared in a timed run.
const COMPARED: usize = 64;

/// Entries of a block.
const BLOCK: usize = Blocks::SIDE * Blocks::SIDE;

/// A block_sparse kernel of the course on one GPU: `c = a · b`, `a` square and of [`Blocks`], `b` and `c` dense and row-major,
/// all in bf16 with sums in f32. A size is (side of `a`, width of `b`, entries), of which blocks hold 1024 each.
#[derive(Debug, Clone)]
pub struct BlockSparse(Loaded);

impl BlockSparse {
    /// Compiles the rung of that path, such as `block_sparse/01_tensor_cores`, and checks it in f64 at awkward sizes.
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) for a path that is none, or a kernel whose result is wrong;
    /// [`Error::Unsupported`](gpulab::Error::Unsupported) for a GPU that is too old for it; those of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<BlockSparse> {
        let product = BlockSparse(Loaded::new(gpu, path)?);
        for size in AWKWARD {
            check(&product, path, &product.inputs(size.into(), 1)?, size)?;
        }
        Ok(product)
    }

    /// Rows of blocks, and blocks.
    fn blocks(side: usize, entries: usize) -> (usize, usize) {
        (side.div_ceil(Blocks::SIDE), entries.div_ceil(BLOCK))
    }
}

/// The matrix of a call's inputs.
pub(crate) fn blocks_of(inputs: &[HostArray], side: usize) -> Blocks {
    match &inputs[..3] {
        [HostArray::Index(starts), HostArray::Index(indices), HostArray::Bf16(blocks)] => Blocks {
            rows: side,
            columns: side,
            starts: starts.clone(),
            indices: indices.clone(),
            blocks: blocks.clone(),
        },
        other => panic!("{other:?} in place of blocks"),
    }
}

impl Topic for BlockSparse {
    fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    fn work(&self, size: Size) -> Result<Cost> {
        let (side, width, entries) = size.three()?;
        let (rows, blocks) = BlockSparse::blocks(side, entries);
        entries_fit(rows, rows, blocks)?;
        length(width)?;
        let bytes = blocks * (2 * BLOCK + 4) + 4 * (rows + 1) + 4 * side * width;
        Ok(Cost::of_operations(2.0 * (blocks * BLOCK) as f64 * width as f64, bytes, "bf16"))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        let (side, width, entries) = size.three()?;
        let a = Blocks::random(side, side, BlockSparse::blocks(side, entries).1, seed)?;
        let b = HostArray::Bf16(cpu::random_bf16(side * width, 3 * seed + 5));
        Ok(vec![HostArray::Index(a.starts), HostArray::Index(a.indices), HostArray::Bf16(a.blocks), b])
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        let (side, width, _) = size.three()?;
        Ok(vec![Allocation::Bf16(side * width)])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        let (side, width, entries) = size.three()?;
        let (rows, count) = BlockSparse::blocks(side, entries);
        let (starts, indices, blocks) = (inputs[0].index()?, inputs[1].index()?, inputs[2].bf16()?);
        let (b, c) = (inputs[3].bf16()?, outputs[0].bf16_mut()?);
        let given = [("starts", starts.len(), rows + 1), ("indices", indices.len(), count)];
        let dense =
            [("blocks", blocks.len(), count * BLOCK), ("b", b.len(), side * width), ("c", c.len(), side * width)];
        lengths("block_sparse", &[&given[..], &dense].concat())?;
        let (side_int, width_int) = (length(side)?, length(width)?);
        self.0.launch(launches, width, side, (starts, indices, blocks, b, c, side_int, side_int, width_int))
    }

    fn rows(&self, size: Size) -> Result<(usize, usize)> {
        Ok((size.three()?.0, COMPARED))
    }

    fn exact_row(&self, inputs: &[HostArray], size: Size, row: usize) -> Result<Vec<Reference>> {
        let (side, width, _) = size.three()?;
        let a = blocks_of(inputs, side).row(row);
        Ok(vec![product_row(&a, &inputs[3], width, row)])
    }
}

/// Row `row` of a product in f64, of which `a` is that row of the left factor: bf16 is rounded once, and tensor cores drop
/// what lies below the last places of a sum.
pub(super) fn product_row(a: &[f32], b: &HostArray, width: usize, row: usize) -> Reference {
    let sum = |column: usize| {
        let terms = a.iter().enumerate().filter(|(_, a)| **a != 0.0);
        let terms = terms.map(|(k, a)| f64::from(*a) * b.get(k * width + column));
        terms.fold((0.0, 0.0), |(sum, all), x| (sum + x, all + x.abs()))
    };
    let sums: Vec<(f64, f64)> = (0..width).map(sum).collect();
    let exact = sums.iter().map(|(sum, _)| *sum).collect();
    Reference::new(0, row * width, exact, |at, exact| rounding(exact) + sums[at].1 * 2.0_f64.powi(-18))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ladder;

    #[test]
    fn blocks_that_are_not_there_cost_nothing() {
        let gpu = Gpu::simulated().unwrap();
        let instructions = |entries| {
            let seen = Ladder::BlockSparse.counters((256, 64, entries)).unwrap();
            assert!(seen.rungs.iter().all(|rung| rung.findings == 0), "{seen}");
            seen.get("01").unwrap().counters.warp_instructions
        };
        let [quarter, half, all] = [4, 2, 1].map(|part| instructions(256 * 256 / part) as f64);
        let each = (all - half) / (half - quarter);
        assert!((1.7..2.1).contains(&each), "{quarter} {half} {all}");
        let product = BlockSparse::new(&gpu, "block_sparse/02_async_copies").unwrap();
        let mut inputs = product.inputs(Size::Three(64, 8, 2048), 1).unwrap();
        inputs[2] = HostArray::Bf16(vec![0; 1024]);
        assert!(product.results(&inputs, Size::Three(64, 8, 2048)).unwrap_err().to_string().contains("`blocks`"));
    }
}
