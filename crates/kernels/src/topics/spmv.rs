//! One rung of the product of a sparse matrix in CSR and a vector, ready to run and to time on a GPU.

use super::{Allocation, Array, Cost, HostArray, Launches, Loaded, Reference, Size, Topic, check, length, lengths};
use crate::ladder::Leaves;
use crate::sparse::{Csr, Pattern, entries_fit};
use gpulab::cpu;
use gpulab::error::Result;
use gpulab::gpu::Gpu;

/// Rows, columns and entries that a new kernel is checked at: one place, no entry, every place, empty rows, rows longer
/// than a block, rows that are no multiple of a warp's.
const AWKWARD: [(usize, usize, usize, Pattern); 9] = [
    (1, 1, 1, Pattern::Uniform),
    (1, 1, 0, Pattern::Uniform),
    (33, 31, 0, Pattern::PowerLaw),
    (5, 70, 350, Pattern::Banded),
    (127, 65, 900, Pattern::Uniform),
    (127, 65, 900, Pattern::PowerLaw),
    (31, 33, 100, Pattern::Banded),
    (3, 5000, 9001, Pattern::PowerLaw),
    (1000, 7, 300, Pattern::Uniform),
];

/// Rows that are compared in a timed run.
const COMPARED: usize = 4096;

/// A spmv kernel of the course on one GPU: `y = a · x`, `a` sparse in CSR, all in f32. A size is (rows, columns, entries);
/// the inputs are `starts`, `indices`, `values` and `x`. It moves at least 8 bytes per entry, 4 per row of `a` and of
/// `y`, and 4 per number of `x`.
#[derive(Debug, Clone)]
pub struct Spmv {
    own: Loaded,
    pattern: Pattern,
}

impl Spmv {
    /// Compiles the rung of that path, such as `spmv/02_warp_a_row`, and checks it in f64 with matrices of all patterns;
    /// timed runs have matrices of this one.
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) for a path that is none, or a kernel whose result is wrong; those of
    /// [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str, pattern: Pattern) -> Result<Spmv> {
        let spmv = Spmv { own: Loaded::new(gpu, path)?, pattern };
        for (rows, columns, entries, pattern) in AWKWARD {
            let size = (rows, columns, entries);
            check(&spmv, path, &inputs(size, pattern, 1)?, size)?;
        }
        Ok(spmv)
    }

    /// All four steps: allocates, copies the matrix and `x` to the device, launches, and copies the product back.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`](gpulab::Error::LengthMismatch) when `x` does not hold a number for each column; those of
    /// [`Topic::results`].
    pub fn multiply(&self, a: &Csr, x: &[f32]) -> Result<Vec<f32>> {
        let size = Size::Three(a.rows(), a.columns, a.values.len());
        match self.results(&[arrays(a), vec![HostArray::F32(x.to_vec())]].concat(), size)?.swap_remove(0) {
            HostArray::F32(y) => Ok(y),
            _ => unreachable!("`outputs` asks for f32"),
        }
    }
}

/// A matrix as kernels take it.
pub(super) fn arrays(a: &Csr) -> Vec<HostArray> {
    vec![HostArray::Index(a.starts.clone()), HostArray::Index(a.indices.clone()), HostArray::F32(a.values.clone())]
}

fn inputs((rows, columns, entries): (usize, usize, usize), pattern: Pattern, seed: u64) -> Result<Vec<HostArray>> {
    let matrix = arrays(&Csr::random(rows, columns, entries, pattern, seed)?);
    Ok([matrix, vec![HostArray::F32(cpu::random_f32(columns, 3 * seed + 5))]].concat())
}

/// The terms of a row's product with column `column` of a row-major matrix of that width: (value, number of the matrix).
pub(super) fn terms(inputs: &[HostArray], row: usize, width: usize, column: usize) -> impl Iterator<Item = f64> {
    let [from, to] = [row, row + 1].map(|row| inputs[0].get(row) as usize);
    (from..to).map(move |at| inputs[2].get(at) * inputs[3].get(inputs[1].get(at) as usize * width + column))
}

/// A sum of those terms, and by how much f32 may be off: half a unit in the last place an addition.
pub(super) fn sum_of(terms: impl Iterator<Item = f64>) -> (f64, f64) {
    let (sum, all, count) = terms.fold((0.0, 0.0, 2.0), |(sum, all, count), x| (sum + x, all + x.abs(), count + 1.0));
    (sum, all * count * 2.0_f64.powi(-24))
}

