// idea: weights do not depend on the kernel in front: the first of them are fetched while its last blocks still run.
// changed: programmatic dependent launch; only what that kernel may have written, x, waits for its end.
// constants: as before.
#include "whole_numbers.cuh"

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    quantized_gemv(const u32 *codes, const bf16 *scales, const bf16 *x, bf16 *y, int rows, int columns) {
    __shared__ Slice slice;
    int row0 = blockIdx.x * 16 * TILES, warp = threadIdx.x / 32;
    int steps = (columns + STEP - 1) / STEP;
    float sums[2 * TILES] = {};
    Codes ahead[DEPTH];
    // The next kernel may start as soon as each block of this one has come here.
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) {
        if (warp + d * WARPS < steps) {
            ahead[d].load(codes, scales, warp + d * WARPS, row0, rows, columns);
        }
    }
    // Everything that the kernel in front wrote can be seen behind this line, and nobody reads y any more.
    asm volatile("griddepcontrol.wait;" ::: "memory");
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
