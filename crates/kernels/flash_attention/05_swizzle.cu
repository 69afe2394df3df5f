// idea: tiles without padding: rows stay aligned to sectors, and the order of 16-byte pieces depends on the row, so no two fall into one bank.
// changed: rows of 64 numbers, a panel for each 64 numbers of the head, swizzled as the TMA and wgmma want them.
// constants: as before.
#include "../matmul_bf16/ampere.cuh"
#include "online.cuh"

struct Shared {
    bf16 k[STAGES][HEAD / 64][KEYS * 64];
    bf16 v[STAGES][HEAD / 64][KEYS * 64];
};

// Where 8 numbers of a panel lie: rows of 64 numbers, their eight pieces in an order that depends on the row.
__device__ int swizzled(int row, int piece) {
    return row * 64 + (piece ^ row % 8) * 8;
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    flash_attention(const bf16 *q, const bf16 *k, const bf16 *v, bf16 *o, int length, int group, float scale,
                    int CAUSAL_AND_LSE) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared &shared = *(Shared *)memory;
    int lane = threadIdx.x % 32;
    int row0 = blockIdx.x * WARPS * 16;
    // The first of this thread's two rows, and of its columns.
    int row = row0 + threadIdx.x / 32 * 16 + lane / 4;
    int column = lane % 4 * 2;
    int head = blockIdx.y;
    q += (size_t)head * length * HEAD;
    o += (size_t)head * length * HEAD;
    // `group` heads of q share one head of k and v.
    k += (size_t)(head / group) * length * HEAD;
    v += (size_t)(head / group) * length * HEAD;
    u32 q_part[HEAD / 16][4];
#pragma unroll
    for (int part = 0; part < HEAD / 16; ++part) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            int at = row + i % 2 * 8;
            q_part[part][i] = at < length ? *(const u32 *)&q[(size_t)at * HEAD + part * 16 + i / 2 * 8 + column] : 0;
        }
    }
    float s[KEYS / 8][4];
    u32 p[KEYS / 16][4];
    float o_part[HEAD / 8][4] = {};
    float factor[2];
    Rows rows;
    // Up to the last key that one of the block's queries sees.
    int keys = causal ? min(length, row0 + WARPS * 16) : length;
    // The block copies STEP rows of a tile at once, 16 bytes per thread.
    constexpr int STEP = WARPS * 32 * 8 / HEAD;
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
    for (int step = 0; step < STAGES - 1; ++step) {
        load(step);
    }
    for (int step = 0; step * KEYS < keys; ++step) {
        int key0 = step * KEYS;
        int stage = step % STAGES;
        copies_wait<STAGES - 2>();
        // This step's tiles are here, and everyone is done with the stage that is filled next.
        __syncthreads();
        load(step + STAGES - 1);
#pragma unroll
        for (int x = 0; x < KEYS / 8; x += 2) {
            for (int i = 0; i < 4; ++i) {
                s[x][i] = s[x + 1][i] = 0.0f;
            }
#pragma unroll
            for (int part = 0; part < HEAD / 16; ++part) {
                u32 b[4];
                int key = x * 8 + lane / 16 * 8 + lane % 8;
                load_matrices(b, &shared.k[stage][part / 4][swizzled(key, part % 4 * 2 + lane / 8 % 2)]);
                multiply(s[x], q_part[part], b[0], b[1]);
                multiply(s[x + 1], q_part[part], b[2], b[3]);
            }
        }
        if (key0 + KEYS > length || (causal && key0 + KEYS > row0)) {
            hide(s, key0, row, length, causal);
        }
        softmax(s, rows, factor, scale);
        multiply_rows(o_part, factor);
        pack(p, s);
#pragma unroll
        for (int part = 0; part < KEYS / 16; ++part) {
#pragma unroll
            for (int x = 0; x < HEAD / 8; x += 2) {
                // v's rows lie along the head, the instruction wants columns: ldmatrix transposes on the way.
                u32 b[4];
                int key = part * 16 + lane % 16;
                load_transposed(b, &shared.v[stage][x / 8][swizzled(key, x % 8 + lane / 16)]);
                multiply(o_part[x], p[part], b[0], b[1]);
                multiply(o_part[x + 1], p[part], b[2], b[3]);
            }
        }
    }
    finish(rows, factor);
#ifdef STORE_LSE
    store_lse(rows, factor, lse + (size_t)head * length, row, length, scale);
#endif
    multiply_rows(o_part, factor);
#pragma unroll
    for (int x = 0; x < HEAD / 8; ++x) {
        store_2(o, row, x * 8 + column, length, HEAD, o_part[x][0], o_part[x][1]);
        store_2(o, row + 8, x * 8 + column, length, HEAD, o_part[x][2], o_part[x][3]);
    }
}
