// idea: zeros are left out by whole blocks of SIDE × SIDE: what is left are small dense products, which tensor cores take.
// changed: the first rung.
// constants: SIDE, of a block; TILE_N, the columns of c that a thread block computes; from the table.
#include "tiles.cuh"

extern "C" __global__ void __launch_bounds__(128)
    block_sparse(const int *starts, const int *indices, const bf16 *blocks, const bf16 *b, bf16 *c, int rows, int columns,
                 int width) {
    __shared__ __align__(128) Tiles tiles;
    float sum[TILE_N / 16][4] = {};
    int first = starts[blockIdx.y], last = starts[blockIdx.y + 1];
    for (int at = first; at < last; ++at) {
        load(tiles, blocks, b, at, indices[at] * SIDE, blockIdx.x * TILE_N, columns, width);
        copies_commit();
        copies_wait<0>();
        __syncthreads();
        multiply_tiles(sum, tiles);
        // Everyone is done with the tiles before the next ones come.
        __syncthreads();
    }
    store(c, sum, rows, width);
}
