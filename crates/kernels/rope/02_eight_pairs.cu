// idea: 16-byte loads and stores, of eight pairs a thread; all heads have the same angles, which it reads once.
// changed: eight pairs a thread; it keeps their cosines and sines, and goes from head to head.
// constants: THREADS per block, BLOCKS of them a multiprocessor: the fastest of those tried on an H200; from the table.
//
// Heads of no whole 16 numbers go pair by pair.
#include "eights.cuh"

__device__ void rotate(const bf16 *x, bf16 *y, int half, float cosine, float sine) {
    float first = x[0];
    float second = x[half];
    y[0] = first * cosine - second * sine;
    y[half] = second * cosine + first * sine;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    rope(const bf16 *q, const bf16 *k, const float *cosines, const float *sines, bf16 *q_rotated, bf16 *k_rotated,
         int rows, int columns, int head) {
    int row = blockIdx.x;
    int half = head / 2;
    if (head % 16 != 0 || half / 8 > THREADS) {
#pragma unroll 1
        for (int pair = threadIdx.x; pair < columns / 2; pair += blockDim.x) {
            int i = pair % half;
            size_t at = (size_t)row * columns + pair / half * head + i;
            float cosine = cosines[(size_t)row * half + i];
            float sine = sines[(size_t)row * half + i];
            rotate(q + at, q_rotated + at, half, cosine, sine);
            rotate(k + at, k_rotated + at, half, cosine, sine);
        }
        return;
    }
    // So many threads share a head; a thread has the same place in each of its heads, and so the same angles.
    int sharing = half / 8;
    int heads = THREADS / sharing;
    int i = threadIdx.x % sharing * 8;
    int own = threadIdx.x / sharing;
    if (own >= heads) {
        return;
    }
    float cosine[8], sine[8];
#pragma unroll
    for (int four = 0; four < 8; four += 4) {
        *(float4 *)(cosine + four) = *(const float4 *)(cosines + (size_t)row * half + i + four);
        *(float4 *)(sine + four) = *(const float4 *)(sines + (size_t)row * half + i + four);
    }
    for (int h = own; h < columns / head; h += heads) {
        size_t at = (size_t)row * columns + h * head + i;
        uint4 q1 = *(const uint4 *)(q + at), q2 = *(const uint4 *)(q + at + half);
        uint4 k1 = *(const uint4 *)(k + at), k2 = *(const uint4 *)(k + at + half);
        rotate_eight(q1, q2, cosine, sine);
        rotate_eight(k1, k2, cosine, sine);
        *(uint4 *)(q_rotated + at) = q1;
        *(uint4 *)(q_rotated + at + half) = q2;
        *(uint4 *)(k_rotated + at) = k1;
        *(uint4 *)(k_rotated + at + half) = k2;
    }
}
