// Online softmax of scores that stay in registers, as mma.sync and wgmma leave them: of each 8 columns a thread holds
// two neighbours, of two rows that are eight apart; four threads share a row.
#pragma once
#include <cuda_bf16.h>

// What follows the forward pass by a backward pass (flash_backward/forward.cu) has a kernel take one more array.
#ifdef STORE_LSE
#define CAUSAL_AND_LSE causal, float *lse
#else
#define CAUSAL_AND_LSE causal
#endif

// The score of a key that is not to be seen, 2^x of which is 0; and what the maximum is before the first key. That one is
// finite: -infinity - LOWEST is -infinity, where -infinity - -infinity would be no number.
#define HIDDEN __int_as_float(0xff800000)
const float LOWEST = -3.402823466e38f;

// What a thread knows of its two rows: the largest score so far, and its own part of the sum of exponentials.
struct Rows {
    float most[2] = {LOWEST, LOWEST};
    float total[2] = {0.0f, 0.0f};
};

// 2^x, one instruction. Scores come times log2(e), so that it does for e^x.
__device__ __forceinline__ float power(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Hides keys beyond the last one, and under a causal mask those behind the query. `row`: the thread's first one.
template <int N>
__device__ __forceinline__ void hide(float (&s)[N][4], int key0, int row, int length, int causal) {
#pragma unroll
    for (int x = 0; x < N; ++x) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            int key = key0 + x * 8 + threadIdx.x % 4 * 2 + i % 2;
            if (key >= length || (causal && key > row + i / 2 * 8)) {
                s[x][i] = HIDDEN;
            }
        }
    }
}

// Turns scores into powers of 2 below the rows' new maximum, and adds them up. `factor`: what has been summed so far is
// to be multiplied with, as the maximum may have moved.
template <int N>
__device__ __forceinline__ void softmax(float (&s)[N][4], Rows &rows, float (&factor)[2], float scale) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float most = rows.most[half];
#pragma unroll
        for (int x = 0; x < N; ++x) {
            most = fmaxf(most, fmaxf(s[x][half * 2], s[x][half * 2 + 1]));
        }
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        float shift = most * scale;
        factor[half] = power(rows.most[half] * scale - shift);
        rows.most[half] = most;
        float total = 0.0f;
#pragma unroll
        for (int x = 0; x < N; ++x) {
#pragma unroll
            for (int i = half * 2; i < half * 2 + 2; ++i) {
                s[x][i] = power(s[x][i] * scale - shift);
                total += s[x][i];
            }
        }
        rows.total[half] = rows.total[half] * factor[half] + total;
    }
}

// The sums of whole rows, from those of the four threads, turned over: what the output is to be multiplied with.
__device__ __forceinline__ void finish(const Rows &rows, float (&factor)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float total = rows.total[half] + __shfl_xor_sync(~0u, rows.total[half], 1);
        factor[half] = 1.0f / (total + __shfl_xor_sync(~0u, total, 2));
    }
}

// Leaves log2 of the sum of exponentials of a head's queries, for the backward pass. `row`: the thread's first one; `factor`: as
// finish gives it.
__device__ __forceinline__ void store_lse(const Rows &rows, const float (&factor)[2], float *lse, int row, int length,
                                          float scale) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (threadIdx.x % 4 == 0 && row + half * 8 < length) {
            lse[row + half * 8] = rows.most[half] * scale - log2f(factor[half]);
        }
    }
}

template <int N>
__device__ __forceinline__ void multiply_rows(float (&o)[N][4], const float (&factor)[2]) {
#pragma unroll
    for (int x = 0; x < N; ++x) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            o[x][i] *= factor[i / 2];
        }
    }
}

// Two numbers as bf16, the first in the lower half.
__device__ __forceinline__ unsigned int both(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(unsigned int *)&pair;
}

// The exponentials as the left operand of the next product: the accumulators have just that layout, 16 columns at a time.
template <int N>
__device__ __forceinline__ void pack(unsigned int (&p)[N / 2][4], const float (&s)[N][4]) {
#pragma unroll
    for (int x = 0; x < N; ++x) {
        p[x / 2][x % 2 * 2] = both(s[x][0], s[x][1]);
        p[x / 2][x % 2 * 2 + 1] = both(s[x][2], s[x][3]);
    }
}
