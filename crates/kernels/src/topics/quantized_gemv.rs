//! One rung of the matrix of few bits times a vector, ready to run and to time on a GPU.

use super::quantized::{Codes, product};
use super::rows::rounding;
use super::{
    Allocation, Array, Cost, HostArray, Launches, Loaded, Reference, Size, Topic, changed, check, length, lengths,
};
use crate::ladder::rung;
use gpulab::cpu;
use gpulab::error::Result;
use gpulab::gpu::Gpu;

/// Rows and columns that a new kernel is checked at: no multiples of a warp's rows or of a tile, groups that fill no step
/// of a warp, and more groups than a block has warps.
const AWKWARD: [(usize, usize); 5] = [(1, 128), (15, 384), (33, 640), (17, 3200), (70, 1152)];

/// What differs for codes of 8 bits from the table's constants, as tried on an H200.
const INT8: [(&str, u32); 1] = [("ROWS", 2)];

/// Rows of the result that are compared in a timed run.
const COMPARED: usize = 512;

/// A quantized_gemv kernel of the course on one GPU: `y = weights · x`, the weights as [`Codes`], `x` and `y` in bf16 (`u16`
/// to the host), sums in f32. A size is (rows, columns), the inputs are the codes, their scales and `x`.
#[derive(Debug, Clone)]
pub struct QuantizedGemv {
    own: Loaded,
    codes: Codes,
}

impl QuantizedGemv {
    /// Compiles the rung of that path, such as `quantized_gemv/06_early_start`, for such codes, and checks it in f64.
    ///
    /// ```no_run
    /// use gpulab::prelude::*;
    /// use gpulab_kernels::{topics::Topic, *};
    /// let gpu = Gpu::open()?;
    /// let gemv = QuantizedGemv::new(&gpu, "quantized_gemv/06_early_start", Codes::INT4)?;
    /// println!("{} ms", gemv.time(Size::Two(8192, 8192), &Bench::default())?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) for a path that is none, or a kernel whose result is wrong;
    /// [`Error::Unsupported`](gpulab::Error::Unsupported) for a GPU that is too old for it; those of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str, codes: Codes) -> Result<QuantizedGemv> {
        QuantizedGemv::with(gpu, path, codes, &[])
    }

    /// The same with some of the rung's constants changed, such as `("TILES", 4)`; block and tile follow.
    ///
    /// # Errors
    /// As [`QuantizedGemv::new`].
    pub fn with(gpu: &Gpu, path: &str, codes: Codes, changes: &[(&str, u32)]) -> Result<QuantizedGemv> {
        let mut own = rung(path)?;
        let best: &[(&str, u32)] = if codes.bits == 8 { &INT8 } else { &[] };
        let all = [&[("BITS", codes.bits), ("GROUP", codes.group)], changes, best].concat();
        let constants = changed(own.defines, &all);
        let value = |name: &str| constants.iter().find(|(own, _)| own == name).map(|(_, value)| *value);
        if let Some(rows) = value("ROWS") {
            own.tile = (own.block.0 * rows, 1);
        }
        if let Some(warps) = value("WARPS") {
            let tiles = value("TILES").unwrap_or(1);
            own.block = (32 * warps, 1);
            own.tile = (32 * 16 * tiles, 1);
        }
        let gemv = QuantizedGemv { own: Loaded::with_constants(gpu, own, &constants)?, codes };
        for (rows, columns) in AWKWARD {
            // As many groups, however long they are.
            let size = (rows, columns / 128 * codes.group as usize);
            check(&gemv, path, &gemv.inputs(size.into(), 1)?, size)?;
        }
        Ok(gemv)
    }
}

impl Topic for QuantizedGemv {
    fn gpu(&self) -> &Gpu {
        &self.own.gpu
    }

    fn work(&self, size: Size) -> Result<Cost> {
        let (rows, columns) = size.two()?;
        let (words, scales) = self.codes.lengths(rows, columns)?;
        let dtype = if self.codes.bits == 4 { "int4" } else { "int8" };
        Ok(Cost::of_bytes(4 * words + 2 * (scales + rows + columns), 2.0 * rows as f64 * columns as f64, dtype))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        let (rows, columns) = size.two()?;
        let [codes, scales] = self.codes.random(rows, columns, seed)?;
        Ok(vec![codes, scales, HostArray::Bf16(cpu::random_bf16(columns, 3 * seed))])
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        Ok(vec![Allocation::Bf16(size.two()?.0)])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        let (rows, columns) = size.two()?;
        let (codes, scales, x) = (inputs[0].codes()?, inputs[1].bf16()?, inputs[2].bf16()?);
        let y = outputs[0].bf16_mut()?;
        let (words, groups) = self.codes.lengths(rows, columns)?;
        let given = [("codes", codes.len(), words), ("scales", scales.len(), groups), ("x", x.len(), columns)];
        lengths("quantized_gemv", &given)?;
        lengths("quantized_gemv", &[("y", y.len(), rows)])?;
        // Tiles count the lanes that the rows would have with a warp for each.
        self.own.launch(launches, 32 * rows, 1, (codes, scales, x, y, length(rows)?, length(columns)?))
    }

