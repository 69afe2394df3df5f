// What the rungs of the backward pass share. With p the weights, do the gradient of the result and dp = do · vᵀ:
// dv = pᵀ · do, ds = p ∘ (dp - delta), dq = ds · k / √HEAD, dk = dsᵀ · q / √HEAD, where delta is the sum of o · do of a
// query. The forward pass stored no weights: they are powers of 2 again, p = 2^(scale · q · kᵀ - lse).
#pragma once
#include "../flash_attention/online.cuh"

typedef __nv_bfloat16 bf16;

// scale is log2(e) / √HEAD: times this it is the 1 / √HEAD of the scores' derivatives.
const float LN2 = 0.693147181f;

// Hides scores in a tile that lies with keys along its rows: keys beyond the last one, and under a causal mask those
// behind the query. `key`: the thread's first row.
template <int N>
__device__ __forceinline__ void hide_transposed(float (&s)[N][4], int key, int query0, int length, int causal) {
#pragma unroll
    for (int x = 0; x < N; ++x) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            int query = query0 + x * 8 + threadIdx.x % 4 * 2 + i % 2;
            if (key + i / 2 * 8 >= length || (causal && key + i / 2 * 8 > query)) {
                s[x][i] = HIDDEN;
            }
        }
    }
}

// Scores become weights, in a tile with keys along its rows; `lse` is of its queries.
template <int N>
__device__ __forceinline__ void weigh_scores(float (&s)[N][4], const float *lse, float scale) {
#pragma unroll
    for (int x = 0; x < N; ++x) {
        float2 two = *(const float2 *)&lse[x * 8 + threadIdx.x % 4 * 2];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            s[x][i] = power(s[x][i] * scale - (i % 2 ? two.y : two.x));
        }
    }
}

// dp becomes ds, of the weights p.
template <int N>
__device__ __forceinline__ void weigh_derivatives(float (&dp)[N][4], const float (&p)[N][4], const float *delta) {
#pragma unroll
    for (int x = 0; x < N; ++x) {
        float2 two = *(const float2 *)&delta[x * 8 + threadIdx.x % 4 * 2];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            dp[x][i] = p[x][i] * (dp[x][i] - (i % 2 ? two.y : two.x));
        }
    }
}

// Sums of dq lie as tensor cores leave them, 16 queries × 8 numbers after the other: 4 of each lane, 512 bytes in a row.
// Queries of a head are filled up to `padded`, a multiple of 128.
__device__ __forceinline__ size_t dq_unit(int head, int padded, int query, int column) {
    return (((size_t)head * padded + query) / 16 * (HEAD / 8) + column / 8) * 128 + threadIdx.x % 32 * 4;
}

// Adds a lane's four numbers to those in memory, which other blocks add to as well: in which order, nobody knows.
__device__ __forceinline__ void add_4(float *to, const float (&sum)[4]) {
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(sum[0]), "f"(sum[1]),
                 "f"(sum[2]), "f"(sum[3])
                 : "memory");
#else
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        atomicAdd(to + i, sum[i]);
    }
#endif
}
