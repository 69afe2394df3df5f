// idea: codes are whole numbers, and the tensor cores multiply these as they are: hardly anything is left to unpack.
// changed: x becomes whole numbers of 8 bits, three for each; a warp's codes come DEPTH turns before they are multiplied.
// constants: BITS, GROUP; WARPS, DEPTH, TILES as before, and BLOCKS on a multiprocessor.
#include "whole_numbers.cuh"

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    quantized_gemv(const u32 *codes, const bf16 *scales, const bf16 *x, bf16 *y, int rows, int columns) {
    __shared__ Slice slice;
    int row0 = blockIdx.x * 16 * TILES, warp = threadIdx.x / 32;
    int steps = (columns + STEP - 1) / STEP;
    float sums[2 * TILES] = {};
    Codes ahead[DEPTH];
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) {
        if (warp + d * WARPS < steps) {
            ahead[d].load(codes, scales, warp + d * WARPS, row0, rows, columns);
        }
    }
    for (int begin = 0; begin < steps; begin += SLICE) {
        int end = min(begin + SLICE, steps);
        if (begin > 0) {
            // Everyone is done with the slice before.
            __syncthreads();
        }
        for (int step = begin + warp; step < end; step += WARPS) {
            slice.fill(step - begin, x, step, columns);
        }
        __syncthreads();
        for (int step = begin + warp; step < end; step += DEPTH * WARPS) {
#pragma unroll
            for (int d = 0; d < DEPTH; ++d) {
                int now = step + d * WARPS, next = now + DEPTH * WARPS;
                if (now < end) {
                    ahead[d].multiply(slice, now - begin, sums);
                    if (next < steps) {
                        ahead[d].load(codes, scales, next, row0, rows, columns);
                    }
                }
            }
        }
    }
    finish(sums, y, row0, rows);
}
