//! One rung of the product of a sparse matrix in CSR and a dense one, ready to run and to time on a GPU.

use super::spmv::{arrays, sum_of, terms};
use super::{Allocation, Array, Cost, HostArray, Launches, Loaded, Reference, Size, Topic, check, length, lengths};
use crate::sparse::{Csr, Pattern, entries_fit};
use gpulab::cpu;
use gpulab::error::Result;
use gpulab::gpu::Gpu;

/// Side of the sparse matrix, width of the dense one, and entries that a new kernel is checked at.
const AWKWARD: [(usize, usize, usize); 8] =
    [(1, 1, 1), (1, 4, 0), (31, 33, 0), (12, 64, 144), (65, 127, 900), (33, 260, 200), (7, 1, 20), (20, 68, 400)];

/// Rows that are compared in a timed run.
const COMPARED: usize = 64;

/// A spmm kernel of the course on one GPU: `c = a · b`, `a` square and sparse in CSR, `b` and `c` dense and row-major, all in
/// f32; 2 · entries · width operations. A size is (side of `a`, width of `b`, entries).
#[derive(Debug, Clone)]
pub struct Spmm(Loaded);

impl Spmm {
    /// Compiles the rung of that path, such as `spmm/03_vector_loads`, and checks it in f64 at awkward sizes.
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) for a path that is none, or a kernel whose result is wrong; those of
    /// [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<Spmm> {
        let spmm = Spmm(Loaded::new(gpu, path)?);
        for size in AWKWARD {
            check(&spmm, path, &inputs(size, Pattern::PowerLaw, 1)?, size)?;
        }
        Ok(spmm)
    }
}

fn inputs((side, width, entries): (usize, usize, usize), pattern: Pattern, seed: u64) -> Result<Vec<HostArray>> {
    let matrix = arrays(&Csr::random(side, side, entries, pattern, seed)?);
    Ok([matrix, vec![HostArray::F32(cpu::random_f32(side * width, 3 * seed + 5))]].concat())
}

impl Topic for Spmm {
    fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    fn work(&self, size: Size) -> Result<Cost> {
        let (side, width, entries) = size.three()?;
        entries_fit(side, side, entries)?;
        length(width)?;
        let bytes = 8 * entries + 4 * (side + 1) + 8 * side * width;
        Ok(Cost::of_operations(2.0 * entries as f64 * width as f64, bytes, "f32"))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        inputs(size.three()?, Pattern::Uniform, seed)
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        let (side, width, _) = size.three()?;
        Ok(vec![Allocation::F32(side * width)])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        let (side, width, entries) = size.three()?;
        let (starts, indices, values) = (inputs[0].index()?, inputs[1].index()?, inputs[2].f32()?);
        let (b, c) = (inputs[3].f32()?, outputs[0].f32_mut()?);
        let given = [("indices", indices.len(), entries), ("values", values.len(), entries)];
        let dense = [("starts", starts.len(), side + 1), ("b", b.len(), side * width), ("c", c.len(), side * width)];
        lengths("spmm", &[&given[..], &dense].concat())?;
        // Tiles count the lanes of warps that have a row.
        let rows = if width == 0 { 0 } else { 32 * side };
        self.0.launch(launches, rows, 1, (starts, indices, values, b, c, length(side)?, length(width)?))
    }

    fn rows(&self, size: Size) -> Result<(usize, usize)> {
        Ok((size.three()?.0, COMPARED))
    }

    fn exact_row(&self, inputs: &[HostArray], size: Size, row: usize) -> Result<Vec<Reference>> {
        let (_, width, _) = size.three()?;
        let sums: Vec<(f64, f64)> = (0..width).map(|column| sum_of(terms(inputs, row, width, column))).collect();
        let exact = sums.iter().map(|(sum, _)| *sum).collect();
        Ok(vec![Reference::new(0, row * width, exact, |at, _| sums[at].1)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ladder;

    #[test]
    fn an_entry_is_read_once_for_many_columns_and_rows_of_b_in_wide_loads() {
        let seen = Ladder::Spmm.counters((64, 128, 400)).unwrap();
        let of = |rung: &str| seen.get(rung).unwrap().counters;
        assert!(2 * of("01").warp_instructions > 3 * of("02").warp_instructions, "{seen}");
        assert!(of("02").global_load_requests > of("03").global_load_requests, "{seen}");
        assert!(seen.rungs.iter().all(|rung| rung.findings == 0), "{seen}");
        let gpu = Gpu::simulated().unwrap();
        let spmm = Spmm::new(&gpu, "spmm/01_warp_a_row").unwrap();
        let mut inputs = spmm.inputs(Size::Three(3, 2, 4), 1).unwrap();
        inputs[3] = HostArray::F32(vec![0.0; 5]);
        assert!(spmm.results(&inputs, Size::Three(3, 2, 4)).unwrap_err().to_string().contains("`b`"));
    }
}
