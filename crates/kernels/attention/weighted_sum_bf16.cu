// idea: O = P · V in bf16 on tensor cores: of each query's weights and the rows of v, the mean that they weigh.
// constants: TILE queries and numbers of a row a block of THREADS threads, in pieces of DEPTH keys.
#include "tile_bf16.cuh"

// Rows are 8 longer than they must be, so that those of a fragment begin in different banks.
#define P_WIDE (DEPTH + 8)
#define V_WIDE (TILE + 8)

// p [batch, q_heads, length, length], v [batch, kv_heads, length, width], o [batch, q_heads, length, width].
extern "C" __global__ void weighted_sum(const number *p, const number *v, number *o, int q_heads, int kv_heads,
                                        int length, int width) {
    __shared__ __align__(32) number p_piece[TILE * P_WIDE], v_piece[DEPTH * V_WIDE];
    int head = blockIdx.z % q_heads, sequence = blockIdx.z / q_heads;
    int kv_head = head / (q_heads / kv_heads);
    p += (size_t)blockIdx.z * length * length;
    v += (size_t)(sequence * kv_heads + kv_head) * length * width;
    o += (size_t)blockIdx.z * length * width;
    int first_query = blockIdx.y * TILE, first_d = blockIdx.x * TILE;
    Sums sums;
    clear(sums);
    for (int key0 = 0; key0 < length; key0 += DEPTH) {
        load<TILE, DEPTH>(p_piece, P_WIDE, p, length, length, first_query, key0);
        load<DEPTH, TILE>(v_piece, V_WIDE, v, length, width, key0, first_d);
        __syncthreads();
        add_products<false, row_major>(sums, p_piece, P_WIDE, v_piece, V_WIDE);
        __syncthreads();
    }
    store(sums, o, length, width, first_query, first_d);
}
