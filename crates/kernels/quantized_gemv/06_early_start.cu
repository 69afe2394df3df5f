// idea: weights do not depend on the kernel in front: the first of them are fetched while its last blocks still run.
// changed: programmatic dependent launch; only what that kernel may have written, x, waits for its end.
// constants: as before.
#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    quantized_gemv(const u32 *codes, const bf16 *scales, const bf16 *x, bf16 *y, int rows, int columns) {
    int row0 = blockIdx.x * ROWS, warp = threadIdx.x / 32;
    float sums[ROWS] = {};
    // The next kernel may start as soon as each block of this one has come here.
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    for (int step = warp; step * STEP < columns; step += WARPS) {
        Pieces pieces;
        pieces.load(codes, scales, step, row0, rows, columns);
        // Everything that the kernel in front wrote can be seen behind this line; from the second time on it waits for nothing.
        asm volatile("griddepcontrol.wait;" ::: "memory");
        pieces.multiply(x, step, columns, sums);
    }
    // Also where a warp has had no step: y may still be read by the kernel in front.
    asm volatile("griddepcontrol.wait;" ::: "memory");
    finish(sums, y, row0, rows);
}
