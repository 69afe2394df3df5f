// idea: copies that do not wait (cp.async): the next queries come to shared memory while this tile's are multiplied.
// changed: STAGES tiles of q and do in turn, with log-sum-exp and delta beside them; heads that share keys are one loop.
// constants: as before, and STAGES.
#include "tiles.cuh"

const int KEYS = WARPS * 16;
// Columns of dq that a warp sums of 16 queries.
const int COLUMNS = HEAD * QUERIES / 16 / WARPS;

struct Shared {
    bf16 k[HEAD / 64][KEYS * 64];
    bf16 v[HEAD / 64][KEYS * 64];
    bf16 q[STAGES][HEAD / 64][QUERIES * 64];
    bf16 d_o[STAGES][HEAD / 64][QUERIES * 64];
    // log-sum-exp, and delta.
    float rows[STAGES][2][QUERIES];
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
    // From the first query that sees one of the block's keys, for each of the `group` heads of q that share these.
    int first = causal ? key0 / QUERIES : 0;
    int tiles = (length + QUERIES - 1) / QUERIES - first;
    int steps = tiles * group;
    // The block copies STEP rows of a tile at once, 16 bytes per thread.
    constexpr int STEP = WARPS * 32 * 8 / HEAD;
    int y = threadIdx.x / (HEAD / 8);
    int piece = threadIdx.x % (HEAD / 8);
    // Rows that are STEP apart, a multiple of 8, have their pieces in the same order.
    int place = swizzled(y, piece % 8);
    auto load = [&](int step) {
        if (step < steps) {
            int stage = step % STAGES;
            int query0 = (first + step % tiles) * QUERIES;
            int q_head = head * group + step / tiles;
            size_t from = ((size_t)q_head * length + query0 + y) * HEAD + piece * 8;
            copy_8<QUERIES, STEP, 64>(&shared.q[stage][piece / 8][place], q + from, HEAD, length - query0 - y, HEAD);
            copy_8<QUERIES, STEP, 64>(&shared.d_o[stage][piece / 8][place], d_o + from, HEAD, length - query0 - y, HEAD);
            if (threadIdx.x < QUERIES / 2) {
                // 16 bytes, as of 8 numbers in bf16.
                int part = threadIdx.x / (QUERIES / 4);
                int at = threadIdx.x % (QUERIES / 4) * 4;
                const float *four = rows + ((size_t)q_head * 2 + part) * padded + query0 + at;
                copy_8<1, 1, 8>((bf16 *)&shared.rows[stage][part][at], (const bf16 *)four, 8, 1, 8);
            }
        }
        copies_commit();
    };
    for (int step = 0; step < STAGES - 1; ++step) {
        load(step);
    }
    for (int step = 0; step < steps; ++step) {
        int stage = step % STAGES;
        int query0 = (first + step % tiles) * QUERIES;
        copies_wait<STAGES - 2>();
        // This step's tiles are here, and everyone is done with ds and with the stage that is filled next.
        __syncthreads();
        load(step + STAGES - 1);
        multiply_tiles(s, shared.k, shared.q[stage]);
        multiply_tiles(dp, shared.v, shared.d_o[stage]);
        if (key0 + KEYS > length || (causal && key0 + KEYS > query0)) {
            hide_transposed(s, key, query0, length, causal);
        }
        weigh_scores(s, shared.rows[stage][0], scale);
        weigh_derivatives(dp, s, shared.rows[stage][1]);
        add_product(dv_part, s, shared.d_o[stage]);
        add_product(dk_part, dp, shared.q[stage]);
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
        float *to = dq_sums + dq_unit(head * group + step / tiles, padded, query0 + query, column0);
#pragma unroll
        for (int x = 0; x < COLUMNS / 8; ++x) {
            add_4(to + x * 128, dq[x]);
        }
    }
    store(dk + (size_t)head * length * HEAD, dk_part, key, length, scale * LN2);
    store(dv + (size_t)head * length * HEAD, dv_part, key, length, 1.0f);
}
