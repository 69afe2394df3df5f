// idea: five products instead of seven: who owns keys has ds at hand, and adds its share of dq to everyone else's.
// changed: no block owns queries; ds goes through shared memory, and dq is summed by atomics in f32, in any order.
// constants: HEAD, WARPS of a block, each with 16 own keys; QUERIES of a tile. Atomics: 4 · QUERIES · HEAD bytes per tile.
//
// A tile of dq is read and written in the L2 cache, but never in shared memory, and each of its numbers is added to once per
// block of keys: for 2 · 5 · KEYS · QUERIES · HEAD operations, so that 128 keys are 320 operations per byte that is added.
#include "tiles.cuh"

const int KEYS = WARPS * 16;
// Columns of dq that a warp sums of 16 queries.
const int COLUMNS = HEAD * QUERIES / 16 / WARPS;

struct Shared {
    bf16 k[HEAD / 64][KEYS * 64];
    bf16 v[HEAD / 64][KEYS * 64];
    bf16 q[HEAD / 64][QUERIES * 64];
    bf16 d_o[HEAD / 64][QUERIES * 64];
    // Rows are 8 numbers longer (banks).
    bf16 ds[KEYS][QUERIES + 8];
};

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    flash_backward(const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *d_o, const float *rows, float *dq_sums,
                   bf16 *dk, bf16 *dv, int length, int group, float scale, int causal) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared &shared = *(Shared *)memory;
    int lane = threadIdx.x % 32;
    int warp = threadIdx.x / 32;
    int key0 = blockIdx.x * KEYS;
    // The first of this thread's two keys.
    int key = key0 + warp * 16 + lane / 4;
    int padded = (length + 127) / 128 * 128;
    int head = blockIdx.y;
    if (head >= gridDim.y / group) {
        return;
    }
    float s[QUERIES / 8][4], dp[QUERIES / 8][4];
    float dk_part[HEAD / 8][4] = {};
    float dv_part[HEAD / 8][4] = {};
    fill(shared.k, k + (size_t)head * length * HEAD, key0, length);
    fill(shared.v, v + (size_t)head * length * HEAD, key0, length);
    // `group` heads of q share one head of k and v.
    for (int q_head = head * group; q_head < head * group + group; ++q_head) {
        for (int query0 = causal ? key0 / QUERIES * QUERIES : 0; query0 < length; query0 += QUERIES) {
            __syncthreads();
            fill(shared.q, q + (size_t)q_head * length * HEAD, query0, length);
            fill(shared.d_o, d_o + (size_t)q_head * length * HEAD, query0, length);
            __syncthreads();
            multiply_tiles(s, shared.k, shared.q);
            multiply_tiles(dp, shared.v, shared.d_o);
            if (key0 + KEYS > length || (causal && key0 + KEYS > query0)) {
                hide_transposed(s, key, query0, length, causal);
            }
            const float *query_rows = rows + (size_t)q_head * 2 * padded + query0;
            weigh_scores(s, query_rows, scale);
            weigh_derivatives(dp, s, query_rows + padded);
            add_product(dv_part, s, shared.d_o);
            add_product(dk_part, dp, shared.q);
#pragma unroll
            for (int x = 0; x < QUERIES / 8; ++x) {
                int column = x * 8 + lane % 4 * 2;
                *(u32 *)&shared.ds[warp * 16 + lane / 4][column] = both(dp[x][0], dp[x][1]);
                *(u32 *)&shared.ds[warp * 16 + lane / 4 + 8][column] = both(dp[x][2], dp[x][3]);
            }
            __syncthreads();
            // dq = ds · k: 16 queries and some of the columns a warp. ds lies with keys along its rows: ldmatrix transposes.
            int query = warp % (QUERIES / 16) * 16;
            int column0 = warp / (QUERIES / 16) * COLUMNS;
            float dq[COLUMNS / 8][4] = {};
#pragma unroll
            for (int part = 0; part < KEYS / 16; ++part) {
                u32 a[4];
                load_transposed(a, &shared.ds[part * 16 + lane / 16 * 8 + lane % 8][query + lane / 8 % 2 * 8]);
#pragma unroll
                for (int x = 0; x < COLUMNS / 8; x += 2) {
                    u32 b[4];
                    int piece = column0 / 8 + x + lane / 16;
                    load_transposed(b, &shared.k[piece / 8][swizzled(part * 16 + lane % 16, piece % 8)]);
                    multiply(dq[x], a, b[0], b[1]);
                    multiply(dq[x + 1], a, b[2], b[3]);
                }
            }
            float *to = dq_sums + dq_unit(q_head, padded, query0 + query, column0);
#pragma unroll
            for (int x = 0; x < COLUMNS / 8; ++x) {
                add_4(to + x * 128, dq[x]);
            }
        }
    }
    store(dk + (size_t)head * length * HEAD, dk_part, key, length, scale * LN2);
    store(dv + (size_t)head * length * HEAD, dv_part, key, length, 1.0f);
}
