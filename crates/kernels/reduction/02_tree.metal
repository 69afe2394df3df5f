// idea: a block adds its elements in shared memory, pair by pair, then pairs of pairs: log2(THREADS) steps, no atomics.
// changed: a block leaves one partial sum; the same kernel is launched on the partial sums until one is left.
// constants: THREADS, a power of two, is the block's size; from the table.
// Metal: the twin of the .cu file beside it. A threadgroup is what CUDA calls a block, a SIMD group a warp.
#include <metal_stdlib>
using namespace metal;

kernel void reduce(device const float *a [[buffer(0)]], device float *partial [[buffer(1)]],
                   constant int &n [[buffer(2)]], uint block [[threadgroup_position_in_grid]],
                   uint index [[thread_position_in_threadgroup]]) {
    threadgroup float sums[THREADS];
    int thread_id = int(index);
    int i = int(block) * THREADS + thread_id;
    // Beyond the array stand zeros, which add nothing.
    sums[thread_id] = i < n ? a[i] : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int distance = 1; distance < THREADS; distance *= 2) {
        // Every second thread of a warp works, then every fourth: the others wait in the same warp.
        if (thread_id % (2 * distance) == 0) {
            sums[thread_id] += sums[thread_id + distance];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (thread_id == 0) {
        partial[block] = sums[0];
    }
}
