// idea: Hopper's warpgroup product: 128 threads start a 64 × 256 × 16 product that reads its tiles in shared memory.
// changed: wgmma instead of ldmatrix and mma.sync; the swizzle stays, as it is the one that the matrix units know.
// constants: TILE_M, TILE_N, TILE_K, STAGES from the launch. A block is two warpgroups, each with 64 rows of the tile.
#include "ampere.cuh"
#include "hopper.cuh"

struct Shared {
    bf16 a[STAGES][TILE_M * TILE_K];
    bf16 b[STAGES][TILE_N / 64][TILE_K * 64];
};

// Where 8 numbers of a tile lie: rows of 64 numbers, their eight pieces in an order that depends on the row.
__device__ int swizzled(int row, int piece) {
    return row * 64 + (piece ^ row % 8) * 8;
}

extern "C" __global__ void __launch_bounds__(256, 1)
    matmul_bf16(const bf16 *a, const bf16 *b, bf16 *c, int m, int n, int k) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared &shared = *(Shared *)memory;
    int warpgroup = threadIdx.x / 128;
    int thread = threadIdx.x % 128;
    int row0 = blockIdx.y * TILE_M;
    int column0 = blockIdx.x * TILE_N;
    // The block copies 32 rows of a at once, 16 bytes per thread, and 2048 / TILE_N rows of b.
    int a_row = threadIdx.x / 8;
    int a_piece = threadIdx.x % 8;
    int b_row = threadIdx.x / (TILE_N / 8);
    int b_piece = threadIdx.x % (TILE_N / 8);
    const bf16 *a_from = a + (size_t)(row0 + a_row) * k + a_piece * 8;
    const bf16 *b_from = b + (size_t)b_row * n + column0 + b_piece * 8;
    auto load = [&](int step) {
        int stage = step % STAGES;
        int k0 = step * TILE_K;
        if (k0 < k) {
            copy_8<TILE_M, 32, 64>(shared.a[stage] + swizzled(a_row, a_piece), a_from + k0, k, m - row0 - a_row,
                                   k - k0 - a_piece * 8);
            copy_8<TILE_K, 2048 / TILE_N, 64>(shared.b[stage][b_piece / 8] + swizzled(b_row, b_piece % 8),
                                              b_from + (size_t)k0 * n, n, k - k0 - b_row, n - column0 - b_piece * 8);
        }
        copies_commit();
    };
    for (int step = 0; step < STAGES - 1; ++step) {
        load(step);
    }
    float sum[TILE_N / 2] = {};
    for (int step = 0; step * TILE_K < k; ++step) {
        int stage = step % STAGES;
        copies_wait<STAGES - 2>();
        // Each thread's copies, made visible to the matrix units, then everyone's.
        fence_async();
        __syncthreads();
        wgmma_fence();
        u64 a_tile = tile_descriptor(shared.a[stage] + warpgroup * 64 * TILE_K, 16, 1024);
        u64 b_tile = tile_descriptor(shared.b[stage][0], TILE_K * 128, 1024);
        for (int part = 0; part < TILE_K; part += 16) {
            // Descriptors count in 16 bytes: 16 columns of a are 32 bytes, 16 rows of b 2048.
            wgmma_64x256x16(sum, a_tile + part / 8, b_tile + part * 8);
        }
        wgmma_commit();
        // While the products run: everyone has passed the barrier, so the stage of the step before is free.
        load(step + STAGES - 1);
        wgmma_wait<0>();
    }
    // A thread holds pairs of columns, of two rows eight apart.
    for (int pair_of = 0; pair_of < TILE_N / 4; ++pair_of) {
        int row = row0 + warpgroup * 64 + thread / 32 * 16 + thread % 32 / 4 + pair_of % 2 * 8;
        int column = column0 + pair_of / 2 * 8 + thread % 4 * 2;
        store_2(c, row, column, m, n, sum[pair_of * 2], sum[pair_of * 2 + 1]);
    }
}
