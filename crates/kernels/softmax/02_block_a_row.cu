// idea: the threads of a block share one row, so neighbouring threads read neighbouring numbers.
// changed: a row has THREADS threads; their largest numbers and their sums meet through shuffles and shared memory.
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
    float most = LOWEST;
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        most = fmaxf(most, float(x[i]));
    }
    most = block_max(most, mosts);
    // Without `most`, exp of a number above 88 is infinite. With it the largest number adds exp(0) = 1.
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        sum += __expf(float(x[i]) - most);
    }
    float scale = 1.0f / block_sum(sum, sums);
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        y[i] = __expf(float(x[i]) - most) * scale;
    }
}
