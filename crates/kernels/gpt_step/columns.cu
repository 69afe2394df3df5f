// idea: element by element with the bias, and the bias's gradient, the sum of each column, in the backward pass.
// constants: THREADS of a block; in sums of columns each warp takes 256 neighbouring columns of a row.
#include "rows.cuh"

const int WARPS = THREADS / 32;

// GELU by tanh, as GPT-2 has it; tanh(u) = 1 - 2 / (1 + e^2u).
__device__ __forceinline__ float tanh_of(float x) {
    float u = 0.7978845608f * (x + 0.044715f * x * x * x);
    return 1.0f - __fdividef(2.0f, 1.0f + __expf(2.0f * u));
}

__device__ __forceinline__ float gelu_slope(float x) {
    float t = tanh_of(x);
    float inner = 0.7978845608f * (1.0f + 3.0f * 0.044715f * x * x);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner;
}

// g = gelu(h + bias); a bias_at of -1: h holds it already.
extern "C" __global__ void __launch_bounds__(THREADS)
    gelu(const bf16 *h, const float *master, bf16 *g, int bias_at, int columns, int rows) {
    int at = blockIdx.x * THREADS + threadIdx.x;
    int eights = columns / 8;
    if (at >= rows * eights) {
        return;
    }
    int column = at % eights * 8;
    Eight eight = load_8(h + (size_t)at * 8);
    float bias[8] = {}, out[8];
    if (bias_at >= 0) {
        load_floats(bias, master + bias_at + column);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        float x = eight[i] + bias[i];
        out[i] = 0.5f * x * (1.0f + tanh_of(x));
    }
    store_8(g + (size_t)at * 8, out);
}

// A block's sums of its columns: warps' rows added up in their order.
__device__ void leave_sums(const float (&own)[8], float *to, int columns) {
    __shared__ float sums[WARPS][256];
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        sums[threadIdx.x / 32][lane * 8 + i] = own[i];
    }
    __syncthreads();
    for (int column = threadIdx.x; column < 256; column += THREADS) {
        if (blockIdx.x * 256 + column < columns) {
            float all = 0.0f;
            for (int warp = 0; warp < WARPS; ++warp) {
                all += sums[warp][column];
            }
            to[blockIdx.x * 256 + column] = all;
        }
    }
}

// d_h = d_g · gelu'(h + bias), in d_g's place.
extern "C" __global__ void __launch_bounds__(THREADS)
    gelu_backward(bf16 *d_g, const bf16 *h, const float *master, float *parts, int bias_at, int sum_at, int stride,
                  int columns, int rows) {
    int column = blockIdx.x * 256 + threadIdx.x % 32 * 8;
    float total[8] = {};
    if (column < columns) {
        float bias[8] = {};
        if (bias_at >= 0) {
            load_floats(bias, master + bias_at + column);
        }
#pragma unroll 2
        for (int row = blockIdx.y * WARPS + threadIdx.x / 32; row < rows; row += gridDim.y * WARPS) {
            size_t at = (size_t)row * columns + column;
            Eight d = load_8(d_g + at), x = load_8(h + at);
            float out[8];
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                out[i] = d[i] * gelu_slope(x[i] + bias[i]);
            }
            Eight stored = store_8(d_g + at, out);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                total[i] += stored[i];
            }
        }
    }
    leave_sums(total, parts + (size_t)blockIdx.y * stride + sum_at, columns);
}

// The sums of columns alone.
extern "C" __global__ void __launch_bounds__(THREADS)
    column_sums(const bf16 *d, float *parts, int sum_at, int stride, int columns, int rows) {
    int column = blockIdx.x * 256 + threadIdx.x % 32 * 8;
    float total[8] = {};
    if (column < columns) {
#pragma unroll 4
        for (int row = blockIdx.y * WARPS + threadIdx.x / 32; row < rows; row += gridDim.y * WARPS) {
            Eight eight = load_8(d + (size_t)row * columns + column);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                total[i] += eight[i];
            }
        }
    }
    leave_sums(total, parts + (size_t)blockIdx.y * stride + sum_at, columns);
}

// What blocks have left, added up in a fixed order: a layer's gradients of scales, shifts and biases. A block has 32 columns;
// each warp takes every WARPS-th part. `adds`: to the gradients of batches before this one.
extern "C" __global__ void __launch_bounds__(THREADS)
    add_parts(const float *parts, float *gradient, int from, int to, int stride, int columns, int count, int adds) {
    __shared__ float sums[WARPS][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int column = blockIdx.x * 32 + lane;
    float all = 0.0f;
    if (column < columns) {
#pragma unroll 8
        for (int part = warp; part < count; part += WARPS) {
            all += parts[(size_t)part * stride + from + column];
        }
    }
    sums[warp][lane] = all;
    __syncthreads();
    if (warp == 0 && column < columns) {
        for (int other = 1; other < WARPS; ++other) {
            all += sums[other][lane];
        }
        gradient[to + column] = adds ? gradient[to + column] + all : all;
    }
}

// y += bias, for products that add none; all rows.
extern "C" __global__ void __launch_bounds__(THREADS)
    add_bias(bf16 *y, const float *master, int bias_at, int columns, int rows) {
    int at = blockIdx.x * THREADS + threadIdx.x;
    int eights = columns / 8;
    if (at >= rows * eights) {
        return;
    }
    Eight eight = load_8(y + (size_t)at * 8);
    float bias[8], out[8];
    load_floats(bias, master + bias_at + at % eights * 8);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        out[i] = eight[i] + bias[i];
    }
    store_8(y + (size_t)at * 8, out);
}

// sum = a + b, eights in all.
extern "C" __global__ void __launch_bounds__(THREADS) add(const bf16 *a, const bf16 *b, bf16 *sum, int eights) {
    int at = blockIdx.x * THREADS + threadIdx.x;
    if (at < eights) {
        Eight left = load_8(a + (size_t)at * 8), right = load_8(b + (size_t)at * 8);
        float out[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            out[i] = left[i] + right[i];
        }
        store_8(sum + (size_t)at * 8, out);
    }
}

// to += what is added.
extern "C" __global__ void __launch_bounds__(THREADS) add_to(bf16 *to, const bf16 *added, int eights) {
    int at = blockIdx.x * THREADS + threadIdx.x;
    if (at < eights) {
        Eight left = load_8(to + (size_t)at * 8), right = load_8(added + (size_t)at * 8);
        float out[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            out[i] = left[i] + right[i];
        }
        store_8(to + (size_t)at * 8, out);
    }
}
