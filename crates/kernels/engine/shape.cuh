// The model's shape, where its weights lie, and which of them a block takes.
//
// All matrices lie in one piece of memory, layer after layer, in the order in which a token meets them. A block takes some
// neighbouring rows of each; they lie as the tensor cores read them: of up to 16 rows (a tile) the first 64 bytes of each
// row (a step), then the next 64 bytes of each. SLOT_STEPS of a tile's steps (a stage) are one copy to shared memory. With
// BITS 8 or 4 a stage ends with its scales: of each row one bf16 a step.
#pragma once
#include "../matmul_bf16/ampere.cuh"
#include "../matmul_bf16/hopper.cuh"
#include "parts.cuh"

// The phases of a layer and the last one. With CLUSTER blocks for a head, all of attention is one phase: its matrices belong
// to ATTENTION. With MERGED the MLP is one phase: UP.
enum Phase { QKV, ATTENTION, OUT, UP, DOWN, LOGITS };
// To see what a part costs, the persistent kernel does without it: WITHOUT is a sum of these, and the result is wrong.
enum Part { MEETINGS = 1, WEIGHTS = 2, PRODUCTS = 4, POSITIONS = 8, INPUTS = 16 };
constexpr int ATTENTION_PHASES = CLUSTER > 1 ? 1 : 3, PHASES = ATTENTION_PHASES + (MERGED ? 1 : 2);

// The phase at a place in a layer.
__device__ constexpr int phase_at(int place) {
    return CLUSTER == 1 ? place : place == 0 ? ATTENTION : UP + place - 1;
}

// Phases that are one for two matrices add to the residual: those of a layer, and those before this one.
constexpr int ADDING = (CLUSTER > 1) + MERGED;
__device__ constexpr int adding_before(int layer, int phase) {
    return layer * ADDING + (CLUSTER > 1 && phase > ATTENTION && phase < LOGITS);
}

constexpr int QUERY = HEADS * HEAD, KEYS = KV_HEADS * HEAD, GROUPED = HEADS / KV_HEADS;
constexpr int TILE = 16, STEP_BYTES = 64, STEP = STEP_BYTES * 8 / BITS; // STEP: columns
static_assert(WIDTH % STEP == 0 && QUERY % STEP == 0 && INNER % STEP == 0, "rows are whole steps");
static_assert(HEAD % 8 == 0 && HEAD <= 256, "lanes share a head by eights");
static_assert(HEADS % KV_HEADS == 0 && GROUPED % HEADS_EACH == 0, "heads are whole groups");
static_assert(ADDING == 0 || (BITS == 16 && !LLAMA), "fewer phases are for GPT-2 in bf16");
static_assert(CLUSTER == 1 || (GROUPED == 1 && HEADS_EACH == 1 && SPLITS == CLUSTER), "a cluster has a head");
static_assert(CLUSTER == 1 || (HEAD % STEP == 0 && WIDTH % (CLUSTER * TILE) == 0), "tiles are whole");

constexpr int SLICE = 3 * HEAD / CLUSTER; // rows of a head's q, k and v, for a block of its cluster
static_assert(CLUSTER == 1 || (3 * HEAD % CLUSTER == 0 && SLICE % 2 == 0), "rows come in pairs");

