// idea: the queries of a block share tiles of k and v in shared memory: a key is fetched once for WARPS queries.
// changed: a tile of 32 keys, one for each lane: the maximum, the factor and the sum are worked out once in 32 keys.
// constants: HEAD, and WARPS queries per block. Rows of k are 2 numbers longer: 32 lanes then read 32 banks.
#include "online.cuh"

typedef __nv_bfloat16 bf16;

extern "C" __global__ void flash_attention(const bf16 *q, const bf16 *k, const bf16 *v, bf16 *o, int length, int group,
                                           float scale, int causal) {
    __shared__ float q_rows[WARPS][HEAD];
    __shared__ __align__(4) bf16 k_tile[32][HEAD + 2];
    __shared__ bf16 v_tile[32][HEAD];
    int lane = threadIdx.x % 32;
    int warp = threadIdx.x / 32;
    int row = blockIdx.x * WARPS + warp;
    int head = blockIdx.y;
    size_t query = ((size_t)head * length + row) * HEAD;
    // `group` heads of q share one head of k and v.
    size_t shared_head = (size_t)(head / group) * length * HEAD;
    float o_part[HEAD / 32] = {};
    for (int i = 0; i < HEAD / 32; ++i) {
        q_rows[warp][i * 32 + lane] = row < length ? (float)q[query + i * 32 + lane] * scale : 0.0f;
    }
    float most = LOWEST;
    float total = 0.0f;
    // Up to the last key that one of the block's queries sees.
    int keys = causal ? min(length, (int)(blockIdx.x + 1) * WARPS) : length;
    for (int key0 = 0; key0 < keys; key0 += 32) {
        __syncthreads();
        for (int i = threadIdx.x; i < 32 * HEAD; i += WARPS * 32) {
            int y = i / HEAD;
            int x = i % HEAD;
            size_t from = shared_head + (size_t)(key0 + y) * HEAD + x;
            k_tile[y][x] = key0 + y < length ? k[from] : bf16(0.0f);
            v_tile[y][x] = key0 + y < length ? v[from] : bf16(0.0f);
        }
        __syncthreads();
        float score = 0.0f;
        for (int x = 0; x < HEAD; x += 2) {
            __nv_bfloat162 pair = *(__nv_bfloat162 *)&k_tile[lane][x];
            score += q_rows[warp][x] * (float)pair.x + q_rows[warp][x + 1] * (float)pair.y;
        }
        int key = key0 + lane;
        score = key < length && !(causal && key > row) ? score : HIDDEN;
        float before = most;
        most = fmaxf(most, score);
        for (int distance = 16; distance > 0; distance /= 2) {
            most = fmaxf(most, __shfl_xor_sync(~0u, most, distance));
        }
        // If the maximum moves, all that was summed so far is too large, by a factor that is known.
        float factor = power(before - most);
        float p = power(score - most);
        // Each lane sums its own keys; the 32 sums meet at the end.
        total = total * factor + p;
        for (int i = 0; i < HEAD / 32; ++i) {
            o_part[i] *= factor;
        }
        for (int y = 0; y < 32; ++y) {
            float p_of = __shfl_sync(~0u, p, y);
            for (int i = 0; i < HEAD / 32; ++i) {
                o_part[i] += p_of * (float)v_tile[y][i * 32 + lane];
            }
        }
    }
    for (int distance = 16; distance > 0; distance /= 2) {
        total += __shfl_xor_sync(~0u, total, distance);
    }
    for (int i = 0; i < HEAD / 32 && row < length; ++i) {
        o[query + i * 32 + lane] = o_part[i] / total;
    }
}
