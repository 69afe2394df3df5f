//! Right answers and kernels pass, and each wrong one is told what is wrong with it.

use super::*;

const SLOW_SCALE: &str =
    "extern \"C\" __global__ void scale_rows(const float *x, const float *factor, float *y, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    int column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < n && column < n) { y[row * n + column] = factor[row] * x[row * n + column]; }
}";

const SLOW_SUMS: &str = "extern \"C\" __global__ void block_sums(const float *x, float *sums, int n) {
    __shared__ float tile[1024];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int k = 0; k < 1024; ++k) { sum += tile[k]; }
        sums[blockIdx.x] = sum;
    }
}";

fn red(verdict: Verdict, said: &str) {
    let text = verdict.text();
    assert!(text.starts_with("NOT YET") && text.contains(said), "`{said}` is not said: {text}");
}

#[test]
fn the_first_case_has_one_answer() {
    assert!(case_one(SLOW_SCALE, Cause::LanesApart, 32).passed());
    red(case_one(SLOW_SCALE, Cause::LanesApart, 4), "no load of `x` touches 4 sectors");
    // The mean of the table, over loads of `x` and of `factor`.
    red(case_one(SLOW_SCALE, Cause::LanesApart, 18), "those of `factor` too");
    red(case_one(SLOW_SCALE, Cause::Unknown, 32), "no cause is named");
    red(case_one(SLOW_SCALE, Cause::BankConflicts, 32), "it has 0 bank conflicts");
    red(case_one(SLOW_SCALE, Cause::Divergence, 32), "part at 0 branches");
    red(case_one(SLOW_SCALE, Cause::OneThreadWorks, 32), "32.0 of 32 lanes");
    red(case_one(SLOW_SCALE, Cause::TooFewBlocks, 32), "the same blocks");
    red(case_one(SLOW_SCALE, Cause::Spills, 32), "0 requests to local memory");
}

#[test]
fn the_second_case_has_one_answer() {
    assert!(case_two(SLOW_SUMS, Cause::OneThreadWorks, 1).passed());
    red(case_two(SLOW_SUMS, Cause::OneThreadWorks, 32), "32 lanes are not what the dearest line has");
    red(case_two(SLOW_SUMS, Cause::LanesApart, 1), "touch 4.0 sectors a request");
    red(case_two(SLOW_SUMS, Cause::BankConflicts, 1), "it has 0 bank conflicts");
    red(case_two(SLOW_SUMS, Cause::Divergence, 1), "the other way is empty");
}

#[test]
fn rows_are_scaled_by_neighbours() {
    let right = FAST_SCALE;
    assert!(mend_scale(right).passed(), "{}", mend_scale(right).text());
    red(mend_scale(SLOW_SCALE), "up to 32 sectors");
    red(mend_scale(&right.replace("factor[row]", "factor[column]")), "element 1 of the result");
    red(mend_scale(&right.replace("row < n && ", "")), "past the end");
    red(mend_scale(&right.replace("if (row < n && column < n)", "if (row + 1 < n && column < n)")), "never written");
    red(mend_scale(&right.replace("scale_rows", "scale_row")), "no kernel `scale_rows`");
    red(
        mend_scale(&right.replace(", int n)", ")").replace("if (", "int n = 64; if (")),
        "keep its name and its parameters",
    );
}

#[test]
fn block_sums_are_shared_work() {
    let right = FAST_SUMS;
    assert!(mend_sums(right).passed(), "{}", mend_sums(right).text());
    let by_warps = format!(
        "{}{}",
        SLOW_SUMS.split("__syncthreads").next().unwrap(),
        "float sum = tile[threadIdx.x];
    for (int far = 16; far > 0; far /= 2) { sum += __shfl_down_sync(0xffffffffu, sum, far); }
    __syncthreads();
    if (threadIdx.x % 32 == 0) { tile[threadIdx.x / 32] = sum; }
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = tile[threadIdx.x];
        for (int far = 16; far > 0; far /= 2) { sum += __shfl_down_sync(0xffffffffu, sum, far); }
        if (threadIdx.x == 0) { sums[blockIdx.x] = sum; }
    }
}"
    );
    assert!(mend_sums(&by_warps).passed(), "{}", mend_sums(&by_warps).text());
    red(mend_sums(SLOW_SUMS), "lanes are active in the average instruction");
    let (barrier, outside) = ("        __syncthreads();\n    }\n    if", "    }\n    if");
    red(mend_sums(&right.replace(barrier, outside)), "needs its own `__syncthreads()`");
    let inside = right.replace("+ half]; }\n        __syncthreads();", "+ half]; __syncthreads(); }");
    red(mend_sums(&inside), "outside of the `if`");
    red(mend_sums(&right.replace("half = 512", "half = 256")), "element 0 of the result is");
    red(mend_sums(&right.replace("i < n ? x[i] : 0.0f", "x[i]")), "does that element exist");
    let turns = format!(
        "{}{}",
        SLOW_SUMS.split("tile[threadIdx.x] =").next().unwrap().replace("float tile[1024];", "float sum;"),
        "if (threadIdx.x == 0) { sum = 0.0f; }
    __syncthreads();
    if (i < n) { atomicAdd(&sum, x[i]); }
    __syncthreads();
    if (threadIdx.x == 0) { sums[blockIdx.x] = sum; }
}"
    );
    red(mend_sums(&turns), "take turns at one address");
}
