//! A sparse matrix in CSR times a vector, from a blank page: eight lanes per row, four rows per warp.

use crate::check::Verdict;
use crate::check::kernels::{self, first_is, global_loads, shared_out, unchanged, whole};
use crate::check::verdict::{Check, none_told, told};
use gpulab::cpu;
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

const BLOCK: u32 = 128;
/// Lanes of a row.
const LANES: usize = 8;
/// Rows of a block.
const ROWS: usize = BLOCK as usize / LANES;

/// A matrix whose sums are exact in any order, and its vector.
struct Work {
    name: &'static str,
    starts: Vec<i32>,
    indices: Vec<i32>,
    values: Vec<f32>,
    x: Vec<f32>,
}

impl Work {
    /// Rows of those lengths, their columns in ascending order anywhere among `columns`.
    fn new(name: &'static str, lengths: &[usize], columns: usize) -> Work {
        let mut starts = vec![0];
        let mut indices = Vec::new();
        for (row, &length) in lengths.iter().enumerate() {
            // Steps of a row fit into the columns, whatever its length is.
            let step = columns / length.max(1);
            indices.extend((0..length).map(|i| (i * step + (row * 7 + i * 3) % step.max(1)) as i32));
            starts.push(indices.len() as i32);
        }
        let values = whole(indices.len(), 1);
        // Neighbours differ, so that a wrong column shows.
        let x = (0..columns).map(|column| (column % 61) as f32 - 20.0).collect();
        Work { name, starts, indices, values, x }
    }

    fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    fn entries(&self, row: usize) -> std::ops::Range<usize> {
        self.starts[row] as usize..self.starts[row + 1] as usize
    }

    fn term(&self, at: usize) -> f32 {
        self.values[at] * self.x[self.indices[at] as usize]
    }

    /// The sum of all rows of the warp that this row is in.
    fn of_the_warp(&self, row: usize) -> f32 {
        let first = row / 4 * 4;
        (first..self.rows().min(first + 4)).flat_map(|row| self.entries(row)).map(|at| self.term(at)).sum()
    }

    fn config(&self) -> LaunchConfig {
        LaunchConfig::new(self.rows().div_ceil(ROWS) as u32, BLOCK)
    }

    fn check(&self, gpu: &Gpu, kernel: &Kernel) -> Check {
        let (starts, indices) = (gpu.to_device(&self.starts)?, gpu.to_device(&self.indices)?);
        let (values, x) = (gpu.to_device(&self.values)?, gpu.to_device(&self.x)?);
        let mut y = gpu.poison::<f32>(self.rows())?;
        kernel.launch(self.config(), (&starts, &indices, &values, &x, &mut y, self.rows() as i32))?;
        unchanged("starts", &starts, &self.starts)?;
        unchanged("indices", &indices, &self.indices)?;
        unchanged("values", &values, &self.values)?;
        unchanged("x", &x, &self.x)?;
        let given = y.to_host()?;
        let right = |row: usize| self.entries(row).map(|at| self.term(at)).sum::<f32>();
        let Some(row) = (0..self.rows()).find(|&row| given[row] != right(row)) else { return Ok(()) };
        let (entries, all) = (self.entries(row), right(row));
        let what = format!(
            "{}: y[{row}], of a row with {} entries, {}, and it should be {all}",
            self.name,
            entries.len(),
            kernels::left(given[row])
        );
        let some = |keep: &dyn Fn(usize) -> bool| -> f32 {
            entries.clone().enumerate().filter(|(i, _)| keep(*i)).map(|(_, at)| self.term(at)).sum()
        };
        let (meaning, idea) = if given[row].is_nan() && entries.is_empty() {
            ("this row has no entry, and nobody has written its sum", "what is the sum of no terms, and who writes it?")
        } else if given[row].is_nan() {
            (
                "nobody has written this row's sum, or NaN came into it",
                "which lane of which warp writes y, for which row?",
            )
        } else if given[row] == LANES as f32 * all {
            ("each lane has added up the whole row", "with which entry does lane 5 begin, and how far is its next one?")
        } else if given[row] == some(&|i| i % LANES == 0) {
            (
                "that is the sum of one lane alone",
                "seven other lanes hold parts of the sum: `__shfl_xor_sync` or `__shfl_down_sync` brings them together",
            )
        } else if given[row] == some(&|i| i < LANES) {
            (
                "the first eight entries are in the sum, and no others",
                "a row may have more entries than lanes: where does each lane go on?",
            )
        } else if given[row] == self.of_the_warp(row) {
            (
                "that is the sum of all the rows that this warp works on",
                "a warp holds four rows: over which distances do the eight lanes of one row lie?",
            )
        } else {
            (
                "the sum over the row's entries of values[at] · x[indices[at]] gives another number",
                "compute the first row by hand: which entries are its own, which lane takes which, and which number of x belongs to each?",
            )
        };
        told(what, meaning, idea)
    }

