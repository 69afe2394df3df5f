// idea: online softmax: one pass over the keys with a running maximum and sum, so that no score is ever stored.
// changed: nothing, the first rung: a warp answers one query, and each lane holds HEAD / 32 numbers of q and of o.
// constants: HEAD, the head dimension. scale is log2(e) / sqrt(HEAD): the GPU has powers of 2.
#include "online.cuh"

typedef __nv_bfloat16 bf16;

extern "C" __global__ void flash_attention(const bf16 *q, const bf16 *k, const bf16 *v, bf16 *o, int length, int group,
                                           float scale, int causal) {
    int lane = threadIdx.x % 32;
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int head = blockIdx.y;
    if (row >= length) {
        return;
    }
    size_t query = ((size_t)head * length + row) * HEAD;
    // `group` heads of q share one head of k and v.
    size_t shared_head = (size_t)(head / group) * length * HEAD;
    float q_part[HEAD / 32];
    float o_part[HEAD / 32] = {};
    for (int i = 0; i < HEAD / 32; ++i) {
        q_part[i] = (float)q[query + i * 32 + lane] * scale;
    }
    float most = LOWEST;
    float total = 0.0f;
    int keys = causal ? row + 1 : length;
    for (int key = 0; key < keys; ++key) {
        const bf16 *k_row = k + shared_head + (size_t)key * HEAD;
        const bf16 *v_row = v + shared_head + (size_t)key * HEAD;
        float score = 0.0f;
        for (int i = 0; i < HEAD / 32; ++i) {
            score += q_part[i] * (float)k_row[i * 32 + lane];
        }
        for (int distance = 16; distance > 0; distance /= 2) {
            score += __shfl_xor_sync(~0u, score, distance);
        }
        // If the maximum moves, all that was summed so far is too large, by a factor that is known.
        float before = most;
        most = fmaxf(most, score);
        float factor = power(before - most);
        float p = power(score - most);
        total = total * factor + p;
        for (int i = 0; i < HEAD / 32; ++i) {
            o_part[i] = o_part[i] * factor + p * (float)v_row[i * 32 + lane];
        }
    }
    for (int i = 0; i < HEAD / 32; ++i) {
        o[query + i * 32 + lane] = o_part[i] / total;
    }
}
