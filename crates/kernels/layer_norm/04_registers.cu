// idea: the row stays in registers, so passes over it cost no memory: it is read once and written once.
// changed: two passes again, mean and then squares, where the row is of whole eights and not too long.
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

// Rows that the registers do not hold, or not of whole eights: as on the rung before.
__device__ __noinline__ void any_row(const bf16 *x, const bf16 *weight, const bf16 *bias, bf16 *y, int first,
                                     int columns, float epsilon, float *sums, float *square_sums) {
    // Of the numbers that this thread has seen.
    float count = 0.0f, own_mean = 0.0f, squares = 0.0f;
    for (int at = first; at < columns; at += 8 * THREADS) {
        Eight eight = load_8(x, at, columns, 0.0f);
        for (int i = 0; i < 8; ++i) {
            if (at + i >= 0 && at + i < columns) {
                float value = eight[i];
                float away = value - own_mean;
                count += 1.0f;
                own_mean += __fdividef(away, count);
                squares += away * (value - own_mean);
            }
        }
    }
    float mean = block_sum(count * own_mean, sums) / columns;
    squares += count * (own_mean - mean) * (own_mean - mean);
    float scale = rsqrtf(block_sum(squares, square_sums) / columns + epsilon);
    for (int at = first; at < columns; at += 8 * THREADS) {
        Eight weights = load_8(weight, at, columns, 0.0f), biases = load_8(bias, at, columns, 0.0f);
        store_8(y, at, columns, normal_8(load_8(x, at, columns, 0.0f), mean, scale, weights, biases));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm(const bf16 *x, const bf16 *weight, const bf16 *bias, bf16 *y, int rows, int columns, float epsilon) {
    __shared__ float sums[THREADS / 32], square_sums[THREADS / 32];
    size_t start = (size_t)blockIdx.x * columns;
    x += start;
    y += start;
    // x and y begin at multiples of 16 bytes, a row anywhere.
    int first = 8 * threadIdx.x - start % 8;
    if (columns % 8 != 0 || columns > 8 * THREADS * VECTORS) {
        any_row(x, weight, bias, y, first, columns, epsilon, sums, square_sums);
        return;
    }
    Eight held[VECTORS];
    load_whole_eights(held, x, first, 8 * THREADS, columns, 0.0f);
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        for (int i = 0; i < 8; ++i) {
            sum += held[v][i];
        }
    }
    float mean = block_sum(sum, sums) / columns;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        for (int i = 0; i < 8; ++i) {
            float away = first + 8 * THREADS * v < columns ? held[v][i] - mean : 0.0f;
            squares += away * away;
        }
    }
    float scale = rsqrtf(block_sum(squares, square_sums) / columns + epsilon);
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        int at = first + 8 * THREADS * v;
        Eight weights = load_whole_8(weight, at, columns, 0.0f), biases = load_whole_8(bias, at, columns, 0.0f);
        store_whole_8(y, at, columns, normal_8(held[v], mean, scale, weights, biases));
    }
}
