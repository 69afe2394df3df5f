// idea: memory likes long runs better than many rows' short pieces: a warp reads 512 bytes of a row at a time.
// changed: for the tensor cores, eight pieces of one row stand for eight rows; of the result only the diagonal counts.
// constants: BITS, GROUP; WARPS of a block, PAIRS of rows that it takes, and BLOCKS on a multiprocessor.
#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    quantized_gemv(const u32 *codes, const bf16 *scales, const bf16 *x, bf16 *y, int rows, int columns) {
    int row0 = blockIdx.x * ROWS, warp = threadIdx.x / 32;
    float sums[ROWS] = {};
    for (int step = warp; step * STEP < columns; step += WARPS) {
        Pieces pieces;
        pieces.load(codes, scales, step, row0, rows, columns);
        pieces.multiply(x, step, columns, sums);
    }
    finish(sums, y, row0, rows);
}
