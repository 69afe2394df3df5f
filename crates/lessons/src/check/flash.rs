//! Exercises of lessons 31a and 31b: one pass over the keys, a loop over tiles of them, and numbers on paper.

use super::Verdict;
use super::kernels::{self, shared_out};
use super::on_paper::{self, number};
use super::verdict::{Check, verdict, wrong};
use gpulab::cpu;
use gpulab::cpu::AttentionShape;
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

/// Head dimension of [`one_pass`] and [`tile_loop`].
const WIDTH: usize = 32;
/// Tokens of [`one_pass`]: one, a few, more than a block has warps, many; traffic is counted at two of them.
const LENGTHS: [usize; 5] = [1, 7, 33, 64, 150];
const COUNTED: [usize; 2] = [64, 150];
/// How far scores spread, and around which number: near 0, beyond what exp can do in f32, and all far below 0.
const SCORES: [(f32, f32); 3] = [(2.0, 0.0), (200.0, 0.0), (1.0, -300.0)];
/// Queries of a block of [`tile_loop`], a thread each.
const QUERIES: usize = 64;
/// The hint where f32 has no number for exp.
const FAR: &str =
    "here scores are as far from 0 as 200, above and below: of which arguments is exp neither infinite nor 0 in f32?";
/// The most local memory of a thread of [`tile_loop`], in bytes: a query, a result and the scores of a tile, and no
/// row of scores.
const LOCAL: usize = 1024;

/// Random q, k and v whose scores spread so far around `shift`, as many keys as `keys`.
fn inputs(queries: usize, keys: usize, (spread, shift): (f32, f32)) -> [Vec<f32>; 3] {
    let shape = |length| AttentionShape { batch: 1, q_heads: 1, kv_heads: 1, length, width: WIDTH };
    let [mut q, _, _] = cpu::attention_inputs(shape(queries), 7, spread);
    let [_, mut k, v] = cpu::attention_inputs(shape(keys), 7, spread);
    if shift != 0.0 {
        // One number of each key is the same, and each query asks for the shift in it: all scores move by it.
        q.chunks_mut(WIDTH).for_each(|query| query[0] = shift * (WIDTH as f32).sqrt());
        k.chunks_mut(WIDTH).for_each(|key| key[0] = 1.0);
    }
    [q, k, v]
}

/// Checks a kernel `attend(const float *q, const float *k, const float *v, float *o, int n)`: attention with one head of
/// 32 numbers, a warp a query, 8 queries a block. It must be right for scores of any size, and read k and v once.
pub fn one_pass(source: &str) -> Verdict {
    kernels::verdict("one_pass", source, "attend", mistake_hint, |gpu, kernel| {
        for (length, scores) in LENGTHS.into_iter().flat_map(|length| SCORES.map(|scores| (length, scores))) {
            let [q, k, v] = inputs(length, length, scores);
            let (on_q, on_k, on_v) = (gpu.to_device(&q)?, gpu.to_device(&k)?, gpu.to_device(&v)?);
            let mut o = gpu.poison::<f32>(q.len())?;
            let config = LaunchConfig::for_elements(length * 32, 256);
            kernel.launch(config, (&on_q, &on_k, &on_v, &mut o, length as i32))?;
            compare(&o.to_host()?, &exact(&q, &k, &v), &format!("{length} tokens"), scores)?;
            unchanged([(&on_q.to_host()?, &q), (&on_k.to_host()?, &k), (&on_v.to_host()?, &v)])?;
            if COUNTED.contains(&length) {
                let inspection = kernel.inspect(config, (&on_q, &on_k, &on_v, &mut o, length as i32))?;
                let seen = &inspection.counters;
                let (read, must) = (32 * seen.global_load_sectors as usize, 4 * WIDTH * length * (2 * length + 1));
                if read > must {
                    let what =
                        format!("right, but {read} bytes are read; q once, and k and v once a query, are {must}");
                    return wrong(what, "which loop reads a key again, and what would it have to know to do without?");
                }
                let lanes = seen.active_lanes_per_instruction();
                if lanes < 16.0 {
                    let what = format!("right, but on average {lanes:.1} of a warp's 32 lanes are at work");
                    return wrong(what, "a warp has one query, and each lane one of its 32 numbers");
                }
                let local = seen.local_load_requests + seen.local_store_requests;
                if local > 0 {
                    return wrong(
                        format!("right, but its warps access local memory {local} times, and that is device memory"),
                        "scores are kept there, a number for each key: which of them is needed once the next key has come?",
                    );
                }
                shared_out(&inspection, 0.3)?;
            }
        }
        Ok(())
    })
}

