// idea: RMS norm between the residual's sum and the adapters' products, and backwards. Its factors are frozen: they get no gradient.
// constants: WIDTH of a row; THREADS of a block, a warp a row.
#include "low.cuh"

// x · rstd · factor of a row that is in registers, and its adapters' products behind it.
__device__ __forceinline__ void norm_row(float (&x)[EIGHTS][8], const float *factors, const bf16 *a, bf16 *to, float *rstd,
                                         int lows, float epsilon) {
    float squares = 0.0f;
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            squares += inside(e) ? x[e][i] * x[e][i] : 0.0f;
        }
    }
    float r = rsqrtf(warp_sum(squares) / WIDTH + epsilon);
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        if (inside(e)) {
            float factor[8];
            load_floats(factor, factors + column_of(e));
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                x[e][i] *= r * factor[i];
            }
        }
    }
    store_row(to, x);
    low_of_row(x, a, to + WIDTH, lows);
    if (threadIdx.x % 32 == 0) {
        *rstd = r;
    }
}

// A token's row of the table, and the first norm of it.
extern "C" __global__ void __launch_bounds__(THREADS)
    lora_embed(const bf16 *table, const int *tokens, const float *norms, const bf16 *weights, bf16 *sum, bf16 *normed,
               float *rstd, int norm_at, int a_at, int lows, float epsilon, int rows) {
    int row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= rows) {
        return;
    }
    float x[EIGHTS][8] = {};
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        if (inside(e)) {
            Eight eight = load_8(table + (size_t)tokens[row] * WIDTH + column_of(e));
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                x[e][i] = eight[i];
            }
        }
    }
    store_row(sum + (size_t)row * WIDTH, x);
    norm_row(x, norms + norm_at, weights + a_at, normed + (size_t)row * (WIDTH + lows), rstd + row, lows, epsilon);
}

// sum = residual + y, and its norm.
extern "C" __global__ void __launch_bounds__(THREADS)
    lora_norm(const bf16 *residual, const bf16 *y, const float *norms, const bf16 *weights, bf16 *sum, bf16 *normed,
              float *rstd, int norm_at, int a_at, int lows, float epsilon, int rows) {
    int row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= rows) {
        return;
    }
    size_t start = (size_t)row * WIDTH;
    float x[EIGHTS][8] = {};
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        if (inside(e)) {
            Eight left = load_8(residual + start + column_of(e)), right = load_8(y + start + column_of(e));
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                x[e][i] = left[i] + right[i];
            }
        }
    }
    // The backward pass will see the rounded sum: so does the norm.
    store_row(sum + start, x);
    norm_row(x, norms + norm_at, weights + a_at, normed + (size_t)row * (WIDTH + lows), rstd + row, lows, epsilon);
}

// The gradient of the norm's input from that of its result, added to what came past the norm (`adds`; else that is 0). With
// n = x · rstd and g = d · factor it is rstd · (g - n · mean(g · n)).
extern "C" __global__ void __launch_bounds__(THREADS)
    lora_norm_backward(const bf16 *d_normed, const bf16 *x, const float *rstd, const float *norms, const bf16 *weights,
                       bf16 *d_x, int norm_at, int a_at, int lows, int adds, int rows) {
    int row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= rows) {
        return;
    }
    size_t start = (size_t)row * WIDTH;
    float d[EIGHTS][8];
    load_gradient(d, d_normed + (size_t)row * (WIDTH + lows), weights + a_at, lows);
    float r = rstd[row], along = 0.0f;
    Eight in[EIGHTS];
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        in[e] = Eight{};
        if (inside(e)) {
            in[e] = load_8(x + start + column_of(e));
            float factor[8];
            load_floats(factor, norms + norm_at + column_of(e));
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                d[e][i] *= factor[i];
                along += d[e][i] * in[e][i] * r;
            }
        }
    }
    along = warp_sum(along) / WIDTH;
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        if (inside(e)) {
            Eight past = {};
            if (adds) {
                past = load_8(d_x + start + column_of(e));
            }
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                d[e][i] = past[i] + r * (d[e][i] - in[e][i] * r * along);
            }
            store_8(d_x + start + column_of(e), d[e]);
        }
    }
}
