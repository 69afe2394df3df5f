// Rows with their adapters' part: behind the WIDTH numbers of a row stand its products with A, `lows` of them, so that one product
// with [W | B] is the layer and its adapters.
#pragma once
#include "../gpt_step/rows.cuh"

// The products of a row that a warp holds with the rows of `a` (lows × WIDTH), to `to`.
__device__ __forceinline__ void low_of_row(const float (&x)[EIGHTS][8], const bf16 *a, bf16 *to, int lows) {
    int lane = threadIdx.x % 32;
    float kept = 0.0f;
    for (int p = 0; p < lows; ++p) {
        float own = 0.0f;
#pragma unroll
        for (int e = 0; e < EIGHTS; ++e) {
            if (inside(e)) {
                Eight factor = load_8(a + (size_t)p * WIDTH + column_of(e));
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    own += x[e][i] * factor[i];
                }
            }
        }
        own = warp_sum(own);
        kept = lane == p % 32 ? own : kept;
        if ((p % 32 == 31 || p + 1 == lows) && lane <= p % 32) {
            to[p / 32 * 32 + lane] = __float2bfloat16(kept);
        }
    }
}

// Backwards: what the adapters' part of a row's gradient, which stands behind it, adds to the row's own.
__device__ __forceinline__ void add_low(float (&d)[EIGHTS][8], const bf16 *d_low, const bf16 *a, int lows) {
    for (int p = 0; p < lows; ++p) {
        float own = (float)d_low[p];
#pragma unroll
        for (int e = 0; e < EIGHTS; ++e) {
            if (inside(e)) {
                Eight factor = load_8(a + (size_t)p * WIDTH + column_of(e));
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    d[e][i] += own * factor[i];
                }
            }
        }
    }
}

// A row's gradient, the adapters' part added.
__device__ __forceinline__ void load_gradient(float (&d)[EIGHTS][8], const bf16 *row, const bf16 *a, int lows) {
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        Eight eight = {};
        if (inside(e)) {
            eight = load_8(row + column_of(e));
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            d[e][i] = eight[i];
        }
    }
    add_low(d, row + WIDTH, a, lows);
}

// Rounds a row, and keeps what was stored: the products see it.
__device__ __forceinline__ void store_row(bf16 *to, float (&x)[EIGHTS][8]) {
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        if (inside(e)) {
            Eight stored = store_8(to + column_of(e), x[e]);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                x[e][i] = stored[i];
            }
        }
    }
}
