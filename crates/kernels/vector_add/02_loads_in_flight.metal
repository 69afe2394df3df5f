// idea: a thread asks for all its elements before it uses the first, so that many loads are in flight at a time.
// changed: a block adds a tile of EACH × THREADS elements; one loop loads, one adds and stores.
// constants: THREADS is the block's size, EACH the elements of a and of b that a thread asks for; from the table.
// Metal: the twin of the .cu file beside it. A threadgroup is what CUDA calls a block, a SIMD group a warp.
#include <metal_stdlib>
using namespace metal;

kernel void vector_add(device const float *a [[buffer(0)]], device const float *b [[buffer(1)]],
                       device float *c [[buffer(2)]], constant int &n [[buffer(3)]],
                       uint block [[threadgroup_position_in_grid]], uint lane [[thread_position_in_threadgroup]]) {
    // Neighbouring threads still touch neighbouring elements; a thread's own lie THREADS apart.
    int i = int(block) * (EACH * THREADS) + int(lane);
    if (i + (EACH - 1) * THREADS < n) {
        // Unrolled, so that these arrays are registers.
        float x[EACH], y[EACH];
#pragma unroll
        for (int v = 0; v < EACH; ++v) {
            x[v] = a[i + v * THREADS];
            y[v] = b[i + v * THREADS];
        }
#pragma unroll
        for (int v = 0; v < EACH; ++v) {
            c[i + v * THREADS] = x[v] + y[v];
        }
    } else {
        // The last tile is not full.
        for (; i < n; i += THREADS) {
            c[i] = a[i] + b[i];
        }
    }
}
