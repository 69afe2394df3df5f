//! One rung of the product of several vectors with a matrix of 4 bits, ready to run and to time on a GPU.

use super::quantized::{Codes, product};
use super::rows::rounding;
use super::{
    Allocation, Array, Cost, HostArray, Launches, Loaded, Reference, Size, Topic, changed, check, length, lengths,
};
use crate::ladder::rung;
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Gpu, TensorMap};

/// Vectors, rows and columns that a new kernel is checked at: no multiples of a tile, and groups that fill no stage.
const AWKWARD: [(usize, usize, usize); 5] = [(1, 1, 128), (3, 33, 384), (13, 130, 128), (17, 47, 640), (64, 70, 256)];

/// So many vectors at a time: for each there is a kernel, and fewer vectors are filled up with zeros.
const BATCHES: [u32; 4] = [8, 16, 32, 64];

/// Rows of the weights whose results are compared in a timed run.
const COMPARED: usize = 128;

/// A quantized_matmul kernel of the course on one GPU: `y (batch × rows) = x (batch × columns) · weightsᵀ` for a batch of 1
/// to 64, with weights of 4 bits as [`Codes`], packed by [`Codes::fragments`]; `x` and `y` in bf16, sums in f32. A size is
/// (batch, rows, columns), the inputs are the fragments, the scales and `x`.
#[derive(Debug, Clone)]
pub struct QuantizedMatmul {
    /// A kernel for each of some batches, the smallest first, and the rows of weights that its blocks take together.
    own: Vec<(Loaded, usize)>,
    /// For weights of no columns, of which the TMA cannot be told.
    no_columns: Option<Loaded>,
    codes: Codes,
}

impl QuantizedMatmul {
    /// Compiles the rung of that path, such as `quantized_matmul/03_split_k`, for groups of that length, and checks it in
    /// f64.
    ///
    /// ```no_run
    /// use gpulab::prelude::*;
    /// use gpulab_kernels::{topics::Topic, *};
    /// let gpu = Gpu::open()?;
    /// let product = QuantizedMatmul::new(&gpu, "quantized_matmul/03_split_k", Codes::INT4)?;
    /// println!("{} ms", product.time(Size::Three(16, 8192, 8192), &Bench::default())?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path that is none, codes that have not 4 bits, or a kernel whose result is wrong;
    /// [`Error::Unsupported`] for a GPU that is too old for it; those of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str, codes: Codes) -> Result<QuantizedMatmul> {
        // The best of those tried on an H200; the table has those for 64 vectors.
        let registers = path.ends_with("06_registers");
        let specialised = path.ends_with("07_warp_specialised");
        QuantizedMatmul::with(gpu, path, codes, &BATCHES, &|batch| match batch {
            8 | 16 if specialised => vec![("TILES", 2), ("STEPS", 4), ("STAGES", 3), ("SPLIT", 2)],
            _ if specialised => Vec::new(),
            8 if registers => vec![("WARPS", 8), ("BLOCKS", 2), ("SLICE", 32), ("CHUNKS", 4)],
            16 if registers => vec![("SLICE", 32), ("CHUNKS", 4)],
            32 if registers => vec![("SLICE", 16), ("CHUNKS", 2)],
            8 | 16 => vec![("STAGES", 6)],
            32 => vec![("WARPS", 4), ("STAGES", 3), ("BLOCKS", 3)],
            _ => Vec::new(),
        })
    }

    /// The same for some of the batches, with some of the constants of each changed, such as `("STAGES", 6)`; block, tile
    /// and shared memory follow.
    ///
    /// # Errors
    /// As [`QuantizedMatmul::new`].
    pub fn with(
        gpu: &Gpu,
        path: &str,
        codes: Codes,
        batches: &[u32],
        changes: &dyn Fn(u32) -> Vec<(&'static str, u32)>,
    ) -> Result<QuantizedMatmul> {
        if codes.bits != 4 {
            return Err(Error::invalid(
                format!("`{path}` for codes of {} bits: it takes 4", codes.bits),
                "use `Codes { bits: 4, .. }`, or a rung of `quantized_gemv`",
            ));
        }
        let open = |&batch: &u32| {
            let mut own = rung(path)?;
            let all = [&[("GROUP", codes.group), ("BATCH", batch)], &changes(batch)[..]].concat();
            let constants = changed(own.defines, &all);
            let value = |name: &str| constants.iter().find(|(own, _)| own == name).map(|(_, value)| *value);
            let [warps, tiles] = ["WARPS", "TILES"].map(|name| value(name).unwrap_or(1));
            let rows = 16 * tiles * warps / value("SPLIT").unwrap_or(1);
            let cluster = value("CLUSTER").unwrap_or(1);
            own.block = (32 * warps, 1);
            own.tile = (rows / cluster, batch);
            // A stage is 128 columns of codes and of x, a step of a slice those of x and up to two numbers a vector; at the
            // end the sums lie there, in rows that are four numbers longer.
            let stages = value("STAGES").unwrap_or(0) * (warps * tiles * 1024 + batch * 256);
            let copied = match value("STEPS") {
                // Stages of several steps with a pair of barriers each, and beside them what the parties have of each other's sums.
                Some(steps) => {
                    let parties = cluster * value("SPLIT").unwrap_or(1);
                    let sums = (parties - 1).max(1) * (batch / 2 / parties * tiles) * 32 * warps * 4;
                    own.block = (32 * warps + 128, 1);
                    value("STAGES").unwrap_or(0) * (steps * (batch * 256 + rows * 64) + 16) + sums
                }
                None => stages.max(value("SLICE").unwrap_or(0) * batch * 264),
            };
            own.shared_bytes = if copied > 0 { copied.max(batch * (rows + 4) * 4) } else { 0 };
            Ok((Loaded::with_constants(gpu, own, &constants)?, rows as usize))
        };
        let own = batches.iter().map(open).collect::<Result<Vec<_>>>()?;
        let by_tma = own.iter().any(|(own, _)| own.tensor_maps > 0);
        let no_columns = if by_tma { Some(Loaded::new(gpu, "quantized_matmul/01_fragments")?) } else { None };
        let product = QuantizedMatmul { own, no_columns, codes };
        let most = batches.iter().copied().max().unwrap_or(0) as usize;
        for (batch, rows, columns) in AWKWARD {
            // As many groups, however long they are.
            let size = (batch.min(most), rows, columns / 128 * codes.group as usize);
            check(&product, path, &product.inputs(size.into(), 1)?, size)?;
        }
        Ok(product)
    }
}

