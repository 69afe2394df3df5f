// idea: a thread loads and stores eight neighbours at a time: one instruction of 16 bytes in place of eight.
// changed: the loops go by eights from the last multiple of 16 bytes before the row; its ends go number by number.
// constants: THREADS, a multiple of 32 up to 1024, is the block's size; from the table.
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

extern "C" __global__ void rms_norm(const bf16 *x, const bf16 *weight, bf16 *y, int rows, int columns, float epsilon) {
    __shared__ float sums[THREADS / 32];
    size_t start = (size_t)blockIdx.x * columns;
    x += start;
    y += start;
    // x and y begin at multiples of 16 bytes, a row anywhere.
    int first = 8 * threadIdx.x - start % 8;
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
