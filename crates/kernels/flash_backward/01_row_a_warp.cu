// idea: nothing is stored but a number a query: weights are worked out again from q, k and the log-sum-exp.
// changed: nothing, the first rung: a warp owns a query and sums its dq, or a key and sums its dk and dv; no atomics.
// constants: HEAD, the head dimension. Seven products where five would do: who owns dq and who owns dk both need p and dp.
#include "backward.cuh"

// The sum over all lanes.
__device__ float whole(float part) {
    for (int distance = 16; distance > 0; distance /= 2) {
        part += __shfl_xor_sync(~0u, part, distance);
    }
    return part;
}

extern "C" __global__ void flash_backward(const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *d_o,
                                          const float *rows, bf16 *dq, bf16 *dk, bf16 *dv, int length, int group,
                                          float scale, int causal) {
    int lane = threadIdx.x % 32;
    int own = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int padded = (length + 127) / 128 * 128;
    // Half of the blocks own keys. `group` heads of q share one head of k and v.
    bool owns_key = blockIdx.z == 1;
    int head = blockIdx.y;
    if (own >= length || (owns_key && head >= gridDim.y / group)) {
        return;
    }
    // The own query and its do, or the own key and its v.
    const bf16 *first = owns_key ? k : q;
    const bf16 *second = owns_key ? v : d_o;
    size_t place = ((size_t)head * length + own) * HEAD;
    float first_part[HEAD / 32], second_part[HEAD / 32];
    float first_sum[HEAD / 32] = {}, second_sum[HEAD / 32] = {};
    for (int i = 0; i < HEAD / 32; ++i) {
        first_part[i] = (float)first[place + i * 32 + lane];
        second_part[i] = (float)second[place + i * 32 + lane];
    }
    // The others: keys that this query sees, or queries that see this key, of all heads that share it.
    int from = owns_key && causal ? own : 0;
    int to = !owns_key && causal ? own + 1 : length;
    for (int member = 0; member < (owns_key ? group : 1); ++member) {
        int q_head = owns_key ? head * group + member : head;
        int other_head = owns_key ? q_head : head / group;
        const bf16 *other_first = (owns_key ? q : k) + (size_t)other_head * length * HEAD;
        const bf16 *other_second = (owns_key ? d_o : v) + (size_t)other_head * length * HEAD;
        for (int other = from; other < to; ++other) {
            float score = 0.0f, dp = 0.0f;
            float other_part[HEAD / 32], d_part[HEAD / 32];
            for (int i = 0; i < HEAD / 32; ++i) {
                other_part[i] = (float)other_first[(size_t)other * HEAD + i * 32 + lane];
                d_part[i] = (float)other_second[(size_t)other * HEAD + i * 32 + lane];
                score += first_part[i] * other_part[i];
                dp += second_part[i] * d_part[i];
            }
            const float *query_row = rows + (size_t)q_head * 2 * padded + (owns_key ? other : own);
            float p = power(whole(score) * scale - query_row[0]);
            float ds = p * (whole(dp) - query_row[padded]);
            for (int i = 0; i < HEAD / 32; ++i) {
                first_sum[i] += ds * other_part[i];
                second_sum[i] += p * d_part[i];
            }
        }
    }
    bf16 *out = owns_key ? dk : dq;
    for (int i = 0; i < HEAD / 32; ++i) {
        out[place + i * 32 + lane] = first_sum[i] * scale * LN2;
        if (owns_key) {
            dv[place + i * 32 + lane] = second_sum[i];
        }
    }
}
