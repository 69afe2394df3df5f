// idea: tensor cores for all products; the weights and ds stay in registers, and as they lie they are the next operand.
// changed: a block owns a tile of queries or of keys, and walks over tiles of the others in swizzled shared memory.
// constants: HEAD, WARPS of a block, each with 16 own rows; OTHERS, rows of a tile that is walked over.
#include "tiles.cuh"

const int OWN = WARPS * 16;

// The own rows of q and do (of k and v), and a tile of the others: of k and v (of q and do).
struct Shared {
    bf16 own[2][HEAD / 64][OWN * 64];
    bf16 other[2][HEAD / 64][OTHERS * 64];
};

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    flash_backward(const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *d_o, const float *rows, bf16 *dq, bf16 *dk,
                   bf16 *dv, int length, int group, float scale, int causal) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared &shared = *(Shared *)memory;
    int own0 = blockIdx.x * OWN;
    // The first of this thread's two rows.
    int row = own0 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    int padded = (length + 127) / 128 * 128;
    int head = blockIdx.y;
    float s[OTHERS / 8][4], dp[OTHERS / 8][4];
    float first[HEAD / 8][4] = {};
    if (blockIdx.z == 0) {
        // dq of the own queries. `group` heads of q share one head of k and v.
        const bf16 *k_head = k + (size_t)(head / group) * length * HEAD;
        const bf16 *v_head = v + (size_t)(head / group) * length * HEAD;
        fill(shared.own[0], q + (size_t)head * length * HEAD, own0, length);
        fill(shared.own[1], d_o + (size_t)head * length * HEAD, own0, length);
        // Rows are filled up to a multiple of OWN.
        const float *own_rows = rows + (size_t)head * 2 * padded + row;
        float lse[2] = {own_rows[0], own_rows[8]};
        float delta[2] = {own_rows[padded], own_rows[padded + 8]};
        int keys = causal ? min(length, own0 + OWN) : length;
        for (int key0 = 0; key0 < keys; key0 += OTHERS) {
            __syncthreads();
            fill(shared.other[0], k_head, key0, length);
            fill(shared.other[1], v_head, key0, length);
            __syncthreads();
            multiply_tiles(s, shared.own[0], shared.other[0]);
            multiply_tiles(dp, shared.own[1], shared.other[1]);
            if (key0 + OTHERS > length || (causal && key0 + OTHERS > own0)) {
                hide(s, key0, row, length, causal);
            }
#pragma unroll
            for (int x = 0; x < OTHERS / 8; ++x) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    s[x][i] = power(s[x][i] * scale - lse[i / 2]);
                    dp[x][i] = s[x][i] * (dp[x][i] - delta[i / 2]);
                }
            }
            add_product(first, dp, shared.other[0]);
        }
        store(dq + (size_t)head * length * HEAD, first, row, length, scale * LN2);
        return;
    }
    if (head >= gridDim.y / group) {
        return;
    }
    // dk and dv of the own keys, from the queries of all heads that share them.
    float second[HEAD / 8][4] = {};
    fill(shared.own[0], k + (size_t)head * length * HEAD, own0, length);
    fill(shared.own[1], v + (size_t)head * length * HEAD, own0, length);
    for (int q_head = head * group; q_head < head * group + group; ++q_head) {
        for (int query0 = causal ? own0 / OTHERS * OTHERS : 0; query0 < length; query0 += OTHERS) {
            __syncthreads();
            fill(shared.other[0], q + (size_t)q_head * length * HEAD, query0, length);
            fill(shared.other[1], d_o + (size_t)q_head * length * HEAD, query0, length);
            __syncthreads();
            multiply_tiles(s, shared.own[0], shared.other[0]);
            multiply_tiles(dp, shared.own[1], shared.other[1]);
            if (own0 + OWN > length || (causal && own0 + OWN > query0)) {
                hide_transposed(s, row, query0, length, causal);
            }
            const float *query_rows = rows + (size_t)q_head * 2 * padded + query0;
            weigh_scores(s, query_rows, scale);
            weigh_derivatives(dp, s, query_rows + padded);
            add_product(second, s, shared.other[1]);
            add_product(first, dp, shared.other[0]);
        }
    }
    store(dk + (size_t)head * length * HEAD, first, row, length, scale * LN2);
    store(dv + (size_t)head * length * HEAD, second, row, length, 1.0f);
}
