// idea: tensor cores: the 32 threads of a warp together multiply 16 × 16 × 16 in one instruction (WMMA).
// changed: nothing, the first rung: a warp computes one 16 × 16 tile of c, step by step along k.
// constants: none: 16 × 16 × 16 is what the instruction takes. c is rounded to bf16 once; the sums are fp32.
#include <cuda_bf16.h>
#include <mma.h>

using namespace nvcuda;
typedef __nv_bfloat16 bf16;

extern "C" __global__ void matmul_bf16(const bf16 *a, const bf16 *b, bf16 *c, int m, int n, int k) {
    __shared__ __align__(32) bf16 a_tile[16][16];
    __shared__ __align__(32) bf16 b_tile[16][16];
    __shared__ __align__(32) float c_tile[16][16];
    int row0 = blockIdx.y * 16;
    int column0 = blockIdx.x * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, bf16, wmma::row_major> a_part;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::row_major> b_part;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k0 = 0; k0 < k; k0 += 16) {
        // Beyond the matrix stand zeros, which add nothing.
        for (int i = threadIdx.x; i < 16 * 16; i += 32) {
            int y = i / 16;
            int x = i % 16;
            a_tile[y][x] = row0 + y < m && k0 + x < k ? a[(size_t)(row0 + y) * k + k0 + x] : bf16(0.0f);
            b_tile[y][x] = k0 + y < k && column0 + x < n ? b[(size_t)(k0 + y) * n + column0 + x] : bf16(0.0f);
        }
        __syncthreads();
        wmma::load_matrix_sync(a_part, &a_tile[0][0], 16);
        wmma::load_matrix_sync(b_part, &b_tile[0][0], 16);
        wmma::mma_sync(sum, a_part, b_part, sum);
        __syncthreads();
    }
    // Which thread holds which sum is the hardware's affair: through shared memory they get their places.
    wmma::store_matrix_sync(&c_tile[0][0], sum, 16, wmma::mem_row_major);
    __syncthreads();
    for (int i = threadIdx.x; i < 16 * 16; i += 32) {
        int row = row0 + i / 16;
        int column = column0 + i % 16;
        if (row < m && column < n) {
            c[(size_t)row * n + column] = c_tile[i / 16][i % 16];
        }
    }
}
