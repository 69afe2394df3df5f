// idea: one warpgroup fetches with the TMA, two compute, and the next scores are started before dq is added.
// changed: barriers full and empty for each stage of q and do in place of __syncthreads; registers move over.
// constants: HEAD, KEYS of a block (64 a warpgroup), QUERIES of a step, STAGES; REGISTERS and SPARE: what the two kinds get.
#include "backward.cuh"
#include "hopper.cuh"

// What a warpgroup sums of a tile of dq, 64 queries: half of the columns, or all of them where there are 128 queries.
const int COLUMNS = HEAD * QUERIES / 128;

struct Shared {
    bf16 k[HEAD / 64][KEYS * 64];
    bf16 v[HEAD / 64][KEYS * 64];
    bf16 q[STAGES][HEAD / 64][QUERIES * 64];
    bf16 d_o[STAGES][HEAD / 64][QUERIES * 64];
    // Keys along the rows; two, so that one is written while the other one is read.
    bf16 ds[2][QUERIES / 64][KEYS * 64];
    // log-sum-exp, and delta.
    float rows[STAGES][2][QUERIES];
    u64 own_full;
    u64 q_full[STAGES], d_o_full[STAGES], empty[STAGES];
};

extern "C" __global__ void __launch_bounds__(384, 1)
    flash_backward(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                   const __grid_constant__ TensorMap v_map, const __grid_constant__ TensorMap d_o_map,
                   const float *rows, float *dq_sums, const __grid_constant__ TensorMap dk_map,
                   const __grid_constant__ TensorMap dv_map, int length, int group, float scale, int causal) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared &shared = *(Shared *)memory;
    int warpgroup = threadIdx.x / 128;
    // Under a causal mask the first keys are seen by most queries: they begin.
    int key0 = blockIdx.x * KEYS;
    int head = blockIdx.y;
    int padded = (length + 127) / 128 * 128;
    // From the first query that sees one of the block's keys, for each of the heads of q that share these.
    int first = causal ? key0 / QUERIES : 0;
    int tiles = (length + QUERIES - 1) / QUERIES - first;
    int steps = tiles * group;
    // The first query of a step, and its head.
    auto query_of = [&](int step) { return (first + step % tiles) * QUERIES; };
    auto head_of = [&](int step) { return head * group + step / tiles; };
    if (threadIdx.x == 0) {
        barrier_init(&shared.own_full, 1);
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(&shared.q_full[stage], 1);
            barrier_init(&shared.d_o_full[stage], 1);
            barrier_init(&shared.empty[stage], 2);
        }
        barriers_are_ready();
    }
    __syncthreads();
    if (warpgroup == 0) {
        give_registers<SPARE>();
        if (threadIdx.x == 0) {
            arrive_and_expect(&shared.own_full, 2 * KEYS * HEAD * 2);
            for (int panel = 0; panel < HEAD / 64; ++panel) {
                tma_load(shared.k[panel], &k_map, panel * 64, key0, head, &shared.own_full);
                tma_load(shared.v[panel], &v_map, panel * 64, key0, head, &shared.own_full);
            }
            for (int step = 0; step < steps; ++step) {
                int stage = step % STAGES;
                int query0 = query_of(step);
                int q_head = head_of(step);
                // The first round finds its stages free: they count as left by a phase of parity 1.
                wait(&shared.empty[stage], step / STAGES % 2 ^ 1);
                arrive_and_expect(&shared.q_full[stage], QUERIES * HEAD * 2 + 2 * QUERIES * 4);
                for (int part = 0; part < 2; ++part) {
                    const float *from = rows + ((size_t)q_head * 2 + part) * padded + query0;
                    bulk_load(shared.rows[stage][part], from, QUERIES * 4, &shared.q_full[stage]);
                }
                for (int panel = 0; panel < HEAD / 64; ++panel) {
                    tma_load(shared.q[stage][panel], &q_map, panel * 64, query0, q_head, &shared.q_full[stage]);
                }
                arrive_and_expect(&shared.d_o_full[stage], QUERIES * HEAD * 2);
                for (int panel = 0; panel < HEAD / 64; ++panel) {
                    tma_load(shared.d_o[stage][panel], &d_o_map, panel * 64, query0, q_head, &shared.d_o_full[stage]);
                }
            }
        }
        return;
    }
    take_registers<REGISTERS>();
    int consumer = warpgroup - 1;
    int thread = threadIdx.x % 128;
    int first_key = key0 + consumer * 64;
    float dk[HEAD / 8][4] = {};
    float dv[HEAD / 8][4] = {};
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
    wait(&shared.own_full, 0);
    wait(&shared.q_full[0], 0);
    start_rows(s, shared.k, shared.q[0]);
    wgmma_wait<0>();
    arrived(s);
    for (int step = 0; step < steps; ++step) {
        int stage = step % STAGES;
        int query0 = query_of(step);
        wait(&shared.d_o_full[stage], step / STAGES % 2);
        start_rows(dp, shared.v, shared.d_o[stage]);
        if (key0 + KEYS > length || (causal && first_key + 63 > query0)) {
            hide_transposed(s, first_key + thread / 32 * 16 + thread % 32 / 4, query0, length, causal);
        }
        weigh_scores(s, shared.rows[stage][0], scale);
        // The values' gradients need no more than the weights. Of 128 queries there are no registers for both.
        if (QUERIES == 64) {
            pack(p, s);
            start_sum(dv, p, shared.d_o[stage]);
            wgmma_wait<1>();
        } else {
            wgmma_wait<0>();
        }
        arrived(dp);
        weigh_derivatives(dp, s, shared.rows[stage][1]);
        pack(ds, dp);
        if (QUERIES != 64) {
            pack(p, s);
            start_sum(dv, p, shared.d_o[stage]);
        }
        start_sum(dk, ds, shared.q[stage]);
        bf16(&tile)[QUERIES / 64][KEYS * 64] = shared.ds[step % 2];
        int row = consumer * 64 + thread / 32 * 16 + thread % 16;
#pragma unroll
        for (int part = 0; part < QUERIES / 16; ++part) {
            int piece = (part % 4 * 2 + thread % 32 / 16) ^ (row % 8);
            store_matrices(tile[part / 4] + row * 64 + piece * 8, ds[part][0], ds[part][1], ds[part][2], ds[part][3]);
        }
        fence_async();
        // Both warpgroups' ds are there; and both have read those of the step before the last one.
        consumers_sync();
        // dq = ds · k.
        wgmma_fence();
        u64 ds_tile = tile_descriptor(tile[query_part / 64], 16, 1024);
        u64 k_tile = tile_descriptor(shared.k[column0 / 64], 16, 1024) + column0 % 64 / 8;
#pragma unroll
        for (int part = 0; part < KEYS / 16; ++part) {
            multiply_columns(dq, ds_tile + part * 128, k_tile + part * 128, part > 0);
        }
        wgmma_commit();
        wgmma_wait<1>();
        // The next scores; in the last step the same once more, which nobody looks at.
        int next = step + 1 < steps ? step + 1 : step;
        wait(&shared.q_full[next % STAGES], next / STAGES % 2);
        start_rows(s, shared.k, shared.q[next % STAGES]);
        wgmma_wait<1>();
        arrived(dq);
        if (thread == 0) {
            arrive(&shared.empty[stage]);
        }
        int query = query0 + query_part + thread / 32 * 16;
        float *to = dq_sums + dq_unit(head_of(step), padded, query, column0);
#pragma unroll
        for (int x = 0; x < COLUMNS / 8; ++x) {
            add_4(to + x * 128, dq[x]);
        }
        wgmma_wait<0>();
        arrived(s);
    }
    arrived(dk);
    arrived(dv);
    // Whole rows leave through this warpgroup's part of the places of k and v; k was read by both.
    consumers_sync();
