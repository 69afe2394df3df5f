// idea: Hopper's warpgroup products: 128 threads multiply 64 queries with all keys of a tile at once, from shared memory.
// changed: wgmma instead of ldmatrix and mma.sync, q in shared memory too; the exponentials stay in registers as operand.
// constants: HEAD, KEYS, STAGES, and GROUPS: warpgroups of a block, each with 64 queries.
#include "../matmul_bf16/ampere.cuh"
#include "online.cuh"
#include "wgmma.cuh"

struct Shared {
    bf16 q[HEAD / 64][GROUPS * 64 * 64];
    bf16 k[STAGES][HEAD / 64][KEYS * 64];
    bf16 v[STAGES][HEAD / 64][KEYS * 64];
};

// Where 8 numbers of a panel lie: rows of 64 numbers, their eight pieces in an order that depends on the row.
__device__ int swizzled(int row, int piece) {
    return row * 64 + (piece ^ row % 8) * 8;
}

extern "C" __global__ void __launch_bounds__(GROUPS * 128, 1)
    flash_attention(const bf16 *q, const bf16 *k, const bf16 *v, bf16 *o, int length, int group, float scale,
                    int causal) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared &shared = *(Shared *)memory;
    int lane = threadIdx.x % 32;
    int warpgroup = threadIdx.x / 128;
    int row0 = blockIdx.x * GROUPS * 64;
    // The first of this thread's two rows, and of its columns.
    int row = row0 + threadIdx.x / 32 * 16 + lane / 4;
    int column = lane % 4 * 2;
    int head = blockIdx.y;
    q += (size_t)head * length * HEAD;
    o += (size_t)head * length * HEAD;
    // `group` heads of q share one head of k and v.
    k += (size_t)(head / group) * length * HEAD;
    v += (size_t)(head / group) * length * HEAD;
    // Up to the last key that one of the block's queries sees.
    int keys = causal ? min(length, row0 + GROUPS * 64) : length;
    // The block copies STEP rows of a tile at once, 16 bytes per thread.
    constexpr int STEP = GROUPS * 128 * 8 / HEAD;
    int y = threadIdx.x / (HEAD / 8);
    int piece = threadIdx.x % (HEAD / 8);
    // Rows that are STEP apart, a multiple of 8, have their pieces in the same order.
    int to = swizzled(y, piece % 8);
    auto load = [&](int step) {
        int key0 = step * KEYS;
        if (key0 < keys) {
            size_t from = (size_t)(key0 + y) * HEAD + piece * 8;
            int stage = step % STAGES;
            copy_8<KEYS, STEP, 64>(&shared.k[stage][piece / 8][to], k + from, HEAD, length - key0 - y, HEAD);
            copy_8<KEYS, STEP, 64>(&shared.v[stage][piece / 8][to], v + from, HEAD, length - key0 - y, HEAD);
        }
        copies_commit();
    };
    size_t from = (size_t)(row0 + y) * HEAD + piece * 8;
    copy_8<GROUPS * 64, STEP, 64>(&shared.q[piece / 8][to], q + from, HEAD, length - row0 - y, HEAD);
    for (int step = 0; step < STAGES - 1; ++step) {
        load(step);
    }
    float s[KEYS / 8][4];
    u32 p[KEYS / 16][4];
    float o_part[HEAD / 8][4] = {};
    float factor[2];
    Rows rows;
    for (int step = 0; step * KEYS < keys; ++step) {
        int key0 = step * KEYS;
        int stage = step % STAGES;
        copies_wait<STAGES - 2>();
        // Each thread's copies, made visible to the matrix units, then everyone's.
        fence_async();
        __syncthreads();
        wgmma_fence();
        u64 q_tile = tile_descriptor(shared.q[0] + warpgroup * 64 * 64, 16, 1024);
        u64 k_tile = tile_descriptor(shared.k[stage][0], 16, 1024);
#pragma unroll
        for (int part = 0; part < HEAD / 16; ++part) {
            // Descriptors count in 16 bytes: 16 columns of a panel are 32 bytes, a row of it 128.
            int panel = part / 4;
            int at = part % 4 * 2;
            multiply(s, q_tile + panel * GROUPS * 64 * 8 + at, k_tile + panel * KEYS * 8 + at, part > 0);
        }
        wgmma_commit();
        // While the products run: everyone has passed the barrier, so the stage of the step before is free.
        load(step + STAGES - 1);
        wgmma_wait<0>();
        arrived(s);
        if (key0 + KEYS > length || (causal && key0 + KEYS > row0)) {
            hide(s, key0, row, length, causal);
        }
        softmax(s, rows, factor, scale);
        multiply_rows(o_part, factor);
        pack(p, s);
        wgmma_fence();
        u64 v_tile = tile_descriptor(shared.v[stage][0], KEYS * 128, 1024);
#pragma unroll
        for (int part = 0; part < KEYS / 16; ++part) {
            multiply(o_part, p[part], v_tile + part * 128);
        }
        wgmma_commit();
        wgmma_wait<0>();
        arrived(o_part);
    }
    finish(rows, factor);
    multiply_rows(o_part, factor);
#pragma unroll
    for (int x = 0; x < HEAD / 8; ++x) {
        store_2(o, row, x * 8 + column, length, HEAD, o_part[x][0], o_part[x][1]);
        store_2(o, row + 8, x * 8 + column, length, HEAD, o_part[x][2], o_part[x][3]);
    }
}
