// What happens to a token, in phases: each needs all of the one before it. A block does its part of a phase once `await`
// says that the former phase has ended everywhere; what does not depend on that it has loaded by then.
#pragma once
#include "rows.cuh"

// The kernels' arguments.
struct Model {
    const char *weights;
    const float *vectors;
    const bf16 *table, *positions; // of tokens; GPT-2's of positions
    bf16 *caches;                  // of each layer the keys of all heads, then their values
    Work work;
    const int *state; // the position that is read, the prompt's length, the seed, the bits of the temperature
    int layers, context, now;
};

// The cosines and sines of the token's position.
__device__ void load_angles(Shared &shared, const float *angles, int now) {
    for (int i = threadIdx.x; LLAMA && i < HEAD / 2; i += THREADS) {
        shared.angles[i] = ((const float2 *)angles)[(size_t)now * (HEAD / 2) + i];
    }
    consumers_sync();
}

// The norm of the residual: its scales (and biases) are loaded early.
struct NormOfRow {
    static constexpr int FOURS = Fours<WIDTH>::COUNT;
    float4 scale[FOURS], bias[FOURS];

    __device__ NormOfRow(const float *norm) {
#pragma unroll
        for (int i = 0; i < FOURS; ++i) {
            int at = i * THREADS + threadIdx.x;
            scale[i] = bias[i] = make_float4(0, 0, 0, 0);
            if (at < WIDTH / 4) {
                scale[i] = fetch(norm + 4 * at);
                if (!LLAMA) {
                    bias[i] = fetch(norm + WIDTH + 4 * at);
                }
            }
        }
    }

    // x = norm(residual), as the products read it.
    __device__ void apply(Shared &shared, const Work &work) const {
        each(shared, Fours<WIDTH>(work, RESIDUAL), [&](int column, bool there, float4 x) { put(shared, column, there, x); });
        consumers_sync();
    }

    // Gives four neighbours of norm(residual) at a time; by whole warps, also where nothing is there.
    template <class Give>
    __device__ void each(Shared &shared, const Fours<WIDTH> &residual, Give give) const {
        float4 own[FOURS];
        float sum = 0.0f, squares = 0.0f;
#pragma unroll
        for (int i = 0; i < FOURS; ++i) {
            own[i] = residual.is_there(i) ? residual.four[i] : make_float4(0, 0, 0, 0);
            sum += own[i].x + own[i].y + own[i].z + own[i].w;
            squares += own[i].x * own[i].x + own[i].y * own[i].y + own[i].z * own[i].z + own[i].w * own[i].w;
        }
        sum = warp_sum(sum);
        squares = warp_sum(squares);
        if (threadIdx.x % 32 == 0) {
            shared.block[threadIdx.x / 32] = make_float2(sum, squares);
        }
        consumers_sync();
        sum = squares = 0.0f;
#pragma unroll
        for (int warp = 0; warp < WARPS; ++warp) {
            sum += shared.block[warp].x;
            squares += shared.block[warp].y;
        }
        float mean = LLAMA ? 0.0f : sum / WIDTH;
        float factor = rsqrtf(fmaxf(squares / WIDTH - mean * mean, 0.0f) + 1e-5f);
#pragma unroll
        for (int i = 0; i < FOURS; ++i) {
            int at = i * THREADS + threadIdx.x;
            float4 x;
            x.x = (own[i].x - mean) * factor * scale[i].x + bias[i].x;
            x.y = (own[i].y - mean) * factor * scale[i].y + bias[i].y;
            x.z = (own[i].z - mean) * factor * scale[i].z + bias[i].z;
            x.w = (own[i].w - mean) * factor * scale[i].w + bias[i].w;
            give(4 * at, at < WIDTH / 4, x);
        }
    }
};

// Two biases that stand `apart`; those of the first rows are loaded before the wait.
struct Biases {
    float2 own = {0, 0};

    template <class Place>
    __device__ Biases(const float *biases, Share share, Place place) {
        if (!LLAMA && 2 * threadIdx.x < share.rows) {
            int row = share.first + 2 * threadIdx.x;
            own = make_float2(fetch_one(biases + place(row, 0)), fetch_one(biases + place(row, 1)));
        }
    }

