// idea: the tensor cores multiply: of a code, threads only make a bf16. And many short pieces of rows are in flight.
// changed: a block takes 16 rows; its warps take turns along them, with DEPTH steps of loads at once, and add up at the end.
// constants: as before (without ROWS), and WARPS, DEPTH.
#include "tensor.cuh"

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    quantized_gemv(const u32 *codes, const bf16 *scales, const bf16 *x, bf16 *y, int rows, int columns) {
    __shared__ float shared[WARPS][16];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row = blockIdx.x * 16 + lane / 4;
    // In units of 16 bytes. Beyond the last row the last one is read again, and its result dropped.
    int length = columns / CODES_16;
    const uint4 *upper = (const uint4 *)codes + (size_t)min(row, rows - 1) * length;
    const uint4 *lower = (const uint4 *)codes + (size_t)min(row + 8, rows - 1) * length;
    float sums[2] = {};
    for (int first = warp * DEPTH * 4; first < length; first += WARPS * DEPTH * 4) {
        uint4 words[DEPTH][2] = {};
        Vector vector[DEPTH];
        Scales scale[DEPTH];
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            int at = first + 4 * i + lane % 4;
            if (at < length) {
                words[i][0] = load_once(upper + at);
                words[i][1] = load_once(lower + at);
            }
            if (first + 4 * i < length) {
                vector[i].load(x, at, length);
                scale[i].load(scales, first / 4 + i, row, rows, columns);
            }
        }
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            if (first + 4 * i < length) {
                multiply_step(words[i][0], words[i][1], vector[i], scale[i], sums);
            }
        }
    }
    if (lane % 4 == 0) {
        shared[warp][lane / 4] = sums[0];
        shared[warp][lane / 4 + 8] = sums[1];
    }
    __syncthreads();
    row = blockIdx.x * 16 + threadIdx.x;
    if (threadIdx.x < 16 && row < rows) {
        float sum = 0.0f;
        for (int from = 0; from < WARPS; ++from) {
            sum += shared[from][threadIdx.x];
        }
        y[row] = sum;
    }
}