impl Topic for QuantizedMatmul {
    fn gpu(&self) -> &Gpu {
        &self.own[0].0.gpu
    }

    fn work(&self, size: Size) -> Result<Cost> {
        let (batch, rows, columns) = size.three()?;
        let (words, scales) = self.codes.lengths(rows, columns)?;
        let moved = 4 * words + 2 * (scales + batch * (rows + columns));
        Ok(Cost::of_bytes(moved, 2.0 * batch as f64 * rows as f64 * columns as f64, "int4"))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        let (batch, rows, columns) = size.three()?;
        let [codes, scales] = self.codes.random(rows, columns, seed)?;
        let x = cpu::random_bf16(batch * columns, 3 * seed);
        Ok(vec![HostArray::Codes(self.codes.fragments(&codes, rows, columns)), scales, HostArray::Bf16(x)])
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        let (batch, rows, _) = size.three()?;
        Ok(vec![Allocation::Bf16(batch * rows)])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        let (batch, rows, columns) = size.three()?;
        let (fragments, scales, x) = (inputs[0].codes()?, inputs[1].bf16()?, inputs[2].bf16()?);
        let y = outputs[0].bf16_mut()?;
        let (words, groups) = self.codes.lengths(rows.next_multiple_of(16), columns)?;
        let groups = groups / rows.next_multiple_of(16).max(1) * rows;
        let given =
            [("fragments", fragments.len(), words), ("scales", scales.len(), groups), ("x", x.len(), batch * columns)];
        lengths("quantized_matmul", &given)?;
        lengths("quantized_matmul", &[("y", y.len(), batch * rows)])?;
        let takes = |own: &Loaded| batch <= own.rung.tile.1 as usize;
        let (own, together) = self.own.iter().find(|(own, _)| takes(own)).ok_or_else(|| Error::Invalid {
            what: format!("{batch} vectors at once: `{}` takes up to 64", self.own[0].0.rung.path),
            fix: "unpack the weights, and multiply as matrices; or launch once for each 64 vectors".to_string(),
        })?;
        // Where blocks share the columns, each has a part of the rows at the end, and all of them are there.
        let together = rows.next_multiple_of(*together);
        let sides = (length(batch)?, length(rows)?, length(columns)?);
        match &self.no_columns {
            Some(other) if columns == 0 => {
                other.launch(launches, rows, batch, (fragments, scales, x, y, sides.0, sides.1, sides.2))
            }
            Some(_) if batch > 0 => {
                let x = TensorMap::new(x, batch, columns, own.rung.tile.1)?;
                own.launch(launches, together, batch, (fragments, scales, &x, y, sides.0, sides.1, sides.2))
            }
            _ => own.launch(launches, together, batch, (fragments, scales, x, y, sides.0, sides.1, sides.2)),
        }
    }

