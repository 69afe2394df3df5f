// idea: a thread loads and stores eight neighbours at a time: one instruction of 16 bytes in place of eight.
// changed: the loops go by eights from the last multiple of 16 bytes before the row; its ends go number by number.
// constants: THREADS, a multiple of 32 up to 1024, is the block's size; from the table.
#include "../rows/eight.cuh"

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
    size_t start = (size_t)blockIdx.x * columns;
    x += start;
    y += start;
    // x and y begin at multiples of 16 bytes, a row anywhere.
    int first = 8 * threadIdx.x - start % 8;
    // sum is always that of exp(x - most), over what this thread has seen.
    float most = LOWEST, sum = 0.0f;
    for (int at = first; at < columns; at += 8 * THREADS) {
        Eight eight = load_8(x, at, columns, LOWEST);
        float larger = most;
        for (int i = 0; i < 8; ++i) {
            larger = fmaxf(larger, eight[i]);
        }
        sum *= __expf(most - larger);
        for (int i = 0; i < 8; ++i) {
            sum += __expf(eight[i] - larger);
        }
        most = larger;
    }
    float own = most;
    most = block_max(own, mosts);
    float scale = 1.0f / block_sum(sum * __expf(own - most), sums);
    for (int at = first; at < columns; at += 8 * THREADS) {
        Eight eight = load_8(x, at, columns, LOWEST);
        float parts[8];
        for (int i = 0; i < 8; ++i) {
            parts[i] = __expf(eight[i] - most) * scale;
        }
        store_8(y, at, columns, rounded(parts));
    }
}
