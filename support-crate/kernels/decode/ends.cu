// idea: what stands before and behind the layers: the token's embedding, the logits with their largest, the next token.
// constants: WIDTH of the model; THREADS; a warp has LINES rows of the vocabulary under way.
#include "parts.cuh"


// x = embedding of the token + embedding of its position. What the first half adds to, and the best logit, become 0.
extern "C" __global__ void __launch_bounds__(THREADS)
    embed(const bf16 *tokens_table, const bf16 *positions_table, const int *tokens, const int *state, float *x,
          float *sum, unsigned long long *best) {
    let_next_start();
    wait_for_former();
    int position = state[0];
    const bf16 *token = tokens_table + (size_t)tokens[position] * WIDTH;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < WIDTH; i += gridDim.x * THREADS) {
        x[i] = (float)token[i] + (float)positions_table[(size_t)position * WIDTH + i];
        sum[i] = 0.0f;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *best = 0;
    }
}

// logits = table · norm(x), and the best of them, or the one that is drawn.
extern "C" __global__ void __launch_bounds__(THREADS)
    logits(const float *x, const float *norm_weight, const float *norm_bias, const bf16 *table, const int *state,
           float *y, unsigned long long *best, int vocabulary) {
    __shared__ Row row;
    int lane = threadIdx.x % 32;
    int first = (blockIdx.x * WARPS + threadIdx.x / 32) * LINES, stride = gridDim.x * WARPS * LINES;
    let_next_start();
    uint4 weights[LINES][EACH];
#pragma unroll
    for (int line = 0; line < LINES; ++line) {
        fetch_row(table + (size_t)(first + line) * WIDTH, first + line < vocabulary, weights[line]);
    }
    Norm norm;
    norm.fetch_weights(norm_weight, norm_bias);
    wait_for_former();
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
                y[at] = value;
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

// The next token: the prompt's own while there is one, then the best. The position moves on.
extern "C" __global__ void pick(const unsigned long long *best, int *tokens, int *state, int context) {
    let_next_start();
    wait_for_former();
    if (threadIdx.x == 0) {
        int next = state[0] + 1;
        if (next >= state[1] && next < context) {
            tokens[next] = 0xffffffffu - (unsigned int)*best;
        }
        state[0] = next;
    }
}
