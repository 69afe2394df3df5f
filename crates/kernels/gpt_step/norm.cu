// idea: layer norm with what stands beside it: the residual's sum in front of it, and in the backward pass the sums over all rows.
// constants: WIDTH of a row; THREADS of a block, a warp a row.
#include "rows.cuh"

// normed = (x - mean) · rstd · scale + shift, of a row that is in registers; scale and shift lie one behind the other.
__device__ __forceinline__ void norm_row(float (&x)[EIGHTS][8], const float *scale, bf16 *normed, float2 *stats) {
    float total = 0.0f;
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            total += inside(e) ? x[e][i] : 0.0f;
        }
    }
    float mean = warp_sum(total) / WIDTH;
    float squares = 0.0f;
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            x[e][i] -= mean;
            squares += inside(e) ? x[e][i] * x[e][i] : 0.0f;
        }
    }
    float rstd = rsqrtf(warp_sum(squares) / WIDTH + 1e-5f);
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        if (inside(e)) {
            float factor[8], shift[8];
            load_floats(factor, scale + column_of(e));
            load_floats(shift, scale + WIDTH + column_of(e));
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                x[e][i] = x[e][i] * rstd * factor[i] + shift[i];
            }
            store_8(normed + column_of(e), x[e]);
        }
    }
    if (threadIdx.x % 32 == 0) {
        *stats = make_float2(mean, rstd);
    }
}

// A token's row and its position's, added; and the first norm of it.
extern "C" __global__ void __launch_bounds__(THREADS)
    embed_norm(const bf16 *weights, const float *master, const int *tokens, bf16 *sum, bf16 *normed, float *stats,
               int positions_at, int scale_at, int context, int rows) {
    int row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= rows) {
        return;
    }
    const bf16 *token = weights + (size_t)tokens[row] * WIDTH;
    const bf16 *position = weights + positions_at + (size_t)(row % context) * WIDTH;
    float x[EIGHTS][8] = {};
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        if (inside(e)) {
            Eight a = load_8(token + column_of(e)), b = load_8(position + column_of(e));
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                x[e][i] = a[i] + b[i];
            }
            Eight stored = store_8(sum + (size_t)row * WIDTH + column_of(e), x[e]);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                x[e][i] = stored[i];
            }
        }
    }
    norm_row(x, master + scale_at, normed + (size_t)row * WIDTH, (float2 *)stats + row);
}

// The norm alone.
extern "C" __global__ void __launch_bounds__(THREADS)
    norm_rows(const bf16 *x_rows, const float *master, bf16 *normed, float *stats, int scale_at, int rows) {
    int row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= rows) {
        return;
    }
    size_t start = (size_t)row * WIDTH;
    float x[EIGHTS][8] = {};
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        if (inside(e)) {
            Eight eight = load_8(x_rows + start + column_of(e));
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                x[e][i] = eight[i];
            }
        }
    }
    norm_row(x, master + scale_at, normed + start, (float2 *)stats + row);
}

// sum = residual + y + bias, and its norm.
extern "C" __global__ void __launch_bounds__(THREADS)
    add_norm(const bf16 *residual, const bf16 *y, const float *master, bf16 *sum, bf16 *normed, float *stats, int bias_at,
             int scale_at, int rows) {
    int row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= rows) {
        return;
    }
    size_t start = (size_t)row * WIDTH;
    Eight a[EIGHTS], b[EIGHTS];
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        if (inside(e)) {
            a[e] = load_8(residual + start + column_of(e));
            b[e] = load_8(y + start + column_of(e));
        }
    }
    float x[EIGHTS][8] = {};
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        if (inside(e)) {
            float bias[8];
            load_floats(bias, master + bias_at + column_of(e));
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                x[e][i] = a[e][i] + b[e][i] + bias[i];
            }
            // The backward pass will see the rounded sum: so does the norm.
            Eight stored = store_8(sum + start + column_of(e), x[e]);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                x[e][i] = stored[i];
            }
        }
    }
    norm_row(x, master + scale_at, normed + start, (float2 *)stats + row);
}

// One block's sums of a quantity over its rows, from what its lanes have.
__device__ void leave_sums(const float (&own)[EIGHTS][8], float *to) {
    __shared__ float sums[THREADS / 32][WIDTH];
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        if (inside(e)) {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                sums[threadIdx.x / 32][column_of(e) + i] = own[e][i];
            }
        }
    }
    __syncthreads();
    for (int column = threadIdx.x; column < WIDTH; column += THREADS) {
        float all = 0.0f;
        for (int warp = 0; warp < THREADS / 32; ++warp) {
            all += sums[warp][column];
        }
        to[column] = all;
    }
}

// The gradient of the norm's input from that of its result, added to what came past the norm (`adds`; else that is 0). Sums
// of a block go to row blockIdx.x of `parts`: of scale and shift to columns norm_at on, of d_x to sum_at on (-1: nobody asks).
extern "C" __global__ void __launch_bounds__(THREADS)
    norm_backward(const bf16 *d_normed, const bf16 *x, const float *stats, const float *master, bf16 *d_x, float *parts,
                  int scale_at, int norm_at, int sum_at, int stride, int adds, int rows) {
    float d_scale[EIGHTS][8] = {}, d_shift[EIGHTS][8] = {}, d_sum[EIGHTS][8] = {};
    for (int row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32; row < rows; row += gridDim.x * (THREADS / 32)) {
        size_t start = (size_t)row * WIDTH;
        Eight dy[EIGHTS], in[EIGHTS], past[EIGHTS];
#pragma unroll
        for (int e = 0; e < EIGHTS; ++e) {
            dy[e] = in[e] = past[e] = Eight{};
            if (inside(e)) {
                dy[e] = load_8(d_normed + start + column_of(e));
                in[e] = load_8(x + start + column_of(e));
                if (adds) {
                    past[e] = load_8(d_x + start + column_of(e));
                }
            }
        }
        float2 stat = ((const float2 *)stats)[row];
        float total = 0.0f, along = 0.0f;
#pragma unroll
        for (int e = 0; e < EIGHTS; ++e) {
            if (inside(e)) {
                float factor[8];
                load_floats(factor, master + scale_at + column_of(e));
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    float unit = (in[e][i] - stat.x) * stat.y;
                    float d = dy[e][i] * factor[i];
                    total += d;
                    along += d * unit;
                    d_scale[e][i] += dy[e][i] * unit;
                    d_shift[e][i] += dy[e][i];
                }
            }
        }
        total = warp_sum(total) / WIDTH;
        along = warp_sum(along) / WIDTH;
#pragma unroll
        for (int e = 0; e < EIGHTS; ++e) {
            if (inside(e)) {
                float factor[8], d[8];
                load_floats(factor, master + scale_at + column_of(e));
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    float unit = (in[e][i] - stat.x) * stat.y;
                    d[i] = past[e][i] + (dy[e][i] * factor[i] - total - unit * along) * stat.y;
                }
                Eight stored = store_8(d_x + start + column_of(e), d);
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    d_sum[e][i] += stored[i];
                }
            }
        }
    }
    float *own = parts + (size_t)blockIdx.x * stride;
    leave_sums(d_scale, own + norm_at);
    leave_sums(d_shift, own + norm_at + WIDTH);
    if (sum_at >= 0) {
        leave_sums(d_sum, own + sum_at);
    }
}
