// idea: what a query must not see gets the score -infinity, whose exp is 0; nothing is read, only hidden scores are written.
// constants: none; one block per query and head.
#include "number.cuh"

// s [batch, q_heads, length, length]; lengths[b]: keys of sequence b, of which the rest is padding.
extern "C" __global__ void mask(number *s, const int *lengths, int q_heads, int length, int causal) {
    int query = blockIdx.x % length, sequence = blockIdx.x / length / q_heads;
    int seen = min(lengths[sequence], causal ? query + 1 : length);
    for (int key = seen + threadIdx.x; key < length; key += blockDim.x) {
        s[(size_t)blockIdx.x * length + key] = number(HIDDEN);
    }
}
