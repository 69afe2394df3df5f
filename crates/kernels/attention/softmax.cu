// idea: P = softmax(S), row by row, in place: exp(s - largest) over the sum of these.
// constants: THREADS threads per block, which takes a row.
#include "number.cuh"
#include "block.cuh"

extern "C" __global__ void softmax_rows(number *s, int columns) {
    __shared__ float mosts[THREADS / 32], sums[THREADS / 32];
    s += (size_t)blockIdx.x * columns;
    float most = HIDDEN;
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        most = fmaxf(most, float(s[i]));
    }
    most = block_max(most, mosts);
    // A row in which all is hidden has no softmax; its weights are 0, where -infinity - -infinity were no number.
    bool hidden = most == HIDDEN;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        sum += hidden ? 0.0f : expf(float(s[i]) - most);
    }
    sum = block_sum(sum, sums);
    for (int i = threadIdx.x; i < columns; i += THREADS) {
        s[i] = number(hidden ? 0.0f : expf(float(s[i]) - most) / sum);
    }
}
