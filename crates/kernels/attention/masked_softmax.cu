// idea: scale, mask and softmax in one launch: hidden scores are not even read, and their weights are 0.
// constants: THREADS threads per block, which takes a query of a head.
#include "number.cuh"
#include "block.cuh"

// s [batch, q_heads, length, length]; lengths[b]: keys of sequence b, of which the rest is padding.
extern "C" __global__ void masked_softmax(number *s, const int *lengths, float factor, int q_heads, int length,
                                          int causal) {
    __shared__ float mosts[THREADS / 32], sums[THREADS / 32];
    int query = blockIdx.x % length, sequence = blockIdx.x / length / q_heads;
    int seen = min(lengths[sequence], causal ? query + 1 : length);
    s += (size_t)blockIdx.x * length;
    float most = HIDDEN;
    for (int i = threadIdx.x; i < seen; i += THREADS) {
        most = fmaxf(most, float(s[i]) * factor);
    }
    most = block_max(most, mosts);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < seen; i += THREADS) {
        sum += expf(float(s[i]) * factor - most);
    }
    sum = block_sum(sum, sums);
    for (int i = threadIdx.x; i < length; i += THREADS) {
        s[i] = number(i < seen ? expf(float(s[i]) * factor - most) / sum : 0.0f);
    }
}
