//! Lesson 12d: a tile by the TMA and `wgmma` from a blank page, a narrow product on paper, and a persistent kernel whose second
//! tile is wrong.

use super::{Shape, named, on_paper, right_product};
use crate::check::Verdict;
use crate::check::kernels::{self, first_is, unchanged, whole};
use crate::check::verdict::{self, Check, none_told, told, wrong};
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu, Kernel, TensorMap};
use gpulab::inspect::Inspection;
use gpulab::launch::{LaunchConfig, Source};
use gpulab::warpsim::Kind;
use gpulab_kernels::ladder;
use std::collections::BTreeMap;
use std::fmt;

/// Rows and columns of c for a block, and numbers along k for a step.
const ROWS: usize = 64;
const COLUMNS: usize = 256;
const STEP: usize = 64;
/// At which the calls are counted: four blocks, two steps.
const COUNTED: Shape = (2 * ROWS, 2 * COLUMNS, 2 * STEP);
/// A whole tile; five steps; less than a tile; sides that are no multiples of a tile's.
const SHAPES: [Shape; 6] = [(64, 256, 64), (64, 256, 320), (1, 8, 8), (70, 264, 136), (65, 40, 72), COUNTED];
const TOOLS: &str = include_str!("hopper_tools.cu");

/// Checks a kernel `wgmma_tile(const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map, float *c, int m,
/// int n, int k)`, launched with a block of 128 threads for each 64 × 256 elements of c: right, each box fetched once by the TMA,
/// and the products by `wgmma`.
pub fn wgmma_tile(source: &str) -> Verdict {
    kernels::verdict("wgmma_tile", beside_the_ladder(source), "wgmma_tile", mistake_hint, |gpu, kernel| {
        for shape in SHAPES {
            let run = Run::new(gpu, shape)?;
            let c = run.launch(kernel)?;
            let hint = "multiply by a unit matrix first: is it the operand that lies elsewhere (the descriptor's two distances), or the \
                        sum (which row and column has `sum[i]` of this thread)?";
            right_product(&c, &run.a, &run.b, shape, hint)?;
            unchanged("a", &run.on_a, &bits(&run.a))?;
            unchanged("b", &run.on_b, &bits(&run.b))?;
        }
        let noted = gpu.compile(beside_the_ladder(&format!("{TOOLS}\n{source}")))?.kernel("wgmma_tile")?;
        calls(&Run::new(gpu, COUNTED)?.inspect(&noted)?)
    })
}

/// Source whose headers are those of the bf16 ladder.
fn beside_the_ladder(text: &str) -> Source {
    Source { folder: Some(ladder::folder().join("matmul_bf16")), ..Source::text(text) }
}

fn bits(numbers: &[f32]) -> Vec<u16> {
    numbers.iter().map(|&x| cpu::bf16_from_f32(x)).collect()
}

/// The inputs of a product, here and on the GPU.
struct Run {
    shape: Shape,
    a: Vec<f32>,
    b: Vec<f32>,
    on_a: Buffer<u16>,
    on_b: Buffer<u16>,
}

impl Run {
    fn new(gpu: &Gpu, shape: Shape) -> Result<Run> {
        let (m, n, k) = shape;
        // Small whole numbers: sums of them are exact in any order, and so are they in bf16.
        let (a, b) = (whole(m * k, 1), whole(k * n, 2));
        let (on_a, on_b) = (gpu.to_device(&bits(&a))?, gpu.to_device(&bits(&b))?);
        Ok(Run { shape, a, b, on_a, on_b })
    }

    fn poison(&self) -> Result<Buffer<f32>> {
        self.on_a.gpu().poison(self.shape.0 * self.shape.1)
    }

    fn config(&self) -> LaunchConfig {
        let (m, n, _) = self.shape;
        LaunchConfig {
            grid: (n.div_ceil(COLUMNS) as u32, m.div_ceil(ROWS) as u32, 1),
            block: (128, 1, 1),
            shared_bytes: 0,
        }
    }

    fn launch(&self, kernel: &Kernel) -> Result<Vec<f32>> {
        let ((m, n, k), mut c) = (self.shape, self.poison()?);
        let (a, b) = (TensorMap::new(&self.on_a, m, k, ROWS as u32)?, TensorMap::new(&self.on_b, k, n, STEP as u32)?);
        kernel.launch(self.config(), (&a, &b, &mut c, m as i32, n as i32, k as i32))?;
        c.to_host()
    }

