// Solutions of lesson 16: each section replaces the exercise cell of that name.

// exercise: case_one
use check::Cause;
// The lanes of a warp stand in 32 different rows: each row's sector is fetched for 4 of its 32 bytes.
let cause_one = Cause::LanesApart;
let sectors_one: u64 = 32;

// exercise: fix_scale
const SCALE_FIXED: &str = r#"extern "C" __global__ void scale_rows(const float *x, const float *factor, float *y, int n) {
    // threadIdx.x is the lane: it runs along the row.
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n && column < n) { y[row * n + column] = factor[row] * x[row * n + column]; }
}"#;

// exercise: case_two
// Line 8 adds 1024 numbers with one lane, and 1023 threads wait.
let cause_two = Cause::OneThreadWorks;
let lanes_two: u64 = 1;

// exercise: fix_sums
const SUMS_FIXED: &str = r#"extern "C" __global__ void block_sums(const float *x, float *sums, int n) {
    __shared__ float tile[1024];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int half = 512; half > 0; half /= 2) {
        if (threadIdx.x < half) { tile[threadIdx.x] += tile[threadIdx.x + half]; }
        // Outside of the `if`: all threads of the block come here.
        __syncthreads();
    }
    if (threadIdx.x == 0) { sums[blockIdx.x] = tile[0]; }
}"#;