/// Checks a kernel `attend(const float *q, const float *k, const float *v, float *o, int queries, int keys)`: attention with
/// one head of 32 numbers, a thread a query, blocks of 64 threads. It must be right for scores of any size and all lengths, and
/// a block may fetch k and v once.
pub fn tile_loop(source: &str) -> Verdict {
    kernels::verdict("tile_loop", source, "attend", tile_mistake, |gpu, kernel| {
        for (queries, keys) in [(1, 1), (64, 32), (65, 33), (5, 100), (130, 7)] {
            for scores in SCORES {
                let [q, k, v] = inputs(queries, keys, scores);
                let (on_q, on_k, on_v) = (gpu.to_device(&q)?, gpu.to_device(&k)?, gpu.to_device(&v)?);
                let mut o = gpu.poison::<f32>(q.len())?;
                let config = LaunchConfig::for_elements(queries, QUERIES as u32);
                kernel.launch(config, (&on_q, &on_k, &on_v, &mut o, queries as i32, keys as i32))?;
                let with = format!("{queries} queries, {keys} keys");
                compare(&o.to_host()?, &exact(&q, &k, &v), &with, scores)?;
                unchanged([(&on_q.to_host()?, &q), (&on_k.to_host()?, &k), (&on_v.to_host()?, &v)])?;
            }
        }
        tile_cost(gpu, kernel)?;
        no_row_of_scores(gpu, source)
    })
}

/// Whether all threads of all blocks work, and what a block fetches.
fn tile_cost(gpu: &Gpu, kernel: &Kernel) -> Check {
    let (blocks, keys) = (4, 1024);
    let queries = blocks * QUERIES;
    let [q, k, v] = inputs(queries, keys, SCORES[0]);
    let (on_q, on_k, on_v) = (gpu.to_device(&q)?, gpu.to_device(&k)?, gpu.to_device(&v)?);
    let mut o = gpu.poison::<f32>(q.len())?;
    let args = (&on_q, &on_k, &on_v, &mut o, queries as i32, keys as i32);
    let inspection = kernel.inspect(LaunchConfig::for_elements(queries, QUERIES as u32), args)?;
    let seen = &inspection.counters;
    let lanes = seen.active_lanes_per_instruction();
    if lanes < 16.0 {
        return wrong(
            format!("right, but on average {lanes:.1} of a warp's 32 lanes are at work"),
            "a block has 64 queries and 64 threads: what do most of them wait for?",
        );
    }
    let once = (2 * keys * WIDTH * 4 / 32) as u64;
    // A thread that reads its own query touches a sector for each number: 8 times what they have.
    let read = seen.global_load_sectors / blocks as u64;
    if read > once + once / 4 + (8 * QUERIES * WIDTH * 4 / 32) as u64 {
        return wrong(
            format!(
                "right, but one block of {QUERIES} queries fetches {read} sectors for {keys} keys; k and v have {once}"
            ),
            "what is fetched for one query serves all 64 of the block: where must it lie for that?",
        );
    }
    shared_out(&inspection, 0.5)
}

/// A row of scores kept in local memory is device memory as well, and the counters of global memory do not see it.
fn no_row_of_scores(gpu: &Gpu, source: &str) -> Check {
    let module = gpu.compile(source)?;
    let local = local_bytes(module.ptx()?);
    if local > LOCAL {
        return wrong(
            format!("right, but each thread has {local} bytes of local memory, which is device memory"),
            "scores are kept there, a number for each key: which of them is needed after its tile is done?",
        );
    }
    Ok(())
}

/// Bytes of local arrays that PTX declares, such as `.local .align 16 .b8 __local_depot0[512];`.
fn local_bytes(ptx: &str) -> usize {
    let declared = |line: &str| -> Option<usize> {
        line.trim().strip_prefix(".local ")?.split_once('[')?.1.split_once(']')?.0.parse().ok()
    };
    ptx.lines().filter_map(declared).sum()
}

