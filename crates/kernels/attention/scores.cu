// idea: S = Q · Kᵀ, a head at a time: each query times each key.
// constants: TILE queries and keys a block, in pieces of DEPTH numbers; (TILE / 4)² threads.
#include "tile.cuh"

// q [batch, q_heads, length, width], k [batch, kv_heads, length, width], s [batch, q_heads, length, length].
extern "C" __global__ void scores(const number *q, const number *k, number *s, int q_heads, int kv_heads, int length,
                                  int width) {
    __shared__ Piece q_piece, k_piece;
    int head = blockIdx.z % q_heads, sequence = blockIdx.z / q_heads;
    // Neighbouring heads of q share one of k.
    int kv_head = head / (q_heads / kv_heads);
    q += (size_t)blockIdx.z * length * width;
    k += (size_t)(sequence * kv_heads + kv_head) * length * width;
    s += (size_t)blockIdx.z * length * length;
    int first_query = blockIdx.y * TILE, first_key = blockIdx.x * TILE;
    int row = threadIdx.x / SIDE, column = threadIdx.x % SIDE;
    float sums[EACH][EACH] = {};
    for (int d0 = 0; d0 < width; d0 += DEPTH) {
        for (int at = threadIdx.x; at < TILE * DEPTH; at += SIDE * SIDE) {
            int token = at / DEPTH, d = at % DEPTH;
            // Beyond the matrices stand zeros, which add nothing.
            bool inside = d0 + d < width;
            int query = first_query + token, key = first_key + token;
            q_piece[d][token] = inside && query < length ? float(q[(size_t)query * width + d0 + d]) : 0.0f;
            k_piece[d][token] = inside && key < length ? float(k[(size_t)key * width + d0 + d]) : 0.0f;
        }
        __syncthreads();
        add_products(sums, q_piece, k_piece, row, column);
        __syncthreads();
    }
    for (int i = 0; i < EACH; ++i) {
        for (int j = 0; j < EACH; ++j) {
            int query = first_query + EACH * row + i, key = first_key + column + SIDE * j;
            if (query < length && key < length) {
                s[(size_t)query * length + key] = number(sums[i][j]);
            }
        }
    }
}
