//! Exercises of lesson 13: gathers that the learner writes, run in the simulator, which sees every access.

use super::kernels::{left, shared_out, unchanged};
use super::verdict::{Check, none_told, told};
use super::{Verdict, kernels};
use gpulab::cpu;
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

/// The blocks that kernels are launched with here.
const BLOCK: u32 = 256;
/// Counts of indices: one, a warp and its neighbours, several blocks.
const COUNTS: [usize; 4] = [1, 31, 33, 100];
/// Where cost is judged: many blocks.
const MANY: usize = 512;

/// A table, the rows asked for, and their width.
struct Lookup {
    table: Vec<f32>,
    index: Vec<i32>,
    width: usize,
}

impl Lookup {
    /// Rows of a table of 50, in an order that is none; among 31 and more, some come twice.
    fn new(count: usize, width: usize) -> Lookup {
        let index = (0..count).map(|i| ((i * 37 + i / 25 * 3) % 50) as i32).collect();
        // No two places of the table hold the same number.
        let table =
            cpu::random_f32(50 * width, 1).into_iter().enumerate().map(|(at, x)| x * 0.25 + at as f32).collect();
        Lookup { table, index, width }
    }

    /// The row of the table that a place is to hold; `None` where its index names none.
    fn row(&self, place: usize) -> Option<&[f32]> {
        let row = usize::try_from(self.index[place]).ok()?;
        self.table.get(row * self.width..(row + 1) * self.width)
    }

    /// The first element that is not its row's (0 where there is no row), in words.
    fn first_wrong(&self, given: &[f32]) -> Option<String> {
        let expected = |at: usize| self.row(at / self.width).map_or(0.0, |row| row[at % self.width]);
        let at = (0..given.len()).find(|&at| given[at] != expected(at))?;
        let (place, column) = (at / self.width, at % self.width);
        let is = left(given[at]);
        Some(format!(
            "{} places of {} elements: element {column} of place {place}, whose index is {}, {is}, and it should be {}",
            self.index.len(),
            self.width,
            self.index[place],
            expected(at)
        ))
    }
}

/// Checks a kernel `gather(const float *table, const int *index, float *out, int count, int width)`, launched with a warp
/// a place, that copies rows with 16 bytes per lane where the width is a multiple of 4.
pub fn gather_four(source: &str) -> Verdict {
    // Multiples of 4 and of nothing more, even ones, odd ones.
    const WIDTHS: [usize; 10] = [128, 1, 4, 31, 65, 516, 2, 66, 130, 132];
    kernels::verdict("gather_four", source, "gather", gather_hint, |gpu, kernel| {
        for (width, count) in WIDTHS.into_iter().flat_map(|width| COUNTS.map(|count| (width, count))) {
            let work = Lookup::new(count, width);
            let (seen, given) = run_four(gpu, kernel, &work)?;
            if let Some(what) = work.first_wrong(&given) {
                return match width % 4 {
                    0 => told(
                        what,
                        "that place holds something else than its row: another row's numbers, or none",
                        "counted in float4, a row has width / 4 elements: do the table, the result and the loop all count so?",
                    ),
                    _ => told(
                        what,
                        "rows of such a width hold no whole number of float4, and do not all begin at one",
                        "which widths may take 16 bytes per lane, and what becomes of the others?",
                    ),
                };
            }
            wide(&seen, &work)?;
        }
        // Many blocks, of which each warp has its place.
        let work = Lookup::new(MANY, 260);
        let (seen, given) = run_four(gpu, kernel, &work)?;
        none_told(
            work.first_wrong(&given),
            "with many blocks, that place holds something else than its row",
            "which place does the first warp of block 1 take?",
        )?;
        wide(&seen, &work)?;
        shared_out(&seen, 0.3)
    })
}

/// Where a row whose width is a multiple of 4 takes more instructions than 16 bytes per lane need.
fn wide(seen: &Inspection, work: &Lookup) -> Check {
    let (width, count) = (work.width, work.index.len() as u64);
    let needed = width.div_ceil(4 * 32) as u64;
    if !width.is_multiple_of(4) {
        return Ok(());
    }
    let (stores, loads) = (seen.counters.global_store_requests, seen.counters.global_load_requests);
    if stores > needed * count {
        return told(
            format!(
                "right, but a row of {width} floats takes {:.1} store instructions: with 16 bytes per lane it takes {needed}",
                stores as f64 / count as f64
            ),
            "a lane stores 4 bytes at a time, or not all lanes store",
            "which type has 16 bytes, and how long is a row, counted in it?",
        );
    }
    // Its own index a place, which a compiler may read twice.
    none_told(
        (loads > (needed + 2) * count).then(|| {
            format!(
                "the stores are wide, but a row of {width} floats takes {:.1} load instructions, with that of its index",
                loads as f64 / count as f64
            )
        }),
        "what is stored 16 bytes at a time is read in smaller pieces",
        "read the row as float4 too, into a variable of that type, and store this",
    )
}

fn run_four(gpu: &Gpu, kernel: &Kernel, work: &Lookup) -> Check<(Inspection, Vec<f32>)> {
    let (table, index) = (gpu.to_device(&work.table)?, gpu.to_device(&work.index)?);
    let (count, width) = (work.index.len(), work.width);
    let config = LaunchConfig::for_elements(32 * count, BLOCK);
    let mut out = gpu.poison::<f32>(count * width)?;
    // First as any launch: its mistakes come as an error.
    kernel.launch(config, (&table, &index, &mut out, count as i32, width as i32))?;
    let given = out.to_host()?;
    unchanged("table", &table, &work.table)?;
    unchanged("index", &index, &work.index)?;
    let seen = kernel.inspect(config, (&table, &index, &mut out, count as i32, width as i32))?;
    Ok((seen, given))
}

