// idea: what stands before and behind the layers: the token's embedding, the logits with their largest, the next token.
// constants: WIDTH of the model; THREADS; a warp has LINES rows of the vocabulary in flight.
#include "lines.cuh"

// The first token of a text. The table of tokens begins at `from`.
extern "C" __global__ void __launch_bounds__(THREADS)
    embed(const bf16 *weights, long long from, const bf16 *positions, const int *tokens, const int *state,
          float *residual, unsigned long long *best) {
    embed_token(weights + from, positions, tokens, state[0], residual, best);
}

// The logits; the block that ends last chooses the next token, and embeds it. `half`: halves of layers so far.
extern "C" __global__ void __launch_bounds__(THREADS)
    logits(const float *last_norm, const bf16 *weights, long long from, const bf16 *positions, int *tokens, int *state,
           float *residual, int half, float *y, unsigned long long *best, unsigned int *done, int vocabulary,
           int context) {
    __shared__ Row row;
    const bf16 *table = weights + from;
    let_next_start();
    Lines lines;
    lines.fetch_all(table, last_norm, vocabulary);
    wait_for_former();
    lines.finish(residual + half % 3 * WIDTH, table, state, y, best, vocabulary, row);
    if (is_last(done)) {
        next_token(table, positions, tokens, state, residual, best, context);
        if (threadIdx.x == 0) {
            atomicExch(done, 0);
        }
    }
}

// The same end in a kernel of its own, by one block.
extern "C" __global__ void __launch_bounds__(THREADS)
    pick(const bf16 *table, const bf16 *positions, int *tokens, int *state, float *residual, unsigned long long *best,
         int context) {
    next_token(table, positions, tokens, state, residual, best, context);
}
