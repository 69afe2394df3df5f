//! The mean of values by their weights, through a ring of tiles in shared memory: a warp that copies, warps that sum.

use crate::check::Verdict;
use crate::check::kernels::{self, first_wrong, unchanged, whole};
use crate::check::verdict::{Check, none_told, told};
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Gpu, Kernel, TensorMap};
use gpulab::inspect::{AccessKind, Inspection, Space};
use gpulab::launch::{LaunchConfig, Source};
use gpulab::warpsim::Kind;
use gpulab_kernels::ladder;
use std::collections::{BTreeMap, BTreeSet};

/// Numbers of a value, and values of a tile.
const WIDTH: usize = 64;
const TILE: usize = 64;
/// Heads and tokens: one token, a whole tile, one more, and several times around a ring.
const SHAPES: [(usize, usize); 6] = [(1, 1), (2, 64), (1, 65), (3, 200), (2, 448), COUNTED];
/// The shape whose counters are judged: ten tiles.
const COUNTED: (usize, usize) = (1, 640);
/// Four warps for the sums, one that copies.
const THREADS: u32 = 160;
const TOOLS: &str = include_str!("weigh_tools.cu");

/// Checks a kernel `weigh(const __grid_constant__ TensorMap v_map, const float *p, float *o, int length)`, launched with a block
/// of 160 threads for each head: o\[h\]\[d\] = Σ p\[h\]\[j\] · v\[h\]\[j\]\[d\] over all tokens j, in heads of 64 numbers. The TMA brings
/// each tile of 64 values once, with another one on its way or in use meanwhile, and no barrier of the block in the loop.
pub fn weigh(source: &str) -> Verdict {
    kernels::verdict("weigh", beside_the_ladder(source), "weigh", mistake_hint, |gpu, kernel| {
        for (heads, length) in SHAPES {
            let run = Run::new(gpu, heads, length)?;
            let mut o = gpu.poison::<f32>(heads * WIDTH)?;
            let map = TensorMap::of_stack(&run.v, (heads, length, WIDTH), TILE as u32)?;
            kernel.launch(config(heads), (&map, &run.p, &mut o, length as i32))?;
            let place = |at: usize| format!("head {}, number {}", at / WIDTH, at % WIDTH);
            let with = format!("heads: {heads}, tokens: {length}");
            let meaning =
                "each row of a tile counts once, with its own weight, and a column is to be the same one in all rows";
            let hint = "sum one column of a small tile by hand: which rows does this thread add, each with which weight, and where \
                        did the TMA put that column of the row?";
            none_told(first_wrong(&with, &o.to_host()?, &run.exact, place), meaning, hint)?;
            unchanged("p", &run.p, &run.weights)?;
        }
        cost(&inspected(gpu, kernel, 0)?)?;
        let noted = gpu.compile(beside_the_ladder(&format!("{TOOLS}\n{source}")))?.kernel("weigh")?;
        in_flight(&inspected(gpu, &noted, 0)?.printed)?;
        shared_out(gpu, kernel)
    })
}

/// Source whose headers are those of the flash attention kernels.
fn beside_the_ladder(text: &str) -> Source {
    Source { folder: Some(ladder::folder().join("flash_attention")), ..Source::text(text) }
}

fn config(heads: usize) -> LaunchConfig {
    LaunchConfig::new(heads as u32, THREADS)
}

/// The arrays of a launch.
struct Run {
    v: gpulab::gpu::Buffer<u16>,
    p: gpulab::gpu::Buffer<f32>,
    weights: Vec<f32>,
    exact: Vec<f32>,
}

impl Run {
    fn new(gpu: &Gpu, heads: usize, length: usize) -> Result<Run> {
        // Small whole numbers: sums of them are exact in any order, and so are they in bf16.
        let (values, weights) = (whole(heads * length * WIDTH, 1), whole(heads * length, 2));
        let sum = |at: usize| {
            let (head, d) = (at / WIDTH, at % WIDTH);
            (head * length..(head + 1) * length).map(|row| weights[row] * values[row * WIDTH + d]).sum()
        };
        let exact = (0..heads * WIDTH).map(sum).collect();
        let bits: Vec<u16> = values.iter().map(|&x| cpu::bf16_from_f32(x)).collect();
        Ok(Run { v: gpu.to_device(&bits)?, p: gpu.to_device(&weights)?, weights, exact })
    }
}

/// What a launch of the counted shape did, and the accesses of one of its warps.
fn inspected(gpu: &Gpu, kernel: &Kernel, warp: u32) -> Result<Inspection> {
    let (heads, length) = COUNTED;
    let (run, mut o) = (Run::new(gpu, heads, length)?, gpu.poison::<f32>(heads * WIDTH)?);
    let map = TensorMap::of_stack(&run.v, (heads, length, WIDTH), TILE as u32)?;
    kernel.inspect_warp(config(heads), (&map, &run.p, &mut o, length as i32), (0, 0, 0), warp)
}

