// idea: the copies of the next blocks are in flight while the tensor cores work on this one.
// changed: a ring of STAGES tiles in shared memory; a block's copies begin STAGES - 1 blocks ahead.
// constants: as before, and STAGES.
#include "tiles.cuh"

extern "C" __global__ void __launch_bounds__(128)
    block_sparse(const int *starts, const int *indices, const bf16 *blocks, const bf16 *b, bf16 *c, int rows, int columns,
                 int width) {
    __shared__ __align__(128) Tiles tiles[STAGES];
    float sum[TILE_N / 16][4] = {};
    int first = starts[blockIdx.y], last = starts[blockIdx.y + 1];
    auto begin = [&](int at) {
        if (at < last) {
            load(tiles[(at - first) % STAGES], blocks, b, at, indices[at] * SIDE, blockIdx.x * TILE_N, columns, width);
        }
        copies_commit();
    };
    for (int at = first; at < first + STAGES - 1; ++at) {
        begin(at);
    }
    for (int at = first; at < last; ++at) {
        copies_wait<STAGES - 2>();
        // This block's tiles are here, and everyone is done with the stage that is filled next.
        __syncthreads();
        begin(at + STAGES - 1);
        multiply_tiles(sum, tiles[(at - first) % STAGES]);
    }
    store(c, sum, rows, width);
}
