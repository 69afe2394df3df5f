// idea: mean and variance in one pass, after Welford: each number moves the mean and adds to the squares about it.
// changed: one loop in place of the first two; then each thread's squares are moved to the mean of the whole row.
// constants: THREADS, a multiple of 32 up to 1024, is the block's size; from the table.
//
// Sums of x and of x * x would do in one pass as well, but lose the digits: around 1000 the squares are about 10^6,
// which fp32 keeps to 1/16, and the variance is their small difference to the mean's square.
#include <cuda_bf16.h>
typedef __nv_bfloat16 bf16;

// The sum of the block, in every thread. `place` is for this alone: nobody waits until all have read it.
__device__ float block_sum(float sum, float *place) {
    for (int distance = 16; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, distance);
    }
    if (threadIdx.x % 32 == 0) {
        place[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    sum = 0.0f;
    for (int warp = 0; warp < THREADS / 32; ++warp) {
        sum += place[warp];
    }
    return sum;
}

extern "C" __global__ void layer_norm(const bf16 *x, const bf16 *weight, const bf16 *bias, bf16 *y, int rows,
                                      int columns, float epsilon) {
    __shared__ float sums[THREADS / 32], square_sums[THREADS / 32];
    x += (size_t)blockIdx.x * columns;
    y += (size_t)blockIdx.x * columns;
    // Of the numbers that this thread has seen.
    float count = 0.0f, own_mean = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        float value = x[i];
        float away = value - own_mean;
        count += 1.0f;
        own_mean += __fdividef(away, count);
        squares += away * (value - own_mean);
    }
    float mean = block_sum(count * own_mean, sums) / columns;
    squares += count * (own_mean - mean) * (own_mean - mean);
    float scale = rsqrtf(block_sum(squares, square_sums) / columns + epsilon);
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        y[i] = (float(x[i]) - mean) * scale * float(weight[i]) + float(bias[i]);
    }
}