/// softmax(q · kᵀ / √32) · v in f64, for as many queries and keys as there are.
fn exact(q: &[f32], k: &[f32], v: &[f32]) -> Vec<f64> {
    let row = |query: &[f32]| -> Vec<f64> {
        let dot = |key: &[f32]| query.iter().zip(key).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
        let scores: Vec<f64> = k.chunks(WIDTH).map(|key| dot(key) / (WIDTH as f64).sqrt()).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let mean = |d| weights.iter().enumerate().map(|(key, p)| p / sum * f64::from(v[key * WIDTH + d])).sum();
        (0..WIDTH).map(mean).collect()
    };
    q.chunks(WIDTH).flat_map(row).collect()
}

fn unchanged(inputs: [(&Vec<f32>, &Vec<f32>); 3]) -> Check {
    let names = ["q", "k", "v"];
    match inputs.iter().position(|(now, before)| now != before) {
        Some(at) => wrong(format!("`{}` is another one after the launch", names[at]), "inputs are read, not written"),
        None => Ok(()),
    }
}

fn compare(given: &[f32], exact: &[f64], with: &str, (spread, shift): (f32, f32)) -> Check {
    let near = |given: f32, exact: f64| (f64::from(given) - exact).abs() <= 1e-3 * exact.abs().max(1.0);
    let Some(at) = given.iter().zip(exact).position(|(&given, &exact)| !near(given, exact)) else { return Ok(()) };
    let hint = match given[at].is_finite() {
        _ if shift != 0.0 => {
            "here all scores lie far below 0: what does your maximum begin with, and what is exp then?"
        }
        false if spread > 100.0 => FAR,
        false => {
            "a number that was never written is NaN, and so is infinity less infinity: what does the maximum begin with?"
        }
        true => "follow one query by hand over three keys, the largest score last: what was summed before it came?",
    };
    let (query, number, given, exact) = (at / WIDTH, at % WIDTH, given[at], exact[at]);
    let around = if shift == 0.0 { spread } else { shift };
    let around = format!("{with}, scores of about {around}");
    wrong(format!("{around}: query {query}, number {number} is {given}, and it should be {exact}"), hint)
}

/// What to ask oneself about the first mistake of [`tile_loop`].
fn tile_mistake(error: &Error) -> &'static str {
    if kernels::first_is(error, &[Kind::OutOfBounds]) {
        "which query has that thread, and which key that place of the tile? Neither 64 queries nor a whole tile need be there"
    } else if kernels::first_is(error, &[Kind::SharedRace, Kind::BarrierDivergence]) {
        "a tile is written by all threads and read by all: when may it be read, and when may the next one take its place?"
    } else {
        "read the line, the block and the thread above: what does that thread do there, and should it?"
    }
}

/// What to ask oneself about the first mistake.
fn mistake_hint(_: &Error) -> &'static str {
    "read the line, the block and the thread above: a warp has one query, a lane one number of it"
}

/// Checks a number: how many queries a block must answer, at least, so that an H100 is not limited by fetching k and v.
pub fn queries_per_block(answer: Option<f64>) -> Verdict {
    // A key costs 4 · d operations per query, and 4 · d bytes in bf16: an operation per byte for each query.
    let balance = 989.0 / 3.35;
    number(
        "queries_per_block",
        answer,
        0.999 * balance..=296.0,
        &[
            (balance / 2.0, "two products, 2 · d operations each; and a key has a value beside it"),
            (balance * 2.0, "two products, 2 · d operations each; and a key has a value beside it"),
            (balance / 4.0, "two products, 2 · d operations each; and a key has a value beside it"),
            (989.0 / 4.8, "that is an H200's memory"),
            (320.0, "that would do, and fewer would, too: the question is for the fewest"),
        ],
        "operations of the block for one key, divided by that key's bytes; then what the GPU does while a byte arrives",
    )
}

