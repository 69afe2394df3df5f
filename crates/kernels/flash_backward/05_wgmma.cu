// idea: Hopper's warpgroup products: 128 threads multiply 64 keys with all queries of a tile at once, from shared memory.
// changed: wgmma instead of mma.sync, also for dq: ds is the left operand from shared memory, transposed on the way.
// constants: HEAD, KEYS of a block (64 a warpgroup), QUERIES of a tile, STAGES.
//
// A step of 64 queries and 128 keys, of heads of 128: five products of 2 · 64 · 128 · 128 operations are 2560 clocks of a
// multiprocessor's tensor cores, at 4096 a clock. wgmma reads s, dp and dq from two tiles in shared memory and dk and dv from
// one, their left operand is in registers: 256 KiB for both warpgroups, 2048 clocks at 128 bytes each. Tiles of 64 queries
// are thus just wide enough. Sums in a thread's registers: 128 of dk and dv, 64 of s and dp, then 32 of dq; one block fits.
// Heads of 64 take 128 queries: as many operations and bytes, 64 registers of dk and dv and 128 of s and dp.
#include "../matmul_bf16/ampere.cuh"
#include "backward.cuh"
#include "hopper.cuh"

// What a warpgroup sums of a tile of dq, 64 queries: half of the columns, or all of them where there are 128 queries.
const int COLUMNS = HEAD * QUERIES / 128;

struct Shared {
    bf16 k[HEAD / 64][KEYS * 64];
    bf16 v[HEAD / 64][KEYS * 64];
    bf16 q[STAGES][HEAD / 64][QUERIES * 64];
    bf16 d_o[STAGES][HEAD / 64][QUERIES * 64];
    // Keys along the rows.
    bf16 ds[QUERIES / 64][KEYS * 64];
    // log-sum-exp, and delta.
    float rows[STAGES][2][QUERIES];
};

// Where 8 numbers of a panel lie: rows of 64 numbers, their eight pieces in an order that depends on the row.
__device__ int swizzled(int row, int piece) {
    return row * 64 + (piece ^ row % 8) * 8;
}