    fn rows(&self, size: Size) -> Result<(usize, usize)> {
        Ok((size.two()?.0, COMPARED))
    }

    fn exact_row(&self, inputs: &[HostArray], size: Size, row: usize) -> Result<Vec<Reference>> {
        let sides = size.two()?;
        let weights = self.codes.row(&inputs[0], &inputs[1], sides, row);
        let (exact, sums) = product(&weights, (0..sides.1).map(|column| inputs[2].get(column)));
        Ok(vec![Reference::new(0, row, vec![exact], |_, exact| rounding(exact) + sums)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ladder;
    use crate::ladder::RUNGS;

    fn every(mut run: impl FnMut(&Gpu, &'static str, Codes)) {
        let gpu = Gpu::simulated().unwrap();
        for rung in RUNGS.iter().filter(|rung| rung.kernel == "quantized_gemv") {
            if std::env::var("RUNG").is_ok_and(|name| !rung.path.contains(&name)) {
                continue;
            }
            for (bits, group) in [(4, 128), (4, 64), (8, 128), (8, 64), (4, 256)] {
                run(&gpu, rung.path, Codes { bits, group });
            }
        }
    }

    #[test]
    fn every_rung_is_right_with_both_codes_and_all_groups_and_refuses_what_does_not_fit() {
        every(|gpu, path, codes| {
            let gemv = QuantizedGemv::new(gpu, path, codes).unwrap_or_else(|error| panic!("{codes:?}: {error}"));
            let group = codes.group as usize;
            for size in [(0, group), (3, 0), (0, 0)] {
                let zeros = gemv.results(&gemv.inputs(size.into(), 1).unwrap(), size.into());
                assert_eq!(zeros, Ok(vec![HostArray::Bf16(vec![0; size.0])]), "{path} at {size:?}");
            }
            let mut inputs = gemv.inputs((2, group).into(), 1).unwrap();
            inputs[2] = HostArray::Bf16(vec![0; group - 1]);
            assert!(gemv.results(&inputs, (2, group).into()).unwrap_err().to_string().contains("`x`"));
            assert!(gemv.inputs((2, group + 32).into(), 1).unwrap_err().to_string().contains("\nnext: "));
        });
    }

    #[test]
    fn other_constants_are_right_too() {
        let gpu = Gpu::simulated().unwrap();
        for (warps, depth, tiles) in [(4, 4, 1), (16, 1, 4), (8, 2, 2)] {
            let changes = [("WARPS", warps), ("DEPTH", depth), ("TILES", tiles)];
            QuantizedGemv::with(&gpu, "quantized_gemv/04_tensor_cores", Codes::INT4, &changes).unwrap();
        }
        for (warps, depth, tiles) in [(4, 4, 1), (16, 1, 4), (8, 2, 2)] {
            let changes = [("WARPS", warps), ("DEPTH", depth), ("TILES", tiles)];
            QuantizedGemv::with(&gpu, "quantized_gemv/05_whole_numbers", Codes::INT4, &changes).unwrap();
        }
    }

    #[test]
    fn tensor_cores_ask_for_fewer_bytes_and_need_fewer_instructions() {
        let (rows, columns) = (256, 2048);
        let seen = Ladder::QuantizedGemv.counters((rows, columns)).unwrap();
        let bytes = |rung: &str| seen.get(rung).unwrap().global_bytes() as usize;
        let instructions = |rung: &str| seen.get(rung).unwrap().counters.warp_instructions;
        // A warp's x serves one row, then four, then sixteen or more.
        let codes = rows * columns / 2;
        assert!(bytes("02") > 2 * bytes("03") && bytes("03") > 2 * bytes("04"), "{seen}");
        assert!(bytes("04") > codes && 2 * bytes("04") < 3 * codes, "{seen}");
        assert!(instructions("03") > 2 * instructions("04"), "{seen}");
        assert!(seen.rungs.iter().all(|rung| rung.findings == 0), "{seen}");
    }
}