    fn rows(&self, size: Size) -> Result<(usize, usize)> {
        Ok((size.three()?.1, COMPARED))
    }

    /// The results of a row of the weights, one for each vector.
    fn exact_row(&self, inputs: &[HostArray], size: Size, row: usize) -> Result<Vec<Reference>> {
        let (batch, rows, columns) = size.three()?;
        let weights = self.codes.fragment_row(&inputs[0], &inputs[1], (rows, columns), row);
        let piece = |vector: usize| {
            let x = (0..columns).map(|column| inputs[2].get(vector * columns + column));
            let (exact, sums) = product(&weights, x);
            Reference::new(0, vector * rows + row, vec![exact], |_, exact| rounding(exact) + sums)
        };
        Ok((0..batch).map(piece).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ladder;
    use crate::ladder::RUNGS;

    #[test]
    fn every_rung_is_right_with_all_groups_and_refuses_what_does_not_fit() {
        let gpu = Gpu::simulated().unwrap();
        for rung in RUNGS.iter().filter(|rung| rung.kernel == "quantized_matmul") {
            if std::env::var("RUNG").is_ok_and(|name| !rung.path.contains(&name)) {
                continue;
            }
            for group in [128, 64, 256] {
                let codes = Codes { bits: 4, group };
                let product = QuantizedMatmul::new(&gpu, rung.path, codes).unwrap_or_else(|error| panic!("{error}"));
                let group = group as usize;
                for size in [(0, 3, group), (2, 0, group), (2, 3, 0)] {
                    let zeros = product.results(&product.inputs(size.into(), 1).unwrap(), size.into());
                    assert_eq!(zeros, Ok(vec![HostArray::Bf16(vec![0; size.0 * size.1])]), "{} {size:?}", rung.path);
                }
                let many = Size::Three(65, 16, group);
                let refused = product.results(&product.inputs(many, 1).unwrap(), many).unwrap_err().to_string();
                assert!(refused.contains("65 vectors") && refused.contains("\nnext: "), "{refused}");
            }
        }
        let eight = QuantizedMatmul::new(&gpu, "quantized_matmul/01_fragments", Codes::INT8);
        assert!(eight.unwrap_err().to_string().contains("it takes 4\nnext: "));
    }

    #[test]
    fn other_constants_are_right_too() {
        let gpu = Gpu::simulated().unwrap();
        for (warps, tiles, stages, cluster) in [(4, 1, 6, 1), (8, 2, 4, 4), (4, 2, 3, 4), (16, 1, 4, 2)] {
            let changes = [("WARPS", warps), ("TILES", tiles), ("STAGES", stages), ("CLUSTER", cluster)];
            for (batch, name) in [(16, "03_split_k"), (64, "03_split_k"), (16, "05_early_start"), (64, "04_wgmma")] {
                let path = Ladder::QuantizedMatmul.rung(name).unwrap().path;
                let product = QuantizedMatmul::with(&gpu, path, Codes::INT4, &[batch], &|_| changes.to_vec());
                assert!(product.is_ok(), "{path} {changes:?} for {batch}: {}", product.unwrap_err());
            }
        }
        let path = "quantized_matmul/07_warp_specialised";
        for (batch, warps, tiles, steps, split, stages, cluster, turn) in [
            (16, 8, 2, 4, 2, 4, 2, 2),
            (64, 8, 1, 2, 1, 4, 2, 2),
            (32, 8, 1, 4, 1, 2, 1, 1),
            (8, 16, 1, 4, 2, 3, 2, 2),
            (16, 8, 1, 2, 1, 5, 4, 3),
        ] {
            let changes = [
                ("WARPS", warps),
                ("TILES", tiles),
                ("STEPS", steps),
                ("SPLIT", split),
                ("STAGES", stages),
                ("CLUSTER", cluster),
                ("TURN", turn),
            ];
            let product = QuantizedMatmul::with(&gpu, path, Codes::INT4, &[batch], &|_| changes.to_vec());
            assert!(product.is_ok(), "{path} {changes:?}: {}", product.unwrap_err());
        }
        let path = "quantized_matmul/06_registers";
        for (warps, tiles, depth, split, chunks, slice) in [(8, 1, 4, 1, 2, 8), (8, 2, 2, 2, 4, 16), (4, 2, 1, 2, 2, 4)]
        {
            let changes = [
                ("WARPS", warps),
                ("TILES", tiles),
                ("DEPTH", depth),
                ("SPLIT", split),
                ("CHUNKS", chunks),
                ("SLICE", slice),
            ];
            let product = QuantizedMatmul::with(&gpu, path, Codes::INT4, &[16], &|_| changes.to_vec());
            assert!(product.is_ok(), "{path} {changes:?}: {}", product.unwrap_err());
        }
    }
}
