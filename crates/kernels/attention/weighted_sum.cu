// idea: O = P · V, a head at a time: of each query's weights and the rows of v, the mean that they weigh.
// constants: TILE queries and numbers of a row a block, in pieces of DEPTH keys; (TILE / 4)² threads.
#include "tile.cuh"

// p [batch, q_heads, length, length], v [batch, kv_heads, length, width], o [batch, q_heads, length, width].
extern "C" __global__ void weighted_sum(const number *p, const number *v, number *o, int q_heads, int kv_heads,
                                        int length, int width) {
    __shared__ Piece p_piece, v_piece;
    int head = blockIdx.z % q_heads, sequence = blockIdx.z / q_heads;
    int kv_head = head / (q_heads / kv_heads);
    p += (size_t)blockIdx.z * length * length;
    v += (size_t)(sequence * kv_heads + kv_head) * length * width;
    o += (size_t)blockIdx.z * length * width;
    int first_query = blockIdx.y * TILE, first_d = blockIdx.x * TILE;
    int row = threadIdx.x / SIDE, column = threadIdx.x % SIDE;
    float sums[EACH][EACH] = {};
    for (int key0 = 0; key0 < length; key0 += DEPTH) {
        for (int at = threadIdx.x; at < TILE * DEPTH; at += SIDE * SIDE) {
            int query = first_query + at / DEPTH, key = key0 + at % DEPTH;
            bool inside = query < length && key < length;
            p_piece[at % DEPTH][at / DEPTH] = inside ? float(p[(size_t)query * length + key]) : 0.0f;
            key = key0 + at / TILE;
            int d = first_d + at % TILE;
            v_piece[at / TILE][at % TILE] = key < length && d < width ? float(v[(size_t)key * width + d]) : 0.0f;
        }
        __syncthreads();
        add_products(sums, p_piece, v_piece, row, column);
        __syncthreads();
    }
    for (int i = 0; i < EACH; ++i) {
        for (int j = 0; j < EACH; ++j) {
            int query = first_query + EACH * row + i, d = first_d + column + SIDE * j;
            if (query < length && d < width) {
                o[(size_t)query * width + d] = number(sums[i][j]);
            }
        }
    }
}
