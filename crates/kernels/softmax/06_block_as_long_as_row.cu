// idea: a block as long as its row: short rows leave no threads idle, long ones still fit the registers.
// changed: the launch gives each thread VECTORS eights, up to 1024 threads; the warps' results meet by shuffles again.
// constants: VECTORS eights a thread; from the table. The block's size is the launch's, which follows the row's length.
#include "../rows/eight.cuh"

// Below every bf16, and finite: exp(-infinity - LOWEST) is 0, where -infinity - -infinity were no number.
const float LOWEST = -3.402823466e38f;

__device__ float warp_max(float most) {
    for (int distance = 16; distance > 0; distance /= 2) {
        most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, distance));
    }
    return most;
}

// The largest number of the block, and the sum, in every thread. `place` is for one of them alone: nobody waits until
// all have read it.
__device__ float block_max(float most, float *place) {
    most = warp_max(most);
    if (threadIdx.x % 32 == 0) {
        place[threadIdx.x / 32] = most;
    }
    __syncthreads();
    int lane = threadIdx.x % 32;
    return warp_max(lane < blockDim.x / 32 ? place[lane] : LOWEST);
}

__device__ float warp_sum(float sum) {
    for (int distance = 16; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, distance);
    }
    return sum;
}

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
__device__ __noinline__ void any_row(const bf16 *x, bf16 *y, int first, int columns, float *mosts, float *sums) {
    int step = 8 * blockDim.x;
    // sum is always that of exp(x - most), over what this thread has seen.
    float most = LOWEST, sum = 0.0f;
    for (int at = first; at < columns; at += step) {
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
    for (int at = first; at < columns; at += step) {
        Eight eight = load_8(x, at, columns, LOWEST);
        float parts[8];
        for (int i = 0; i < 8; ++i) {
            parts[i] = __expf(eight[i] - most) * scale;
        }
        store_8(y, at, columns, rounded(parts));
    }
}

extern "C" __global__ void __launch_bounds__(1024) softmax(const bf16 *x, bf16 *y, int rows, int columns) {
    __shared__ float mosts[32], sums[32];
    size_t start = (size_t)blockIdx.x * columns;
    x += start;
    y += start;
    // x and y begin at multiples of 16 bytes, a row anywhere.
    int first = 8 * threadIdx.x - start % 8;
    int step = 8 * blockDim.x;
    if (columns % 8 != 0 || columns > step * VECTORS) {
        any_row(x, y, first, columns, mosts, sums);
        return;
    }
    Eight held[VECTORS];
    load_whole_eights(held, x, first, step, columns, LOWEST);
    float most = LOWEST, sum = 0.0f;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        for (int i = 0; i < 8; ++i) {
            most = fmaxf(most, held[v][i]);
        }
    }
    most = block_max(most, mosts);
    float parts[VECTORS][8];
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        for (int i = 0; i < 8; ++i) {
            parts[v][i] = __expf(held[v][i] - most);
            sum += parts[v][i];
        }
    }
    float scale = 1.0f / block_sum(sum, sums);
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        store_whole_8(y, first + step * v, columns, rounded(parts[v], scale));
    }
}
