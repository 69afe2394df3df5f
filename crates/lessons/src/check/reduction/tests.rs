//! Right kernels pass, and each wrong one is told what is wrong with it.

use super::*;
use crate::check::kernels::expect;

const LARGEST: &str = "extern \"C\" __global__ void largest(const float *a, float *partial, int n) {
    __shared__ float most[256];
    int thread = threadIdx.x;
    most[thread] = a[min(blockIdx.x * 256 + thread, n - 1)];
    __syncthreads(); // all are there
    for (int distance = 128; distance > 0; distance /= 2) {
        if (thread < distance) {
            most[thread] = fmaxf(most[thread], most[thread + distance]);
        }
        __syncthreads(); // all are done
    }
    if (thread == 0) { partial[blockIdx.x] = most[0]; }
}";

const ROW_SUMS: &str = "extern \"C\" __global__ void row_sums(const float *a, float *sums, int rows) {
    __shared__ float tile[32][33];
    int lane = threadIdx.x, first = blockIdx.x * 32;
    for (int row = 0; row < 32 && first + row < rows; ++row) {
        tile[row][lane] = a[(first + row) * 32 + lane];
    }
    __syncthreads();
    if (first + lane < rows) {
        float sum = 0.0f;
        for (int column = 0; column < 32; ++column) { sum += tile[lane][column]; }
        sums[first + lane] = sum;
    }
}";

const DOT: &str = "extern \"C\" __global__ void dot(const float *a, const float *b, float *result, int n) {
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) { sum += a[i] * b[i]; }
    for (int distance = 16; distance > 0; distance /= 2) { sum += __shfl_down_sync(0xffffffff, sum, distance); }
    if (threadIdx.x % 32 == 0) { atomicAdd(result, sum); }
}";

#[test]
fn largest_knows_its_mistakes() {
    expect(
        largest,
        LARGEST,
        &[
            ("__syncthreads(); // all are there", "", "it must have done so by then"),
            ("__syncthreads(); // all are done", "", "done by all threads before"),
            ("most[thread] = fmaxf(most[thread], most[thread + distance]);", "__syncthreads();", "no `if` keeps"),
            ("distance = 128", "distance = 64", "which two does it compare"),
            ("fmaxf", "fminf", "block 0 gives"),
            ("min(blockIdx.x * 256 + thread, n - 1)", "blockIdx.x * 256 + thread", "which element is its own"),
            ("if (thread == 0)", "if (thread == 256)", "was never written"),
            ("__shared__ float", "__shared__ flaot", "the compiler"),
            ("void largest", "void biggest", "no kernel `largest`"),
            ("partial[blockIdx.x]", "partial[0]", "two threads meet"),
        ],
    );
    // A barrier more than needed is no mistake.
    let careful = LARGEST.replace("if (thread == 0)", "__syncthreads(); if (thread == 0)");
    assert!(largest(&careful).passed(), "{}", largest(&careful).text());
}

#[test]
fn row_sums_counts_conflicts() {
    expect(
        row_sums,
        ROW_SUMS,
        &[
            ("[32][33]", "[32][32]", "bank conflicts of loads"),
            ("[32][33]", "[32][34]", "bank conflicts of loads"),
            ("[32][33]", "[32][31]", "a barrier does not mend that"),
            ("tile[row][lane]", "tile[lane][row]", "its first index is the row"),
            ("tile[lane][column]", "a[(first + lane) * 32 + column]", "the matrix has"),
            ("sums[first + lane] = sum", "sums[lane] = sum", "two threads meet"),
            ("&& first + row < rows", "", "which element is its own"),
            ("__syncthreads();", "if (lane < 16) { __syncthreads(); }", "no `if` keeps"),
        ],
    );
    // Turned over, the conflict is in the store.
    let over = ROW_SUMS
        .replace("[32][33]", "[32][32]")
        .replace("tile[row][lane]", "tile[lane][row]")
        .replace("tile[lane][column]", "tile[column][lane]");
    assert!(row_sums(&over).text().contains("put the store back"), "{}", row_sums(&over).text());
    // Turning the columns is as good as a longer row.
    let turned =
        ROW_SUMS.replace("[32][33]", "[32][32]").replace("tile[lane][column]", "tile[lane][(column + lane) % 32]");
    assert!(row_sums(&turned).passed(), "{}", row_sums(&turned).text());
}

#[test]
fn dot_counts_atomics_and_barriers() {
    let tree = "__shared__ float sums[256]; int t = threadIdx.x; sums[t] = sum; __syncthreads();
    for (int d = 128; d > 0; d /= 2) { if (t < d) { sums[t] += sums[t + d]; } __syncthreads(); }
    if (t == 0) { atomicAdd(result, sums[0]); } return;";
    expect(
        dot,
        DOT,
        &[
            ("i += gridDim.x * blockDim.x", "i += n", "first 2048 products"),
            ("if (threadIdx.x % 32 == 0) { atomicAdd(result, sum); }", "atomicAdd(result, sum);", "Lane 0 alone"),
            ("distance = 16", "distance = 8", "is every element taken once"),
            ("sum += a[i] * b[i]", "atomicAdd(result, a[i] * b[i])", "lane 0 alone call atomicAdd"),
            ("atomicAdd(result, sum)", "*result += sum", "atomicAdd makes them take turns"),
            ("for (int distance", &format!("{tree} for (int distance"), "within a warp shuffles need no barrier"),
            (
                "float sum = 0.0f;",
                "float sum = 0.0f; if (blockIdx.x * blockDim.x + threadIdx.x >= n) return;",
                "every lane of the mask",
            ),
            ("i < n;", "i <= n;", "which element is its own"),
            ("for (int distance = 16", "if (threadIdx.x % 32 < 16) for (int distance = 16", "every lane of the mask"),
        ],
    );
    // One atomic a block is better still.
    let block = DOT.replace(
        "if (threadIdx.x % 32 == 0) { atomicAdd(result, sum); }",
        "__shared__ float sums[8];
        if (threadIdx.x % 32 == 0) { sums[threadIdx.x / 32] = sum; }
        __syncthreads();
        if (threadIdx.x == 0) { for (int w = 1; w < 8; ++w) { sum += sums[w]; } atomicAdd(result, sum); }",
    );
    assert!(dot(&block).passed(), "{}", dot(&block).text());
}