    fn inspect(&self, kernel: &Kernel) -> Result<Inspection> {
        let ((m, n, k), mut c) = (self.shape, self.poison()?);
        let (a, b) = (TensorMap::new(&self.on_a, m, k, ROWS as u32)?, TensorMap::new(&self.on_b, k, n, STEP as u32)?);
        kernel.inspect(self.config(), (&a, &b, &mut c, m as i32, n as i32, k as i32))
    }
}

/// Whether each block fetched its boxes once, and multiplied its own tile.
fn calls(seen: &Inspection) -> Check {
    let mut made = BTreeMap::<(&str, &str), usize>::new();
    for (call, block) in seen.printed.lines().filter_map(|line| line.split_once(' ')) {
        *made.entry((call, block)).or_default() += 1;
    }
    let with = named(COUNTED);
    let steps = COUNTED.2 / STEP;
    let (boxes, products) = (steps * (1 + COLUMNS / 64), steps * (STEP / 16));
    for block in ["0 0", "1 0", "0 1", "1 1"] {
        let of = |call| made.get(&(call, block)).copied().unwrap_or(0);
        let what = (of("box") != boxes).then(|| {
            format!("with {with}: it is right, and block ({}) calls `tma_load` {} times, where {boxes} boxes hold its tiles once", block.replace(' ', ", "), of("box"))
        });
        none_told(
            what,
            "a step of a block needs one box of a and four of b, and each of them once",
            "one thread asks, in each step, for the rows of its own tile of c and for the four panels of its columns",
        )?;
        let what = (of("product") != products).then(|| {
            format!("with {with}: it is right, and block ({}) calls `wgmma_64x256x16` {} times, where its tile takes {products}", block.replace(' ', ", "), of("product"))
        });
        none_told(
            what,
            "tensor cores are to do the products: a warpgroup starts one for each 16 numbers along k",
            "all 128 threads call it, once for each 16 of the 64 numbers of a step",
        )?;
    }
    let sectors = seen.counters.global_load_sectors;
    none_told(
        (sectors > 0).then(|| {
            format!("with {with}: it is right, and threads load {sectors} sectors of global memory themselves")
        }),
        "the tensor maps stand for a and b: the TMA brings all that is multiplied",
        "which line reads global memory?",
    )
}

/// What to ask oneself about the first mistake.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| first_is(error, kinds);
    if is(&[Kind::Deadlock]) {
        "write down phase by phase who arrives at the barrier and how many bytes it was told to expect; which parity does the wait of \
         each step ask for?"
    } else if is(&[Kind::Unfinished]) {
        "what is asked of the TMA or of the tensor cores goes on beside the threads: which wait says that it is over, and do all \
         threads that need to know pass it?"
    } else if is(&[Kind::SharedRace, Kind::MissingFence]) {
        "one of the two accesses must come first: what makes the other one wait for it?"
    } else if is(&[Kind::OutOfBounds]) {
        "the last tile may hang over the edges of c. The TMA knows the matrix's sides; who knows them when the sums are stored?"
    } else {
        "work it out by hand for that thread: which step, which tile, which sum?"
    }
}

/// Checks the answer to: `wgmma` of 64 × 32 × 16 with both operands in shared memory, 4096 operations and 128 bytes per cycle. In
/// which percentage of the cycles are the tensor cores busy, at best?
pub fn narrow_product(answer: Option<f64>) -> Verdict {
    const CYCLES: f64 = 64.0 * 32.0 * 16.0 * 2.0 / 4096.0;
    const READS: f64 = (64.0 * 16.0 + 16.0 * 32.0) * 2.0 / 128.0;
    let known = [
        (100.0, "both operands have to come: how many bytes are a's 64 × 16 numbers, and how many b's?"),
        (CYCLES / READS, "in percent, please"),
        (
            100.0 * READS / CYCLES,
            "that is how much longer one takes than the other: which of the two is idle meanwhile?",
        ),
        (62.5, "that is the share of cycles in which a product 256 columns wide keeps shared memory busy"),
        (50.0 * CYCLES / READS, "a number has 2 bytes, and a multiply-add is two operations"),
    ];
    let idea =
        "cycles for the arithmetic, cycles for the bytes of a and b: the longer of the two is what a product takes";
    verdict::verdict("narrow_product", || on_paper(answer, 100.0 * CYCLES / READS, &known, "%", idea))
}

