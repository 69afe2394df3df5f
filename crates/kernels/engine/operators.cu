// idea: a kernel for each operator, as a framework has them: norm, matrix, RoPE and cache, sums, activation.
// constants: as those of `persistent`. Attention, and what stands behind the layers, are those of `phases`.
#include "phases.cuh"

// y = norm(x), by one block. `which`: the layer's first norm (0) or its second.
extern "C" __global__ void __launch_bounds__(THREADS)
    norm_row(const float *vectors, const float *x, float *y, int layer, int which) {
    __shared__ Shared shared;
    Vectors own(vectors, layer);
    Fours<WIDTH> residual(Work((float *)x), RESIDUAL);
    NormOfRow(true, which == 0 ? own.norm_1 : own.norm_2).each(shared, residual, [&](int column, bool there, float4 four) {
        if (there) {
            *(float4 *)(y + column) = four;
        }
    });
}

// y = matrix · x + bias. Llama's MLP: first the gates of all units, then their other halves.
extern "C" __global__ void __launch_bounds__(THREADS + 32)
    matrix(const unsigned char *weights, const float *vectors, const float *x, float *y, Launch launch) {
    extern __shared__ __align__(128) char memory[];
    __shared__ Shared shared;
    begin_block(shared);
    Ring ring(memory, shared.barriers, shared.shares, launch);
    if (threadIdx.x >= THREADS) {
        if (threadIdx.x == THREADS) {
            ring.send((const char *)weights, nullptr, launch.layer, launch.phase, 0, launch.context);
        }
        return;
    }
    int matrix = launch.phase;
    Vectors own(vectors, launch.layer);
    const float *bias = matrix == QKV ? own.qkv : matrix == OUT ? own.out : matrix == UP ? own.up : own.down;
    if (matrix == OUT) {
        put_all_of<QUERY>(shared, Work((float *)x), 0);
    } else if (matrix == DOWN) {
        put_all_of<INNER>(shared, Work((float *)x), 0);
    } else {
        put_all_of<WIDTH>(shared, Work((float *)x), 0);
    }
    auto place = [&](int row, int side) {
        return matrix == QKV ? qkv_place(row, side) : matrix == UP && LLAMA ? row / 2 + side * INNER : row + side;
    };
    multiply_rows<ANY>(
        ring, shared, matrix, shared.shares[matrix], [](int, bool) { return make_float2(0, 0); },
        [&](int row, float2 sum, float2) {
            y[place(row, 0)] = sum.x + (LLAMA ? 0.0f : bias[place(row, 0)]);
            y[place(row, 1)] = sum.y + (LLAMA ? 0.0f : bias[place(row, 1)]);
        });
}

// RoPE turns q and k; k and v go into the cache. A thread takes a pair.
extern "C" __global__ void __launch_bounds__(THREADS)
    keep(const float *qkv, const float *angles, bf16 *caches, const int *state, float *work, int layer, int context) {
    int row = 2 * (blockIdx.x * THREADS + threadIdx.x), now = state[0];
    if (row >= QUERY + 2 * KEYS) {
        return;
    }
    int at = qkv_place(row, 0), column = at % HEAD;
    float2 value = make_float2(qkv[at], qkv[at + HEAD / 2]);
    if (LLAMA && row < QUERY + KEYS) {
        float2 angle = ((const float2 *)angles)[(size_t)now * (HEAD / 2) + column];
        value = make_float2(value.x * angle.x - value.y * angle.y, value.y * angle.x + value.x * angle.y);
    }
    work[QUERIES + at] = value.x;
    work[QUERIES + at + HEAD / 2] = value.y;
    if (at >= QUERY) {
        bf16 *to = caches + (((size_t)layer * 2 * KV_HEADS + (at - QUERY) / HEAD) * context + now) * HEAD;
        to[column] = value.x;
        to[column + HEAD / 2] = value.y;
    }
}

// What the parts of the context have gathered, of all heads.
extern "C" __global__ void __launch_bounds__(THREADS) gather(const float *work, float *y) {
    int column = 4 * (blockIdx.x * THREADS + threadIdx.x);
    if (column < QUERY) {
        *(float4 *)(y + column) = Gathered(Work((float *)work), column).merged();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) add(float *x, const float *y) {
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < WIDTH) {
        x[i] += y[i];
    }
}

// The MLP's units.
extern "C" __global__ void __launch_bounds__(THREADS) activate(const float *x, float *y) {
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < INNER) {
        y[i] = LLAMA ? x[i] / (1.0f + __expf(-x[i])) * x[INNER + i] : gelu(x[i]);
    }
}