/// Barriers of the block, and what shared memory serves.
fn cost(seen: &Inspection) -> Check {
    let ((_, length), c) = (COUNTED, &seen.counters);
    let (tiles, warps) = (length / TILE, u64::from(THREADS / 32));
    let each = c.barriers as f64 / warps as f64;
    let what = (each > 5.0).then(|| {
        format!("with {tiles} tiles: it is right, but a warp comes to {each:.1} barriers of the block on average")
    });
    none_told(
        what,
        "at `__syncthreads` all five warps wait for the slowest, once more with each tile: what they have in flight runs dry there",
        "a warp has to know two things: that its tile is there, and, if it copies, that a stage is free. Which barrier can tell each \
         of them, and who must arrive there?",
    )?;
    let (served, rows) = (c.shared_load_wavefronts, length as u64);
    let what = (served < rows).then(|| {
        format!(
            "with {length} tokens: it is right, but shared memory serves {served} wavefronts of reads, and the values alone are {rows}"
        )
    });
    none_told(
        what,
        "the values that are summed do not come out of the tiles that were copied",
        "the TMA brings a tile to shared memory: the sums read it there",
    )?;
    let what = (served > 4 * rows + 128).then(|| {
        format!(
            "with {length} tokens: it is right, but shared memory serves {served} wavefronts of reads, {} of them bank conflicts; a \
             value is one row of 32 words, and there are {rows}",
            c.shared_load_bank_conflicts
        )
    });
    none_told(
        what,
        "a wavefront gives each of the 32 banks once; the lanes of a warp ask for several words of one bank, or each for little",
        "which 32 words do the lanes of a warp read in the same moment? In which banks do they lie?",
    )
}

/// Whether several warps sum. Instructions do not tell: a warp that waits polls.
fn shared_out(gpu: &Gpu, kernel: &Kernel) -> Check {
    let reads = |warp| -> Result<usize> {
        let seen = inspected(gpu, kernel, warp)?;
        Ok(seen.accesses.iter().filter(|a| a.space == Space::Shared && a.kind == AccessKind::Load).count())
    };
    let each = (0..THREADS / 32).map(reads).collect::<Result<Vec<usize>>>()?;
    let (most, all) = (each.iter().max().copied().unwrap_or(0), each.iter().sum::<usize>());
    let what = (2 * most > all).then(|| {
        format!("the result is right, but of {all} reads of shared memory one of the five warps makes {most}")
    });
    none_told(
        what,
        "four warps are there to sum, and a tile is done when the slowest of them is",
        "which rows, or which columns, of each tile belong to which warp?",
    )
}

/// Whether each tile was asked for once, and one was asked for while another was still on its way or in use. `log` holds
/// the calls in the order in which they were made.
fn in_flight(log: &str) -> Check {
    let tiles = COUNTED.1 / TILE;
    let (mut asked, mut used) = (0_usize, BTreeSet::<usize>::new());
    // Tiles that arrive at a barrier, and how often a thread went on there.
    let mut arrive_at: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut gone_on: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let (mut copies, mut most) = (BTreeSet::<&str>::new(), 0);
    let calls: Vec<Vec<&str>> = log.lines().map(|line| line.rsplitn(3, ' ').collect()).collect();
    for call in calls.iter().filter(|call| call.len() == 3 && call[2] == "asks") {
        copies.insert(call[1]);
    }
    for call in &calls {
        match call[..] {
            [barrier, _, "asks"] => {
                arrive_at.entry(barrier).or_default().push(asked);
                asked += 1;
                most = most.max(asked - used.len());
            }
            [barrier, thread, "goes on"] if !copies.contains(thread) => {
                let count = gone_on.entry((barrier, thread)).or_default();
                used.extend(arrive_at.get(barrier).and_then(|tiles| tiles.get(*count)));
                *count += 1;
            }
            _ => {}
        }
    }
    if asked != tiles {
        return told(
            format!("with {tiles} tiles: it is right, but `tma_load` is called {asked} times"),
            "each tile of 64 values has to come once, by the TMA",
            "one thread asks, once for each tile: which thread is it, and which loop does it run?",
        );
    }
    let what = (most < 2).then(|| {
        format!(
            "with {tiles} tiles: it is right, but whenever a tile is asked for, all tiles before it have been taken already"
        )
    });
    none_told(
        what,
        "copies and sums take turns: memory is idle while warps sum, and warps are idle while a tile is on its way",
        "for how many tiles is there room, and what exactly has to be over before the next one may be asked for?",
    )
}

