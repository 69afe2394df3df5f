// idea: codes and x arrive ahead of their use, x once for all warps of the block.
// changed: STAGES in shared memory, filled by cp.async; a warp takes 16 · TILES rows, and x by ldmatrix.
// constants: as before, and TILES, STAGES, BLOCKS for each multiprocessor.
#include "fragments.cuh"

constexpr int THREADS = 32 * WARPS;
// Columns of a stage: two pieces of 64.
constexpr int STEP = 128;

struct Stage {
    uint4 codes[WARPS][TILES][2][32];
    // Vectors of 256 bytes; the 16 bytes of column c lie at c ^ vector % 8, so eight vectors' are in different banks.
    uint4 x[BATCH][16];
};

__device__ void copy_16(void *to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    quantized_matmul(const u32 *fragments, const bf16 *scales, const bf16 *x, bf16 *y, int batch, int rows, int columns) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Stage *stages = (Stage *)memory;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int tile0 = blockIdx.x * WARPS * TILES;
    int row0 = tile0 * 16, tiles = (rows + 15) / 16, pieces = columns / 64;
    int steps = (columns + STEP - 1) / STEP;
    auto fetch = [&](int step) {
        if (step < steps) {
            Stage &stage = stages[step % STAGES];
#pragma unroll
            for (int t = 0; t < TILES; ++t) {
                int tile = tile0 + warp * TILES + t;
#pragma unroll
                for (int p = 0; p < 2; ++p) {
                    int piece = 2 * step + p;
                    bool there = tile < tiles && piece < pieces;
                    const uint4 *from = (const uint4 *)fragments + (there ? ((size_t)tile * pieces + piece) * 32 : 0);
                    copy_16(&stage.codes[warp][t][p][lane], from + lane, there);
                }
            }
            for (int i = threadIdx.x; i < BATCH * 16; i += THREADS) {
                int vector = i / 16, at = i % 16, column = step * STEP + at * 8;
                bool there = vector < batch && column < columns;
                copy_16(&stage.x[vector][at ^ vector % 8], x + (there ? (size_t)vector * columns + column : 0), there);
            }
        }
        copies_commit();
    };
    // The scales of a group for the rows that the lane has sums of.
    auto load_scales = [&](int column, bf16 (&to)[TILES][2]) {
        const bf16 *of_group = scales + (size_t)min(column / GROUP, columns / GROUP - 1) * rows;
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
            int row = row0 + (warp * TILES + t) * 16 + lane / 4;
            to[t][0] = of_group[min(row, rows - 1)];
            to[t][1] = of_group[min(row + 8, rows - 1)];
        }
    };
    constexpr int PARTS = GROUP < STEP ? 2 : 1;
    Sums sums[TILES] = {};
    bf16 scale[PARTS][TILES][2] = {}, coming[PARTS][TILES][2] = {};
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        fetch(stage);
    }
    if (steps > 0) {
#pragma unroll
        for (int p = 0; p < PARTS; ++p) {
            load_scales(64 * p, scale[p]);
        }
    }
    for (int step = 0; step < steps; ++step) {
#pragma unroll
        for (int p = 0; p < PARTS; ++p) {
            load_scales((step + 1) * STEP + 64 * p, coming[p]);
        }
        copies_wait<STAGES - 2>();
        // This step's stage is here for everyone, and everyone is done with the one that is filled next.
        __syncthreads();
        fetch(step + STAGES - 1);
        Stage &stage = stages[step % STAGES];
        Sums part[TILES] = {};
#pragma unroll
        for (int p = 0; p < 2; ++p) {
            u32 words[TILES][4];
#pragma unroll
            for (int t = 0; t < TILES; ++t) {
                uint4 loaded = stage.codes[warp][t][p][lane];
                words[t][0] = loaded.x, words[t][1] = loaded.y, words[t][2] = loaded.z, words[t][3] = loaded.w;
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                // Two mma's operand b for eight vectors: their 32 columns.
                u32 b[EIGHTS][4];
#pragma unroll
                for (int e = 0; e < EIGHTS; ++e) {
                    int vector = 8 * e + lane % 8, at = 8 * p + 4 * half + lane / 8;
                    load_matrices(b[e], (const bf16 *)&stage.x[vector][at ^ vector % 8]);
                }
#pragma unroll
                for (int w = 0; w < 2; ++w) {
#pragma unroll
                    for (int t = 0; t < TILES; ++t) {
                        u32 a[4];
                        unpack(words[t][2 * half + w], a);
#pragma unroll
                        for (int e = 0; e < EIGHTS; ++e) {
                            multiply(part[t][e], a, b[e][2 * w], b[e][2 * w + 1]);
                        }
                    }
                }
            }
            if (PARTS == 2 || p == 1) {
#pragma unroll
                for (int t = 0; t < TILES; ++t) {
                    add_scaled(sums[t], part[t], scale[p * PARTS / 2][t][0], scale[p * PARTS / 2][t][1]);
#pragma unroll
                    for (int e = 0; e < EIGHTS; ++e) {
                        part[t][e][0] = part[t][e][1] = part[t][e][2] = part[t][e][3] = 0.0f;
                    }
                }
            }
        }
#pragma unroll
        for (int i = 0; i < PARTS * TILES * 2; ++i) {
            scale[i / 2 / TILES][i / 2 % TILES][i % 2] = coming[i / 2 / TILES][i / 2 % TILES][i % 2];
        }
    }
#pragma unroll
    for (int t = 0; t < TILES; ++t) {
#pragma unroll
        for (int i = 0; i < 4 * EIGHTS; ++i) {
            int vector = i / 4 * 8 + lane % 4 * 2 + i % 2, row = row0 + (warp * TILES + t) * 16 + lane / 4 + i % 4 / 2 * 8;
            if (vector < batch && row < rows) {
                y[(size_t)vector * rows + row] = sums[t][i / 4][i % 4];
            }
        }
    }
}
