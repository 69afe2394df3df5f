// idea: up to 64 vectors at once: mma has 8 columns of its other side, and a code that was unpacked serves all vectors.
// changed: the first rung. A warp takes 16 rows of codes, packed so that 16 bytes per lane are four operands of mma.
// constants: BATCH vectors, filled up with zeros, GROUP columns that share a scale, WARPS of a block.
#include "fragments.cuh"

// y (batch × rows) = x (batch × columns) · weightsᵀ
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    quantized_matmul(const u32 *fragments, const bf16 *scales, const bf16 *x, bf16 *y, int batch, int rows, int columns) {
    int lane = threadIdx.x % 32;
    int row0 = (blockIdx.x * WARPS + threadIdx.x / 32) * 16;
    if (row0 >= rows) {
        return;
    }
    int row = row0 + lane / 4, column = lane % 4 * 2;
    const uint4 *own = (const uint4 *)fragments + (size_t)row0 / 16 * (columns / 64) * 32 + lane;
    Sums sums = {}, part = {};
    for (int k0 = 0; k0 < columns; k0 += 64) {
        uint4 loaded = own[k0 / 64 * 32];
        u32 words[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            u32 a[4];
            unpack(words[w], a);
#pragma unroll
            for (int e = 0; e < EIGHTS; ++e) {
                // Vector lane / 4 of the eight; two neighbours of it, and two eight further on.
                int vector = 8 * e + lane / 4;
                const u32 *pairs = (const u32 *)(x + (size_t)vector * columns + k0 + 16 * w + column);
                bool there = vector < batch;
                multiply(part[e], a, there ? pairs[0] : 0, there ? pairs[4] : 0);
            }
        }
        if ((k0 + 64) % GROUP == 0) {
            const bf16 *of_group = scales + (size_t)(k0 / GROUP) * rows;
            add_scaled(sums, part, of_group[min(row, rows - 1)], of_group[min(row + 8, rows - 1)]);
#pragma unroll
            for (int e = 0; e < EIGHTS; ++e) {
                part[e][0] = part[e][1] = part[e][2] = part[e][3] = 0.0f;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 4 * EIGHTS; ++i) {
        int vector = i / 4 * 8 + column + i % 2, of = row + i % 4 / 2 * 8;
        if (vector < batch && of < rows) {
            y[(size_t)vector * rows + of] = sums[i / 4][i % 4];
        }
    }
}
