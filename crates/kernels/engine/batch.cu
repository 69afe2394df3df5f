// idea: what stands between the products of a step that reads tokens of many texts, whose keys and values lie in blocks of one pool.
// constants: WIDTH, HEADS, KV_HEADS, HEAD, INNER, VOCABULARY: the model's shape (Llama); BLOCK: tokens of a block of the pool; THREADS.
#include "../gpt_step/rows.cuh"

constexpr int GROUPED = HEADS / KV_HEADS, WARPS = THREADS / 32;
constexpr int ATTENDERS = 256; // threads of batch_attend
// A head's numbers lie in LANES lanes, eight in each; a block reads STRIDE positions at once.
constexpr int LANES = HEAD / 8, STRIDE = ATTENDERS / LANES;
constexpr float EPSILON = 1e-5f;
constexpr int SEARCHERS = 1024; // threads of batch_best
constexpr int ROW = (HEADS + 2 * KV_HEADS) * HEAD; // of q, k and v
static_assert(HEADS % KV_HEADS == 0 && HEAD % 8 == 0 && 32 % LANES == 0, "heads are whole groups, and a warp holds whole heads");
static_assert(WIDTH % 8 == 0 && INNER % 8 == 0, "rows are read by eights");

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
    bf16 *row = qkv + (size_t)blockIdx.x * ROW;
    int position = plan[positions_at + blockIdx.x], slot = plan[slots_at + blockIdx.x];
    auto place = [&](int head) {
        return cache + (((size_t)(slot / BLOCK) * KV_HEADS + head) * BLOCK + slot % BLOCK) * HEAD;
    };
    for (int pair = threadIdx.x; pair < (HEADS + KV_HEADS) * (HEAD / 2); pair += THREADS) {
        int head = pair / (HEAD / 2), i = pair % (HEAD / 2);
        const float *angle = angles + ((size_t)position * (HEAD / 2) + i) * 2;
        bf16 *own = row + head * HEAD;
        float a = own[i], b = own[i + HEAD / 2];
        bf16 first = __float2bfloat16(a * angle[0] - b * angle[1]), second = __float2bfloat16(b * angle[0] + a * angle[1]);
        if (head < HEADS || slot >= 0) {
            bf16 *to = head < HEADS ? own : place(head - HEADS);
            to[i] = first;
            to[i + HEAD / 2] = second;
        }
    }
    bf16 *values = row + (HEADS + KV_HEADS) * HEAD;
    for (int i = threadIdx.x; slot >= 0 && i < KV_HEADS * HEAD; i += THREADS) {
        place(i / HEAD)[(size_t)slots * KV_HEADS * HEAD + i % HEAD] = values[i];
    }
}

// What rows' heads gather from their text, up to their own position; `rows_at`: where the plan lists these rows. A block takes a row, all
// heads of queries that share a head of keys, and one of `splits` parts of the text; LANES lanes go through every STRIDE-th position with
// an online softmax of their own, which are put together at the end. Of several parts each leaves what it has in `parts`.
extern "C" __global__ void __launch_bounds__(ATTENDERS)
    batch_attend(const bf16 *qkv, const bf16 *cache, const int *plan, int rows_at, int positions_at, int texts_at, int tables_at,
                 int slots, int splits, float *parts, bf16 *attended) {
    int row = plan[rows_at + blockIdx.x], head = blockIdx.y, lane = threadIdx.x % 32, part = lane % LANES, warp = threadIdx.x / 32;
    int own = threadIdx.x / LANES, keys = plan[positions_at + row] + 1;
    // Whole rounds, so that no position is in two parts.
    int each = (keys + splits * STRIDE - 1) / (splits * STRIDE) * STRIDE;
    int begin = blockIdx.z * each, end = min(keys, begin + each);
    const int *blocks = plan + tables_at + plan[texts_at + row];
    const bf16 *values = cache + (size_t)slots * KV_HEADS * HEAD;
    float q[GROUPED][8], most[GROUPED], sum[GROUPED], gathered[GROUPED][8];
    const float scale = rsqrtf((float)HEAD) * 1.4426950408889634f; // exponentials are powers of two
#pragma unroll
    for (int g = 0; g < GROUPED; ++g) {
        Eight eight = load_8(qkv + (size_t)row * ROW + (head * GROUPED + g) * HEAD + part * 8);
        most[g] = -1e30f, sum[g] = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            q[g][i] = eight[i] * scale;
            gathered[g][i] = 0.0f;
        }
    }
    // All lanes go round equally often: they exchange their shares of a score.
