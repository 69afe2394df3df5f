// idea: blocks share the columns of a tile, so that all multiprocessors have work and read x less often.
// changed: CLUSTER neighbouring blocks take a part of the columns each; their sums meet in shared memory, in a fixed order.
// constants: as before, and CLUSTER.
#include "stages.cuh"
#include "cluster.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) __cluster_dims__(CLUSTER, 1, 1)
    quantized_matmul(const u32 *fragments, const bf16 *scales, const bf16 *x, bf16 *y, int batch, int rows, int columns) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Stage *stages = (Stage *)memory;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = blockIdx.x % CLUSTER;
    int row0 = blockIdx.x / CLUSTER * ROWS, row = row0 + warp * TILES * 16 + lane / 4;
    int steps = (columns + STEP - 1) / STEP;
    int first = steps * rank / CLUSTER, last = steps * (rank + 1) / CLUSTER;
    Source source(fragments, x, row0 / 16 + warp * TILES, batch, rows, columns);
    auto fetch = [&](Stage &stage, int step) {
        if (step < last) {
            source.copy_codes(stage, step);
            source.copy_x(stage.x, step);
        }
        copies_commit();
    };
    Sums sums[TILES] = {};
    Scales own, coming;
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        fetch(stages[stage], first + stage);
    }
    if (first < last) {
        own.load(scales, first, row, rows, columns);
    }
    for (int step = first, now = 0; step < last; ++step) {
        coming.load(scales, step + 1, row, rows, columns);
        copies_wait<STAGES - 2>();
        // This step's stage is here for everyone, and everyone is done with the one that is filled next.
        __syncthreads();
        fetch(stages[now == 0 ? STAGES - 1 : now - 1], step + STAGES - 1);
        Stage &stage = stages[now];
        now = now == STAGES - 1 ? 0 : now + 1;
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
                    int vector = 8 * e + lane % 8, at = 4 * half + lane / 8;
                    load_matrices(b[e], (const bf16 *)&stage.x[p][vector][at ^ vector % 8]);
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
                    add_scaled(sums[t], part[t], own.scale[p * PARTS / 2][t][0], own.scale[p * PARTS / 2][t][1]);
#pragma unroll
                    for (int e = 0; e < EIGHTS; ++e) {
                        part[t][e][0] = part[t][e][1] = part[t][e][2] = part[t][e][3] = 0.0f;
                    }
                }
            }
        }
        own = coming;
    }
    copies_wait<0>();
    __syncthreads();
    finish(sums, (float *)memory, y, row0, batch, rows);
}
