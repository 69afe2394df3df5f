// idea: a warpgroup multiplies at the full rate, x from shared memory and the codes from registers.
// changed: wgmma for mma, 64 rows at a time; while the products of one piece run, the next piece is unpacked.
// constants: as before; WARPS is a multiple of 4.
#include "stages.cuh"
#include "wgmma.cuh"
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
        // What the copies wrote is for the matrix units, too.
        fence_async();
        // This step's stage is here for everyone, and everyone is done with the one that is filled next.
        __syncthreads();
        fetch(stages[now == 0 ? STAGES - 1 : now - 1], step + STAGES - 1);
        Stage &stage = stages[now];
        now = now == STAGES - 1 ? 0 : now + 1;
        Sums part[TILES];
        u32 a[2][TILES][4][4];
#pragma unroll
        for (int p = 0; p < 2; ++p) {
#pragma unroll
            for (int t = 0; t < TILES; ++t) {
                uint4 loaded = stage.codes[warp][t][p][lane];
                unpack(loaded.x, a[p][t][0]);
                unpack(loaded.y, a[p][t][1]);
                unpack(loaded.z, a[p][t][2]);
                unpack(loaded.w, a[p][t][3]);
            }
            wgmma_fence();
            u64 panel = tile_descriptor(stage.x[p], 16, 1024);
#pragma unroll
            for (int w = 0; w < 4; ++w) {
#pragma unroll
                for (int t = 0; t < TILES; ++t) {
                    // Descriptors count in 16 bytes: 16 columns are 32 bytes.
                    start(part[t], a[p][t][w], panel + 2 * w, PARTS == 1 ? p + w : w);
                }
            }
            wgmma_commit();
            if (PARTS == 2 || p == 1) {
                wgmma_wait<0>();
#pragma unroll
                for (int t = 0; t < TILES; ++t) {
                    arrived(part[t]);
                    add_scaled(sums[t], part[t], own.scale[p * PARTS / 2][t][0], own.scale[p * PARTS / 2][t][1]);
                }
            }
        }
        own = coming;
    }
    copies_wait<0>();
    __syncthreads();
    finish(sums, (float *)memory, y, row0, batch, rows);
}
