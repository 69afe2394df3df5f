#include <cuda_bf16.h>
#include <mma.h>
using namespace nvcuda;

// Sides of a and b are multiples of 16; a warp for each 16 × 16 elements of c.
extern "C" __global__ void product(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c, int n, int k) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> a_part;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> b_part;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k0 = 0; k0 < k; k0 += 16) {
        wmma::load_matrix_sync(a_part, a + blockIdx.y * 16 * k + k0, k);
        wmma::load_matrix_sync(b_part, b + k0 * n + blockIdx.x * 16, n);
        wmma::mma_sync(sum, a_part, b_part, sum);
        // The fault: the sums so far are rounded to 8 bits after each step.
        for (int i = 0; i < sum.num_elements; ++i) sum.x[i] = __bfloat162float(__float2bfloat16(sum.x[i]));
    }
    wmma::store_matrix_sync(c + blockIdx.y * 16 * n + blockIdx.x * 16, sum, n, wmma::mem_row_major);
}
