// idea: q and k in one launch: each pair of numbers is rotated by its angle; each number is read and written once.
// changed: nothing, the first rung: a block takes one row (the token at that position), a thread one pair at a time.
// constants: none; 256 threads per block.
//
// Pair i of a head is (x[i], x[i + head / 2]), as Llama and GPT-NeoX have it; RoFormer (arXiv 2104.09864) pairs 2i with
// 2i + 1. Its angle is position * 10000^(-2i / head); cosines and sines come from a table that the host computed in f64.
#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

__device__ void rotate(const bf16 *x, bf16 *y, int half, float cosine, float sine) {
    float first = x[0];
    float second = x[half];
    y[0] = first * cosine - second * sine;
    y[half] = second * cosine + first * sine;
}

extern "C" __global__ void rope(const bf16 *q, const bf16 *k, const float *cosines, const float *sines, bf16 *q_rotated,
                                bf16 *k_rotated, int rows, int columns, int head) {
    int row = blockIdx.x;
    int half = head / 2;
    for (int pair = threadIdx.x; pair < columns / 2; pair += blockDim.x) {
        int i = pair % half;
        size_t at = (size_t)row * columns + pair / half * head + i;
        float cosine = cosines[(size_t)row * half + i];
        float sine = sines[(size_t)row * half + i];
        rotate(q + at, q_rotated + at, half, cosine, sine);
        rotate(k + at, k_rotated + at, half, cosine, sine);
    }
}
