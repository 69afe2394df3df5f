// Solutions of lesson 16: each section replaces the exercise cell of that name.

// exercise: case_one
use check::Cause;
// The lanes of a warp stand in 32 different rows: each row's sector is touched for 4 of its 32 bytes.
let cause_one = Cause::LanesApart;
let sectors_one: u64 = 32;

// exercise: case_two
// The version with few shared atomics asks for as much local memory as the hidden one; the reference for none.
let cause_two = Cause::LocalMemory;
let local_over_input: f64 = 13.4; // 109532 over 8192

// exercise: write_bins
const MY_BINS: &str = r#"extern "C" __global__ void bins(const unsigned *x, unsigned *counts, int n) {
    __shared__ unsigned block[16];
    if (threadIdx.x < 16) { block[threadIdx.x] = 0; }
    __syncthreads();
    unsigned mine[16] = {0};
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned bin = x[i] % 16;
        // Unrolled, each index is known to the compiler: the sixteen counts are sixteen registers.
#pragma unroll
        for (int b = 0; b < 16; ++b) { mine[b] += bin == b; }
    }
#pragma unroll
    for (int b = 0; b < 16; ++b) {
        unsigned sum = mine[b];
        for (int far = 16; far > 0; far /= 2) { sum += __shfl_down_sync(0xffffffffu, sum, far); }
        if (threadIdx.x % 32 == 0) { atomicAdd(&block[b], sum); }
    }
    __syncthreads();
    if (threadIdx.x < 16) { atomicAdd(&counts[threadIdx.x], block[threadIdx.x]); }
}"#;
