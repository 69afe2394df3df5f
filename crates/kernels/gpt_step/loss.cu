// idea: cross-entropy whose gradient takes the logits' place: a row is read once from memory and once from the L2.
// constants: THREADS of a block, a row each; COLUMNS of a row, of which the first VOCABULARY count.
#include "rows.cuh"

// logits become (softmax - one hot) · scale; the loss of the row goes to `losses`. A target that is no token of the vocabulary is not
// read: its row's loss and gradient are NaN, which no sum hides.
extern "C" __global__ void __launch_bounds__(THREADS, 2048 / THREADS > 8 ? 8 : 2048 / THREADS)
    cross_entropy(bf16 *logits, const int *targets, float *losses, int row0, float scale) {
    bf16 *row = logits + (size_t)blockIdx.x * COLUMNS;
    int target = targets[row0 + blockIdx.x];
    target = (unsigned)target < VOCABULARY ? target : -1; // as unsigned, a negative one is large
    float nan = __int_as_float(0x7fffffff);
    float most = -3.4e38f, total = 0.0f;
#pragma unroll 2
    for (int at = threadIdx.x * 8; at < COLUMNS; at += THREADS * 8) {
        Eight eight = load_8(row + at);
        float largest = most;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            largest = at + i < VOCABULARY ? fmaxf(largest, eight[i]) : largest;
        }
        if (largest > most) {
            total *= __expf(most - largest);
            most = largest;
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            total += at + i < VOCABULARY ? __expf(eight[i] - most) : 0.0f;
        }
    }
    // The block's maximum and sum.
    __shared__ float warps_most[THREADS / 32];
    float largest = most;
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, distance));
    }
    if (threadIdx.x % 32 == 0) {
        warps_most[threadIdx.x / 32] = largest;
    }
    __syncthreads();
    for (int warp = 0; warp < THREADS / 32; ++warp) {
        largest = fmaxf(largest, warps_most[warp]);
    }
    total = block_sum<THREADS / 32>(total * __expf(most - largest));
    if (threadIdx.x == 0) {
        losses[row0 + blockIdx.x] = target < 0 ? nan : __logf(total) + largest - (float)row[target];
    }
    __syncthreads();
    float factor = target < 0 ? nan : scale / total;
#pragma unroll 2
    for (int at = threadIdx.x * 8; at < COLUMNS; at += THREADS * 8) {
        Eight eight = load_8(row + at);
        float out[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            float p = at + i < VOCABULARY ? __expf(eight[i] - largest) * factor : 0.0f;
            out[i] = at + i == target ? p - scale : p;
        }
        store_8(row + at, out);
    }
}
