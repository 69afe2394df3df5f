// idea: what stands between the products of a step that reads tokens of many texts, whose keys and values lie in blocks of one pool.
// constants: WIDTH, HEADS, KV_HEADS, HEAD, INNER, VOCABULARY: the model's shape (Llama); BLOCK: tokens of a block of the pool; THREADS.
#include "../gpt_step/rows.cuh"

constexpr int WARPS = THREADS / 32;
constexpr float EPSILON = 1e-5f;
constexpr int SEARCHERS = 1024; // threads of batch_best
constexpr int ROW = (HEADS + 2 * KV_HEADS) * HEAD; // of q, k and v
static_assert(WIDTH % 8 == 0 && INNER % 8 == 0 && HEAD % 16 == 0, "rows and halves of heads are read by eights");

// `plan` holds what the host says of a step, one list behind the other: of each row its token, its position, where it stands in the pool,
// and where its text's blocks begin in the last list; which rows logits are asked of, and which have an attention of their own.

// The embedding of each row's token.
extern "C" __global__ void __launch_bounds__(THREADS) batch_embed(const bf16 *table, const int *plan, float *x) {
    const bf16 *from = table + (size_t)plan[blockIdx.x] * WIDTH;
    float *to = x + (size_t)blockIdx.x * WIDTH;
    for (int i = threadIdx.x * 8; i < WIDTH; i += THREADS * 8) {
        Eight eight = load_8(from + i);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            to[i + j] = eight[j];
        }
    }
}

// RMS norm of those rows of x that the plan lists from `rows_at` on, or of all where it is negative, in bf16.
extern "C" __global__ void __launch_bounds__(THREADS)
    batch_norm(const float *x, const float *scales, int scales_at, const int *plan, int rows_at, bf16 *y) {
    int row = rows_at < 0 ? blockIdx.x : plan[rows_at + blockIdx.x];
    const float *from = x + (size_t)row * WIDTH;
    float squares = 0.0f;
    for (int i = threadIdx.x * 8; i < WIDTH; i += THREADS * 8) {
        float numbers[8];
        load_floats(numbers, from + i);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            squares += numbers[j] * numbers[j];
        }
    }
    float factor = rsqrtf(block_sum<WARPS>(squares) / WIDTH + EPSILON);
    for (int i = threadIdx.x * 8; i < WIDTH; i += THREADS * 8) {
        float numbers[8];
        load_floats(numbers, from + i);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            numbers[j] *= factor * scales[scales_at + i + j];
        }
        store_8(y + (size_t)blockIdx.x * WIDTH + i, numbers);
    }
}

// Turns each row's queries and keys by its position (RoPE: i with i + HEAD / 2), and puts keys and values where they stay: the keys of all
// slots, then the values; of a block of slots one head after the other. A row without a place (-1) leaves none.
extern "C" __global__ void __launch_bounds__(THREADS)
    batch_rope(bf16 *qkv, const float *angles, const int *plan, int positions_at, int slots_at, int slots, bf16 *cache) {
    constexpr int EIGHTS = HEAD / 16, TURNED = (HEADS + KV_HEADS) * EIGHTS, KEPT = KV_HEADS * HEAD / 8;
    bf16 *row = qkv + (size_t)blockIdx.x * ROW;
    int position = plan[positions_at + blockIdx.x], slot = plan[slots_at + blockIdx.x];
    auto place = [&](int head) {
        return cache + (((size_t)(slot / BLOCK) * KV_HEADS + head) * BLOCK + slot % BLOCK) * HEAD;
    };
    for (int work = threadIdx.x; work < TURNED + KEPT; work += THREADS) {
        if (work < TURNED) {
            int head = work / EIGHTS, i = work % EIGHTS * 8;
            bf16 *own = row + head * HEAD + i;
            Eight a = load_8(own), b = load_8(own + HEAD / 2);
            const float *angle = angles + ((size_t)position * (HEAD / 2) + i) * 2;
            float first[8], second[8];
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                float2 of_pair = *(const float2 *)(angle + 2 * j);
                first[j] = a[j] * of_pair.x - b[j] * of_pair.y;
                second[j] = b[j] * of_pair.x + a[j] * of_pair.y;
            }
            if (head < HEADS || slot >= 0) {
                bf16 *to = head < HEADS ? own : place(head - HEADS) + i;
                store_8(to, first);
                store_8(to + HEAD / 2, second);
            }
        } else if (slot >= 0) {
            int i = (work - TURNED) * 8;
            bf16 *to = place(i / HEAD) + (size_t)slots * KV_HEADS * HEAD + i % HEAD;
            *(uint4 *)to = *(const uint4 *)(row + (HEADS + KV_HEADS) * HEAD + i);
        }
    }
}

// SwiGLU: of each row the gates, then the other half. blockIdx.y: which THREADS eights of the row.
extern "C" __global__ void __launch_bounds__(THREADS) batch_swiglu(const bf16 *both, bf16 *units) {
    int i = (blockIdx.y * THREADS + threadIdx.x) * 8;
    if (i < INNER) {
        const bf16 *from = both + (size_t)blockIdx.x * 2 * INNER + i;
        Eight gate = load_8(from), up = load_8(from + INNER);
        float numbers[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            numbers[j] = up[j] * gate[j] / (1.0f + __expf(-gate[j]));
        }
        store_8(units + (size_t)blockIdx.x * INNER + i, numbers);
    }
}

// The likeliest token of each row of logits, the first one of several; -1 where a logit is no number.
extern "C" __global__ void __launch_bounds__(SEARCHERS) batch_best(const float *logits, int *best) {
    const float *own = logits + (size_t)blockIdx.x * VOCABULARY;
    float largest = -3.402823466e38f;
    int at = 0;
    bool sound = true;
    for (int i = threadIdx.x; i < VOCABULARY; i += SEARCHERS) {
        sound = sound && own[i] == own[i];
        if (own[i] > largest) {
            largest = own[i], at = i;
        }
    }
    __shared__ float values[SEARCHERS];
    __shared__ int places[SEARCHERS];
    values[threadIdx.x] = largest, places[threadIdx.x] = at;
    sound = __syncthreads_and(sound);
    for (int half = SEARCHERS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            float other = values[threadIdx.x + half];
            int place = places[threadIdx.x + half];
            if (other > values[threadIdx.x] || (other == values[threadIdx.x] && place < places[threadIdx.x])) {
                values[threadIdx.x] = other, places[threadIdx.x] = place;
            }
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        best[blockIdx.x] = sound ? places[0] : -1;
    }
}

// One row of logits.
extern "C" __global__ void __launch_bounds__(THREADS) batch_row(const float *logits, int row, float *to) {
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < VOCABULARY) {
        to[i] = logits[(size_t)row * VOCABULARY + i];
    }
}