/// What to ask oneself about the first mistake of a warp that copies rows.
fn gather_hint(error: &Error) -> &'static str {
    if kernels::first_is(error, &[Kind::GlobalRace]) {
        "two warps write one element of `out`, and each has a place of its own there: where does the row of place 1 begin, and \
         where does that of place 0 end?"
    } else if kernels::first_is(error, &[Kind::Misaligned]) {
        "a float4 lies at a multiple of 16 bytes: does every row begin at one, in the table and in the result, with this width? \
         The others keep the loop over single floats"
    } else {
        element_hint(error)
    }
}

/// The same where every index names a row, and only the element can be wrong.
fn element_hint(error: &Error) -> &'static str {
    if kernels::first_is(error, &[Kind::OutOfBounds]) {
        "every index names a row here, so it is the element: has this thread one, and how many has a row? (Counted in \
         float4, a row has width / 4)"
    } else {
        mistake_hint(error)
    }
}

/// What to ask oneself about the first mistake of a gather.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::Misaligned]) {
        "a float4 lies at a multiple of 16 bytes: rows of 31 floats do not begin at one. Keep the loop over single floats \
         for widths that are no multiple of 4"
    } else if is(&[Kind::OutOfBounds]) {
        "which numbers are rows of the table, and which elements are of a row? Both ends count: -1 is below the first \
         row, `rows` is behind the last"
    } else if is(&[Kind::GlobalRace]) {
        "two threads read, add and write one element, or write one element of the result: which places name the same row? \
         There are additions that nobody can come between"
    } else {
        "do the sum for that block and thread by hand: which element is its own, and does it exist?"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::kernels::{expect, expect_whole, passes};

    const FOUR: &str = "template <typename T> __device__ void copy(const T *from, T *to, int n, int lane) {
    for (int k = lane; k < n; k += 32) { to[k] = from[k]; }
}
extern \"C\" __global__ void gather(const float *table, const int *index, float *out, int count, int width) {
    int place = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (place < count) {
        const float *from = table + index[place] * width;
        float *to = out + place * width;
        if (width % 4 == 0) { copy((const float4 *)from, (float4 *)to, width / 4, lane); }
        else { copy(from, to, width, lane); }
    }
}";

    #[test]
    fn gather_four_counts_instructions() {
        let narrow_loads = "for (int k = lane; k < n; k += 32) {
        T four; for (int b = 0; b < sizeof(T) / 4; ++b) { ((float *)&four)[b] = ((volatile const float *)(from + k))[b]; }
        to[k] = four; }";
        let tail = "if (width > 4) { if (lane < width % 4) { to[width / 4 * 4 + lane] = from[width / 4 * 4 + lane]; }";
        expect(
            gather_four,
            FOUR,
            &[
                ("if (width % 4 == 0)", "if (false)", "takes 4.0 store instructions"),
                ("if (width % 4 == 0)", "if (true)", "element 0 of place 0, whose index is 0, was never written"),
                ("if (width % 4 == 0)", "if (width > 4)", "which widths may take 16 bytes per lane"),
                ("if (width % 4 == 0) {", tail, "keep the loop over single floats"),
                ("width / 4, lane", "width, lane", "every index names a row here"),
                ("width / 4, lane", "width / 8, lane", "counted in float4"),
                (
                    "for (int k = lane; k < n; k += 32) { to[k] = from[k]; }",
                    narrow_loads,
                    "takes 5.0 load instructions",
                ),
                ("place < count", "place <= count", "past the end"),
                ("index[place]", "place", "element 0 of place 1, whose index is 37"),
                ("gather(", "collect(", "no kernel `gather`"),
                ("int lane) {", "int lane {", "the compiler"),
                // Widths that pass by luck; a wrong place in the result; a warp that copies its neighbour's part as well.
                ("width % 4 == 0", "width % 2 == 0", "of 2 elements"),
                ("width % 4 == 0", "width % 128 == 0", "a row of 516 floats takes"),
                ("width % 4 == 0", "width % 8 == 0", "a row of 516 floats takes"),
                ("out + place * width", "out + place * (width - 4)", "where does the row of place 1 begin"),
                ("out + place * width", "out + place * (width - 1)", "does every row begin at one"),
                ("out + place * width", "out + (count - 1 - place) * width", "whose index is 0, is"),
                ("k = lane; k < n; k += 32", "k = 0; k < n && lane == 0; ++k", "store instructions"),
                ("to[k] = from[k];", "to[k] = from[k]; ((T *)from)[k] = T();", "the input `table` has changed"),
            ],
        );
        let all = FOUR.replace(
            "if (place < count)",
            "for (int warps = gridDim.x * blockDim.x / 32; place < count; place += warps)",
        );
        // One warp does the work of all; a result of constants.
        let one = FOUR.replace("if (place < count)", "if (place == 0) for (; place < count; ++place)");
        let nothing = FOUR.replace("to[k] = from[k];", "to[k] = T();");
        expect_whole(gather_four, &[(&one, "the work is not shared out"), (&nothing, "is 0, and it should be")]);
        passes(gather_four, &[&all]);
    }
}