/// What to ask oneself about the first mistake.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::Unfinished]) {
        "follow one stage over its first three tiles: which phase of its barrier does each wait stand for, and which parity has that phase?"
    } else if is(&[Kind::Deadlock]) {
        "follow one stage over its first three tiles, on paper: who arrives at which barrier, how often, and which parity does each wait ask for?"
    } else if is(&[Kind::BarrierDivergence]) {
        "how many threads arrive at that barrier for one tile, and for how many was it made?"
    } else if is(&[Kind::SharedRace, Kind::MissingFence]) {
        "one of the two accesses must come first: which arrival tells the other side that it is over, and does the whole warp stand behind it?"
    } else if is(&[Kind::OutOfBounds]) {
        "the last tile may hang over the last token: what arrives there, and what has `p` there?"
    } else {
        "work it out by hand for that thread: which stage, which row, which piece of it?"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::kernels::{expect, passes};

    const RIGHT: &str = include_str!("weigh.cu");

    #[test]
    fn weigh_knows_wrong_answers_and_cheats() {
        expect(
            weigh,
            RIGHT,
            &[
                ("t / STAGES % 2 ^ 1", "t / STAGES % 2", "waits for ever"),
                ("wait(&full[stage], t / STAGES % 2);", "wait(&full[stage], t % 2);", "waits for ever"),
                ("wait(&full[stage], t / STAGES % 2);", "", "nothing has written"),
                ("if (lane == 0) arrive(&empty[stage]); // used", "", "waits for ever"),
                ("if (lane == 0) arrive(&empty[stage]); // used", "arrive(&empty[stage]);", "waits for ever"),
                ("wait(&empty[stage], t / STAGES % 2 ^ 1);", "", "shared memory"),
                ("sizeof v[0]", "min(TILE, length - t * TILE) * 128", "waits for ever"),
                ("min(TILE, length - t * TILE)", "TILE", "out of bounds"),
                ("(lane / 4 ^ row % 8)", "(lane / 4)", "it should be"),
                ("__syncthreads(); // made", "", "initialises, with no barrier between"),
                ("__syncthreads(); // summed", "", "race"),
                ("float weight = p[head * length + t * TILE + row];", "float weight = 1.0f;", "it should be"),
                // One stage; all warps at a barrier with each tile.
                ("STAGES = 3", "STAGES = 1", "all tiles before it have been taken"),
                ("__syncwarp();", "asm volatile(\"bar.sync 1, 128;\");", "barriers of the block"),
                // Constants, NaN, a neighbour's memory.
                ("= sums[0][d] + sums[1][d] + sums[2][d] + sums[3][d];", "= 1.0f;", "it should be"),
                ("= sums[0][d] +", "= __int_as_float(0x7fffffff) +", "is NaN"),
                ("= sums[0][d] +", "= o[head * 64 + (d ^ 1)] +", "race"),
            ],
        );
    }

    #[test]
    fn sums_without_the_copy_engine_or_without_the_others_are_seen() {
        let plain = "#include \"wgmma.cuh\"
extern \"C\" __global__ void weigh(const __grid_constant__ TensorMap v_map, const float *p, float *o, int length) {
    int d = threadIdx.x;
    // The map's first word is no address that a kernel may use.
    if (d < 64) o[blockIdx.x * 64 + d] = ((const float *)v_map.words[0])[d];
}";
        assert!(!weigh(plain).passed(), "{}", weigh(plain).text());
        let one_warp = RIGHT.replace("row = warp; row", "row = 0; warp == 0 && row").replace("row += 4", "row += 1");
        let text = weigh(&one_warp).text();
        assert!(text.contains("one of the five warps makes"), "{text}");
        // A lane a row: the same piece of 32 rows, in eight groups of four banks.
        let by_rows = RIGHT.replace(
            "for (int row = warp; row < min(TILE, length - t * TILE); row += 4) {",
            "for (int column = warp; column < 64; column += 4) for (int row = lane; row < min(TILE, length - t * TILE); row += 32) {",
        );
        let by_rows = by_rows
            .replace("(lane / 4 ^ row % 8) * 8 + lane % 4 * 2", "(column / 8 ^ row % 8) * 8 + column % 8")
            .replace(
                "float2 two = __bfloat1622float2(*(const __nv_bfloat162 *)&v[stage][at]);",
                "float one = weight * float(v[stage][at]);",
            )
            .replace("sum.x += weight * two.x, sum.y += weight * two.y;", "atomicAdd(&sums[0][column], one);")
            .replace("sums[warp][2 * lane] = sum.x, sums[warp][2 * lane + 1] = sum.y;", "")
            .replace(
                "__syncthreads(); // made",
                "if (threadIdx.x < 64) for (int i = 0; i < 4; ++i) sums[i][threadIdx.x] = 0.0f;\n    __syncthreads();",
            );
        let text = weigh(&by_rows).text();
        assert!(text.contains("bank conflicts"), "{text}");
    }

    #[test]
    fn other_right_answers_pass() {
        // Every thread of the warps that sum arrives; two stages; the copying thread sums, too.
        let all = RIGHT.replace("barrier_init(&empty[i], 4)", "barrier_init(&empty[i], 128)");
        let all = all
            .replace("__syncwarp();\n", "\n")
            .replace("if (lane == 0) arrive(&empty[stage]);", "arrive(&empty[stage]);");
        let two = RIGHT.replace("STAGES = 3", "STAGES = 2");
        passes(weigh, &[RIGHT, &all, &two]);
    }
}
