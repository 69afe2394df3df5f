// idea: the row stays in registers, so passes over it cost no memory: it is read once and written once.
// changed: two passes again, mean and then squares, over VECTORS eights a thread that lie in registers.
// constants: THREADS, a multiple of 32 up to 1024, is the block's size, VECTORS its eights a thread; from the table.
#include "../rows/eight.cuh"

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

__device__ Eight normal_8(const Eight &eight, float mean, float scale, const Eight &weight, const Eight &bias) {
    float normal[8];
    for (int i = 0; i < 8; ++i) {
        normal[i] = (eight[i] - mean) * scale * weight[i] + bias[i];
    }
    return rounded(normal);
}

__device__ float sum_8(const Eight &eight) {
    float sum = 0.0f;
    for (int i = 0; i < 8; ++i) {
        sum += eight[i];
    }
    return sum;
}

// The squares about the mean, of those of eight numbers that lie in the row.
__device__ float squares_8(const Eight &eight, int at, int columns, float mean) {
    float squares = 0.0f;
    for (int i = 0; i < 8; ++i) {
        float away = at + i >= 0 && at + i < columns ? eight[i] - mean : 0.0f;
        squares += away * away;
    }
    return squares;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm(const bf16 *x, const bf16 *weight, const bf16 *bias, bf16 *y, int rows, int columns, float epsilon) {
    __shared__ float sums[THREADS / 32], square_sums[THREADS / 32];
    size_t start = (size_t)blockIdx.x * columns;
    x += start;
    y += start;
    // x and y begin at multiples of 16 bytes, a row anywhere.
    int first = 8 * threadIdx.x - start % 8;
    // What the registers cannot hold begins here.
    int beyond = first + 8 * THREADS * VECTORS;
    Eight held[VECTORS];
    load_eights(held, x, first, 8 * THREADS, columns, 0.0f);
    float sum = 0.0f;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        sum += sum_8(held[v]);
    }
    for (int at = beyond; at < columns; at += 8 * THREADS) {
        sum += sum_8(load_8(x, at, columns, 0.0f));
    }
    float mean = block_sum(sum, sums) / columns;
    float squares = 0.0f;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        squares += squares_8(held[v], first + 8 * THREADS * v, columns, mean);
    }
    for (int at = beyond; at < columns; at += 8 * THREADS) {
        squares += squares_8(load_8(x, at, columns, 0.0f), at, columns, mean);
    }
    float scale = rsqrtf(block_sum(squares, square_sums) / columns + epsilon);
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        int at = first + 8 * THREADS * v;
        Eight weights = load_8(weight, at, columns, 0.0f), biases = load_8(bias, at, columns, 0.0f);
        store_8(y, at, columns, normal_8(held[v], mean, scale, weights, biases));
    }
    for (int at = beyond; at < columns; at += 8 * THREADS) {
        Eight weights = load_8(weight, at, columns, 0.0f), biases = load_8(bias, at, columns, 0.0f);
        store_8(y, at, columns, normal_8(load_8(x, at, columns, 0.0f), mean, scale, weights, biases));
    }
}