#pragma unroll
    for (int panel = 0; panel < HEAD / 64; ++panel) {
        int row = consumer * 64 + thread / 32 * 16 + thread % 16;
#pragma unroll
        for (int piece = 0; piece < 8; piece += 2) {
            int at = row * 64 + ((piece + thread % 32 / 16) ^ (row % 8)) * 8;
            float factor = scale * LN2;
            int x = panel * 8 + piece;
            store_matrices(shared.k[panel] + at, both(dk[x][0] * factor, dk[x][1] * factor),
                           both(dk[x][2] * factor, dk[x][3] * factor),
                           both(dk[x + 1][0] * factor, dk[x + 1][1] * factor),
                           both(dk[x + 1][2] * factor, dk[x + 1][3] * factor));
            store_matrices(shared.v[panel] + at, both(dv[x][0], dv[x][1]), both(dv[x][2], dv[x][3]),
                           both(dv[x + 1][0], dv[x + 1][1]), both(dv[x + 1][2], dv[x + 1][3]));
        }
    }
    fence_async();
    warpgroup_sync(2 + consumer);
    if (thread == 0 && first_key < length) {
        for (int panel = 0; panel < HEAD / 64; ++panel) {
            tma_store(&dk_map, shared.k[panel] + consumer * 64 * 64, panel * 64, first_key, head);
            tma_store(&dv_map, shared.v[panel] + consumer * 64 * 64, panel * 64, first_key, head);
        }
        tma_stores_read<0>();
    }
}
