// Where a layer's weights lie, the residual that its halves add to, and its second half, the MLP: what a block can fetch
// before the residual is there, and what it does then.
#pragma once
#include "parts.cuh"

constexpr int UNITS = (ROWS + WARPS - 1) / WARPS;
constexpr int DOWN = (ROWS * EIGHTS + THREADS - 1) / THREADS;
static_assert(THREADS % EIGHTS == 0, "each thread keeps to its columns");

// Where a layer's weights lie: one after the other, in the order in which they are used.
struct Layer {
    const bf16 *qkv, *out, *up, *down;
    const float *norm_1, *qkv_bias, *out_bias, *norm_2, *up_bias, *down_bias;
    static constexpr size_t ATTENTION = (size_t)4 * WIDTH * WIDTH, MLP = (size_t)2 * WIDTH * HIDDEN;

    __device__ Layer(const bf16 *weights, const float *vectors, int number) {
        qkv = weights + number * (ATTENTION + MLP);
        out = qkv + (size_t)3 * WIDTH * WIDTH;
        up = qkv + ATTENTION;
        down = up + (size_t)WIDTH * HIDDEN;
        norm_1 = vectors + (size_t)number * (9 * WIDTH + HIDDEN); // its scales, then its biases
        qkv_bias = norm_1 + 2 * WIDTH;
        out_bias = qkv_bias + 3 * WIDTH;
        norm_2 = out_bias + WIDTH;
        up_bias = norm_2 + 2 * WIDTH;
        down_bias = up_bias + HIDDEN;
    }
};

// The residual three times: a half reads one, adds to the next, and zeroes the last, which the half behind it adds to.
struct Residual {
    const float *x;
    float *sum, *spare;

    __device__ Residual(float *three, int half) {
        x = three + half % 3 * WIDTH;
        sum = three + (half + 1) % 3 * WIDTH;
        spare = three + (half + 2) % 3 * WIDTH;
    }

    __device__ void zero_spare() const {
        for (int i = blockIdx.x * THREADS + threadIdx.x; i < WIDTH; i += gridDim.x * THREADS) {
            spare[i] = 0.0f;
        }
    }
};

// This block's share of so many bytes comes into the L2 cache.
__device__ void prefetch(const void *from, size_t bytes) {
    size_t share = (bytes / gridDim.x + 15) / 16 * 16, begin = blockIdx.x * share;
    if (threadIdx.x == 0 && begin < bytes) {
        const char *place = (const char *)from + begin;
        unsigned int size = (unsigned int)min(share, bytes - begin);
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(place), "r"(size) : "memory");
    }
}

// sum += x + bias + down(gelu(up(norm(x)))). A block owns ROWS hidden units from `first` on: their rows of `up`, and
// their columns of `down`, which lie in memory as rows.
struct Mlp {
    struct Shared {
        Row row;
        float units[ROWS];
        float4 shares[2][THREADS];
    };
    static constexpr int COLUMNS = (WIDTH + THREADS - 1) / THREADS;
    uint4 up[UNITS][EACH], down[DOWN];
    float up_bias[UNITS], down_bias[COLUMNS];
    Norm norm;
    int first;

    __device__ void fetch_all(const Layer &layer) {
        int thread = threadIdx.x, warp = thread / 32;
#pragma unroll
        for (int own = 0; own < UNITS; ++own) {
            int unit = own * WARPS + warp;
            bool there = unit < ROWS && first + unit < HIDDEN;
            fetch_row(layer.up + (size_t)(first + unit) * WIDTH, there, up[own]);
            up_bias[own] = there ? fetch_one(layer.up_bias + first + unit) : 0.0f;
        }
#pragma unroll
        for (int each = 0; each < DOWN; ++each) {
            int at = each * THREADS + thread, unit = at / EIGHTS;
            down[each] = make_uint4(0, 0, 0, 0);
            if (unit < ROWS && first + unit < HIDDEN) {
                down[each] = fetch(layer.down + (size_t)first * WIDTH + 8 * (size_t)at);
            }
        }
#pragma unroll
        for (int each = 0; each < COLUMNS; ++each) {
            // The first block adds it for all of them.
            int column = each * THREADS + thread;
            down_bias[each] = first == 0 && column < WIDTH ? fetch_one(layer.down_bias + column) : 0.0f;
        }
        norm.fetch_weights(layer.norm_2, layer.norm_2 + WIDTH);
    }

    __device__ void finish(const Residual &residual, Shared &shared) {
        int thread = threadIdx.x, warp = thread / 32;
        norm.apply(residual.x, shared.row);
        float own_x[EACH][8];
        own_part(shared.row, own_x);
#pragma unroll
        for (int own = 0; own < UNITS; ++own) {
            int unit = own * WARPS + warp;
            float value = warp_sum(dot_row(up[own], own_x));
            if (thread % 32 == 0 && unit < ROWS) {
                shared.units[unit] = first + unit < HIDDEN ? gelu(value + up_bias[own]) : 0.0f;
            }
        }
        __syncthreads();
        float share[8] = {};
#pragma unroll
        for (int each = 0; each < DOWN; ++each) {
            int unit = (each * THREADS + thread) / EIGHTS;
            add_scaled(down[each], unit < ROWS ? shared.units[unit] : 0.0f, share);
        }
        // A thread has eight columns of some units; those of the other units lie with other threads.
        shared.shares[0][thread] = make_float4(share[0], share[1], share[2], share[3]);
        shared.shares[1][thread] = make_float4(share[4], share[5], share[6], share[7]);
        __syncthreads();
        const float *flat = (const float *)shared.shares;
#pragma unroll
        for (int each = 0; each < COLUMNS; ++each) {
            int column = each * THREADS + thread;
            if (column >= WIDTH) {
                continue;
            }
            float total = first == 0 ? __ldcg(residual.x + column) + down_bias[each] : 0.0f;
            int at = column % 8 / 4 * 4 * THREADS + column / 8 * 4 + column % 4;
#pragma unroll
            for (int other = 0; other < THREADS / EIGHTS; ++other) {
                total += flat[at + 4 * other * EIGHTS];
            }
            atomicAdd(residual.sum + column, total);
        }
    }
};