/// Checks two numbers for tensor cores of 8192 operations per cycle and tiles of 128 × 64 scores: the percent of the time that they
/// are busy where products and exponentials follow each other, for heads of 192 numbers; and the head dimension from which on the
/// exponentials of a tile fit beside the product with `v`, so that they could be busy all the time.
pub fn tensor_busy(answer: Option<(f64, f64)>) -> Verdict {
    let share = |operations_a_score: f64, operations_a_cycle: f64| {
        let (products, exponentials) = (operations_a_score * 128.0 * 64.0 / operations_a_cycle, 128.0 * 64.0 / 16.0);
        100.0 * products / (products + exponentials)
    };
    let exact = share(4.0 * 192.0, 8192.0);
    let in_turn = [
        (100.0 - exact, "that is the share of the exponentials"),
        (exact / 100.0, "in percent, please"),
        (share(4.0 * 192.0, 4096.0), "that is with 4096 operations per cycle: these tensor cores are twice as fast"),
        (share(2.0 * 192.0, 8192.0), "there are two products, of 2 · d operations each for a score"),
        (100.0, "one after the other: the tensor cores wait for the exponentials"),
    ];
    // The product with v takes 2 · d operations for a score, its exponential a sixteenth of a cycle.
    let fits = 8192.0 / 16.0 / 2.0;
    let overlapped = [
        (
            fits / 2.0,
            "there both products together take as long as the exponentials; but which of them can run beside a tile's exponentials? (Or did you take 4096 operations per cycle?)",
        ),
        (fits * 2.0, "a multiply-add is two operations"),
        (192.0, "at 192 the product with V is over before the exponentials are"),
    ];
    let start = "cycles of the products: operations ÷ 8192. Cycles of the exponentials: scores ÷ 16. Then their shares";
    let draw = "draw it as in section 4: E stands beside O. For one score, how many cycles does each take?";
    verdict("tensor_busy", || {
        let (percent, head_dimension) = answer.unzip();
        on_paper::part("one after the other", percent, exact - 0.5..=exact + 0.5, &in_turn, start)?;
        on_paper::part("both at once", head_dimension, fits..=fits, &overlapped, draw).map(|_| ())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: &str = r#"__device__ float score(float q_part, const float *k, int key) {
    float s = q_part * k[key * 32 + threadIdx.x % 32];
    for (int distance = 16; distance > 0; distance /= 2) {
        s += __shfl_xor_sync(~0u, s, distance);
    }
    return s / sqrtf(32.0f);
}
extern "C" __global__ void attend(const float *q, const float *k, const float *v, float *o, int n) {
    int query = blockIdx.x * 8 + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (query >= n) {
        return;
    }
    float q_part = q[query * 32 + lane];
    float most = -1e30f, sum = 0.0f, out = 0.0f;
    for (int key = 0; key < n; ++key) {
        float s = score(q_part, k, key);
        float larger = fmaxf(most, s);
        float factor = expf(most - larger), p = expf(s - larger);
        sum = sum * factor + p;
        out = out * factor + p * v[key * 32 + lane];
        most = larger;
    }
    o[query * 32 + lane] = out / sum;
}"#;

    #[test]
    fn one_pass_passes_and_its_mistakes_are_told_apart() {
        kernels::expect(
            one_pass,
            RIGHT,
            &[
                ("out = out * factor + p", "out = out + p", "follow one query by hand"),
                ("sum = sum * factor + p", "sum = sum + p", "follow one query by hand"),
                ("float larger = fmaxf(most, s)", "float larger = 0.0f", "exp"),
                ("most = -1e30f", "most = 0.0f", "what does your maximum begin with"),
                ("/ sqrtf(32.0f)", "", "it should be"),
                // Cheats: a value in place of the mean, NaN, the neighbour's query.
                ("= out / sum", "= v[query * 32 + lane]", "it should be"),
                ("= out / sum", "= __int_as_float(0x7fc00000)", "it should be"),
                ("= q[query * 32 + lane]", "= q[(query + 1) % n * 32 + lane]", "it should be"),
                // An input changed; the scores kept in local memory, and in shared memory that short texts alone fit into.
                ("= out / sum;", "= out / sum; ((float *)q)[query * 32 + lane] = 0.0f;", "`q` is another one"),
                (
                    "float s = score(q_part, k, key);",
                    "volatile float kept[512]; kept[key] = score(q_part, k, key); float s = kept[key];",
                    "access local memory",
                ),
                (
                    "float s = score(q_part, k, key);",
                    "__shared__ float kept[8][64]; kept[threadIdx.x / 32][key] = score(q_part, k, key); float s = kept[threadIdx.x / 32][key];",
                    "",
                ),
            ],
        );
        // One warp has all queries.
        let one = RIGHT.replace(
            "int query = blockIdx.x * 8 + threadIdx.x / 32;",
            "if (blockIdx.x + threadIdx.x / 32 > 0) { return; }\n    for (int query = 0; query < n; ++query) {",
        );
        kernels::expect_whole(one_pass, &[(&format!("{one}}}"), "the work is not shared out")]);
        // Two passes are right, and read k twice.
        let two = RIGHT.replace(
            "    for (int key = 0; key < n; ++key) {\n        float s",
            "    for (int key = 0; key < n; ++key) {\n        most = fmaxf(most, score(q_part, k, key));\n    }\n\
         \x20   for (int key = 0; key < n; ++key) {\n        float s",
        );
        let text = one_pass(&two).text();
        assert!(text.contains("right, but") && text.contains("which loop reads a key again"), "{text}");
        let text = one_pass(&RIGHT.replace("if (query >= n) {\n        return;\n    }\n", "")).text();
        assert!(text.contains("out of bounds") && text.contains("a lane one number"), "{text}");
    }

    const TILES: &str = r#"extern "C" __global__ void attend(const float *q, const float *k, const float *v, float *o, int queries, int keys) {
    __shared__ float k_tile[32][32], v_tile[32][32];
    int query = blockIdx.x * 64 + threadIdx.x;
    float x[32], out[32], most = __int_as_float(0xff800000), sum = 0.0f;
    for (int d = 0; d < 32; ++d) { x[d] = query < queries ? q[query * 32 + d] / sqrtf(32.0f) : 0.0f; out[d] = 0.0f; }
    for (int first = 0; first < keys; first += 32) {
        int there = min(32, keys - first);
        __syncthreads();
        for (int i = threadIdx.x; i < there * 32; i += 64) {
            k_tile[i / 32][i % 32] = k[first * 32 + i];
            v_tile[i / 32][i % 32] = v[first * 32 + i];
        }
        __syncthreads();
        for (int y = 0; y < there; ++y) {
            float s = 0.0f;
            for (int d = 0; d < 32; ++d) { s += x[d] * k_tile[y][d]; }
            float larger = fmaxf(most, s), factor = expf(most - larger), p = expf(s - larger);
            sum = sum * factor + p;
            for (int d = 0; d < 32; ++d) { out[d] = out[d] * factor + p * v_tile[y][d]; }
            most = larger;
        }
    }
    for (int d = 0; d < 32 && query < queries; ++d) { o[query * 32 + d] = out[d] / sum; }
}"#;

    #[test]
    fn a_tile_loop_passes_and_each_mistake_is_named() {
        kernels::expect(
            tile_loop,
            TILES,
            &[
                ("sum = sum * factor + p", "sum += p", "it should be"),
                ("out[d] * factor + p", "out[d] + p", "it should be"),
                ("__int_as_float(0xff800000)", "0.0f", "what does your maximum begin with"),
                ("float larger = fmaxf(most, s)", "float larger = 0.0f", "exp"),
                ("first += 32", "first += 64", "it should be"),
                ("int there = min(32, keys - first)", "int there = 32", "nor a whole tile"),
                ("query < queries ? q", "true ? q", "nor a whole tile"),
                ("__syncthreads();\n        for (int y", "for (int y", "when may it be read"),
                ("__syncthreads();\n        for (int i", "for (int i", "when may it be read"),
                // Cheats: a constant, the first value, NaN, the neighbour's query.
                ("= out[d] / sum", "= 0.0f", "it should be"),
                ("= out[d] / sum", "= v[d]", "it should be"),
                ("= out[d] / sum", "= __int_as_float(0x7fc00000)", "it should be"),
                ("q[query * 32 + d]", "q[(query + 1) % queries * 32 + d]", "it should be"),
                ("= out[d] / sum;", "= out[d] / sum; ((float *)q)[query * 32 + d] = 0.0f;", "`q` is another one"),
            ],
        );
        // The first block has all queries.
        let first = TILES.replace(
            "int query = blockIdx.x * 64 + threadIdx.x;",
            "if (blockIdx.x > 0) { return; }\n    for (int query = threadIdx.x; query < (queries + 63) / 64 * 64; query += 64) {",
        );
        kernels::expect_whole(tile_loop, &[(&format!("{first}}}"), "the work is not shared out")]);
        // Straight from device memory: right, and fetched again by each warp.
        let plain =
            TILES.replace("k_tile[y][d]", "k[(first + y) * 32 + d]").replace("v_tile[y][d]", "v[(first + y) * 32 + d]");
        let text = tile_loop(&plain).text();
        assert!(text.contains("right, but one block") && text.contains("where must it lie"), "{text}");
        // One thread of the block for all its queries.
        let alone = r#"extern "C" __global__ void attend(const float *q, const float *k, const float *v, float *o, int queries, int keys) {
    if (threadIdx.x > 0) { return; }
    for (int query = blockIdx.x * 64; query < min(queries, (int)blockIdx.x * 64 + 64); ++query) {
        float out[32] = {}, most = -1e30f, sum = 0.0f;
        for (int key = 0; key < keys; ++key) {
            float s = 0.0f;
            for (int d = 0; d < 32; ++d) { s += q[query * 32 + d] * k[key * 32 + d] / sqrtf(32.0f); }
            float larger = fmaxf(most, s), factor = expf(most - larger), p = expf(s - larger);
            sum = sum * factor + p;
            for (int d = 0; d < 32; ++d) { out[d] = out[d] * factor + p * v[key * 32 + d]; }
            most = larger;
        }
        for (int d = 0; d < 32; ++d) { o[query * 32 + d] = out[d] / sum; }
    }
}"#;
        let text = tile_loop(alone).text();
        assert!(text.contains("right, but on average 1.0 of a warp's 32 lanes"), "{text}");
        // All scores of a query in local memory, and its softmax behind them.
        let stored = TILES
            .replace("float x[32]", "float scores[4096]; float x[32]")
            .replace("s += x[d] * k_tile[y][d]; }", "s += x[d] * k_tile[y][d]; } scores[first + y] = s;")
            .replace("= out[d] / sum", "= out[d] / sum + 0.0f * scores[(query * 7 + d) % keys]");
        let text = tile_loop(&stored).text();
        assert!(text.contains("bytes of local memory"), "{text}");
    }

    #[test]
    fn local_arrays_are_found_in_ptx() {
        assert_eq!(local_bytes("\t.local .align 16 .b8 \t__local_depot0[16384];\n\t.reg .b64 %SP;\n"), 16_384);
        assert_eq!(local_bytes("ld.local.f32 %f1, [%rd1];"), 0);
    }

    #[test]
    fn numbers_on_paper_are_worked_out() {
        for right in [296.0, 295.2] {
            assert!(queries_per_block(Some(right)).passed(), "{right}");
        }
        for right in [60.0, 59.9] {
            assert!(tensor_busy(Some((right, 256.0))).passed(), "{right}");
        }
        type Number = fn(Option<f64>) -> Verdict;
        let wrong: [(Number, Option<f64>, &str); 6] = [
            (queries_per_block, None, "no number yet"),
            (queries_per_block, Some(148.0), "two products"),
            (queries_per_block, Some(590.0), "two products"),
            (queries_per_block, Some(206.0), "an H200's"),
            (queries_per_block, Some(320.0), "fewest"),
            (queries_per_block, Some(64.0), "while a byte arrives"),
        ];
        for (check, answer, said) in wrong {
            let text = check(answer).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{answer:?}: {text}");
        }
    }

    #[test]
    fn tensor_cores_are_busy_by_both_numbers() {
        let wrong = [
            (None, "no number yet"),
            (Some((40.0, 256.0)), "share of the exponentials"),
            (Some((75.0, 256.0)), "twice as fast"),
            (Some((42.9, 256.0)), "two products"),
            (Some((0.6, 256.0)), "in percent"),
            (Some((90.0, 256.0)), "cycles of the products"),
            (Some((60.0, 128.0)), "which of them can run beside"),
            (Some((60.0, 512.0)), "is two operations"),
            (Some((60.0, 192.0)), "is over before"),
            (Some((60.0, 300.0)), "E stands beside O"),
        ];
        for (answer, said) in wrong {
            let text = tensor_busy(answer).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{answer:?}: {text}");
        }
    }
}