/// A copy of rung 08 with one line changed: a block's first tile is right, its second one mostly is not.
#[derive(Debug, Clone, Copy)]
pub struct RingSuspect;

/// What may be wrong with the second tile of a persistent block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingFault {
    /// Not decided yet.
    Unknown,
    /// The sums of the first tile are added to the second one's.
    OldSums,
    /// The second tile is stored at the first one's place, or at no tile's.
    WrongPlace,
    /// A stage is filled again before the products that read it have ended.
    EarlyRefill,
    /// The barrier `full` is told of fewer bytes than the TMA brings.
    FewBytes,
    /// The barrier `empty` counts one of the two warpgroups that multiply.
    OneReader,
    /// With the second tile those who multiply count stages and phases from 0 again, and the thread that fetches counts on.
    Recount,
}

/// The course's kernel, what is changed in it, and into what.
const RUNG: &str = "matmul_bf16/08_persistent";
const RIGHT: &str = "float sum[TILE_N / 2] = {};";
const FAULT: &str = "float sum[TILE_N / 2] = {}; step = 0;";
/// A tile of its block, in columns; rows are half of it.
const WIDE: usize = 256;
/// The simulator needs about a second for so many of either.
const MOST: (usize, usize) = (3, 32);

/// What one block made of its tiles.
#[derive(Debug, Clone)]
#[must_use = "a report shows itself as the last expression of a cell, without a semicolon"]
pub struct RingReport {
    /// Tiles of the block, and steps of 64 along k.
    pub tiles: usize,
    /// See `tiles`.
    pub steps: usize,
    /// Of each tile, how many of its numbers are wrong; none where the kernel did not end as it should.
    pub wrong: Vec<usize>,
    /// Of each tile, whether it is the product that the block's first tile should hold.
    pub as_first: Vec<bool>,
    /// What the simulator says where it stopped the kernel.
    pub stopped: Option<String>,
}

impl RingSuspect {
    /// What a single block makes of so many tiles of 128 × 256, side by side, with so many steps of 64 along k.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no tile or step, and for more than 3 and 32; [`Error::Compile`].
    pub fn report(self, tiles: usize, steps: usize) -> Result<RingReport> {
        if !(1..=MOST.0).contains(&tiles) || !(1..=MOST.1).contains(&steps) {
            return Err(Error::invalid(
                format!("{tiles} tiles and {steps} steps"),
                format!("ask for 1 to {} tiles and 1 to {} steps", MOST.0, MOST.1),
            ));
        }
        let (gpu, rung) = (Gpu::simulated()?, ladder::rung(RUNG)?);
        let (m, n, k) = (WIDE / 2, tiles * WIDE, steps * STEP);
        let (a, b) = (whole(m * k, 1), whole(k * n, 2));
        let (on_a, on_b, mut c) = (gpu.to_device(&bits(&a))?, gpu.to_device(&bits(&b))?, gpu.poison::<u16>(m * n)?);
        let kernel = gpu.compile(hidden()?)?.kernel(rung.kernel)?;
        // One multiprocessor: one block has all tiles.
        let config = rung.launch(n, m, 1);
        let launched = {
            let (a, b) = (TensorMap::new(&on_a, m, k, 128)?, TensorMap::new(&on_b, k, n, STEP as u32)?);
            kernel.launch(config, (&a, &b, &mut c, m as i32, n as i32, k as i32))
        };
        let mut report = RingReport { tiles, steps, wrong: vec![], as_first: vec![], stopped: None };
        match launched {
            Ok(()) => {}
            Err(Error::Mistakes { shown, .. }) if !shown.is_empty() => {
                let what = shown[0].what.first().map_or("", String::as_str);
                report.stopped = Some(format!("{}: a thread {}", shown[0].kind, with_name(what)));
                return Ok(report);
            }
            Err(error) => return Err(error),
        }
        let right = cpu::product(cpu::MatrixRef::rows(&a, k), cpu::MatrixRef::rows(&b, n), (m, k, n));
        let (given, right) = (c.to_host()?, bits(&right));
        for tile in 0..tiles {
            let places = || (0..m).flat_map(|row| (0..WIDE).map(move |column| row * n + column));
            let count = |of: usize| places().filter(|at| given[at + tile * WIDE] != right[at + of * WIDE]).count();
            report.wrong.push(count(tile));
            report.as_first.push(count(0) == 0);
        }
        Ok(report)
    }

