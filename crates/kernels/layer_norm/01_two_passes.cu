// idea: a block a row: a pass for the mean, a pass for the variance about that mean, a pass that writes.
// changed: nothing, this is the first rung.
// constants: THREADS, a multiple of 32 up to 1024, is the block's size; from the table.
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
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        sum += float(x[i]);
    }
    float mean = block_sum(sum, sums) / columns;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        float away = float(x[i]) - mean;
        squares += away * away;
    }
    float scale = rsqrtf(block_sum(squares, square_sums) / columns + epsilon);
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        y[i] = (float(x[i]) - mean) * scale * float(weight[i]) + float(bias[i]);
    }
}
