//! What the checks of both products with weights in four bits have in common: lessons 41 and 90.

use super::kernels::{first_is, global_loads, shared_out};
use super::verdict::{Check, none_told, told};
use gpulab::error::{Error, Result};
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

/// A block of 128 threads for every four rows.
pub(super) fn config(rows: usize) -> LaunchConfig {
    LaunchConfig::new(rows.div_ceil(4) as u32, 128)
}

/// What differs between the two in what a launch may read.
pub(super) struct Budget {
    /// The shape, in words.
    pub named: String,
    /// Words of eight codes.
    pub words: usize,
    /// Parameters that are read beside the codes.
    pub others: &'static [&'static str],
    /// Sectors that loads of `x` may ask for, and what they are.
    pub x: (u64, &'static str),
    /// What reading x number by number does, and how to read it.
    pub x_words: (&'static str, &'static str),
    /// What the lanes can share.
    pub scales: &'static str,
}

/// What all warps load, and whether they share the work: `seen` is the launch, and `inspect` looks at one warp of a block.
pub(super) fn cost(
    config: LaunchConfig,
    budget: &Budget,
    seen: &Inspection,
    inspect: impl FnMut((u32, u32, u32), u32) -> Result<Inspection>,
) -> Check {
    shared_out(seen, 0.3)?;
    let loads = global_loads(config, inspect)?;
    let of = |name: &str| loads.iter().filter(|one| one.variable == name).map(|one| one.sectors).sum::<u64>();
    if of("codes") == 0 {
        return told(
            "no load of `codes` was seen",
            "the check looks for the parameter of that name",
            "keep the parameters' names as they were given",
        );
    }
    // What no parameter is known for, as with a volatile read, counts as codes.
    let named = |name: &str| budget.others.contains(&name);
    let own: u64 = loads.iter().filter(|one| !named(&one.variable)).map(|one| one.sectors).sum();
    let (least, shape) = ((budget.words / 8) as u64, &budget.named);
    none_told(
        (own > least).then(|| {
            format!("right; but with {shape} the loads of `codes` ask for {own} sectors, and the codes lie in {least}")
        }),
        "the packed weights are what such a product has to read: once, and in whole sectors. Either a word is read more than once, or the lanes of a warp read words that lie apart",
        "let neighbouring lanes take neighbouring words of one row, and each lane use all eight codes of a word that it has read",
    )?;
    let (own, (most, what)) = (of("x"), budget.x);
    none_told(
        (own > most)
            .then(|| format!("right; but with {shape} the loads of `x` ask for {own} sectors; {what} is {most}")),
        budget.x_words.0,
        budget.x_words.1,
    )?;
    let (own, most) = (of("scales"), least / 2);
    none_told(
        (own > most).then(|| {
            format!(
                "right; but with {shape} the loads of `scales` ask for {own} sectors: more than half as many as the codes"
            )
        }),
        budget.scales,
        "read the scale once for the eight codes of a word",
    )
}

/// What to ask oneself about the first mistake.
pub(super) fn mistake_hint(error: &Error) -> &'static str {
    if first_is(error, &[Kind::GlobalRace]) {
        "several threads write one row's sum: which lane holds the whole of it, and who should write?"
    } else if first_is(error, &[Kind::Misaligned]) {
        "a load of 16 bytes must begin at a multiple of 16: where does that row, or that lane's part of x, begin?"
    } else if first_is(error, &[Kind::BarrierDivergence, Kind::Deadlock]) {
        "all lanes of a mask, and all threads of a block at a barrier, must come by: also those whose row does not exist"
    } else if first_is(error, &[Kind::SharedRace, Kind::UninitialisedRead]) {
        "who writes that word, and what makes the reader wait for it?"
    } else {
        "compute the index by hand for that block and thread: is there such a row, and such a word in it?"
    }
}

/// Kernels made from a right one in which a warp has a row and a lane every 32nd word: what both tests try.
#[cfg(test)]
pub(super) mod variants {
    const ROW: &str = "int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;";
    const LEAVES: &str = "if (row >= rows) { return; }";
    const SUM: &str = "for (int d = 16; d > 0; d /= 2) { sum += __shfl_xor_sync(~0u, sum, d); }";

    /// A block a row at a time; `store` is the line that writes, `parts` what takes the place of `sum` in it.
    pub fn by_block(right: &str, store: &str, value: &str) -> String {
        let rows = "__shared__ float sums[4];\n    for (int row = blockIdx.x * 4; row < min(blockIdx.x * 4 + 4, rows); ++row) {\n    int lane = threadIdx.x;";
        let all = value.replacen("sum", "sums[0] + sums[1] + sums[2] + sums[3]", 1);
        let end = format!(
            "if (lane % 32 == 0) {{ sums[lane / 32] = sum; }}\n    __syncthreads();\n    if (lane == 0) {{ y[row] = {all}; }}\n    __syncthreads(); }}"
        );
        right.replace(&format!("{ROW}\n    {LEAVES}"), rows).replace("word += 32", "word += 128").replace(store, &end)
    }

    /// A thread a row: right, and each lane reads a row of its own.
    pub fn lonely(right: &str) -> String {
        right
            .replace(ROW, "int row = blockIdx.x * 4 + threadIdx.x, lane = 0;")
            .replace(LEAVES, "if (threadIdx.x >= 4 || row >= rows) { return; }")
            .replace("word += 32", "word += 1")
            .replace(SUM, "")
    }

    /// One warp of the four does all four rows; `store` is the line that writes.
    pub fn one_warp(right: &str, store: &str) -> String {
        let rows = "int lane = threadIdx.x;\n    if (lane >= 32) { return; }\n    for (int row = blockIdx.x * 4; row < min(blockIdx.x * 4 + 4, rows); ++row) {";
        right.replace(&format!("{ROW}\n    {LEAVES}"), rows).replace(store, &format!("{store} }}"))
    }

    /// Four codes of each word in a first pass, four in a second.
    pub fn twice(right: &str) -> String {
        right
            .replace("    for (int word", "    for (int half = 0; half < 2; ++half)\n    for (int word")
            .replace("for (int i = 0; i < 8; ++i)", "for (int i = 4 * half; i < 4 * half + 4; ++i)")
    }

    /// Right, and its parameters have other names.
    pub fn renamed(right: &str) -> String {
        right.replace("codes", "c0des")
    }
}
