// idea: RoPE on the way from the product of q, k and v to heads and back; and attention's result with its adapters' products.
// constants: HEADS of q and KV_HEADS, of 64 numbers each; WIDTH of the result's row, HEADS × 64; THREADS of a block.
#include "low.cuh"

const int HEAD = 64;
const int COLUMNS = (HEADS + 2 * KV_HEADS) * HEAD;

// Where eight neighbours within a head lie: `heads` of each text, a head's tokens one behind the other.
__device__ __forceinline__ size_t in_heads(int row, int head, int heads, int column, int length) {
    return (((size_t)(row / length) * heads + head) * length + row % length) * HEAD + column;
}

// Rotates four neighbouring pairs by their angles, or back for a `direction` of -1. A row of `rope`: 32 cosines, 32 sines.
__device__ __forceinline__ void rotate(float (&x)[8], const float *rope, int position, int column, float direction) {
    float4 cosine = *(const float4 *)&rope[position * HEAD + column / 2];
    float4 sine = *(const float4 *)&rope[position * HEAD + HEAD / 2 + column / 2];
    float c[4] = {cosine.x, cosine.y, cosine.z, cosine.w}, s[4] = {sine.x, sine.y, sine.z, sine.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float left = x[2 * i], right = x[2 * i + 1];
        x[2 * i] = left * c[i] - right * s[i] * direction;
        x[2 * i + 1] = right * c[i] + left * s[i] * direction;
    }
}

__device__ __forceinline__ void floats_of(float (&to)[8], const bf16 *from) {
    Eight eight = load_8(from);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        to[i] = eight[i];
    }
}

// A thread takes eight numbers of a token's q, k or v.
extern "C" __global__ void __launch_bounds__(THREADS)
    lora_to_heads(const bf16 *qkv, const float *rope, bf16 *q, bf16 *k, bf16 *v, int length, int rows) {
    int at = blockIdx.x * THREADS + threadIdx.x;
    int row = at / (COLUMNS / 8), column = at % (COLUMNS / 8) * 8;
    if (row >= rows) {
        return;
    }
    float x[8];
    floats_of(x, qkv + (size_t)row * COLUMNS + column);
    int head = column / HEAD;
    if (head < HEADS + KV_HEADS) {
        rotate(x, rope, row % length, column % HEAD, 1.0f);
    }
    if (head < HEADS) {
        store_8(q + in_heads(row, head, HEADS, column % HEAD, length), x);
    } else if (head < HEADS + KV_HEADS) {
        store_8(k + in_heads(row, head - HEADS, KV_HEADS, column % HEAD, length), x);
    } else {
        store_8(v + in_heads(row, head - HEADS - KV_HEADS, KV_HEADS, column % HEAD, length), x);
    }
}

// And back, for the gradients.
extern "C" __global__ void __launch_bounds__(THREADS)
    lora_from_heads(const bf16 *dq, const bf16 *dk, const bf16 *dv, const float *rope, bf16 *d_qkv, int length, int rows) {
    int at = blockIdx.x * THREADS + threadIdx.x;
    int row = at / (COLUMNS / 8), column = at % (COLUMNS / 8) * 8;
    if (row >= rows) {
        return;
    }
    int head = column / HEAD;
    float x[8];
    if (head < HEADS) {
        floats_of(x, dq + in_heads(row, head, HEADS, column % HEAD, length));
    } else if (head < HEADS + KV_HEADS) {
        floats_of(x, dk + in_heads(row, head - HEADS, KV_HEADS, column % HEAD, length));
    } else {
        floats_of(x, dv + in_heads(row, head - HEADS - KV_HEADS, KV_HEADS, column % HEAD, length));
    }
    if (head < HEADS + KV_HEADS) {
        rotate(x, rope, row % length, column % HEAD, -1.0f);
    }
    store_8(d_qkv + (size_t)row * COLUMNS + column, x);
}

// Attention's result, a token's heads beside each other, and its adapters' products behind them. A warp a row.
extern "C" __global__ void __launch_bounds__(THREADS)
    lora_gather(const bf16 *o, const bf16 *weights, bf16 *to, int a_at, int lows, int length, int rows) {
    int row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= rows) {
        return;
    }
    float x[EIGHTS][8] = {};
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        if (inside(e)) {
            int column = column_of(e);
            floats_of(x[e], o + in_heads(row, column / HEAD, HEADS, column % HEAD, length));
        }
    }
    to += (size_t)row * (WIDTH + lows);
    store_row(to, x);
    low_of_row(x, weights + a_at, to + WIDTH, lows);
}

// And back.
extern "C" __global__ void __launch_bounds__(THREADS)
    lora_scatter(const bf16 *d, const bf16 *weights, bf16 *d_o, int a_at, int lows, int length, int rows) {
    int row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= rows) {
        return;
    }
    float x[EIGHTS][8];
    load_gradient(x, d + (size_t)row * (WIDTH + lows), weights + a_at, lows);
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        if (inside(e)) {
            int column = column_of(e);
            store_8(d_o + in_heads(row, column / HEAD, HEADS, column % HEAD, length), x[e]);
        }
    }
}
