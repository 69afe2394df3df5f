// The kernels of flash attention on heads that lie beside each other in a token's row, as products leave them: HEADS × HEAD
// numbers of each token, text after text. A stack of matrices is one of texts then, and a head some of its columns.
#pragma once
#include "../flash_attention/wgmma.cuh"

__device__ __forceinline__ void load_of_head(void *to, const TensorMap *map, int column, int row, int head, u64 *barrier) {
    tma_load(to, map, head % HEADS * HEAD + column, row, head / HEADS, barrier);
}

__device__ __forceinline__ void store_of_head(const TensorMap *map, const void *from, int column, int row, int head) {
    tma_store(map, from, head % HEADS * HEAD + column, row, head / HEADS);
}

#define tma_load load_of_head
#define tma_store store_of_head
