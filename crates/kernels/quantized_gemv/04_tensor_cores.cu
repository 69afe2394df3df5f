// idea: the tensor cores multiply: of a code, threads only make a bf16. And many short pieces of rows are in flight.
// changed: a block takes 16 · TILES rows; its warps take turns along them, DEPTH steps at once, and add up at the end.
// constants: as before (without ROWS), and WARPS, DEPTH, TILES.
#include "tensor.cuh"

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    quantized_gemv(const u32 *codes, const bf16 *scales, const bf16 *x, bf16 *y, int rows, int columns) {
    __shared__ float shared[WARPS][16 * TILES];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row0 = blockIdx.x * 16 * TILES;
    // In units of 16 bytes. Beyond the last row the last one is read again, and its result dropped.
    int length = columns / CODES_16;
    const uint4 *own[2 * TILES];
#pragma unroll
    for (int r = 0; r < 2 * TILES; ++r) {
        own[r] = (const uint4 *)codes + (size_t)min(row0 + 8 * r + lane / 4, rows - 1) * length + lane % 4;
    }
    float sums[TILES][2] = {};
    for (int first = warp * DEPTH * 4; first < length; first += WARPS * DEPTH * 4) {
        uint4 words[DEPTH][2 * TILES];
        Vector vector[DEPTH];
        Scales scale[DEPTH][TILES];
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            int step = first / 4 + i;
            if (4 * step < length) {
                bool there = PARTS == 1 || 4 * step + lane % 4 < length;
#pragma unroll
                for (int r = 0; r < 2 * TILES; ++r) {
                    words[i][r] = there ? load_once(own[r] + 4 * step) : make_uint4(0, 0, 0, 0);
                }
                vector[i].load(x, 4 * step + lane % 4, length);
#pragma unroll
                for (int t = 0; t < TILES; ++t) {
                    scale[i][t].load(scales, step, row0 + 16 * t + lane / 4, rows, columns);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            if (first + 4 * i < length) {
                multiply_step(words[i], vector[i], scale[i], sums);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < 2 * TILES; ++r) {
        if (lane % 4 == 0) {
            shared[warp][8 * r + lane / 4] = sums[r / 2][r % 2];
        }
    }
    __syncthreads();
    int row = row0 + threadIdx.x;
    if (threadIdx.x < 16 * TILES && row < rows) {
        float sum = 0.0f;
        for (int from = 0; from < WARPS; ++from) {
            sum += shared[from][threadIdx.x];
        }
        y[row] = sum;
    }
}
