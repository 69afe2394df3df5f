// idea: the row stays in registers between the two walks: each thread keeps what it added, and norms just that.
// changed: nobody reads the sum again, but for what a longer row has left; all loads go out before the first store.
// constants: THREADS per block, EACH eights of a row in each thread's registers: the fastest of those tried on an H200.
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
    uint4 kept[EACH], other[EACH];
    float squares = 0.0f;
    // All loads are in flight before the first store: as x and sum might overlap, the compiler keeps this order.
#pragma unroll
    for (int each = 0; each < EACH; ++each) {
        int at = each * THREADS + threadIdx.x;
        kept[each] = other[each] = make_uint4(0, 0, 0, 0);
        if (at < eights) {
            kept[each] = x8[at];
            other[each] = residual8[at];
        }
    }
#pragma unroll
    for (int each = 0; each < EACH; ++each) {
        int at = each * THREADS + threadIdx.x;
        kept[each] = add(kept[each], other[each]);
        squares += square(kept[each]);
        if (at < eights) {
            sum8[at] = kept[each];
            other[each] = weight8[at]; // in flight while the block adds up its squares
        }
    }
#pragma unroll 1
    for (int at = EACH * THREADS + threadIdx.x; at < eights; at += THREADS) {
        uint4 added = add(x8[at], residual8[at]);
        sum8[at] = added;
        squares += square(added);
    }
    float scale = rsqrtf(block_sum(squares) / columns + epsilon);
#pragma unroll
    for (int each = 0; each < EACH; ++each) {
        int at = each * THREADS + threadIdx.x;
        if (at < eights) {
            y8[at] = norm(kept[each], scale, other[each]);
        }
    }
#pragma unroll 1
    for (int at = EACH * THREADS + threadIdx.x; at < eights; at += THREADS) {
        y8[at] = norm(sum8[at], scale, weight8[at]);
    }
}
