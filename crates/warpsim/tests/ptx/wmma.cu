// Tensor cores through nvcuda::wmma: every type, shape and layout that the header offers, and a tiled product.
#include <mma.h>
#include <cuda_bf16.h>
using namespace nvcuda;
template <class T> struct Rows { static const bool value = false; };
template <> struct Rows<wmma::row_major> { static const bool value = true; };
// One product of a shape; a and b lie as their layouts say, c is added from `start`, each element is scaled on the way.
template <int M, int N, int K, class T, class Memory, class Sum, class A, class B>
__device__ void product(const Memory* a, const Memory* b, const Sum* start, Sum* out, wmma::layout_t way) {
    wmma::fragment<wmma::matrix_a, M, N, K, T, A> left;
    wmma::fragment<wmma::matrix_b, M, N, K, T, B> right;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> sum;
    const bool row_a = Rows<A>::value;
    const bool row_b = Rows<B>::value;
    wmma::load_matrix_sync(left, a, row_a ? K : M);
    wmma::load_matrix_sync(right, b, row_b ? N : K);
    wmma::load_matrix_sync(sum, start, way == wmma::mem_row_major ? N : M, way);
    wmma::mma_sync(sum, left, right, sum);
    for (int i = 0; i < sum.num_elements; i++) sum.x[i] = sum.x[i] * (Sum)2;
    wmma::store_matrix_sync(out, sum, way == wmma::mem_row_major ? N : M, way);
}
#define KERNEL(NAME, M, N, K, T, MEMORY, SUM, A, B, WAY) \
    extern "C" __global__ void NAME(const MEMORY* a, const MEMORY* b, const SUM* c, SUM* out) { \
        product<M, N, K, T, MEMORY, SUM, wmma::A, wmma::B>(a, b, c, out, wmma::WAY); \
    }
KERNEL(f16_rc, 16, 16, 16, half, half, float, row_major, col_major, mem_row_major)
KERNEL(f16_cr, 16, 16, 16, half, half, float, col_major, row_major, mem_col_major)
KERNEL(f16_tall, 32, 8, 16, half, half, float, row_major, row_major, mem_row_major)
KERNEL(f16_wide, 8, 32, 16, half, half, half, col_major, col_major, mem_row_major)
KERNEL(f16_half, 16, 16, 16, half, half, half, row_major, col_major, mem_col_major)
KERNEL(bf16_rr, 16, 16, 16, __nv_bfloat16, __nv_bfloat16, float, row_major, row_major, mem_row_major)
KERNEL(bf16_tall, 32, 8, 16, __nv_bfloat16, __nv_bfloat16, float, row_major, col_major, mem_row_major)
KERNEL(tf32_rc, 16, 16, 8, wmma::precision::tf32, float, float, row_major, col_major, mem_row_major)
KERNEL(s8_rc, 16, 16, 16, signed char, signed char, int, row_major, col_major, mem_row_major)
KERNEL(u8_wide, 8, 32, 16, unsigned char, unsigned char, int, row_major, row_major, mem_col_major)
KERNEL(f64_rc, 8, 8, 4, double, double, double, row_major, col_major, mem_row_major)
// c = alpha · a × b of n × n halves by 16 × 16 tiles through shared memory, a warp a tile, four tiles a block.
extern "C" __global__ void matmul(const half* a, const half* b, float* c, int n, float alpha) {
    __shared__ half left[16 * 16];
    __shared__ half right[16 * 64];
    int warp = threadIdx.x / 32, row = blockIdx.y * 16, column = blockIdx.x * 64;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k = 0; k < n; k += 16) {
        for (int i = threadIdx.x; i < 16 * 16; i += 128) left[i] = a[(row + i / 16) * n + k + i % 16];
        for (int i = threadIdx.x; i < 16 * 64; i += 128) right[i] = b[(k + i / 64) * n + column + i % 64];
        __syncthreads();
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> y;
        wmma::load_matrix_sync(x, left, 16);
        wmma::load_matrix_sync(y, right + warp * 16, 64);
        wmma::mma_sync(sum, x, y, sum);
        __syncthreads();
    }
    for (int i = 0; i < sum.num_elements; i++) sum.x[i] *= alpha;
    wmma::store_matrix_sync(c + row * n + column + warp * 16, sum, n, wmma::mem_row_major);
}
