// idea: the row stays in registers between reading and writing: memory is read once and written once.
// changed: a thread loads VECTORS eights before it uses the first, where the row is of whole eights and not too long.
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

// Rows that the registers do not hold, or not of whole eights: as on the rung before.
__device__ __noinline__ void any_row(const bf16 *x, const bf16 *weight, bf16 *y, int first, int columns,
                                     float epsilon, float *sums) {
    float squares = 0.0f;
    for (int at = first; at < columns; at += 8 * THREADS) {
        Eight eight = load_8(x, at, columns, 0.0f);
        for (int i = 0; i < 8; ++i) {
            squares += eight[i] * eight[i];
        }
    }
    float scale = rsqrtf(block_sum(squares, sums) / columns + epsilon);
    for (int at = first; at < columns; at += 8 * THREADS) {
        Eight eight = load_8(x, at, columns, 0.0f), weights = load_8(weight, at, columns, 0.0f);
        float normal[8];
        for (int i = 0; i < 8; ++i) {
            normal[i] = eight[i] * scale * weights[i];
        }
        store_8(y, at, columns, rounded(normal));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    rms_norm(const bf16 *x, const bf16 *weight, bf16 *y, int rows, int columns, float epsilon) {
    __shared__ float sums[THREADS / 32];
    size_t start = (size_t)blockIdx.x * columns;
    x += start;
    y += start;
    // x and y begin at multiples of 16 bytes, a row anywhere.
    int first = 8 * threadIdx.x - start % 8;
    if (columns % 8 != 0 || columns > 8 * THREADS * VECTORS) {
        any_row(x, weight, y, first, columns, epsilon, sums);
        return;
    }
    Eight held[VECTORS];
    load_whole_eights(held, x, first, 8 * THREADS, columns, 0.0f);
    float squares = 0.0f;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        for (int i = 0; i < 8; ++i) {
            squares += held[v][i] * held[v][i];
        }
    }
    float scale = rsqrtf(block_sum(squares, sums) / columns + epsilon);
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        int at = first + 8 * THREADS * v;
        Eight weights = load_whole_8(weight, at, columns, 0.0f);
        float normal[8];
        for (int i = 0; i < 8; ++i) {
            normal[i] = held[v][i] * scale * weights[i];
        }
        store_whole_8(y, at, columns, rounded(normal));
    }
}