// Rows come in pairs that one thread finishes: of q and k the two numbers that RoPE turns, i and i + HEAD / 2; of Llama's
// MLP a unit's gate and its other half. An odd vocabulary has a row of zeros at its end.
__device__ constexpr int rows_of(int matrix) {
    return matrix == QKV      ? QUERY + 2 * KEYS
           : matrix == UP     ? (LLAMA ? 2 : 1) * INNER
           : matrix == LOGITS ? (VOCABULARY + 1) / 2 * 2
                              : WIDTH;
}
__device__ constexpr int columns_of(int matrix) {
    return matrix == OUT ? QUERY : matrix == DOWN ? INNER : WIDTH;
}
__device__ constexpr int steps_of(int matrix) {
    return columns_of(matrix) / STEP;
}
// Bytes of a row in a stage of so many steps.
__device__ constexpr int stage_bytes(int steps) {
    return steps * STEP_BYTES + (BITS == 16 ? 0 : (2 * steps + 15) / 16 * 16);
}
__device__ constexpr int bytes_of_row(int columns) {
    int steps = columns / STEP, rest = steps % SLOT_STEPS;
    return steps / SLOT_STEPS * stage_bytes(SLOT_STEPS) + (rest > 0 ? stage_bytes(rest) : 0);
}
__device__ constexpr int row_bytes(int matrix) {
    constexpr int out = bytes_of_row(QUERY), down = bytes_of_row(INNER), others = bytes_of_row(WIDTH);
    return matrix == OUT ? out : matrix == DOWN ? down : others;
}
__device__ constexpr size_t matrix_bytes(int matrix) {
    return (size_t)rows_of(matrix) * row_bytes(matrix);
}
// Where a matrix begins.
__device__ constexpr size_t begin_of(int matrix, int layer) {
    constexpr size_t out = matrix_bytes(QKV), up = out + matrix_bytes(OUT), down = up + matrix_bytes(UP),
                     all = down + matrix_bytes(DOWN);
    return layer * all + (matrix == OUT ? out : matrix == UP ? up : matrix == DOWN ? down : 0);
}

// The norms' scales and biases, and the biases, of a layer; behind the last layer those of the last norm.
struct Vectors {
    const float *norm_1, *qkv, *out, *norm_2, *up, *down;
    static constexpr int NORM = LLAMA ? WIDTH : 2 * WIDTH;
    static constexpr int ALL = 2 * NORM + (LLAMA ? 0 : QUERY + 2 * KEYS + 2 * WIDTH + INNER);

    __device__ Vectors(const float *all, int layer) {
        norm_1 = all + (size_t)layer * ALL;
        qkv = norm_1 + NORM;
        out = LLAMA ? qkv : qkv + QUERY + 2 * KEYS;
        norm_2 = LLAMA ? out : out + WIDTH;
        up = norm_2 + NORM;
        down = up + INNER;
    }
};

// Blocks that share a phase.
__device__ int blocks() {
    return (int)gridDim.x;
}

// Where a block stands in a phase: ranks turn from phase to phase, so that no block has the larger share each time. What a block
// writes in a layer it writes in each.
__device__ int rank_in(int phase) {
    return (int)((blockIdx.x + phase * 37u) % gridDim.x);
}

// Rows that this block takes.
struct Share {
    int first, rows;
};

__device__ Share share_of(int matrix) {
    unsigned int rank = rank_in(matrix), pairs = rows_of(matrix) / 2;
    int first = 2 * (int)(pairs * rank / blocks());
    return {first, 2 * (int)(pairs * (rank + 1) / blocks()) - first};
}

// The steps of DOWN's columns, and the rows of UP that give them, that this block takes when both are one phase.
struct Units {
    int first, steps;

    __device__ Units() {
        unsigned int rank = rank_in(UP), all = steps_of(DOWN);
        first = (int)(all * rank / blocks());
        steps = (int)(all * (rank + 1) / blocks()) - first;
    }

    __device__ Share rows() const {
        return {STEP * first, STEP * steps};
    }
};

// Attention's work: the positions [from, to) in front of the token's own, for HEADS_EACH heads of queries that share a
// head of keys. The last part has the token's own position, too.
struct Positions {
    int first, head, split, from, to; // first: of the heads of queries; head: of keys
    static constexpr int COUNT = HEADS / HEADS_EACH * SPLITS;

    __device__ Positions(int unit, int now) {
        first = unit / SPLITS * HEADS_EACH, split = unit % SPLITS;
        head = first / GROUPED;
        from = (int)((long long)now * split / SPLITS);
        to = (int)((long long)now * (split + 1) / SPLITS);
    }
};
