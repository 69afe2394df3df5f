// idea: one thread adds one pair of elements, c[i] = a[i] + b[i].
// changed: nothing, this is the first rung; the Metal twin of the .cu file beside it.
// constants: none; the block size (Metal: threadgroup) is the launch's.
#include <metal_stdlib>
using namespace metal;

kernel void vector_add(device const float *a [[buffer(0)]], device const float *b [[buffer(1)]],
                       device float *c [[buffer(2)]], constant int &n [[buffer(3)]],
                       uint i [[thread_position_in_grid]]) {
    // The last block has threads to spare.
    if (i < uint(n)) {
        c[i] = a[i] + b[i];
    }
}