extern "C" __global__ void __launch_bounds__(256, 1)
    flash_backward(const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *d_o, const float *rows, float *dq_sums,
                   bf16 *dk, bf16 *dv, int length, int group, float scale, int causal) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared &shared = *(Shared *)memory;
    int consumer = threadIdx.x / 128;
    int thread = threadIdx.x % 128;
    int key0 = blockIdx.x * KEYS;
    // The first of this warpgroup's keys, and of this thread's two.
    int first_key = key0 + consumer * 64;
    int key = first_key + thread / 32 * 16 + thread % 32 / 4;
    int padded = (length + 127) / 128 * 128;
    int head = blockIdx.y;
    if (head >= gridDim.y / group) {
        return;
    }
    // From the first query that sees one of the block's keys, for each of the `group` heads of q that share these.
    int first = causal ? key0 / QUERIES : 0;
    int tiles = (length + QUERIES - 1) / QUERIES - first;
    int steps = tiles * group;
    // The block copies STEP rows of a tile at once, 16 bytes per thread.
    constexpr int STEP = 256 * 8 / HEAD;
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
    size_t own = ((size_t)head * length + key0 + y) * HEAD + piece * 8;
    copy_8<KEYS, STEP, 64>(&shared.k[piece / 8][place], k + own, HEAD, length - key0 - y, HEAD);
    copy_8<KEYS, STEP, 64>(&shared.v[piece / 8][place], v + own, HEAD, length - key0 - y, HEAD);
    for (int step = 0; step < STAGES - 1; ++step) {
        load(step);
    }
    float dk_part[HEAD / 8][4] = {};
    float dv_part[HEAD / 8][4] = {};
    int query_part = QUERIES == 64 ? 0 : consumer * 64;
    int column0 = QUERIES == 64 ? consumer * COLUMNS : 0;
    float s[QUERIES / 8][4], dp[QUERIES / 8][4];
    float dq[COLUMNS / 8][4];
    u32 p[QUERIES / 16][4], ds[QUERIES / 16][4];
    // sum = own · otherᵀ: this warpgroup's keys against all queries of a stage. Descriptors count in 16 bytes: 16 columns of
    // a panel are 32 bytes, a row of it 128.
    auto start_rows = [&](float(&sum)[QUERIES / 8][4], bf16(&own)[HEAD / 64][KEYS * 64],
                          bf16(&other)[HEAD / 64][QUERIES * 64]) {
        wgmma_fence();
        u64 own_tile = tile_descriptor(own[0] + consumer * 64 * 64, 16, 1024);
        u64 other_tile = tile_descriptor(other[0], 16, 1024);
#pragma unroll
        for (int part = 0; part < HEAD / 16; ++part) {
            int panel = part / 4;
            int at = part % 4 * 2;
            multiply(sum, own_tile + panel * KEYS * 8 + at, other_tile + panel * QUERIES * 8 + at, part > 0);
        }
        wgmma_commit();
    };
    // sum += weights · other.
    auto start_sum = [&](float(&sum)[HEAD / 8][4], const u32(&weights)[QUERIES / 16][4],
                         bf16(&other)[HEAD / 64][QUERIES * 64]) {
        wgmma_fence();
        u64 tile = tile_descriptor(other[0], QUERIES * 128, 1024);
#pragma unroll
        for (int part = 0; part < QUERIES / 16; ++part) {
            multiply(sum, weights[part], tile + part * 128);
        }
        wgmma_commit();
    };
    for (int step = 0; step < steps; ++step) {
        int stage = step % STAGES;
        int query0 = (first + step % tiles) * QUERIES;
        copies_wait<STAGES - 2>();
        // Each thread's copies, made visible to the matrix units, then everyone's.
        fence_async();
        __syncthreads();
        start_rows(s, shared.k, shared.q[stage]);
        start_rows(dp, shared.v, shared.d_o[stage]);
        // While the products run: everyone has passed the barrier, so the stage of the step before is free.
        load(step + STAGES - 1);
        wgmma_wait<1>();
        arrived(s);
        if (key0 + KEYS > length || (causal && first_key + 63 > query0)) {
            hide_transposed(s, key, query0, length, causal);
        }
        weigh_scores(s, shared.rows[stage][0], scale);
        pack(p, s);
        wgmma_wait<0>();
        arrived(dp);
        weigh_derivatives(dp, s, shared.rows[stage][1]);
        pack(ds, dp);
        start_sum(dv_part, p, shared.d_o[stage]);
        start_sum(dk_part, ds, shared.q[stage]);
        int row = consumer * 64 + thread / 32 * 16 + thread % 16;
#pragma unroll
        for (int part = 0; part < QUERIES / 16; ++part) {
            int at = swizzled(row, part % 4 * 2 + thread % 32 / 16);
            store_matrices(shared.ds[part / 4] + at, ds[part][0], ds[part][1], ds[part][2], ds[part][3]);
        }
        fence_async();
        __syncthreads();
        // dq = ds · k.
        wgmma_fence();
        u64 ds_tile = tile_descriptor(shared.ds[query_part / 64], 16, 1024);
        u64 k_tile = tile_descriptor(shared.k[column0 / 64], 16, 1024) + column0 % 64 / 8;
#pragma unroll
        for (int part = 0; part < KEYS / 16; ++part) {
            multiply_columns(dq, ds_tile + part * 128, k_tile + part * 128, part > 0);
        }
        wgmma_commit();
        wgmma_wait<0>();
        arrived(dq);
        arrived(dk_part);
        arrived(dv_part);
        int query = query0 + query_part + thread / 32 * 16;
        float *to = dq_sums + dq_unit(head * group + step / tiles, padded, query, column0);
#pragma unroll
        for (int x = 0; x < COLUMNS / 8; ++x) {
            add_4(to + x * 128, dq[x]);
        }
    }
    dk += (size_t)head * length * HEAD;
    dv += (size_t)head * length * HEAD;
#pragma unroll
    for (int x = 0; x < HEAD / 8; ++x) {
        int column = x * 8 + thread % 4 * 2;
        float factor = scale * LN2;
        store_2(dk, key, column, length, HEAD, dk_part[x][0] * factor, dk_part[x][1] * factor);
        store_2(dk, key + 8, column, length, HEAD, dk_part[x][2] * factor, dk_part[x][3] * factor);
        store_2(dv, key, column, length, HEAD, dv_part[x][0], dv_part[x][1]);
        store_2(dv, key + 8, column, length, HEAD, dv_part[x][2], dv_part[x][3]);
    }
}
