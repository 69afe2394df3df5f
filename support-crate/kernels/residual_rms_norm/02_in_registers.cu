// idea: the row stays in registers between the two walks: each thread keeps what it added, and norms just that.
// changed: nobody reads the sum again; of a row that is longer than the block's registers, only the rest.
// constants: THREADS a block, EACH numbers of a row in each thread's registers; from the table.
#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

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

extern "C" __global__ void __launch_bounds__(THREADS)
    residual_rms_norm(const bf16 *x, const bf16 *residual, const bf16 *weight, bf16 *sum, bf16 *y, int rows,
                      int columns, float epsilon) {
    size_t start = (size_t)blockIdx.x * columns;
    float kept[EACH];
    float squares = 0.0f;
#pragma unroll
    for (int each = 0; each < EACH; ++each) {
        int column = each * THREADS + threadIdx.x;
        kept[each] = 0.0f;
        if (column < columns) {
            bf16 added = (float)x[start + column] + (float)residual[start + column];
            sum[start + column] = added;
            kept[each] = added;
        }
        squares += kept[each] * kept[each];
    }
    for (int column = EACH * THREADS + threadIdx.x; column < columns; column += THREADS) {
        bf16 added = (float)x[start + column] + (float)residual[start + column];
        sum[start + column] = added;
        squares += (float)added * (float)added;
    }
    float scale = rsqrtf(block_sum(squares) / columns + epsilon);
#pragma unroll
    for (int each = 0; each < EACH; ++each) {
        int column = each * THREADS + threadIdx.x;
        if (column < columns) {
            y[start + column] = kept[each] * scale * (float)weight[column];
        }
    }
    for (int column = EACH * THREADS + threadIdx.x; column < columns; column += THREADS) {
        y[start + column] = (float)sum[start + column] * scale * (float)weight[column];
    }
}
