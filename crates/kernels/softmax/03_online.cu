// idea: largest number and sum in one pass: whenever a larger number comes, the sum so far shrinks to its scale.
// changed: one loop in place of the first two; the threads' sums are brought to the block's scale as they meet.
// constants: THREADS, a multiple of 32 up to 1024, is the block's size; from the table.
#include <cuda_bf16.h>
typedef __nv_bfloat16 bf16;

// Below every bf16, and finite: exp(-infinity - LOWEST) is 0, where -infinity - -infinity were no number.
const float LOWEST = -3.402823466e38f;

// The largest number of the block, and the sum, in every thread. `place` is for one of them alone: nobody waits until
// all have read it.
__device__ float block_max(float most, float *place) {
    for (int distance = 16; distance > 0; distance /= 2) {
        most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, distance));
    }
    if (threadIdx.x % 32 == 0) {
        place[threadIdx.x / 32] = most;
    }
    __syncthreads();
    for (int warp = 0; warp < THREADS / 32; ++warp) {
        most = fmaxf(most, place[warp]);
    }
    return most;
}

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

extern "C" __global__ void softmax(const bf16 *x, bf16 *y, int rows, int columns) {
    __shared__ float mosts[THREADS / 32], sums[THREADS / 32];
    x += (size_t)blockIdx.x * columns;
    y += (size_t)blockIdx.x * columns;
    // sum is always that of exp(x - most), over what this thread has seen.
    float most = LOWEST, sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        float value = x[i];
        float larger = fmaxf(most, value);
        sum = sum * __expf(most - larger) + __expf(value - larger);
        most = larger;
    }
    float own = most;
    most = block_max(own, mosts);
    float scale = 1.0f / block_sum(sum * __expf(own - most), sums);
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        y[i] = __expf(float(x[i]) - most) * scale;
    }
}
