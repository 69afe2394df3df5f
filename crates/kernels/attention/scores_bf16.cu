// idea: S = Q · Kᵀ in bf16 on tensor cores: each query times each key.
// constants: TILE queries and keys a block of THREADS threads, in pieces of DEPTH numbers.
#include "tile_bf16.cuh"

// Rows are 8 longer than they must be, so that those of a fragment begin in different banks.
#define WIDE (DEPTH + 8)

// q [batch, q_heads, length, width], k [batch, kv_heads, length, width], s [batch, q_heads, length, length].
extern "C" __global__ void scores(const number *q, const number *k, number *s, int q_heads, int kv_heads, int length,
                                  int width) {
    __shared__ __align__(32) number q_piece[TILE * WIDE], k_piece[TILE * WIDE];
    int head = blockIdx.z % q_heads, sequence = blockIdx.z / q_heads;
    // Neighbouring heads of q share one of k.
    int kv_head = head / (q_heads / kv_heads);
    q += (size_t)blockIdx.z * length * width;
    k += (size_t)(sequence * kv_heads + kv_head) * length * width;
    s += (size_t)blockIdx.z * length * length;
    int first_query = blockIdx.y * TILE, first_key = blockIdx.x * TILE;
    Sums sums;
    clear(sums);
    for (int d0 = 0; d0 < width; d0 += DEPTH) {
        load<TILE, DEPTH>(q_piece, WIDE, q, length, width, first_query, d0);
        load<TILE, DEPTH>(k_piece, WIDE, k, length, width, first_key, d0);
        __syncthreads();
        // A column of Kᵀ is a row of k.
        add_products<true, col_major>(sums, q_piece, WIDE, k_piece, WIDE);
        __syncthreads();
    }
    store(sums, s, length, length, first_query, first_key);
}
