// idea: two blocks, one above the other, need the same piece of b: each fetches half and the engine sends it to both.
// changed: blocks come in clusters; halves of b are multicast; a stage is free when the readers of both blocks say so.
// constants: as before, and CLUSTER blocks a cluster; GROUP counts clusters.
#include "hopper.cuh"

struct Shared {
    bf16 a[STAGES][TILE_M * TILE_K];
    bf16 b[STAGES][TILE_N / 64][TILE_K * 64];
    bf16 c[2][C_BUFFERS][64 * 64];
    u64 full[STAGES];
    u64 empty[STAGES];
};

struct Tile {
    int row, column;
};

// Bands of GROUP tile rows, walked downwards and then to the right: tiles worked on together share rows and columns.
__device__ Tile tile_of(int index, int rows, int columns) {
    int band = index / (GROUP * columns) * GROUP;
    int height = min(GROUP, rows - band);
    int within = index % (GROUP * columns);
    return {band + within % height, within / height};
}

extern "C" __global__ void __cluster_dims__(CLUSTER) __launch_bounds__(384, 1)
    matmul_bf16(const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
                const __grid_constant__ TensorMap c_map, int m, int n, int k) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared &shared = *(Shared *)memory;
    int warpgroup = threadIdx.x / 128;
    int rank = cluster_rank();
    int rows = (m + TILE_M * CLUSTER - 1) / (TILE_M * CLUSTER);
    int columns = (n + TILE_N - 1) / TILE_N;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(&shared.full[stage], 1);
            barrier_init(&shared.empty[stage], 2 * CLUSTER);
        }
        barriers_are_ready();
    }
    cluster_sync();
    u32 step = 0;
    if (warpgroup == 0) {
        give_registers<40>();
        if (threadIdx.x == 0) {
            for (int index = blockIdx.x / CLUSTER; index < rows * columns; index += gridDim.x / CLUSTER) {
                Tile tile = tile_of(index, rows, columns);
                int row0 = (tile.row * CLUSTER + rank) * TILE_M;
                int column0 = tile.column * TILE_N;
                for (int k0 = 0; k0 < k; k0 += TILE_K, ++step) {
                    u32 stage = step % STAGES;
                    // The first round finds its stages free: they count as left by a phase of parity 1.
                    wait(&shared.empty[stage], step / STAGES % 2 ^ 1);
                    arrive_and_expect(&shared.full[stage], (TILE_M + TILE_N) * TILE_K * 2);
                    tma_load(shared.a[stage], &a_map, k0, row0, &shared.full[stage]);
                    for (int panel = rank; panel < TILE_N / 64; panel += CLUSTER) {
                        tma_load_to(shared.b[stage][panel], &b_map, column0 + panel * 64, k0, &shared.full[stage],
                                    (1 << CLUSTER) - 1);
                    }
                }
            }
        }
    } else {
        take_registers<232>();
        int consumer = warpgroup - 1;
        int thread = threadIdx.x % 128;
        for (int index = blockIdx.x / CLUSTER; index < rows * columns; index += gridDim.x / CLUSTER) {
            Tile tile = tile_of(index, rows, columns);
            int row0 = (tile.row * CLUSTER + rank) * TILE_M + consumer * 64;
            int column0 = tile.column * TILE_N;
            float sum[TILE_N / 2] = {};
            for (int k0 = 0; k0 < k; k0 += TILE_K, ++step) {
                u32 stage = step % STAGES;
                wait(&shared.full[stage], step / STAGES % 2);
                wgmma_fence();
                u64 a_tile = tile_descriptor(shared.a[stage] + consumer * 64 * TILE_K, 16, 1024);
                u64 b_tile = tile_descriptor(shared.b[stage][0], TILE_K * 128, 1024);
                for (int part = 0; part < TILE_K; part += 16) {
                    // Descriptors count in 16 bytes: 16 columns of a are 32 bytes, 16 rows of b 2048.
                    wgmma_64x256x16(sum, a_tile + part / 8, b_tile + part * 8);
                }
                wgmma_commit();
                // The products of the step before are done: its stage is free, in this block and in its neighbour.
                wgmma_wait<1>();
                if (k0 > 0 && thread < CLUSTER) {
                    arrive_at(&shared.empty[(step - 1) % STAGES], thread);
                }
            }
            wgmma_wait<0>();
            if (thread < CLUSTER) {
                arrive_at(&shared.empty[(step - 1) % STAGES], thread);
            }
            // 64 columns at a time: registers to shared memory, and from there by the TMA.
#pragma unroll
            for (int panel = 0; panel < TILE_N / 64; ++panel) {
                bf16 *c_tile = shared.c[consumer][panel % C_BUFFERS];
                if (thread == 0) {
                    tma_stores_read<C_BUFFERS - 1>();
                }
                warpgroup_sync(1 + consumer);
                int row = thread / 32 * 16 + thread % 16;
#pragma unroll
                for (int piece = 0; piece < 8; piece += 2) {
                    float *s = sum + panel * 32 + piece * 4;
                    int swizzled = (piece + thread % 32 / 16) ^ (row % 8);
                    store_matrices(c_tile + row * 64 + swizzled * 8, pair(s[0], s[1]), pair(s[2], s[3]),
                                   pair(s[4], s[5]), pair(s[6], s[7]));
                }
                fence_async();
                warpgroup_sync(1 + consumer);
                if (thread == 0) {
                    tma_store(&c_map, c_tile, column0 + panel * 64, row0);
                }
            }
        }
        if (thread == 0) {
            tma_stores_read<0>();
        }
    }
    // A block stays until its neighbour sends nothing more into its shared memory.
    cluster_sync();
}
