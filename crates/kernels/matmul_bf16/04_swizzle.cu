// idea: the order of 16-byte pieces in a row of shared memory depends on the row, so that no two fall into one bank.
// changed: swizzle instead of padding; ldmatrix and mma.sync by hand, whose layout is known: sums go straight to c.
// constants: as before; TILE_K is 64, so that a row of the tile is 128 bytes, all banks once.
#include "ampere.cuh"

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
    int row0 = blockIdx.y * TILE_M;
    int column0 = blockIdx.x * TILE_N;
    int lane = threadIdx.x % 32;
    int warp = threadIdx.x / 32;
    int warp_row = warp / (TILE_N / WARP_N) * WARP_M;
    int warp_column = warp % (TILE_N / WARP_N) * WARP_N;
    float sum[WARP_M / 16][WARP_N / 8][4] = {};
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
    for (int step = 0; step * TILE_K < k; ++step) {
        int stage = step % STAGES;
        copies_wait<STAGES - 2>();
        // This step's tiles are here, and everyone is done with the stage that is filled next.
        __syncthreads();
        load(step + STAGES - 1);
#pragma unroll
        for (int part = 0; part < TILE_K; part += 16) {
            u32 a_part[WARP_M / 16][4];
            for (int y = 0; y < WARP_M / 16; ++y) {
                int row = warp_row + y * 16 + lane % 16;
                load_matrices(a_part[y], shared.a[stage] + swizzled(row, part / 8 + lane / 16));
            }
            for (int x = 0; x < WARP_N / 16; ++x) {
                // b's rows lie along n, the instruction wants columns: ldmatrix transposes on the way.
                u32 b_part[4];
                int piece = warp_column / 8 + x * 2 + lane / 16;
                load_transposed(b_part, shared.b[stage][piece / 8] + swizzled(part + lane % 16, piece % 8));
                for (int y = 0; y < WARP_M / 16; ++y) {
                    multiply(sum[y][x * 2], a_part[y], b_part[0], b_part[1]);
                    multiply(sum[y][x * 2 + 1], a_part[y], b_part[2], b_part[3]);
                }
            }
        }
    }
    // A thread holds pairs of columns, of two rows eight apart.
    for (int y = 0; y < WARP_M / 16; ++y) {
        for (int x = 0; x < WARP_N / 8; ++x) {
            int row = row0 + warp_row + y * 16 + lane / 4;
            int column = column0 + warp_column + x * 8 + lane % 4 * 2;
            store_2(c, row, column, m, n, sum[y][x][0], sum[y][x][1]);
            store_2(c, row + 8, column, m, n, sum[y][x][2], sum[y][x][3]);
        }
    }
}
