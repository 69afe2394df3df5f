// idea: weights do not depend on the kernel in front: the first of them are fetched while its last blocks still run.
// changed: programmatic dependent launch; only what that kernel may have written, x, waits for its end.
// constants: as before.
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
    // The next kernel may start as soon as each block of this one has come here.
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
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
#pragma unroll
                for (int t = 0; t < TILES; ++t) {
                    scale[i][t].load(scales, step, row0 + 16 * t + lane / 4, rows, columns);
                }
            }
        }
        // Everything that the kernel in front wrote can be seen behind this line; from the second time on it waits for nothing.
        asm volatile("griddepcontrol.wait;" ::: "memory");
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            if (first + 4 * i < length) {
                vector[i].load(x, first + 4 * i + lane % 4, length);
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
    // Also where a warp has had no step: y may still be read by the kernel in front.
    asm volatile("griddepcontrol.wait;" ::: "memory");
    int row = row0 + threadIdx.x;
    if (threadIdx.x < 16 * TILES && row < rows) {
        float sum = 0.0f;
        for (int from = 0; from < WARPS; ++from) {
            sum += shared[from][threadIdx.x];
        }
        y[row] = sum;
    }
}