    /// The changed line, for who has found the fault; else nothing.
    pub fn source(self, fault: RingFault) -> Option<String> {
        (fault == RingFault::Recount)
            .then(|| format!("{RUNG}.cu, in the loop of the warpgroups that multiply:\n-   {RIGHT}\n+   {FAULT}"))
    }
}

/// What the simulator says of a barrier, with its name in the kernel in place of its address.
fn with_name(said: &str) -> String {
    // Behind the tiles of all stages: `full`, then `empty`.
    const STAGES: usize = 4;
    const TILES: usize = STAGES * (WIDE / 2 + WIDE) * STEP * 2;
    let (Some((before, rest)), Some((_, behind))) = (said.split_once("the mbarrier at "), said.split_once("): "))
    else {
        return said.to_string();
    };
    let offset = rest.split_once("offset ").and_then(|(_, number)| number.split(' ').next()?.parse::<usize>().ok());
    match offset.and_then(|offset| offset.checked_sub(TILES)).map(|bytes| bytes / 8) {
        Some(at) if at < STAGES => format!("{before}`full[{at}]`: {behind}"),
        Some(at) if at < 2 * STAGES => format!("{before}`empty[{}]`: {behind}", at - STAGES),
        _ => said.to_string(),
    }
}

/// The rung with its fault.
fn hidden() -> Result<Source> {
    let mut source = ladder::rung(RUNG)?.source()?;
    assert!(source.text.contains(RIGHT), "rung 08 has changed");
    source.text = source.text.replace(RIGHT, FAULT);
    Ok(source)
}

gpulab::show_as_text!(RingReport);

impl RingReport {
    /// Whether all tiles are as they should be.
    pub fn right(&self) -> bool {
        self.stopped.is_none() && self.wrong.iter().all(|&wrong| wrong == 0)
    }
}

impl fmt::Display for RingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "tiles of the block: {}, steps along k: {}", self.tiles, self.steps)?;
        if let Some(why) = &self.stopped {
            writeln!(f, "    the simulator stops it: {why}")?;
        }
        for (tile, wrong) in self.wrong.iter().enumerate() {
            let all = WIDE / 2 * WIDE;
            let (number, first) = (tile + 1, self.as_first[tile] && *wrong > 0);
            match wrong {
                0 => writeln!(f, "    tile {number}: right")?,
                _ => writeln!(
                    f,
                    "    tile {number}: {wrong} of {all} numbers are wrong{}",
                    if first { "; they are tile 1's" } else { "" }
                )?,
            }
        }
        Ok(())
    }
}

