//! One rung of the product of a 2:4 matrix and a dense one, ready to run and to time on a GPU.

use super::block_sparse::product_row;
use super::{
    Allocation, Array, Cost, HostArray, Launches, Loaded, Reference, Shape, Size, Topic, check, length, lengths,
    tma_takes,
};
use crate::sparse::{TwoFour, prune_two_four};
use gpulab::cpu;
use gpulab::error::Result;
use gpulab::gpu::{Gpu, TensorMap};

/// The rung that takes over what the TMA cannot: rows that do not begin at multiples of 16 bytes.
const ANY_SIZE: &str = "two_four/02_sparse_tensor_cores";

/// What a new kernel is checked at: no multiples of any tile, rows of b that begin at multiples of 16 bytes and that do not, one
/// step and several.
const AWKWARD: [Shape; 6] = [
    Shape { m: 1, n: 1, k: 1 },
    Shape { m: 31, n: 33, k: 31 },
    Shape { m: 127, n: 65, k: 129 },
    Shape { m: 65, n: 72, k: 200 },
    Shape { m: 16, n: 8, k: 64 },
    Shape { m: 290, n: 264, k: 456 },
];

/// Rows that are compared in a timed run.
const COMPARED: usize = 64;

/// A two_four kernel of the course on one GPU: `c (m × n) = a (m × k) · b (k × n)`, `a` as [`TwoFour`], all in bf16 with sums in
/// f32. Rates count the 2mnk operations of the dense product, as tables of sparse tensor cores do. A size is (m, n, k). The
/// rung that uses the TMA hands sizes that it cannot take to `02_sparse_tensor_cores`.
#[derive(Debug, Clone)]
pub struct TwoFourProduct {
    own: Loaded,
    any_size: Option<Loaded>,
}

impl TwoFourProduct {
    /// Compiles the rung of that path, such as `two_four/02_sparse_tensor_cores`, and checks it in f64 at awkward sizes.
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) for a path that is none, or a kernel whose result is wrong;
    /// [`Error::Unsupported`](gpulab::Error::Unsupported) for a GPU that is too old for it; those of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<TwoFourProduct> {
        let own = Loaded::new(gpu, path)?;
        let any_size = if own.tensor_maps > 0 { Some(Loaded::new(gpu, ANY_SIZE)?) } else { None };
        let product = TwoFourProduct { own, any_size };
        for shape in AWKWARD {
            check(&product, path, &product.inputs(shape.into(), 1)?, shape)?;
        }
        Ok(product)
    }

    /// Values and words of the metadata.
    fn stored(m: usize, k: usize) -> (usize, usize) {
        let padded = k.next_multiple_of(TwoFour::COLUMNS);
        (m * padded / 2, m.div_ceil(16) * padded / 64 * 32)
    }
}

/// The matrix of a call's inputs.
pub(crate) fn two_four_of(inputs: &[HostArray], columns: usize) -> TwoFour {
    match &inputs[..2] {
        [HostArray::Bf16(values), HostArray::Codes(metadata)] => {
            TwoFour { columns, values: values.clone(), metadata: metadata.clone() }
        }
        other => panic!("{other:?} in place of a 2:4 matrix"),
    }
}

impl Topic for TwoFourProduct {
    fn gpu(&self) -> &Gpu {
        &self.own.gpu
    }

