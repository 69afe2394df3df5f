// idea: copies of 16 bytes that do not wait (cp.async): while the tensor cores work on one stage, later ones arrive.
// changed: STAGES tiles in shared memory instead of one, filled STAGES - 1 steps ahead, not by way of registers.
// constants: as before, and STAGES. The 16 bytes need k and n to be multiples of 8; else copy_8 goes one by one.
#include "ampere.cuh"
#include <mma.h>

using namespace nvcuda;

struct Shared {
    // Eight rows of 16 bytes start in different banks; without the 8 more, in the same.
    bf16 a[STAGES][TILE_M][TILE_K + 8];
    bf16 b[STAGES][TILE_K][TILE_N + 8];
    float c[8][16][16];
};

extern "C" __global__ void matmul_bf16(const bf16 *a, const bf16 *b, bf16 *c, int m, int n, int k) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared &shared = *(Shared *)memory;
    int row0 = blockIdx.y * TILE_M;
    int column0 = blockIdx.x * TILE_N;
    int warp = threadIdx.x / 32;
    int warp_row = warp / (TILE_N / WARP_N) * WARP_M;
    int warp_column = warp % (TILE_N / WARP_N) * WARP_N;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, bf16, wmma::row_major> a_part;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::row_major> b_part[WARP_N / 16];
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[WARP_M / 16][WARP_N / 16];
    for (int y = 0; y < WARP_M / 16; ++y) {
        for (int x = 0; x < WARP_N / 16; ++x) {
            wmma::fill_fragment(sum[y][x], 0.0f);
        }
    }
    // The block copies 2048 / TILE_K rows of a at once, 16 bytes per thread, and 2048 / TILE_N rows of b.
    int a_row = threadIdx.x / (TILE_K / 8);
    int a_column = threadIdx.x % (TILE_K / 8) * 8;
    int b_row = threadIdx.x / (TILE_N / 8);
    int b_column = threadIdx.x % (TILE_N / 8) * 8;
    const bf16 *a_from = a + (size_t)(row0 + a_row) * k + a_column;
    const bf16 *b_from = b + (size_t)b_row * n + column0 + b_column;
    auto load = [&](int step) {
        int stage = step % STAGES;
        int k0 = step * TILE_K;
        if (k0 < k) {
            copy_8<TILE_M, 2048 / TILE_K, TILE_K + 8>(&shared.a[stage][a_row][a_column], a_from + k0, k,
                                                      m - row0 - a_row, k - k0 - a_column);
            copy_8<TILE_K, 2048 / TILE_N, TILE_N + 8>(&shared.b[stage][b_row][b_column], b_from + (size_t)k0 * n, n,
                                                      k - k0 - b_row, n - column0 - b_column);
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
        for (int part = 0; part < TILE_K; part += 16) {
            for (int x = 0; x < WARP_N / 16; ++x) {
                wmma::load_matrix_sync(b_part[x], &shared.b[stage][part][warp_column + x * 16], TILE_N + 8);
            }
            for (int y = 0; y < WARP_M / 16; ++y) {
                wmma::load_matrix_sync(a_part, &shared.a[stage][warp_row + y * 16][part], TILE_K + 8);
                for (int x = 0; x < WARP_N / 16; ++x) {
                    wmma::mma_sync(sum[y][x], a_part, b_part[x], sum[y][x]);
                }
            }
        }
    }
    // Which thread holds which sum is the hardware's affair: through shared memory they get their places. Unrolled, as
    // registers have no run-time index.
#pragma unroll
    for (int y = 0; y < WARP_M / 16; ++y) {
#pragma unroll
        for (int x = 0; x < WARP_N / 16; ++x) {
            wmma::store_matrix_sync(&shared.c[warp][0][0], sum[y][x], 16, wmma::mem_row_major);
            __syncwarp();
            for (int i = threadIdx.x % 32; i < 16 * 16; i += 32) {
                int row = row0 + warp_row + y * 16 + i / 16;
                int column = column0 + warp_column + x * 16 + i % 16;
                if (row < m && column < n) {
                    c[(size_t)row * n + column] = shared.c[warp][i / 16][i % 16];
                }
            }
            __syncwarp();
        }
    }
}