    template <class Place>
    __device__ float2 of(const float *biases, int row, bool first, Place place) const {
        return LLAMA || first ? own : make_float2(biases[place(row, 0)], biases[place(row, 1)]);
    }
};

// Of a head, rows i and i + HEAD / 2 are neighbours: where the one and the other belong.
__device__ int qkv_place(int row, int side) {
    return row / HEAD * HEAD + row % HEAD / 2 + side * (HEAD / 2);
}

// norm → q, k, v; RoPE; k and v go into the cache.
template <class Await>
__device__ void qkv_phase(const Model &model, Ring &ring, Shared &shared, int layer, Await await) {
    Vectors vectors(model.vectors, layer);
    Share share(QKV, layer);
    auto place = qkv_place;
    Biases biases(vectors.qkv, share, place);
    NormOfRow norm(vectors.norm_1);
    await();
    norm.apply(shared, model.work);
    multiply_rows<QKV>(
        ring, shared, share, [&](int row, bool first) { return biases.of(vectors.qkv, row, first, place); },
        [&](int row, float2 sum, float2 bias) {
            float2 value = make_float2(sum.x + bias.x, sum.y + bias.y);
            if (LLAMA && row < QUERY + KEYS) {
                float2 angle = shared.angles[row % HEAD / 2];
                value = make_float2(value.x * angle.x - value.y * angle.y, value.y * angle.x + value.x * angle.y);
            }
            int at = place(row, 0);
            model.work.write(QUERIES + at, value.x);
            model.work.write(QUERIES + at + HEAD / 2, value.y);
            if (at >= QUERY) {
                // Of a layer's cache the keys come first, as here: both are heads, one behind the other.
                int head = (at - QUERY) / HEAD, column = at % HEAD;
                bf16 *to = model.caches + (((size_t)layer * 2 * KV_HEADS + head) * model.context + model.now) * HEAD;
                to[column] = value.x;
                to[column + HEAD / 2] = value.y;
            }
        });
}

// Attention over a part of the positions, for HEADS_EACH heads of queries that share a head of keys.
template <class Await>
__device__ void attention_phase(const Model &model, Ring &ring, Shared &shared, int layer, Await await) {
    constexpr int PART = HEAD / 8; // lanes that share a position
    const float SCALE = rsqrtf(HEAD) * 1.442695041f; // exp2 is what the hardware has
    int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, part = lane % PART;
    await();
#pragma unroll 1
    for (int unit = rank_in(layer, ATTENTION); unit < Positions::COUNT; unit += blocks()) {
        Positions positions(unit, model.now);
        // The lane's eight of a head of the token's queries, keys or values.
        auto eight = [&](int begin, float (&numbers)[8]) {
            int from = QUERIES + begin + 8 * part, at[4] = {from, from + 2, from + 4, from + 6};
            float2 pairs[4];
            model.work.read(at, pairs);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                numbers[2 * i] = pairs[i].x, numbers[2 * i + 1] = pairs[i].y;
            }
        };
        float query[HEADS_EACH][8];
        Partial softmax[HEADS_EACH];
#pragma unroll
        for (int head = 0; head < HEADS_EACH; ++head) {
            float numbers[8];
            eight((positions.first + head) * HEAD, numbers);
            softmax[head].most = -1e30f, softmax[head].total = 0.0f;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                query[head][i] = numbers[i] * SCALE;
                softmax[head].values[i] = 0.0f;
            }
        }
        auto see = [&](uint4 key, uint4 value, bool there) {
#pragma unroll
            for (int head = 0; head < HEADS_EACH; ++head) {
                softmax[head].see<PART>(key, value, query[head], there);
            }
        };
#pragma unroll 1
        for (int from = positions.from; from < positions.to; from += SLOT_POSITIONS) {
            int count = min(SLOT_POSITIONS, positions.to - from);
            const uint4 *keys = (const uint4 *)ring.take(), *values = keys + SLOT_POSITIONS * PART;
#pragma unroll 1
            for (int first = warp * (32 / PART); first < count; first += THREADS / PART) {
                int at = first + lane / PART;
                bool there = at < count;
                at = there ? at : first;
                see(keys[at * PART + part], values[at * PART + part], there);
            }
            ring.release();
        }
        if (positions.split == SPLITS - 1 && warp == 0) {
            // The token's own: rounded, as the cache keeps them.
            float key[8], value[8];
            eight(QUERY + positions.head * HEAD, key);
            eight(QUERY + KEYS + positions.head * HEAD, value);
            auto rounded = [](const float (&x)[8]) {
                return make_uint4(pair(x[0], x[1]), pair(x[2], x[3]), pair(x[4], x[5]), pair(x[6], x[7]));
            };
            see(rounded(key), rounded(value), lane < PART);
        }
