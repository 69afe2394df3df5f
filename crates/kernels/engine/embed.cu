// idea: the residual of a text's first token: its embedding.
// constants: as those of `persistent`.
#include "phases.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    embed(const bf16 *table, const bf16 *positions, const int *tokens, const int *state, float *work,
          unsigned long long *best) {
    embed_token(table, positions, tokens, state[0], Work(work), best);
}
