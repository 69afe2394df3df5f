// idea: a block as long as its row: short rows leave no threads idle, long ones still fit the registers.
// changed: the launch gives each thread VECTORS eights, up to 1024 threads; the warps' results meet by shuffles again.
// constants: VECTORS eights a thread; from the table. The block's size is the launch's, which follows the row's length.
#include "../rows/eight.cuh"

__device__ float warp_sum(float sum) {
    for (int distance = 16; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, distance);
    }
    return sum;
}

// The sum of the block, in every thread. `place` is for this alone: nobody waits until all have read it.
__device__ float block_sum(float sum, float *place) {
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) {
        place[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    int lane = threadIdx.x % 32;
    return warp_sum(lane < blockDim.x / 32 ? place[lane] : 0.0f);
}

// Rows that the registers do not hold, or not of whole eights: as on the rung before.
__device__ __noinline__ void any_row(const bf16 *x, const bf16 *weight, bf16 *y, int first, int columns,
                                     float epsilon, float *sums) {
    int step = 8 * blockDim.x;
    float squares = 0.0f;
    for (int at = first; at < columns; at += step) {
        Eight eight = load_8(x, at, columns, 0.0f);
        for (int i = 0; i < 8; ++i) {
            squares += eight[i] * eight[i];
        }
    }
    float scale = rsqrtf(block_sum(squares, sums) / columns + epsilon);
    for (int at = first; at < columns; at += step) {
        Eight eight = load_8(x, at, columns, 0.0f), weights = load_8(weight, at, columns, 0.0f);
        float normal[8];
        for (int i = 0; i < 8; ++i) {
            normal[i] = eight[i] * scale * weights[i];
        }
        store_8(y, at, columns, rounded(normal));
    }
}

extern "C" __global__ void __launch_bounds__(1024)
    rms_norm(const bf16 *x, const bf16 *weight, bf16 *y, int rows, int columns, float epsilon) {
    __shared__ float sums[32];
    size_t start = (size_t)blockIdx.x * columns;
    x += start;
    y += start;
    // x and y begin at multiples of 16 bytes, a row anywhere.
    int first = 8 * threadIdx.x - start % 8;
    int step = 8 * blockDim.x;
    if (columns % 8 != 0 || columns > step * VECTORS) {
        any_row(x, weight, y, first, columns, epsilon, sums);
        return;
    }
    Eight held[VECTORS];
    load_whole_eights(held, x, first, step, columns, 0.0f);
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
        int at = first + step * v;
        Eight weights = load_whole_8(weight, at, columns, 0.0f);
        float normal[8];
        for (int i = 0; i < 8; ++i) {
            normal[i] = held[v][i] * scale * weights[i];
        }
        store_whole_8(y, at, columns, rounded(normal));
    }
}