#pragma unroll
        for (int head = 0; head < HEADS_EACH; ++head) {
            softmax[head].merge_warp<PART>(shared.seen[head][warp]);
        }
        consumers_sync();
#pragma unroll 1
        for (int i = thread; i < HEADS_EACH * HEAD; i += THREADS) {
            float most, total, value = merged(shared.seen[i / HEAD], WARPS, i % HEAD, &most, &total);
            int place = (positions.first + i / HEAD) * SPLITS + positions.split;
            model.work.write(GATHERED + place * HEAD + i % HEAD, value);
            if (i % HEAD == 0) {
                model.work.write(WEIGHED + 2 * place, make_float2(most, total));
            }
        }
        consumers_sync();
    }
}

// What the parts of the context have gathered for four neighbouring columns of a head.
__device__ float4 gathered(const Work &work, int column) {
    int head = column / HEAD, at[3 * SPLITS];
    float2 pairs[3 * SPLITS], weights[SPLITS];
    float4 values[SPLITS];
#pragma unroll
    for (int split = 0; split < SPLITS; ++split) {
        at[3 * split] = GATHERED + (head * SPLITS + split) * HEAD + column % HEAD;
        at[3 * split + 1] = at[3 * split] + 2;
        at[3 * split + 2] = WEIGHED + 2 * (head * SPLITS + split);
    }
    work.read(at, pairs);
#pragma unroll
    for (int split = 0; split < SPLITS; ++split) {
        float2 a = pairs[3 * split], b = pairs[3 * split + 1];
        values[split] = make_float4(a.x, a.y, b.x, b.y);
        weights[split] = pairs[3 * split + 2];
    }
    float most = -1e30f, total = 0.0f;
#pragma unroll
    for (int split = 0; split < SPLITS; ++split) {
        most = fmaxf(most, weights[split].x);
    }
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int split = 0; split < SPLITS; ++split) {
        float factor = exp2f(weights[split].x - most);
        total += weights[split].y * factor;
        sum.x += values[split].x * factor, sum.y += values[split].y * factor;
        sum.z += values[split].z * factor, sum.w += values[split].w * factor;
    }
    return make_float4(sum.x / total, sum.y / total, sum.z / total, sum.w / total);
}

// residual += matrix · x + bias; `put_x` brings x.
template <int MATRIX, class Await, class Put>
__device__ void added_phase(const Model &model, const float *bias, Ring &ring, Shared &shared, int layer, Await await,
                            Put put_x) {
    Share share(MATRIX, layer);
    auto place = [](int row, int side) { return row + side; };
    Biases biases(bias, share, place);
    await();
    // This block has seen all of the residual, when it took its norm.
    auto former = [&](int row) {
        int at[1] = {RESIDUAL + row};
        float2 pair[1];
        model.work.read(at, pair);
        return pair[0];
    };
    float2 first_pair = make_float2(0, 0);
    if (2 * threadIdx.x < share.rows) {
        first_pair = former(share.first + 2 * threadIdx.x);
    }
    put_x();
    multiply_rows<MATRIX>(
        ring, shared, share,
        [&](int row, bool first) {
            float2 add = biases.of(bias, row, first, place), old = first ? first_pair : former(row);
            return make_float2(add.x + old.x, add.y + old.y);
        },
        [&](int row, float2 sum, float2 kept) {
            model.work.write(RESIDUAL + row, make_float2(sum.x + kept.x, sum.y + kept.y));
        });
}

template <class Await>
__device__ void out_phase(const Model &model, Ring &ring, Shared &shared, int layer, Await await) {
    added_phase<OUT>(model, Vectors(model.vectors, layer).out, ring, shared, layer, await, [&] {
        put_all<QUERY>(shared, [&](int column) { return gathered(model.work, column); });
    });
}