/// Checks the diagnosis of [`RingSuspect`]: its fault, and with how many of the lengths 64, 128, … 2048 of k all tiles of a block
/// with two of them come out right.
pub fn ring_suspect(fault: RingFault, lengths: Option<usize>) -> Verdict {
    verdict::verdict("ring_suspect", || {
        let at = |tiles, steps| RingSuspect.report(tiles, steps);
        let text = |report: &RingReport| {
            if report.right() { "all are right".to_string() } else { "not all are right".to_string() }
        };
        let against = match fault {
            RingFault::Recount => {
                let known = [
                    (8.0, "after 4 steps the stages are the same ones again. Are the parities?"),
                    (32.0, "that is how many lengths there are: are all of them right?"),
                    (16.0, "a ring has 4 stages, and each of them two parities"),
                    (1.0, "the steps of 8, and of which other numbers?"),
                    (0.0, "try 8 steps"),
                ];
                let idea = "after how many steps do those who count from 0 again ask for the stage and the parity that are next anyway?";
                return on_paper(lengths.map(|count| count as f64), 4.0, &known, "lengths", idea);
            }
            RingFault::Unknown => {
                return wrong(
                    "no fault is named yet",
                    "vary the steps with one tile, then with two. At which numbers of steps is the second tile right, and what is in it at one step?",
                );
            }
            RingFault::OldSums => {
                let report = at(2, 1)?;
                format!(
                    "with two tiles of one step {}: sums of both tiles are in none",
                    if report.as_first.get(1) == Some(&true) {
                        "the second tile holds the first one's numbers"
                    } else {
                        "no old sums show"
                    }
                )
            }
            RingFault::WrongPlace => {
                format!("with two tiles of 8 steps {}, and they are stored where they belong", text(&at(2, 8)?))
            }
            RingFault::EarlyRefill => {
                format!("with one tile of 12 steps each stage is filled three times, and {}", text(&at(1, 12)?))
            }
            RingFault::FewBytes => {
                format!("with one tile of 12 steps the barriers count the same bytes, and {}", text(&at(1, 12)?))
            }
            RingFault::OneReader => {
                format!("with one tile of 12 steps the barriers count the same arrivals, and {}", text(&at(1, 12)?))
            }
        };
        told(
            format!("the evidence speaks against it: {against}"),
            "a fault of the ring itself would show in the first tile, too; one of the tile would show at every number of steps",
            "what is different in the second tile, and only at some numbers of steps?",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::kernels::{expect, passes};
    use crate::check::matmul::red;

    const TILE: &str = include_str!("hopper_product.cu");

    #[test]
    fn wgmma_tile_knows_wrong_answers_and_cheats() {
        expect(
            wgmma_tile,
            TILE,
            &[
                ("wait(&full, step % 2);", "wait(&full, 0);", ""),
                ("wait(&full, step % 2);", "", ""),
                ("sizeof a_tile + sizeof b_tile", "sizeof b_tile", ""),
                ("sizeof a_tile + sizeof b_tile", "sizeof a_tile + sizeof b_tile + 16", "waits for ever"),
                ("__syncthreads(); // made", "", "initialises, with no barrier between"),
                ("column0 + panel * 64", "panel * 64", "it should be"),
                ("wgmma_wait<0>();", "", ""),
                ("wgmma_fence();", "", "wgmma.fence"),
                ("64 * 128, 1024", "1024, 1024", "it should be"),
                ("of_a + part / 8", "of_a + part", "it should be"),
                ("part * 8", "part / 8", "it should be"),
                ("i / 2 % 2 * 8", "i % 2 * 8", "it should be"),
                ("row < m && column < n", "row < m", ""),
                ("row < m && column < n", "column < n", "out of bounds"),
                ("float sum[128] = {};", "float sum[128] = {1.0f};", "it should be"),
                // A constant, NaN, a neighbour's memory.
                ("= sum[i];", "= 2.0f;", "it should be"),
                ("= sum[i];", "= __int_as_float(0x7fffffff);", "is NaN, which no number should give"),
                ("= sum[i];", "= c[(size_t)row * n + column + 1];", "nothing has written"),
                // Boxes twice; a product twice, and its half.
                (
                    "tma_load(a_tile, &a_map, step * 64, row0, &full);",
                    "tma_load(a_tile, &a_map, step * 64, row0, &full); tma_load(a_tile, &a_map, step * 64, row0, &full);",
                    "",
                ),
                (
                    "arrive_and_expect(&full, sizeof a_tile + sizeof b_tile);\n",
                    "arrive_and_expect(&full, 2 * sizeof a_tile + sizeof b_tile);\n            tma_load(a_tile, &a_map, step * 64, row0, &full);\n",
                    "",
                ),
            ],
        );
    }

    #[test]
    fn products_by_others_are_seen() {
        // The first block has the tiles of all.
        let first = TILE
            .replace(
                "int thread = threadIdx.x, row0 = blockIdx.y * 64, column0 = blockIdx.x * 256;",
                "if (blockIdx.x + blockIdx.y > 0) { return; }\n    int thread = threadIdx.x; u32 phase = 0;",
            )
            .replace(
                "float sum[128] = {};",
                "for (int row0 = 0; row0 < m; row0 += 64) for (int column0 = 0; column0 < n; column0 += 256) {\n    float sum[128] = {};",
            )
            .replace("wait(&full, step % 2);", "wait(&full, phase++ % 2);");
        red(&wgmma_tile(&format!("{first}}}")), "calls `tma_load`");
        // Threads multiply what the TMA has brought.
        let by_threads = TILE.replace("wgmma_64x256x16(sum, of_a + part / 8, of_b + part * 8);", "").replace(
            "wgmma_commit();",
            "for (int i = 0; i < 128; ++i) for (int j = 0; j < 64; ++j) {
            int y = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8, x = i / 4 * 8 + thread % 4 * 2 + i % 2;
            sum[i] += float(a_tile[y * 64 + (j / 8 ^ y % 8) * 8 + j % 8]) * float(b_tile[x / 64][j * 64 + (x % 64 / 8 ^ j % 8) * 8 + x % 8]);
        }",
        );
        red(&wgmma_tile(&by_threads), "calls `wgmma_64x256x16` 0 times");
    }

    #[test]
    fn other_right_answers_pass() {
        // No barrier behind the products: the warps of a warpgroup have all started what thread 0 has waited for. Every thread announces its
        // share.
        let alone = TILE.replace("__syncthreads(); // used", "");
        let all = TILE.replace("barrier_init(&full, 1);", "barrier_init(&full, 128);").replace(
            "        if (thread == 0) {\n            arrive_and_expect(&full, sizeof a_tile + sizeof b_tile);",
            "        arrive_and_expect(&full, (sizeof a_tile + sizeof b_tile) / 128);\n        if (thread == 0) {",
        );
        passes(wgmma_tile, &[TILE, &alone, &all]);
    }

    #[test]
    fn a_narrow_product_on_paper_has_one_answer() {
        assert!(narrow_product(Some(66.67)).passed() && narrow_product(Some(66.7)).passed());
        for (answer, said) in [
            (None, "no number yet"),
            (Some(100.0), "both operands"),
            (Some(0.667), "in percent"),
            (Some(150.0), "idle meanwhile"),
            (Some(62.5), "256 columns"),
            (Some(33.3), "2 bytes"),
            (Some(75.0), "is not it"),
            (Some(f64::NAN), "is not it"),
            (Some(f64::INFINITY), "is not it"),
        ] {
            let text = format!("{}{}", narrow_product(answer).text(), narrow_product(answer).hint().text());
            assert!(text.starts_with("NOT YET") && text.contains(said), "`{said}` is not said: {text}");
        }
    }

    #[test]
    fn the_ring_is_convicted_by_the_second_tile_alone() {
        for steps in [1, 4, 6, 8, 16] {
            assert!(RingSuspect.report(1, steps).unwrap().right(), "{steps}");
        }
        for (tiles, steps) in [(2, 1), (2, 2), (2, 3), (2, 4), (2, 7), (2, 8), (2, 12), (2, 16), (3, 1), (3, 8)] {
            let report = RingSuspect.report(tiles, steps).unwrap();
            assert_eq!(report.right(), steps % 8 == 0, "{report}");
        }
        let hangs = RingSuspect.report(2, 4).unwrap().to_string();
        assert!(hangs.contains("waits for ever for `full[0]`: it is in phase 2 of parity 0"), "{hangs}");
        assert!(RingSuspect.report(0, 1).is_err() && RingSuspect.report(4, 1).is_err());
        assert!(RingSuspect.report(1, 0).is_err() && RingSuspect.report(1, 33).is_err());
        assert!(ring_suspect(RingFault::Recount, Some(4)).passed());
        assert!(RingSuspect.source(RingFault::OldSums).is_none() && RingSuspect.source(RingFault::Recount).is_some());
        for (fault, lengths, said) in [
            (RingFault::Unknown, None, "no fault is named"),
            (RingFault::OldSums, Some(4), "holds the first one's numbers"),
            (RingFault::WrongPlace, Some(4), "with two tiles of 8 steps all are right"),
            (RingFault::EarlyRefill, Some(4), "filled three times, and all are right"),
            (RingFault::FewBytes, Some(4), "the same bytes, and all are right"),
            (RingFault::OneReader, Some(4), "the same arrivals, and all are right"),
            (RingFault::Recount, None, "no number yet"),
            (RingFault::Recount, Some(8), "8 lengths is not it"),
            (RingFault::Recount, Some(32), "32 lengths is not it"),
            (RingFault::Recount, Some(0), "0 lengths is not it"),
        ] {
            red(&ring_suspect(fault, lengths), said);
        }
    }
}