    /// What all warps load, and whether they share the work.
    fn cost(&self, gpu: &Gpu, kernel: &Kernel) -> Check {
        let (starts, indices) = (gpu.to_device(&self.starts)?, gpu.to_device(&self.indices)?);
        let (values, x) = (gpu.to_device(&self.values)?, gpu.to_device(&self.x)?);
        let mut y = gpu.poison::<f32>(self.rows())?;
        let rows = self.rows() as i32;
        let seen = kernel.inspect(self.config(), (&starts, &indices, &values, &x, &mut y, rows))?;
        shared_out(&seen, 0.3)?;
        let loads = global_loads(self.config(), |block, warp| {
            kernel.inspect_warp(self.config(), (&starts, &indices, &values, &x, &mut y, rows), block, warp)
        })?;
        let (mut read, mut gathered) = (0, 0);
        for one in &loads {
            match one.variable.as_str() {
                "starts" => (),
                "x" => gathered += one.offsets.iter().flatten().count(),
                // What no parameter is known for, as with a volatile read, counts here.
                _ => read += one.sectors,
            }
        }
        // A row may begin anywhere in a sector: eight entries then touch two of them, not one.
        let least = (2 * self.indices.len() * 4 / 32) as u64;
        let most = 2 * least + 4 * self.rows() as u64;
        none_told(
            (read > most).then(|| {
                format!(
                    "right; but for {} entries the loads of `values` and `indices` ask for {read} sectors, and the two arrays lie in {least}",
                    self.indices.len()
                )
            }),
            "the lanes of a warp read entries that lie apart, or read them more than once",
            "the entries of a row lie side by side: let neighbouring lanes take neighbouring ones",
        )?;
        none_told(
            (gathered > self.indices.len())
                .then(|| format!("right; but {gathered} numbers of x are read for {} entries", self.indices.len())),
            "each entry needs one number of x, and some are read again",
            "keep what you have read in a register",
        )
    }
}

/// Checks a kernel `spmv(const int *starts, const int *indices, const float *values, const float *x, float *y, int rows)`: `y = a ·
/// x`, `a` in CSR. It is launched with blocks of 128 threads, one for every 16 rows: eight lanes per row, four rows per warp. Neighbouring
/// lanes are to read neighbouring entries, each once.
pub fn spmv_eight(source: &str) -> Verdict {
    kernels::verdict("spmv_eight", source, "spmv", mistake_hint, |gpu, kernel| {
        for (name, lengths, columns) in [
            ("one row of three entries", vec![3], 8),
            ("rows of 8 entries", vec![8; 20], 64),
            ("rows of 1 to 40 entries", vec![7, 9, 1, 40, 16, 2, 17, 31, 10, 8, 33, 5], 300),
            ("rows without entries", vec![0, 5, 0, 0, 40, 0], 50),
            ("five rows", vec![7, 33, 0, 1, 20], 90),
        ] {
            Work::new(name, &lengths, columns).check(gpu, kernel)?;
        }
        let lengths: Vec<usize> = cpu::random_f32(128, 3).into_iter().map(|x| (44.0 + 8.0 * x) as usize).collect();
        let judged = Work::new("128 rows of about 44 entries", &lengths, 4096);
        judged.check(gpu, kernel)?;
        judged.cost(gpu, kernel)
    })
}

