// idea: the TMA fetches whole boxes: one thread asks, no registers or addresses for the others.
// changed: a tensor map for a and for b instead of pointers; a barrier a stage counts the bytes that have come.
// constants: as before. TMA wants rows that are a multiple of 16 bytes: k and n a multiple of 8.
#include "hopper.cuh"

struct Shared {
    bf16 a[STAGES][TILE_M * TILE_K];
    bf16 b[STAGES][TILE_N / 64][TILE_K * 64];
    u64 full[STAGES];
};

extern "C" __global__ void __launch_bounds__(256, 1)
    matmul_bf16(const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
                bf16 *c, int m, int n, int k) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared &shared = *(Shared *)memory;
    int warpgroup = threadIdx.x / 128;
    int thread = threadIdx.x % 128;
    int row0 = blockIdx.y * TILE_M;
    int column0 = blockIdx.x * TILE_N;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(&shared.full[stage], 1);
        }
        barriers_are_ready();
    }
    __syncthreads();
    // What lies beyond the matrix arrives as zeros.
    auto load = [&](int step) {
        int stage = step % STAGES;
        int k0 = step * TILE_K;
        if (threadIdx.x == 0 && k0 < k) {
            arrive_and_expect(&shared.full[stage], (TILE_M + TILE_N) * TILE_K * 2);
            tma_load(shared.a[stage], &a_map, k0, row0, &shared.full[stage]);
            for (int panel = 0; panel < TILE_N / 64; ++panel) {
                tma_load(shared.b[stage][panel], &b_map, column0 + panel * 64, k0, &shared.full[stage]);
            }
        }
    };
    for (int step = 0; step < STAGES - 1; ++step) {
        load(step);
    }
    float sum[TILE_N / 2] = {};
    for (int step = 0; step * TILE_K < k; ++step) {
        int stage = step % STAGES;
        wait(&shared.full[stage], step / STAGES % 2);
        wgmma_fence();
        u64 a_tile = tile_descriptor(shared.a[stage] + warpgroup * 64 * TILE_K, 16, 1024);
        u64 b_tile = tile_descriptor(shared.b[stage][0], TILE_K * 128, 1024);
        for (int part = 0; part < TILE_K; part += 16) {
            // Descriptors count in 16 bytes: 16 columns of a are 32 bytes, 16 rows of b 2048.
            wgmma_64x256x16(sum, a_tile + part / 8, b_tile + part * 8);
        }
        wgmma_commit();
        // All products of the step before are done, so its stage can be filled again.
        wgmma_wait<1>();
        __syncthreads();
        load(step + STAGES - 1);
    }
    wgmma_wait<0>();
    // A thread holds pairs of columns, of two rows eight apart.
    for (int pair_of = 0; pair_of < TILE_N / 4; ++pair_of) {
        int row = row0 + warpgroup * 64 + thread / 32 * 16 + thread % 32 / 4 + pair_of % 2 * 8;
        int column = column0 + pair_of / 2 * 8 + thread % 4 * 2;
        if (row < m && column < n) {
            *(u32 *)&c[(size_t)row * n + column] = pair(sum[pair_of * 2], sum[pair_of * 2 + 1]);
        }
    }
}