#pragma unroll 4
    for (int first = begin; first < end; first += STRIDE) {
        bool there = first + own < end;
        int position = there ? first + own : end - 1;
        size_t at = (((size_t)blocks[position / BLOCK] * KV_HEADS + head) * BLOCK + position % BLOCK) * HEAD + part * 8;
        Eight k = load_8(cache + at), v = load_8(values + at);
#pragma unroll
        for (int g = 0; g < GROUPED; ++g) {
            float score = 0.0f;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                score += q[g][i] * k[i];
            }
#pragma unroll
            for (int distance = LANES / 2; distance > 0; distance /= 2) {
                score += __shfl_xor_sync(~0u, score, distance);
            }
            float now = there ? fmaxf(most[g], score) : most[g];
            float weight = there ? exp2f(score - now) : 0.0f, kept = exp2f(most[g] - now);
            most[g] = now;
            sum[g] = sum[g] * kept + weight;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                gathered[g][i] = gathered[g][i] * kept + weight * v[i];
            }
        }
    }
    // First the lanes of a warp that hold the same numbers of the head, then the warps.
    __shared__ float mosts[GROUPED][ATTENDERS / 32], sums[GROUPED][ATTENDERS / 32], all[GROUPED][ATTENDERS / 32][HEAD];
#pragma unroll
    for (int g = 0; g < GROUPED; ++g) {
#pragma unroll
        for (int distance = 16; distance >= LANES; distance /= 2) {
            float other = __shfl_xor_sync(~0u, most[g], distance), now = fmaxf(most[g], other);
            float kept = exp2f(most[g] - now), taken = exp2f(other - now);
            most[g] = now;
            sum[g] = sum[g] * kept + __shfl_xor_sync(~0u, sum[g], distance) * taken;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                gathered[g][i] = gathered[g][i] * kept + __shfl_xor_sync(~0u, gathered[g][i], distance) * taken;
            }
        }
        if (lane == 0) {
            mosts[g][warp] = most[g], sums[g][warp] = sum[g];
        }
        if (lane < LANES) {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                all[g][warp][part * 8 + i] = gathered[g][i];
            }
        }
    }
    __syncthreads();
    for (int at = threadIdx.x; at < GROUPED * HEAD; at += ATTENDERS) {
        int g = at / HEAD, i = at % HEAD;
        float largest = mosts[g][0], total = 0.0f, weighted = 0.0f;
        for (int other = 1; other < ATTENDERS / 32; ++other) {
            largest = fmaxf(largest, mosts[g][other]);
        }
        for (int other = 0; other < ATTENDERS / 32; ++other) {
            float factor = exp2f(mosts[g][other] - largest);
            total += factor * sums[g][other];
            weighted += factor * all[g][other][i];
        }
        if (splits == 1) {
            attended[((size_t)row * HEADS + head * GROUPED + g) * HEAD + i] = __float2bfloat16(weighted / total);
        } else {
            float *to = parts + (((size_t)blockIdx.x * HEADS + head * GROUPED + g) * splits + blockIdx.z) * (HEAD + 2);
            to[i] = weighted;
            if (i == 0) {
                to[HEAD] = largest, to[HEAD + 1] = total;
            }
        }
    }
}

// Puts the parts of batch_attend together. A block takes a row's head.
extern "C" __global__ void __launch_bounds__(HEAD)
    batch_gather(const float *parts, const int *plan, int rows_at, int splits, bf16 *attended) {
    int head = blockIdx.y, i = threadIdx.x;
    const float *from = parts + ((size_t)blockIdx.x * HEADS + head) * splits * (HEAD + 2);
    float largest = from[HEAD], total = 0.0f, weighted = 0.0f;
    for (int part = 1; part < splits; ++part) {
        largest = fmaxf(largest, from[part * (HEAD + 2) + HEAD]);
    }
    for (int part = 0; part < splits; ++part) {
        const float *own = from + part * (HEAD + 2);
        float factor = exp2f(own[HEAD] - largest);
        total += factor * own[HEAD + 1];
        weighted += factor * own[i];
    }
    attended[((size_t)plan[rows_at + blockIdx.x] * HEADS + head) * HEAD + i] = __float2bfloat16(weighted / total);
}

// SwiGLU: of each row the gates, then the other half.
extern "C" __global__ void __launch_bounds__(THREADS) batch_swiglu(const bf16 *both, bf16 *units) {
    const bf16 *from = both + (size_t)blockIdx.x * 2 * INNER;
    for (int i = threadIdx.x * 8; i < INNER; i += THREADS * 8) {
        Eight gate = load_8(from + i), up = load_8(from + INNER + i);
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