template <class Await>
__device__ void up_phase(const Model &model, Ring &ring, Shared &shared, int layer, Await await) {
    Vectors vectors(model.vectors, layer);
    Share share(UP, layer);
    auto place = [](int row, int side) { return row + side; };
    Biases biases(vectors.up, share, place);
    NormOfRow norm(vectors.norm_2);
    await();
    norm.apply(shared, model.work);
    multiply_rows<UP>(
        ring, shared, share, [&](int row, bool first) { return biases.of(vectors.up, row, first, place); },
        [&](int row, float2 sum, float2 bias) {
            if (LLAMA) {
                float unit = sum.x / (1.0f + __expf(-sum.x)) * sum.y;
                model.work.write(UNITS + row / 2, unit);
            } else {
                float2 units = make_float2(gelu(sum.x + bias.x), gelu(sum.y + bias.y));
                model.work.write(UNITS + row, units);
            }
        });
}

template <class Await>
__device__ void down_phase(const Model &model, Ring &ring, Shared &shared, int layer, Await await) {
    added_phase<DOWN>(model, Vectors(model.vectors, layer).down, ring, shared, layer, await, [&] {
        Fours<INNER> units(model.work, UNITS);
#pragma unroll
        for (int i = 0; i < units.COUNT; ++i) {
            put(shared, units.column(i), units.is_there(i), units.four[i]);
        }
        consumers_sync();
    });
}

// The logits, and the best of them, or the one that is drawn.
template <class Await>
__device__ void logits_phase(const Model &model, Ring &ring, Shared &shared, float *logits, unsigned long long *best,
                             Await await) {
    NormOfRow norm(Vectors(model.vectors, model.layers).norm_1);
    await();
    norm.apply(shared, model.work);
    unsigned long long own = 0;
    multiply_rows<LOGITS>(
        ring, shared, Share(LOGITS, model.layers), [](int, bool) { return make_float2(0, 0); },
        [&](int row, float2 sum, float2) {
            logits[row] = sum.x;
            own = max(own, ranked(drawn(sum.x, row, model.state), row));
            if (row + 1 < VOCABULARY) {
                logits[row + 1] = sum.y;
                own = max(own, ranked(drawn(sum.y, row + 1, model.state), row + 1));
            }
        });
    keep_best(own, best);
}

// ---- The end of a token, by the last block that comes here.
__device__ bool is_last(Shared &shared, unsigned int *done) {
    consumers_sync();
    if (threadIdx.x == 0) {
        __threadfence();
        shared.last = atomicAdd(done, 1) == blocks() - 1;
        __threadfence();
    }
    consumers_sync();
    return shared.last;
}

// The residual of the token at a position, by one block.
__device__ void embed_token(const bf16 *table, const bf16 *positions, const int *tokens, int position, const Work &work,
                            unsigned long long *best) {
    const bf16 *token = table + (size_t)__ldcg(tokens + position) * WIDTH;
    for (int i = threadIdx.x; i < WIDTH; i += THREADS) {
        float place = LLAMA ? 0.0f : (float)positions[(size_t)position * WIDTH + i];
        work.write(RESIDUAL + i, (float)token[i] + place);
    }
    if (threadIdx.x == 0) {
        *best = 0;
    }
}

// The next token is the prompt's own while there is one, then the best. The position moves on.
__device__ void next_token(const Model &model, int *tokens, int *state, unsigned long long *best) {
    int next = model.now + 1;
    if (threadIdx.x == 0) {
        if (next >= state[1] && next < model.context) {
            tokens[next] = 0xffffffffu - (unsigned int)__ldcg(best);
        }
        state[0] = next;
    }
    consumers_sync();
    if (next < model.context) {
        embed_token(model.table, model.positions, tokens, next, model.work, best);
    }
}

// By all blocks, behind the logits.
__device__ void end_token(const Model &model, Shared &shared, int *tokens, int *state, unsigned long long *best,
                          unsigned int *arrived) {
    if (is_last(shared, arrived + 1)) {
        next_token(model, tokens, state, best);
        if (threadIdx.x == 0) {
            atomicExch(arrived, 0);
            atomicExch(arrived + 1, 0);
        }
    }
}
