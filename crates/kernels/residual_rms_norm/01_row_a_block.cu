// idea: one launch adds the residual, stores the sum, and norms it: nothing goes out to memory only to come back.
// changed: nothing, the first rung: a block takes a row; it walks over it to add, and once more to norm.
// constants: THREADS per block; from the table.
//
// sum = x + residual, rounded to bf16; y = sum / sqrt(mean of sum^2 + epsilon) * weight, in float, rounded once.
#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

__device__ float warp_sum(float own) {
    for (int distance = 16; distance > 0; distance /= 2) {
        own += __shfl_xor_sync(0xffffffff, own, distance);
    }
    return own;
}

// The block's sum, in each of its threads.
__device__ float block_sum(float own) {
    __shared__ float sums[THREADS / 32];
    own = warp_sum(own);
    if (threadIdx.x % 32 == 0) {
        sums[threadIdx.x / 32] = own;
    }
    __syncthreads();
    float all = 0.0f;
    for (int warp = 0; warp < THREADS / 32; ++warp) {
        all += sums[warp];
    }
    return all;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    residual_rms_norm(const bf16 *x, const bf16 *residual, const bf16 *weight, bf16 *sum, bf16 *y, int rows,
                      int columns, float epsilon) {
    size_t start = (size_t)blockIdx.x * columns;
    float squares = 0.0f;
    for (int column = threadIdx.x; column < columns; column += THREADS) {
        bf16 added = (float)x[start + column] + (float)residual[start + column];
        sum[start + column] = added;
        squares += (float)added * (float)added;
    }
    float scale = rsqrtf(block_sum(squares) / columns + epsilon);
    for (int column = threadIdx.x; column < columns; column += THREADS) {
        y[start + column] = (float)sum[start + column] * scale * (float)weight[column];
    }
}