/// What to ask oneself about the first mistake.
fn mistake_hint(error: &Error) -> &'static str {
    if first_is(error, &[Kind::GlobalRace]) {
        "several threads write one row's sum: which lane holds the whole of it, and who should write?"
    } else if first_is(error, &[Kind::BarrierDivergence, Kind::Deadlock]) {
        "all lanes of a mask must reach the shuffle, also those whose row has no entry left"
    } else if first_is(error, &[Kind::OutOfBounds]) {
        "is there such a row (the last block may have warps without one), and does the row end before that entry?"
    } else {
        "follow that thread by hand: which row is its warp's, and which entries are its own?"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::kernels::{expect, expect_whole, passes};

    const SPMV: &str = "extern \"C\" __global__ void spmv(const int *starts, const int *indices, const float *values, const float *x, float *y, int rows) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 8, lane = threadIdx.x % 8;
    int first = row < rows ? starts[row] : 0, last = row < rows ? starts[row + 1] : 0;
    float sum = 0.0f;
    for (int at = first + lane; at < last; at += 8) { sum += values[at] * x[indices[at]]; }
    for (int d = 4; d > 0; d /= 2) { sum += __shfl_xor_sync(0xffffffffu, sum, d); }
    if (lane == 0 && row < rows) { y[row] = sum; }
}";

    #[test]
    fn kernels_right_and_wrong() {
        let twice = "sum += values[at] * x[indices[at]] + 0 * ((volatile const float *)x)[0]";
        let apart = "int each = (last - first + 7) / 8, from = first + lane * each;
    for (int at = from; at < min(from + each, last); ++at)";
        let stride = "for (int at = first + lane; at < last; at += 8)";
        expect(
            spmv_eight,
            SPMV,
            &[
                ("first + lane; at <", "first; at <", "gives another number"),
                ("first + lane; at < last; at += 8", "first; at < last; ++at", "added up the whole row"),
                ("sum += __shfl_xor_sync(0xffffffffu, sum, d);", "", "one lane alone"),
                ("d = 4", "d = 2", "gives another number"),
                ("d = 4", "d = 16", "all the rows that this warp works on"),
                ("at += 8", "at += 1 << 20", "the first eight entries"),
                ("x[indices[at]]", "x[at]", "gives another number"),
                ("at < last", "at <= last", "past the end"),
                ("row < rows ? starts[row + 1] : 0", "starts[row + 1]", "past the end"),
                ("&& row < rows", "&& row < rows && first < last", "has no entry"),
                ("y[row] = sum", "atomicAdd(&y[row], sum)", "has a mistake"),
                // Lanes without an entry that leave before the others have read their sums.
                ("float sum = 0.0f;", "float sum = 0.0f; if (first + lane >= last) { return; }", "NOT YET"),
                ("y[row] = sum", "y[row] = sum; ((float *)values)[first] = 0", "NOT YET"),
                ("spmv(", "multiply(", "no kernel `spmv`"),
                // Cost: lanes apart, and x twice.
                (stride, apart, "the two arrays lie in"),
                ("sum += values[at] * x[indices[at]]", twice, "NOT YET"),
            ],
        );
        // Cheats: one lane for each row, the first eight lanes for all rows, a constant.
        let one_lane = SPMV.replace("first + lane; at < last; at += 8", "first; at < last && lane == 0; ++at");
        let one_group = "extern \"C\" __global__ void spmv(const int *starts, const int *indices, const float *values, const float *x, float *y, int rows) {
    if (blockIdx.x > 0 || threadIdx.x >= 8) { return; }
    for (int row = 0; row < rows; ++row) {
        float sum = 0.0f;
        for (int at = starts[row] + threadIdx.x; at < starts[row + 1]; at += 8) { sum += values[at] * x[indices[at]]; }
        for (int d = 4; d > 0; d /= 2) { sum += __shfl_xor_sync(0xffu, sum, d); }
        if (threadIdx.x == 0) { y[row] = sum; }
    }
}";
        let nothing = SPMV.replace("y[row] = sum", "y[row] = 0.0f");
        expect_whole(
            spmv_eight,
            &[(&one_lane, "NOT YET"), (one_group, "not shared out"), (&nothing, "is 0, and it should be")],
        );
        let down = SPMV.replace("__shfl_xor_sync(0xffffffffu, sum, d)", "__shfl_down_sync(0xffffffffu, sum, d, 8)");
        // A mask of the row's own lanes, and lanes without a row that have left.
        let own_mask = SPMV
            .replace("float sum = 0.0f;", "if (row >= rows) { return; } float sum = 0.0f;")
            .replace("0xffffffffu", "0xffu << (threadIdx.x % 32 / 8 * 8)");
        // The mask of a whole warp is met by the lanes that are left.
        let left = SPMV.replace("float sum = 0.0f;", "if (row >= rows) { return; } float sum = 0.0f;");
        passes(spmv_eight, &[&down, &own_mask, &left]);
    }
}
