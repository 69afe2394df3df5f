// idea: a block of 8 warps shares a large tile, and each warp uses each fragment that it loads for 4 products instead of one.
// changed: TILE_M × TILE_N of c a block, WARP_M × WARP_N a warp; rows in shared memory are 8 numbers longer (banks).
// constants: TILE_M, TILE_N, TILE_K, WARP_M, WARP_N from the launch; (TILE_M/WARP_M) × (TILE_N/WARP_N) = 8 warps.
#include <cuda_bf16.h>
#include <mma.h>

using namespace nvcuda;
typedef __nv_bfloat16 bf16;

extern "C" __global__ void matmul_bf16(const bf16 *a, const bf16 *b, bf16 *c, int m, int n, int k) {
    // Eight rows of 16 bytes then start in different banks; without the 8, in the same.
    __shared__ __align__(32) bf16 a_tile[TILE_M][TILE_K + 8];
    __shared__ __align__(32) bf16 b_tile[TILE_K][TILE_N + 8];
    __shared__ __align__(32) float c_tile[8][16][16];
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
    for (int k0 = 0; k0 < k; k0 += TILE_K) {
        // Beyond the matrix stand zeros, which add nothing.
        for (int i = threadIdx.x; i < TILE_M * TILE_K; i += 256) {
            int y = i / TILE_K;
            int x = i % TILE_K;
            a_tile[y][x] = row0 + y < m && k0 + x < k ? a[(size_t)(row0 + y) * k + k0 + x] : bf16(0.0f);
        }
        for (int i = threadIdx.x; i < TILE_K * TILE_N; i += 256) {
            int y = i / TILE_N;
            int x = i % TILE_N;
            b_tile[y][x] = k0 + y < k && column0 + x < n ? b[(size_t)(k0 + y) * n + column0 + x] : bf16(0.0f);
        }
        __syncthreads();
        for (int part = 0; part < TILE_K; part += 16) {
            for (int x = 0; x < WARP_N / 16; ++x) {
                wmma::load_matrix_sync(b_part[x], &b_tile[part][warp_column + x * 16], TILE_N + 8);
            }
            for (int y = 0; y < WARP_M / 16; ++y) {
                wmma::load_matrix_sync(a_part, &a_tile[warp_row + y * 16][part], TILE_K + 8);
                for (int x = 0; x < WARP_N / 16; ++x) {
                    wmma::mma_sync(sum[y][x], a_part, b_part[x], sum[y][x]);
                }
            }
        }
        __syncthreads();
    }
    // Which thread holds which sum is the hardware's affair: through shared memory they get their places. Unrolled, as
    // registers have no run-time index.
#pragma unroll
    for (int y = 0; y < WARP_M / 16; ++y) {
#pragma unroll
        for (int x = 0; x < WARP_N / 16; ++x) {
            wmma::store_matrix_sync(&c_tile[warp][0][0], sum[y][x], 16, wmma::mem_row_major);
            __syncwarp();
            for (int i = threadIdx.x % 32; i < 16 * 16; i += 32) {
                int row = row0 + warp_row + y * 16 + i / 16;
                int column = column0 + warp_column + x * 16 + i % 16;
                if (row < m && column < n) {
                    c[(size_t)row * n + column] = c_tile[warp][i / 16][i % 16];
                }
            }
            __syncwarp();
        }
    }
}