    fn work(&self, size: Size) -> Result<Cost> {
        let shape = Shape::try_from(size)?;
        [shape.m, shape.n, shape.k].map(length).into_iter().collect::<Result<Vec<_>>>()?;
        let (values, words) = TwoFourProduct::stored(shape.m, shape.k);
        let bytes = 2 * values + 4 * words + 2 * (shape.k * shape.n + shape.m * shape.n);
        Ok(Cost::of_operations(shape.operations(), bytes, "bf16"))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        let Shape { m, n, k } = size.try_into()?;
        let dense: Vec<f32> = cpu::random_bf16(m * k, 2 * seed).into_iter().map(cpu::f32_from_bf16).collect();
        let a = match k {
            0 => TwoFour { columns: 0, values: Vec::new(), metadata: Vec::new() },
            _ => TwoFour::compress(&prune_two_four(&dense, k), k)?,
        };
        let b = HostArray::Bf16(cpu::random_bf16(k * n, 2 * seed + 1));
        Ok(vec![HostArray::Bf16(a.values), HostArray::Codes(a.metadata), b])
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        let Shape { m, n, .. } = size.try_into()?;
        Ok(vec![Allocation::Bf16(m * n)])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        let Shape { m, n, k } = size.try_into()?;
        let (values, metadata, b) = (inputs[0].bf16()?, inputs[1].codes()?, inputs[2].bf16()?);
        let c = outputs[0].bf16_mut()?;
        let (numbers, words) = TwoFourProduct::stored(m, k);
        let given = [("values", values.len(), numbers), ("metadata", metadata.len(), words)];
        lengths("two_four", &[&given[..], &[("b", b.len(), k * n), ("c", c.len(), m * n)]].concat())?;
        let [rows, columns, inner] = [length(m)?, length(n)?, length(k)?];
        // Columns of a are filled up, so its rows are whole where there are any.
        let loaded = self.any_size.as_ref().filter(|_| !(tma_takes(n) && k > 0)).unwrap_or(&self.own);
        if loaded.tensor_maps == 0 || m == 0 {
            return loaded.launch(launches, n, m, (values, metadata, b, c, rows, columns, inner));
        }
        // The engine fetches a tile of the values at once; of b and c panels of 64 columns, each block of a cluster its share.
        let (_, tile_rows) = loaded.rung.tile;
        let share = loaded.constant("TILE_K") / loaded.constant("CLUSTER");
        let values = TensorMap::new(values, m, numbers / m, tile_rows)?;
        let (b, mut c) = (TensorMap::new(b, k, n, share)?, TensorMap::written(c, m, n, 64)?);
        loaded.launch(launches, n, m, (&values, metadata, &b, &mut c, rows, columns, inner))
    }

    fn rows(&self, size: Size) -> Result<(usize, usize)> {
        Ok((size.three()?.0, COMPARED))
    }

    fn exact_row(&self, inputs: &[HostArray], size: Size, row: usize) -> Result<Vec<Reference>> {
        let (_, n, k) = size.three()?;
        let a = if k == 0 { Vec::new() } else { two_four_of(inputs, k).row(row) };
        Ok(vec![product_row(&a, &inputs[2], n, row)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ladder;

    #[test]
    fn sparse_tensor_cores_need_fewer_instructions_and_shared_reads() {
        let seen = Ladder::TwoFour.counters((64, 64, 256)).unwrap();
        let of = |rung: &str| seen.get(rung).unwrap().counters;
        assert!(of("01").warp_instructions > 2 * of("02").warp_instructions, "{seen}");
        assert!(of("01").shared_load_wavefronts > of("02").shared_load_wavefronts, "{seen}");
        assert!(seen.rungs.iter().all(|rung| rung.findings == 0), "{seen}");
        let gpu = Gpu::simulated().unwrap();
        let [product, hopper] = ["two_four/02_sparse_tensor_cores", "two_four/03_warpgroups"]
            .map(|path| TwoFourProduct::new(&gpu, path).unwrap_or_else(|error| panic!("{error}")));
        for size in [(0, 8, 64), (3, 5, 0), (3, 8, 0)] {
            let inputs = product.inputs(size.into(), 1).unwrap();
            let zeros = HostArray::Bf16(vec![0; size.0 * size.1]);
            for product in [&product, &hopper] {
                assert_eq!(product.results(&inputs, size.into()), Ok(vec![zeros.clone()]), "{size:?}");
            }
        }
        let mut inputs = product.inputs(Size::Three(8, 8, 64), 1).unwrap();
        inputs[1] = HostArray::Codes(vec![0; 31]);
        assert!(product.results(&inputs, Size::Three(8, 8, 64)).unwrap_err().to_string().contains("`metadata`"));
    }
}