impl Topic for Spmv {
    fn gpu(&self) -> &Gpu {
        &self.own.gpu
    }

    fn work(&self, size: Size) -> Result<Cost> {
        let (rows, columns, entries) = size.three()?;
        entries_fit(rows, columns, entries)?;
        Ok(Cost::of_bytes(8 * entries + 4 * (2 * rows + 1 + columns), 2.0 * entries as f64, "f32"))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        inputs(size.three()?, self.pattern, seed)
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        Ok(vec![Allocation::F32(size.three()?.0)])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        let (rows, columns, entries) = size.three()?;
        let (starts, indices, values) = (inputs[0].index()?, inputs[1].index()?, inputs[2].f32()?);
        let (x, y) = (inputs[3].f32()?, outputs[0].f32_mut()?);
        let given = [("indices", indices.len(), entries), ("values", values.len(), entries), ("x", x.len(), columns)];
        lengths("spmv", &[&given[..], &[("starts", starts.len(), rows + 1), ("y", y.len(), rows)]].concat())?;
        let rung = &self.own.rung;
        // Tiles count threads that have a row, lanes of warps that have one or a piece of one, or steps of the merge path.
        let columns = match rung.name() {
            "01_thread_a_row" => rows,
            "02_warp_a_row" => 32 * rows,
            "04_split_rows" => 32 * (rows + entries.div_ceil(self.own.constant("LIMIT") as usize)),
            _ => rows + entries,
        };
        if rung.leaves == Leaves::Added && rows > 0 {
            y.fill_bytes(0)?;
        }
        self.own.launch(launches, columns, 1, (starts, indices, values, x, y, length(rows)?, length(entries)?))
    }

    fn rows(&self, size: Size) -> Result<(usize, usize)> {
        Ok((size.three()?.0, COMPARED))
    }

    fn exact_row(&self, inputs: &[HostArray], _size: Size, row: usize) -> Result<Vec<Reference>> {
        let (sum, off) = sum_of(terms(inputs, row, 1, 0));
        Ok(vec![Reference::new(0, row, vec![sum], |_, _| off)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ladder;

    #[test]
    fn every_rung_is_right_with_every_pattern_and_refuses_arrays_that_do_not_fit() {
        let gpu = Gpu::simulated().unwrap();
        for rung in Ladder::Spmv.rungs() {
            let spmv = Spmv::new(&gpu, rung.path, Pattern::Uniform).unwrap_or_else(|error| panic!("{error}"));
            let a = Csr::from_dense(&[0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 4.0], 3);
            assert_eq!(spmv.multiply(&a, &[1.0, 10.0, 100.0]), Ok(vec![20.0, 0.0, 403.0]), "{}", rung.path);
            assert!(spmv.multiply(&a, &[1.0, 10.0]).unwrap_err().to_string().contains("`x`"));
            assert!(spmv.work(Size::Three(2, 2, 5)).unwrap_err().to_string().contains("\nnext: "));
            assert_eq!(
                spmv.results(&spmv.inputs(Size::Three(0, 3, 0), 1).unwrap(), Size::Three(0, 3, 0)),
                Ok(vec![HostArray::F32(vec![])])
            );
        }
    }

    #[test]
    fn a_warp_a_row_reads_side_by_side_and_the_merge_path_shares_long_rows_out() {
        let uniform = Ladder::Spmv.counters((256, 4096, 256 * 128)).unwrap();
        let of = |rung: &str| uniform.get(rung).unwrap();
        assert!(of("01").counters.global_load_sectors > 2 * of("02").counters.global_load_sectors, "{uniform}");
        assert!(uniform.rungs.iter().all(|rung| rung.findings == 0), "{uniform}");
        let longest = |ladder: Ladder, rung| ladder.inspect(rung, (256, 4096, 256 * 32)).unwrap().longest_warp;
        let times = |rung| longest(Ladder::SpmvPowerLaw, rung) as f64 / longest(Ladder::Spmv, rung) as f64;
        assert!(times("01") > 3.0 && times("02") > 2.0 && times("03") < 1.3, "{:?}", ["01", "02", "03"].map(times));
        let [whole, split] = ["02", "04"].map(|rung| longest(Ladder::SpmvPowerLaw, rung));
        assert!(2 * split < whole + whole / 2, "{split} of {whole}");
    }
}
