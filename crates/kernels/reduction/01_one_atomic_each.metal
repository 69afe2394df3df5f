// idea: every thread adds its element to one number in memory; an atomic addition makes the threads take turns.
// changed: nothing, this is the first rung.
// constants: none; the block size (Metal: threadgroup) is the launch's.
// Metal: the twin of the .cu file beside it. A threadgroup is what CUDA calls a block, a SIMD group a warp.
// The sum is partial[0], which must be 0 before the launch. Atomic additions of floats need Metal 3.
#include <metal_stdlib>
using namespace metal;

kernel void reduce(device const float *a [[buffer(0)]], device atomic_float *partial [[buffer(1)]],
                   constant int &n [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    if (i < uint(n)) {
        atomic_fetch_add_explicit(&partial[0], a[i], memory_order_relaxed);
    }
}
