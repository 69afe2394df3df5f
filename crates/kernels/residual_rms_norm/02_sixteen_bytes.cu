// idea: eight numbers are 16 bytes, the most that one load or store moves: an eighth of the instructions.
// changed: a thread adds and norms eight neighbours at a time; rows of no whole eights go as before.
// constants: THREADS per block; from the table.
#include "eights.cuh"

__device__ float warp_sum(float own) {
    for (int distance = 16; distance > 0; distance /= 2) {
        own += __shfl_xor_sync(0xffffffff, own, distance);
    }
    return own;
}

// The block's sum, in each of its threads.
__device__ float block_sum(float own) {
    __shared__ float sums[THREADS / 32];
    own = warp_sum(own);
    if (threadIdx.x % 32 == 0) {
        sums[threadIdx.x / 32] = own;
    }
    __syncthreads();
    float all = 0.0f;
    for (int warp = 0; warp < THREADS / 32; ++warp) {
        all += sums[warp];
    }
    return all;
}

// Rows of no whole 16 bytes begin anywhere: number by number, as on the first rung.
__device__ void norm_any_row(const bf16 *x, const bf16 *residual, const bf16 *weight, bf16 *sum, bf16 *y, int columns,
                             float epsilon) {
    float squares = 0.0f;
#pragma unroll 1
    for (int column = threadIdx.x; column < columns; column += THREADS) {
        bf16 added = (float)x[column] + (float)residual[column];
        sum[column] = added;
        squares += (float)added * (float)added;
    }
    float scale = rsqrtf(block_sum(squares) / columns + epsilon);
#pragma unroll 1
    for (int column = threadIdx.x; column < columns; column += THREADS) {
        y[column] = (float)sum[column] * scale * (float)weight[column];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    residual_rms_norm(const bf16 *x, const bf16 *residual, const bf16 *weight, bf16 *sum, bf16 *y, int rows,
                      int columns, float epsilon) {
    size_t start = (size_t)blockIdx.x * columns;
    if (columns % 8 != 0) {
        norm_any_row(x + start, residual + start, weight, sum + start, y + start, columns, epsilon);
        return;
    }
    int eights = columns / 8;
    const uint4 *x8 = (const uint4 *)(x + start), *residual8 = (const uint4 *)(residual + start);
    const uint4 *weight8 = (const uint4 *)weight;
    uint4 *sum8 = (uint4 *)(sum + start), *y8 = (uint4 *)(y + start);
    float squares = 0.0f;
    for (int at = threadIdx.x; at < eights; at += THREADS) {
        uint4 added = add(x8[at], residual8[at]);
        sum8[at] = added;
        squares += square(added);
    }
    float scale = rsqrtf(block_sum(squares) / columns + epsilon);
    for (int at = threadIdx.x; at < eights; at += THREADS) {
        y8[at] = norm(sum8[at], scale, weight8[at]);
    }
}
