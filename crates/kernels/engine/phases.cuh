// What happens to a token, in phases: each needs all of the one before it. A block does its part of a phase once `await`
// says that the former phase has ended everywhere; what does not depend on that it has loaded by then.
#pragma once
#include "cluster.cuh"

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
    float4 scale[FOURS], bias[FOURS], added[FOURS];

    // `also`: biases that this block adds to the residual, for all blocks; or none. Without `normed` nothing is loaded.
    __device__ NormOfRow(bool normed, const float *norm, const float *also = nullptr) {
#pragma unroll
        for (int i = 0; i < FOURS; ++i) {
            int at = i * THREADS + threadIdx.x;
            scale[i] = bias[i] = added[i] = make_float4(0, 0, 0, 0);
            if (ADDING > 0 && also != nullptr && at < WIDTH / 4) {
                added[i] = fetch(also + 4 * at);
            }
            if (normed && at < WIDTH / 4) {
                scale[i] = fetch(norm + 4 * at);
                if (!LLAMA) {
                    bias[i] = fetch(norm + WIDTH + 4 * at);
                }
            }
        }
    }

    // x = norm(residual), as the products read it. `adds`: this block keeps what it is to add for all.
    __device__ void apply(Shared &shared, const Work &work, int begin, bool adds = false) const {
        Fours<WIDTH> residual(work, begin);
#pragma unroll
        for (int i = 0; ADDING > 0 && i < FOURS; ++i) {
            float4 old = residual.four[i], more = added[i];
            if (adds && residual.is_there(i)) {
                *(float4 *)(shared.base + residual.column(i)) =
                    make_float4(old.x + more.x, old.y + more.y, old.z + more.z, old.w + more.w);
            }
        }
        each(shared, residual, [&](int column, bool there, float4 x) { put(shared, column, there, x); });
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

// Of a head, rows i and i + HEAD / 2 are neighbours: where the one and the other belong.
__device__ int qkv_place(int row, int side) {
    return row / HEAD * HEAD + row % HEAD / 2 + side * (HEAD / 2);
}

// More positions, for each head of queries.
template <int PART, int MANY>
__device__ void see(Partial (&softmax)[HEADS_EACH], const float (&query)[HEADS_EACH][8], const uint4 (&keys)[MANY],
                    const uint4 (&values)[MANY], const bool (&there)[MANY]) {
#pragma unroll
    for (int head = 0; head < HEADS_EACH; ++head) {
        softmax[head].see<PART>(keys, values, query[head], there);
    }
}

// The token's own position.
template <int PART>
__device__ void see_own(Partial (&softmax)[HEADS_EACH], const float (&query)[HEADS_EACH][8], uint4 key, uint4 value) {
    const uint4 keys[1] = {key}, values[1] = {value};
    const bool there[1] = {threadIdx.x % 32 < PART};
    see<PART>(softmax, query, keys, values, there);
}

// The positions that come through the ring; of a slot, several are seen at once.
__device__ void see_positions(Ring &ring, Positions positions, const float (&query)[HEADS_EACH][8],
                              Partial (&softmax)[HEADS_EACH]) {
    constexpr int PART = HEAD / 8, ROUNDS = (SLOT_POSITIONS + ROUND - 1) / ROUND; // PART: lanes that share a position
    constexpr int MANY = HEADS_EACH > 1 ? 1 : ROUNDS < 4 ? ROUNDS : 4;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = lane % PART;
#pragma unroll 1
    for (int from = positions.from; from < positions.to; from += SLOT_POSITIONS) {
        int count = min(SLOT_POSITIONS, positions.to - from);
        const uint4 *all_keys = (const uint4 *)ring.take(), *all_values = all_keys + SLOT_POSITIONS * PART;
        int first = warp * (32 / PART);
#pragma unroll 1
        for (; !(WITHOUT & Part::POSITIONS) && first < count; first += MANY * ROUND) {
            uint4 keys[MANY], values[MANY];
            bool there[MANY];
#pragma unroll
            for (int i = 0; i < MANY; ++i) {
                int at = first + i * ROUND + lane / PART;
                there[i] = at < count;
                at = there[i] ? at : first;
                keys[i] = all_keys[at * PART + part], values[i] = all_values[at * PART + part];
            }
            see<PART>(softmax, query, keys, values, there);
        }
        ring.release();
    }
}

// Attention over a part of the positions, for HEADS_EACH heads of queries that share a head of keys.
template <class Await>
__device__ void attention_phase(const Model &model, Ring &ring, Shared &shared, int layer, Await await) {
    constexpr int PART = HEAD / 8; // lanes that share a position
    const float SCALE = rsqrtf(HEAD) * 1.442695041f; // exp2 is what the hardware has
    int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, part = lane % PART;
    await();
    shared.clock(2);
#pragma unroll 1
    for (int unit = rank_in(ATTENTION); unit < Positions::COUNT; unit += blocks()) {
        Positions positions(unit, model.now);
        // The lane's eight of the token's queries, then of its key and value: all are asked for at once.
        float4 fours[2 * (HEADS_EACH + 2)];
#pragma unroll
        for (int i = 0; i < HEADS_EACH + 2; ++i) {
            int begin = i < HEADS_EACH ? (positions.first + i) * HEAD
                                       : QUERY + (i - HEADS_EACH) * KEYS + positions.head * HEAD;
            fours[2 * i] = model.work.read_four(QUERIES + begin + 8 * part);
            fours[2 * i + 1] = model.work.read_four(QUERIES + begin + 8 * part + 4);
        }
        float query[HEADS_EACH][8];
        Partial softmax[HEADS_EACH];
#pragma unroll
        for (int head = 0; head < HEADS_EACH; ++head) {
            softmax[head].most = -1e30f, softmax[head].total = 0.0f;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const float4 &four = fours[2 * head + i / 4];
                query[head][i] = (i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w) * SCALE;
                softmax[head].values[i] = 0.0f;
            }
        }
        see_positions(ring, positions, query, softmax);
        if (positions.split == SPLITS - 1 && warp == 0) {
            // The token's own: rounded, as the cache keeps them.
            auto rounded = [](float4 a, float4 b) {
                return make_uint4(pair(a.x, a.y), pair(a.z, a.w), pair(b.x, b.y), pair(b.z, b.w));
            };
            const float4 *own = fours + 2 * HEADS_EACH;
            see_own<PART>(softmax, query, rounded(own[0], own[1]), rounded(own[2], own[3]));
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

// Attention where a cluster of blocks has a head, whose query, and the token's own key and value, are in shared memory: a
// block sees a part of the positions, and all blocks of the cluster get what each has gathered. It becomes x.
__device__ void cluster_attention(Ring &ring, Shared &shared, Positions positions, int times) {
    constexpr int PART = HEAD / 8;
    int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, part = lane % PART, rank = blockIdx.x % CLUSTER;
    meet(shared.met, times % 2);
    float query[HEADS_EACH][8]; // of one: see the assertions
    Partial softmax[HEADS_EACH] = {{-1e30f, 0.0f, {}}};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        query[0][i] = shared.query[8 * part + i];
    }
    see_positions(ring, positions, query, softmax);
    if (rank == CLUSTER - 1 && warp == 0) {
        const uint4 *own = (const uint4 *)shared.own;
        see_own<PART>(softmax, query, own[part], own[PART + part]);
    }
    softmax[0].merge_warp<PART>(shared.seen[0][warp]);
    consumers_sync();
    constexpr int SHARES = THREADS > HEAD ? THREADS / HEAD : 1; // of the blocks that get a number, by thread
    for (int i = thread; i < SHARES * HEAD; i += THREADS) {
        int column = i % HEAD;
        float most, total, value = merged(shared.seen[0], WARPS, column, &most, &total);
#pragma unroll
        for (int to = i / HEAD; to < CLUSTER; to += SHARES) {
            store_in_block(shared.parts[rank] + column, to, value);
            if (column == 0) {
                store_in_block(shared.parts[rank] + HEAD, to, most);
                store_in_block(shared.parts[rank] + HEAD + 1, to, total);
            }
        }
    }
    meet(shared.met + 1, times % 2);
    if (warp < (HEAD + 127) / 128) {
        bool there = 4 * thread < HEAD;
        float attended[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            attended[i] = merged(shared.parts, CLUSTER, (there ? 4 * thread : 0) + i);
        }
        put(shared, 4 * thread, there, make_float4(attended[0], attended[1], attended[2], attended[3]));
    }
    consumers_sync();
}

// What the parts of the context have gathered for four neighbouring columns of a head.
struct Gathered {
    float2 weights[SPLITS];
    float4 values[SPLITS];

    Gathered() = default;
    __device__ Gathered(const Work &work, int column) {
#pragma unroll
        for (int split = 0; split < SPLITS; ++split) {
            int place = column / HEAD * SPLITS + split;
            values[split] = work.read_four(GATHERED + place * HEAD + column % HEAD);
            weights[split] = work.read_pair(WEIGHED + 2 * place);
        }
    }

    __device__ float4 merged() const {
        float most = -1e30f, total = 0.0f;
#pragma unroll
        for (int split = 0; split < SPLITS; ++split) {
            most = fmaxf(most, weights[split].x);
        }
        float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int split = 0; split < SPLITS; ++split) {
            float factor = power_of_2(weights[split].x - most);
            total += weights[split].y * factor;
            sum.x += values[split].x * factor, sum.y += values[split].y * factor;
            sum.z += values[split].z * factor, sum.w += values[split].w * factor;
        }
        return make_float4(sum.x / total, sum.y / total, sum.z / total, sum.w / total);
    }
};

// It becomes x. With OWN_CODE all of it is asked for before the first is used.
__device__ void put_gathered(Shared &shared, const Work &work) {
    typedef Fours<QUERY> Columns;
    constexpr int AT_ONCE = OWN_CODE ? Columns::COUNT : 1;
#pragma unroll
    for (int first = 0; first < Columns::COUNT; first += AT_ONCE) {
        Gathered some[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            if (Columns::is_there(first + i)) {
                some[i] = Gathered(work, Columns::column(first + i));
            }
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            bool there = Columns::is_there(first + i);
            put(shared, Columns::column(first + i), there, there ? some[i].merged() : make_float4(0, 0, 0, 0));
        }
    }
    consumers_sync();
}

// Two numbers of the token's q, k or v, HEAD / 2 apart. k and v go into the cache. With CLUSTER the blocks of the cluster get
// the query; the last one has the token's own position. Keys and values are used as the cache keeps them.
__device__ void keep(const Model &model, Shared &shared, int layer, int at, int column, float2 value) {
    if constexpr (CLUSTER > 1) {
        const float SCALE = rsqrtf(HEAD) * 1.442695041f; // exp2 is what the hardware has
        if (at < QUERY) {
#pragma unroll(OWN_CODE ? CLUSTER : 1)
            for (int to = 0; to < CLUSTER; ++to) {
                store_in_block(shared.query + column, to, value.x * SCALE);
                store_in_block(shared.query + column + HEAD / 2, to, value.y * SCALE);
            }
        } else {
            bf16 *own = shared.own[(at - QUERY) / KEYS] + column;
            store_in_block(own, CLUSTER - 1, (bf16)value.x);
            store_in_block(own + HEAD / 2, CLUSTER - 1, (bf16)value.y);
        }
    } else {
        model.work.write(QUERIES + at, value.x);
        model.work.write(QUERIES + at + HEAD / 2, value.y);
    }
    if (at >= QUERY) {
        // Of a layer's cache the keys come first, as here: both are heads, one behind the other.
        int head = (at - QUERY) / HEAD;
        bf16 *to = model.caches + (((size_t)layer * 2 * KV_HEADS + head) * model.context + model.now) * HEAD;
        to[column] = value.x;
        to[column + HEAD / 2] = value.y;
    }
}

// A phase that is known at run time (ANY: all matrices share one piece of code), or at compile time: with OWN_CODE each phase
// has code of its own, in which what depends on the phase, and how many steps a row has, is decided already.
template <int PHASE>
struct Which {
    static constexpr int MATRIX = CLUSTER > 1 && PHASE == ATTENTION ? QKV : PHASE; // which it multiplies by
    int number;
    __device__ operator int() const { return PHASE == ANY ? number : PHASE; }
};

// A phase that multiplies by a matrix: x, the product, what becomes of it.
//
// Five phases a layer: norm → q, k, v, RoPE, cache; (attention;) what its parts have gathered → projection → residual;
// norm → the MLP's units; units → residual. With CLUSTER, attention is one phase: a cluster of blocks takes a head, each block
// a slice of the rows of q, k and v, a part of the positions, and a slice of the projection. With MERGED the MLP is one: a
// block owns units, their rows of UP and their columns of DOWN. Both add to the residual. `times`: how often this block has
// had a head before.
template <int PHASE, class Await>
__device__ void matrix_phase(const Model &model, Ring &ring, Shared &shared, int layer, Which<PHASE> phase, int &times,
                             float *logits, unsigned long long *best, Await await) {
    constexpr bool KNOWN = PHASE != ANY;
    bool heads = CLUSTER > 1 && phase == ATTENTION, in_units = MERGED && phase == UP, parts = heads || in_units;
    bool normed = phase != OUT && phase != DOWN;
    int matrix = heads ? QKV : (int)phase, addition = adding_before(layer, phase);
    int residual = residual_of(addition);
    Vectors vectors(model.vectors, layer);
    Units own;
    Share share = heads      ? Share{(int)blockIdx.x * SLICE, blockIdx.x < Positions::COUNT ? SLICE : 0}
                  : in_units ? own.rows()
                             : shared.shares[matrix];
    auto place = [&](int row, int side) {
        if (matrix != QKV) {
            return row + side;
        }
        if (CLUSTER == 1) {
            return qkv_place(row, side);
        }
        // Rows of a head's q, then its k, then its v.
        int head = row / (3 * HEAD), of = row % (3 * HEAD) / HEAD;
        return of * QUERY + head * HEAD + row % HEAD / 2 + side * (HEAD / 2);
    };
    // What does not depend on the former phase: biases, of the first rows, and the norm's scales.
    const float *bias = matrix == QKV  ? vectors.qkv
                        : matrix == OUT ? vectors.out
                        : matrix == UP  ? vectors.up
                                        : vectors.down;
    bool biased = !LLAMA && phase != LOGITS;
    auto biases = [&](int row) {
        return biased ? make_float2(fetch_one(bias + place(row, 0)), fetch_one(bias + place(row, 1)))
                      : make_float2(0, 0);
    };
    bool finishes = 2 * threadIdx.x < share.rows;
    int first_row = share.first + 2 * threadIdx.x;
    float2 first_pair = finishes ? biases(first_row) : make_float2(0, 0);
    // Of phases in parts, one block adds the biases of the residual for all.
    bool adds = heads ? blockIdx.x < CLUSTER : in_units && own.steps > 0 && own.first == 0;
    NormOfRow norm(normed, phase == UP ? vectors.norm_2 : vectors.norm_1,
                   !adds   ? nullptr
                   : heads ? vectors.out
                           : vectors.down);
    await();
    // OUT and DOWN add to the residual, which is there since the norm before them: it is asked for now, and used at the end.
    float2 old = make_float2(0, 0);
    auto ask = [&](int row) {
        if (!normed) {
            old = model.work.read_pair(residual + row);
        }
    };
    if (finishes) {
        ask(first_row);
    }
    if (parts) {
        model.work.clear_residual(addition + 2);
    }
    if (share.rows == 0 && phase != LOGITS) {
        shared.clock(2);
        return;
    }
    unsigned long long most = 0;
    int unit = blockIdx.x;
#pragma unroll 1
    do {
        Positions positions(heads ? unit : 0, model.now);
        bool first_unit = unit == blockIdx.x;
        if (!(WITHOUT & INPUTS)) {
            if (normed) {
                norm.apply(shared, model.work, residual, adds && (in_units || unit < CLUSTER));
            } else if (phase == OUT) {
                put_gathered(shared, model.work);
            } else {
                put_all_of<INNER>(shared, model.work, UNITS);
            }
        }
        shared.clock(2);
        multiply_rows<Which<PHASE>::MATRIX>(
            ring, shared, matrix, share,
            [&](int row, bool first) {
                if (first && first_unit) {
                    return first_pair;
                }
                ask(row);
                return biases(row);
            },
            [&](int row, float2 sum, float2 kept) {
                float2 value = make_float2(sum.x + kept.x + old.x, sum.y + kept.y + old.y);
                if (matrix == QKV) {
                    int at = place(row, 0), column = at % HEAD;
                    if (LLAMA && at < QUERY + KEYS) {
                        float2 angle = shared.angles[column];
                        value = make_float2(value.x * angle.x - value.y * angle.y,
                                            value.y * angle.x + value.x * angle.y);
                    }
                    keep(model, shared, layer, at, column, value);
                } else if (matrix == UP && LLAMA) {
                    model.work.write(UNITS + row / 2, value.x / (1.0f + __expf(-value.x)) * value.y);
                } else if (matrix == UP) {
                    value = make_float2(gelu(value.x), gelu(value.y));
                    if (MERGED) {
                        *(float2 *)(shared.units_of_block + row - share.first) = value;
                    } else {
                        model.work.write(UNITS + row, value);
                    }
                } else if (matrix == LOGITS) {
                    logits[row] = value.x;
                    most = max(most, ranked(drawn(value.x, row, model.state), row));
                    if (row + 1 < VOCABULARY) {
                        logits[row + 1] = value.y;
                        most = max(most, ranked(drawn(value.y, row + 1, model.state), row + 1));
                    }
                } else {
                    model.work.write(residual + row, value);
                }
            });
        if constexpr (CLUSTER > 1) {
            if (heads) {
                cluster_attention(ring, shared, positions, times++);
            }
        }
        if constexpr (MERGED) {
            if (in_units) {
                consumers_sync();
                int columns = own.steps * STEP;
                for (int first = 0; first < columns; first += 4 * THREADS) {
                    int column = first + 4 * threadIdx.x;
                    bool there = column < columns;
                    put(shared, column, there, *(const float4 *)(shared.units_of_block + (there ? column : 0)));
                }
                consumers_sync();
            }
        }
        if constexpr (CLUSTER > 1 || MERGED) {
            if (parts) {
                constexpr int OWN_ROWS = WIDTH / CLUSTER;
                int first = heads ? blockIdx.x % CLUSTER * OWN_ROWS : 0;
                bool also = adds && (in_units || unit < CLUSTER);
                auto add = [&](int row, float sum) {
                    float more = also ? shared.base[first + row] : 0.0f;
                    model.work.add(residual_of(addition + 1) + first + row, sum + more);
                };
                int tiles = (heads ? OWN_ROWS : WIDTH) / TILE, each = heads ? HEAD / STEP : own.steps;
                if (KNOWN && heads) {
                    multiply_tiles<HEAD / STEP>(ring, shared, tiles, each, add);
                } else if (KNOWN && each == 1) {
                    multiply_tiles<1>(ring, shared, tiles, each, add);
                } else {
                    multiply_tiles<0>(ring, shared, tiles, each, add);
                }
            }
        }
        unit += blocks();
        share.first += blocks() * SLICE;
        if (heads && unit < Positions::COUNT) {
            consumers_sync();
        }
    } while (heads && unit < Positions::COUNT);
    if (phase == LOGITS) {
        keep_best(most, best);
    }
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
        work.write(residual_of(0) + i, (float)token[i] + place);
        if (ADDING > 0) {
            work.write(residual_of(1) + i, 0.0f);
        }
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

// A phase of a layer, or the last one.
template <class Await>
__device__ void run_phase(const Model &model, Ring &ring, Shared &shared, int layer, int phase, int &times, float *logits,
                          unsigned long long *best, Await await) {
    constexpr int FIRST = CLUSTER > 1 ? ATTENTION : QKV;
    if (CLUSTER == 1 && phase == ATTENTION) {
        attention_phase(model, ring, shared, layer, await);
    } else if (!OWN_CODE) {
        matrix_phase(model, ring, shared, layer, Which<ANY>{phase}, times, logits, best, await);
    } else if (phase == FIRST) {
        matrix_phase(model, ring, shared, layer, Which<FIRST>{}, times, logits, best, await);
    } else if (CLUSTER == 1 && phase == OUT) {
        matrix_phase(model, ring, shared, layer, Which<OUT>{}, times, logits, best, await);
    } else if (phase == UP) {
        matrix_phase(model, ring, shared, layer, Which<UP>{}, times, logits, best, await);
    } else if (!MERGED && phase == DOWN) {
        matrix_phase(model, ring, shared, layer, Which<DOWN>{}, times, logits, best, await);
    } else {
        matrix_phase(model, ring, shared, layer, Which<LOGITS>{}, times, logits, best, await);
    }
}

// By all threads, before anything else. What a block takes of a matrix is the same in every layer. A block must have begun
// before others of its cluster write into it.
__device__ void begin_block(Shared &shared) {
    if (threadIdx.x <= LOGITS) {
        shared.shares[threadIdx.x] = share_of(threadIdx.x);
    }
    __syncthreads();
    if constexpr (CLUSTER > 1) {
        if (threadIdx.x == 0) {
            barrier_init(shared.met, CLUSTER);
            barrier_init(shared.met + 1, CLUSTER);
            barriers_are_ready();
        }
        cluster_sync();
    }
}
