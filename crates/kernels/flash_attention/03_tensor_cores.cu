// idea: tensor cores for both products; the scores never leave registers, and as exponentials they are the next operand.
// changed: a warp answers 16 queries; mma.sync on tiles that ldmatrix fetches; the softmax of online.cuh.
// constants: HEAD, KEYS of a tile, WARPS of a block. Rows in shared memory are 8 numbers longer (banks).
#include "../matmul_bf16/ampere.cuh"
#include "online.cuh"

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    flash_attention(const bf16 *q, const bf16 *k, const bf16 *v, bf16 *o, int length, int group, float scale,
                    int causal) {
    __shared__ __align__(16) bf16 k_tile[KEYS][HEAD + 8];
    __shared__ __align__(16) bf16 v_tile[KEYS][HEAD + 8];
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
    for (int key0 = 0; key0 < keys; key0 += KEYS) {
        __syncthreads();
        for (int i = threadIdx.x * 8; i < KEYS * HEAD; i += WARPS * 32 * 8) {
            int y = i / HEAD;
            int x = i % HEAD;
            size_t from = (size_t)(key0 + y) * HEAD + x;
            *(uint4 *)&k_tile[y][x] = key0 + y < length ? *(const uint4 *)&k[from] : uint4{};
            *(uint4 *)&v_tile[y][x] = key0 + y < length ? *(const uint4 *)&v[from] : uint4{};
        }
        __syncthreads();
#pragma unroll
        for (int x = 0; x < KEYS / 8; x += 2) {
            for (int i = 0; i < 4; ++i) {
                s[x][i] = s[x + 1][i] = 0.0f;
            }
#pragma unroll
            for (int part = 0; part < HEAD / 16; ++part) {
                u32 b[4];
                load_matrices(b, &k_tile[x * 8 + lane / 16 * 8 + lane % 8][part * 16 + lane / 8 % 2 * 8]);
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
                load_transposed(b, &v_tile[part * 16 + lane % 16][x * 8 + lane / 16 * 8]);
                multiply(o_part[x], p[part], b[0], b[1]);
                multiply(o_part[x + 1], p[part], b[2], b[3]);
            }
        }
    }
    finish(rows, factor);
    multiply_rows(o_part, factor);
#pragma unroll
    for (int x = 0; x < HEAD / 8; ++x) {
        store_2(o, row, x * 8 + column, length, HEAD, o_part[x][0], o_part[x][1]);
        store_2(o, row + 8, x * 8 + column, length, HEAD, o_part[x][2], o_part[x][3]);
    }
}
