// idea: the row stays in registers between reading and writing: memory is read once and written once.
// changed: a thread loads VECTORS eights before it uses the first; only what is beyond them it reads again.
// constants: THREADS, a multiple of 32 up to 1024, is the block's size, VECTORS its eights a thread; from the table.
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

extern "C" __global__ void __launch_bounds__(THREADS) softmax(const bf16 *x, bf16 *y, int rows, int columns) {
    __shared__ float mosts[THREADS / 32], sums[THREADS / 32];
    size_t start = (size_t)blockIdx.x * columns;
    x += start;
    y += start;
    // x and y begin at multiples of 16 bytes, a row anywhere.
    int first = 8 * threadIdx.x - start % 8;
    // What the registers cannot hold begins here.
    int beyond = first + 8 * THREADS * VECTORS;
    Eight held[VECTORS];
    load_eights(held, x, first, 8 * THREADS, columns, LOWEST);
    float most = LOWEST, sum = 0.0f;
    float numbers[VECTORS][8];
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        for (int i = 0; i < 8; ++i) {
            numbers[v][i] = held[v][i];
            most = fmaxf(most, numbers[v][i]);
        }
    }
    for (int at = beyond; at < columns; at += 8 * THREADS) {
        Eight eight = load_8(x, at, columns, LOWEST);
        for (int i = 0; i < 8; ++i) {
            most = fmaxf(most, eight[i]);
        }
    }
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        for (int i = 0; i < 8; ++i) {
            numbers[v][i] = __expf(numbers[v][i] - most);
            sum += numbers[v][i];
        }
    }
    for (int at = beyond; at < columns; at += 8 * THREADS) {
        Eight eight = load_8(x, at, columns, LOWEST);
        for (int i = 0; i < 8; ++i) {
            sum += __expf(eight[i] - most);
        }
    }
    float own = most;
    most = block_max(own, mosts);
    float scale = __expf(own - most);
    scale /= block_sum(sum * scale, sums);
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        for (int i = 0; i < 8; ++i) {
            numbers[v][i] *= scale;
        }
        store_8(y, first + 8 * THREADS * v, columns, rounded(numbers[v]));
    }
    for (int at = beyond; at < columns; at += 8 * THREADS) {
        Eight eight = load_8(x, at, columns, LOWEST);
        float parts[8];
        for (int i = 0; i < 8; ++i) {
            parts[i] = __expf(eight[i] - own) * scale;
        }
        store_8(y, at, columns, rounded(parts));
    }
}
