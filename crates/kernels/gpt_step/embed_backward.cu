// idea: the embedding's gradient without atomics: the host has sorted the tokens, and a block adds up one token's rows.
// constants: WIDTH of a row; THREADS of a block, whose warps share the rows of a token and then add up in their order.
#include "rows.cuh"

const int WARPS = THREADS / 32;

// `order` has the rows sorted by token, `starts` where each token's begin; those beyond the last one are `rows`. The gradient
// holds that of the last product already, whose matrix is the same.
extern "C" __global__ void __launch_bounds__(THREADS)
    embed_backward(const bf16 *d_x, const int *tokens, const int *order, const int *starts, float *gradient, int rows) {
    __shared__ float sums[WARPS][256];
    int begin = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    if (begin >= rows) {
        return;
    }
    float *to = gradient + (size_t)tokens[order[begin]] * WIDTH;
    int warp = threadIdx.x / 32;
    for (int e = 0; e < EIGHTS; ++e) {
        float total[8] = {};
        if (inside(e)) {
            for (int at = begin + warp; at < end; at += WARPS) {
                Eight eight = load_8(d_x + (size_t)order[at] * WIDTH + column_of(e));
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    total[i] += eight[i];
                }
            }
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            sums[warp][threadIdx.x % 32 * 8 + i] = total[i];
        }
        __syncthreads();
        for (int column = threadIdx.x; column < 256 && e * 256 + column < WIDTH; column += THREADS) {
            float all = to[e * 256 + column];
            for (int other = 0; other < WARPS; ++other) {
                all += sums[other][column];
            }
            to[e * 256 + column] = all;
        }
        __syncthreads();
    }
}

// The gradient of a position: the sum over the texts of the batch; `adds`: to that of batches before this one.
extern "C" __global__ void __launch_bounds__(THREADS)
    position_backward(const bf16 *d_x, float *gradient, int positions_at, int context, int batch, int adds) {
    int at = (blockIdx.x * THREADS + threadIdx.x) * 8;
    if (at >= context * WIDTH) {
        return;
    }
    float total[8] = {};
    for (int text = 0; text < batch; ++text) {
        Eight eight = load_8(d_x + (size_t)text * context * WIDTH + at);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            total[i] += eight[i];
        }
    }
    for (int i = 0; i < 8; ++i) {
        float *to = gradient + positions_at + at + i;
        *to = adds ? *to + total[i] : total[i];
    }
}
