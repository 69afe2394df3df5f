// idea: one kernel for each operator of the model, as a framework has them; each one waits for the one before it.
// constants: WIDTH of the model, HEAD, the head dimension; THREADS per block.
#include "parts.cuh"

constexpr int PART = HEAD / 8; // lanes that share a position

// y = norm(x), by one block.
extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm(const float *x, const float *weight, const float *bias, float *y) {
    __shared__ Row row;
    Norm norm;
    norm.fetch_weights(weight, bias);
    norm.apply(x, row);
    for (int at = threadIdx.x; at < WIDTH / 4; at += THREADS) {
        ((float4 *)y)[at] = row.halves[at % 2][at / 2];
    }
}

// y = weights · x + bias, a warp for each row of the weights.
extern "C" __global__ void __launch_bounds__(THREADS)
    matvec(const bf16 *weights, const float *bias, const float *x, float *y, int rows, int columns) {
    int row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) {
        return;
    }
    float sum = 0.0f;
    for (int at = lane; at < columns / 8; at += 32) {
        float4 a = ((const float4 *)x)[2 * at], b = ((const float4 *)x)[2 * at + 1];
        float own[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        sum = dot(fetch(weights + (size_t)row * columns + 8 * at), own, sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        y[row] = sum + bias[row];
    }
}

// The position's key and value go into the cache, which holds the keys of all heads, then the values.
extern "C" __global__ void __launch_bounds__(THREADS)
    keep(const float *qkv, bf16 *caches, const int *state, int layer, int context) {
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < WIDTH) {
        bf16 *cache = caches + (size_t)layer * 2 * WIDTH * context;
        size_t at = ((size_t)(i / HEAD) * context + state[0]) * HEAD + i % HEAD;
        cache[at] = qkv[WIDTH + i];
        cache[at + (size_t)WIDTH * context] = qkv[2 * WIDTH + i];
    }
}

// y = softmax(q · keys / √HEAD) · values, a block for each head.
extern "C" __global__ void __launch_bounds__(THREADS)
    attend(const float *qkv, const bf16 *caches, const int *state, float *y, int layer, int context) {
    __shared__ float seen[WARPS][HEAD + 2];
    int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, part = lane % PART, head = blockIdx.x;
    let_next_start();
    wait_for_former();
    int count = state[0] + 1;
    const bf16 *cache = caches + (size_t)layer * 2 * WIDTH * context;
    const uint4 *keys = (const uint4 *)(cache + (size_t)head * context * HEAD);
    const uint4 *values = (const uint4 *)(cache + ((size_t)WIDTH + (size_t)head * HEAD) * context);
    const float SCALE = rsqrtf(HEAD) * 1.442695041f; // exp2 is what the hardware has
    float own_query[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        own_query[i] = __ldcg(qkv + head * HEAD + part * 8 + i) * SCALE;
    }
    Partial softmax = {-1e30f, 0.0f, {}};
    for (int first = warp * (32 / PART); first < count; first += THREADS / PART) {
        int at = first + lane / PART;
        bool there = at < count;
        at = there ? at : first;
        // The position's own key and value have just been written: they are in the L2 cache.
        uint4 value = __ldcg(values + at * PART + part);
        softmax.see<PART>(__ldcg(keys + at * PART + part), value, own_query, there);
    }
    softmax.merge_warp<PART>(seen[warp]);
    __syncthreads();
    if (thread < HEAD) {
        y[head * HEAD + thread] = merged(seen, WARPS, thread);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) add(float *x, const float *y, int n) {
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) {
        x[i] += y[i];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) gelu_each(float *x, int n) {
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) {
        x[i] = gelu(x[i]);
    }
}

// The largest logit's word, by one block.
extern "C" __global__ void __launch_bounds__(THREADS)
    argmax(const float *logits, const int *state, unsigned long long *best, int vocabulary) {
    unsigned long long own = 0;
    for (int row = threadIdx.x; row < vocabulary; row += THREADS) {
        own = max(own, ranked(drawn(logits[row], row, state), row));
    }
    keep_best(own, best);
}
