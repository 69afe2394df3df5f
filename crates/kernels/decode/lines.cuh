// The end of a step: the logits, the next token, and its embedding.
#pragma once
#include "parts.cuh"

// Rows of the vocabulary's table that a warp has in flight.
struct Lines {
    uint4 weights[LINES][EACH];
    Norm norm;
    int first, stride;

    __device__ Lines() {
        first = (blockIdx.x * WARPS + threadIdx.x / 32) * LINES;
        stride = gridDim.x * WARPS * LINES;
    }

    __device__ void fetch_all(const bf16 *table, const float *last_norm, int vocabulary) {
#pragma unroll
        for (int line = 0; line < LINES; ++line) {
            fetch_row(table + (size_t)(first + line) * WIDTH, first + line < vocabulary, weights[line]);
        }
        norm.fetch_weights(last_norm, last_norm + WIDTH);
    }

    // logits = table · norm(x), and the best of them, or the one that is drawn.
    __device__ void finish(const float *x, const bf16 *table, const int *state, float *logits, unsigned long long *best,
                           int vocabulary, Row &row) {
        int lane = threadIdx.x % 32;
        norm.apply(x, row);
        float own_x[EACH][8];
        own_part(row, own_x);
        unsigned long long own_best = 0;
        for (; first < vocabulary; first += stride) {
            uint4 next[LINES][EACH];
#pragma unroll
            for (int line = 0; line < LINES; ++line) {
                int ahead = first + stride + line;
                fetch_row(table + (size_t)ahead * WIDTH, ahead < vocabulary, next[line]);
            }
#pragma unroll
            for (int line = 0; line < LINES; ++line) {
                float value = warp_sum(dot_row(weights[line], own_x));
                int at = first + line;
                if (lane == line && at < vocabulary) {
                    logits[at] = value;
                    own_best = max(own_best, ranked(drawn(value, at, state), at));
                }
            }
#pragma unroll
            for (int line = 0; line < LINES; ++line) {
#pragma unroll
                for (int each = 0; each < EACH; ++each) {
                    weights[line][each] = next[line][each];
                }
            }
        }
        keep_best(own_best, best);
    }
};

// Whether this block is the last one of the grid to come here: then it sees what all others have written.
__device__ bool is_last(unsigned int *done) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(done, 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    return last;
}

// By one block: x = embedding of the token at the position + embedding of the position. What the first half adds to is 0,
// and the best logit begins anew.
__device__ void embed_token(const bf16 *table, const bf16 *positions, const int *tokens, int position, float *residual,
                            unsigned long long *best) {
    const bf16 *token = table + (size_t)tokens[position] * WIDTH, *place = positions + (size_t)position * WIDTH;
    for (int i = threadIdx.x; i < WIDTH; i += THREADS) {
        residual[i] = (float)token[i] + (float)place[i];
        residual[WIDTH + i] = 0.0f;
    }
    if (threadIdx.x == 0) {
        *best = 0;
    }
}

// By one block: the next token is the prompt's own while there is one, then the best. The position moves on.
__device__ void next_token(const bf16 *table, const bf16 *positions, int *tokens, int *state, float *residual,
                           unsigned long long *best, int context) {
    int next = state[0] + 1;
    if (threadIdx.x == 0 && next >= state[1] && next < context) {
        tokens[next] = 0xffffffffu - (unsigned int)__ldcg(best);
    }
    __syncthreads(); // everyone has read the position, and sees the token
    if (threadIdx.x == 0) {
        state[0] = next;
    }
    if (next < context) {
        embed_token(table, positions, tokens, next, residual, best);
    }
}
